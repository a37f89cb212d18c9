"""Where the rows are: a file, a database or a snapshot, behind one small table of whole numbers.

    with connect(data, base) as table:
        table.tally(f"SELECT count(*), sum({table.names['age']}) FROM {table.relation}")

ibis describes the preparation once per table (`prepare`); every later statement is plain SQL on the text that
it compiled, so that asking costs no compilation. A CSV file is read as text under its own header by
`tables.records`, compressed or not: types, delimiters and ends of lines guessed from the rows would depend on
them. Columns whose types DuckDB reads otherwise than the same values under another type go through `storage`.

A statement fails with the same line whatever the rows hold, and what the engine said is dropped.
"""

from __future__ import annotations

import re
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from reticent.errors import ParameterError, ReticentError, SourceError, StorageUnavailable
from reticent.files import FULL, is_out_of_space
from reticent.query.declarations.datasets import DataSet
from reticent.query.rows import sealed, spark, storage, stored_types
from reticent.query.rows.bins import DUCKDB, SPARK
from reticent.query.rows.prepare import needed, prepared
from reticent.query.rows.sealed import quoted
from reticent.tables import packed
from reticent.tables.records import CsvFile
from reticent.tables.row_files import located

Result = TypeVar("Result")

FORMS = ("csv", "parquet", "duckdb", "url", "spark")
_DATABASES = ("duckdb", "url")  # whose tables have types of their own
_SERVERS = ("postgresql", "postgres")  # schemes of addresses
_OLDEST = (
    14  # of PostgreSQL's versions; others before it wrote doubles otherwise, and knew no infinite decimals
)
_TESTED = re.compile(r"PostgreSQL (1[4-9]|[2-9][0-9])([.][0-9]+)* (?!.*(Greenplum|Redshift|Yugabyte))")
# A session whose texts do not depend on how the server, the database or the role is set up.
_SETTINGS = (
    "default_transaction_read_only = on",
    "TimeZone = 'UTC'",
    "DateStyle = 'ISO'",
    "extra_float_digits = 1",
)
# Ordinary, partitioned and foreign tables, views of both kinds.
_SERVED = """
SELECT n.nspname, c.relname
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = %(table)s AND n.nspname = coalesce(%(schema)s, 'public')
AND c.relkind IN ('r', 'p', 'f', 'v', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
AND n.nspname NOT LIKE 'pg\\_%%'
"""
_COLLATED = """
SELECT a.attname
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(table)s
AND a.attnum > 0 AND NOT a.attisdropped AND a.attcollation <> 0
"""
_TOGETHER = 256  # rows
_FRAMES_IN_NOTE = 12  # of a failure's traceback: enough to reach from the engine into our own code
_DESCRIBING = threading.Lock()  # filters of warnings belong to the whole process


class Table:
    """The prepared rows of a data set.

    Attributes:
        relation: what to put after FROM.
        names: the integer column of each declared column.
        engine: whose SQL it takes, duckdb, postgres or pyspark.
    """

    def __init__(
        self,
        relation: str,
        names: Mapping[str, str],
        run: Callable[[str], list[tuple[Any, ...]]],
        end: Callable[[], None],
        engine: str = DUCKDB,
        cancel: Callable[[], None] | None = None,
    ) -> None:
        self.relation, self.names, self.engine = relation, names, engine
        self._run, self._end, self._cancel = run, end, cancel
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
        """End the connection, and what runs on a cluster: whoever waits for it gets an error."""
        if self._cancel is not None:
            self._cancel()
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


