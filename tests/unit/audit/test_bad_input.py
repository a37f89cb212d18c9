"""Bad input at the command: one clear line each, and partial results where they hold."""

import pickle
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

MINE = """
import torch
from torch import nn

def seeded(parts):
    torch.manual_seed(3)
    return nn.Sequential(*parts()).double()

def tail():
    return nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4)

def make():
    return seeded(lambda: (nn.Linear(6, 12), nn.ReLU(), *tail()))

def dropout():
    return seeded(lambda: (nn.Linear(6, 12), nn.ReLU(), nn.Dropout(0.5), *tail()))

def normal():
    return seeded(lambda: (nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), *tail()))

def last_dropout():
    return seeded(lambda: (nn.Linear(6, 4), nn.Dropout(0.5)))

def unknown():
    return seeded(lambda: (nn.Linear(6, 12), nn.GELU(), *tail()))

def last_unknown():
    return seeded(lambda: (nn.Linear(6, 4), nn.Sigmoid()))

def none():
    return seeded(lambda: (nn.Conv1d(1, 2, 3), nn.Flatten()))

def raising():
    raise ValueError("no weights\\nhere")

class Twisted(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.a, self.b = nn.Linear(6, 6).double(), nn.Linear(6, 4).double()
    def forward(self, x):
        return self.b(torch.relu(self.a(x)) + x)

def twisted():
    return Twisted()
"""
NOT_FINITE = "0.weight holds numbers that are not finite: only what is above was inverted"
IS_PICKLE = "is a pickle, which runs code when read: give safetensors"
RECORD = np.array([[0.3, -0.2, 0.9, 0.4, -0.6, 0.1]])


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine_bad.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import mine_bad

    yield mine_bad
    sys.modules.pop("mine_bad", None)


def update(model, change=lambda arrays: arrays):
    """The file of one record's update, taken in evaluation mode, as somebody's code might save it."""
    import torch
    from safetensors.numpy import save_file

    model.eval()
    loss = torch.nn.functional.cross_entropy(model(torch.tensor(RECORD)), torch.tensor([2]))
    names, held = zip(*model.named_parameters(), strict=True)
    arrays = {n: g.numpy() for n, g in zip(names, torch.autograd.grad(loss, held), strict=True)}
    save_file(change(arrays), "update.safetensors")
    return "update.safetensors"


def changed(name, how):
    return lambda arrays: arrays | {name: np.ascontiguousarray(how(arrays[name]))}


def poisoned(name, number=np.nan):
    def how(array):
        found = array.copy()
        found.flat[0] = number
        return found

    return changed(name, how)


