"""Rows on Spark: a session that reads alike whatever it was set up for, and statements that can be ended.

    source: {spark: "local[2]", parquet: rows.parquet}                    # a file, or a folder of them
    source: {spark: "spark://10.0.0.5:7077", table: visits, schema: town} # as its catalogue calls it

Whoever operates Spark says in its own files (`spark-defaults.conf`) how much memory it has and where its
catalogue is. What decides the meaning of a statement is set here for each data set, in a session of its own.
A process speaks to one Spark. It is started when the first data set needs it, by a thread that is not the
main one (`SparkContext` takes Ctrl-C for itself there), with its pages off and what it writes to the terminal
thrown away: both quote rows.

Before ibis sees a table, `columns` makes every column a number, a truth value or a text in valid UTF-8 that
is compared by its bytes: no type of Spark's beyond these reaches the preparation.

Not here: the preparation (`prepare`), which is one for all engines, and snapshots (`spark_snapshot`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from reticent.errors import MissingExtra, ParameterError, SourceError
from reticent.query.rows import sealed
from reticent.tables.row_files import located, located_folder

Result = TypeVar("Result")
Seen = Callable[[int, int], None]  # tasks that are done, of so many that are known so far

_MASTER = re.compile(r"local(\[([1-9][0-9]{0,3}|\*)\])?|spark://[A-Za-z0-9.-]+:[0-9]{1,5}")
_HERE = re.compile(r"local.*|spark://(127\.0\.0\.1|localhost):.*")
_TESTED = "4.0."  # versions of Spark
_LOOK_S = 0.5  # how often progress is looked at
# Of a context, when it is started.
_STARTED = {
    "spark.app.name": "reticent",
    "spark.ui.enabled": "false",  # its pages show how many rows there are
    "spark.eventLog.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.ui.enabled": "false",
}
# Of a session. Some are what Spark does by itself, but somebody may have set it up otherwise.
_SETTINGS = {
    "spark.sql.ansi.enabled": "false",  # a cast that fails gives NULL, not an error that quotes the cell
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.session.collation.default": "UTF8_BINARY",
    "spark.sql.caseSensitive": "false",
    "spark.sql.runSQLOnFiles": "false",  # no name of a table is a path
    "spark.sql.variable.substitute": "false",  # ${...} in a category is a category
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # What the footers of files say is not believed, and no file or row is passed over.
    "spark.sql.parquet.filterPushdown": "false",
    "spark.sql.parquet.aggregatePushdown": "false",
    "spark.sql.orc.filterPushdown": "false",
    "spark.sql.optimizer.metadataOnly": "false",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.int96AsTimestamp": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",  # else days before 1582 are errors
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.legacy.parquet.nanosAsLong": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # all folders would decide a type
    "spark.sql.legacy.charVarcharAsString": "false",
    "spark.sql.readSideCharPadding": "true",
}
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean")
_MOMENTS = ("date", "timestamp", "timestamp_ntz")
_DIGITS = 38  # of a decimal
_CHAR = "__CHAR_VARCHAR_TYPE_STRING"  # where a schema keeps that a text is padded
_SUMMARIES = ("_metadata", "_common_metadata")  # beside files of Parquet
_PROVIDERS = ("parquet",)  # of tables: what passed the tests
_lock = threading.Lock()
_users = 0
_is_ours = False


def check_master(given: str) -> None:
    """Refuse what is no Spark that was tried."""
    if not _MASTER.fullmatch(given):
        scheme = given.partition("://")[0] if "://" in given else given
        raise ParameterError(
            f"source.spark must be local, local[N] or spark://HOST:PORT, got {scheme!r:.40}: "
            "other ways to run Spark have not been tried"
        )


# Sessions


def connected(master: str) -> Any:
    """A back end of ibis in a session of its own. `disconnect` leaves the Spark to those who still use it.

    Raises:
        MissingExtra: there is no pyspark.
        SourceError: there is no Java, or no such Spark.
        ParameterError: this process speaks to another Spark already, or it is of another version.
    """
    global _users
    check_master(master)
    if find_spec("pyspark") is None:
        raise MissingExtra("a table on Spark", "spark")
    import pyspark

    if not pyspark.__version__.startswith(_TESTED):
        raise ParameterError(f"source.spark needs pyspark {_TESTED}x, got {pyspark.__version__:.20}")
    with _lock:
        session = _elsewhere(lambda: _session(master))
        _users += 1
    try:
        for name, value in _SETTINGS.items():
            session.conf.set(name, value)
        return _backend()().connect(session)
    except BaseException:
        _released()
        raise


def _session(master: str) -> Any:
    """A session of the process' context, which is started if there is none."""
    global _is_ours
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    if _is_ours and gateway is not None and gateway.proc.poll() is not None:  # its process died
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
        _is_ours = False
    context = SparkContext._active_spark_context
    if context is not None and context.master != master:
        raise ParameterError(
            f"source.spark must be {context.master} in this process, which speaks to one Spark, got {master}"
        )
    if context is None:
        conf = SparkConf().setMaster(master).setAll(list(_STARTED.items()))
        if _HERE.fullmatch(master):
            conf.setAll([(f"spark.driver.{name}", "127.0.0.1") for name in ("host", "bindAddress")])
        if SparkContext._gateway is None:
            check_java()
            silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            SparkContext._ensure_initialized(gateway=launch_gateway(conf, silent))
        context = SparkContext(conf=conf)
        context.setLogLevel("OFF")
        _is_ours = True
    return SparkSession(context).newSession()


