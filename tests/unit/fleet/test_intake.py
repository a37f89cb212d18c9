"""A new kind of fleet says how its reports look and how they are counted; the rest it cannot forget."""

from enum import Enum

import pytest

from reticent.errors import LedgerError
from reticent.fleet.enrolment import Use, enrolled, tag
from reticent.fleet.intake import Form, Intake

from ..operating import operator

MASTER = bytes(range(32))


class Outcome(Enum):
    COUNTED = "counted"
    LENGTH = "length"
    OTHER = "other"
    TAG = "tag"
    REVOKED = "revoked"
    SECOND = "second"


class Toy(Intake[Outcome]):
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


class Careless(Toy):
    """Planted: believes that nobody was taken back."""

    def _judged(self, report, master, revoked):
        return super()._judged(report, master, ())


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


def test_planted_a_kind_that_does_not_look_is_found():
    found, is_right = outcomes(Careless)
    assert found[3] == "counted"
    assert not is_right


def test_the_list_is_no_option():
    """Nobody can leave it out, and without it nothing is counted."""
    who = enrolled(MASTER)
    with pytest.raises(TypeError, match="revoked"):
        Toy.form.judged(report(who), MASTER)
    held = operator(MASTER)
    held.revocations.close()
    toy = Toy(held)
    with pytest.raises(LedgerError, match="cannot be used now"):
        toy.add([report(who)])
    assert not toy.said
