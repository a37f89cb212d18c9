"""CSV files are read as Python's `csv` reads them, but that a record ends only where the first line did.

The reference lets `csv` split lines that end as the first one does; any other CR or LF is hidden from it.
Files are fuzzed: characters that mean something are likely. Planted: readers that end records at a lone CR,
that guess the delimiter, and that take every quote for one that opens or closes.
"""

import csv
import gzip
import io
import itertools
import random

import numpy as np
import pandas
import pytest

from reticent.tables import records
from reticent.tables.records import CsvFile

CR, LF = "\ud80d", "\ud80a"  # in no text that was decoded
PIECES = [
    '"',
    '""',
    ",",
    "\n",
    "\r",
    "\r\n",
    ";",
    "a",
    "1",
    " ",
    "\t",
    "é",
    "\x00",
    "\ufeff",
    "\x0b",
    "\u2028",
]
PLAIN_PIECES = ["a", "1", " ", "é", "\x00", "\ufeff", "\x0b", ";", "\t", "\u2028", "'", "\\", "NULL"]
NO_TEXT = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f"]
HEADERS = ["a,b,c", "x", '"a",b', "a,b,c,d,e", '"a\nb",c', '"a\r",b', 'a"b,c', ",", ""]
FEW = 600
PLAIN = CsvFile._plain


def line_end(text):
    """How the first line ends, by a reader of its own."""
    quoted, start, place = False, True, 0
    while place < len(text):
        one = text[place]
        if quoted:
            if one == '"' and text[place + 1 : place + 2] == '"':
                place += 1
            elif one == '"':
                quoted = False
        elif one == '"' and start:
            quoted = True
        elif one in "\r\n":
            return "\r\n" if text[place : place + 2] == "\r\n" else one
        start = not quoted and one == ","
        place += 1
    return "\n"


def reference(content):
    """The names of a file and its records, by Python's `csv`."""
    text = content.decode("utf-8-sig", "replace")
    end = line_end(text)
    parts = text.split(end)
    if end == "\n":  # a CR before the end of a line belongs to it
        hidden = [part[:-1].replace("\r", CR) + part[-1:] for part in parts[:-1]]
        parts = [*hidden, parts[-1].replace("\r", CR)]
    else:
        parts = [part.replace("\r", CR).replace("\n", LF) for part in parts]
    lines = [part + end for part in parts[:-1]] + [part for part in parts[-1:] if part]
    rows = [[field.replace(CR, "\r").replace(LF, "\n") for field in row] for row in csv.reader(lines)]
    names, rows = (rows[0], rows[1:]) if rows else ([], [])
    if len(names) == 1:
        rows = [row or [""] for row in rows]
    return names, [(row + [None] * len(names))[: len(names)] for row in rows if row]


class Slow(io.BytesIO):
    """A file that gives a byte at a time."""

    def read(self, size=-1):
        return super().read(1)


