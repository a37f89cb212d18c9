"""T14: whatever is called, by whomever, in whatever order, the contract answers as the model does.

What must hold for ever is also checked by itself, on what the contract tells and without the model.
Hypothesis looks for short failures; the full count is a seeded walk over the same calls.
"""

import random

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from reticent.privacy import MAX_UNITS

from .model import Model
from .revm import (
    ANNA,
    BRUNO,
    NEXT,
    NO_KEY,
    NOBODY,
    ORACLE,
    OWNER,
    PEOPLE,
    STRANGER,
    Contract,
    Refused,
    dataset_of,
    key_of,
    once,
    payment_of,
    planted,
)

NAMES = ["a", "b"]
SETS = [dataset_of(OWNER, name) for name in NAMES]
KEYS = [(b"two", b"q", -3, 2), (b"open", b"", 0, 0), (b"other", b"", 0, 0), (b"late", b"q", 1, 1)]
WIDE = (b"wide", b"q", 0, 40)  # whose least may pass the cap
IDENTIFIERS = [key_of(*parts) for parts in KEYS]
PAYABLE = {key_of(name): name for name in (b"open", b"other", b"new")}
PAYMENTS = [payment_of(name) for name in PAYABLE.values()]  # which nobody can declare or ask for
ENDS = [1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63)]

# What each argument may be; likely ones are there more than once. Functions are as often as their lists say.
some_set = [*SETS, *SETS, SETS[0], dataset_of(OWNER, "never")]
some_key = [*IDENTIFIERS[:3], *IDENTIFIERS, key_of(*WIDE), PAYMENTS[0]]
some_parts = [*KEYS, *KEYS, WIDE, WIDE, (b"", b"", 0, 1), (b"n", b"", 0, 513)]
some_units = [*range(61), *[20] * 8, "rest", *["past the rest"] * 4, MAX_UNITS, MAX_UNITS + 1]
some_quota = [0, 10, 40, 80, 200, MAX_UNITS, MAX_UNITS + 1]
some_mark = [NO_KEY, NO_KEY, NO_KEY, once("x"), once("y")]
some_owner = ["owner"] * 12 + [*PEOPLE]  # whoever is it at the time
asking = ["owner", "owner", ANNA, ANNA, ANNA, BRUNO, *PEOPLE]
some_values = [[i, -i, 7] for i in range(-3, 4)] + [[end, 1, -end - 1] for end in ENDS]
twists = [None] * 12 + ["number", "dataset", "key", "start", "information", "more", "fewer", "none"]
CALLS = {
    "request": (8, [asking, some_set, some_key, some_units, some_mark]),
    "fulfil": (6, [["oracle"] * 20 + [*PEOPLE], [0, 0, 0, 0, 1, 1, 2, 5], twists, some_values]),
    "pay": (2, [[*some_owner, *["oracle"] * 6], some_set, [*PAYABLE.values()], some_units, some_mark]),
    "declare": (1, [["owner", "oracle", ANNA, STRANGER], some_set, some_parts]),
    "allow": (2, [some_owner, some_set, [ANNA, ANNA, BRUNO, OWNER, ORACLE], some_quota]),
    "pause": (1, [some_owner, SETS, [True, False, False]]),
    "appoint": (1, [some_owner, SETS, [ORACLE, ORACLE, ORACLE, NEXT, NOBODY]]),
    "offer": (1, [some_owner, SETS, [OWNER, OWNER, NEXT, NOBODY]]),
    "take": (1, [[OWNER, OWNER, NEXT, STRANGER], SETS]),
    "register": (1, [[OWNER, NEXT], [*NAMES, ""], [0, 50, 1 << 62], [0, 1, 51], [ORACLE, NOBODY]]),
}  # fmt: skip
CALLS["again"] = 3, [PEOPLE, range(8), ["same", "same", "same", "other verb", "other sender"]]
FUNCTIONS = [function for function, (often, _) in CALLS.items() for _ in range(often)]


