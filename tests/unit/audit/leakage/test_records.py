"""One record from its update: with and without biases, to many layers, and never a wrong one for certain."""

import numpy as np
import pytest

from reticent.audit.leakage import Kind, Layers, Update, invert

from .nets import alive, error, network, some_sizes


def drawn(generator, place, *, biases=True, classes=None):
    layers = network(generator, some_sizes(generator, 1 + place % 6, classes), biases=biases)
    record = generator.standard_normal((1, layers.inputs))
    return layers, record, np.array([float(generator.integers(layers.outputs))])


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("single", [False, True])
def test_records_of_a_hundred_networks_to_six_layers(shared, single):
    generator = np.random.default_rng(11)
    worst = 0.0
    for place in range(100):
        layers, record, target = drawn(generator, place)
        assert alive(layers, record, target)
        update = layers.update(record, target, biases=shared)
        leak = invert(layers, update.rounded() if single else update)
        assert leak.kind is Kind.EVERYTHING, (place, str(leak))
        assert leak.certain.targets[0] == target[0]
        worst = max(worst, error(leak.certain.records, record))
    assert worst <= (1e-4 if single else 1e-9)


def test_a_gradient_of_torch_in_single_precision():
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(5)
    for place in range(30):
        layers, record, target = drawn(generator, place)
        weights = [torch.tensor(w, dtype=torch.float32, requires_grad=True) for w in layers.weights]
        offsets = [torch.tensor(b, dtype=torch.float32, requires_grad=True) for b in layers.biases]
        values = torch.tensor(record, dtype=torch.float32)
        for depth, (w, b) in enumerate(zip(weights, offsets, strict=True), 1):
            values = values @ w.T + b
            values = values.relu() if depth < len(layers) else values
        loss = torch.nn.functional.cross_entropy(values, torch.tensor(target, dtype=torch.int64))
        loss.backward()
        rounded = Layers(
            tuple(w.detach().double().numpy() for w in weights),
            tuple(b.detach().double().numpy() for b in offsets),
        )
        update = Update(
            tuple(w.grad.double().numpy() for w in weights),
            tuple(b.grad.double().numpy() for b in offsets),
            float(np.finfo(np.float32).eps),
        )
        for shown in (update, update.without_biases()):
            leak = invert(rounded, shown)
            assert leak.kind is Kind.EVERYTHING, (place, str(leak))
            assert error(leak.certain.records, record) <= 1e-4


def test_gradients_of_some_biases_are_enough():
    generator = np.random.default_rng(4)
    layers = network(generator, [20, 18, 16, 14, 5])
    record, target = generator.standard_normal((1, 20)), np.array([3.0])
    full = layers.update(record, target)
    for kept in range(4):
        shown = Update(full.weights, tuple(b if p == kept else None for p, b in enumerate(full.biases)))
        assert error(invert(layers, shown).certain.records, record) < 1e-11


def test_two_labels_have_the_candidates_that_the_theorem_says():
    generator = np.random.default_rng(8)
    kinds = {1: 0, 2: 0}
    for place in range(200):
        layers = network(generator, some_sizes(generator, 1 + place % 4, 2), biases=False, scale=2.0)
        record, target = generator.standard_normal((1, layers.inputs)), np.array([float(place % 2)])
        if not alive(layers, record, target):
            continue
        leak = invert(layers, layers.update(record, target, biases=False), non_negative=len(layers) == 1)
        if len(layers) == 1:
            continue  # this record is no picture: what it shows is tested below
        assert leak.kind in (Kind.EVERYTHING, Kind.CANDIDATES)
        assert len(leak.candidates) == leak.number
        kinds[leak.number] += 1
        assert min(error(one.records, record) for one in leak.candidates) < 1e-7
        for one in leak.candidates:
            again = layers.update(one.records, one.targets, biases=False)
            for mine, theirs in zip(again.weights, layers.update(record, target).weights, strict=True):
                assert np.abs(mine - theirs).max() <= 1e-8 * np.abs(theirs).max()
    assert min(kinds.values()) > 20


def test_one_layer_of_two_labels_without_a_sign():
    generator = np.random.default_rng(1)
    for _ in range(50):
        layers = network(generator, [10, 2], scale=3.0)
        record, target = np.abs(generator.standard_normal((1, 10))), np.array([1.0])
        update = layers.update(record, target, biases=False)
        free, picture = invert(layers, update), invert(layers, update, non_negative=True)
        assert free.number >= 2  # the mirrored record of the other class, at least
        assert picture.number <= 2
        assert min(error(one.records, record) for one in picture.candidates) < 1e-6


def test_a_dead_layer_says_nothing_and_how_much_that_is():
    generator = np.random.default_rng(7)
    layers = network(generator, [12, 9, 8, 4])
    dead = Layers(layers.weights, (layers.biases[0], layers.biases[1] - 1e3, layers.biases[2]))
    record, target = generator.standard_normal((1, 12)), np.array([2.0])
    leak = invert(dead, dead.update(record, target))
    assert (leak.kind, leak.number, leak.labels) == (Kind.NOTHING, 12, (2,))
    leak = invert(dead, dead.update(record, target, biases=False))
    assert (leak.kind, leak.number, leak.labels) == (Kind.NOTHING, 12, ())
    batch = dead.update(generator.standard_normal((3, 12)), np.array([0.0, 1.0, 1.0]))
    leak = invert(dead, batch, records=3)
    assert (leak.kind, leak.number) == (Kind.NOTHING, 36)
    assert set(leak.labels) <= {0, 1}


