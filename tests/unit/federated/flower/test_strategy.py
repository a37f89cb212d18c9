"""The strategy over nodes that are honest, dead, silent, wrong or sly: rounds end, and count what holds."""

import contextlib
import math
import shutil

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from reticent.errors import LedgerError, ParameterError
from reticent.federated import Round, Training, payload, server
from reticent.federated.flower import PrivateFedSGD, of_simulation, records, strategy
from reticent.fleet.enrolment import Enrolment, enrolled
from reticent.fleet.record import Record
from reticent.ledger import MemoryLedger

from ...operating import operator
from . import nodes

START = np.array([0.5, -0.25, 1.0, 0.0, 2.0])


def run(grid, made, rounds=None):
    return made.start(grid, nodes.arrays(START), num_rounds=rounds or made.rounds_left, timeout=1.0)


def strategy_of(task, **changes):
    return PrivateFedSGD(nodes.signed(task), operator(nodes.MASTER), **{"patience_s": 0.0} | changes)


def honest_nodes(folder, count):
    return {100 + number: nodes.node(folder, number, np.full(5, 0.25)) for number in range(count)}


def payloads(replies):
    return [found for reply in replies if (found := records.payload_of(reply)) is not None]


def test_a_run_is_that_of_the_core_on_the_same_reports(tmp_path):
    task = nodes.task(group=4, momentum=0.5)
    grid, made = nodes.Nodes(honest_nodes(tmp_path, 8)), strategy_of(task)
    result = run(grid, made)
    by_hand = Training.begun(task, START)
    for number in range(task.rounds):
        one = Round(task, number, operator(nodes.MASTER))
        one.add(payloads(grid.replies[2 * number]))
        by_hand.step(one.gradient())
    assert np.array_equal(made.training.theta, by_hand.theta)
    assert made.training.is_over
    assert made.rounds_left == 0
    assert records.shapes(result.arrays) == {"weight": (2, 2), "bias": (1,)}
    assert np.array_equal(records.flat(result.arrays, 5), by_hand.theta.astype(np.float32))
    for number, summary in enumerate(made.rounds):
        assert summary == strategy.Summary(
            number,
            4,
            4,
            0,
            0,
            0,
            math.sqrt(task.noise(4).mean()),
            payload.size(task),
            nodes.EPSILON,
            "epsilon",
        )
        assert dict(result.train_metrics_clientapp[number + 1])["counted"] == 4


def test_nodes_are_asked_as_often_as_the_task_allows(tmp_path):
    task = nodes.task(group=4, rounds=3, participations=1)
    grid, made = nodes.Nodes(honest_nodes(tmp_path, 6)), strategy_of(task)
    run(grid, made)
    assert [summary.asked for summary in made.rounds] == [4, 2, 0]
    assert [summary.counted for summary in made.rounds] == [4, 2, 0]
    assert made.rounds[2].noise == math.inf
    for number in range(6):
        with client_of(tmp_path, number) as client:
            assert client.ledger.balance("training").spent == task.units


def client_of(folder, number):
    run = {"reticent-clients": str(folder), "reticent-signer": nodes.SIGNER.hex(), "reticent-lifetime": 10.0}
    return of_simulation(nodes.context({"partition-id": number}, run))


def saying(content):
    return lambda message: Message(content, reply_to=message)


def reporting(value):
    return saying(RecordDict({"report": ConfigRecord({"payload": value})}))


class Sly:
    """A node that answers with the report that another gave in this round, or in the last one."""

    def __init__(self, other, *, late=False):
        self.other, self.late, self.last = other, late, b""

    def __call__(self, message):
        given = records.payload_of(self.other(message))
        sent, self.last = (self.last if self.late else given), given
        return reporting(sent)(message)


class Forgetful:
    """A node that throws its ledger and all marks away before every round."""

    def __init__(self, folder, number):
        self.folder, self.number, self.enrolment = folder, number, enrolled(nodes.MASTER)

    def __call__(self, message):
        (self.folder / f"{self.number}.ledger").unlink(missing_ok=True)
        shutil.rmtree(self.folder / "marks", ignore_errors=True)
        return nodes.node(self.folder, self.number, np.ones(5), enrolment=self.enrolment)(message)


def as_another_node(app):
    """Replies that say they come from node 100."""

    def answer(message):
        reply = app(message)
        reply.metadata.__dict__["_src_node_id"] = 100
        return reply

    return answer


def raising(_message):
    raise ValueError("income 0.618")


