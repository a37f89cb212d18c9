"""Clients needed: by arithmetic, and by training on public rows."""

import math

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.federated import Linear, Logistic, planning
from reticent.federated.planning import (
    Plan,
    Point,
    Shape,
    clients_for,
    noise,
    plan,
    shape,
    written_clients,
    written_shape,
)
from reticent.federated.server import averaged
from reticent.federated.simulation import Records, report_sums, simulate
from reticent.federated.tasks import designed
from reticent.randomness import SimulationStream

RNG = np.random.default_rng(8)
INPUTS = 5
FEATURES = RNG.uniform(-1.0, 1.0, (1_500, INPUTS))
TARGETS = np.where(FEATURES @ np.array([2.0, -1.0, 0.5, 0.0, 0.0]) + 0.2 > 0.0, 1.0, -1.0)


def task(model=None, *, epsilon=2.0, rate=2.0, rounds=30, group=10, **options):
    return designed(
        "t", model or Logistic(INPUTS), epsilon=epsilon, purpose="x", rounds=rounds, group=group, rate=rate,
        **options,
    )  # fmt: skip


def test_the_noise_of_a_group_and_back():
    t = task(bounds=0.5)
    for clients in (1, 100, 12_345):
        assert noise(t, clients) == pytest.approx(math.sqrt(t.noise(clients).mean()))
        assert clients_for(t, noise(t, clients) * (1 + 1e-9)) == clients
    assert clients_for(t, 0.01) == math.ceil((noise(t, 1) / 0.01) ** 2)
    assert noise(t, 10, np.zeros(INPUTS + 1)) < noise(t, 10) * (1 + 1e-12)
    with pytest.raises(ParameterError, match="wanted must be > 0"):
        clients_for(t, 0.0)


def test_the_noise_is_what_a_round_has():
    """300 rounds of 200 clients; the sum of squares is within 6 standard errors (false alarm below 1e-6)."""
    t, zero = task(), np.zeros(INPUTS + 1)
    records = Records(t.model, FEATURES[:1] * 0, [1.0])
    truth = t.clipped(t.model.gradients(zero, FEATURES[:1] * 0, np.ones(1)))[0]
    stream, rows, times = SimulationStream(1), np.zeros(200, dtype=np.int64), 300
    found = [averaged(t, report_sums(t, zero, records, rows, stream), 200) for _ in range(times)]
    square = float(np.mean(np.square(np.array(found) - truth)))
    ratio = square / noise(t, 200, truth) ** 2
    slack = 6.0 * math.sqrt(2.0 / (times * (INPUTS + 1)))
    assert abs(ratio - 1.0) < slack
    assert abs(ratio / 1.3**2 - 1.0) > slack  # a 30 % wrong scale is seen


def test_the_rule_for_rounds_and_groups():
    t = task()
    for clients in (10, 500, 5_000, 50_000, 5_000_000):
        found = shape(t, clients)
        assert found.rounds * found.group <= clients < (found.rounds + 1) * (found.group + 1)
        assert 10 <= found.rounds <= 100
        assert found.rounds in (10, 100) or found.noise <= planning.NOISE_SHARE
    assert shape(t, 3).rounds == 3
    assert shape(t, 1_000).rounds < shape(t, 1_000_000).rounds


@pytest.mark.parametrize("clients", [2_000, 50_000])
def test_the_rule_is_nearly_as_good_as_the_best_of_a_grid(clients):
    """Mean loss over 8 trainings: at most a tenth above that of the best of six shapes, beyond chance."""
    t, losses = task(rate=2.0), {}
    records, pool = Records(t.model, FEATURES, TARGETS), np.arange(len(FEATURES))

    def losses_of(rounds):
        group = clients // rounds
        thetas = [
            planning._trained(t, records, pool, Shape(rounds, group, 0.0), SimulationStream(time))
            for time in range(8)
        ]
        return np.array([t.model.losses(theta, FEATURES, TARGETS).mean() for theta in thetas])

    for rounds in (2, 5, 10, 30, 100, 300):
        losses[rounds] = losses_of(rounds)
    ours = losses_of(shape(t, clients).rounds)
    best = min(losses.values(), key=np.mean)
    chance = 5.0 * math.sqrt((ours.var(ddof=1) + best.var(ddof=1)) / 8)
    assert ours.mean() <= 1.1 * best.mean() + chance


def test_more_clients_less_error_and_the_target_is_found():
    found = plan(task(), FEATURES, TARGETS, clients=(100_000, 300, 10_000), target=0.1, repetitions=4, seed=3)
    errors = [point.error for point in found.points]
    assert [point.clients for point in found.points] == [300, 10_000, 100_000]
    assert errors[0] > errors[2] + 0.05
    assert found.floor < 0.08 < found.start
    assert found.rows == 1_500
    assert all(point.low <= point.error <= point.high and point.repetitions == 4 for point in found.points)
    assert found.clients in (10_000, 100_000)
    again = plan(task(), FEATURES, TARGETS, clients=(300,), repetitions=4, seed=3)
    assert again.clients is None
    impossible = plan(task(), FEATURES, TARGETS, clients=(300, 3_000), target=0.0, repetitions=2)
    assert impossible.clients is None


