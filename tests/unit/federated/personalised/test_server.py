"""The server: bad payloads are refused, clusters found, empty ones kept, starts chosen in public."""

import numpy as np
import pytest

from reticent.errors import LedgerError, ParameterError
from reticent.federated.payload import Outcome
from reticent.federated.personalised import (
    PersonalRound,
    PersonalTraining,
    Records,
    Sanitiser,
    best,
    clustering,
    wire,
)
from reticent.federated.personalised.server import stepped
from reticent.fleet.enrolment import TAG_BYTES, Use, tag
from reticent.fleet.record import Record
from reticent.ledger import MemoryLedger
from reticent.randomness import SimulationStream

from ...operating import operator
from .parts import FIELDS, HYPOTHESES, LAPLACE, MASTER, enrolment


def report(made, values, number=0, client=1):
    return wire.written(Sanitiser(made, HYPOTHESES), enrolment(client), number, values)


def tagged(content, client=1):
    return content + tag(enrolment(client).key, Use.PERSONAL_TRAINING, content)


@pytest.mark.parametrize("about", ["hypothesis", "centre", "slots"])
def test_numbers_survive_the_wire(task, about):
    made = task(about=about)
    sanitiser = Sanitiser(made, HYPOTHESES)
    limit = sanitiser.limit
    values = np.resize([0, 1, -1, limit, -limit, 12345], (4, made.numbers))
    payloads = [report(made, row, client=client) for client, row in enumerate(values)]
    round_ = PersonalRound(made, 0, HYPOTHESES, operator(MASTER))
    assert set(round_.add(payloads)) == {Outcome.COUNTED}
    assert [int.from_bytes(one, "big") for one in round_._reports] == list(range(4))
    assert np.array_equal([wire.numbers(sanitiser, one) for one in payloads], values)


def test_payloads_that_do_not_hold_are_refused_each_for_its_reason(task):
    made = task()
    limit = Sanitiser(made, HYPOTHESES).limit
    good = report(made, [1] * 6)
    content = good[:-TAG_BYTES]
    payloads = {
        Outcome.COUNTED: good,
        Outcome.SECOND: report(made, [2] * 6),
        Outcome.LENGTH: good[:-1],
        Outcome.VERSION: tagged(b"\x01" + content[1:]),
        Outcome.TASK: tagged(content[:1] + bytes(8) + content[9:]),
        Outcome.ROUND: report(made, [1] * 6, number=1),
        Outcome.TAG: content + bytes(TAG_BYTES),
        Outcome.SYMBOL: report(made, [0] * 5 + [limit + 1], client=2),
    }
    server = PersonalRound(made, 0, HYPOTHESES, operator(MASTER))
    assert server.add(list(payloads.values())) == list(payloads)
    assert server.clients == 1
    assert server.add([None, 7, b"", "x", good + b"0"])[:4] == [Outcome.LENGTH] * 4
    assert server.outcomes[Outcome.LENGTH] == 6
    assert np.array_equal(server.reports(), [[Sanitiser(made, HYPOTHESES).step] * 6])


def test_a_range_that_is_not_checked_is_seen(task, monkeypatch):
    """Planted: a report beyond the limit counts."""
    made = task()
    sanitiser = Sanitiser(made, HYPOTHESES)
    beyond = report(made, [sanitiser.limit + 1] * 6)
    monkeypatch.setattr(Sanitiser, "_limit", lambda self: (1 << 23) - 1)
    open_server = PersonalRound(made, 0, HYPOTHESES, operator(MASTER))
    assert wire.width(open_server.sanitiser) == wire.width(sanitiser)
    assert open_server.add([beyond]) == [Outcome.COUNTED]


def test_k_means_finds_the_means_and_keeps_an_empty_centre():
    stream = SimulationStream(1)
    points = np.concatenate([HYPOTHESES[[place]] + stream.units(80).reshape(40, 2) - 1.5 for place in (0, 1)])
    found = clustering.k_means(points, HYPOTHESES + 1.0)
    assert found == pytest.approx(np.array([points[:40].mean(axis=0), points[40:].mean(axis=0)]))
    far = np.array([[5.0, 6.0], [400.0, 400.0]])
    assert np.array_equal(clustering.k_means(points[:40], far)[1], far[1])


