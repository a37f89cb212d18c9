"""Batches from their mean gradient: exactly below the number of classes, families from there on."""

import numpy as np
import pytest

from reticent.audit.leakage import Kind, Layers, Update, batches, family_dimension, invert, sensitivity
from reticent.audit.leakage.batches import Effort, rank_of
from reticent.audit.leakage.labels import certain_labels, label_sets

from .nets import alive, error, network

SIZES, CLASSES = [50, 40, 30, 10], 10


def recovered(count, trials, *, told, seed, distinct=True, single=False, scale=1.0, shared=False):
    """How many batches of how many records are found, how many wrongly, and the largest error."""
    generator = np.random.default_rng(seed)
    right = wrong = 0
    worst = 0.0
    for _ in range(trials):
        layers = network(generator, SIZES, scale=scale)
        records = generator.standard_normal((count, SIZES[0]))
        labels = generator.permutation(CLASSES)[:count] if distinct else generator.integers(0, CLASSES, count)
        update = layers.update(records, labels.astype(np.float64), biases=shared)
        leak = invert(
            layers, update.rounded() if single else update, records=count, labels=labels if told else None
        )
        if leak.kind is not Kind.EVERYTHING:
            assert leak.kind is Kind.UNDECIDED
            continue
        off = error(leak.certain.records, records)
        worst = max(worst, off)
        right += off <= 1e-6 or (single and off <= 1e-3)
        wrong += off > 1e-3
    return right, wrong, worst


@pytest.mark.parametrize("count", [2, 3, 4])
def test_small_batches_without_their_labels(count):
    right, wrong, _ = recovered(count, 25, told=False, seed=count)
    assert wrong == 0
    assert right >= 22


@pytest.mark.parametrize("count", [5, 6, 7, 8])
def test_larger_batches_with_their_labels(count):
    right, wrong, _ = recovered(count, 12, told=True, seed=count)
    assert wrong == 0
    assert right >= 11


def test_single_precision_and_biases():
    for count in (3, 5):
        assert recovered(count, 10, told=False, seed=1, single=True)[:2] == (10, 0)
        assert recovered(count, 10, told=False, seed=1, shared=True)[:2] == (10, 0)


@pytest.mark.slow
def test_hundreds_of_batches():
    for count in range(2, 9):
        for told in (True, False):
            for distinct in (True, False):
                right, wrong, worst = recovered(count, 100, told=told, seed=100 + count, distinct=distinct)
                print(
                    f"batches of {count}, labels {'told' if told else 'not told'}, "
                    f"{'distinct' if distinct else 'any'}: {right} of 100, {wrong} wrong, to {worst:.1g}"
                )
                assert wrong == 0
                if distinct and (told or count <= 4):
                    assert right >= (95 if told else 85)


def test_the_count_and_the_signs_show():
    generator = np.random.default_rng(3)
    for _ in range(40):
        count = int(generator.integers(2, 9))
        layers = network(generator, SIZES)
        labels = generator.integers(0, CLASSES, count)
        update = layers.update(generator.standard_normal((count, 50)), labels.astype(np.float64))
        assert rank_of(update, 1e-12) == count
        certain = certain_labels(layers, update, 1e-12)
        assert set(certain) <= set(labels.tolist())
        weights = certain_labels(layers, update.without_biases(), 1e-12)
        assert set(weights) <= set(labels.tolist())
        sets = label_sets(layers, update, count, certain)
        assert np.array_equal(np.sort(np.unique(np.sort(sets, axis=1), axis=0), axis=0).shape, sets.shape)


def test_likely_labels_come_first():
    generator = np.random.default_rng(5)
    places = []
    for _ in range(40):
        layers = network(generator, SIZES)
        labels = generator.integers(0, CLASSES, 4)
        update = layers.update(generator.standard_normal((4, 50)), labels.astype(np.float64), biases=False)
        sets = np.sort(label_sets(layers, update, 4, ()), axis=1)
        places.append(int(np.flatnonzero((sets == np.sort(labels)).all(axis=1))[0]))
    assert np.median(places) <= 5  # of 715


