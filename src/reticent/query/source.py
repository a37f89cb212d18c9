"""Where the rows are: a file, a database or a snapshot, behind one small table of whole numbers.

    with connect(data, base) as table:
        table.tally(f"SELECT count(*), sum({table.names['age']}) FROM {table.relation}")

ibis describes the preparation once per table (`prepare`); every later statement is plain SQL on the text
that it compiled, so that asking costs no compilation. A CSV file is read as text under its own header: types
guessed from the rows would depend on them.

A statement fails with the same line whatever the rows hold, and what the engine said is dropped.
"""

from __future__ import annotations

import csv
import threading
import warnings
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar

from reticent.errors import ParameterError, ParameterTypeError, ReticentError, SourceError
from reticent.query.datasets import DataSet
from reticent.query.prepare import prepared

Result = TypeVar("Result")

FORMS = ("csv", "parquet", "duckdb", "url")
_LONGEST_HEADER = 1 << 20
_DESCRIBING = threading.Lock()  # filters of warnings belong to the whole process
# No guessing, no rejected rows: a short line is filled with NULL, what is too much in a line is dropped.
# A parallel reader would refuse line breaks in quotes.
_CSV = (
    "auto_detect=false, header=true, quote='\"', escape='\"', "
    "strict_mode=false, null_padding=true, parallel=false"
)
# Nothing is fetched from the network, whatever a file says.
OFFLINE: dict[str, Any] = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}


class Table:
    """The prepared rows of a data set.

    Attributes:
        relation: what to put after FROM.
        names: the integer column of each declared column.
    """

    def __init__(
        self,
        relation: str,
        names: Mapping[str, str],
        run: Callable[[str], list[tuple[Any, ...]]],
        end: Callable[[], None],
    ) -> None:
        self.relation, self.names = relation, names
        self._run, self._end = run, end
        self._one_at_a_time = threading.Lock()

    def tally(self, sql: str) -> list[tuple[int, ...]]:
        """The rows of one statement; every value a whole number, NULL is 0.

        Raises:
            SourceError: the engine refused, for whatever reason.
        """

        def exact() -> list[tuple[int, ...]]:
            with self._one_at_a_time:
                rows = self._run(sql)
            return [tuple(map(_whole, row)) for row in rows]

        return quietly(exact)

    def close(self) -> None:
        """End the connection."""
        with self._one_at_a_time:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(data: DataSet, base: Path, snapshot: Path | None = None, frame: Any = None) -> Table:
    """The rows of a data set: of its snapshot if there is one, else of its source.

    Args:
        data: what is declared.
        base: the folder that paths are relative to.
        snapshot: where a snapshot would be.
        frame: a pandas data frame or an Arrow table that holds the rows, instead of either.

    Raises:
        ParameterError: the source is not there, or it or the snapshot does not fit the declaration.
        SourceError: it cannot be read.
    """
    if frame is None and snapshot is not None and snapshot.exists():
        from reticent.query import snapshot as snapshots

        return snapshots.open(snapshot, data)
    engine, expression = reach(data, base) if frame is None else _framed(data, frame)
    sql = engine.compile(expression)
    run = fetched if engine.name == "duckdb" else _fetched
    place = engine.con if engine.name == "duckdb" else engine
    return Table(f"({sql}) AS rows", numbered(data), partial(run, place), engine.disconnect)


def _whole(value: Any) -> int:
    """A value of an engine as a whole number; a float is a mistake in the statement."""
    if value is None:
        return 0
    if isinstance(value, (int, Decimal)):
        return int(value)
    raise TypeError


def numbered(data: DataSet) -> Mapping[str, str]:
    """The integer columns by the declared names."""
    return MappingProxyType({column.name: f"c{number}" for number, column in enumerate(data.columns)})


def fetched(connection: Any, sql: str) -> list[tuple[Any, ...]]:
    """What DuckDB answers."""
    rows: list[tuple[Any, ...]] = connection.execute(sql).fetchall()
    return rows


def _fetched(engine: Any, sql: str) -> list[tuple[Any, ...]]:
    cursor = engine.raw_sql(sql)
    try:
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows
    finally:
        cursor.close()


def reach(data: DataSet, base: Path) -> tuple[Any, Any]:
    """The ibis back end of the source and the prepared expression on it."""
    form = next((form for form in FORMS if form in data.source), None)
    if form is None:
        raise ParameterError(f"source must be one of {', '.join(FORMS)}, got nothing")
    return quietly(lambda: _reached(form, data, base), "the source cannot be reached")


