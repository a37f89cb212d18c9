"""A new kind of fleet says how its reports look and how they are counted; the rest it cannot forget."""

from enum import Enum
from pathlib import Path

import pytest

import reticent
from reticent.errors import LedgerError
from reticent.fleet.enrolment import Use, enrolled, tag
from reticent.fleet.intake import Form, Intake, RoundIntake
from reticent.fleet.revocation import Revocations

from ..operating import operator

MASTER = bytes(range(32))


class Outcome(Enum):
    COUNTED = "counted"
    LENGTH = "length"
    OTHER = "other"
    TAG = "tag"
    REVOKED = "revoked"
    SECOND = "second"


class Toy(RoundIntake[Outcome]):
    """Reports of one byte."""

    form = Form(Use.PLACE, 2 + 8 + 1 + 16, ((b"\x07", Outcome.OTHER), (b"t", Outcome.OTHER)), Outcome)

    def __init__(self, held):
        super().__init__(held)
        self.said = {}

    def _counted(self, reports):
        found = []
        for one in reports:
            found.append(Outcome.SECOND if one[self.form.reporter] in self.said else Outcome.COUNTED)
            self.said.setdefault(one[self.form.reporter], one[10])
        return found


def report(who, said=1, start=b"\x07t", use=Use.PLACE):
    content = start + who.id + bytes([said])
    return content + tag(who.key, use, content)


def outcomes(kind):
    """Of an honest report, its copy, a stranger's, one taken back, and reports with something wrong."""
    held, (one, other), stranger = operator(MASTER), [enrolled(MASTER) for _ in range(2)], enrolled(bytes(32))
    held.revocations.revoke(other.id)
    sent = [report(one), report(one), report(stranger), report(other), report(one)[:-1], b"", None]
    sent += [report(one, start=b"\x08t"), report(one, use=Use.TRAINING), report(stranger, start=b"\x07u")]
    toy = kind(held)
    found = [outcome.value for outcome in toy.add(sent)]
    assert sum(toy.outcomes.values()) == len(sent)
    return found, set(toy.said) == {one.id}


def test_a_new_kind_refuses_what_all_refuse():
    due = ["counted", "second", "tag", "revoked", "length", "length", "length", "other", "tag", "other"]
    assert outcomes(Toy) == (due, True)


def test_planted_an_intake_that_does_not_look_is_found(monkeypatch):
    monkeypatch.setattr(Revocations, "look", lambda self: frozenset())
    found, is_right = outcomes(Toy)
    assert found[3] == "counted"
    assert not is_right


def test_a_kind_that_does_not_look_cannot_be_made():
    """It could: `_judged` of a kind was given the list, and might leave it out."""
    with pytest.raises(TypeError, match="nothing is derived from Intake"):

        class Careless(Intake):
            def look(self):
                pass


def others_than_intake(imports):
    """Modules that compare tags of reports by themselves, past the list."""
    return {name for name, text in imports.items() if "fleet.tags" in text} - {"fleet/intake.py"}


def modules():
    root = Path(reticent.__file__).parent
    return {str(one.relative_to(root)): one.read_text() for one in root.rglob("*.py")}


def test_nobody_else_knows_genuine_reports():
    """Planted: a room of its own opinion."""
    found = modules()
    assert others_than_intake(found) == set()
    found["location/store.py"] += "from reticent.fleet.tags import are_genuine\n"
    assert others_than_intake(found) == {"location/store.py"}


def test_the_list_is_no_option():
    """Nobody can leave it out, and without it nothing is counted."""
    who = enrolled(MASTER)
    with pytest.raises(TypeError, match="revocations"):
        Intake(MASTER)
    held = operator(MASTER)
    held.revocations.close()
    toy = Toy(held)
    with pytest.raises(LedgerError, match="cannot be used now"):
        toy.add([report(who)])
    assert not toy.said
