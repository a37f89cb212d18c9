"""Records of CSV files: the first line decides how a record ends, never the content of a field.

A record ends where a line ends as the first one does (LF, CR LF or CR), outside of quotes; with LF a CR
before it belongs to the end. Any other CR or LF is a character like others, so one record that a writer wrote
is one record here, even if the writer left a lone CR unquoted. Within a record the meaning is that of
Python's `csv`: a quote opens at the beginning of a field only, a doubled one stands for itself, what follows
a closing quote is appended, and a quote that is never closed runs to the end of the file. A short record
lacks its last fields, of a long one the rest is dropped. An empty line is a record only where there is one
column. Bytes that are no UTF-8 become U+FFFD. So reading is total: nothing that a file holds makes it fail.

A block without quotes in which every record has all of its fields is read by Arrow. Else quotes are told
apart all at once by counting them, which is right where each of them opens, closes or doubles; a block in
which one does not is walked through mark by mark.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]

LONGEST_HEADER = 1 << 20  # bytes
_MOST_PLAIN = 1 << 30  # the most bytes that Arrow is given at once
_MARK = b"\xef"  # the first byte of the mark that Arrow drops from the beginning
_SHORT_HEADER = 1 << 12  # bytes within which a header ends most often
BLOCK = 1 << 20
_QUOTE, _LF, _CR = b'"\n\r'


@dataclass(frozen=True)
class Fields:
    """The fields of whole records, one after the other.

    Attributes:
        content: Bytes of all fields, and maybe something between them.
        bounds: Offsets into `content` at which each field begins and ends, in turn.
        first: Number of the first field of each record.
        counts: Number of fields of each record.
        empty: Mark of each record that is an empty line.
    """

    content: Bytes
    bounds: Places
    first: Places
    counts: Places
    empty: NDArray[np.bool_]

    def records(self, *, empty: bool) -> Fields:
        """Return these fields, without the records that are empty lines unless `empty` is set."""
        if empty or not self.empty.any():
            return self
        kept = ~self.empty
        return Fields(self.content, self.bounds, self.first[kept], self.counts[kept], self.empty[kept])

    def column(self, place: int) -> Any:
        """Return the fields at one index of all records as an Arrow array, null in records too short."""
        import pyarrow as pa

        fields = pa.LargeStringArray.from_buffers(
            max(0, self.bounds.size - 1), pa.py_buffer(self.bounds), pa.py_buffer(self.content)
        )
        missing = self.counts <= place
        return fields.take(pa.array(2 * (self.first + place), mask=missing if missing.any() else None))


class CsvFile:
    """A CSV file whose first record names the columns.

    Args:
        opened: Function that opens the file, as bytes.
        delimiter: One ASCII character between fields.

    Attributes:
        names: Names of its columns; none in an empty file, and none if no line ends in the first MB.
    """

    def __init__(self, opened: Callable[[], IO[bytes]], delimiter: str = ",") -> None:
        self._opened, self._delimiter = opened, ord(delimiter)
        with opened() as file:
            self.names, self._end, _ = self._header(_Text(file))

    def _header(self, text: _Text) -> tuple[list[str], bytes, Bytes]:
        """Return the names of the columns, the bytes that end a line, and the bytes read after it."""
        head, data = np.empty(0, dtype=np.uint8), b"?"
        place: int | None = None
        while data and (head.size < LONGEST_HEADER if place is None else place + 1 == head.size):
            data = text.read(LONGEST_HEADER)
            head = np.concatenate([head, np.frombuffer(data, dtype=np.uint8)])
            place = self._first_end(head[:_SHORT_HEADER])
            place = self._first_end(head) if place is None else place
        if place is None and data:
            return [], b"\n", head
        place = head.size if place is None else place
        end = b"\r\n" if head[place : place + 2].tobytes() == b"\r\n" else head[place : place + 1].tobytes()
        found, _ = fields_of(head[:place], end or b"\n", self._delimiter, final=True)
        names = [found.column(number)[0].as_py() for number in range(int(found.counts.sum()))]
        return names, end or b"\n", head[place + len(end) :]

    def _first_end(self, head: Bytes) -> int | None:
        """Return the offset at which the first line ends; None if it does not end."""
        is_line = (head == _LF) | (head == _CR)
        stops, _ = _walked(head, np.flatnonzero(is_line | (head == self._delimiter) | (head == _QUOTE)))
        lines = stops[is_line[stops]]
        return int(lines[0]) if lines.size else None

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        """Yield the columns of these names as Arrow record batches of texts, opening the file anew.

        Raises:
            OSError: the file cannot be opened or read, or whatever else the opened file raises.
        """
        places = [self.names.index(name) for name in names]
        with self._opened() as file:
            text = _Text(file)
            *_, head = self._header(text)
            held, size, more = head.tobytes(), BLOCK, True
            while more:
                data = text.read(size)
                more = bool(data)
                held += data
                batch, used = self._plain(held, places, names, final=not more) or self._any(
                    held, places, names, final=not more
                )
                held = held[used:]
                size = BLOCK if used else 2 * size  # a record that does not end is not read again and again
                yield batch

    def _any(self, block: bytes, places: list[int], names: Sequence[str], *, final: bool) -> tuple[Any, int]:
        """Return these columns of the whole records of a block, and the number of bytes of the records."""
        import pyarrow as pa

        found, used = fields_of(np.frombuffer(block, np.uint8), self._end, self._delimiter, final=final)
        found = found.records(empty=len(self.names) == 1)
        return pa.record_batch([found.column(place) for place in places], names=list(names)), used

    def _plain(
        self, block: bytes, places: list[int], names: Sequence[str], *, final: bool
    ) -> tuple[Any, int] | None:
        """Parse a block like `_any` by Arrow, which is faster, if readers cannot differ on it; else None.

        Invariant: no quote, no CR or LF but at the end of a line, and all fields in each record.
        """
        import pyarrow as pa
        import pyarrow.csv as reader

        last = block.rfind(self._end)
        if last < 0 or last > _MOST_PLAIN or self._end == b"\r" or len(self.names) < 2 or not self._delimiter:
            return None
        used = last + len(self._end)
        if final and used < len(block):
            return None
        block = block[:used]
        ends = block.count(b"\n") if self._end == b"\r\n" else 0
        if b'"' in block or block.count(b"\r") != ends or block.count(self._end) < ends or block[:1] == _MARK:
            return None
        known = [str(place) for place in range(len(self.names))]
        try:
            table = reader.read_csv(
                pa.py_buffer(block),
                reader.ReadOptions(use_threads=False, block_size=used + 1, column_names=known),
                reader.ParseOptions(delimiter=chr(self._delimiter), quote_char=False, double_quote=False),
                reader.ConvertOptions(
                    check_utf8=False,
                    include_columns=[known[place] for place in places],
                    column_types=dict.fromkeys(known, pa.large_string()),
                ),
            )
        except pa.ArrowInvalid:  # a record is too short or too long
            return None
        columns = [column.combine_chunks() for column in table.columns]
        return pa.record_batch(columns, names=list(names)), used


class _Text:
    """A reader of a file's bytes as valid UTF-8, without a mark at the beginning."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")

    def read(self, size: int) -> bytes:
        """Read some more bytes; the result is empty at the end only."""
        while True:
            data = self._file.read(size)
            if data.isascii() and data and self._decoder.getstate() == (b"", 0):  # in the middle, and plain
                return data
            text = self._decoder.decode(data, final=not data)
            if text or not data:
                return text.encode()