def read(content, opened=io.BytesIO, delimiter=","):
    """The same by `CsvFile`."""
    file = CsvFile(lambda: opened(content), delimiter)
    known = file.names
    file.names = [f"{number} {name}" for number, name in enumerate(known)]  # which may be twice there
    rows = []
    for batch in file.batches(file.names):
        rows += [list(row) for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
    return known, rows


def made(rng):
    """A file of random characters, or one that a writer made of random texts."""
    text = b""
    end = rng.choice(["\n", "\r\n", "\r"])
    if rng.random() < 0.9:
        header = rng.choice(HEADERS)
        text = (rng.choice(["", "\ufeff"]) + header + end).encode()
        if rng.random() < 0.4:  # records that are whole and without quotes
            pieces = [*PLAIN_PIECES, *rng.choice(['"', "\r", "\n", ",", "", ""])]  # or nearly so
            plain = ["".join(rng.choices(pieces, k=rng.randrange(3))) for _ in range(60)]
            records_of = [plain[at : at + header.count(",") + 1] for at in range(rng.randrange(40))]
            text += "".join(",".join(one) + end for one in records_of).encode()
            if rng.random() < 0.5:
                return text
    weights = [rng.random() ** 3 for _ in PIECES]
    for _ in range(rng.randrange(60)):
        piece = end if rng.random() < 0.1 else rng.choices(PIECES, weights)[0]
        text += rng.choice(NO_TEXT) if rng.random() < 0.01 else piece.encode()
    return text


def check(count, seed, read=read):
    """How many of so many files are read otherwise than by `csv`, and how many give more rows."""
    rng, wrong, more = random.Random(seed), 0, 0
    for _ in range(count):
        content = made(rng)
        names, rows = reference(content)
        if names:
            records.BLOCK = rng.choice([1, 2, 7, 64, 1 << 22])
            found = read(content)
            wrong += found != (names, rows)
            more += len(found[1]) > len(rows)
    return wrong, more


@pytest.fixture(autouse=True)
def blocks(monkeypatch):
    """Blocks of any size: `check` changes it."""
    monkeypatch.setattr(records, "BLOCK", 64)


class TestLikeCsv:
    def test_fuzzed_files(self):
        assert check(FEW, 1) == (0, 0)

    @pytest.mark.slow
    def test_a_hundred_thousand_fuzzed_files(self):
        assert check(100_000, 2) == (0, 0)

    @pytest.mark.parametrize("opened", [io.BytesIO, Slow])
    def test_the_end_of_a_file_is_read_before_its_names_are_told(self, opened):
        """It failed: half a character after the names became a row, a CR LF between two reads two ends."""
        for content in (b'"\xc3', b"a\t\xf0\x9f", b"a,b\n1,\xc3", b"a\r\n1\r\n", b"a\r1\r"):
            assert read(content, opened) == reference(content)

    def test_plain_blocks_are_read_by_arrow(self, monkeypatch):
        seen = []

        def plain(*given, **options):
            seen.append(PLAIN(*given, **options))
            return seen[-1]

        monkeypatch.setattr(CsvFile, "_plain", plain)
        assert check(FEW, 1) == (0, 0)
        assert sum(batch.num_rows for batch, _ in filter(None, seen)) > 100

    def test_walking_gives_what_counting_gives(self, monkeypatch):
        monkeypatch.setattr(CsvFile, "_plain", lambda *_, **options: None)
        monkeypatch.setattr(records, "_counted", lambda *_: None)
        assert check(FEW, 3) == (0, 0)

    def test_what_writers_write_is_never_walked(self, monkeypatch):
        real, walked = records._walked, []
        monkeypatch.setattr(records, "_walked", lambda *given: walked.append(given) or real(*given))
        rows = [['x"y', "line\nbreak", '"'], ["", "plain", "\r\n"]] * 50
        for end, quoting in itertools.product(("\n", "\r\n"), (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)):
            text = io.StringIO(newline="")
            csv.writer(text, lineterminator=end, quoting=quoting).writerows([["a", "b", "c"], *rows])
            assert read(text.getvalue().encode())[1] == rows
        assert len(walked) == 2 * 4, "the first lines alone"


class TestRecords:
    """One record that a writer wrote is one record."""

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    def test_a_lone_end_of_another_kind_is_content(self, end):
        other = {"\n": "\r", "\r\n": "\n", "\r": "\n"}[end]
        rows = [["1", f"{other}2,3".replace(",", other) * 5000], [f"{other}x", "4"]]
        content = end.join(",".join(row) for row in [["a", "b"], *rows])
        assert read((content + end).encode()) == (["a", "b"], rows)

    def test_what_pandas_leaves_unquoted(self):
        frame = pandas.DataFrame({"person": ["me", "you"], "word": ["a\r" + "you,b\r" * 5000 + "c", "d"]})
        content = frame.to_csv(index=False, lineterminator="\n").encode()
        names, rows = read(content)
        assert names == ["person", "word"]
        assert len(rows) == 2

    def test_empty_lines(self):
        assert read(b"a,b\n\n1,2\n\n\n3\n\n")[1] == [["1", "2"], ["3", None]]
        assert read(b"a\n\n1\n\n")[1] == [[""], ["1"], [""]], "a column alone: a cell that is empty"

    def test_a_quote_that_is_never_closed(self):
        assert read(b'a,b\n1,"2\n3,4\n5,6')[1] == [["1", "2\n3,4\n5,6"]]

    def test_nothing_at_all(self):
        assert read(b"") == ([], [])
        assert read(b"a,b") == (["a", "b"], [])

    def test_no_end_of_the_first_line(self):
        assert read(b"x" * (records.LONGEST_HEADER + 1))[0] == []

    def test_a_file_is_opened_anew_each_time(self, tmp_path):
        path = tmp_path / "d.csv.gz"
        path.write_bytes(gzip.compress(b"a,b\n1,2\n"))
        file = CsvFile(lambda: gzip.open(path))  # noqa: SIM115 - the reader closes it
        for _ in range(2):
            assert [batch.to_pylist() for batch in file.batches(["b"])] == [[{"b": "2"}]]

    def test_another_delimiter(self):
        file = CsvFile(lambda: io.BytesIO(b"a;b\n1,5;2\n"), ";")
        assert [batch.to_pylist() for batch in file.batches(["a"])] == [[{"a": "1,5"}]]

    @pytest.mark.parametrize("content", [b"a%sb\n1%s2\n", b'a%sb\n"1"%s2\n'])
    @pytest.mark.parametrize("code", sorted(set(range(128)) - set(b'"\n\rab12')))
    def test_every_delimiter(self, content, code):
        """Arrow refuses one of them, and was asked where no quote is only."""
        file = CsvFile(lambda: io.BytesIO(content % (bytes([code]), bytes([code]))), chr(code))
        found = [row for batch in file.batches(["a", "b"]) for row in batch.to_pylist()]
        assert found == [{"a": "1", "b": "2"}]


# Planted mistakes: each must be noticed by the files above


def by_universal_newlines(content):
    """Ends a record at every CR and LF, as `open` and engines do."""
    rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig", "replace"), newline="")))
    names = rows[0]
    return names, [(row + [None] * len(names))[: len(names)] for row in rows[1:] if row or len(names) == 1]


def by_sniffing(content):
    """Guesses the delimiter from the rows."""
    text = content.decode("utf-8-sig", "replace")
    try:
        delimiter = csv.Sniffer().sniff(text, ",;").delimiter
    except csv.Error:
        delimiter = ","
    return read(content, delimiter=delimiter)


@pytest.mark.parametrize("planted", [by_universal_newlines, by_sniffing])
def test_a_planted_reader_is_noticed(planted):
    wrong, more = check(FEW, 1, planted)
    assert wrong > 10
    assert more > 0


@pytest.mark.parametrize(
    ("content", "character", "other"),
    [
        (b'a,b\n"1",2\n', b'"', b"'"),
        (b"a,b\n1,2\r3,4\n", b"\r", b"\n"),
        (b"a,b\r\n1,2\r3,4\r\n", b"\r3", b"\r\n3"),
        (b"a,b\n\xef\xbb\xbf1,2\n", b"\xef", b"\xee"),
    ],
)
def test_blocks_that_only_seem_plain_are_noticed(content, character, other, monkeypatch):
    """Arrow is given whatever it reads, as if it were not there: a quote, a CR, a mark at the beginning."""
    assert read(content) == reference(content)

    def careless(self, block, *given, **options):
        found = PLAIN(self, block.replace(character, other), *given, **options)
        return found and (found[0], len(block))

    monkeypatch.setattr(CsvFile, "_plain", careless)
    assert read(content) != reference(content)


def test_quotes_that_are_only_counted_are_noticed(monkeypatch):
    def counted(block, stops, quotes, is_line):
        return stops[np.searchsorted(quotes, stops) % 2 == 0], quotes

    monkeypatch.setattr(records, "_counted", counted)
    assert check(FEW, 1)[0] > 10
