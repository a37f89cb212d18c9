"""README's commands, one after the other as they are written, in one empty folder."""

import re

import pytest

from .reading import ROOT, blocks, masked, reader

__all__ = ["reader"]  # a fixture
README = (ROOT / "README.md").read_text(encoding="utf-8")
INLINE = re.compile(r"`(reticent [^`]+)`")
PLACEHOLDER = re.compile(r"\b[A-Z]{4,}\b")  # `reticent dataset new FILE`
COVERED = {  # by tests of their own, which take minutes, or never end
    "reticent audit all": "tests/unit/audit/test_gate.py",
    "reticent demo": "tests/unit/cli/test_demo.py",
    "reticent demo collect": "tests/unit/cli/test_demo_collect.py",
    "reticent demo fleet": "tests/unit/cli/test_demo_fleet.py",
}


def steps(text):
    """What is to be run, in order: (language, program). `make` has tests of its own."""
    for language, block in blocks(text):
        if language == "python":
            yield language, block
        elif language == "sh":
            yield from ((language, line) for line in block.splitlines() if not line.startswith("make "))


def failed(reader, text):
    """The first step that does not work, with what it said; None if all do."""
    for language, program in steps(text):
        code, said = reader.run(language, program)
        if code != 0:
            return program, code, said
    return None


@pytest.mark.timeout(900)
def test_every_command_runs_as_it_is_written(reader):
    assert failed(reader, README) is None
    # What they made is of use: a device takes part in the campaign.
    signer = re.search(
        r"\b[0-9a-f]{64}\b", reader.run("sh", "reticent location privic show census/places/paris")[1]
    )
    for command in (
        "reticent survey enrol --out phones --master census/.service/enrolment.key",
        "reticent location report census/places/paris/round-0.json --latitude 48.85 --longitude 2.33 "
        f"--ledger phone.ledger --enrolment phones/*.json --signer {signer[0]} --out report",
    ):
        code, said = reader.run("sh", command)
        assert code == 0, said


@pytest.mark.parametrize(
    "command",
    [
        one
        for one in dict.fromkeys(INLINE.findall(README))
        if one not in COVERED and not PLACEHOLDER.search(one)
    ],
)
def test_what_is_named_in_passing_runs(reader, command):
    code, said = reader.run("sh", command)
    assert code == 0, said


def test_what_others_cover_is_there():
    assert [path for path in COVERED.values() if not (ROOT / path).exists()] == []
    assert set(COVERED) <= set(INLINE.findall(README))


def test_the_first_example_says_what_is_printed(reader):
    (_, program), (_, printed) = blocks(README)[:2]
    assert len([line for line in program.splitlines() if line]) <= 6
    code, said = reader.run("python", program)
    assert (code, masked(said)) == (0, masked(printed))
    assert masked(printed) != printed.rstrip()


def test_planted_another_cost_is_found(reader):
    (_, program), (_, printed) = blocks(README)[:2]
    _, said = reader.run("python", program.replace("error=2000", "error=2100"))
    assert masked(said) != masked(printed)


def test_it_is_short():
    assert len(README.splitlines()) <= 150


def test_planted_a_command_that_does_not_run_is_found(reader):
    text = "```sh\nmake demo\nreticent version\nreticent ask none.yaml 'SELECT COUNT(*) FROM none'\n```\n"
    program, code, said = failed(reader, text)
    assert (program.split()[1], code) == ("ask", 2)
    assert "none.yaml" in said
    assert failed(reader, "```python\nopen('none')\n```\n")[1] == 1
