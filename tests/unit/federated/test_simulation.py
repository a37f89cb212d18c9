"""The simulator: plain SGD without noise, the law of real clients with it, and the same after a break.

Statistical checks have a false-alarm rate below 1e-6 each (5.5 standard errors, chi-square by its normal
approximation at 6), and reject noise with a 30 % wrong scale.
"""

import math
import os
from dataclasses import replace

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.federated import SVM, Linear, Logistic, Steps, payload, simulation
from reticent.federated.client import Client
from reticent.federated.models import Axes
from reticent.federated.planning import plan
from reticent.federated.server import Round
from reticent.federated.simulation import IDENTITY, Records, report_sums, simulate
from reticent.federated.tasks import designed, signed
from reticent.fleet.enrolment import enrolled
from reticent.mechanisms.numeric import kernels
from reticent.randomness import SimulationStream

from ..operating import operator

RNG = np.random.default_rng(3)
N, INPUTS = 600, 4
FEATURES = RNG.uniform(-1.0, 1.0, (N, INPUTS))
TARGETS = np.where(FEATURES[:, 0] + 0.3 * RNG.normal(size=N) > 0.0, 1.0, -1.0)


def task(model=None, *, epsilon=4.0, rounds=6, group=100, bounds=1.0, **options):
    model = model or Logistic(INPUTS)
    return designed(
        "t",
        model,
        epsilon=epsilon,
        purpose="a test",
        rounds=rounds,
        group=group,
        rate=0.5,
        bounds=bounds,
        **options,
    )


def plain_sgd(kind, order, rounds, group, rate, momentum, l2=1e-4):
    """Stochastic gradient descent as a text book has it; nothing of the package."""
    w, v = np.zeros(INPUTS + 1), np.zeros(INPUTS + 1)
    for t in range(rounds):
        rows = order[t * group : (t + 1) * group]
        x, y = FEATURES[rows], TARGETS[rows]
        f = x @ w[:INPUTS] + w[INPUTS]
        slope = {
            "linear": lambda f, y: 2.0 * (f - y),
            "logistic": lambda f, y: -y / (1.0 + np.exp(y * f)),
            "svm": lambda f, y: np.where(y * f < 1.0, -y, 0.0),
        }[kind](f, y)
        total = np.zeros(INPUTS + 1)
        for i in range(group):
            total = total + (slope[i] * np.append(x[i], 1.0) + l2 * w)
        v = momentum * v + total / group
        w = w - rate / math.sqrt(1.0 + t) * v
    return w


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(
    "model", [Linear(INPUTS), Logistic(INPUTS), SVM(INPUTS)], ids=lambda model: model.kind
)
def test_with_the_identity_training_is_plain_sgd_bit_for_bit(model, momentum):
    order = np.random.default_rng(1).permutation(N)
    t = task(model, bounds=1e6, momentum=momentum)
    found = simulate(t, FEATURES, TARGETS, rng=SimulationStream(1), order=order, randomiser=IDENTITY)
    assert found.theta.tobytes() == plain_sgd(model.kind, order, 6, 100, 0.5, momentum).tobytes()
    assert {step.noise for step in found.rounds} == {0.0}
    assert found.rounds[-1].spent == math.inf


def test_the_identity_clips_and_is_refused_with_secure_randomness():
    t = task(bounds=0.01, rounds=1, group=N)
    found = simulate(t, FEATURES, TARGETS, rng=SimulationStream(1), randomiser=IDENTITY)
    each = np.clip(t.model.gradients(np.zeros(INPUTS + 1), FEATURES, TARGETS), -0.01, 0.01)
    assert found.theta == pytest.approx(-0.5 * each.mean(axis=0), rel=1e-12)
    with pytest.raises(ParameterError, match="not private"):
        simulate(t, FEATURES, TARGETS, randomiser=IDENTITY)
    with pytest.raises(ParameterError, match="randomiser must be"):
        simulate(t, FEATURES, TARGETS, randomiser="none")


def chi_square(draws, mean, variance):
    """How far many draws of a vector are from its mean and variance, in standard errors: (mean, variance)."""
    times = len(draws)
    off = np.abs(draws.mean(axis=0) - mean) / np.sqrt(variance / times)
    squares = np.square(draws - mean).mean(axis=0) / variance - 1.0
    return off.max(), np.abs(squares).max() * math.sqrt(times / 2.0)


