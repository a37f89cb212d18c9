"""Federations by their acts: who may do what, and what members are asked for."""

import contextlib
import json
import random
from dataclasses import replace

import pytest

from reticent.errors import GuaranteeError, ParameterError
from reticent.fleet import signing, texts
from reticent.market.federations import (
    acts,
    deals,
    words,
)
from reticent.market.federations.federation import Federation
from reticent.market.federations.formulas import earnings
from reticent.market.federations.purchases import (
    Award,
    Delivery,
    Taken,
)

from .federating import ALL, EPSILON, FULL, THREE, Story, key_of, public, refused, three


def test_a_deal_from_founding_to_pay():
    story = three()
    for name in ("anna", "bruno"):
        story.do(name, acts.Vote(public("bruno")))
    assert story.federation.representative == public("bruno")
    settlement = story.whole_deal(FULL)
    deal = story.federation.settled[0][0]
    assert settlement.reached
    assert sum(settlement.paid.values()) == deal.terms.cents > 0
    assert settlement.excluded == ()
    assert settlement.spent == {
        public(name): points * int(epsilon * EPSILON) for name, points, epsilon in THREE
    }
    again = Federation.through(story.files)
    assert again.settled[0][1] == settlement
    assert again.head == story.federation.head


def test_the_level_is_shown_as_accuracy_beside_everybodys_own_epsilon():
    story = three()
    story.whole_deal(FULL)
    text = "\n".join(words.account(story.federation, public("cleo")))
    assert "spent epsilon 15 in all, of at most 15 (30 reports at 0.5)" in text
    story.seal(story.award(story.bid()))
    shown = "\n".join(words.status(story.federation))
    assert "accuracy level" in shown
    assert "nobody's privacy" in shown
    assert story.federation.deal.made[0] == pytest.approx(1.1817324603657269)


def test_a_missed_quota_voids_the_deal():
    story = three()
    settlement = story.whole_deal({"anna": (100, 1.0)})
    assert not settlement.reached
    assert settlement.paid == {}
    assert "nobody is paid" in words.outcome(settlement)


def test_what_did_not_arrive_does_not_count():
    story = three()
    story.seal(story.award(story.bid()))
    story.ask()
    for name, (points, epsilon) in FULL.items():
        story.give(name, points, epsilon)
    settlement = story.settle(lambda arrived: [one for one in arrived if one.member != public("anna")])
    assert settlement.contributions[public("anna")] == 0
    assert settlement.saved[public("anna")] == story.federation.settled[0][0].due[public("anna")] > 0


# Representatives


def test_more_than_half_elect_and_replace():
    story = three().members(("dora", 1, 1.0))
    story.do("anna", acts.Vote(public("anna")))
    story.do("bruno", acts.Vote(public("anna")))
    assert story.federation.representative == public("founder")  # two of four are not more than half
    story.do("cleo", acts.Vote(public("anna")))
    assert story.federation.representative == public("anna")
    for name in ("bruno", "cleo", "dora"):
        story.do(name, acts.Vote(public("dora")))
    assert story.federation.representative == public("dora")
    refused(story, "is not the representative", lambda: story.do("anna", acts.Withdraw()))
    story.do("dora", acts.Leave())
    assert story.federation.representative == public("founder")


@pytest.mark.parametrize(
    ("name", "act", "why"),
    [
        ("anna", acts.Admit(public("new"), {}), "is not the representative"),
        ("founder", acts.Admit(public("nobody"), {}), "did not ask to join"),
        ("stranger", acts.Vote(public("anna")), "is no member"),
        ("anna", acts.Vote(public("stranger")), "candidate must be a member"),
        ("stranger", acts.Leave(), "is no member"),
        ("anna", acts.Give(1, 1, 1), "no bid or deal is open"),
        ("founder", acts.Withdraw(), "no bid or deal is open"),
        ("founder", acts.Found("again", "to test", 1, 1, 1), "federation must be given"),
    ],
)
def test_who_may_not_is_refused(name, act, why):
    story = three()
    refused(story, why, lambda: story.do(name, act))


def test_acts_at_the_wrong_time_are_refused():
    story = three()
    wanted = story.bid()
    refused(story, "a bid or a deal is open", lambda: story.do("anna", acts.Join(5, EPSILON)))
    refused(story, "a bid or a deal is open", lambda: story.do("anna", acts.Leave()))
    refused(story, "not sealed yet", lambda: story.do("anna", acts.Give(1, 1, 1)))
    story.seal(story.award(wanted))
    refused(story, "sealed already", lambda: story.do("founder", acts.Seal(story.award(wanted).decode(), ())))
    story.ask()
    story.ask()
    story.ask()
    refused(story, "round must be 4 of at most 3", story.ask)
    refused(story, "round must be 3, got 1", lambda: story.give("anna", 1, 0.5, turn=1))
    story.give("anna", 60, 0.5)
    refused(story, "gave in round 3 already", lambda: story.give("anna", 1, 0.5))
    story.do("founder", acts.Withdraw())
    assert story.federation.settled == []


