"""The server: averages without bias, with the noise that was predicted.

False alarms: each statistic is normal but for 1/sqrt(n), and compared with 6 standard errors, 2e-9 each; a
test looks at 12 of them, all of this file together at about 120: under 1e-6.
"""

import math

import numpy as np
import pytest

from reticent.errors import LedgerError, ParameterError
from reticent.federated import server
from reticent.federated.client import Client
from reticent.federated.payload import Outcome
from reticent.federated.server import Round, averaged, summed
from reticent.federated.tasks import Task
from reticent.fleet.record import Record
from reticent.ledger import MemoryLedger, Unit
from reticent.privacy import Neighbours
from reticent.randomness import SimulationStream

from ..operating import intake, operator
from . import people

BOUNDS = (1.0, 2.0, 0.5, 1.0, 4.0, 1.0)
GRADIENT = np.array([0.5, -1.0, 0.0, 7.0, -math.inf, 0.125])  # two of them beyond their bounds
CLIPPED = np.array([0.5, -1.0, 0.0, 1.0, -4.0, 0.125])
QUICK, FULL, BLOCK = 100_000, 5_000_000, 500_000
KINDS = ("OneBit", "Window", "PMSub", "Duchi")
MOST = 6.0  # standard errors


def task_of(kind, k, **changes):
    return people.task(kind, sample_size=k, bounds=BOUNDS, **{"epsilon": 2.0} | changes)


def moments(task, clients, seed, drawn=people.drawn):
    """Sums of the reports and of their squares, in units of the bounds, of clients who share a gradient."""
    rng, stream = np.random.default_rng(seed), SimulationStream(seed)
    sums, squares = np.zeros(task.dimensions), np.zeros(task.dimensions)
    for start in range(0, clients, BLOCK):
        ids = rng.integers(0, 1 << 64, min(BLOCK, clients - start), dtype=np.uint64)
        asked, symbols = drawn(task, ids, start // BLOCK % task.rounds, GRADIENT, stream)
        sums += summed(task, asked, symbols)
        outputs = task.mechanism.alphabet[symbols].reshape(-1)
        squares += np.bincount(asked.reshape(-1), weights=outputs**2, minlength=task.dimensions)
    return sums, squares


def strayed(task, sums, squares, clients, predicted=None):
    """How many standard errors mean and variance are off what `predicted` says of this task, at most."""
    predicted = predicted or task
    noise, rate = predicted.noise(clients, GRADIENT), task.sample_size / task.dimensions
    mean = (averaged(task, sums, clients) - CLIPPED) / np.sqrt(noise)
    units = CLIPPED / task.scale
    fourth = task.mechanism.probabilities(units) @ task.mechanism.alphabet**4
    second = noise * clients / task.scale**2 + units**2  # of one client's part, in units of the bound
    error = np.sqrt((fourth / rate**3 - second**2) / clients)
    return abs(np.concatenate([mean, (squares / clients / rate**2 - second) / error])).max()


def check_unbiased(kind, k, clients):
    task = task_of(kind, k)
    assert strayed(task, *moments(task, clients, seed=k), clients) < MOST


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 3])
def test_averages_are_unbiased_with_the_predicted_variance(kind, k):
    check_unbiased(kind, k, QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 3])
def test_averages_of_millions_are_unbiased_with_the_predicted_variance(kind, k):
    check_unbiased(kind, k, FULL)


# Planted bugs: the same statistic finds them


@pytest.mark.parametrize("kind", KINDS)
def test_planted_noise_of_another_scale_is_found(kind):
    """A prediction that is 30 % off in the standard deviation."""
    task = task_of(kind, 2)

    class Wrong:
        def noise(self, *given):
            return task.noise(*given) * 1.3**2

    assert strayed(task, *moments(task, QUICK, seed=1), QUICK, Wrong()) > MOST


def test_planted_bounds_of_ones_own_are_found(monkeypatch):
    """Clipping removed: each gradient is scaled by its own largest coordinate instead."""
    task = task_of("Duchi", 2)

    def unclipped(self, gradients):
        units = np.nan_to_num(np.asarray(gradients), posinf=9.0, neginf=-9.0) / self.scale
        return units / abs(units).max()

    with monkeypatch.context() as planted:
        planted.setattr(Task, "clipped", unclipped)
        found = moments(task, QUICK, seed=1)
    assert strayed(task, *found, QUICK) > MOST


def test_without_clipping_the_mechanism_still_clamps(monkeypatch):
    """The second line of defence, which is why `test_guarantee` plants both."""
    task = task_of("PMSub", 2)
    expected = moments(task, 1000, seed=1)
    with monkeypatch.context() as planted:
        planted.setattr(Task, "clipped", lambda self, gradients: np.asarray(gradients) / self.scale)
        found = moments(task, 1000, seed=1)
    assert np.array_equal(expected, found)


@pytest.mark.parametrize("k", [1, 3])
def test_planted_coordinates_by_magnitude_are_found(k):
    task = task_of("Duchi", k)

    def by_magnitude(task, ids, number, gradient, stream):
        asked, units = task.asked(ids, number), task.clipped(gradient)
        largest = np.argsort(-abs(units), kind="stable")[:k]
        return asked, task.mechanism.sample(np.broadcast_to(units[largest], asked.shape), stream)

    assert strayed(task, *moments(task, QUICK, seed=1, drawn=by_magnitude), QUICK) > MOST


def test_planted_dither_of_another_round_is_found():
    task = task_of("OneBit", 2)

    def stale(task, ids, number, gradient, stream):
        asked, symbols = people.drawn(task, ids, number, gradient, stream)
        return asked, 2 * task.dither(ids, number + 1, asked) + symbols % 2

    assert strayed(task, *moments(task, QUICK, seed=1, drawn=stale), QUICK) > MOST


