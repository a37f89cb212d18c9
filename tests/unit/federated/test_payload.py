"""The bytes of a report: known, of one length; whatever else arrives is refused and counted."""

import random
from collections import Counter

import numpy as np
import pytest

from reticent.federated import payload
from reticent.federated.payload import HEAD_BYTES, Outcome
from reticent.federated.server import Round
from reticent.fleet import tags
from reticent.fleet.enrolment import TAG_BYTES, Use, tag
from reticent.fleet.intake import Form
from reticent.mechanisms.numeric import OneBit
from reticent.randomness import SimulationStream

from ..operating import intake, operator
from . import people

GRADIENT = np.array([0.5, -1.0, 0.0, 2.0, -0.25, 0.125, 1.0])
NOW = 4
QUICK, FULL, BATCH = 5_000, 1_000_000, 5_000
KINDS = ("OneBit", "Window", "PM", "Duchi", "ThreeOutputs")
TASKS = [people.task(kind, 7, k, epsilon=2.0) for kind in KINDS for k in (1, 3)]


def reports(task, numbers, stream, number=NOW):
    return [people.report(task, people.enrolment(i), number, GRADIENT, stream) for i in numbers]


def test_a_payload_is_these_bytes():
    task, one = people.task("Window", 7, 3), people.enrolment(1)
    found = payload.written(task, one, NOW, bytes([0b00101010, 0b00000000]))
    content = b"\x02" + task.id + bytes([0, 0, 0, NOW]) + one.id + b"\x2a\x00"
    assert found == content + tag(one.key, Use.TRAINING, content)
    assert (len(found), payload.size(task)) == (39, 39)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.name}-{task.sample_size}")
def test_what_was_drawn_is_read(task):
    """Coordinates and symbols of many at once, as each client drew them."""
    stream, ids = SimulationStream(1), [payload.client_number(people.enrolment(i)) for i in range(30)]
    drawn = [people.drawn(task, one, NOW, GRADIENT, stream) for one in ids]
    sent = reports(task, range(30), SimulationStream(1))
    assert {len(one) for one in sent} == {payload.size(task)}
    outcomes, read = payload.read(task, NOW, sent, intake(people.MASTER))
    assert set(outcomes) == {Outcome.COUNTED}
    assert np.array_equal(read.clients, np.concatenate(ids))
    assert np.array_equal(read.asked, np.concatenate([asked for asked, _ in drawn]))
    assert np.array_equal(read.symbols, np.concatenate([symbols for _, symbols in drawn]))


@pytest.mark.parametrize("task", TASKS[:3], ids=lambda task: f"{task.name}-{task.sample_size}")
def test_nothing_is_read_of_nothing(task):
    for sent in ([], [b""], [b"x" * payload.size(task)]):
        outcomes, read = payload.read(task, NOW, sent, intake(people.MASTER))
        assert Outcome.COUNTED not in outcomes
        assert read.symbols.shape == read.asked.shape == (0, task.sample_size)


def test_a_wide_task_is_read():
    """A million coordinates and 2^20 rounds: all numbers have their places."""
    task = people.task("OneBit", 1 << 22, 5, epsilon=2.0, rounds=1 << 20)
    last, gradient = (1 << 20) - 1, np.zeros(1 << 22)
    sent = [people.report(task, people.enrolment(i), last, gradient, SimulationStream(1)) for i in range(3)]
    round_ = Round(task, last, operator(people.MASTER))
    assert round_.add(sent) == [Outcome.COUNTED] * 3
    assert np.count_nonzero(round_.sums) == 15


# Bad payloads: random ones, and right ones with a fault, by senders with and without a key