class World:
    """A contract and the model beside it."""

    def __init__(self, what, cap, minimum):
        self.contract, self.model = Contract(what), Model()
        self.calls = 0
        self.held = [self.contract.read("datasets", dataset) for dataset in SETS]
        self.recorded_numbers, self.marked = set(), []
        for name, dataset in zip(NAMES, SETS, strict=True):
            self.call(OWNER, "register", name, "mu2", "replace_one", b"one", cap, minimum, ORACLE, NO_KEY)
            self.call(OWNER, "allow", dataset, ANNA, cap)
            self.call(OWNER, "allow", dataset, BRUNO, cap // 2)
            for parts in KEYS[:2]:
                self.call(OWNER, "declare", dataset, *parts)

    def play(self, function, sender, *chosen):
        """A call with what was chosen for it."""
        if function == "declare":
            dataset, parts = chosen
            chosen = (dataset, *parts)
        elif function == "register":
            name, *numbers, oracle = chosen
            chosen = (name, "mu2", "replace_one", b"one", *numbers, oracle, NO_KEY)
        elif function == "fulfil":
            chosen = self.record(*chosen)
            sender = self.resolved(sender, chosen[1])
        elif function == "again":
            if not self.marked:
                return
            sender, function, *chosen = self.repeat(sender, *chosen)
        elif function in ("request", "pay"):
            dataset, key, units, mark = chosen
            sender = self.resolved(sender, dataset)
            chosen = (dataset, key, self.units(function, sender, dataset, key, units), mark)
            if mark != NO_KEY:
                self.marked.append((sender, function, *chosen))
        self.call(self.resolved(sender, chosen[0]), function, *chosen)

    def resolved(self, sender, dataset):
        """Who is the owner or the oracle at the time; another sender as it is."""
        held = self.model.find(dataset)
        found = {"owner": held.owner, "oracle": held.oracle}.get(sender, sender)
        return STRANGER if found == NOBODY else found

    def units(self, function, sender, dataset, key, units):
        """All that may still be bought under a key, or one more; other units as they are."""
        held = self.model.find(dataset)
        if units not in ("rest", "past the rest"):
            return units
        if not held.account:
            return 1
        left = self.model.ledger.balance(held.account).remaining
        if function == "request":
            if sender in held.quotas and sender != held.owner:
                left = min(left, held.quotas[sender] - held.used.get(sender, 0))
            reading = self.model.reading(dataset, key)
            left += reading.information + reading.pending
        return max(0, left) + (units == "past the rest")

    def repeat(self, another, which, how):
        """One of the last calls with an idempotency key."""
        sender, function, dataset, what, *rest = self.marked[max(0, len(self.marked) - 1 - which)]
        if how == "other sender":
            sender = another
        elif how == "other verb" and function == "pay":
            function, what = "request", payment_of(what)
        elif how == "other verb" and what in PAYABLE:
            function, what = "pay", PAYABLE[what]
        return sender, function, dataset, what, *rest

    def record(self, which, twist, values):
        """The arguments of `fulfil` for one of the last measurements, rightly or with a twist."""
        held = self.model.measurements
        if not held:
            return which, SETS[0], IDENTIFIERS[0], 0, 10, values
        number = max(0, len(held) - 1 - which)
        dataset, key, start, information = held[number]
        sums = self.model.reading(dataset, key)
        size = self.model.find(dataset).keys.get(key) or (len(sums.sums) if sums.information else 2)
        size = {"more": size + 1, "fewer": max(0, size - 1), "none": 0}.get(twist, size)
        return (
            number + 1 if twist == "number" else number,
            SETS[dataset == SETS[0]] if twist == "dataset" else dataset,
            IDENTIFIERS[key == IDENTIFIERS[0]] if twist == "key" else key,
            start + (twist == "start"),
            information + (twist == "information"),
            values[:size],
        )

    def call(self, sender, function, *arguments):
        self.calls += 1
        before = self.held
        theirs = outcome(lambda: self.model.call(sender, function, *arguments))
        ours, events = None, []
        try:
            answer = self.contract.call(sender, function, *arguments)
        except Refused as refusal:
            ours = refusal.reason
        else:
            events = answer.events
            ours = answer.value, [name for name, _ in events]
        self.must_hold(sender, before, events)
        assert ours == theirs, (function, arguments)
        self.same_state(arguments)

    def must_hold(self, sender, before, events):
        """Of the contract alone."""
        self.held = [self.contract.read("datasets", dataset) for dataset in SETS]
        for old, new in zip(before, self.held, strict=True):
            assert old[6] <= new[6] <= new[4], "less spent than before, or more than the cap"
            assert new[6] == old[6] or not old[3], "spent while paused"
            assert (new[4:6], new[7]) == (old[4:6], old[7]) or not old[7], "other terms"
        for name, fields in events:
            if name == "Fulfilled":
                assert sender == before[SETS.index(fields["dataset"])][2], (
                    "recorded by another than the oracle"
                )
                assert fields["number"] not in self.recorded_numbers, "recorded twice"
                self.recorded_numbers.add(fields["number"])
            if name in ("MeasurementRequested", "Paid"):
                held = before[SETS.index(fields["dataset"])]
                assert fields["information"] == fields["spent"] - held[6], "charged other than told"
                assert fields["information"] >= held[5], "less than the minimum"
                self.recorded_numbers |= {fields["number"]} if name == "Paid" else set()

    def same_state(self, arguments):
        for dataset in set(SETS) & {arg for arg in arguments if isinstance(arg, bytes)}:
            held, account = self.held[SETS.index(dataset)], self.model.find(dataset)
            if not account.account:
                continue
            balance = self.model.ledger.balance(account.account)
            theirs = account.owner, account.candidate, account.oracle, account.paused
            assert held[:7] == (*theirs, balance.terms.cap, balance.terms.minimum, balance.spent)
            for key in IDENTIFIERS:
                requested, recorded, sums = self.contract.read("recorded", dataset, key)
                assert recorded <= requested
                reading = self.model.reading(dataset, key)
                assert recorded == reading.information
                assert requested == reading.information + reading.pending
                assert sums == reading.sums or not (any(sums) or reading.sums)  # declared and not recorded
            for person in (ANNA, BRUNO):
                kept = account.quotas.get(person, 0), account.used.get(person, 0)
                assert self.contract.read("analysts", dataset, person) == kept


def outcome(call):
    try:
        return call()
    except Refused as refusal:
        return refusal.reason


def walk(what, *, calls, seed, each=250):
    """So many calls by chance, in worlds of `each`; return what was answered how often."""
    chance, made = random.Random(seed), 0
    while made < calls:
        world = World(what, chance.randint(60, 1500), chance.randint(1, 30))
        while world.calls < each and made + world.calls < calls:
            function = chance.choice(FUNCTIONS)
            world.play(function, *(chance.choice(pool) for pool in CALLS[function][1]))
        made += world.calls
    return made


class Machine(RuleBasedStateMachine):
    what = None  # the contract

    @initialize(cap=st.integers(60, 1500), minimum=st.integers(1, 30))
    def begin(self, cap, minimum):
        self.world = World(type(self).what, cap, minimum)

    @rule(
        call=st.sampled_from(FUNCTIONS).flatmap(
            lambda function: st.tuples(st.just(function), *map(st.sampled_from, CALLS[function][1]))
        )
    )
    def any_call(self, call):
        self.world.play(*call)


def test_the_contract_answers_as_the_model_does():
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=30, stateful_step_count=50, deadline=None, derandomize=True, database=None,
            suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink],
        ),
    )  # fmt: skip


