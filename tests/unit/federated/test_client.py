"""Clients: nothing unpaid leaves, nothing is silent, one report for each task and round."""

import math
import os
import shutil
import signal
import threading

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.errors import AccountConflict, BudgetExceeded, GuaranteeError, LedgerError, ParameterError
from reticent.federated import payload
from reticent.federated.client import ACCOUNT, Client, ParticipationsSpent
from reticent.federated.models import Logistic
from reticent.federated.tasks import signed
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.marks import Marks
from reticent.randomness import SimulationStream

from . import people
from .people import ENROLLED, GRADIENT, taken


def symbols_of(report):
    return report[payload.HEAD_BYTES : -payload.TAG_BYTES]


# Which coordinates: never by the data, mathematics 4.12


class ByMagnitude(Client):
    """Planted: the largest coordinates are the most telling."""

    def _symbols(self, task, number, gradient, stream):
        units = task.clipped(gradient)
        largest = np.sort(np.argsort(-abs(units), kind="stable")[: task.sample_size])
        return task.mechanism.pack(task.mechanism.sample(units[largest], stream))


def is_blind(one, task):
    """Whether coordinates that the task did not ask for change nothing, from the same randomness."""
    me = payload.client_number(ENROLLED)
    for number in range(task.rounds):
        others = np.ones(task.dimensions, dtype=bool)
        others[task.asked(me, number)[0]] = False
        for value in (1e9, -1.0, math.nan, math.inf):
            both = (GRADIENT, np.where(others, value, GRADIENT))
            sent = [one._symbols(task, number, each, SimulationStream(number)) for each in both]
            if sent[0] != sent[1]:
                return False
    return True


@pytest.mark.parametrize("k", [1, 2])
def test_coordinates_are_never_chosen_by_the_data(client, k):
    task = people.task("PM", sample_size=k)
    one = client()
    assert is_blind(one, taken(one, task))
    one.close()
    one = client(ByMagnitude)
    assert not is_blind(one, taken(one, task))


# Memory, mathematics 4.2


def pairs(client, kind):
    """The two reports of a round for the gradients (a, a) and (a, b), in many tasks of one client."""
    found = []
    with client(kind) as one:
        for number in range(20):
            task = taken(one, people.task("PM", epsilon=4.0, name=f"t{number}", participations=2))
            second = GRADIENT if number % 2 else -GRADIENT
            found.append((one.report(task, 3, GRADIENT), one.report(task, 3, second)))
    return found


def is_memoised(found):
    return all(first == second for first, second in found)


class ByValue(Client):
    """Planted: another gradient in the round is another report of it."""

    def report(self, task, number, gradient):
        sent = super().report(task, 1 + int(np.sum(gradient) > 0), gradient)
        return payload.written(task, ENROLLED, number, symbols_of(sent))


def test_a_report_is_the_same_whatever_the_gradient_becomes(client):
    assert is_memoised(pairs(client, Client))


def test_planted_a_memory_by_value_is_found(client):
    assert not is_memoised(pairs(client, ByValue))


def test_a_report_is_the_same_after_a_restart(client):
    task = people.task("OneBit", sample_size=2, participations=2)
    with client() as one:
        first = one.report(taken(one, task), 2, GRADIENT)
    with client() as one:
        with pytest.raises(ParameterError, match="task must be one that this client took, got OneBit"):
            one.report(task, 2, GRADIENT)
        assert one.report(taken(one, task), 2, -GRADIENT) == first
        assert one.spent == 1.0
        assert one.report(task, 3, GRADIENT)[9:13] == (3).to_bytes(4, "big")
        assert one.spent == 2.0


# Nothing unpaid


def unpaid(client, kind, tmp_path):
    """What a power loss at the moment when bytes leave would show: whether they are not paid and kept."""
    one = client(kind)
    task, paths = taken(one, people.task("PM", sample_size=2, rounds=99, participations=5)), []
    for number in range(3):
        report = one.report(task, number, GRADIENT)
        paths.append((report, shutil.copy(tmp_path / "ledger", tmp_path / f"copy-{number}")))
    found = 0
    for number, (report, path) in enumerate(paths):
        elsewhere = Marks(tmp_path / f"marks-{number}", moved=True)
        with Client(path, ENROLLED, people.SIGNER, lifetime=1000.0, most=10.0, marks=elsewhere) as copy:
            found += copy.spent != number + 1.0
            found += copy.report(taken(copy, task), number, -GRADIENT) != report
            found += copy.spent != number + 1.0
    return found


def test_what_leaves_is_paid_and_kept(client, tmp_path):
    assert unpaid(client, Client, tmp_path) == 0


class SkipsTheLedger(Client):
    """Planted: draws at once."""

    def _paid(self, task, number, gradient):
        return self._symbols(task, number, gradient, self._stream)


class PaysOnce(Client):
    """Planted: one charge for all rounds."""

    def _paid(self, *given):
        return (SkipsTheLedger if self.spent else Client)._paid(self, *given)