@pytest.mark.parametrize("about", ["hypothesis", "centre"])
def test_a_round_of_k_means_moves_each_hypothesis_to_its_clients(task, about):
    sanitiser = Sanitiser(task(about=about, clip=7.0, level=0.02), HYPOTHESES)
    choices = np.array([0, 0, 1, 1])
    vectors = sanitiser.vectors(
        choices, HYPOTHESES[choices] + [[0.1, 0.0], [0.3, 0.0], [0.0, 0.1], [0.0, 0.5]]
    )
    sent = sanitiser.decoded(sanitiser.sample(vectors, SimulationStream(2)))
    moves = stepped(sanitiser, sent) - HYPOTHESES
    assert moves == pytest.approx(np.array([[0.2, 0.0], [0.0, 0.3]]), abs=0.08)  # 5.6 sigma


def test_a_round_of_slots_moves_each_hypothesis_by_the_mean_update_of_its_clients(task):
    sanitiser = Sanitiser(task(level=1e-3), HYPOTHESES)
    choices = np.array([0, 1, 1])
    vectors = sanitiser.vectors(choices, HYPOTHESES[choices] + [[0.1, 0.0], [0.0, 0.1], [0.0, 0.5]])
    sent = sanitiser.decoded(sanitiser.sample(vectors, SimulationStream(2)))
    moves = stepped(sanitiser, sent) - HYPOTHESES
    assert moves == pytest.approx(np.array([[0.1, 0.0], [0.0, 0.3]]), abs=0.02)


def test_slots_are_unbiased_where_k_means_is_not(task):
    """2,000 clients, sigma 4.33: the mean over 200 rounds, against its own spread (false alarm below "
    "1e-6)."""
    made = task(level=4.33)
    sanitiser = Sanitiser(made, HYPOTHESES)
    choices = np.arange(2000) % 2
    vectors = np.repeat(
        sanitiser.vectors(choices, HYPOTHESES[choices] + [0.5, 0.0]).sum(axis=0)[None], 200, axis=0
    )
    wide = Sanitiser(task(level=4.33 * np.sqrt(2000.0)), HYPOTHESES)  # the noise of a sum
    sums = wide.sample(vectors, SimulationStream(3)) * wide.step
    moved = np.array([clustering.from_slots(sanitiser, one, 2000) for one in sums]) - HYPOTHESES
    errors = moved.mean(axis=0) - [0.5, 0.0]
    assert np.abs(errors).max() < 5.5 * moved.std(axis=0).max() / np.sqrt(200) + 0.01
    points = HYPOTHESES[choices] + [0.5, 0.0] + 4.33 * _normal(4000).reshape(2000, 2)
    biased = clustering.k_means(points, HYPOTHESES) - HYPOTHESES - [0.5, 0.0]
    assert np.abs(biased).max() > 0.3


def _normal(count):
    from reticent.federated.personalised.simulation import normals

    return normals(count, SimulationStream(4))


def test_a_cluster_that_may_be_noise_stays(task):
    sanitiser = Sanitiser(task(level=4.0), HYPOTHESES)
    sums = np.array([90.0, 0.0, 100.0, 5.0, 5.0, 0.0])  # sizes 100 and 0, noise of a size 28
    moved = clustering.from_slots(sanitiser, sums, 100)
    assert np.array_equal(moved[1], HYPOTHESES[1])
    assert moved[0] == pytest.approx(HYPOTHESES[0] + [0.9, 0.0])


