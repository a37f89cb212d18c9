"""Free riders are excluded, and other federations read it."""

from dataclasses import replace

import pytest

from reticent.errors import GuaranteeError
from reticent.market.federations import (
    acts,
    deals,
    words,
)

from .federating import ALL, EPSILON, FULL, Story, public, refused, three


def test_a_free_rider_is_excluded_and_others_read_it():
    story = three(period=2, tolerated=60 * EPSILON)
    first = story.whole_deal(FULL | {"bruno": (50, 1.3)}, budget=ALL)
    assert first.excluded == ()  # 35 kept back
    second = story.whole_deal(FULL | {"bruno": (50, 1.4)}, budget=ALL)
    assert second.saved[public("bruno")] == 65 * EPSILON
    assert second.excluded == (public("bruno"),)
    assert public("bruno") not in story.federation.members
    assert "she is excluded" in "\n".join(words.account(story.federation, public("bruno")))
    refused(story, "excluded from this federation", lambda: story.do("bruno", acts.Join(1, 1)))

    other = Story("south")
    other.do("bruno", acts.Join(5, EPSILON))
    read = {story.federation.id: story.federation.head}
    other.do("founder", acts.Admit(public("bruno"), read))  # a representative who does not look
    with pytest.raises(GuaranteeError, match="admitted though federation"):
        other.federation.check_admissions({story.federation.id: story.federation})
    fair = Story("west").members(("anna", 5, 1.0))
    fair.federation.check_admissions({story.federation.id: story.federation})


def test_an_admission_is_held_against_the_very_act_that_was_read():
    story = three(tolerated=60 * EPSILON)
    before = story.federation.head
    story.whole_deal(FULL | {"bruno": (50, 0.5)}, budget=ALL)
    of = {story.federation.id: story.federation}

    def admitted(*reads):
        other = Story("south")
        for name, last in reads:
            other.do(name, acts.Join(5, EPSILON))
            other.do("founder", acts.Admit(public(name), {story.federation.id: last}))
        other.federation.check_admissions(of)

    after = story.federation.head
    admitted(("bruno", before))  # nothing was to be read yet
    story.do("dora", acts.Join(5, EPSILON))
    with pytest.raises(GuaranteeError, match="admitted though federation"):
        admitted(("bruno", after), ("dora", story.federation.head))  # whatever was read later
    with pytest.raises(GuaranteeError, match="no such act here"):
        admitted(("bruno", "ab" * 32))


def test_who_gives_what_she_is_asked_for_keeps_nothing_back():
    """Also where a deal takes a small share of everybody's threshold."""
    story = three(tolerated=1)
    story.seal(story.award(story.bid(budget=1500)))
    story.ask()
    for name, (points, _) in FULL.items():
        story.do(name, acts.Give(1, points, story.federation.deal.asked[public(name)]))
    settlement = story.settle()
    assert settlement.saved == dict.fromkeys(settlement.saved, 0)
    assert settlement.excluded == ()


def test_planted_savings_from_the_threshold_exclude_everybody(monkeypatch):
    """Definition 8.4.2 as printed, at a share below 1."""
    real = deals.settled

    def printed(deal, *others, **options):
        due = {name: limits.information for name, limits in deal.members.items()}
        return real(replace(deal, due=due), *others, **options)

    monkeypatch.setattr(deals, "settled", printed)
    with pytest.raises(AssertionError):
        test_who_gives_what_she_is_asked_for_keeps_nothing_back()


@pytest.mark.parametrize(("tolerated", "excluded"), [(35, True), (36, False)])
def test_who_keeps_back_just_what_is_tolerated_is_excluded(tolerated, excluded):
    """Definition 8.4.3: at least, not more than."""
    story = three(tolerated=tolerated * EPSILON)
    settlement = story.whole_deal(FULL | {"bruno": (50, 1.3)}, budget=ALL)
    assert settlement.kept[public("bruno")] == 35 * EPSILON
    assert (public("bruno") in settlement.excluded) == excluded


def test_savings_beyond_the_period_are_forgotten_and_leaving_forgets_nothing():
    story = three(period=2, tolerated=10**18)
    for given in (0.5, 2.0, 2.0):
        story.whole_deal(FULL | {"bruno": (50, given)}, budget=ALL)
    assert [one.saved[public("bruno")] for _, one in story.federation.settled] == [
        75 * EPSILON,
        75 * EPSILON,
        0,
    ]
    story.whole_deal(FULL | {"bruno": (50, 1.0)}, budget=ALL)
    story.do("bruno", acts.Leave())
    story.members(("bruno", 50, 2.0))
    assert story.federation.saved()[public("bruno")] == 50 * EPSILON