@pytest.mark.parametrize("shared", [True, False])
def test_from_as_many_records_as_classes_a_family_of_the_right_dimension(shared):
    """Against the rank of the derivative by differences, and the formula n (k - m + 1) of one layer."""
    generator = np.random.default_rng(5)
    inputs, classes = 8, 4
    layers = network(generator, [inputs, classes])
    for count in (4, 5, 6):
        records, labels = generator.standard_normal((count, inputs)), np.arange(count) % classes
        update = layers.update(records, labels.astype(np.float64), biases=shared)
        leak = invert(layers, update, records=count)
        assert leak.kind is Kind.FAMILY
        assert leak.number == null_dimension(layers, records, labels.astype(np.float64), shared)
        assert leak.number == inputs * (count - classes + 1) - shared * (classes - 1)
        assert leak.certain is None
        untold = invert(layers, update)
        assert (untold.kind, untold.number) == (Kind.FAMILY, None)


def null_dimension(layers, records, targets, shared):
    def flat(numbers):
        update = layers.update(numbers.reshape(records.shape), targets)
        parts = [w.reshape(-1) for w in update.weights] + [b for b in update.biases if shared]
        return np.concatenate(parts)

    start, step = records.reshape(-1), 1e-5
    columns = [(flat(start + step * e) - flat(start - step * e)) / (2.0 * step) for e in np.eye(records.size)]
    values = np.linalg.svd(np.array(columns), compute_uv=False)
    return records.size - int((values > 1e-7 * values[0]).sum())


def test_as_many_equations_as_unknowns_are_candidates():
    generator = np.random.default_rng(5)
    layers = network(generator, [8, 4])
    records, labels = generator.standard_normal((3, 8)), np.array([0.0, 1.0, 2.0])
    leak = invert(layers, layers.update(records, labels, biases=False), labels=labels)
    assert (leak.kind, leak.certain) == (Kind.CANDIDATES, None)
    assert len(leak.candidates) > 1
    assert min(error(one.records, records) for one in leak.candidates) < 1e-8
    for one in leak.candidates:
        again = layers.update(one.records, one.targets, biases=False)
        assert np.allclose(again.weights[0], layers.update(records, labels).weights[0], rtol=1e-8, atol=1e-12)
    known = invert(layers, layers.update(records, labels), records=3)  # the biases' gradients settle it
    assert error(known.certain.records, records) < 1e-9


def test_silent_records_of_a_batch_are_counted():
    """A record that no unit of the first layer answers is no part of the rest, and its place is said."""
    generator = np.random.default_rng(12)
    weights = (np.abs(generator.uniform(0.1, 1.0, (30, 12))), generator.uniform(-1.0, 1.0, (8, 30)) / 5.0)
    layers = Layers(weights, (np.zeros(30), generator.uniform(-0.2, 0.2, 8)))
    records = np.abs(generator.standard_normal((3, 12)))
    records[1] *= -1.0
    labels = np.array([0.0, 1.0, 2.0])
    assert not alive(layers, records[1:2], labels[1:2])
    leak = invert(layers, layers.update(records, labels, biases=False), records=3)
    assert (leak.kind, leak.number, leak.certain) == (Kind.FAMILY, 12, None)
    assert error(leak.candidates[0].records, records[[0, 2]]) < 1e-8


def test_a_layer_that_is_too_narrow_is_never_certain():
    generator = np.random.default_rng(13)
    layers = network(generator, [12, 3, 30, 8])
    records, labels = generator.standard_normal((5, 12)), np.arange(5.0)
    leak = invert(layers, layers.update(records, labels), records=5)
    assert leak.certain is None


def test_a_batch_of_another_model_is_never_certain():
    generator = np.random.default_rng(14)
    for _ in range(5):
        layers, other = network(generator, SIZES), network(generator, SIZES)
        update = other.update(generator.standard_normal((3, 50)), np.arange(3.0), biases=False)
        assert invert(layers, update, records=3).certain is None


def test_batches_of_one_output_are_families():
    generator = np.random.default_rng(15)
    for loss, free in (("squares", 1), ("hinge", 0)):
        layers = network(generator, [6, 1], loss=loss)
        update = layers.update(generator.standard_normal((3, 6)), np.array([-1.0, 1.0, 1.0]) * 0.1)
        leak = invert(layers, update, records=3)
        assert leak.kind is Kind.FAMILY
        assert leak.number == (3 * (6 + free) - 7 if loss == "squares" else 3 * 6 - 6)
    layers = network(generator, [6, 1], loss="logistic")
    leak = invert(layers, layers.update(generator.standard_normal((3, 6)), np.ones(3)), records=3)
    assert (leak.kind, leak.number) == (Kind.FAMILY, 3 * 6 - 7)


