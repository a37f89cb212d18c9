"""The records of a home, from any number of files of its appliances: numbers by rows, the class last.

A total function of the records: a cell that is no number counts as 0, a row that is too short is filled with
zeros, one that is too long is cut. Only a file that is not there, or of no kind that is known, is an error.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from reticent.errors import ParameterError
from reticent.federated.softmax import Labels
from reticent.mechanisms.base import Floats
from reticent.tables.cells import number

KINDS = (".csv", ".npz")
_BROKEN = (
    OSError,
    EOFError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)  # what an npz file may raise that is none, or damaged


def check_files(files: Sequence[Path]) -> None:
    """Refuse what cannot be a file of records, before anything else is done.

    Raises:
        ParameterError: there is none, or one is not there or of another kind.
    """
    if not files:
        raise ParameterError("give at least one file of records")
    for file in files:
        if file.suffix not in KINDS:
            raise ParameterError(f"a file of records must be one of {', '.join(KINDS)}, got {file.name}")
        if not file.is_file():
            raise ParameterError(f"there is no file {file}")


def read(files: Sequence[Path], inputs: int) -> tuple[Floats, Labels]:
    """Return features by rows, and classes.

    Args:
        files: CSV without a header, `inputs` numbers and the class in each line; or npz with the arrays
            `features` and `labels`.
        inputs: numbers of a record.

    Raises:
        ParameterError: a file is missing, or an npz has no such arrays.
    """
    check_files(files)
    parts = [_of_csv(file, inputs) if file.suffix == ".csv" else _of_npz(file, inputs) for file in files]
    rows = np.concatenate(parts)
    labels = np.clip(np.nan_to_num(rows[:, -1]), -(2.0**31), 2.0**31).astype(np.int64)
    return np.ascontiguousarray(rows[:, :-1]), labels


def _of_csv(file: Path, inputs: int) -> Floats:
    rows = []
    with file.open(encoding="utf-8", errors="replace") as opened:
        for line in opened:
            if line.strip():
                rows.append(_row([number(cell.strip(' "\t\r\n')) or 0.0 for cell in line.split(",")], inputs))
    return np.array(rows, dtype=np.float64).reshape(-1, inputs + 1)


def _row(cells: list[float], inputs: int) -> list[float]:
    """Return the features, filled or cut to `inputs` numbers, and the class, which is the last cell."""
    features = (cells[:-1] + [0.0] * inputs)[:inputs]
    return [*features, cells[-1]]


def _of_npz(file: Path, inputs: int) -> Floats:
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as held:
            features, labels = held["features"], held["labels"]
    except _BROKEN as error:
        raise ParameterError(
            f"{file.name} must be an npz file with the arrays features and labels"
        ) from error
    if (
        features.dtype.kind not in "biuf"
        or labels.dtype.kind not in "biuf"
        or features.shape[:1] != labels.shape
    ):
        raise ParameterError(f"{file.name} must hold features by rows and a class for each, as numbers")
    found = np.zeros((len(labels), inputs + 1))
    flat = features.reshape(len(labels), int(np.prod(features.shape[1:])))[:, :inputs].astype(np.float64)
    found[:, : flat.shape[1]], found[:, -1] = flat, labels
    return found
