"""Export of estimates as rows: for tables on a screen, and for CSV, JSON and Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reticent.collect.estimates import Estimate
from reticent.collect.survey import Survey
from reticent.errors import MissingExtra, ParameterError
from reticent.files import new_file, write_new
from reticent.mechanisms.numeric.base import NumericChannel

FIELDS = ("attribute", "value", "reports", "estimate", "lower", "upper", "robust", "unbiased")


def rows(survey: Survey, found: Sequence[Estimate]) -> list[dict[str, Any]]:
    """Return one row for each mean and each frequency.

    `value` is the category, and empty for a mean. `estimate` lies in its interval; `unbiased` need not, and
    is the number to add up or average with others.
    """
    table: list[dict[str, Any]] = []
    for one, instrument in zip(found, survey.instruments, strict=True):
        row = dict.fromkeys(FIELDS) | {"attribute": one.name, "reports": one.reports}
        if one.mean is not None:
            table.append(
                row
                | {
                    "estimate": one.mean.shown,
                    "lower": one.mean.lower,
                    "upper": one.mean.upper,
                    "robust": one.robust,
                    "unbiased": one.mean.value,
                }
            )
        elif one.frequencies is not None:
            assert not isinstance(instrument, NumericChannel)
            for place, label in enumerate(instrument.categories.alphabet.tolist()):
                table.append(
                    row
                    | {
                        "value": str(label),
                        "estimate": float(one.frequencies.shown[place]),
                        "lower": float(one.frequencies.lower[place]),
                        "upper": float(one.frequencies.upper[place]),
                        "robust": None if one.robust is None else float(one.robust[place]),  # type: ignore[index]
                        "unbiased": float(one.frequencies.frequencies[place]),
                    }
                )
        else:
            table.append(row)
    return table


def write(path: Path, survey: Survey, found: Sequence[Estimate]) -> None:
    """Write estimates to a new file, by its suffix: .csv, .json or .parquet."""
    if path.exists():
        raise ParameterError(f"out must not exist, got {path}")
    table, kind = rows(survey, found), path.suffix.lower()
    if kind == ".csv":
        lines = io.StringIO(newline="")
        writer = csv.DictWriter(lines, FIELDS)
        writer.writeheader()
        writer.writerows(table)
        write_new(path, lines.getvalue())
    elif kind == ".json":
        write_new(path, json.dumps({"survey": survey.name, "estimates": table}, indent=1) + "\n")
    elif kind == ".parquet":
        try:
            import pyarrow as pa
            import pyarrow.parquet
        except ImportError as error:
            raise MissingExtra("Parquet", "collect") from error
        types = (pa.string(), pa.string(), pa.int64(), *[pa.float64()] * 5)
        schema = pa.schema(list(zip(FIELDS, types, strict=True)))
        with new_file(path) as file:
            pyarrow.parquet.write_table(pa.Table.from_pylist(table, schema=schema), file)
    else:
        raise ParameterError(f"out must end in .csv, .json or .parquet, got {path.name!r}")
