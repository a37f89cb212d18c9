"""`audit.gradients` on modules of PyTorch: inverted wholly, in part, or not at all."""

import pytest

from reticent.audit import gradients
from reticent.audit.leakage import Kind
from reticent.audit.leakage.inversion import invert
from reticent.audit.leakage.sources import subject
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


def curved(torch):
    """A module that calls tanh by itself."""

    class Curved(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)

        def forward(self, x):
            return self.second(torch.tanh(self.first(x)))

    return Curved().double()


def test_one_record_shows_in_a_first_layer_whatever_follows(torch):
    """A linear layer with biases before Tanh: weights over biases are the record."""
    nn = torch.nn
    pictures = torch.rand(3, 8, 8, dtype=torch.float64)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 5)).double()
    found = gradients(net, (pictures[:1], [2]), records=1)
    assert (found.leak.kind, found.enters) == (Kind.EVERYTHING, "the record")
    assert found.error < 1e-12
    assert found.leak.candidates[0].targets.tolist() == [2.0]
    untold = gradients(net, (pictures[:1], [2]))  # that there is one record shows in the layer above
    assert (untold.leak.kind, untold.leak.records, untold.leak.labels) == (Kind.EVERYTHING, 1, (2,))
    assert untold.error < 1e-12
    several = gradients(net, (pictures, [0, 2, 4]))
    assert several.enters == "what enters layer '3'"
    sent = subject(net).measured(pictures, [0, 2, 4])[0]
    with_truth = gradients(net, update=sent, truth=pictures.numpy())
    assert (with_truth.enters, with_truth.error) == ("what enters layer '3'", None)
    without_biases = nn.Sequential(nn.Flatten(), nn.Linear(64, 32, bias=False), nn.Tanh(), nn.Linear(32, 5))
    assert gradients(without_biases.double(), (pictures[:1], [2])).enters == "what enters layer '3'"
    own = gradients(curved(torch), (torch.rand(1, 4, dtype=torch.float64), [1]), records=1)
    assert (own.leak.kind, own.enters) == (Kind.EVERYTHING, "what enters layer 'first'")
    assert "Curved does more than its linear layers" in own.notes[0]


def test_planted_without_the_first_layer_the_record_is_missed(torch, monkeypatch):
    monkeypatch.setattr("reticent.audit.leakage.sources._first_layer", lambda *_: None)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).double()
    assert gradients(net, (torch.rand(1, 4, dtype=torch.float64), [1]), records=1).enters != "the record"


def labels_behind_tanh(torch):
    """The classes that are called certain for a record without negative numbers, all of class 1."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(
        torch.nn.Linear(6, 8, bias=False), torch.nn.Tanh(), torch.nn.Linear(8, 4, bias=False)
    ).double()
    return gradients(net, (torch.rand(2, 6, dtype=torch.float64), [1, 1]), non_negative=True).leak.labels


def test_the_sign_of_records_is_not_that_of_what_tanh_makes_of_them(torch):
    """All classes were called certain: rows of the last layer's gradient have both signs behind tanh."""
    assert set(labels_behind_tanh(torch)) <= {1}


def test_planted_sign_of_records_behind_tanh_is_found(torch, monkeypatch):
    def invert_with_sign(*arguments, **options):
        return invert(*arguments, **{**options, "non_negative": True})

    monkeypatch.setattr("reticent.audit.leakage.gradients.invert", invert_with_sign)
    assert set(labels_behind_tanh(torch)) > {1}


def test_modules_of_which_nothing_is(torch):
    nn = torch.nn

    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)

        def forward(self, x):
            return self.second(torch.tanh(self.first(x))) + x

    batch = torch.rand(1, 4), [1]
    for module, loss, message in (
        (Around(), None, "Around does more than its linear layers"),
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