@pytest.mark.parametrize(
    ("make", "change", "said"),
    [
        ("make", poisoned("4.weight"), "4.weight holds numbers that are not finite, and nothing is above it"),
        ("make", poisoned("4.bias", np.inf), "4.weight holds numbers that are not finite"),
        ("make", changed("0.weight", lambda a: a[:, :5]), "0.weight has shape (12, 5), the model (12, 6)"),
        ("make", changed("4.bias", lambda a: a[:, None]), "4.bias has shape (4, 1), the model (4,)"),
        ("make", lambda arrays: {"layer9.weight": arrays["0.weight"]}, "is it of another model?"),
        ("make", lambda arrays: {"0.weight": arrays["0.weight"]}, "is it of another model?"),
        (
            "make",
            changed("4.bias", lambda a: a.astype(np.int64)),
            "floating point numbers, got int64",
        ),
        ("last_dropout", lambda arrays: arrays, "is in training mode"),
        ("last_unknown", lambda arrays: arrays, "(Sigmoid) is the last layer"),
    ],
)
def test_what_cannot_be_judged_is_one_line(command, mine, make, change, said):
    given = ("--model", f"mine_bad:{make}", "--update", update(getattr(mine, make)(), change))
    code, out, err = command("audit", "gradients", *given)
    assert (code, out) == (2, ""), (out, err)
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("make", "change", "said"),
    [
        (
            "make",
            poisoned("0.weight"),
            NOT_FINITE,
        ),
        (
            "make",
            poisoned("0.bias", -np.inf),
            NOT_FINITE,
        ),
        (
            "dropout",
            lambda arrays: arrays,
            "layer '2' (Dropout) is in training mode: what is below",
        ),
        (
            "normal",
            lambda arrays: arrays,
            "layer '1' (BatchNorm1d) is in training mode: what is below",
        ),
        (
            "unknown",
            lambda arrays: arrays,
            "layer '1' (GELU) is neither linear nor ReLU",
        ),
        (
            "twisted",
            lambda arrays: arrays,
            "Twisted does more than its linear layers with ReLU between them: only 'b' is inverted",
        ),
    ],
)
def test_partial_results_where_they_hold(command, mine, make, change, said, tmp_path):
    page = tmp_path / "page.html"
    given = ("--model", f"mine_bad:{make}", "--update", update(getattr(mine, make)(), change))
    code, out, err = command("audit", "gradients", *given, "--report", str(page))
    assert (code, err) == (1, ""), (out, err)
    assert said in out
    # The first layer shows the record itself, where its own gradients are finite and some units answer.
    is_whole = make in ("dropout", "normal", "unknown")
    learnt = "learns everything: one record, by the first layer" if is_whole else "learns everything of what"
    assert f"From this update the server {learnt}" in out
    assert learnt in page.read_text()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "update.pt",
            pickle.dumps({"a": 1}),
            f"update.pt {IS_PICKLE}",
        ),
        (
            "update.pth",
            b"PK\x03\x04rest",
            f"update.pth {IS_PICKLE}",
        ),
        ("old.pkl", pickle.dumps({"a": 1}, protocol=0), "old.pkl must be a file in the form of safetensors"),
        ("empty.safetensors", b"", "empty.safetensors must be a file in the form of safetensors"),
        ("cut.safetensors", b"\xff" * 7, "cut.safetensors must be a file in the form of safetensors"),
    ],
)
def test_files_that_are_no_updates(command, mine, tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    code, out, err = command("audit", "gradients", "--model", "mine_bad:make", "--update", name)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_numbers_that_cannot_be_squared_and_files_without_end(command, mine, tmp_path):
    def scaled(factor):
        return update(mine.make(), lambda arrays: {name: factor * one for name, one in arrays.items()})

    with (tmp_path / "sparse.safetensors").open("wb") as file:
        file.truncate((8 << 30) + 1)
    for make, said in (
        (lambda: scaled(1e300), "too far from 1 to be inverted"),
        (lambda: scaled(1e-310), "too far from 1 to be inverted"),
        (lambda: "sparse.safetensors", "is larger than 8 GiB"),
        (lambda: "/dev/zero", "zero is no file"),
    ):
        code, out, err = command("audit", "gradients", "--model", "mine_bad:make", "--update", make())
        assert (code, out) == (2, "")
        assert said in err
        assert err.count("\n") == 1


def test_a_header_that_begins_like_a_pickle_is_read(command, mine):
    """A header of 128 bytes: its length is the first byte of the file, and that of every pickle."""
    from pathlib import Path

    from safetensors.numpy import save

    for wide in range(60):
        name = "w" * (1 + wide)
        content = save({name: np.zeros(1)})
        if content[0] == 0x80:
            break
    Path("update.safetensors").write_bytes(content)
    code, _, err = command("audit", "gradients", "--model", "mine_bad:make", "--update", "update.safetensors")
    assert code == 2
    assert "is it of another model?" in err


def test_a_pickle_is_never_run(command, mine, tmp_path):
    """Planted: a file that would leave a trace if anything read it as a pickle."""

    class Bomb:
        def __reduce__(self):
            return open, (str(tmp_path / "trace"), "w")

    for protocol in (0, 2, 4):
        (tmp_path / "bomb").write_bytes(pickle.dumps(Bomb(), protocol=protocol))
        for place in ("--update", "--truth"):
            good = update(mine.make())
            files = {"--update": good, "--truth": good} | {place: "bomb"}
            given = [part for pair in files.items() for part in pair]
            assert command("audit", "gradients", "--model", "mine_bad:make", *given)[0] == 2
    assert not (tmp_path / "trace").exists()
    pickle.loads((tmp_path / "bomb").read_bytes()).close()
    assert (tmp_path / "trace").exists(), "the bomb works"


def test_models_that_are_none(command, mine, tmp_path):
    good = update(mine.make())
    for make, code, said in (
        ("none", 2, "Conv1d"),
        ("MINE", 2, "module 'mine_bad' has no 'MINE'"),
    ):
        found, _, err = command("audit", "gradients", "--model", f"mine_bad:{make}", "--update", good)
        assert found == code, err
        assert said in err
        assert err.count("\n") == 1
    code, out, err = command("audit", "gradients", "--model", "mine_bad:raising", "--update", good)
    assert (code, out, err) == (2, "", "error: mine_bad:raising raises ValueError: no weights here\n"), (
        "what one's own code says, in a line"
    )


def test_truth_that_does_not_fit(command, mine, tmp_path):
    from safetensors.numpy import save_file

    good = update(mine.make())
    for arrays, said in (
        ({"records": RECORD[:, :5]}, "truth must hold records of 6 numbers, got (1, 5)"),
        ({"rows": RECORD}, "must hold one array, called records"),
        ({"records": np.full((1, 6), np.nan)}, "truth must be finite"),
    ):
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, "truth.safetensors")
        given = ("--model", "mine_bad:make", "--update", good, "--truth", "truth.safetensors")
        code, _, err = command("audit", "gradients", *given)
        assert code == 2, err
        assert said in err
        assert err.count("\n") == 1
