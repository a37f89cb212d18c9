"""Sums that federations write are redone by whoever reads them; quotas."""

from dataclasses import replace

import numpy as np
import pytest

from reticent.errors import GuaranteeError
from reticent.fleet import signing
from reticent.market.federations import (
    acts,
    contribution,
    deals,
    in_units,
    pooled_level,
    quota_of,
    words,
)
from reticent.market.federations.federation import Federation
from reticent.market.federations.purchases import (
    Award,
    Delivery,
    Taken,
    Wanted,
    awarded,
    check_award,
)

from .federating import ALL, BUYER, EPSILON, FULL, WORTH, Story, key_of, public, refused, three


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda act: {"paid": act.paid | {public("anna"): act.paid.get(public("anna"), 0) + 1}},
            "paid: .* redone",
        ),
        (lambda act: {"paid": {}}, "paid: 0 cents of member"),
        (lambda act: {"saved": act.saved | {public("cleo"): 1}}, "saved: 1 units of member"),
        (lambda act: {"saved": {}}, "saved: 0 units"),
        (lambda act: {"excluded": (public("bruno"),)}, "excluded: 1 members, redone 0"),
    ],
)
def test_a_representative_cannot_write_wrong_sums(change, why):
    story = three()
    story.seal(story.award(story.bid()))
    story.ask()
    for name, (points, epsilon) in (FULL | {"cleo": (30, 0.25)}).items():
        story.give(name, points, epsilon)
    right = story.federation.act_of(story.delivery())
    wrong = acts.Settle(**(right.as_fields() | change(right)))
    refused(story, why, lambda: story.do("founder", wrong))
    story.do("founder", right)


def settled_twice(story):
    """One award and one delivery, used for two deals."""
    wanted = story.bid()
    award = story.award(wanted)
    delivery = None
    for _ in range(2):
        if story.federation.deal is None:
            story.do("founder", story.federation.act_of(signing.signed(wanted, BUYER)))
        story.seal(award)
        story.ask()
        for name, (points, epsilon) in FULL.items():
            story.give(name, points, epsilon)
        delivery = delivery or story.delivery()
        story.do("founder", story.federation.act_of(delivery))


def test_an_award_is_settled_once():
    story = three()
    with pytest.raises(GuaranteeError, match="the award award was settled as deal 0"):
        settled_twice(story)
    assert len(story.federation.settled) == 1
    story.do("founder", acts.Withdraw())
    assert story.whole_deal(FULL).reached  # the same again, in a text of its own


def test_planted_a_chain_that_forgets_awards_pays_one_twice(monkeypatch):
    monkeypatch.setattr(Federation, "_check_not_settled", lambda self, award: None)
    story = three()
    settled_twice(story)
    assert [sum(one.paid.values()) for _, one in story.federation.settled] == [5000, 5000]


def test_planted_a_chain_that_redoes_nothing_takes_wrong_sums(monkeypatch):
    monkeypatch.setattr(
        Federation,
        "_settle",
        lambda self, by, act: setattr(self, "settled", [*self.settled, (self.deal, act)]),
    )
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_representative_cannot_write_wrong_sums(lambda act: {"paid": {}}, "paid")


def test_bids_seals_and_rounds_are_redone_too():
    story = three()
    wanted = Wanted("ages", "1", "to count", 5000, 4, WORTH)
    right = story.federation.act_of(signing.signed(wanted, BUYER))
    for changed in ({"level": right.level * 1.001}, {"most": right.most + 1}, {"points": 1}):
        refused(
            story,
            "the bid says level .* redone",
            lambda changed=changed: story.do("founder", acts.Bid(**(right.as_fields() | changed))),
        )
    story.do("founder", right)
    award = story.award(wanted)
    seal = story.federation.act_of(award)
    wrong = (public("anna"),) if seal.better_alone != (public("anna"),) else ()
    refused(story, "Theorem 8.1 fails", lambda: story.do("founder", acts.Seal(award.decode(), wrong)))
    story.do("founder", seal)
    more = dict.fromkeys(story.federation.next_round().asked, 1)
    refused(story, "asked: 1 units of member", lambda: story.do("founder", acts.Ask(1, more)))