@pytest.mark.parametrize("loss", ["cross-entropy", "squares", "logistic"])
def test_condition_and_error_are_those_of_the_derivative(loss):
    generator = np.random.default_rng(16)
    layers = network(generator, [7, 12, 9, 4 if loss == "cross-entropy" else 1], loss=loss)
    records = generator.standard_normal((2, 7))
    targets = np.array([0.0, 3.0]) if loss == "cross-entropy" else np.array([1.0, -1.0])
    found = sensitivity(layers, records, targets)

    def flat(numbers):
        many = numbers.reshape(2, -1)
        update = layers.update(many[:, :7], many[:, 7] if loss == "squares" else targets)
        return np.concatenate([w.reshape(-1) for w in update.weights] + [*update.biases])

    start = np.column_stack([records, targets]) if loss == "squares" else records
    flat_start, step = start.reshape(-1), 1e-6
    slope = np.array(
        [(flat(flat_start + step * e) - flat(flat_start - step * e)) / (2 * step) for e in np.eye(start.size)]
    ).T
    if loss == "squares":
        slope[:, [7, 15]] += 0.0
    values = np.linalg.svd(slope, compute_uv=False)
    assert found.dimension == 0
    assert found.condition == pytest.approx(values[0] / values[-1], rel=1e-4)
    inverse = np.diag(np.linalg.inv(slope.T @ slope)).reshape(2, -1)[:, :7]
    assert found.error(0.01) == pytest.approx(0.01 * np.sqrt(inverse.mean()), rel=1e-4)
    whole = np.linalg.inv(slope.T @ slope).reshape(2, start.shape[1], 2, start.shape[1])
    of_mean = np.diag(whole.mean(axis=(0, 2)))[:7].mean()
    assert found.error_of_mean(0.01) == pytest.approx(0.01 * np.sqrt(of_mean), rel=1e-4)


def test_noise_makes_the_error_that_is_said():
    """Over 200 draws: not less than the bound (less three standard errors), and near it."""
    generator = np.random.default_rng(17)
    layers = network(generator, [8, 40, 5])
    record, target, noise = generator.standard_normal((1, 8)), np.array([2.0]), 1e-4
    update = layers.update(record, target)
    squares = []
    for _ in range(200):
        noisy = Update(
            tuple(w + noise * generator.standard_normal(w.shape) for w in update.weights),
            tuple(b + noise * generator.standard_normal(b.shape) for b in update.biases),
        )
        leak = invert(layers, noisy, records=1, noise=noise)
        assert leak.kind is Kind.EVERYTHING
        squares.append(np.square(leak.certain.records - record).mean())
        assert invert(layers, noisy, records=1).certain is None  # planted: noise that nobody mentioned
    least = sensitivity(layers, record, target).error(noise)
    measured = float(np.sqrt(np.mean(squares)))
    assert measured >= least * 0.8
    assert measured <= least * 3.0


def test_too_large_to_count_is_said():
    generator = np.random.default_rng(18)
    layers = network(generator, [3000, 3])
    assert family_dimension(layers, 4) is None
    leak = invert(layers, layers.update(generator.standard_normal((4, 3000)), np.arange(4.0) % 3), records=4)
    assert leak.kind is Kind.UNDECIDED


@pytest.mark.parametrize("rounds", [3, 8, 12])
def test_more_rounds_look_longer(rounds, monkeypatch):
    """Rounds beyond the list of spreads were passed over: a search that was told to go on did not."""
    generator, begun = np.random.default_rng(108), []
    layers, labels = network(generator, SIZES), np.full(8, 3)
    update = layers.update(generator.standard_normal((8, SIZES[0])), labels.astype(np.float64), biases=False)
    last = batches._last_layer(layers, update, 8, 8, 1e-12)

    def in_vain(_, one_hot, a, every):
        begun.append(a)
        return a, np.ones(len(a))

    monkeypatch.setattr(batches, "_improved", in_vain)
    assert [*batches._attempts(last, labels[None, :], CLASSES, Effort(rounds=rounds), False)] == []
    assert len(begun) == rounds