def test_a_walk_of_some_calls():
    assert walk(None, calls=2000, seed=14) == 2000


@pytest.mark.slow
def test_a_walk_of_100_000_calls():
    assert walk(None, calls=100_000, seed=1) == 100_000


# What a careless hand might write. What the issue names is tried in every run, the others in the full one.
PLANTED = {
    "missing caller check": ("msg.sender == self.datasets[dataset].oracle,", "True,"),
    "off-by-one cap": ("spent <= self.datasets[dataset].cap,", "spent <= self.datasets[dataset].cap + 1,"),
    "unguarded second fulfil": ("    self.waiting[number] = empty(bytes32)\n", ""),
    "any measurement": ("self._identity(dataset, key, start, information), ", "self.waiting[number], "),
    "pause ignored": ("not self.datasets[dataset].paused,", "True,"),
    "minimum forgotten": (
        "max(information - requested, least)",
        "information - requested",
    ),
    "values not counted": (" * max(convert(dimension, uint256), 1)", ""),
    "more values than the cap buys": ("least <= convert(self.datasets[dataset].cap, uint256),", "True,"),
    "quota ignored": ("used <= quota,", "True,"),
    "off-by-one quota": ("used <= quota,", "used <= quota + 1,"),
    "charged again": ("max(information - requested,", "max(information,"),
    "idempotency ignored": (
        'self._body(b"request", key, information)\n    if ',
        'self._body(b"request", key, information)\n    if False and ',
    ),
    "idempotency of another verb": ('self._body(b"pay",', 'self._body(b"request",'),
    "idempotency of another caller": ("(dataset, caller, idempotency))", "(dataset, idempotency))"),
    "sums not weighted": ("weight * convert(grid_values[i], int256)", "convert(grid_values[i], int256)"),
    "any number of values": ("len(grid_values) == self.keys[dataset][key].size, ", "True, "),
    "ownership not offered": ("msg.sender == self.datasets[dataset].candidate,", "True,"),
    "payment for a used key": ("self.keys[dataset][key].requested == 0,", "True,"),
    "payments among questions": ("self._payment(name)", 'self._key(name, b"", 0, 0)'),
}
NAMED = [*list(PLANTED)[:3], "values not counted", "payments among questions"]


@pytest.mark.parametrize(
    "bug", [bug if bug in NAMED else pytest.param(bug, marks=pytest.mark.slow) for bug in PLANTED]
)
def test_planted_bugs_are_found(bug):
    what = planted(PLANTED[bug])
    with pytest.raises(AssertionError):
        walk(what, calls=3000, seed=14)