def connect(
    data: DataSet,
    base: Path,
    snapshot: Path | None = None,
    frame: Any = None,
    *,
    order_key: str | None = None,
) -> Table:
    """Open the rows of a data set: of its snapshot if there is one, else of its source.

    Args:
        data: The declaration.
        base: Folder that paths are relative to.
        snapshot: Path where a snapshot would be.
        frame: A pandas data frame or an Arrow table that holds the rows, instead of either.
        order_key: The secret that orders the rows of each person (`row_order`), for rows that need one.

    Raises:
        ParameterError: the source is not there, or it or the snapshot does not fit the declaration.
        SourceError: it cannot be read.
    """
    if frame is None and snapshot is not None and snapshot.exists():
        from reticent.query.rows import snapshot as snapshots

        return snapshots.open(snapshot, data)
    if frame is None:
        engine, expression = reach(data, base, order_key)
    else:
        engine, expression = _framed(data, frame, order_key)
    sql = engine.compile(expression)
    if engine.name == SPARK:
        jobs = spark.Jobs(engine)
        return Table(f"({sql}) AS rows", numbered(data), jobs.fetched, jobs.close, SPARK, jobs.cancel)
    run = fetched if engine.name == "duckdb" else _fetched
    place = engine.con if engine.name == "duckdb" else engine
    return Table(f"({sql}) AS rows", numbered(data), partial(run, place), engine.disconnect, engine.name)


def _whole(value: Any) -> int:
    """A value of an engine as a whole number; a float is a mistake in the statement."""
    if value is None:
        return 0
    if isinstance(value, (int, Decimal)):
        return int(value)
    raise TypeError


def numbered(data: DataSet) -> Mapping[str, str]:
    """Return the names of the integer columns, by the names that questions use."""
    return MappingProxyType({column.name: name for name, column in data.coded.items()})


def fetched(connection: Any, sql: str) -> list[tuple[Any, ...]]:
    """What DuckDB answers, in parts: no other thread runs while one is made."""
    answer = connection.execute(sql)
    rows: list[tuple[Any, ...]] = []
    while part := answer.fetchmany(_TOGETHER):
        rows += part
    return rows


def _fetched(engine: Any, sql: str) -> list[tuple[Any, ...]]:
    cursor = engine.raw_sql(sql)
    try:
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows
    finally:
        cursor.close()


def reach(data: DataSet, base: Path, order_key: str | None = None) -> tuple[Any, Any]:
    """Return the ibis back end of the source and the prepared expression on it."""
    form = next((form for form in reversed(FORMS) if form in data.source), None)  # Spark may read Parquet
    if form is None:
        raise ParameterError(f"source must be one of {', '.join(FORMS)}, got nothing")
    return quietly(lambda: _reached(form, data, base, order_key), "the source cannot be reached")


def _reached(form: str, data: DataSet, base: Path, order_key: str | None) -> tuple[Any, Any]:
    engine, source = _opened(form, data, base)
    with spark.ending_badly(engine):
        if form in _DATABASES:
            names = needed(data, source.columns)
            stored_types.check_types(data, stored_types.of_table(source, names, engine.name))
        return engine, prepared(engine, source, data, order_key)


def _framed(data: DataSet, frame: Any, order_key: str | None) -> tuple[Any, Any]:
    """Return a frame as a source."""
    if not hasattr(frame, "iloc") and callable(getattr(frame, "to_arrow", None)):  # of Polars
        frame = frame.to_arrow()
    table = storage.of_frame(frame, partial(_checked_names, data, frame))
    engine = sealed.engine()
    with spark.ending_badly(engine):
        engine.con.register("source", table)
        return engine, quietly(lambda: prepared(engine, described(engine, "source"), data, order_key))


def _checked_names(data: DataSet, frame: Any, known: Sequence[str]) -> Sequence[str]:
    """Return the columns of a frame that are needed, once their types were found to fit."""
    names = needed(data, known)
    if all(known.count(name) == 1 for name in names):  # else the frame is refused for that
        stored_types.check_types(data, stored_types.of_frame(frame, names), is_frame=True)
    return names


def find_type_faults(data: DataSet, base: Path) -> list[str]:
    """Return what the schema of a source can never hold of what is declared, a sentence for each column.

    Raises:
        SourceError: The source cannot be reached.
    """
    form = next((form for form in reversed(FORMS) if form in data.source), "csv")
    if form == "csv":
        return []

    def described_types() -> dict[str, stored_types.StoredType]:
        if form == "parquet":
            import pyarrow.parquet

            schema = pyarrow.parquet.read_schema(located("source.parquet", str(data.source[form]), base))
            return stored_types.arrow_types(schema, needed(data, schema.names))
        seen: dict[str, stored_types.StoredType] = {}
        engine, table = _opened(form, data, base, seen)
        try:
            return seen or stored_types.of_table(table, needed(data, table.columns), engine.name)
        finally:
            engine.disconnect()

    return stored_types.find_type_faults(data, quietly(described_types, "the source cannot be reached"))