def test_a_member_gives_within_her_threshold_and_her_reports():
    story = three()
    story.seal(story.award(story.bid()))
    story.ask()
    refused(story, "within her threshold", lambda: story.give("anna", 1, 1.0 + 1e-9))
    refused(story, "at most the 100 left", lambda: story.give("anna", 101, 1.0))
    story.give("anna", 60, 1.0)
    story.ask()
    refused(story, "at most the 40 left", lambda: story.give("anna", 41, 1.0))
    refused(story, "no member of this deal", lambda: story.give("stranger", 1, 0.1))


# What is asked


def past_the_threshold(asked, cases, seed):
    """In how many random deals somebody is asked for more than her threshold, or for nothing."""
    drawn, found = random.Random(seed), 0
    for _ in range(cases):
        limits = {public(i): deals.Limits(drawn.randint(1, 9), drawn.randint(1, 10**13)) for i in range(4)}
        taken = Taken("0" * 16, 1.0, 4, 4, 1, 1)
        award = Award("a", "1", "to test", "0" * 16, drawn.uniform(1e-9, 1.0), (taken,))
        deal = deals.Deal(None, b"", limits, (1.0, 1, 1), award, taken, round=1)
        for name, one in limits.items():
            if drawn.random() < 0.5:
                deal.given[name] = {
                    1: deals.Given(drawn.randint(1, one.points), drawn.randint(1, one.threshold))
                }
        saved = {name: drawn.randint(0, 5 * one.information) for name, one in limits.items()}
        told = asked(deal, saved)
        found += any(not 1 <= told[name] <= limits[name].threshold for name in told)
        assert set(told) == {name for name in limits if deal.points_left(name)}
    return found


def test_nobody_is_asked_for_more_than_her_threshold():
    assert past_the_threshold(deals.asked, 500, seed=1) == 0


def test_planted_the_printed_algorithm_11_is_caught():
    """N times the last epsilon, without a bound, and N = 0 for who saved nothing."""

    def printed(deal, saved):
        found = {}
        for name, limits in deal.members.items():
            if deal.points_left(name):
                before = deal.given.get(name, {}).get(deal.round)
                start = before.units if before else int(deal.award.share * limits.threshold)
                found[name] = round(saved.get(name, 0) / limits.information) * start
        return found

    assert past_the_threshold(printed, 100, seed=1) > 50


def test_who_saved_is_asked_for_more():
    story = three(period=3)
    for _ in range(2):
        story.whole_deal({"anna": (100, 1.0), "bruno": (50, 0.4), "cleo": (30, 0.5)}, budget=ALL)
    assert story.federation.saved() == {public("anna"): 0, public("bruno"): 160 * EPSILON, public("cleo"): 0}
    story.seal(story.award(story.bid(budget=2000)))
    story.ask()
    asked, share = story.federation.deal.asked, story.federation.deal.award.share
    assert share < 0.5
    assert asked[public("anna")] == int(share * EPSILON)
    assert asked[public("bruno")] == 2 * int(share * 2 * EPSILON)  # 160 of 100 kept back: twice
    assert deals.catalysing(151, deals.Limits(50, 3)) == 2
    assert deals.catalysing(150, deals.Limits(50, 3)) == deals.catalysing(0, deals.Limits(50, 3)) == 1


# One file, one head


def respelt(file):
    """The same signed act in other bytes: spaces, the order of fields, escapes, a field twice."""
    fields = json.loads(file)
    backwards = dict(sorted(fields.items(), reverse=True))
    return [
        json.dumps(fields, sort_keys=True).encode(),
        json.dumps(fields, sort_keys=True, indent=1).encode(),
        json.dumps(backwards, separators=(",", ":")).encode(),
        file + b"\n",
        b" " + file,
        file.replace(b'"signer"', b'"\\u0073igner"'),
        file.replace(b'{"act"', b'{"act":"","act"', 1),
    ]


def heads_of(files):
    """The heads of federations whose last act is spelt in all these ways, where they can be gone through."""
    heads = set()
    for last in (files[-1], *respelt(files[-1])):
        with contextlib.suppress(ParameterError):
            heads.add(Federation.through([*files[:-1], last]).head)
    return heads


def test_the_last_act_has_one_spelling():
    """Any spacing of it verified, each with another head: two who compare heads saw two federations."""
    files = Story().members(*THREE).files
    assert heads_of(files) == {Federation.through(files).head}
    for last in respelt(files[-1]):
        with pytest.raises(ParameterError, match="sorted fields and no spaces around them"):
            acts.read(last)


def test_control_without_the_rule_there_are_many(monkeypatch):
    """Planted: what a signature covers is looked at, and not the bytes that are hashed."""
    monkeypatch.setattr(acts, "opened", lambda *given, exact, **options: signing.opened(*given, **options))
    assert len(heads_of(Story().members(*THREE).files)) > 5


# The rule by which money is divided


class EarlierStory(Story):
    """A federation whose people use an earlier release: seals name no rule."""

    def do(self, name, act):
        if isinstance(act, acts.Seal):
            act = replace(act, rule=acts.EARLIER_RULE)
        file = acts.signed(act, key_of(name), federation=self.federation.id, after=self.federation.head)
        self.federation.apply(file, is_stored=True)
        self.files.append(file)


