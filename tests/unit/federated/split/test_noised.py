"""The sound split: one draw for each record, as large as is paid for, whatever the records."""

import math
from fractions import Fraction

import numpy as np
import pytest

from reticent.errors import BudgetExceeded, ContentMissing, ParameterError
from reticent.federated.on_device import ACCOUNT, Home
from reticent.federated.robust import Grid, mean
from reticent.federated.split import noised
from reticent.federated.split.front import Front, strokes
from reticent.federated.split.noised import FINE, NoisedHome, NoisedTask
from reticent.ledger.device.marks import Marks
from reticent.privacy import Neighbours
from reticent.randomness import SimulationStream
from reticent.store import Directory, tensors

KEY = bytes(range(32))
GRID = Grid(12, 1 << 16, 1 << 24)


def task(**changes):
    given = {"id": "washing", "inputs": 4, "classes": 3, "grid": GRID, "rate": 1.0, "mu": 1.0}
    return NoisedTask(**given | changes)


def records(seed=1, count=20):
    draw = np.random.default_rng(seed)
    return draw.normal(size=(count, 4)), draw.integers(0, 3, count)


@pytest.fixture
def home(tmp_path):
    def made(kind=NoisedHome, lifetime=2.0, seed=1):
        return kind(
            tmp_path / "ledger", tmp_path / "drawn", KEY,
            lifetime=lifetime, rng=SimulationStream(seed), marks=Marks(tmp_path / "marks"),
        )  # fmt: skip

    return made


def spent(one):
    return one.ledger.balance(ACCOUNT).spent


def test_the_cost_is_mu_squared_exactly_once():
    for mu in (0.5, 1.0, 2.0, 4.0):
        one = task(mu=mu)
        assert Fraction(one.units, 10**12) == Fraction(mu) ** 2
        assert one.guarantee.mu == pytest.approx(mu, rel=1e-12)
        assert one.guarantee.neighbours is Neighbours.REPLACE_ONE


ODD = [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, 0.0, 1e5, 0.5, -0.7]


def apart(one):
    """How far one record can move the whole numbers that noise is added to, at most, of many odd pairs."""
    x, y = records()
    farthest = 0.0
    for bad in ODD:
        for label in (0, 1, 2, -5, 99, np.nan):
            for flip in (1.0, -1.0):
                other, labels = flip * x, y.astype(float)
                other[3], labels[3] = bad, label
                moved = one.placed(other[3:4], labels[3:4]) - one.placed(x[3:4], y[3:4])
                farthest = max(farthest, float(np.linalg.norm(moved)))
    opposite = one.placed(np.ones((1, 4)), [0]) - one.placed(-np.ones((1, 4)), [0])
    return max(farthest, float(np.linalg.norm(opposite)))


def test_one_record_moves_no_more_than_the_sensitivity():
    one = task()
    found = apart(one)
    assert found <= one.mechanism.sensitivity
    assert found > 0.999 * 2 * FINE, "two opposite records of a class are there"


def test_planted_without_clipping_it_does(monkeypatch):
    def unclipped(self, features, labels):
        rows, classes = self._records(features, labels)
        found = np.zeros((len(rows), self.classes, self.inputs), dtype=np.int64)
        found[np.arange(len(rows)), classes] = np.rint(np.clip(rows, -1e9, 1e9) * FINE)
        return found.reshape(len(rows), -1)

    monkeypatch.setattr(NoisedTask, "placed", unclipped)
    assert apart(task()) > task().mechanism.sensitivity


def scaled(one, draws):
    x, y = records()
    quiet = one.placed(x, y)
    found = [one.noised(x, y, SimulationStream(seed)) - quiet for seed in range(draws)]
    return np.concatenate(found).ravel() / one.mechanism.sigma


def is_right(noise):
    """Whether the variance is 1, at a false alarm of 6e-7: 5 standard deviations of a mean of squares."""
    return abs(np.mean(noise**2) - 1.0) < 5.0 * math.sqrt(2.0 / noise.size)


def test_vectors_have_the_noise_that_is_paid_for():
    one = task(mu=2.0)
    assert one.mechanism.sigma == pytest.approx(FINE, rel=1e-3)
    assert is_right(scaled(one, 25))


def test_planted_noise_that_is_30_percent_too_small_is_found(monkeypatch):
    perturb = noised.DiscreteGaussian.perturb
    monkeypatch.setattr(
        noised.DiscreteGaussian, "perturb",
        lambda self, values, rng: values + np.rint(0.7 * (perturb(self, values, rng) - values)).astype(int),
    )  # fmt: skip
    assert not is_right(scaled(task(mu=2.0), 25))


def test_all_blocks_of_a_record_have_noise_so_the_label_is_hidden():
    """The block of the class is no wider than the others, at false alarms of 1.7e-6 in all."""
    one = task()
    drawn = np.stack([one.noised(np.zeros((20, 4)), np.ones(20), SimulationStream(s)) for s in range(25)])
    widths = (drawn.reshape(-1, 3, 4) / one.mechanism.sigma).astype(float)
    for block in range(3):
        assert is_right(widths[:, block].ravel())


def test_a_draw_is_made_once_and_the_same_ever_after(home):
    with home() as one:
        first = one.vectors(task(), *records())
        assert np.array_equal(one.vectors(task(), *records(2, 7)), first)
    with home(seed=99) as again:
        assert np.array_equal(again.vectors(task(), *records(3)), first)
        assert spent(again) == task().units
        assert not np.array_equal(again.vectors(task(id="drying"), *records()), first)
        assert spent(again) == 2 * task().units, "another task is paid for"