def test_one_class_says_nothing():
    generator = np.random.default_rng(7)
    layers = network(generator, [6, 5, 1])
    leak = invert(layers, layers.update(generator.standard_normal((1, 6)), np.array([0.0])), records=1)
    assert (leak.kind, leak.number) == (Kind.NOTHING, 6)


def test_a_record_of_zeros_is_found():
    generator = np.random.default_rng(3)
    layers = network(generator, [6, 30, 4])
    for shared in (True, False):
        leak = invert(layers, layers.update(np.zeros((1, 6)), np.array([1.0]), biases=shared))
        assert leak.kind is Kind.EVERYTHING
        assert np.abs(leak.certain.records).max() < 1e-12


@pytest.mark.parametrize("loss", ["cross-entropy", "logistic", "hinge"])
def test_a_record_of_zeros_is_not_found_where_no_record_has_such_slopes(loss):
    """Only the bias moved, and by more than any record moves it: a noisy report, not a record of zeros."""
    generator = np.random.default_rng(5)
    layers = network(generator, [6, 3 if loss == "cross-entropy" else 1], loss=loss)
    real = layers.update(np.zeros((1, 6)), np.array([1.0]))
    noisy = Update(real.weights, tuple(13.7 * b for b in real.biases))
    assert invert(layers, real, records=1).kind is Kind.EVERYTHING
    assert invert(layers, noisy, records=1).kind is Kind.UNDECIDED


@pytest.mark.parametrize("loss", ["squares", "logistic", "hinge"])
def test_other_losses(loss):
    generator = np.random.default_rng(6)
    for place in range(30):
        layers = network(generator, [*some_sizes(generator, 1 + place % 4), 1], loss=loss)
        record = generator.standard_normal((1, layers.inputs))
        target = np.array([generator.standard_normal() if loss == "squares" else 1.0 - 2.0 * (place % 2)])
        if not alive(layers, record, target):
            continue
        leak = invert(layers, layers.update(record, target))
        assert leak.kind is Kind.EVERYTHING
        assert error(leak.certain.records, record) < 1e-9
        assert leak.certain.targets[0] == pytest.approx(target[0], rel=1e-8)
        weights = invert(layers, layers.update(record, target, biases=False))
        if len(layers) > 1:  # the biases' values give the length
            assert weights.kind is Kind.EVERYTHING
            assert error(weights.certain.records, record) < 1e-8
        elif loss == "squares":
            assert (weights.kind, weights.number) == (Kind.FAMILY, 1)
        else:
            assert weights.number >= 1
            assert min(error(one.records, record) for one in weights.candidates) < 1e-8


def test_squares_without_biases_leave_a_length():
    generator = np.random.default_rng(2)
    layers = network(generator, [8, 20, 1], biases=False, loss="squares")
    record, target = generator.standard_normal((1, 8)), np.array([0.4])
    leak = invert(layers, layers.update(record, target, biases=False))
    assert (leak.kind, leak.number) == (Kind.FAMILY, 1)
    # Planted: the family is real. Twice the record, with another target, has the same update.
    score = layers.forward(record)[1][0, 0]
    other = layers.update(2.0 * record, np.array([2.0 * score - (score - 0.4) / 2.0]), biases=False)
    assert np.allclose(other.weights[0], layers.update(record, target).weights[0], rtol=1e-12)


def test_a_wrong_update_is_never_certain():
    """Updates of two records, of another model, and mixed up: none yields a wrong record that is certain."""
    generator = np.random.default_rng(9)
    for place in range(60):
        layers, record, target = drawn(generator, place)
        other = network(generator, [layers.inputs, *(len(w) for w in layers.weights)])
        foreign = other.update(record, target, biases=bool(place % 2))
        leak = invert(layers, foreign, records=1)
        if len(layers) == 1 and place % 2:
            continue  # one layer's bias shows the record whatever the weights are
        if leak.is_first_layer:  # and so do the biases of a first layer, which is right
            assert place % 2
            assert error(leak.certain.records, record) < 1e-9
        else:
            assert leak.kind is not Kind.EVERYTHING
        two = layers.update(generator.standard_normal((2, layers.inputs)), np.array([0.0, 1.0]))
        assert invert(layers, two, records=1).kind is not Kind.EVERYTHING


def test_planted_a_check_that_is_skipped_is_wrong(monkeypatch):
    """Without the check against the whole update, the mean of two records passes for a record."""
    from reticent.audit.leakage import Candidate, records

    generator = np.random.default_rng(10)
    layers = network(generator, [12, 20, 5])
    both = generator.standard_normal((2, 12))
    update = layers.update(both, np.array([0.0, 1.0]))
    monkeypatch.setattr(
        records,
        "_checked",
        lambda layers, update, record, slopes, tolerances: Candidate(record[None], np.zeros(1), 0.0),
    )
    leak = invert(layers, update, records=1)
    assert leak.kind is Kind.EVERYTHING
    assert error(np.repeat(leak.certain.records, 2, axis=0), both) > 0.01