BAD = {
    1: reporting(b""),
    2: reporting(bytes(37)),
    3: reporting("text"),
    4: reporting(0.5),
    5: reporting([b"a", b"b"]),
    6: saying(RecordDict()),
    7: saying(RecordDict({"report": MetricRecord({"payload": 1.0})})),
    8: saying(
        RecordDict({"arrays": ArrayRecord([np.full(5, 1e30)]), "metrics": MetricRecord({"loss": 1.0})})
    ),
    9: reporting(b"\xff" * (1 << 20)),
}
MISSING = {
    21: None,
    22: raising,
    23: lambda message: Message(Error(5, "node unavailable"), reply_to=message),
    24: lambda message: Message(Error(2, None), reply_to=message),
}
REFUSING = {31: lambda message: Message(Error(6, records.REFUSED + "no"), reply_to=message)}


def check_misbehaviour(folder):
    """The run ends, each honest client is counted once in a round, and nothing else is; or AssertionError."""
    task = nodes.task(group=1000, rounds=2, participations=2)
    good = honest_nodes(folder, 3)
    sly = {11: Sly(good[100]), 12: Sly(good[101], late=True), 13: as_another_node(good[102])}
    grid = nodes.Nodes(good | sly | BAD | MISSING | REFUSING)
    made = strategy_of(task)
    run(grid, made)
    for summary in made.rounds:
        assert summary.counted == 3, "counted what is no report of its own"
        assert (summary.refused, summary.asked) == (1, len(grid.apps))
        assert (summary.bad, summary.missing) == (len(BAD) + len(sly), len(MISSING))
    by_hand = Training.begun(task, START)
    for number in range(2):
        one = Round(task, number, operator(nodes.MASTER))
        one.add(
            [records.payload_of(app(nodes.question(nodes.signed(task), number))) for app in good.values()]
        )
        by_hand.step(one.gradient())
    assert np.allclose(made.training.theta, by_hand.theta, rtol=0, atol=1e-12), "another model"


def test_bad_nodes_are_counted_as_such_and_the_run_ends(tmp_path):
    check_misbehaviour(tmp_path)


def test_a_client_counted_twice_is_caught(tmp_path, monkeypatch):
    class Twice(Round):
        clients = property(lambda self: len(self.seen))

        def add(self, given):
            self.seen = []
            for one in given:
                alone = Round(self.task, self.number, operator(nodes.MASTER))
                self.seen += [one] * (alone.add([one]) == [server.Outcome.COUNTED])
                self.sums += alone.sums
            return [server.Outcome.COUNTED] * len(given)

    monkeypatch.setattr(strategy, "Round", Twice)
    with pytest.raises(AssertionError, match="counted what is no report"):
        check_misbehaviour(tmp_path)


def check_forgetful(folder):
    """One client without a memory, behind another node in each round, counts once; or AssertionError."""
    grid, one = nodes.Nodes({}), Forgetful(folder, 9)
    grid.get_node_ids = lambda: [next(reversed(grid.apps))]
    made = strategy_of(nodes.task(group=10, participations=1, rounds=3))
    for number in range(3):
        grid.apps[number] = one
        made.start(grid, nodes.arrays(START), num_rounds=1, timeout=1.0)
    assert [summary.counted for summary in made.rounds] == [1, 0, 0], "a client counted too often"
    assert [summary.bad for summary in made.rounds] == [0, 1, 1]


def test_no_client_counts_in_more_rounds_than_the_task_allows(tmp_path):
    check_forgetful(tmp_path)


def test_a_client_that_counts_too_often_is_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "client_of", lambda report: report[-8:])  # of the tag
    with pytest.raises(AssertionError, match="too often"):
        check_forgetful(tmp_path)


def test_too_few_reports_move_nothing(tmp_path):
    made = strategy_of(nodes.task(rounds=1), least=4)
    run(nodes.Nodes(honest_nodes(tmp_path, 3)), made)
    assert made.rounds[0].counted == 3
    assert np.array_equal(made.training.theta, START)
    assert made.training.is_over


def test_no_nodes_at_all():
    made = strategy_of(nodes.task())
    run(nodes.Nodes({}), made)
    assert np.array_equal(made.training.theta, START)
    assert [summary.asked for summary in made.rounds] == [0, 0, 0]


def test_a_round_waits_for_its_group(tmp_path, monkeypatch):
    grid = nodes.Nodes(honest_nodes(tmp_path, 2))
    late = honest_nodes(tmp_path, 3)
    monkeypatch.setattr(strategy.time, "sleep", lambda _: grid.apps.update(late))
    made = strategy_of(nodes.task(group=3, rounds=1), patience_s=60.0)
    run(grid, made)
    assert made.rounds[0].counted == 3


def test_nobody_is_asked_about_their_data(tmp_path):
    grid, made = nodes.Nodes(honest_nodes(tmp_path, 3)), strategy_of(nodes.task(rounds=1))
    seen = []
    made.start(
        grid,
        nodes.arrays(START),
        num_rounds=1,
        evaluate_fn=lambda number, arrays: seen.append(records.flat(arrays, 5)),  # on public data
    )
    assert list(made.configure_evaluate(1, nodes.arrays(START), ConfigRecord(), grid)) == []
    assert made.aggregate_evaluate(1, []) is None
    assert len(seen) == 2


