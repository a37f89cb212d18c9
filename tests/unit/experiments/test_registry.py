"""The list, the command, and every experiment in quick mode: CSV, plot and caption."""

import csv
import sys

import numpy as np
import pytest

from reticent.apps import main
from reticent.errors import ParameterError
from reticent.experiments import EXPERIMENTS, find
from reticent.experiments.data import People
from reticent.randomness import SimulationStream

NAMES = [
    *("fig-3.2", "fig-3.3", "fig-3.5", "table-3.1", "fig-3.6", "fig-3.7", "fig-3.8", "fig-3.9", "fig-3.10"),
    *("fig-3.11", "fig-3.12", "fig-3.13", "fig-3.14", "fig-3.15", "levels"),
    *("table-4.2", "fig-4.5", "fig-4.6", "fig-4.7", "reuse-rules", "span"),
    *("chain-reuse", "chain-latency", "chain-cpu", "chain-gas"),
    *("service-latency", "service-cpu"),
    *(f"crowd-5.{figure}" for figure in range(3, 9)),
    *("crowd-device", "crowd-5.10", "crowd-5.11", "crowd-decoder"),
    *("crowd-robust", "collect-mse", "sharper-training", "sharper-networks", "learning-means"),
    *("collect-pipeline", "deployment", "leakage-bounds"),
    *(
        "fig-5.3",
        "fig-5.4",
        "fig-5.5",
        "table-5.2",
        "fig-5.7",
        "fig-5.8",
        "fig-5.9",
        "fig-5.10",
    ),
    *("fig-6.1", "fig-6.2", "table-6.1", "clones", "batch-diversity"),
    *(
        "loc-3.2",
        "loc-3.3",
        "loc-3.7",
        "loc-3.8",
        "loc-3.9",
        "loc-3.10",
        "loc-3.11",
        "loc-4.2",
        "loc-4.5",
        "loc-4.6",
        "loc-4.7",
        "loc-4.8",
        "loc-4.9",
        "loc-updates",
        "loc-table-3.1",
    ),
    *(f"market-7.{figure}" for figure in range(1, 6)),
    *("market-split", "market-8.1", "market-8.2", "market-8.3", "market-8.4.1", "market-table-8.1"),
]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*args):
        monkeypatch.setattr(sys, "argv", ["reticent", "reproduce", *args])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    return run


def check_files(name, outcome, files):
    """All three files are there and say the same."""
    with files.csv.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == len(outcome.rows) > 0
    assert set(rows[0]) == set(outcome.rows[0])
    assert files.png.read_bytes().startswith(PNG)
    assert files.png.stat().st_size > 20_000
    caption = files.caption.read_text()
    assert caption == outcome.caption + "\n"
    assert "Printed" in caption
    assert {files.csv.stem, files.png.stem, files.caption.stem} == {name}


def test_registry_holds_every_figure():
    assert list(EXPERIMENTS) == NAMES
    assert all(experiment.name == name for name, experiment in EXPERIMENTS.items())


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ParameterError, match=r"name must be one of fig-3\.2, .*chain-gas, .*got 'fig-9'"):
        find("fig-9")


def test_list(command):
    code, out, err = command("--list")
    assert (code, err) == (0, "")
    assert all(name in out for name in NAMES)


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ([], "name must be given"),
        (["fig-9"], "name must be one of"),
        (["fig-3.5", "--repetitions", "1"], "repetitions must be >= 2, got 1"),
        (["fig-3.5", "--seed", "-1"], "seed must be >= 0, got -1"),
    ],
)
def test_refusals_are_one_line(command, args, part):
    code, out, err = command(*args)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert part in err


def test_absent_data_is_said(command, tmp_path):
    code, _, err = command("levels", "--quick", "--data", str(tmp_path), "--out", str(tmp_path))
    assert code == 2
    assert err == "error: the data set WISDM needs wisdm_v1.1_windows.csv.gz in --data; it is not there\n"


def test_command_writes_and_prints(command, tmp_path):
    code, out, err = command("fig-3.5", "--quick", "--out", str(tmp_path / "new"))
    assert (code, err) == (0, "")
    assert "Fig. 3.5" in out
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "fig-3.5.csv",
        "fig-3.5.png",
        "fig-3.5.txt",
    ]


@pytest.mark.parametrize("name", ["fig-3.2", "fig-3.3", "table-3.1", "fig-3.7"])
def test_quick_run(name, quick):
    check_files(name, *find(name).run(quick))


@pytest.fixture
def _made_data(monkeypatch):
    """Two small populations in the place of the data sets."""

    def made(*args):
        units = [SimulationStream(8, path=(i,)).units(900).reshape(300, 3) - 1.0 for i in range(2)]
        categories = tuple((units[0][:, i] * 4.0).astype(np.int64) for i in range(2))
        return [People(f"made {i}", unit * 1.5 - 0.6, categories) for i, unit in enumerate(units)]

    monkeypatch.setattr("reticent.experiments.zhao_2022.chapter_3.fig_3_6.load_all", made)
    monkeypatch.setattr("reticent.experiments.ours.levels.load", lambda *args: made()[0])


@pytest.mark.usefixtures("_made_data")
@pytest.mark.parametrize("name", ["fig-3.6", "fig-3.11", "levels"])
def test_quick_run_on_made_data(name, quick):
    check_files(name, *find(name).run(quick))


@pytest.mark.slow
@pytest.mark.usefixtures("_data")
@pytest.mark.parametrize("name", ["fig-3.6", "fig-3.11", "levels"])
def test_quick_run_on_data(name, quick):
    check_files(name, *find(name).run(quick))
