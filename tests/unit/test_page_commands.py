"""Every `reticent` command on any page: it can be parsed; those of blocks are run, or it is said why not."""

import re
import shlex

import click
import pytest
import typer.main

from reticent.apps.listed import APPS
from reticent.cli.app import create_app
from reticent.query import census

from .reading import ROOT, reader

__all__ = ["reader"]  # a fixture
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
INLINE = re.compile(r"`(reticent(?: [^`]+)?)`", re.S)
PASSED_OVER = {"...", "…", "--help", "-h", "--version", "--install-completion"}  # what acts when it is parsed
COMMAND = typer.main.get_command(create_app([one.commands() for one in APPS]))


def of_blocks(text):
    """The commands of the blocks of a page, without their comments."""
    for language, block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if language in ("", "sh") and line.startswith("reticent "):
                yield re.sub(r"\s+#\s.*", "", line.strip())


def of_page(text):
    """All commands that a page names, those within sentences too."""
    yield from of_blocks(text)
    for found in INLINE.findall(BLOCK.sub("", text)):
        line = " ".join(found.split())
        if not line.startswith("reticent device ledger"):  # the first bytes of a file
            yield line


def fault(line):
    """Why the command cannot be parsed; None if it can. Words in capitals and dots stand for something."""
    words = [word for word in shlex.split(line.replace("|", " "))[1:] if word not in PASSED_OVER]
    if words and words[-1].startswith("--"):
        return fault(f"{line} 1") and _fault(words)  # an option that is named without its value
    return _fault(words)


def _fault(words):
    command = COMMAND
    try:
        while isinstance(command, click.Group):
            if not words:
                return None
            context = click.Context(command)
            command.parse_args(context, words)
            words = [*context._protected_args, *context.args]
            if words and words[0] == "COMMAND":
                return None
            if words:
                _, command, words = command.resolve_command(context, words)
        _, left, _ = command.make_parser(click.Context(command)).parse_args(words)
    except click.UsageError as error:
        return error.format_message()
    return f"too many words: {left}" if left else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_can_be_parsed(page):
    if page.name == "CHANGELOG.md":
        return  # it tells of commands that were
    found = {line: fault(line) for line in of_page(page.read_text(encoding="utf-8"))}
    assert {line: why for line, why in found.items() if why} == {}


@pytest.mark.parametrize(
    "line",
    [
        "reticent nonsense",
        "reticent ask census.yaml --exactly 3",
        "reticent dataset news census.csv",
        "reticent version 2",
    ],
)
def test_planted_commands_that_cannot_be_parsed_are_found(line):
    assert fault(line)


# What of the how-to pages is not run here, and why.
NOT_RUN = {
    r"\b[A-Z]{2,}\b": "a word stands for something of the reader's",
    r"https?://|postgresql://|10\.0\.0": "another machine, or a service that runs; tests of each run it",
    r"mymodule": "a program of the reader's; test_run_command.py, audit/flower and audit/leakage have some",
    r"^reticent chain (status|watch|verify)": "a chain; cli/test_demo_chain.py and ledger/test_ethereum.py",
    r"^reticent (market|device|audit run|audit ledger)": "what was made before; each has tests of its own",
    r"service/ledger.sqlite": "a service's ledger; audit/test_cli.py",
    r"^reticent audit all": "minutes; audit/test_gate.py",
    r"^reticent reproduce (all|fig-|loc-)": "long, and some need data; tests of experiments",
    r"^reticent dataset moved": "only after a restore; query/test_home_moves.py",
}


def shown(line):
    """A command without what is quoted: SQL is in capitals."""
    return re.sub(r"\"[^\"]*\"|'[^']*'", "", line).replace("HMTP", "").replace("PMOpt", "")


HOW_TO = [
    line for page in sorted((ROOT / "docs/how-to").glob("*.md")) for line in of_blocks(page.read_text())
]
RUN = [line for line in dict.fromkeys(HOW_TO) if not any(re.search(why, shown(line)) for why in NOT_RUN)]


def test_the_reasons_are_needed():
    assert [why for why in NOT_RUN if not any(re.search(why, shown(line)) for line in HOW_TO)] == []


def test_commands_of_how_to_pages_run(reader):
    """In order, beside a census; the declaration is filled in after it was made with blanks."""
    declared = census.write(reader.folder, rows=5000)
    filled = declared.read_text()
    declared.unlink()
    (reader.folder / "question.json").write_text(
        '{"kind": "histogram", "by": [{"column": "age", "bins": 12}]}'
    )
    for line in RUN:
        if line == "reticent dataset check census.yaml":
            declared.write_text(filled)
        code, said = reader.run("sh", line)
        assert code == 0, (line, said)
    assert len(RUN) > 12