def test_awards_that_do_not_follow_from_their_bids_are_refused():
    story, other = three(), Story("south").members(("dora", 200, 0.3))
    wanted = story.bid()
    other.bid()
    file = story.award(wanted, other)
    award = signing.unverified(Award, file)
    assert sum(one.cents for one in award.taken) <= wanted.budget
    check_award(wanted, award)
    story.seal(file)
    mine, theirs = award.of(story.federation.id), award.of(other.federation.id)
    assert mine.quota < mine.most
    twists = [
        {"share": award.share / 2},
        {"taken": tuple(Taken(**(vars(one) | {"cents": one.cents + 1})) for one in award.taken)},
        {"taken": tuple(Taken(**(vars(one) | {"quota": one.quota - 1})) for one in award.taken)},
        {"taken": (theirs,)},
        {"wanted": "0" * 16},
    ]
    for twist in twists:
        changed = Award(**({name: getattr(award, name) for name in Award.__dataclass_fields__} | twist))
        with pytest.raises(GuaranteeError, match="the award"):
            check_award(wanted, changed)
    refused(
        other,
        "signed by somebody else",
        lambda: other.do("founder", acts.Seal(signing.signed(award, key_of("x")).decode(), ())),
    )


def test_a_federation_seals_no_award_that_does_not_follow():
    story = three()
    wanted = story.bid()
    award = signing.unverified(Award, story.award(wanted))
    (mine,) = award.taken
    dearer = replace(award, taken=(replace(mine, cents=mine.cents + 1),))
    level, points, most = story.federation.deal.made
    other_bid = awarded(wanted, {story.federation.id: (level * 0.9, points, most)})
    for wrong, why in ((dearer, "redone"), (other_bid, "was bid")):
        file = signing.signed(wrong, BUYER).decode()
        fails = deals.better_alone(wanted, story.federation.members, wrong.taken[0])
        refused(story, why, lambda file=file, fails=fails: story.do("founder", acts.Seal(file, fails)))
    story.seal(signing.signed(award, BUYER))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda one: {"points": one.points + 1}, "which she did not give"),
        (lambda one: {"units": one.units + 1}, "which she did not give"),
        (lambda one: {"round": one.round + 1}, "which she did not give"),
        (lambda one: {"member": public("stranger")}, "which she did not give"),
    ],
)
def test_nothing_arrives_that_nobody_gave(change, why):
    story = three()
    story.seal(story.award(story.bid()))
    story.ask()
    story.give("anna", 60, 0.7)
    delivery = story.delivery(lambda arrived: [replace(one, **change(one)) for one in arrived])
    refused(story, why, lambda: story.do("founder", acts.Settle(delivery.decode(), {}, {}, ())))
    some = story.settle(lambda arrived: [replace(one, points=one.points - 1) for one in arrived])
    assert some.spent[public("anna")] == 59 * int(0.7 * EPSILON)


def test_a_delivery_of_another_deal_is_refused():
    story = three()
    story.seal(story.award(story.bid()))
    story.ask()
    right = signing.unverified(Delivery, story.delivery())
    for wrong in (replace(right, award="0" * 16), replace(right, federation="0" * 16)):
        file = signing.signed(wrong, BUYER).decode()
        refused(
            story,
            "is of another deal",
            lambda file=file: story.do("founder", acts.Settle(file, {}, {}, ())),
        )


def test_what_is_due_is_what_the_first_round_asked_for():
    story = three()
    story.seal(story.award(story.bid(budget=ALL)))
    story.ask()
    story.give("anna", 10, 0.2)
    story.ask()
    assert story.federation.deal.asked[public("anna")] == int(0.2 * EPSILON)
    assert story.federation.deal.due[public("anna")] == 100 * EPSILON
    story.give("anna", 90, 0.2)
    assert story.settle().kept[public("anna")] == 80 * EPSILON


