"""`audit.gradients` on modules of PyTorch: inverted wholly, in part, or not at all."""

import pytest

from reticent.audit import gradients
from reticent.audit.leakage import Kind
from reticent.errors import ParameterError


@pytest.fixture(scope="module")
def torch():
    found = pytest.importorskip("torch")
    found.manual_seed(7)
    return found


def test_modules(torch):
    nn = torch.nn
    plain = nn.Sequential(nn.Flatten(), nn.Linear(48, 40), nn.ReLU(), nn.Dropout(0.5), nn.Linear(40, 10))

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(48, 40), nn.Linear(40, 10)

        def forward(self, x):
            return self.second(torch.relu(self.first(x.flatten(1))))

    for module in (plain.eval(), Own(), nn.Sequential(nn.Flatten(), nn.Linear(48, 10, bias=False))):
        for count in (1, 3):
            found = gradients(module, (torch.rand(count, 6, 8), range(count)), loss=nn.CrossEntropyLoss())
            assert found.leak.kind is Kind.EVERYTHING
            assert found.error < 1e-4
            assert found.notes == ()


def test_modules_of_which_a_part_is_inverted(torch):
    nn = torch.nn
    picture = torch.rand(2, 1, 8, 8)
    convolution = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 32), nn.ReLU(), nn.Linear(32, 5)
    )
    found = gradients(convolution, (picture, [1, 2]))
    assert found.leak.kind is Kind.EVERYTHING
    assert found.error < 1e-4
    assert found.enters == "what enters layer '3'"
    assert "(Conv2d) is neither linear nor ReLU" in found.notes[0]
    random = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 5))
    found = gradients(random.train(), (picture[:1], [1]))
    assert found.error < 1e-4
    assert "layer '3' (Dropout) is in training mode" in found.notes[0]
    norm = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 5))
    assert (
        "layer '2' (BatchNorm1d) is in training mode" in gradients(norm.train(), (picture, [1, 2])).notes[0]
    )


def test_modules_of_which_nothing_is(torch):
    nn = torch.nn

    class Curved(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.second(torch.tanh(self.first(x)))

    batch = torch.rand(1, 4), [1]
    for module, loss, message in (
        (Curved(), None, "Curved does more than its linear layers"),
        (nn.Sequential(nn.Linear(4, 3), nn.Sigmoid()), None, r"layer '1' \(Sigmoid\) is the last layer"),
        (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), None, "is in training mode"),
        (nn.Linear(4, 3), nn.CrossEntropyLoss(label_smoothing=0.1), "loss must be cross-entropy, squares"),
        (nn.Linear(4, 3), "absolute", "loss must be one of"),
        (nn.Linear(5, 3), None, "batch does not fit the model"),
    ):
        with pytest.raises(ParameterError, match=message):
            gradients(module, batch, loss=loss)


@pytest.mark.parametrize("loss", ["squares", "logistic", "hinge"])
def test_losses_of_modules_are_those_of_layers(torch, loss):
    nn = torch.nn
    module = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1)).double()
    found = gradients(module, (torch.randn(1, 6, dtype=torch.float64), [[1.0]]), loss=loss)
    assert found.leak.kind is Kind.EVERYTHING
    assert found.error < 1e-9