@pytest.fixture
def rules(monkeypatch):
    """Let the two rules differ by a cent."""

    def divide(contributions, quota, cents, *, earlier_rule=False):
        exact = earnings(contributions, quota, cents)
        return [exact[0] - 1, exact[1] + 1, *exact[2:]] if earlier_rule else exact

    monkeypatch.setattr(deals, "earnings", divide)


def settled_by_earlier_rule(story):
    """Return the last act of a story whose deal is complete, by the earlier rule."""
    delivery = story.delivery()
    right = story.federation.act_of(delivery)
    earlier = story.federation.settlement(
        signing.verified(Delivery, delivery, signing.signer_of(Delivery, delivery)), earlier_rule=True
    )
    assert earlier.paid != right.paid
    return replace(right, paid=dict(earlier.paid))


def give_all(story):
    story.seal(story.award(story.bid()))
    story.ask()
    for name, (points, epsilon) in FULL.items():
        story.give(name, points, epsilon)
    return story


def test_a_deal_that_an_earlier_release_settled_is_gone_through(rules, monkeypatch):
    """Its act says what was paid by the rule of then; what neither rule gives is refused."""
    story = give_all(EarlierStory().members(*THREE))
    act = settled_by_earlier_rule(story)
    story.do("founder", act)
    assert not any(b"rule" in file for file in story.files)
    assert Federation.through(story.files).settled[0][1].paid == act.paid
    monkeypatch.setattr(deals, "earnings", earnings)
    with pytest.raises(GuaranteeError, match=r"paid: .* cents of member"):
        Federation.through(story.files)


def test_a_new_deal_is_divided_by_the_rule_of_its_seal(rules):
    """The representative could choose the rule that pays her more once both sums were known."""
    story = give_all(three())
    act = settled_by_earlier_rule(story)
    refused(story, r"paid: .* cents of member", lambda: story.do("founder", act))
    file = acts.signed(act, key_of("founder"), federation=story.federation.id, after=story.federation.head)
    with pytest.raises(GuaranteeError, match=r"paid: .* cents of member"):
        Federation.through([*story.files, file])
    assert story.settle().paid != act.paid


def test_control_a_seal_that_is_not_looked_at_binds_nothing(rules, monkeypatch):
    """Planted: what the settlement did. Either rule is accepted for every deal that is read."""
    story = give_all(three())
    act = settled_by_earlier_rule(story)
    file = acts.signed(act, key_of("founder"), federation=story.federation.id, after=story.federation.head)
    monkeypatch.setattr(acts, "EARLIER_RULE", acts.EXACT_RULE)
    assert Federation.through([*story.files, file]).settled[0][1].paid == act.paid


def test_a_new_seal_names_the_rule(rules):
    story = three()
    seal = story.federation.act_of(story.award(story.bid()))
    assert seal.rule == acts.EXACT_RULE
    earlier = replace(seal, rule=acts.EARLIER_RULE)
    refused(story, "rule must be 2 in the seal of a new deal, got 1", lambda: story.do("founder", earlier))
    with pytest.raises(ParameterError, match="rule must be <= 2"):
        replace(seal, rule=3)
    file = acts.signed(seal, key_of("founder"), federation=story.federation.id, after=story.federation.head)
    assert acts.read(file).act == seal


def test_a_seal_without_a_rule_says_so_in_one_way():
    """The rule of earlier releases is not spelt out: an act has one spelling."""
    story = three()
    seal = story.federation.act_of(story.award(story.bid()))
    said = replace(seal, rule=acts.EARLIER_RULE).as_fields()
    assert said.keys() == {"award", "better_alone"}
    said |= {"after": story.federation.head, "federation": story.federation.id, "kind": "seal", "rule": 1}
    file = signing.sealed(acts.Act.field, acts.Act.head, texts.written(said), key_of("founder"))
    with pytest.raises(ParameterError, match="no other fields"):
        acts.read(file)


def test_no_seal_goes_back_to_the_earlier_rule():
    """Whoever reads the chain later sees that the deal is new: one before it names the rule."""
    story = three()
    story.whole_deal(FULL)
    files, later = list(story.files), EarlierStory()
    later.federation, later.names, later.files = story.federation, story.names, files
    wanted = later.bid()
    refused(later, "rule must be 2 in the seal of a new deal", lambda: later.seal(later.award(wanted)))


def test_a_deal_that_an_earlier_release_sealed_is_settled_by_the_exact_rule(rules):
    story = give_all(EarlierStory().members(*THREE))
    assert "An earlier release sealed it" in "\n".join(words.status(story.federation))
    act = settled_by_earlier_rule(story)
    now = Story()
    now.federation, now.names, now.files = Federation.through(story.files), story.names, list(story.files)
    refused(now, r"paid: .* cents of member", lambda: now.do("founder", act))
    paid = now.settle().paid
    assert Federation.through(now.files).settled[0][1].paid == paid != act.paid