def fields_of(block: Bytes, end: bytes, delimiter: int, *, final: bool) -> tuple[Fields, int]:
    """Return the whole records of a block that begins with a record, and the number of bytes they take.

    Args:
        block: Bytes in UTF-8.
        end: Bytes that end a line.
        delimiter: Byte between fields.
        final: True if nothing follows, so that the rest is a record too.
    """
    is_line = block == end[-1]
    if end == b"\r\n":
        is_line[1:] &= block[:-1] == _CR
        is_line[:1] = False
    is_stop = is_line | (block == delimiter)
    stops, dropped = np.flatnonzero(is_stop), np.flatnonzero(block == _QUOTE)
    if dropped.size:
        counted = _counted(block, stops, dropped, is_line)
        stops, dropped = counted or _walked(block, np.flatnonzero(is_stop | (block == _QUOTE)))
    lasts = np.flatnonzero(is_line[stops])  # fields that are the last of a record
    used = int(stops[lasts[-1]]) + 1 if lasts.size else 0
    if final and used < block.size:  # the end of the file ends a record
        used, stops = block.size, np.append(stops, block.size)
        lasts = np.append(lasts, stops.size - 1)
    stops = stops[: lasts[-1] + 1] if lasts.size else stops[:0]
    return _fields(block[:used], end, stops, lasts, dropped[dropped < used]), used


