"""Training at home: noise as large as is paid for, drawn once, whatever the records and interruptions."""

import math
from fractions import Fraction

import numpy as np
import pytest

from reticent.errors import BudgetExceeded, ContentMissing, ParameterError
from reticent.federated import Softmax, on_device
from reticent.federated.on_device import Home, HomeTask
from reticent.federated.robust import Grid, mean
from reticent.ledger.device.marks import Marks
from reticent.privacy import Neighbours
from reticent.randomness import SimulationStream
from reticent.store import tensors

MODEL = Softmax(4, 3, l2=0.0)
GRID = Grid(15, 1 << 16, 1 << 24)
KEY = bytes(range(32))
ZERO = np.zeros(15, dtype=np.int64)


def task(**changes):
    given = {
        "id": "washing", "model": MODEL, "grid": GRID, "clip": 1.0, "records": 20, "rate": 0.5, "steps": 4,
        "rounds": 3, "mu": 1.0,
    }  # fmt: skip
    return HomeTask(**given | changes)


def records(seed=1, count=20):
    draw = np.random.default_rng(seed)
    return draw.normal(size=(count, 4)), draw.integers(0, 3, count)


@pytest.fixture
def home(tmp_path):
    def made(lifetime=2.0, seed=1):
        return Home(
            tmp_path / "ledger", tmp_path / "updates", KEY,
            lifetime=lifetime, rng=SimulationStream(seed), marks=Marks(tmp_path / "marks"),
        )  # fmt: skip

    return made


def spent(one):
    return one.ledger.balance(on_device.ACCOUNT).spent


def test_all_rounds_together_cost_what_the_task_says():
    one = task()
    assert one.guarantee.mu == pytest.approx(1.0, rel=1e-12)
    assert one.guarantee.neighbours is Neighbours.REPLACE_ONE
    assert Fraction(one.units * 3, 10**12) >= 1, "costs round up"
    assert one.units * 3 <= 10**12 + 3


def test_the_noise_of_a_step_is_that_of_its_share():
    """sigma = 2 clip / (mu / sqrt(steps in all)), in steps of the sum's grid."""
    one = task()
    assert one.mechanism.sigma == pytest.approx(2 * (1 << 20) * math.sqrt(12), rel=1e-4)
    assert one.mechanism.sensitivity >= 2 * (1 << 20) + math.sqrt(15)


def noise(one, draws):
    """What a step adds to a sum, over many draws, in standard deviations of the law that is paid for."""
    x, y = records()
    quiet = one.model.clipped_sum(np.zeros(15), x, y, one.clip)
    found = []
    for seed in range(draws):
        moved = one.grid.values(one.trained(np.zeros(15), x, y, SimulationStream(seed)))
        found.append(-moved * one.records / one.rate - quiet)
    return np.concatenate(found) / (one.mechanism.sigma * one.clip / (1 << 20))


def is_right(scaled):
    """Whether the variance is 1, at a false alarm of 6e-7: 5 standard deviations of a mean of squares."""
    return abs(np.mean(scaled**2) - 1.0) < 5.0 * math.sqrt(2.0 / scaled.size)


def test_steps_have_the_noise_that_is_paid_for():
    assert is_right(noise(task(steps=1, rounds=12), 400))


def test_planted_noise_that_is_30_percent_too_small_is_found(monkeypatch):
    perturb = on_device.DiscreteGaussian.perturb

    def less(self, values, rng):
        return values + np.rint(0.7 * (perturb(self, values, rng) - values)).astype(np.int64)

    one = task(steps=1, rounds=12)
    monkeypatch.setattr(on_device.DiscreteGaussian, "perturb", less)
    assert not is_right(noise(one, 400))


def apart(one, bad):
    """How far one record moves the whole numbers that noise is added to, over its sensitivity."""
    x, y = records()
    other, label = x.copy(), y.copy()
    other[3], label[3] = bad, 2 - y[3]
    seen = []
    for given in ((x, y), (other, label)):
        images, digits = one._records(*given)
        total = one.model.clipped_sum(np.linspace(-3, 3, 15), images, digits, one.clip)
        seen.append(np.rint(total * ((1 << 20) / one.clip)))
    return float(np.linalg.norm(seen[0] - seen[1])) / one.mechanism.sensitivity


ODD = [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, 0.0, 1e5]


@pytest.mark.parametrize("bad", ODD)
def test_one_record_moves_no_more_than_the_sensitivity(bad):
    assert apart(task(), bad) <= 1.0
    assert apart(task(clip=0.01), bad) <= 1.0


def test_planted_without_clipping_it_does(monkeypatch):
    monkeypatch.setattr(
        Softmax, "clipped_sum", lambda self, theta, x, y, clip: self.gradients(theta, x, y).sum(axis=0)
    )
    assert apart(task(), 1e5) > 1.0


@pytest.mark.parametrize(
    ("features", "labels"),
    [
        (None, None),
        ("text", 3),
        ([], []),
        ([[1, 2, 3]], [0]),
        (np.full((20, 4), np.nan), [np.inf] * 20),
        ([[1] * 4], []),
    ],
)
def test_whatever_the_records_an_update_comes_and_costs_the_same(home, features, labels):
    with home() as one:
        cid = one.update(task(), 0, ZERO, features, labels)
        assert one.file(task(), cid).shape == (15,)
        assert spent(one) == task().units


