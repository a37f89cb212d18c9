"""Under noise nothing is called known that noise moves; one record shows in its first layer, step by step."""

import numpy as np
import pytest

from reticent.audit import gradients
from reticent.audit.leakage import Kind, Layers, Update, inversion, invert, records
from reticent.audit.leakage.batches import Effort
from reticent.audit.leakage.labels import certain_labels
from reticent.audit.leakage.layers import rounding_share
from reticent.audit.leakage.noise_checks import NO_NOISE, estimate_noise
from reticent.federated.models import Logistic

from .nets import error, network

SIZES, LABEL, CLASSES = [12, 20, 10], 4, 10


def noisy_update(layers, rows, targets, noise, generator):
    update = layers.update(rows, np.asarray(targets, dtype=np.float64))

    def perturb(numbers):
        return numbers + noise * generator.standard_normal(numbers.shape)

    return Update(tuple(map(perturb, update.weights)), tuple(map(perturb, update.biases)))


def verdicts(noise, *, declared, draws=12, sizes=SIZES):
    """Verdicts on noisy updates of one record of class 4, with the records."""
    for seed in range(draws):
        generator = np.random.default_rng(seed)
        layers = network(generator, sizes)
        row = generator.standard_normal((1, sizes[0]))
        update = noisy_update(layers, row, [LABEL], noise, generator)
        yield invert(layers, update, noise=noise if declared else 0.0), row


def overclaims(found):
    """How many of the verdicts call a record known, or near, that is far from the truth."""
    count = 0
    for leak, row in found:
        for candidate in leak.candidates:
            limit = 0.05 if leak.kind is Kind.EVERYTHING else 1.0
            count += error(candidate.records, row) > limit
    return count


@pytest.mark.parametrize("noise", [1e-5, 1e-3, 1e-2, 0.1, 0.5])
def test_a_record_under_declared_noise_is_called_known_only_where_it_is(noise):
    found = list(verdicts(noise, declared=True))
    assert overclaims(found) == 0
    for leak, _ in found:
        assert set(leak.labels) <= {LABEL}
    kinds = {leak.kind for leak, _ in found}
    if noise <= 1e-5:
        assert kinds == {Kind.EVERYTHING}
    if noise >= 0.1:
        assert Kind.EVERYTHING not in kinds


def test_planted_certainty_without_a_look_at_the_noise_is_found(monkeypatch):
    """As it was: the one candidate that fits a wide tolerance is "everything", far from the truth."""
    monkeypatch.setattr(records, "_limit_by_noise", lambda layers, update, leak, *rest: leak)
    assert overclaims(verdicts(0.1, declared=True)) > 0


def test_the_reason_says_how_near():
    leak = next(verdicts(1e-5, declared=True))[0]
    assert "of its largest number under this noise" in leak.reason
    assert leak.candidates[0].moved <= records.CLOSE_NOISE_MOVEMENT
    undecided = next(leak for leak, _ in verdicts(0.5, declared=True) if leak.kind is Kind.UNDECIDED)
    assert "noise" in undecided.reason


@pytest.mark.parametrize("noise", [1e-4, 1e-2, 0.1, 1.0])
def test_no_class_is_certain_that_is_not_there_under_noise_that_nobody_declared(noise):
    for leak, _ in verdicts(noise, declared=False):
        assert leak.kind is Kind.UNDECIDED
        assert not leak.candidates
        assert set(leak.labels) <= {LABEL}
        assert "do not sum to zero: noise of about" in leak.reason


def test_planted_signs_that_are_taken_for_certain_are_found(monkeypatch):
    """As it was: every class whose row holds a negative number."""
    monkeypatch.setattr(inversion, "estimate_noise", lambda *_: NO_NOISE)
    found = [set(leak.labels) for leak, _ in verdicts(0.1, declared=False)]
    assert any(labels > {LABEL} for labels in found)


def test_more_noise_than_is_declared_is_found():
    generator = np.random.default_rng(3)
    layers = network(generator, SIZES)
    update = noisy_update(layers, generator.standard_normal((1, 12)), [LABEL], 0.1, generator)
    leak = invert(layers, update, noise=0.01)
    assert leak.kind is Kind.UNDECIDED
    assert "more than the 0.01 that is declared" in leak.reason
    assert "more than" not in invert(layers, update, noise=0.1).reason


def test_the_noise_is_estimated_from_sums_over_the_classes():
    """60 seeds, each within an interval of false alarm 2e-6."""
    for seed in range(60):
        generator = np.random.default_rng(seed)
        layers = network(generator, SIZES)
        rows, labels = generator.standard_normal((3, 12)), [1, LABEL, 7]
        exact = layers.update(rows, np.array(labels, dtype=np.float64))
        assert estimate_noise(layers, exact, rounding_share(exact)) == NO_NOISE
        assert estimate_noise(layers, exact.rounded(), rounding_share(exact.rounded())) == NO_NOISE
        noise = 10.0 ** generator.uniform(-6, 0)
        noisy = noisy_update(layers, rows, labels, noise, generator)
        found = estimate_noise(layers, noisy, rounding_share(noisy))
        assert found.low < noise < found.high
        assert found.level == pytest.approx(noise, rel=0.8)


def test_signs_far_beyond_the_noise_are_certain_still():
    layers = network(np.random.default_rng(1), [6, 8, 5])
    update = layers.update(np.ones((1, 6)), np.array([2.0]))
    assert certain_labels(layers, update, 1e-12, noise=1e-3) == (2,)
    assert certain_labels(layers, update, 1e-12, noise=0.1) == ()