def test_hypotheses_stay_within_the_reach_so_that_clients_accept_them(task):
    made = task(reach=8.0)
    training = PersonalTraining.begun(made, HYPOTHESES)
    for _ in range(5):
        training.step(np.tile([1.0, 1.0, 1.0, 1.0, -1.0, 1.0], (50, 1)) * 40.0)
        made.checked_hypotheses(training.hypotheses)
    assert training.is_over
    with pytest.raises(ParameterError, match="round must be <= 4"):
        training.step(np.zeros((1, 6)))


def test_a_round_without_reports_changes_nothing(task):
    training = PersonalTraining.begun(task(), HYPOTHESES)
    training.step(np.zeros((0, 6)))
    assert np.array_equal(training.hypotheses, HYPOTHESES)
    assert np.array_equal(training.settled(1), HYPOTHESES)
    with pytest.raises(ParameterError, match="rounds must be in 1 to 1"):
        training.settled(2)


def test_settled_is_the_mean_of_the_last_rounds(task):
    training = PersonalTraining.begun(task(about="hypothesis"), HYPOTHESES)
    for shift in (0.1, 0.2, 0.3):
        training.step(HYPOTHESES + shift)
    assert training.settled(2) == pytest.approx(HYPOTHESES + 0.25)


def test_the_best_start_is_chosen_on_public_data():
    model = FIELDS["model"]
    x = SimulationStream(5).units(40).reshape(2, 10, 2) - 1.5
    public = Records(model, x, np.einsum("cmi,ci->cm", x, HYPOTHESES))
    assert best([HYPOTHESES - 3.0, HYPOTHESES[::-1], HYPOTHESES * np.nan], public) == 1


def test_records_agree_with_the_models_one_by_one():
    """Losses and updates of many clients at once, against the model's own gradients."""
    from reticent.federated.models import SVM, Linear, Logistic

    stream = SimulationStream(6)
    for kind in (Linear, Logistic, SVM):
        for intercept in (True, False):
            model = kind(3, l2=0.1, intercept=intercept)
            x = stream.units(90).reshape(5, 6, 3) * 2.0 - 3.0
            y = np.where(stream.units(30).reshape(5, 6) > 1.5, 1.0, -1.0)
            people, thetas = Records(model, x, y), stream.units(2 * model.dimensions).reshape(2, -1) - 1.5
            who = np.array([4, 1, 2])
            expected = [[model.losses(one, x[i], y[i]).mean() for one in thetas] for i in who]
            assert people.losses(thetas, who) == pytest.approx(np.array(expected))
            starts = thetas[[0, 1, 0]]
            for row, i in enumerate(who):
                theta = starts[row]
                for _ in range(3):
                    theta = theta - 0.2 * model.gradients(theta, x[i], y[i]).mean(axis=0)
                assert people.updated(starts, who, rate=0.2, epochs=3)[row] == pytest.approx(theta)


def told(made, ledger):
    server = PersonalRound(made, 0, HYPOTHESES, operator(MASTER, ledger))
    server.add([report(made, [1] * made.numbers)])
    return server.reports()


@pytest.mark.parametrize("changes", [{}, LAPLACE, {"about": "hypothesis"}])
def test_what_a_round_tells_is_in_the_ledger_first(task, changes, monkeypatch):
    """It failed: trainings entered nothing. Charged as clients pay, not the worst that a task allows."""
    made, ledger = task(**changes), MemoryLedger()
    charged = Sanitiser(made, HYPOTHESES)
    told(made, ledger)
    (found,) = ledger.accounts()
    assert found.terms.name == f"training:{made.id.hex()}"
    assert (found.terms.unit, found.spent) == (charged.unit, charged.units)
    assert found.terms.cap == made.rounds * Sanitiser(made).units
    assert (charged.units < Sanitiser(made).units) == (made.about == "hypothesis")

    def fails(*_):
        raise LedgerError("disk full")

    monkeypatch.setattr(MemoryLedger, "_request", fails)
    with pytest.raises(LedgerError, match="disk full"):
        told(made, MemoryLedger())
    monkeypatch.setattr(Record, "learn", lambda *_: None)  # planted
    assert len(told(made, MemoryLedger())) == 1
