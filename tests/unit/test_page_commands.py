"""Every `reticent` command on any page can be parsed, and every page can be followed from top to bottom."""

import os
import re
import shlex

import click
import pytest

from reticent.chain.anvil import find_anvil

from .following import COMMAND, STAYS, Terminal, commands, mistakes
from .reading import ROOT, of_this_clone, reader
from .warm import Warm

__all__ = ["reader"]  # a fixture
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
INLINE = re.compile(r"`(reticent(?: [^`]+)?)`", re.S)
PASSED_OVER = {"...", "…", "--help", "-h", "--version", "--install-completion"}  # what acts when it is parsed


def of_blocks(text):
    """The commands of the blocks of a page, without their comments."""
    for language, block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if language in ("", "sh") and line.startswith("reticent "):
                inner = re.sub(r"\$\([^()]*\)", "X", line.strip())  # what another command says
                yield re.sub(r"\s+(?:#|\||>)\s.*", "", inner)


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


# What nobody types here, and why. All else is typed as it stands, but for ports: they may be taken here.
NOT_RUN = {
    r"broker\.example\.org": "another machine; cli/test_demo_collect.py has a broker of its own",
    r"^(useradd|runuser|python3 -m venv /opt|/opt/|cp docs/deploy)": "changes the machine, as root",
    r"^podman": "needs a container engine",
    r"HOME/census.yaml --ledger ADDRESS": "a PostgreSQL server of the reader's; query/test_home_moves.py",
    r"^reticent reproduce (all --check|all --quick|fig-|loc-|chain-|crowd-|market-|.*--keep)": (
        "minutes to hours, and some need data that is no part of this; experiments/ runs each, small"
    ),
    r"^reticent audit all( --report|$)": "a million draws of 95 claims; the quick one is run",
    r"task\.yaml( --target 0\.2)?$": "a file of the reader's; run on the page of its own",
    r"^reticent price census.yaml .* --error 1000$": "the same",
    r"^flower-|^flwr run \. here": "several machines with certificates; federated/flower/ runs them",
    r"^(export F|python prepare|flwr run \. --stream)": "in the example's folder; federated/flower/ runs it",
}
FOLLOWED = [page for page in PAGES if page.parent.name != "reticent" and page.parent != ROOT]
FOLLOWED = sorted(
    page for page in FOLLOWED if page.name != "tutorial.md" and list(commands(page.read_text()))
)
QUICK = {"budgets", "datasets", "mechanisms", "queries", "store"}
CHAIN = {"chain", "crowd"}
PARAMETERS = [
    pytest.param(page, id=page.stem, marks=[] if page.stem in QUICK else [pytest.mark.slow])
    for page in FOLLOWED
]


def is_run(command):
    return not any(re.search(why, command) for why in NOT_RUN)


def typed_on(page):
    return list(commands(page.read_text(encoding="utf-8")))


def skip_without_its_programs(page):
    """Skip what needs a program that is not here."""
    if page.stem in CHAIN and find_anvil() is None:
        pytest.skip("there is no anvil on this machine: npm install -g @foundry-rs/anvil")
    if page.stem == "leakage":
        pytest.importorskip("flwr")


def test_the_reasons_are_needed():
    typed = [command for page in FOLLOWED for command in typed_on(page)]
    assert [why for why in NOT_RUN if not any(re.search(why, command) for command in typed)] == []
    assert len(list(filter(is_run, typed))) > 200


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("page", PARAMETERS)
def test_a_page_can_be_followed(reader, page, request):
    skip_without_its_programs(page)
    if page.stem in QUICK:  # test_wheel.py types them as processes of their own
        request.getfixturevalue("warm").lend(reader, STAYS)
    assert list(mistakes(reader, page.read_text(encoding="utf-8"), NOT_RUN)) == []


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    with Warm(tmp_path_factory.mktemp("warm"), **of_this_clone()) as one:
        yield one


PLANTED = """```sh
NAME=none    # remembered
reticent store serve blocks --port 8085    # stays
reticent dataset check $NAME.yaml
```

Then `reticent store put http://127.0.0.1:8085 nothing`, and `reticent store put`, which names a command.

```sh
cat > made <<'END'
reticent nonsense
END
reticent store put http://127.0.0.1:8085 made
reticent dataset check none.yaml    # exits with 2
reticent store put http://127.0.0.1:8085 made    # exits with 1
```
"""


def test_planted_mistakes_of_a_page_are_found(reader, warm):
    warm.lend(reader, STAYS)
    found = [(command.split("#")[0].strip(), code) for command, code, _ in mistakes(reader, PLANTED)]
    assert found == [
        ("reticent dataset check $NAME.yaml", 2),
        ("reticent store put http://127.0.0.1:8085 nothing", 2),
        ("reticent store put http://127.0.0.1:8085 made", 0),
    ]


def test_what_stays_is_ended_with_the_page(reader):
    with Terminal(reader) as terminal:
        assert terminal.typed("reticent store serve blocks --port 8085")[0] == 0
        (beside,) = terminal.beside
        os.kill(beside.pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(beside.pid, 0)
