"""A snapshot of rows on Spark: a folder of Parquet files with the codes, which Spark writes and reads.

Beside them lies `_about.json`, the declaration under which they were made; files whose names begin so are no
rows to Spark. The folder appears when it is whole. All who run Spark must find it under the same path.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from reticent.errors import ParameterError
from reticent.query.declarations.datasets import DataSet
from reticent.query.rows import snapshot, spark
from reticent.query.rows.bins import SPARK
from reticent.query.rows.source import Table, numbered, quietly

_ABOUT = "_about.json"


def make(engine: Any, sql: str, data: DataSet, path: Path, seen: spark.Seen | None = None) -> None:
    """Write the codes that a statement selects; as `snapshot.make`, whose errors it has.

    Args:
        engine: a back end of `spark.connected`; it is disconnected in the end.
        sql: selects c0, c1, ...
        data: what is declared.
        path: of the folder.
        seen: is told how far it is.
    """
    jobs, draft = spark.Jobs(engine), path.with_name(f".{path.name}.{os.getpid()}.part")
    kinds = ", ".join(
        f"CAST({name} AS {snapshot.smallest_type(column)}) AS {name}" for name, column in data.coded.items()
    )
    try:
        draft.mkdir(mode=0o700)
        codes = f"SELECT {kinds} FROM ({sql}) AS rows"  # noqa: S608 - made by us
        quietly(lambda: jobs.run(lambda: _written(engine, codes, draft), seen))
        ((found,),) = quietly(lambda: jobs.fetched(_counting(engine, draft)))
        snapshot.check_rows(data, found)
        text = json.dumps(snapshot.declaration(data), sort_keys=True, separators=(",", ":"))
        (draft / _ABOUT).write_text(text, encoding="utf-8")
        for part in (*draft.iterdir(), draft):
            _on_disk(part)
        draft.replace(path)
    finally:
        jobs.close()
        shutil.rmtree(draft, ignore_errors=True)


def open(path: Path, data: DataSet) -> Table:  # noqa: A001 - read as spark_snapshot.open
    """The rows of a snapshot; as `snapshot.open`, whose errors it has."""
    if not path.is_dir():
        raise ParameterError(f"snapshot must be a folder, there is none at {path}")
    kept = quietly(lambda: json.loads((path / _ABOUT).read_text(encoding="utf-8")))
    snapshot.compare(kept, snapshot.declaration(data), path)
    engine = quietly(lambda: spark.connected(str(data.source["spark"])), "the source cannot be reached")
    with spark.ending_badly(engine):
        quietly(lambda: _viewed(engine, path))
        jobs = spark.Jobs(engine)
    return Table("codes", numbered(data), jobs.fetched, jobs.close, SPARK, jobs.cancel)


def _written(engine: Any, sql: str, draft: Path) -> None:
    engine._session.sql(sql).write.mode("append").parquet(f"file:{draft}")


def _counting(engine: Any, folder: Path) -> str:
    _viewed(engine, folder)
    return "SELECT count(*) FROM codes"


def _viewed(engine: Any, folder: Path) -> None:
    engine._session.read.parquet(f"file:{folder}").createOrReplaceTempView("codes")


def _on_disk(path: Path) -> None:
    place = os.open(path, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)