def test_planted_a_home_that_forgets_draws_twice(home, monkeypatch):
    with home() as one:
        first = one.vectors(task(), *records())
        monkeypatch.setattr(type(one.ledger), "recorded", lambda *_: None)
        with pytest.raises(IndexError):  # nothing is pending, so nothing can be fulfilled
            one.vectors(task(), *records())
        monkeypatch.undo()
        assert np.array_equal(one.vectors(task(), *records()), first)


@pytest.mark.parametrize("place", ["noised", "put", "fulfil"])
def test_a_crash_while_drawing_costs_nothing_more(home, monkeypatch, place):
    def crash(*_, **__):
        raise KeyboardInterrupt

    with home() as one, monkeypatch.context() as planted:
        where = {"noised": NoisedTask, "put": tensors, "fulfil": type(one.ledger)}[place]
        planted.setattr(where, place, crash)
        with pytest.raises(KeyboardInterrupt):
            one.vectors(task(), *records())
    with home() as one:
        found = one.vectors(task(), *records())
        assert spent(one) == task().units
        assert np.array_equal(one.vectors(task(), *records()), found)


def test_a_spent_ledger_draws_nothing_and_shares_with_training_on_the_device(home, tmp_path):
    with home(lifetime=1.5) as one:
        one.vectors(task(), *records())
        with pytest.raises(BudgetExceeded):
            one.vectors(task(id="drying"), *records())
    assert len(list((tmp_path / "drawn").glob("*/b*"))) == 1
    with home(Home, lifetime=1.5) as same:
        assert spent(same) == task().units


def test_vectors_that_were_lost_are_not_drawn_again(home, tmp_path):
    with home() as one:
        one.vectors(task(), *records())
        next((tmp_path / "drawn").glob("*/b*")).unlink()
        with pytest.raises(ContentMissing):
            one.vectors(task(), *records())
        assert spent(one) == task().units


@pytest.mark.parametrize(
    ("features", "labels"),
    [(None, None), ("text", 3), ([], []), ([[1, 2, 3]], [0]), (np.full((9, 4), np.nan), [np.inf] * 9)],
)
def test_whatever_the_records_vectors_come_and_cost_the_same(home, features, labels):
    with home() as one:
        found = one.vectors(task(), features, labels)
        assert found.shape[1:] == (12,)
        assert spent(one) == task().units
        assert np.isfinite(task().slopes(np.zeros(12), found)).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": "a/b"}, "id must be"),
        ({"grid": Grid(11, 1, 1)}, "grid must have the 12 dimensions"),
        ({"mu": 0.0}, "mu must be"),
        ({"rate": 2.0}, "rate must be"),
        ({"classes": 1}, "classes must be"),
        ({"inputs": 1 << 13}, "inputs must be"),
    ],
)
def test_tasks_that_cannot_be(changes, words):
    with pytest.raises(ParameterError, match=words):
        task(**changes)


def test_means_are_learnt_and_a_second_round_stays_there():
    one = task(rate=0.5, mu=100.0)
    x = np.eye(4)[[0, 1, 2] * 200]
    y = np.array([0, 1, 2] * 200)
    drawn = one.noised(x, y, SimulationStream(1))
    theta = np.zeros(12, dtype=np.int64)
    for _ in range(20):
        theta = theta + mean([one.update(one.slopes(GRID.values(theta), drawn))] * 3)
    assert np.array_equal(one.predicted(GRID.values(theta), np.eye(4)[:3]), [0, 1, 2])
    assert np.abs(one.slopes(GRID.values(theta), drawn)).max() < 1e-4
    assert GRID.values(theta).reshape(3, 4)[0, 0] == pytest.approx(1.0, abs=0.01)


def test_a_front_is_public_and_odd_pictures_are_taken(tmp_path):
    front = Front.made(7, 5)
    store = Directory(tmp_path)
    same = Front.get(store, front.put(store), 7, 5)
    pictures = strokes(3, 7, 1)
    assert np.array_equal(same.features(pictures), front.features(pictures))
    assert np.allclose(np.linalg.norm(front.features(pictures), axis=1), 1.0)
    for odd in (np.full((2, 7, 7), np.nan), np.full((2, 49), np.inf), np.zeros((2, 7, 7))):
        assert np.linalg.norm(front.features(odd), axis=1).max() <= 1.0 + 1e-9
    assert front.features("nothing").shape == (0, 5)
    with pytest.raises(ParameterError):
        Front.get(store, store.put(b"another file"), 7, 5)


def learnt(front, mu, images, seed):
    """The accuracy of ten homes' means, judged on the others."""
    from reticent.experiments.biswas_2023.chapter_5 import writers
    from reticent.experiments.data import DataMissing

    try:
        found = {split: writers.pixels_of(split) for split in ("train", "test")}
    except DataMissing as error:
        pytest.skip(str(error))
    features = {
        split: front.features(pixels[: 10 * images].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)) / 255.0)
        for split, (pixels, _) in found.items()
    }
    one = NoisedTask("digits", 48, 10, Grid(480, 1 << 16, 1 << 25), 1.0, mu)
    homes = features["train"].reshape(10, images, 48), found["train"][1][: 10 * images].reshape(10, images)
    stream = SimulationStream(seed)
    updates = [
        one.update(one.slopes(np.zeros(480), one.noised(x, y, stream))) for x, y in zip(*homes, strict=True)
    ]
    told = one.predicted(one.grid.values(mean(updates)), features["test"])
    return float(np.mean(told == found["test"][1][: len(told)]))


@pytest.mark.slow
@pytest.mark.parametrize(("mu", "least"), [(1.0, 0.75), (2.0, 0.87), (4.0, 0.90)])
def test_ten_homes_learn_digits(mu, least):
    """6,000 pictures each; 0.798, 0.906 and 0.917 were seen."""
    assert learnt(Front.made(14), mu, 6000, 0) >= least