def _reached(form: str, data: DataSet, base: Path) -> tuple[Any, Any]:
    engine, source = _opened(form, data.source, base)
    try:
        return engine, prepared(engine, source, data)
    except BaseException:
        engine.disconnect()
        raise


def _framed(data: DataSet, frame: Any) -> tuple[Any, Any]:
    """A frame as a source. Columns of mixed objects become text: guessing their type would depend on them."""
    import duckdb
    import ibis

    if not hasattr(frame, "columns") or not hasattr(frame, "shape"):
        raise ParameterTypeError(f"frame must be a data frame or an Arrow table, got {type(frame).__name__}")
    if hasattr(frame, "dtypes"):
        mixed = [name for name, kind in frame.dtypes.items() if kind.kind == "O"]
        frame = frame.assign(**{name: frame[name].astype("string") for name in mixed})
    connection = duckdb.connect(config=OFFLINE)
    connection.register("source", frame)
    engine, source = _with_table(ibis.duckdb.from_connection(connection), "source")
    return engine, quietly(lambda: prepared(engine, source, data))


def quietly(call: Callable[[], Result], reason: str = "the data cannot be read") -> Result:
    """What the call gives; a failure of the engine is a SourceError that nothing of the engine hangs on.

    An engine quotes rows, and addresses with passwords, in its errors.
    """
    try:
        return call()
    except (ReticentError, ModuleNotFoundError):
        raise
    except Exception:  # noqa: S110 - raised below, where it is no context of the new error
        pass
    raise SourceError(reason)


def _opened(form: str, source: Mapping[str, Any], base: Path) -> tuple[Any, Any]:
    if form == "url":
        return _database(str(source["url"]), source)
    path = base / str(source[form])
    if not path.is_file():
        raise ParameterError(f"source.{form} must be a file, there is none at {path}")
    if form == "duckdb":
        return _tables(path, source)
    if set("*?[") & set(str(path)):
        raise ParameterError(f"source.{form} must be a path without * ? [, got {str(path)!r}")
    return _file(f"read_parquet({quoted(path)})" if form == "parquet" else _csv(path, source))


def _file(function: str) -> tuple[Any, Any]:
    import duckdb
    import ibis

    connection = duckdb.connect(config=OFFLINE)
    connection.execute(f"CREATE VIEW source AS SELECT * FROM {function}")  # noqa: S608 - quoted by us
    return _with_table(ibis.duckdb.from_connection(connection), "source")


def _tables(path: Path, source: Mapping[str, Any]) -> tuple[Any, Any]:
    import duckdb
    import ibis

    engine = ibis.duckdb.from_connection(duckdb.connect(str(path), read_only=True, config=OFFLINE))
    return _with_table(engine, source["table"], source.get("schema"))


def _database(url: str, source: Mapping[str, Any]) -> tuple[Any, Any]:
    import ibis

    engine = ibis.connect(url)
    if engine.name == "postgres":
        engine.raw_sql("SET default_transaction_read_only = on").close()
    return _with_table(engine, source["table"], source.get("schema"))


def _with_table(engine: Any, name: str, schema: str | None = None) -> tuple[Any, Any]:
    try:
        return engine, described(engine, name, schema)
    except BaseException:
        engine.disconnect()
        raise


def described(engine: Any, name: str, schema: str | None = None) -> Any:
    """A table of the engine: the names and types of its columns."""
    with _DESCRIBING, warnings.catch_warnings():  # ibis 12 calls what DuckDB 2 warns of
        warnings.simplefilter("ignore", DeprecationWarning)
        return engine.table(name, database=schema)


def _csv(path: Path, source: Mapping[str, Any]) -> str:
    delimiter = str(source.get("delimiter", ","))
    names = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in header(path, delimiter))
    return f"read_csv({quoted(path)}, {_CSV}, delim={quoted(delimiter)}, columns={{{names}}})"


def header(path: Path, delimiter: str) -> list[str]:
    """The first line of a CSV file: the names of its columns."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        lines = iter(lambda: file.readline(_LONGEST_HEADER), "")
        names = next(csv.reader(lines, delimiter=delimiter), [])
    if not names or len(set(names)) != len(names) or not all(names):
        raise ParameterError("source.csv must start with a line of column names, all of them different")
    return names


def quoted(text: object) -> str:
    """A text as SQL."""
    return "'" + str(text).replace("'", "''") + "'"