@pytest.mark.parametrize("planted", [SkipsTheLedger, PaysOnce])
def test_planted_a_skipped_ledger_is_found(client, tmp_path, planted):
    assert unpaid(client, planted, tmp_path) > 0


def test_the_charge_is_durable_before_the_draw(client, tmp_path):
    states = []

    class Looks(Client):
        def _symbols(self, task, number, gradient, stream):
            with DeviceLedger(shutil.copy(tmp_path / "ledger", tmp_path / "copy")) as copy:
                states.append(copy.balance(ACCOUNT).spent)
            return super()._symbols(task, number, gradient, stream)

    one = client(Looks)
    task = taken(one, people.task(participations=2))
    states.clear()
    one.report(task, 0, GRADIENT)
    one.report(task, 1, GRADIENT)
    assert states == [task.units, 2 * task.units]


def test_a_crash_between_charge_and_record_costs_once(tmp_path):
    """Killed while drawing, three times, in different rounds: one draw leaves, charged once."""
    task, path = people.task("PM", rounds=9), tmp_path / "ledger"
    for number in range(3):
        child = os.fork()
        if child == 0:
            try:
                with Client(path, ENROLLED, people.SIGNER, lifetime=1.0) as one:
                    taken(one, task)
                    one._symbols = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
                    one.report(task, number, GRADIENT)
            finally:
                os._exit(1)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    with Client(path, ENROLLED, people.SIGNER, lifetime=1.0) as one:
        assert one.spent == 1.0  # paid for before the first draw
        assert len(one.ledger.pending(ACCOUNT)) == 1
        first = one.report(taken(one, task), 5, GRADIENT)
        assert one.spent == 1.0
        assert one.ledger.pending(ACCOUNT) == []
        assert one.report(task, 5, -GRADIENT) == first
        with pytest.raises(ParticipationsSpent):
            one.report(task, 0, GRADIENT)


def test_a_report_leaves_only_when_it_is_recorded(client, monkeypatch):
    """What cannot be recorded is not given out: two draws must not both be seen."""
    one = client()
    task = taken(one, people.task())

    def full(*_):
        raise LedgerError("the disk is full")

    with monkeypatch.context() as planted:
        planted.setattr(one.ledger, "fulfil", full)
        with pytest.raises(LedgerError, match="full"):
            one.report(task, 0, GRADIENT)
    assert one.report(task, 0, GRADIENT) == one.report(task, 0, -GRADIENT)
    assert one.spent == 1.0


def test_a_client_is_not_carried_over_a_fork(client):
    """Two processes with one ledger would spend it twice."""
    one = client()
    task = taken(one, people.task())
    child = os.fork()
    if child == 0:
        try:
            one.report(task, 0, GRADIENT)
        except LedgerError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert one.spent == 0.0
    assert one.report(task, 0, GRADIENT)


