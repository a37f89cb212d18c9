"""Compressed files of rows: read as the plain ones, refused before anything is paid if they cannot be."""

import gzip
import random
import resource
import subprocess
import sys
import zlib

import pytest

from reticent.errors import ParameterError, SourceError
from reticent.ledger import MemoryLedger
from reticent.privacy import Budget
from reticent.query import Session
from reticent.query.declarations.datasets import DataSet
from reticent.query.rows import source
from reticent.query.rows.columns import Column, Kind
from reticent.tables import packed, row_files
from reticent.tables.records import CsvFile

TEXT = b"age,name\n5,SECRET\n7,SECRET\n,SECRET\n"
DATA = DataSet("d", "1", (Column("age", Kind.INTEGER, 0, 120, missing=9),), Budget(1, 1e-6), rows=3)
DAMAGED = "source.csv must be whole: its gzip data is damaged, cut off or followed by something else"


def read(path):
    file = CsvFile(lambda: packed.opened(path))
    return [row for batch in file.batches(file.names) for row in batch.to_pylist()]


def declared(name="rows.csv.gz"):
    return DataSet(DATA.name, "1", DATA.columns, DATA.budget, rows=3, source={"csv": name})


def ages(folder, name="rows.csv.gz"):
    with source.connect(declared(name), folder) as table:
        return sorted(table.tally(f"SELECT * FROM {table.relation}"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.csv.gz"


class TestWhatIsRead:
    @pytest.mark.parametrize(
        "content",
        [
            gzip.compress(TEXT),
            gzip.compress(TEXT[:9]) + gzip.compress(b"") + gzip.compress(TEXT[9:]),
            gzip.compress(TEXT[:20], 0) + gzip.compress(TEXT[20:], 9),
            gzip.compress(TEXT) + bytes(1000),
            TEXT,
        ],
        ids=["one", "members", "levels", "padding", "plain by another name"],
    )
    def test_the_same_rows(self, path, content):
        path.write_bytes(content)
        assert ages(path.parent) == [(5,), (7,), (9,)]

    def test_by_what_it_holds_and_not_by_its_name(self, tmp_path):
        (tmp_path / "rows.csv").write_bytes(gzip.compress(TEXT))
        assert ages(tmp_path, "rows.csv") == [(5,), (7,), (9,)]
        (tmp_path / "link.csv").symlink_to("rows.csv")
        assert ages(tmp_path, "link.csv") == [(5,), (7,), (9,)]

    def test_whatever_the_rows_are_they_are_read_as_plain_ones(self, tmp_path, path):
        rng = random.Random(3)
        for _ in range(200):
            content = b"a,b" + rng.choice([b"\n", b"\r\n", b"\r"])
            content += bytes(rng.choices(b'",\r\n a1\xff\xc3\x00', k=rng.randrange(80)))
            (tmp_path / "rows.csv").write_bytes(content)
            cut = rng.randrange(len(content))
            path.write_bytes(gzip.compress(content[:cut]) + gzip.compress(content[cut:]))
            packed.check_whole(path)
            assert read(path) == read(tmp_path / "rows.csv")

    def test_it_is_looked_through_once(self, path, monkeypatch):
        path.write_bytes(gzip.compress(TEXT))
        packed.check_whole(path)
        monkeypatch.setattr(packed, "Unpacked", None)
        packed.check_whole(path)


def bomb(megabytes, line=b"1\n"):
    """So many, all alike, in a thousandth of that."""
    packer = zlib.compressobj(9, wbits=31)
    block = line * ((1 << 20) // len(line))
    return (
        b"".join([packer.compress(b"age\n"), *(packer.compress(block) for _ in range(megabytes))])
        + packer.flush()
    )


WHOLE = gzip.compress(TEXT)
HOSTILE = {
    "cut off": WHOLE[:-5],
    "cut off in its header": WHOLE[:8],
    "flipped": WHOLE[:14] + bytes([WHOLE[14] ^ 255]) + WHOLE[15:],
    "wrong sum": WHOLE[:-8] + b"abcd" + WHOLE[-4:],
    "wrong length": WHOLE[:-4] + b"abcd",
    "garbage after it": WHOLE + b"garbage",
    "another magic after it": WHOLE + b"PK",
    "half a member after it": WHOLE + WHOLE[:15],
}


class TestHostile:
    @pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
    def test_damage_is_said_before_anything_is_paid(self, path, content):
        path.write_bytes(content)
        data, ledger = declared(), MemoryLedger()
        with Session(data, lambda: source.connect(data, path.parent), ledger) as session:
            with pytest.raises(SourceError, match=f"^{DAMAGED}$"):
                session.count(where="age >= 6", error=20.0)
            assert session.balance().spent == 0

    def test_every_cut_is_noticed(self, path):
        for length in range(2, len(WHOLE)):
            path.write_bytes(WHOLE[:length])
            with pytest.raises(SourceError):
                packed.check_whole(path)

    def test_planted_a_file_that_is_only_opened_is_noticed(self, path, monkeypatch):
        whole = gzip.compress(b"age\n" + b"12\n" * (1 << 20))  # more than is read for the names
        content = whole[:-8] + b"abcd" + whole[-4:]
        self.test_damage_is_said_before_anything_is_paid(path, content)
        monkeypatch.setattr(packed, "check_whole", lambda path, called: None)
        with pytest.raises(AssertionError):  # it is opened, and paid for
            self.test_damage_is_said_before_anything_is_paid(path, content)

    def test_packed_twice(self, path):
        path.write_bytes(gzip.compress(WHOLE))
        with pytest.raises(SourceError, match="must be compressed once, it holds another archive"):
            ages(path.parent)

    def test_no_more_than_so_many_times_its_size(self, path):
        path.write_bytes(bomb(80))
        assert path.stat().st_size * packed.MOST_TIMES < packed.ALWAYS < 80 << 20
        with pytest.raises(SourceError, match="must unfold to at most 200 times its size"):
            ages(path.parent)

    def test_looking_takes_no_memory(self, path):
        """Planted: all of it at once, which is more than there is."""
        path.write_bytes(bomb(60, b"1"))
        program = (
            "import sys; from pathlib import Path; from reticent.tables import packed; "
            "path = Path(sys.argv[1]); "
        )

        def small():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 27, 1 << 27))

        for what, code in (("packed.check_whole(path)", 0), ("3 * packed.Unpacked(path).read(-1)", 1)):
            done = subprocess.run(
                [sys.executable, "-c", program + what, str(path)],
                preexec_fn=small,
                capture_output=True,
                timeout=120,
            )
            assert done.returncode == code, done.stderr

    @pytest.mark.parametrize(
        "content", [b"SQLite format 3\0....", b"-----BEGIN PRIVATE KEY-----", b'{"identity": 1}', b"ab" * 32]
    )
    def test_what_is_ours_is_no_source_in_an_archive(self, path, content):
        path.write_bytes(gzip.compress(content))
        with pytest.raises(ParameterError, match=r"source\.csv must be a file with rows"):
            ages(path.parent)

    @pytest.mark.parametrize("name", ["ledger.sqlite.gz", "census.yaml.GZ", "master.key.gz", ".rows.csv.gz"])
    def test_nor_by_its_name(self, tmp_path, name):
        (tmp_path / name).write_bytes(gzip.compress(TEXT))
        with pytest.raises(ParameterError, match=r"source\.csv must be a file with rows"):
            ages(tmp_path, name)

    def test_planted_a_look_at_the_packed_bytes_alone_is_noticed(self, path, monkeypatch):
        looked_at = row_files._looked_at
        monkeypatch.setattr(
            row_files, "_looked_at", lambda path: (looked_at(path)[0], path.read_bytes()[:200])
        )
        with pytest.raises(AssertionError):
            self.test_what_is_ours_is_no_source_in_an_archive(path, b"-----BEGIN PRIVATE KEY-----")