def _elsewhere(work: Callable[[], Result]) -> Result:
    """What the work gives in another thread than the main one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def _released() -> None:
    """Stop Spark when nobody uses it any more, if it was started here."""
    global _users, _is_ours
    from pyspark import SparkContext

    with _lock:
        _users -= 1
        if _users == 0 and _is_ours and SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
            _is_ours = False


@cache
def _backend() -> Any:
    import ibis
    from ibis.backends.pyspark import Backend

    assert ibis.pyspark  # which makes its options known

    class Shared(Backend):  # type: ignore[misc]
        """A back end that ends its session and not everybody's Spark."""

        def disconnect(self) -> None:
            """Forget the session."""
            _released()

    return Shared


def check_java() -> None:
    """Refuse a machine without Java, in words: Spark's own are thrown away."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise SourceError("Spark needs Java 17 or later, and there is none on this machine")


# Tables


def opened(
    source: Mapping[str, Any],
    base: Path,
    chosen: Callable[[Sequence[str]], list[str]],
    check_schema: Callable[[Any, Sequence[str]], None],
) -> Any:
    """Return the back end and its table, whose columns are numbers, truth values and texts.

    Args:
        source: Fields of the declaration's source.
        base: Folder that paths are relative to.
        chosen: Returns the columns that are needed, of a source with columns of these names.
        check_schema: Is called with Spark's schema of the source and these columns before any is converted.
    """
    path = _located(str(source["parquet"]), base) if "parquet" in source else None
    if path is not None:
        _check_files(path)
    engine = connected(str(source["spark"]))
    with ending_badly(engine):
        session = engine._session
        if path is None:
            frame = _table(session, str(source["table"]), str(source.get("schema", "default")))
        else:
            frame = session.read.parquet(f"file:{path}")
        _check_names(frame.columns)
        names = chosen(frame.columns)
        check_schema(frame.schema, names)
        if path is None:
            _check_stored(frame, names)
        frame.selectExpr(*columns(frame.schema, names)).createOrReplaceTempView("source")
        return engine, engine.table("source")


@contextmanager
def ending_badly(engine: Any) -> Iterator[None]:
    """Disconnect if what is done with the engine fails."""
    try:
        yield
    except BaseException:
        engine.disconnect()
        raise


def columns(schema: Any, names: Sequence[str]) -> list[str]:
    """Columns of a schema as SQL that ibis and every later statement read alike.

    A text is compared by its bytes whatever its collation, has no blanks that its type padded it with, and
    is made valid where it is no UTF-8; bytes that are none say nothing, as elsewhere. A moment is the text
    that it is in UTC. Of nested types, spans and all others nothing is read.
    """
    found = []
    for name in names:
        (field,) = (one for one in schema.fields if one.name == name)
        kind, place = field.dataType.simpleString(), quoted(name)
        if kind.startswith("string"):
            text = f"collate({place}, 'UTF8_BINARY')"
            padded = str(field.metadata.get(_CHAR, "")).startswith("char")
            said = f"make_valid_utf8({f'rtrim({text})' if padded else text})"
        elif kind in _NUMBERS or kind.startswith("decimal"):
            said = place
        elif kind in _MOMENTS:
            said = f"CAST({place} AS STRING)"
        elif kind == "binary":
            said = f"try_validate_utf8(CAST({place} AS STRING))"
        else:
            said = "CAST(NULL AS STRING)"
        found.append(f"{said} AS {place}")
    return found


def quoted(name: str) -> str:
    """An identifier as Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