def test_threads_get_one_report(client):
    one, found = client(), []
    task = taken(one, people.task("PM", sample_size=2))
    work = [
        threading.Thread(target=lambda: found.append(one.report(task, 0, GRADIENT * len(found))))
        for _ in range(8)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert (len(found), len(set(found)), one.spent) == (8, 1, 1.0)


def test_the_ledger_holds_no_gradient(client, tmp_path):
    one = client()
    one.report(taken(one, people.task()), 0, [0.77125] * 6)
    assert b"77125" not in (tmp_path / "ledger").read_bytes()


# Repetition composes, and stops


def test_participations_stop(client):
    one = client()
    task = taken(one, people.task(participations=3))
    for count, number in enumerate((9, 0, 4), start=1):
        one.report(task, number, GRADIENT)
        assert one.ledger.balance(ACCOUNT).spent == count * task.units
    with pytest.raises(ParticipationsSpent, match="allows 3 rounds of one client"):
        one.report(task, 1, GRADIENT)
    assert one.ledger.balance(ACCOUNT).spent == 3 * task.units
    assert one.report(task, 0, GRADIENT)[9:13] == bytes(4)  # what was given out is given again


def test_a_lifetime_ends(client):
    units = 100_000_000_001  # the double 0.1 is a little more than a tenth
    task = people.task(epsilon=0.1, participations=9)
    assert task.units == units
    for _ in range(2):  # also after a restart
        one = client(lifetime=0.35)
        taken(one, task)
        for number in range(3):
            one.report(task, number, GRADIENT)
        with pytest.raises(BudgetExceeded):
            one.report(task, 3, GRADIENT)
        assert one.ledger.balance(ACCOUNT).spent == 3 * units
        one.close()


def test_tasks_share_one_lifetime(client):
    one = client(lifetime=3.0)
    first, second = (taken(one, people.task(kind, epsilon=1.5, participations=2)) for kind in ("PM", "HM"))
    one.report(first, 0, GRADIENT)
    one.report(second, 0, GRADIENT)
    assert one.spent == 3.0
    for task in (first, second):
        with pytest.raises(BudgetExceeded):
            one.report(task, 1, GRADIENT)


def test_a_lifetime_is_fixed_with_the_ledger(client):
    client(lifetime=3.0).close()
    with pytest.raises(AccountConflict):
        client(lifetime=4.0)
    client(lifetime=3.0)  # the refusal left the file free


def test_two_enrolments_are_two_clients_with_one_budget(client, tmp_path):
    task = people.task("PM")
    with client(lifetime=1.5) as one:
        first = one.report(taken(one, task), 0, GRADIENT)
    with client(lifetime=1.5, enrolment=people.enrolment(8)) as other, pytest.raises(BudgetExceeded):
        other.report(taken(other, task), 0, GRADIENT)
    with client(lifetime=1.5) as one:
        assert one.report(taken(one, task), 0, GRADIENT) == first


# What is refused, on public grounds


def refused(one, file, task, words):
    with pytest.raises((GuaranteeError, ParameterError), match=words):
        one.take(file)
    with pytest.raises(ParameterError, match="task must be one that this client took"):
        one.report(task, 0, GRADIENT)
    assert one.spent == 0.0


def test_a_task_that_asks_too_much_is_refused(client):
    one, task = client(most=1.0), people.task(epsilon=1.25)
    refused(one, people.file_of(task), task, r"asks for epsilon 1\.25 a round, this client allows 1")
    assert taken(one, people.task(epsilon=1.0))


def test_a_task_of_somebody_else_is_refused(client):
    one, task = client(), people.task()
    refused(one, signed(task, Ed25519PrivateKey.generate()), task, "signed by somebody else")
    refused(one, task.text, task, "a signed task must")


def test_a_signed_task_that_spends_twice_is_refused(client):
    """The signer itself is not trusted with the guarantee."""
    one = client()
    for fair, unfair in ((b'1.0,"kind":"D', b'2.0,"kind":"D'), (b'"sample_size":1', b'"sample_size":2')):
        greedy = people.task()
        assert fair in greedy.text
        text = greedy.text.replace(fair, unfair)
        object.__setattr__(greedy, "text", text)
        refused(one, people.file_of(greedy), greedy, "may spend more than epsilon 1")


def test_what_cannot_draw_is_not_taken(client, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError

    one, task = client(), people.task()
    with monkeypatch.context() as planted:
        planted.setattr("reticent.mechanisms.numeric.hybrid.Duchi.sample", broken)
        refused(one, people.file_of(task), task, "the mechanism of the task cannot draw")


@pytest.mark.parametrize("number", [-1, 10, 0.0, True, None, "0", 2**40])
def test_a_round_that_there_is_not_is_refused(client, number):
    one = client()
    task = taken(one, people.task())
    with pytest.raises((ParameterError, TypeError), match="round must be"):
        one.report(task, number, GRADIENT)
    assert one.spent == 0.0


def test_a_client_holds_to_the_task_that_it_took(client):
    """What is handed in only names it."""
    one, task = client(), people.task("PM")
    taken(one, task)
    mine = people.task("PM")
    for field, value in (("sample_size", 6), ("participations", 9), ("rounds", 99), ("epsilon", 1e-9)):
        object.__setattr__(mine, field, value)
    report = one.report(mine, 0, GRADIENT)
    assert len(report) == payload.size(task)
    assert one.spent == 1.0
    with pytest.raises(ParticipationsSpent):
        one.report(mine, 1, GRADIENT)


def test_parameters_that_fit_no_model_cost_nothing(client):
    one = client()
    task = taken(one, people.task(model=Logistic(5)))
    for theta in (np.zeros(5), [math.nan] * 6, None):
        with pytest.raises(ParameterError, match="theta must be 6 finite numbers"):
            one.train(task, 0, theta, [[1.0] * 5], [1.0])
    bare = taken(one, people.task(name="bare"))
    with pytest.raises(ParameterError, match="task must have a model"):
        one.train(bare, 0, np.zeros(6), [[1.0] * 5], [1.0])
    assert one.spent == 0.0


@pytest.mark.parametrize("changes", [{"lifetime": 0.0}, {"lifetime": math.inf}, {"most": 0.0}, {"most": "1"}])
def test_bad_limits_are_refused(client, changes):
    (name,) = changes
    with pytest.raises((ParameterError, TypeError), match=f"{name} must be"):
        client(**changes)


# The bytes


@pytest.mark.parametrize("kind", people.NUMERIC)
def test_a_report_is_what_the_helper_writes(client, kind):
    """So that other tests may draw thousands at once."""
    one = client(rng=SimulationStream(9))
    task = taken(one, people.task(kind, sample_size=2, bounds=(1.0, 2.0, 3.0, 0.5, 0.25, 1.0)))
    assert one.report(task, 4, GRADIENT) == people.report(task, ENROLLED, 4, GRADIENT, SimulationStream(9))


def test_secure_randomness_is_the_default(client):
    one = client()
    task = taken(one, people.task("PM", sample_size=3, rounds=30, participations=30))
    assert len({symbols_of(one.report(task, number, GRADIENT)) for number in range(30)}) > 10