@pytest.mark.parametrize(
    ("mechanism", "sample_size"), [(None, None), (None, 5), ("PMSub", 2), ("ThreeOutputs", 1)]
)
def test_sums_are_unbiased_with_the_predicted_variance(mechanism, sample_size, monkeypatch):
    t = task(mechanism=mechanism, sample_size=sample_size, bounds=(0.1, 0.2, 0.5, 1.0, 2.0))
    theta, records = np.array([0.5, -0.2, 0.1, 0.0, 0.3]), Records(t.model, FEATURES, TARGETS)
    n, times = 40, 1_200
    stream, clients = SimulationStream(7), np.arange(n)
    units = t.clipped(t.model.gradients(theta, FEATURES[:n], TARGETS[:n]))
    scale = t.dimensions / t.sample_size
    draws = scale * np.stack([report_sums(t, theta, records, clients, stream) for _ in range(times)])
    predicted = (t.noise(1, units * t.scale) / np.square(t.scale)).sum(axis=0)
    off, wide = chi_square(draws, units.sum(axis=0), predicted)
    assert off < 5.5
    assert wide < 6.0
    assert chi_square(draws, units.sum(axis=0), predicted * 1.3**2)[1] > 6.0  # the check can fail
    monkeypatch.setattr(
        simulation, "sampled_attributes", lambda count, d, k, _: np.tile(np.arange(k), (count, 1))
    )
    if t.sample_size < t.dimensions:  # planted: always the same coordinates
        bad = scale * np.stack([report_sums(t, theta, records, clients, stream) for _ in range(50)])
        assert chi_square(bad, units.sum(axis=0), predicted)[0] > 5.5


