"""`reticent audit gradients`: the verdict, the records, the exit codes, refusals in one line."""

import csv
import stat
import sys

import numpy as np
import pytest

from reticent.apps import main
from reticent.audit.leakage.sources import subject

MINE = """
import numpy as np
from reticent.audit.leakage import Layers
from reticent.federated import Linear

def make():
    g = np.random.default_rng(1)
    weights = (g.normal(size=(20, 6)) / 3.0, g.normal(size=(5, 20)) / 5.0)
    return Layers(weights, (g.normal(size=20) / 5.0, g.normal(size=5) / 5.0))

def linear():
    return Linear(3), np.array([0.1, -0.2, 0.3, 0.4])

def other():
    return 3
"""
RECORDS = np.arange(12.0).reshape(2, 6) / 6.0 - 1.0


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine_leaking.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield "mine_leaking"
    sys.modules.pop("mine_leaking", None)


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*args):
        monkeypatch.setattr(sys, "argv", ["reticent", "audit", "gradients", *args])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    return run


@pytest.fixture
def sent(mine, tmp_path):
    """Writes an update of `mine_leaking:make`; its name."""
    save_file = pytest.importorskip("safetensors.numpy").save_file

    def write(change=lambda arrays: arrays):
        import mine_leaking

        arrays, _ = subject(mine_leaking.make()).measured(RECORDS, [1, 3])
        save_file(change(arrays), tmp_path / "update.safetensors")
        return str(tmp_path / "update.safetensors")

    return write


def test_records_are_rebuilt_and_written_for_their_owner_alone(command, sent, mine, tmp_path):
    out_file = tmp_path / "found" / "records.csv"
    code, out, err = command("--model", f"{mine}:make", "--update", sent(), "--out", str(out_file))
    assert (code, err) == (1, "")
    assert "From this update the server learns everything: all 2 records, and the class of each." in out
    assert "Classes that are in the batch for certain: 1, 3." in out
    with out_file.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert [row["target"] for row in rows] == ["1", "3"]
    found = np.array([[float(row[f"x{place}"]) for place in range(6)] for row in rows])
    assert np.abs(found - RECORDS).max() < 1e-9
    assert stat.S_IMODE(out_file.stat().st_mode) == 0o600


def test_noise_leaves_nothing_to_rebuild(command, sent, mine):
    noise = np.random.default_rng(2)
    path = sent(lambda arrays: {k: v + noise.normal(size=v.shape) for k, v in arrays.items()})
    code, out, _ = command("--model", f"{mine}:make", "--update", path, "--records", "2", "--labels", "1,3")
    assert code == 0
    assert "undecided" in out


def test_steps_and_models_of_the_library(command, sent, mine, tmp_path):
    path = sent(lambda arrays: {k: -0.5 * v for k, v in arrays.items()})
    assert command("--model", f"{mine}:make", "--update", path, "--rate", "0.5")[0] == 1
    from safetensors.numpy import save_file

    save_file({"theta": np.array([0.3, 0.6, -0.9, 0.3])}, tmp_path / "theta.safetensors")
    linear = ("--model", f"{mine}:linear", "--update", str(tmp_path / "theta.safetensors"))
    code, out, _ = command(*linear, "--records", "1")
    assert code == 1
    assert "everything" in out
    assert "else a mean of several" in command(*linear)[1]


def test_refusals_are_one_line(command, sent, mine, tmp_path):
    good = sent()
    (tmp_path / "update.pt").write_bytes(b"PK\x03\x04")
    for args, part in (
        ((f"{mine}:make", str(tmp_path / "update.pt")), "update.pt is a pickle, which runs code when read"),
        ((f"{mine}:make", "absent"), "absent cannot be read"),
        ((f"{mine}:linear", good), "is it of another model"),
        ((f"{mine}:other", good), "model must be a module of PyTorch"),
        (("nowhere:make", good), "there is no module 'nowhere'"),
        ((f"{mine}:make", good, "--labels", "a"), "labels must be whole numbers such as 3,1,4"),
        ((f"{mine}:make", good, "--rate", "0"), "rate must be > 0"),
    ):
        code, out, err = command("--model", args[0], "--update", args[1], *args[2:])
        assert (code, out) == (2, "")
        assert part in err
        assert err.count("\n") == 1