def _fields(block: Bytes, end: bytes, stops: Places, lasts: Places, dropped: Places) -> Fields:
    """Cut the fields at the stops, without the dropped quotes and without a CR before the end of a line."""
    lines = stops[lasts]
    marked = np.zeros(lines.size, dtype=np.bool_)
    if end[-1] == _LF:
        marked = (lines > 0) & (lines < block.size)
        marked[marked] = block[lines[marked] - 1] == _CR
    bounds = np.zeros(2 * stops.size, dtype=np.int64)
    bounds[2::2], bounds[1::2] = stops[:-1] + 1, stops
    bounds[2 * lasts + 1] -= marked
    if dropped.size:
        keep = np.ones(block.size, dtype=np.bool_)
        keep[dropped] = False
        block, bounds = block[keep], bounds - np.searchsorted(dropped, bounds)
    first = np.append(0, lasts[:-1] + 1)[: lasts.size]
    starts = np.append(0, lines[:-1] + 1)[: lines.size]
    return Fields(block, bounds, first, lasts - first + 1, lines - marked == starts)


def _counted(block: Bytes, stops: Places, quotes: Places, is_line: Any) -> tuple[Places, Places] | None:
    """Return the stops outside of quotes and the quotes that are no content; None if a quote is elsewhere.

    Invariant: each quote up to the last end of a line, or after it, opens a field, ends one, or is one of two
        that stand for one. Then a stop is outside if, and only if, an even number of quotes is before it.
    """
    outside = stops[np.searchsorted(quotes, stops) % 2 == 0]
    opens, ends = quotes[::2], quotes[1::2]
    fresh, over = np.zeros(block.size + 2, dtype=np.bool_), np.zeros(block.size + 2, dtype=np.bool_)
    fresh[0], fresh[outside + 1] = True, True
    over[block.size], over[outside] = True, True
    lines = outside[is_line[outside]]
    lines = lines[lines > 0]
    over[lines[block[lines - 1] == _CR] - 1] = True
    begins = fresh[opens]
    doubled = ends[: opens.size - 1] + 1 == opens[1:] if opens.size > 1 else np.zeros(0, dtype=np.bool_)
    closes = over[ends + 1]
    closes[: doubled.size] |= doubled
    if not (begins[0] and np.all(begins[1:] | doubled) and np.all(closes)):
        return None
    return outside, np.sort(np.concatenate([ends, opens[begins]]))


def _walked(block: Bytes, marks: Places) -> tuple[Places, Places]:
    """Return what `_counted` does, whatever the quotes are, by reading one mark after the other."""
    stops, dropped = [], []
    start, closed, inside = 0, -2, False
    for place, byte in zip(marks.tolist(), block[marks].tolist(), strict=True):
        if byte != _QUOTE:
            if not inside:
                stops.append(place)
                start = place + 1
        elif inside:
            inside, closed = False, place
            dropped.append(place)
        elif place == closed + 1:  # two of them: the second is content
            inside = True
        elif place == start:
            inside = True
            dropped.append(place)
    return np.array(stops, dtype=np.int64), np.array(dropped, dtype=np.int64)