def test_the_law_is_that_of_clients_and_a_server(tmp_path):
    """One gradient, many clients through bytes and many simulated: same mean, same variance."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key, master, n = Ed25519PrivateKey.generate(), bytes(32), 150
    t = task(rounds=1, group=n)
    file, signer = signed(t, key), key.public_key().public_bytes_raw()
    theta, x, y = np.zeros(t.dimensions), FEATURES[:1], TARGETS[:1]
    opened = Round(t, 0, operator(master))
    for number in range(n):
        path = tmp_path / str(number)
        with Client(path, enrolled(master), signer, lifetime=4.0, rng=SimulationStream(number)) as client:
            opened.add([client.train(client.take(file), 0, theta, x, y)])
        path.unlink()
    truth = t.clipped(t.model.gradients(theta, x, y))[0]
    spread = np.sqrt(t.noise(n, truth) / np.square(t.scale))
    records = Records(t.model, np.repeat(x, n, axis=0), np.repeat(y, n))
    scale = t.dimensions / t.sample_size / n
    simulated = scale * report_sums(t, theta, records, np.arange(n), SimulationStream(1))
    for average in (opened.gradient() / t.scale, simulated):
        assert np.abs((average - truth) / spread).max() < 5.5


@pytest.mark.parametrize(
    ("mechanism", "sample_size"),
    [
        ("OneBit", INPUTS + 1),
        ("OneBit", 2),
        *(
            pytest.param(name, k, marks=pytest.mark.slow)
            for name in ("Duchi", "PMSub", "HMTP")
            for k in (2, INPUTS + 1)
        ),
    ],
)
def test_the_compiled_round_is_the_plain_one(mechanism, sample_size, monkeypatch):
    pytest.importorskip("numba")
    n = 100_000
    x, y = np.tile(FEATURES, (168, 1))[:n], np.tile(TARGETS, 168)[:n]
    t = task(mechanism=mechanism, sample_size=sample_size, bounds=(0.1, 0.2, 0.5, 1.0, 2.0))
    theta, records = np.linspace(-1.0, 1.0, INPUTS + 1), Records(t.model, np.where(x > 0.99, np.nan, x), y)

    def sums():
        return report_sums(t, theta, records, np.arange(n), SimulationStream(4)).tobytes()

    assert simulation.fast.is_worth(t, n)
    compiled = sums()
    monkeypatch.setattr(kernels, "_numba_allowed", lambda: False)
    assert not simulation.fast.is_worth(t, n)
    assert sums() == compiled


@pytest.mark.parametrize("mechanism", ["PMSub", "Codebook"])
def test_on_axes_it_is_the_training_on_prepared_features(mechanism):
    """Also planned, and with a number that is none."""
    axes = Axes.fitted(FEATURES[:200] * [3.0, 1.0, 2.0, 0.1], 2)
    x = FEATURES.copy()
    x[5, 0] = np.nan
    of = {"mechanism": mechanism, "length": 1.0}
    one = task(Logistic(INPUTS, axes=axes), **of)
    other = replace(one, model=Logistic(2))
    found = [
        simulate(t, rows, TARGETS, rng=SimulationStream(3)).theta.tobytes()
        for t, rows in ((one, x), (other, axes.of(x)), (other, x @ axes.matrix))
    ]
    assert found[0] == found[1]
    assert found[0] != found[2]  # planted: without the centre
    tried = {"clients": [300], "repetitions": 2}
    assert plan(one, FEATURES, TARGETS, **tried) == plan(other, axes.of(FEATURES), TARGETS, **tried)


def test_owners_hold_several_records():
    owners = np.array([7, 3, 7, 7, 9, 3])
    model = Linear(INPUTS)
    records = Records(model, FEATURES[:6], TARGETS[:6], owners)
    theta = np.linspace(-1.0, 1.0, INPUTS + 1)
    each = model.gradients(theta, FEATURES[:6], TARGETS[:6])
    means = np.stack([each[owners == owner].mean(axis=0) for owner in (3, 7, 9)])
    clients = np.array([2, 0, 1])
    assert records.clients == 3
    assert records.gradients(theta, clients) == pytest.approx(means[clients], rel=1e-12)
    asked = np.array([[0, 4], [1, 2], [3, 4]])
    picked = np.take_along_axis(means[clients], asked, axis=1)
    assert records.gradients(theta, clients, asked) == pytest.approx(picked, rel=1e-12)
    with pytest.raises(ParameterError, match="owners must have shape"):
        Records(model, FEATURES, TARGETS, owners)


def test_each_round_says_noise_bytes_and_spend():
    t, seen = task(epsilon=1.0, rounds=12, participations=2), []
    simulate(
        t, FEATURES, TARGETS, rng=SimulationStream(1), on_round=lambda step, theta: seen.append((step, theta))
    )
    steps = [step for step, _ in seen]
    assert [step.number for step in steps] == list(range(12))
    assert [step.spent for step in steps] == [1.0] * 6 + [2.0] * 6
    assert {step.bytes_each for step in steps} == {payload.size(t)}
    assert steps[0].noise == pytest.approx(math.sqrt(t.noise(100).mean()))
    assert all(np.isfinite(theta).all() for _, theta in seen)


def test_nobody_reports_more_often_than_the_task_says():
    with pytest.raises(ParameterError, match="600 clients may give 1 each"):
        simulate(task(rounds=7), FEATURES, TARGETS)
    order = np.arange(N)
    for wrong, reason in (
        (np.r_[order[:-1], 0], "no client more than 1 times"),
        (order[:-1], "order must be 600"),
        (order + 1, "order must name clients 0 to 599"),
    ):
        with pytest.raises(ParameterError, match=reason):
            simulate(task(), FEATURES, TARGETS, order=wrong)
    twice = np.r_[order, order]
    twice[[1, 600]] = 0, 1
    with pytest.raises(ParameterError, match="twice in a round"):
        simulate(task(rounds=12, participations=2), FEATURES, TARGETS, order=twice)


def test_odd_records_are_reported_like_any_other():
    odd = FEATURES.copy()
    odd[::7], odd[1::7] = np.nan, np.inf
    found = simulate(task(), odd, TARGETS, rng=SimulationStream(1))
    assert np.isfinite(found.theta).all()


class Stopped(Exception):
    pass


@pytest.mark.parametrize("randomiser", ["private", IDENTITY])
def test_a_run_with_breaks_is_the_run_without(tmp_path, randomiser, monkeypatch):
    t, path = task(rounds=12, participations=2, momentum=0.5), tmp_path / "run"

    def run(**options):
        return simulate(t, FEATURES, TARGETS, rng=SimulationStream(5), randomiser=randomiser, **options)

    def stop(step, _):
        if step.number in (3, 7):
            raise Stopped

    whole = run()
    for _ in range(2):
        with pytest.raises(Stopped):
            run(checkpoint=path, resume=True, on_round=stop)
    after = run(checkpoint=path, resume=True)
    assert after.theta.tobytes() == whole.theta.tobytes()
    assert after.rounds == whole.rounds
    assert run(checkpoint=path, resume=True).theta.tobytes() == whole.theta.tobytes()  # nothing left to do
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    if randomiser == "private":  # planted: a stream that is not where it was
        with pytest.raises(Stopped):
            run(checkpoint=path, on_round=stop)
        monkeypatch.setattr(simulation, "_spawned", lambda stream, number: stream)
        assert run(checkpoint=path, resume=True).theta.tobytes() != whole.theta.tobytes()


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "run"
    simulate(task(), FEATURES, TARGETS, checkpoint=path)
    with pytest.raises(ParameterError, match="same task"):
        simulate(task(), FEATURES, TARGETS, checkpoint=path, resume=True)
    path.write_bytes(b"no checkpoint")
    with pytest.raises(ParameterError, match="one that a simulation wrote"):
        simulate(task(), FEATURES, TARGETS, checkpoint=path, resume=True)


def test_a_crash_while_writing_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    path, t = tmp_path / "run", task()

    def stop(step, _):
        if step.number == 2:
            monkeypatch.setattr(os, "fsync", fail)

    def fail(_):
        raise OSError

    with pytest.raises(OSError):
        simulate(t, FEATURES, TARGETS, rng=SimulationStream(5), checkpoint=path, on_round=stop)
    monkeypatch.undo()
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    resumed = simulate(t, FEATURES, TARGETS, rng=SimulationStream(5), checkpoint=path, resume=True)
    assert resumed.theta.tobytes() == simulate(t, FEATURES, TARGETS, rng=SimulationStream(5)).theta.tobytes()


def test_training_learns():
    found = simulate(task(rounds=6, bounds=0.5), FEATURES, TARGETS, rng=SimulationStream(2))
    assert Logistic(INPUTS).error(found.theta, FEATURES, TARGETS) < 0.35
    assert found.training.is_over
    assert Steps(0.5) == found.training.task.steps