# Checkpoints


class Stopped(Exception):
    pass


def stop(_summary):
    raise Stopped


def test_a_run_goes_on_where_it_was_broken_off(tmp_path):
    task = nodes.task(group=4, participations=1, momentum=0.5)
    file, grid = nodes.signed(task), nodes.Nodes(honest_nodes(tmp_path, 12))
    path = tmp_path / "run.npz"
    broken = PrivateFedSGD(file, operator(nodes.MASTER), patience_s=0.0, checkpoint=path, on_round=stop)
    with pytest.raises(Stopped):
        run(grid, broken)
    made = PrivateFedSGD(file, operator(nodes.MASTER), patience_s=0.0, checkpoint=path, resume=True)
    assert made.rounds_left == 2
    assert np.array_equal(made.training.theta, broken.training.theta)
    run(grid, made)
    assert [summary.counted for summary in made.rounds] == [4, 4]  # nobody twice
    by_hand = Training.begun(task, START)
    for number, replies in enumerate(found for found in grid.replies if found):
        one = Round(task, number, operator(nodes.MASTER))
        one.add(payloads(replies))
        by_hand.step(one.gradient())
    assert np.array_equal(made.training.theta, by_hand.theta)
    assert [found.name for found in tmp_path.glob(".run*")] == []


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    run(nodes.Nodes({}), strategy_of(nodes.task(), checkpoint=path))
    assert path.stat().st_mode & 0o077 == 0  # who took part is in it
    with pytest.raises(ParameterError, match="of the same task"):
        strategy_of(nodes.task(), checkpoint=path, resume=True)
    path.write_bytes(b"nothing")
    with pytest.raises(ParameterError, match="that this strategy wrote"):
        strategy_of(nodes.task(), checkpoint=path, resume=True)
    path.unlink()
    assert strategy_of(nodes.task(), checkpoint=path, resume=True).rounds_left == 3


def test_rounds_and_numbers_are_those_of_the_task(tmp_path):
    made = strategy_of(nodes.task(rounds=1))
    run(nodes.Nodes({}), made)
    with pytest.raises(ParameterError, match="round must be"):
        made.start(nodes.Nodes({}), nodes.arrays(START), num_rounds=1)
    with pytest.raises(ParameterError, match="must hold 5 numbers in all, got 4"):
        strategy_of(nodes.task()).start(nodes.Nodes({}), ArrayRecord([np.zeros(4)]), num_rounds=1)
    assert np.array_equal(records.flat(made.initial_arrays(), 5), np.zeros(5))


# The operator's ledger


def test_every_round_that_moves_something_is_in_the_ledger(tmp_path):
    """It failed: a strategy knew no ledger. A round with too few reports tells nothing."""
    task, ledger = nodes.task(group=4), MemoryLedger()
    made = PrivateFedSGD(nodes.signed(task), operator(nodes.MASTER, ledger), patience_s=0.0)
    run(nodes.Nodes(honest_nodes(tmp_path, 8)), made)
    (found,) = ledger.accounts()
    assert found.spent == task.rounds * task.units == found.terms.cap
    few = PrivateFedSGD(nodes.signed(nodes.task()), operator(nodes.MASTER, ledger), patience_s=0.0, least=9)
    run(nodes.Nodes(honest_nodes(tmp_path, 2)), few)
    assert ledger.accounts() == [found]


def moved(tmp_path):
    """Whether parameters changed, or were kept, under a ledger that cannot be written."""

    class Full(MemoryLedger):
        def _request(self, *given):
            raise LedgerError("disk full")

    path = tmp_path / "run.npz"
    task = nodes.task(group=4)
    made = PrivateFedSGD(nodes.signed(task), operator(nodes.MASTER, Full()), patience_s=0.0, checkpoint=path)
    with contextlib.suppress(LedgerError):
        run(nodes.Nodes(honest_nodes(tmp_path, 4)), made)
    return not np.array_equal(made.training.theta, START) or path.exists()


def test_without_a_ledger_nothing_moves(tmp_path, monkeypatch):
    """Planted: a record that enters nothing."""
    assert not moved(tmp_path)
    monkeypatch.setattr(Record, "learn", lambda *_: None)
    assert moved(tmp_path)


def test_a_node_that_was_taken_back_moves_nothing(tmp_path):
    """It failed: revocation bound surveys only."""
    task, held = nodes.task(group=2), operator(nodes.MASTER)
    grid = nodes.Nodes(honest_nodes(tmp_path, 2))
    who = Enrolment.from_json((tmp_path / "0.json").read_text())
    held.revocations.revoke(who.id)
    made = PrivateFedSGD(nodes.signed(task), held, patience_s=0.0)
    run(grid, made, rounds=1)
    assert [(one.counted, one.bad) for one in made.rounds] == [(1, 1)]
