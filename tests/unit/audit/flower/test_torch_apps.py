"""Apps of PyTorch as people write them: a state that comes back, in single precision, with buffers in it."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, MetricRecord

from reticent.audit.flower import Node, audit_flower
from reticent.audit.leakage import Kind

from . import apps

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

RATE = 0.05
nn = torch.nn


def plain():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5))


def normalised():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 5))


def training(make, evaluating):
    """One step of one's own records, as in the tutorials."""

    def content(message):
        model = make()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        model.train(not evaluating)
        loss = nn.functional.cross_entropy(model(apps.HELD["x"]), apps.HELD["y"])
        loss.backward()
        with torch.no_grad():
            for held in model.parameters():
                held -= RATE * held.grad
        told = MetricRecord({"num-examples": len(apps.HELD["x"]), "train_loss": loss.item()})
        return {"arrays": ArrayRecord(model.state_dict()), "metrics": told}

    return apps.app_of(content)


def holding(records, labels):
    def put():
        apps.HELD["x"] = torch.tensor(records, dtype=torch.float32)
        apps.HELD["y"] = torch.tensor(labels)
        return Node(records=records)

    return put


RECORDS = np.array([[0.5, -1.0, 0.25, 0.75, -0.5, 1.0], [1.0, 0.5, -0.75, 0.25, 0.0, -1.0]])
DATA = [holding(RECORDS, [2, 4]), holding(RECORDS[:1], [2])]


def test_records_are_rebuilt_from_a_state_in_single_precision():
    found = audit_flower(training(plain, evaluating=True), DATA, model=plain(), rate=RATE)
    faults = "\n".join(line for line in found.lines if line.startswith("FAULT"))
    assert "how many examples there are: 2 on data set 0, 1 on data set 1" in faults
    assert "how well the model fits these records" in faults
    assert [update.leak.kind for update in found.updates] == [Kind.EVERYTHING] * 2, found.lines
    for update in found.updates:
        assert update.error < 1e-3


def test_batch_normalisation_in_training_mode_is_said_and_the_rest_judged():
    model = normalised()
    found = audit_flower(training(normalised, evaluating=False), [DATA[0], DATA[0]], model=model, rate=RATE)
    assert "is in training mode: what is below cannot be inverted" in "\n".join(found.lines)
    changed = audit_flower(training(normalised, evaluating=False), DATA, model=model, rate=RATE)
    assert not changed.passed
    told = "\n".join(changed.lines)
    assert "of which form the reply is" in told, "one record cannot be normalised, and that shows"


def test_buffers_are_no_parameters_and_leave_all_the_same():
    found = audit_flower(training(normalised, evaluating=True), DATA, model=normalised().eval(), rate=RATE)
    assert found.notes == ()
    assert all(update.enters != "the record" or update.leak.is_first_layer for update in found.updates)
    with_statistics = audit_flower(
        training(normalised, evaluating=False),
        [DATA[0], holding(RECORDS[::-1].copy() * 0.5, [2, 4])],
        model=normalised(),
        rate=RATE,
    )
    against = [one.check for one in with_statistics.findings if not one.passed]
    assert "train: arrays.1.running_mean" in against