def test_a_round_is_drawn_once_and_the_same_ever_after(home):
    with home() as one:
        first = one.update(task(), 0, ZERO, *records())
        assert one.update(task(), 0, ZERO, *records(2)) == first
    with home(seed=99) as again:
        assert again.update(task(), 0, ZERO + 1, *records(3)) == first
        assert spent(again) == task().units
        second = again.update(task(), 1, ZERO, *records())
        assert second != first
        assert spent(again) == 2 * task().units


def test_a_crash_while_drawing_costs_nothing_more(home, monkeypatch):
    """Whatever was drawn then is recorded nowhere and never given out."""
    x, y = records()
    for place in ("trained", "put", "fulfil"):
        with home() as one, monkeypatch.context() as crash:
            if place == "trained":
                crash.setattr(HomeTask, "trained", _crash)
            elif place == "put":
                crash.setattr(tensors, "put", _crash)
            else:
                crash.setattr(type(one.ledger), "fulfil", _crash)
            with pytest.raises(KeyboardInterrupt):
                one.update(task(), 0, ZERO, x, y)
            assert spent(one) == task().units
    with home() as one:
        cid = one.update(task(), 0, ZERO, x, y)
        assert spent(one) == task().units
        assert one.update(task(), 0, ZERO, x, y) == cid


def _crash(*_, **__):
    raise KeyboardInterrupt


def test_a_spent_ledger_draws_nothing(home, tmp_path):
    with home(lifetime=0.5) as one:
        one.update(task(), 0, ZERO, *records())
        with pytest.raises(BudgetExceeded):
            one.update(task(), 1, ZERO, *records())
        assert spent(one) == task().units
    assert len(list((tmp_path / "updates").glob("*/b*"))) == 1


def test_an_update_that_was_lost_is_not_drawn_again(home, tmp_path):
    with home() as one:
        cid = one.update(task(), 0, ZERO, *records())
        next((tmp_path / "updates").glob("*/b*")).unlink()
        assert one.update(task(), 0, ZERO, *records()) == cid
        with pytest.raises(ContentMissing):
            one.file(task(), cid)


@pytest.mark.parametrize("number", [-1, 3])
def test_there_is_no_such_round(home, number):
    with home() as one:
        with pytest.raises(ParameterError, match="round must be"):
            one.update(task(), number, ZERO, *records())
        with pytest.raises(ParameterError, match="theta must be 15 whole numbers"):
            one.update(task(), 0, np.zeros(15), *records())
        assert spent(one) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": "a/b"}, "id must be"),
        ({"grid": Grid(14, 1, 1)}, "grid must have the 15 dimensions"),
        ({"clip": 0.0}, "clip must be"),
        ({"mu": 0.0}, "mu must be"),
        ({"records": 1 << 17}, "records must be"),
        ({"steps": 0}, "steps must be"),
    ],
)
def test_tasks_that_cannot_be(changes, words):
    with pytest.raises(ParameterError, match=words):
        task(**changes)


def pictures():
    """MNIST, halved, around a public grey: ten homes of 6,000 images, and 10,000 others to judge by."""
    from reticent.experiments.biswas_2023.chapter_5 import writers
    from reticent.experiments.data import DataMissing

    try:
        found = {split: writers.pixels_of(split) for split in ("train", "test")}
    except DataMissing as error:
        pytest.skip(str(error))
    halved = {
        split: images.reshape(len(images), 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196) / 255.0 - 0.13
        for split, (images, _) in found.items()
    }
    homes = halved["train"].reshape(10, 6000, 196), found["train"][1].reshape(10, 6000)
    return homes, (halved["test"], found["test"][1])


@pytest.mark.slow
@pytest.mark.parametrize(("mu", "least"), [(1.0, 0.90), (0.5, 0.88)])
def test_ten_homes_learn_digits(mu, least):
    """60 rounds of one step; noise from a seed. 0.9035 and 0.898 were seen with floating noise."""
    (images, digits), (others, right) = pictures()
    model = Softmax(196, 10, l2=0.0)
    one = HomeTask("digits", model, Grid(1970, 1 << 16, 1 << 24), 1.0, 6000, 30.0, 1, 60, mu)
    theta = np.zeros(1970, dtype=np.int64)
    stream = SimulationStream(2026)
    for _ in range(60):
        at = one.grid.values(theta)
        theta = theta + mean([one.trained(at, images[home], digits[home], stream) for home in range(10)])
    assert 1.0 - model.error(one.grid.values(theta), others, right) >= least


def test_a_round_that_would_draw_for_days_is_refused():
    """Noise takes microseconds a number, and nobody can interrupt it."""
    large = Softmax(1023, 64, l2=0.0)
    grid = Grid(large.dimensions, 1 << 16, 1 << 24)
    task(model=large, grid=grid, steps=256)
    with pytest.raises(ParameterError, match="steps times the 65536 dimensions"):
        task(model=large, grid=grid, steps=257)