def quietly(call: Callable[[], Result], reason: str = "the data cannot be read") -> Result:
    """Return what the call returns; make every failure of an engine one of ours, without its message.

    An engine quotes rows, and addresses with passwords, in its errors. The new error has the type of the
    cause and where it was raised as its details, which `reticent --debug` shows.
    """
    try:
        return call()
    except (ReticentError, ModuleNotFoundError):
        raise
    except Exception as cause:
        failure: ReticentError = SourceError(reason, details=_describe_cause(cause))
        if is_out_of_space(cause):
            failure = StorageUnavailable(f"the rows cannot be worked on: {FULL}")
    raise failure  # here, where the cause is no context of it


def _describe_cause(cause: BaseException) -> str:
    """Return the type of an engine's error and the lines of code that led to it: nothing that it says."""
    kind = f"{type(cause).__module__}.{type(cause).__qualname__}"
    frames = traceback.extract_tb(cause.__traceback__)[-_FRAMES_IN_NOTE:]
    places = [f"  {Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames]
    return "\n".join([f"Cause: {kind}, without its message, which may quote rows, raised in", *places])


def _opened(
    form: str, data: DataSet, base: Path, seen: dict[str, stored_types.StoredType] | None = None
) -> tuple[Any, Any]:
    """Open a source whose schema fits; `seen` takes the stored types where the engine's table hides them."""
    source = data.source
    if form == "spark":

        def check_schema(schema: Any, names: Sequence[str]) -> None:
            types = stored_types.of_spark(schema, names)
            stored_types.check_types(data, types)
            if seen is not None:
                seen.update(types)

        found: tuple[Any, Any] = spark.opened(source, base, partial(needed, data), check_schema)
        return found
    if form == "url":
        return _database(str(source["url"]), source)
    path = located(f"source.{form}", str(source[form]), base)
    if form == "duckdb":
        return _tables(path, source)
    if set("*?[") & set(str(path)):
        raise ParameterError(f"source.{form} must be a path without * ? [, got {str(path)!r}")
    return _file(path, _csv(path, data) if form == "csv" else _parquet(path, data))


def _file(path: Path, stream: storage.Stream | None) -> tuple[Any, Any]:
    """A stream of rows; without one, a Parquet file as DuckDB reads it."""
    engine = sealed.engine(path if stream is None else None)
    with spark.ending_badly(engine):
        if stream is None:
            # a folder called age=7 is no column
            rows = f"read_parquet({quoted(path)}, hive_partitioning = false)"
            engine.con.execute(f"CREATE VIEW source AS SELECT * FROM {rows}")  # noqa: S608 - quoted by us
        else:
            engine.con.register("source", stream)
        return engine, described(engine, "source")


def _tables(path: Path, source: Mapping[str, Any]) -> tuple[Any, Any]:
    engine = sealed.engine(path, is_database=True)
    with spark.ending_badly(engine):
        *within, name = sealed.own_table(engine.con, source["table"], source.get("schema"))
        place = ".".join(map(_named_part, (*within, name)))
        columns = engine.con.execute(f"DESCRIBE {place}").fetchall()
        texts = [column for column, kind, *_ in columns if kind == "VARCHAR"]
        return engine, _by_bytes(engine, described(engine, name, within), place, texts)


def _database(url: str, source: Mapping[str, Any]) -> tuple[Any, Any]:
    """A table of PostgreSQL, read only. Views, and tables that lie elsewhere, are as its owner made them."""
    import ibis

    check_address(url)
    engine = ibis.connect(url)
    with spark.ending_badly(engine):
        _check_server(engine)
        for setting in _SETTINGS:
            engine.raw_sql(f"SET {setting}").close()
        schema, name = _served_table(engine, source["table"], source.get("schema"))
        engine.raw_sql("SET search_path = pg_catalog, pg_temp").close()  # nobody's functions but the server's
        with engine.con.cursor() as cursor, engine.con.transaction():
            found = cursor.execute(_COLLATED, {"schema": schema, "table": name}).fetchall()
        texts = [column for (column,) in found]
        place = ".".join(map(_named_part, (schema, name)))
        return engine, _by_bytes(engine, described(engine, name, [schema]), place, texts)


def _by_bytes(engine: Any, table: Any, place: str, texts: Sequence[str]) -> Any:
    """The same table, whose texts are equal if, and only if, their bytes are.

    To a column's collation "a" may be "A" or even "\u00e0": cells that say different things would be one
    category, or one person, though the declaration tells them apart.
    """
    if not texts:
        return table
    columns = (
        f'{_named_part(one)} COLLATE "C" AS {_named_part(one)}' if one in texts else _named_part(one)
        for one in table.columns
    )
    return engine.sql(f"SELECT {', '.join(columns)} FROM {place}", schema=table.schema())  # noqa: S608 - quoted by us


def _named_part(name: str) -> str:
    """An identifier as SQL."""
    return '"' + name.replace('"', '""') + '"'


def check_address(url: str) -> None:
    """Refuse an address of any engine but PostgreSQL: Spark has a form of its own, others passed no tests.

    ibis would take a path too, or open any file by sqlite:// and duckdb://.
    """
    scheme = urlsplit(url).scheme
    if scheme not in _SERVERS:
        raise ParameterError(
            f"source.url must begin with {_SERVERS[0]}://, got {scheme!r:.20}: of all engines, only "
            "DuckDB, PostgreSQL and Spark are known to fail on no cell"
        )


def _check_server(engine: Any) -> None:
    """Refuse a server that only speaks as PostgreSQL does, or a database that cannot hold what we compare."""
    with engine.con.cursor() as cursor, engine.con.transaction():
        said, encoding = cursor.execute(
            "SELECT pg_catalog.version(), pg_catalog.current_setting('server_encoding')"
        ).fetchone()
    if not _TESTED.match(said):
        raise ParameterError(f"source.url must lead to PostgreSQL {_OLDEST} or later, got {said!r:.40}")
    if encoding != "UTF8":
        raise ParameterError(f"source.url must lead to a database in UTF8, got {encoding!r:.20}")


def _served_table(engine: Any, table: str, schema: str | None) -> tuple[str, str]:
    """The schema and name of a table that the server's catalogue lists, and that is none of its own."""
    with engine.con.cursor() as cursor, engine.con.transaction():
        found = cursor.execute(_SERVED, {"table": table, "schema": schema}).fetchone()
    if found is None:
        raise sealed.no_table(table, schema)
    return str(found[0]), str(found[1])


def described(engine: Any, name: str, within: Sequence[str] | None = None) -> Any:
    """A table of the engine, in its schema or its catalogue and schema: the columns' names and types."""
    with _DESCRIBING, warnings.catch_warnings():  # ibis 12 calls what DuckDB 2 warns of
        warnings.simplefilter("ignore", DeprecationWarning)
        return engine.table(name, database=within)


def _parquet(path: Path, data: DataSet) -> storage.Stream | None:
    import pyarrow.parquet

    schema = pyarrow.parquet.read_schema(path)
    names = needed(data, schema.names)
    stored_types.check_types(data, stored_types.arrow_types(schema, names))
    return storage.of_parquet(path, names)


def _csv(path: Path, data: DataSet) -> storage.Stream:
    packed.check_whole(path, "source.csv")
    file = CsvFile(partial(packed.opened, path), str(data.source.get("delimiter", ",")))
    names = needed(data, _named(file))
    return storage.of_texts(names, lambda: file.batches(names))


def header(path: Path, delimiter: str) -> list[str]:
    """The first line of a CSV file: the names of its columns."""
    packed.check_whole(path, "source.csv")
    return _named(CsvFile(partial(packed.opened, path), delimiter))


def _named(file: CsvFile) -> list[str]:
    names = file.names
    if not names or len(set(names)) != len(names) or not all(names):
        raise ParameterError("source.csv must start with a line of column names, all of them different")
    return names
