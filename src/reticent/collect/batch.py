"""Surveys over tables in files: perturb every row, count every report, however large the file is.

A file is read in blocks. Each block is a job for an `Executor`: a pool of processes here, or a Dask cluster.
Every process has its own secure stream, keyed by the operating system. A few blocks are under way at a time,
so that memory is bounded, and results are taken in the order of the blocks.

Reports are a table with a column for each attribute, empty where a row's sample does not hold it: the symbol
as a whole number, or for OUE, OLH and Subset the packed report in hexadecimal. Their order is drawn anew
within each block; the block of a row is disclosed, and so is the number of rows. Blocks are cut by number of
rows alone, whatever the rows hold: other cuts would disclose how long the rows are. The meaning of a cell
depends on no other row (`reticent.tables.cells`), nor does the end of a record of a CSV
(`reticent.tables.records`). The process that runs `perturb` sees the rows: this is for data that somebody
already holds, not for devices.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from reticent.collect.instruments import Instrument
from reticent.collect.survey import Survey
from reticent.collect.tally import Tally
from reticent.errors import MissingExtra, ParameterError, SourceError
from reticent.mechanisms.base import Channel
from reticent.mechanisms.numeric.one_bit import OneBit
from reticent.mechanisms.record import Attribute, Category, Number
from reticent.mechanisms.sampling import sampled_attributes
from reticent.randomness import Stream, secure_or, uniform_below
from reticent.tables import packed
from reticent.tables.arrow_columns import Numbering, numbers
from reticent.tables.cells import meaning, spelled
from reticent.tables.records import CsvFile

try:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet
except ImportError as error:
    raise MissingExtra("tables", "collect") from error

BLOCK_ROWS = 1 << 17
_AHEAD = 4  # blocks under way for each worker

Result = TypeVar("Result")
Progress = Callable[[int], None]


def perturb(
    survey: Survey,
    given: Path,
    out: Path,
    executor: Executor,
    *,
    workers: int = 2,
    progress: Progress = lambda rows: None,
    paying: Callable[[], None] = lambda: None,
) -> int:
    """Write a private report of each row of a CSV or Parquet file, and return the number of rows.

    Args:
        survey: Survey to answer.
        given: File of the rows.
        out: File of the reports.
        executor: Executor that does the work.
        workers: Number of its processes that work at once.
        progress: Function that is called with the number of rows that are done.
        paying: Function that enters the reports into a ledger, called once it is clear that there will be
            reports, and before the first is drawn. If you pass none, you must know that the rows were not
            reported before.

    Raises:
        ParameterError: a column is missing, or `out` exists; nothing was written.
        SourceError: the file cannot be read.
    """
    if survey.waves is not None:
        raise ParameterError(f"survey must not learn: rows report at once, got {survey.name}")
    if out.exists():
        raise ParameterError(f"out must not exist, got {out}")
    for one in survey.attributes:
        if isinstance(one, Category) and not isinstance(one.values, int):
            _numbering(one)
    blocks = _blocks(given, [one.name for one in survey.attributes])
    temporary = out.with_name(f".{out.name}.part")
    writer, done = _Writer(temporary, out.suffix, _schema(survey)), 0
    paying()
    try:
        with writer as write:
            for reports in _in_order(
                executor, workers, _perturbed, ((survey.text, block) for block in blocks)
            ):
                write(reports)
                done += reports.num_rows
                progress(done)
        temporary.rename(out)
    finally:
        temporary.unlink(missing_ok=True)
    return done


def aggregate(
    survey: Survey,
    given: Path,
    executor: Executor,
    *,
    workers: int = 2,
    progress: Progress = lambda rows: None,
) -> Tally:
    """Count the reports of a file that `perturb` wrote."""
    total, done = Tally.empty(survey), 0
    blocks = _blocks(given, [one.name for one in survey.attributes], _schema(survey))
    for rows, counts, reports in _in_order(
        executor, workers, _counted, ((survey.text, block) for block in blocks)
    ):
        total.merge(Tally(survey, counts, reports))
        done += rows
        progress(done)
    return total


def columns(
    given: Path, attributes: Sequence[Attribute], *, key: str | None = None
) -> tuple[dict[str, Any], NDArray[np.int64] | None]:
    """Read a whole file: the values of each attribute, and a number for each distinct cell of `key`.

    Raises:
        SourceError: the file cannot be read, or a column is missing.
    """
    names = [one.name for one in attributes] + ([] if key is None else [key])
    blocks = list(_blocks(given, list(dict.fromkeys(names))))
    table = {
        one.name: np.concatenate([np.empty(0), *(_values(block.column(one.name), one) for block in blocks)])
        for one in attributes
    }
    if key is None or not blocks:
        return table, None
    numbering = Numbering(grows=True)
    return table, np.concatenate([numbering.of(block.column(key)) for block in blocks])


def _in_order(
    executor: Executor, workers: int, work: Callable[..., Result], jobs: Iterator[tuple[Any, ...]]
) -> Iterator[Result]:
    """Yield the results of jobs in order, while a few jobs are under way."""
    waiting: deque[Future[Result]] = deque()
    try:
        for job in jobs:
            waiting.append(executor.submit(work, *job))
            if len(waiting) > _AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


# One block, in a worker


_SURVEYS: dict[bytes, Survey] = {}


def _survey(text: bytes) -> Survey:
    if text not in _SURVEYS:
        _SURVEYS[text] = Survey.parse(text)
    return _SURVEYS[text]


def _perturbed(text: bytes, block: Any) -> Any:
    """Return the reports of a block.

    Errors in the rows are not described: a message would disclose them.
    """
    try:
        return _reports(_survey(text), block)
    except Exception:  # its text may quote the rows
        raise SourceError("a block of rows cannot be read") from None


def _reports(survey: Survey, block: Any) -> Any:
    table = {one.name: _values(block.column(one.name), one) for one in survey.attributes}
    return reports_table(survey, perturbed(survey, table, block.num_rows), block.num_rows)


def perturbed(
    survey: Survey,
    table: dict[str, Any],
    rows: int,
    rng: Stream | None = None,
    *,
    ids: NDArray[np.uint64] | None = None,
    period: int = 0,
) -> list[tuple[NDArray[np.int64], Any]]:
    """Return, for each attribute, the rows that report it and what the mechanism drew.

    Args:
        survey: Survey to answer.
        table: Values by attribute, one for each row.
        rows: Number of rows.
        rng: Random stream; None for secure randomness.
        ids: Ids of the reporters behind the rows, if any, for which the survey's own draws are made.
        period: Period of those draws.
    """
    stream = secure_or(rng)
    d, size = len(survey.attributes), survey.sample_size
    if ids is not None and survey.assigned:
        asked = survey.lots.attributes(ids, period, size, d)
    else:
        asked = np.zeros((rows, d), dtype=np.bool_)
        np.put_along_axis(asked, sampled_attributes(rows, d, size, stream), True, axis=1)
    found = []
    for place, attribute in enumerate(survey.attributes):
        members = np.flatnonzero(asked[:, place])
        instrument = survey.instruments[place]
        drawn: Any = np.empty(0, dtype=np.int64)
        if members.size:
            values = table[attribute.name][members]
            if not isinstance(instrument, Channel):
                drawn = instrument.perturb(values, stream)
            elif isinstance(instrument, OneBit) and ids is not None:
                levels = survey.lots.dither(ids[members], period, place, instrument.dither_levels)
                drawn = instrument.sample(values, stream, dither=levels)
            else:
                drawn = instrument.sample(values, stream)
        found.append((members, drawn))
    return found


def reports_table(survey: Survey, reports: list[tuple[NDArray[np.int64], Any]], rows: int) -> Any:
    """Return reports as a table, in an order that is drawn anew.

    Args:
        survey: Survey that was answered.
        reports: Rows that report each attribute, and what the mechanism drew.
        rows: Number of rows.
    """
    order = np.argsort(secure_or(None).words(rows)) if rows else np.empty(0, dtype=np.int64)
    columns = [
        _column(survey.instruments[place], order[members], drawn, rows)
        for place, (members, drawn) in enumerate(reports)
    ]
    return pa.table(columns, schema=_schema(survey))


def _counted(text: bytes, block: Any) -> tuple[int, list[Any], list[Any]]:
    survey = _survey(text)
    tally = Tally.empty(survey)
    groups = (
        uniform_below(survey.groups, block.num_rows) if survey.groups > 1 else np.zeros(block.num_rows, int)
    )
    for place, attribute in enumerate(survey.attributes):
        column = block.column(attribute.name)
        rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        if rows.size:
            drawn = _drawn(survey.instruments[place], column.drop_null(), attribute.name)
            tally.add(place, groups[rows], drawn)
    return block.num_rows, tally.counts, tally.reports


# Columns


def _schema(survey: Survey) -> Any:
    return pa.schema(
        [
            (attribute.name, pa.int32() if isinstance(instrument, Channel) else pa.string())
            for attribute, instrument in zip(survey.attributes, survey.instruments, strict=True)
        ]
    )


def _values(column: Any, attribute: Attribute) -> Any:
    """Convert a column for a mechanism: each cell becomes a value, a missing value or the fallback."""
    if isinstance(attribute, Number):
        return numbers(column)
    if isinstance(attribute.values, int):
        found = numbers(column)
        known = (found == np.floor(found)) & (found >= 0) & (found < attribute.values)
        return np.where(known, found, -1.0).astype(np.int64)
    labels = np.empty(len(attribute.values) + 1, dtype=object)
    labels[1:] = attribute.values
    return labels[_numbering(attribute).of(column) + 1]


@cache
def _numbering(attribute: Category) -> Numbering:
    """Map the values of a category, as cells spell them, to their indices.

    Raises:
        ParameterError: no cell could tell two of them apart.
    """
    assert not isinstance(attribute.values, int)
    places: dict[float | str, int] = {}
    for place, label in enumerate(attribute.values):
        said = meaning(spelled(label) or "")
        if said is None or places.setdefault(said, place) != place:
            raise ParameterError(
                f"{attribute.name}: values must say something different in a table, got {label!r:.60}"
            )
    return Numbering(places)


def _column(instrument: Instrument, rows: NDArray[np.int64], drawn: Any, size: int) -> Any:
    if not isinstance(instrument, Channel):
        texts = np.full(size, None, dtype=object)
        texts[rows] = [instrument.pack(one.reshape(1, *one.shape)).hex() for one in drawn]
        return pa.array(texts, type=pa.string())
    symbols = np.zeros(size, dtype=np.int32)
    symbols[rows] = drawn
    missing = np.ones(size, dtype=np.bool_)
    missing[rows] = False
    return pa.array(symbols, mask=missing, type=pa.int32())


def _drawn(instrument: Instrument, column: Any, name: str) -> Any:
    """Decode a column of reports, and refuse an illegal report."""
    if not isinstance(instrument, Channel):
        try:
            return np.concatenate([instrument.unpack(bytes.fromhex(text), 1) for text in column.to_pylist()])
        except ValueError as error:
            raise ParameterError(f"column {name} must hold reports of {type(instrument).__name__}") from error
    symbols = column.to_numpy(zero_copy_only=False).astype(np.int64)
    if symbols.min() < 0 or symbols.max() >= instrument.size:
        raise ParameterError(f"column {name} must hold symbols >= 0 and < {instrument.size}")
    return symbols


# Files


def _blocks(path: Path, names: list[str], schema: Any = None) -> Iterator[Any]:
    """Yield the columns of a file in blocks of rows."""
    try:
        reader = _recut(_reader(path, names, schema))
        first = next(reader, None)
    except (pa.ArrowException, OSError, KeyError):  # its text may quote the rows
        raise SourceError(
            f"{path.name} must be a CSV or Parquet file with the columns {', '.join(names)}"
        ) from None
    return iter(()) if first is None else itertools.chain([first], _guarded(reader, path))


def _recut(blocks: Iterator[Any]) -> Iterator[Any]:
    """Yield the rows in blocks of BLOCK_ROWS, of which the last may be shorter."""
    held: list[Any] = []
    rows = 0
    for block in blocks:
        held.append(block)
        rows += block.num_rows
        while rows >= BLOCK_ROWS:
            table = pa.Table.from_batches(held)
            yield _one(table.slice(0, BLOCK_ROWS))
            held, rows = table.slice(BLOCK_ROWS).to_batches(), rows - BLOCK_ROWS
    if rows:
        yield _one(pa.Table.from_batches(held))


def _one(table: Any) -> Any:
    return table.combine_chunks().to_batches()[0]


def _guarded(reader: Iterator[Any], path: Path) -> Iterator[Any]:
    while True:
        try:
            block = next(reader, None)
        except (pa.ArrowException, OSError):  # its text may quote the rows
            raise SourceError(f"{path.name} cannot be read to its end") from None
        if block is None:
            return
        yield block


def _reader(path: Path, names: list[str], schema: Any) -> Iterator[Any]:
    kind = path.suffix.lower()
    if kind in (".parquet", ".pq"):
        file = pyarrow.parquet.ParquetFile(path)
        missing = [name for name in names if name not in file.schema_arrow.names]
        if missing:
            raise KeyError(missing[0])
        return iter(file.iter_batches(batch_size=BLOCK_ROWS, columns=names))
    if not packed.without_suffix(path.name).lower().endswith(".csv"):
        raise ParameterError(f"file must end in .csv, .csv.gz, .parquet or .pq, got {path.name!r}")
    packed.check_whole(path)
    file = CsvFile(partial(packed.opened, path))
    for name in names:
        if file.names.count(name) != 1:
            raise KeyError(name)
    batches = file.batches(names)
    return batches if schema is None else map(partial(_typed, schema=schema), batches)


def _typed(batch: Any, schema: Any) -> Any:
    """Convert a batch of CSV cells back to the types of the reports."""
    columns = [pa.compute.if_else(pa.compute.equal(one, ""), None, one) for one in batch.columns]
    return pa.record_batch(columns, names=batch.schema.names).cast(schema)


class _Writer:
    """A writer of blocks to a file, in the format of its suffix."""

    def __init__(self, path: Path, suffix: str, schema: Any) -> None:
        if suffix.lower() in (".parquet", ".pq"):
            self._open: Any = lambda: pyarrow.parquet.ParquetWriter(path, schema)
        elif suffix.lower() == ".csv":
            self._open = lambda: pyarrow.csv.CSVWriter(path, schema)
        else:
            raise ParameterError(f"out must end in .csv, .parquet or .pq, got {suffix!r}")

    def __enter__(self) -> Callable[[Any], None]:
        self._writer = self._open()
        write: Callable[[Any], None] = self._writer.write_table
        return write

    def __exit__(self, *_: object) -> None:
        self._writer.close()