def test_a_target_counts_when_it_stays_reached():
    def point(clients, high):
        return Point(clients, Shape(1, clients, 0.0), high - 0.01, high - 0.02, high, 5)

    lucky = (point(10, 0.1), point(100, 0.3), point(1_000, 0.1), point(10_000, 0.05))
    assert Plan(lucky, 0.0, 0.5, 100, target=0.2).clients == 1_000
    assert Plan(lucky, 0.0, 0.5, 100, target=0.04).clients is None
    assert Plan(lucky, 0.0, 0.5, 100).clients is None


def test_linear_models_plan_too():
    targets = FEATURES[:, 0] / 2
    found = plan(task(Linear(INPUTS), rate=0.5), FEATURES, targets, clients=(20_000,), repetitions=2)
    assert found.points[-1].error < found.start
    assert found.points[-1].error < found.baseline == pytest.approx(np.var(targets), rel=0.1)


def test_the_schedule_of_the_task_is_the_one_that_is_planned():
    for rounds, group, participations, clients in (
        (12, 3_000, 1, 36_000),
        (12, 3_000, 4, 9_000),
        (5, 7, 2, 18),
        (4, 100, 4, 100),
    ):
        written = task(rounds=rounds, group=group, participations=participations)
        assert written_clients(written) == clients
        found = written_shape(written, clients)
        assert (found.rounds, found.group) == (rounds, group)
        assert found.noise == noise(written, group) / written.reach
    assert written_shape(task(rounds=12, group=3_000), 1_200).group == 100
    assert written_shape(task(rounds=12, group=3_000), 5).rounds == 5


def few_long_rounds():
    """A task whose rounds are too few for its rate: as many clients in more rounds learn more."""
    return task(Linear(INPUTS), rounds=2, group=3_000, rate=0.1)


NUMBERS = FEATURES @ np.array([0.5, -0.4, 0.0, 0.0, 0.0])


def run_as_written(written, repetitions=4):
    """The mean error of trainings of a task, by the simulator that `federated run` has."""
    errors = []
    for seed in range(repetitions):
        draw = np.random.default_rng(seed)
        rows = draw.integers(0, len(FEATURES), written.rounds * written.group)
        done = simulate(written, FEATURES[rows], NUMBERS[rows], rng=SimulationStream(seed))
        errors.append(written.model.error(done.theta, FEATURES, NUMBERS))
    return float(np.mean(errors))


def planned_as_written(written):
    found = plan(written, FEATURES, NUMBERS, clients=(6_000,), repetitions=4, seed=3)
    return found, found.as_written


def test_what_is_planned_is_what_the_task_as_written_comes_to():
    """With fixed seeds. The better schedule stands beside it."""
    written = few_long_rounds()
    _, (point, proposal) = planned_as_written(written)
    assert (point.clients, point.shape.rounds, point.shape.group) == (6_000, 2, 3_000)
    assert point.error == pytest.approx(run_as_written(written), abs=0.04)
    assert proposal.clients == 6_000
    assert proposal.shape == shape(written, 6_000)
    assert proposal.high < point.low


def test_planted_a_plan_for_another_schedule_is_found(monkeypatch):
    """As it was: the rule's rounds for every number of clients."""
    written = few_long_rounds()
    monkeypatch.setattr(planning, "written_shape", shape)
    _, (point, _) = planned_as_written(written)
    assert point.shape.rounds > 2
    assert abs(point.error - run_as_written(written)) > 0.04


def test_the_baseline_is_the_majority_class_and_not_an_untrained_model():
    """One of ten rows is of the other class; the untrained model answers with it."""
    targets = np.where(np.arange(1_500) % 10 == 0, 1.0, -1.0)
    found = plan(task(), FEATURES, targets, clients=(300,), repetitions=2)
    assert found.baseline == pytest.approx(0.1, abs=0.04)
    assert found.start == pytest.approx(0.9, abs=0.04), "planted: the baseline as it was"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"clients": []}, "at least one number"),
        ({"clients": [5]}, "clients must be >= 10"),
        ({"clients": [100], "repetitions": 1}, "repetitions must be >= 2"),
        ({"clients": [100], "target": -1.0}, "target must be >= 0"),
    ],
)
def test_what_is_no_plan_is_refused(options, reason):
    with pytest.raises(ParameterError, match=reason):
        plan(task(), FEATURES, TARGETS, **options)
    with pytest.raises(ParameterError, match="at least 20 public rows"):
        plan(task(), FEATURES[:10], TARGETS[:10], clients=[100])