def test_planted_a_forgotten_share_is_found(monkeypatch):
    task = task_of("Duchi", 2)
    found = moments(task, QUICK, seed=1)
    monkeypatch.setattr(__name__ + ".averaged", lambda task, sums, clients: sums * task.scale / clients)
    assert strayed(task, *found, QUICK) > MOST


# From ledger to average, over bytes


def test_real_clients_give_that_average(tmp_path):
    """12 clients with ledgers, 20 rounds: every report paid, sent as bytes, counted once."""
    rounds, people_there = 20, 12
    task = people.task(
        "OneBit", sample_size=3, bounds=BOUNDS, epsilon=6.0, rounds=rounds, participations=rounds
    )
    file, clients, sums, squares = people.file_of(task), [], np.zeros(6), np.zeros(6)
    for number in range(people_there):
        path, rng = tmp_path / str(number), SimulationStream(3, path=(number,))
        one = Client(path, people.enrolment(number), people.SIGNER, lifetime=6.0 * rounds, most=6.0, rng=rng)
        clients.append(one)
        one.take(file)
    for number in range(rounds):
        round_ = Round(task, number, operator(people.MASTER))
        sent = [one.report(task, number, GRADIENT) for one in clients]
        assert set(round_.add(sent)) == {Outcome.COUNTED}
        assert round_.clients == people_there
        assert np.array_equal(round_.gradient(), averaged(task, round_.sums, people_there))
        sums += round_.sums
        read = server.payload.read(task, number, sent, intake(people.MASTER))[1]
        outputs = task.mechanism.alphabet[read.symbols].reshape(-1)
        squares += np.bincount(read.asked.reshape(-1), weights=outputs**2, minlength=6)
    for one in clients:
        assert one.spent == 6.0 * rounds
        one.close()
    count = rounds * people_there
    assert strayed(task, sums, squares, count) < MOST
    assert strayed(task, sums * [1, 1, 1, -1, 1, 1], squares, count) > MOST  # planted: one sign turned


# Rounds


def test_batches_add_up():
    task, stream = task_of("PMSub", 3), SimulationStream(1)
    sent = [people.report(task, people.enrolment(i), 2, GRADIENT, stream) for i in range(40)]
    whole, parts = Round(task, 2, operator(people.MASTER)), Round(task, 2, operator(people.MASTER))
    whole.add(sent)
    for start in range(0, 40, 7):
        parts.add(sent[start : start + 10])  # some twice
    assert parts.sums == pytest.approx(whole.sums, rel=1e-12)
    assert parts.clients == whole.clients == 40
    assert parts.outcomes == {Outcome.COUNTED: 40, Outcome.SECOND: 15}


def test_twice_in_one_batch_counts_once():
    task = task_of("Duchi", 1)
    one = people.report(task, people.enrolment(1), 0, GRADIENT, SimulationStream(1))
    round_ = Round(task, 0, operator(people.MASTER))
    assert round_.add([one, one]) == [Outcome.COUNTED, Outcome.SECOND]
    assert np.count_nonzero(round_.sums) == 1


def test_an_empty_round_is_no_step():
    round_ = Round(task_of("Duchi", 1), 0, operator(people.MASTER))
    assert round_.add([]) == []
    assert round_.gradient().tolist() == [0.0] * 6
    assert round_.clients == 0


@pytest.mark.parametrize("number", [-1, 10])
def test_a_round_that_there_is_not_is_refused(number):
    with pytest.raises(ParameterError, match="round must be"):
        Round(task_of("Duchi", 1), number, operator(people.MASTER))


def test_another_operators_clients_are_refused():
    task = task_of("Duchi", 1)
    sent = people.report(task, people.enrolment(1), 0, GRADIENT, SimulationStream(1))
    assert Round(task, 0, operator(bytes(32))).add([sent]) == [Outcome.TAG]


# The ledger


class Full(MemoryLedger):
    """One that cannot be written."""

    def _request(self, *given):
        raise LedgerError("disk full")


def learnt(ledger, task, clients=3):
    """A round with some reports; what its average gives."""
    round_ = Round(task, 2, operator(people.MASTER, ledger))
    stream = SimulationStream(1)
    round_.add([people.report(task, people.enrolment(i), 2, GRADIENT, stream) for i in range(clients)])
    return round_.gradient()


def test_what_a_round_tells_is_in_the_ledger_first():
    """It failed: trainings entered nothing."""
    task, ledger = task_of("Duchi", 1), MemoryLedger()
    for _ in range(2):
        learnt(ledger, task)
        (found,) = ledger.accounts()
        assert found.terms.name == f"training:{task.id.hex()}"
        assert (found.terms.unit, found.terms.neighbours) == (Unit.EPSILON, Neighbours.ANY_TWO_VALUES)
        assert (found.spent, found.terms.cap) == (task.units, task.rounds * task.units)
        assert ledger.reading(found.terms.name, "round 2").estimate() == (3,)
    learnt(ledger, task_of("Duchi", 1, name="another"), clients=0)
    assert len(ledger.accounts()) == 1, "nobody reported, nothing is told"


def test_without_a_ledger_a_round_tells_nothing(monkeypatch):
    """Planted: a record that enters nothing."""
    with pytest.raises(LedgerError, match="disk full"):
        learnt(Full(), task_of("Duchi", 1))
    monkeypatch.setattr(Record, "learn", lambda *_: None)
    assert learnt(Full(), task_of("Duchi", 1)).any()