def test_batches_under_noise_are_called_known_only_where_they_are():
    for noise, may_be_known in ((1e-7, True), (0.05, False)):
        for seed in range(4):
            generator = np.random.default_rng(seed)
            layers = network(generator, [10, 30, 6])
            rows, labels = generator.standard_normal((2, 10)), [0, 3]
            update = noisy_update(layers, rows, labels, noise, generator)
            leak = invert(layers, update, records=2, labels=labels, noise=noise)
            assert set(leak.labels) <= {0, 3}
            if leak.kind is Kind.EVERYTHING:
                assert may_be_known
                assert error(leak.certain.records, rows) < 0.05


def test_one_output_says_that_its_class_rests_on_there_being_no_noise():
    """Of two records of a logistic regression: nothing in the update shows whether there is noise."""
    theta = np.array([0.2, -0.1, 0.4, 0.0])
    rows = np.array([[0.3, -1.2, 0.8], [1.0, 0.4, -0.2]])
    found = gradients((Logistic(3, l2=0.0), theta), (rows, [1.0, 1.0]), records=2)
    if found.leak.labels:
        assert found.leak.assumes_no_noise
        assert "in the batch if the update carries no noise: 1" in str(found)
    assert "for certain" not in str(found)


# One record in several local steps


def local_steps(layers, rows, targets, steps, rate=0.1):
    """What a client sends after some steps of its own: the change of weights and biases, by name."""
    weights, biases = list(layers.weights), list(layers.biases)
    for _ in range(steps):
        now = Layers(tuple(weights), tuple(biases), layers.loss)
        update = now.update(rows, np.asarray(targets, dtype=np.float64))
        weights = [w - rate * g for w, g in zip(weights, update.weights, strict=True)]
        biases = [b - rate * g for b, g in zip(biases, update.biases, strict=True)]
    sent = {f"{place}.weight": w - layers.weights[place] for place, w in enumerate(weights)}
    return sent | {f"{place}.bias": b - layers.biases[place] for place, b in enumerate(biases)}


@pytest.mark.parametrize("steps", [2, 3, 10])
@pytest.mark.parametrize("loss", ["cross-entropy", "squares"])
def test_one_record_in_several_local_steps_is_rebuilt(steps, loss):
    generator = np.random.default_rng(steps)
    layers = network(generator, SIZES, loss=loss)
    row = generator.standard_normal((1, 12))
    target = [LABEL] if loss == "cross-entropy" else generator.standard_normal((1, CLASSES))
    sent = local_steps(layers, row, target, steps)
    found = gradients(layers, update=sent, rate=0.1, records=1, truth=row)
    assert (found.leak.kind, found.leak.records) == (Kind.EVERYTHING, 1)
    assert found.error < 1e-12
    assert "in whatever number of local steps" in str(found)
    if loss == "cross-entropy":
        assert found.leak.candidates[0].targets.tolist() == [LABEL]
    untold = gradients(layers, update=sent, rate=0.1, truth=row)
    assert untold.leak.kind is Kind.FAMILY, "that there is one record is not known"
    assert untold.error < 1e-12
    assert "if there are more records, they left no trace" in str(untold)


def test_planted_without_the_first_layer_they_are_missed(monkeypatch):
    monkeypatch.setattr(inversion, "record_of_first_layer", lambda *_, **__: None)
    generator = np.random.default_rng(3)
    layers = network(generator, SIZES)
    sent = local_steps(layers, generator.standard_normal((1, 12)), [LABEL], 3)
    assert not gradients(layers, update=sent, rate=0.1, records=1).found


def test_several_records_in_several_steps_are_not_called_one():
    for seed in range(10):
        generator = np.random.default_rng(seed)
        layers = network(generator, SIZES)
        sent = local_steps(layers, generator.standard_normal((3, 12)), [1, LABEL, 7], 3)
        found = gradients(layers, update=sent, rate=0.1, effort=Effort(sets=1, rounds=1))
        assert not found.leak.is_first_layer


def test_local_steps_under_noise_say_how_near():
    generator = np.random.default_rng(5)
    layers = network(generator, SIZES)
    row = generator.standard_normal((1, 12))
    for noise, kinds in ((1e-7, {Kind.EVERYTHING}), (0.05, {Kind.UNDECIDED, Kind.FAMILY})):
        sent = {
            name: array + noise * generator.standard_normal(array.shape)
            for name, array in local_steps(layers, row, [LABEL], 3).items()
        }
        found = gradients(layers, update=sent, rate=0.1, records=1, noise=noise, truth=row)
        assert found.leak.kind in kinds
        if found.found:
            assert found.error < (0.05 if found.leak.kind is Kind.EVERYTHING else 1.0)


def test_noise_is_that_of_what_is_sent_also_where_steps_are():
    """Steps are a tenth of the gradient: noise of 1e-7 on them is 1e-6 on the gradient."""
    generator = np.random.default_rng(6)
    layers = network(generator, SIZES)
    row = generator.standard_normal((1, 12))
    update = noisy_update(layers, row, [LABEL], 1e-6, generator)
    names = [(f"{place}.weight", f"{place}.bias") for place in range(2)]
    sent = {}
    for (weights, bias), w, b in zip(names, update.weights, update.biases, strict=True):
        sent |= {weights: -0.1 * w, bias: -0.1 * b}
    assert gradients(layers, update=sent, rate=0.1, noise=1e-7).leak.kind is Kind.EVERYTHING