def test_an_act_of_another_federation_is_refused():
    story = three()
    file = acts.signed(acts.Leave(), key_of("anna"), federation="0" * 16, after=story.federation.head)
    refused(story, "is of federation 0000000000000000", lambda: story.federation.apply(file))


def test_a_quota_above_all_thresholds_is_refused():
    with pytest.raises(GuaranteeError, match="within all thresholds together, 10 units, got 11"):
        deals.check_terms((1.0, 5, 10), Taken("0" * 16, 1.0, 5, 10, 11, 1))


def test_theorem_8_1_is_said_member_by_member():
    """Alone she is paid for one report at her threshold; a null player of the deal earns nothing in it."""
    story = Story().members(("anna", 1000, 3.0), ("tiny", 1, 0.1))
    story.seal(story.award(story.bid(budget=2000)))
    deal = story.federation.deal
    assert public("tiny") in deal.better_alone
    assert "Theorem 8.1 fails for" in "\n".join(words.status(story.federation))


def test_theorem_8_1_fails_for_the_highest_threshold_whatever_the_deal():
    """A federation's level is an average of its members', so f pays it no more than that member alone."""
    drawn = np.random.default_rng(4)
    for _ in range(100):
        limits = {
            public(i): deals.Limits(int(drawn.integers(1, 99)), int(drawn.uniform(0.01, 6.0) * EPSILON))
            for i in range(int(drawn.integers(1, 7)))
        }
        wanted = Wanted("n", "1", "x", int(drawn.integers(1, 10**6)), 4, WORTH)
        federation = "0" * 16
        terms = awarded(wanted, {federation: deals.bid(limits, 4)}).of(federation)
        highest = max(limits, key=lambda name: limits[name].threshold)
        assert highest in deals.better_alone(wanted, limits, terms)


# Quotas


def undone_by_joining(reached, cases, seed):
    """How often a deal that is reached is missed once somebody gives reports besides."""
    drawn, found = np.random.default_rng(seed), 0
    for _ in range(cases):
        points, epsilons = drawn.integers(1, 50, 6), drawn.uniform(0.05, 4.0, 6)
        some = int(drawn.integers(1, 6))
        found += reached(points[:some], epsilons[:some], points, epsilons) and not reached(
            points, epsilons, points, epsilons
        )
    return found


def by_contribution(points, epsilons, all_points, all_epsilons):
    quota = sum(in_units(contribution(all_points, all_epsilons, 4))) * 6 // 10
    return sum(in_units(contribution(points, epsilons, 4))) >= quota


def test_giving_more_never_misses_a_quota():
    assert undone_by_joining(by_contribution, 2_000, seed=1) == 0


def test_planted_equation_8_1_as_a_quota_is_caught():
    """The level of the pooled reports falls when somebody with a small epsilon gives hers."""

    def by_level(points, epsilons, all_points, all_epsilons):
        return pooled_level(points, epsilons, 4) >= 1.1 * pooled_level(all_points, all_epsilons, 4)

    assert undone_by_joining(by_level, 2_000, seed=1) > 200


def test_a_full_effort_reaches_the_quota_of_any_share():
    drawn = np.random.default_rng(3)
    for _ in range(300):
        limits = {
            public(i): deals.Limits(int(drawn.integers(1, 99)), int(drawn.uniform(0.01, 6.0) * EPSILON))
            for i in range(int(drawn.integers(1, 9)))
        }
        k, share = int(drawn.integers(2, 40)), float(drawn.uniform(0.0, 1.0)) or 1.0
        level, points, most = deals.bid(limits, k)
        for one in (share, 1.0):
            quota = quota_of(points, one * level, k)
            assert quota <= most + len(limits)  # what rounding down each of them leaves
        assert quota >= most - 1