class Attack:
    """Makes bad payloads for one task: `kinds` by name, each with what may be said of it; None: anything."""

    def __init__(self, task, seed):
        self.task, self.rng, stream = task, random.Random(seed), SimulationStream(seed)
        self.honest = reports(task, range(20), stream)
        self.good = reports(task, range(100, 160), stream)  # right in all, never sent
        self.revoked = reports(task, range(200, 203), stream)
        self.mechanism, self.spare = task.mechanism, -task.sample_size * task.mechanism.bits % 8

    def kinds(self):
        found = {
            "no bytes": (lambda: self.rng.choice([None, 7, "text", bytearray(self.one()), []]), {"length"}),
            "random": (lambda: self.rng.randbytes(self.rng.randrange(90)), None),
            "random of that length": (lambda: self.rng.randbytes(payload.size(self.task)), None),
            "truncated": (self.truncated, {"length"}),
            "truncated and tagged": (lambda: self.tagged(self.one()[: -TAG_BYTES - 1]), {"length"}),
            "longer": (lambda: self.one() + self.rng.randbytes(self.rng.randrange(1, 40)), {"length"}),
            "longer and tagged": (lambda: self.tagged(self.one()[:-TAG_BYTES] + b"\0"), {"length"}),
            "flipped": (self.flipped, {"version", "task", "round", "tag"}),
            "another version": (lambda: self.with_field(0, b"\x01"), {"version"}),
            "another task": (lambda: self.with_field(1, self.rng.randbytes(8)), {"task"}),
            "another round": (lambda: self.with_field(9, self.other_round()), {"round"}),
            "somebody else": (self.of_somebody_else, {"tag"}),
            "replayed": (lambda: self.rng.choice(self.honest), {"second"}),
            "second": (self.second, {"second"}),
            "taken back": (lambda: self.rng.choice(self.revoked), {"revoked"}),
        }
        if self.spare:
            found["padding"] = (self.with_padding, {"symbol"})
        if not isinstance(self.mechanism, OneBit) and self.mechanism.size < 1 << self.mechanism.bits:
            found["illegal symbol"] = (self.with_illegal_symbol, {"symbol"})
        return found

    def one(self):
        return self.rng.choice(self.good)

    def tagged(self, content):
        """With the right tag of the client that the content names."""
        key = people.device_key(people.MASTER, content[13:21])
        return content + tag(key, Use.TRAINING, content)

    def truncated(self):
        sent = self.one()
        return sent[: self.rng.randrange(len(sent))]

    def flipped(self):
        sent = bytearray(self.one())
        for place in self.rng.sample(range(8 * len(sent)), self.rng.choice((1, 1, 2, 5))):
            sent[place // 8] ^= 1 << place % 8
        return bytes(sent)

    def with_field(self, at, field):
        content = self.one()[:-TAG_BYTES]
        return self.tagged(content[:at] + field + content[at + len(field) :])

    def other_round(self):
        near = self.rng.choice([0, NOW - 1, NOW + 1, 9, 10, 2**32 - 1])
        return near.to_bytes(4, "big")

    def of_somebody_else(self):
        thief, content = people.enrolment(self.rng.randrange(1000, 1050)), self.one()[:-TAG_BYTES]
        return content + tag(thief.key, Use.TRAINING, content)

    def body(self, bits):
        head = self.one()[:HEAD_BYTES]
        return self.tagged(head + int(bits, 2).to_bytes(len(bits) // 8, "big"))

    def bits(self, symbols, spare=0):
        width = self.mechanism.bits
        text = "".join(f"{symbol:0{width}b}" for symbol in symbols)
        return text + (f"{spare:0{self.spare}b}" if self.spare else "")

    def legal(self):
        most = 2 if isinstance(self.mechanism, OneBit) else self.mechanism.size
        return [self.rng.randrange(most) for _ in range(self.task.sample_size)]

    def with_padding(self):
        return self.body(self.bits(self.legal(), self.rng.randrange(1, 1 << self.spare)))

    def with_illegal_symbol(self):
        symbols = self.legal()
        illegal = self.rng.randrange(self.mechanism.size, 1 << self.mechanism.bits)
        symbols[self.rng.randrange(len(symbols))] = illegal
        return self.body(self.bits(symbols))

    def second(self):
        """Of a client that was counted, with other symbols and a right tag."""
        head = self.rng.choice(self.honest)[:HEAD_BYTES]
        bits = self.bits(self.legal())
        return self.tagged(head + int(bits, 2).to_bytes(len(bits) // 8, "big"))


def attacked(task, count, seed=17):
    """Send honest payloads, then `count` bad ones; what went wrong, by kind, and what was said."""
    attack, trouble, told = Attack(task, seed), Counter(), Counter()
    held = operator(people.MASTER)
    for number in range(200, 203):
        held.revocations.revoke(people.enrolment(number).id)
    round_ = Round(task, NOW, held)
    assert set(round_.add(attack.honest)) == {Outcome.COUNTED}
    before, kinds = (round_.sums.copy(), round_.clients), attack.kinds()
    names = list(kinds)
    for start in range(0, count, BATCH):
        chosen = attack.rng.choices(names, k=min(BATCH, count - start))
        try:
            outcomes = round_.add([kinds[name][0]() for name in chosen])
        except Exception as error:
            trouble[f"crash: {type(error).__name__}"] += 1
            continue
        for name, outcome in zip(chosen, outcomes, strict=True):
            told[outcome] += 1
            allowed = kinds[name][1]
            trouble[name] += outcome is Outcome.COUNTED or bool(allowed and outcome.value not in allowed)
    trouble["sums"] += not np.array_equal(round_.sums, before[0]) or round_.clients != before[1]
    told[Outcome.COUNTED] += len(attack.honest)
    trouble["counts"] += told != round_.outcomes
    return +trouble, told


def check_all_refused(count):
    told = Counter()
    for task in TASKS:
        trouble, said = attacked(task, count // len(TASKS))
        assert trouble == {}, task.name
        told += said
    assert sum(told.values()) == count // len(TASKS) * len(TASKS) + 20 * len(TASKS)
    assert set(told) == set(Outcome)


def test_bad_payloads_are_refused_and_counted():
    check_all_refused(QUICK)


@pytest.mark.slow
def test_a_million_bad_payloads_are_refused_and_counted():
    check_all_refused(FULL)


# Planted bugs: each is found by the same attack


def found(task, count=600):
    return set(attacked(task, count)[0])


def test_planted_no_tag_check(monkeypatch):
    monkeypatch.setattr(tags, "_are_equal", lambda _, sent: np.ones(len(sent), dtype=bool))
    assert found(TASKS[0]) >= {"flipped", "somebody else", "sums"}


@pytest.mark.parametrize("fault", ["illegal symbol", "padding"])
def test_planted_no_check_of_symbols(monkeypatch, fault):
    task, real = TASKS[2 * KINDS.index("Window") + 1], payload._legal

    def lenient(task, numbers, padding):
        if fault == "padding":
            return real(task, numbers, padding[:, :0])
        np.minimum(numbers, task.mechanism.size - 1, out=numbers)
        return real(task, numbers, padding)

    monkeypatch.setattr(payload, "_legal", lenient)
    assert found(task) >= {fault, "sums"}


@pytest.mark.parametrize("field", [Outcome.TASK, Outcome.ROUND])
def test_planted_replays_from_elsewhere_count(monkeypatch, field):
    real = Form.fault

    def lenient(*given):
        outcome = real(*given)
        return None if outcome is field else outcome

    monkeypatch.setattr(Form, "fault", lenient)
    assert found(TASKS[0]) >= {f"another {field.value}", "sums"}


def test_planted_second_reports_count(monkeypatch):
    class Forgets(set):
        def __contains__(self, client):
            return False

    real = Round.__init__

    def forgetful(self, *given):
        real(self, *given)
        self._clients = Forgets()

    monkeypatch.setattr(Round, "__init__", forgetful)
    assert found(TASKS[0]) >= {"replayed", "second", "sums"}


def test_planted_a_crash_is_found(monkeypatch):
    real = Form.fault

    def careless(form, length, start):
        return real(form, length, start) if start[0] == payload.VERSION else Outcome.VERSION

    monkeypatch.setattr(Form, "fault", careless)
    assert any(name.startswith("crash") for name in found(TASKS[0]))