def _table(session: Any, table: str, schema: str) -> Any:
    """A table or view that the catalogue lists. A view is as its owner made it."""
    place = f"{quoted(schema)}.{quoted(table)}"
    if not session.catalog.tableExists(place):
        raise sealed.no_table(table, schema)
    told = {row[0]: row[1] for row in session.sql(f"DESCRIBE TABLE EXTENDED {place}").collect()}
    provider = str(told.get("Provider", "")).lower()
    if told.get("Type") != "VIEW" and provider not in _PROVIDERS:
        raise ParameterError(
            f"source.table must be a table of {', '.join(_PROVIDERS)} or a view, got one of "
            f"{provider!r:.20}: other formats have not passed the tests of total functions"
        )
    return session.table(place)


def _check_names(names: Sequence[str]) -> None:
    small = [name.lower() for name in names]
    if len(set(small)) != len(small):
        raise ParameterError("source must have columns whose names differ by more than capitals")


def _check_stored(frame: Any, names: Sequence[str]) -> None:
    """Refuse columns of a table that are stored as Spark fails on, as far as its files lie here."""
    for file in frame.inputFiles():
        path = Path(unquote(urlsplit(file).path))
        if urlsplit(file).scheme == "file" and path.is_file():
            _check_types("source.table", path, names)


# Files


def _located(given: str, base: Path) -> Path:
    """The real path of a file or a folder of files."""
    field = "source.parquet"
    path = located_folder(field, given, base) if (base / given).is_dir() else located(field, given, base)
    if set("*?[]{}\\,") & set(str(path)):
        raise ParameterError(f"{field} must be a path without * ? [ ] {{ }} \\ and commas, got {str(path)!r}")
    return path


def _check_files(path: Path) -> None:
    """Refuse files that Spark fails on, or finds to differ, while it reads them: that is after a charge."""
    import pyarrow.parquet

    parts = sorted(_parts(path)) if path.is_dir() else [path]
    if not parts:
        raise ParameterError(f"source.parquet must be a file or a folder of files, {path.name} has none")
    first = pyarrow.parquet.read_schema(parts[0])
    for part in parts:
        if not pyarrow.parquet.read_schema(part).equals(first):
            raise ParameterError(
                "source.parquet must be files of one schema: two of them have other columns or types"
            )
        _check_types("source.parquet", part)


