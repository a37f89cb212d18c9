"""DuckDB that reads what it was given, and nothing else.

What DuckDB does not know as a table it takes for a file, for an address or for a variable of the calling
program (replacement scans); a view in a database file may call any function; an extension may fetch anything.
So every connection is made here, and shut before the first name of somebody else reaches it: files that were
not named are out of reach, nothing is loaded, and the configuration is locked. Then a table is looked up in
the catalogue, and a name that is not there is none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reticent.errors import ParameterError

_CONFIG: dict[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "python_scan_all_frames": "false",
}
# What the values of a column lie between is said by whoever wrote a file. Arrow leaves NaN out of it, and
# DuckDB believes it: whether a NaN is found to be one would follow from all the other rows.
_UNBELIEVED: dict[str, Any] = {"disabled_optimizers": "statistics_propagation"}
_SHUT: dict[str, Any] = {"enable_external_access": "false", "lock_configuration": "true"}
_OWN = (
    "SELECT database_name, schema_name, {kind}_name FROM duckdb_{kind}s() "
    "WHERE database_name = current_database() AND NOT internal "
    "AND lower(schema_name) = lower($1) AND lower({kind}_name) = lower($2)"
)
_TABLE = " UNION ALL ".join(_OWN.format(kind=kind) for kind in ("table", "view"))


def database(path: Path, *, read_only: bool = True) -> Any:
    """A connection to a database file, which reaches no other. The process has the file open once."""
    import duckdb

    return duckdb.connect(str(path), read_only=read_only, config=_CONFIG | _SHUT)


def memory() -> Any:
    """A connection to an empty database, which reaches no file at all."""
    import duckdb

    return duckdb.connect(config=_CONFIG | _SHUT)


def engine(reads: Path | None = None, *, is_database: bool = False) -> Any:
    """A back end of ibis, which reaches one file or none.

    Args:
        reads: the file, by its real path, with no link on the way.
        is_database: whether it is one of DuckDB's; its tables are those of the back end then, and only read.
    """
    import duckdb
    import ibis

    connection = duckdb.connect(config=_CONFIG | _UNBELIEVED)
    try:
        made = ibis.duckdb.from_connection(connection)  # which sets a time zone: so the lock comes last
        if is_database:  # in an instance of its own, that nobody else in this process has configured
            connection.execute(f"ATTACH {quoted(reads)} AS source (READ_ONLY)")
            connection.execute("USE source")
        elif reads is not None:
            connection.execute(f"SET allowed_paths = [{quoted(reads)}]")
        for name, value in _SHUT.items():
            connection.execute(f"SET {name} = {value}")
    except BaseException:
        connection.close()
        raise
    return made


def own_table(connection: Any, table: str, schema: str | None = None) -> tuple[str, str, str]:
    """Catalogue, schema and name of a table or view that the database itself holds.

    A view may use the tables of its own database alone: functions that read files fail.

    Raises:
        ParameterError: there is none. What there is, is not said.
    """
    found = connection.execute(_TABLE, ["main" if schema is None else schema, table]).fetchall()
    if not found:
        raise no_table(table, schema)
    catalogue, schema, table = found[0]
    return catalogue, schema, table


def no_table(table: str, schema: str | None) -> ParameterError:
    """What is said of a table that the database does not hold."""
    named = table if schema is None else f"{schema}.{table}"
    return ParameterError(f"source.table must be a table or view of that database, got {named!r:.80}")


def quoted(text: object) -> str:
    """A text as SQL."""
    return "'" + str(text).replace("'", "''") + "'"