def _check_types(field: str, file: Path, names: Sequence[str] | None = None) -> None:
    """Refuse types of a Parquet file, or of some of its columns, on which Spark fails."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(file) as opened_file:
        stored = [opened_file.schema.column(leaf) for leaf in range(len(opened_file.schema))]
        old = {leaf.path for leaf in stored if leaf.physical_type == "INT96"}  # how Spark writes moments
        for one in opened_file.schema_arrow:
            reason = "" if one.name in old else unreadable(one.type)
            if reason and (names is None or one.name in names):
                raise ParameterError(
                    f"{field} must have types that Spark reads alike, {one.name!r:.80} is {reason}"
                )


def _parts(folder: Path) -> Iterator[Path]:
    """What Spark reads in a folder, or takes its columns from: all that is not hidden from it.

    Raises:
        ParameterError: a link is among it. Its rows lie elsewhere, where they may be noted for somebody else.
    """
    for one in folder.iterdir():
        if _is_hidden(one.name):
            continue
        if one.is_symlink():
            raise ParameterError(
                f"source.parquet must be a folder without symbolic links, got {one.name!r:.80}"
            )
        if one.is_dir():
            yield from _parts(one)
        else:
            yield located("source.parquet", one.name, folder)


def _is_hidden(name: str) -> bool:
    """Whether Spark passes over a name: `_x=1` it reads, and summaries of a folder it believes."""
    if name.startswith("_"):
        return "=" not in name and not name.startswith(_SUMMARIES)
    return name.startswith(".")


def unreadable(kind: Any) -> str:
    """Why a type of Arrow's in a Parquet file is not read on Spark; empty if it is.

    Spark fails on nanoseconds, times of day, half floats and decimals beyond 38 digits, and on milliseconds
    where a cell has too many of them. Spans of time it takes for numbers, and types of others for bytes.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_timestamp(kind) and kind.unit in ("ns", "s", "ms"):
        return f"{kind}: write it in microseconds"
    if types.is_decimal(kind) and kind.precision > _DIGITS:
        return f"{kind}: write at most {_DIGITS} digits"
    other = types.is_float16(kind) or types.is_time(kind) or types.is_duration(kind)
    return str(kind) if other or isinstance(kind, pa.BaseExtensionType) else ""


# Statements


class Jobs:
    """The statements of one data set, one after the other: how far they are, and an end to them.

    Args:
        engine: a back end of `connected`.
    """

    def __init__(self, engine: Any) -> None:
        self._engine, self._session = engine, engine._session
        self._pool = ThreadPoolExecutor(1, "spark")
        self._group = ""

    def fetched(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        return self.run(lambda: [tuple(row) for row in self._session.sql(sql).collect()])

    def run(self, work: Callable[[], Result], seen: Seen | None = None) -> Result:
        """What the work gives. Whoever is interrupted while waiting ends what runs on Spark.

        Args:
            work: calls the session.
            seen: is told now and then how far it is.
        """
        group = self._group = f"reticent-{uuid.uuid4().hex}"
        future = self._pool.submit(self._grouped, group, work)
        try:
            while seen is not None and not future.done():
                seen(*self.progress())
                _waited(future)
            return future.result()
        except BaseException:
            if not future.done():
                self.cancel()
                _waited(future, None)
            raise

    def _grouped(self, group: str, work: Callable[[], Result]) -> Result:
        self._session.sparkContext.setJobGroup(group, "reticent", interruptOnCancel=True)
        return work()

    def progress(self) -> tuple[int, int]:
        """Tasks of the running statement that are done, and how many are known so far."""
        tracker = self._session.sparkContext.statusTracker()
        done = known = 0
        for job in tracker.getJobIdsForGroup(self._group):
            told = tracker.getJobInfo(job)
            for stage in () if told is None else told.stageIds:
                info = tracker.getStageInfo(stage)
                if info is not None:
                    done, known = done + info.numCompletedTasks, known + info.numTasks
        return done, known

    def cancel(self) -> None:
        """End the statement that runs, if one does: whoever waits for it gets an error."""
        if self._group:
            self._session.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(self._group)

    def close(self) -> None:
        """Take no more statements, and leave the session."""
        self._pool.shutdown()
        self._engine.disconnect()


def _waited(future: Any, timeout_s: float | None = _LOOK_S) -> None:
    """Wait for the end of it, whichever it is."""
    from concurrent.futures import wait

    wait([future], timeout_s)
