"""T22: rows that carry canaries, and a search for them in whatever is left behind.

A canary is looked for in the forms in which it could get away: text, UTF-16, hex, base64, digests (whole or
cut off), integers and doubles in both orders of bytes. A form has 48 bits of chance at least, nearly all have
60 or more: with 2,000 forms in 10^7 bytes of which 10^5 are binary, a false alarm has odds below 10^-6. What
has fewer bits is not looked for: integers of four bytes, codes of single rows, the size of a file. The one
exception is a private number of rows, as a number that stands alone in a text (see `CROWD`).
"""

import base64
import hashlib
import io
import itertools
import random
import re
import string
import struct
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet

from reticent.query.declarations import dataset_file
from reticent.query.rows import source

PEOPLE = """
name: people
version: 1
source: people.csv
unit: {person: pid, rows: 2}
relation: add or remove one
budget: {epsilon: 2, delta: 1e-6}
columns:
  income: {type: number, low: 0, high: 1000000, step: 0.01, missing: 0}
  balance: {type: integer, low: 0, high: 2000000000, missing: 0}
  age: {type: integer, low: 0, high: 120, missing: 0}
  city: {type: category, values: [north, south], missing: south}
  member: {type: boolean, missing: no}
"""
TORN = """
name: torn
version: 1
source: torn.parquet
unit: row
relation: add or remove one
budget: {epsilon: 2, delta: 1e-6}
columns:
  balance: {type: integer, low: 0, high: 2000000000, missing: 0}
  city: {type: category, values: [north, south], missing: south}
"""
# A private number of rows that no answer comes near: only the rare ones are asked for.
CROWD = """
name: crowd
version: 1
source: crowd.parquet
unit: row
relation: add or remove one
budget: {epsilon: 2, delta: 1e-6}
columns:
  kind: {type: category, values: [rare, common], missing: common}
"""
CROWDED = 1_299_709
ROWS = 4000  # so many that exact sums are long
HASHED = 40  # of them are looked for one by one
COLUMNS = ("pid", "income", "balance", "age", "city", "member", "ssn", "note")
SOURCES = ("people.csv", "fragile.csv", "extra.csv", "torn.parquet", "crowd.parquet")
_DIGESTS = ("md5", "sha1", "sha256", "sha512", "blake2b")
_LETTERS = string.ascii_lowercase + string.digits
_KEPT = 12  # characters that are left of a text that is cut off: 62 bits
_BEGIN = 6  # bytes, of the shortest form
_DIGITS = 13  # that are left of a number that is rounded


@dataclass(frozen=True)
class Form:
    """One way in which a canary could get away; text is looked for in small letters."""

    name: str
    needle: bytes
    is_text: bool = True


class Rows:
    """The raw rows, and what of them must never be seen."""

    def __init__(self, folder, seed=22):
        self._rng, self.texts, self.numbers = random.Random(seed), [], []
        plain = [self._plain(i) for i in range(ROWS)]
        self.lines = [",".join((row | odd).values()) for row, odd in zip(plain, self._odd(), strict=False)]
        self.lines += [",".join(row.values()) for row in plain[len(self.lines) :]]
        self.write(folder)
        self.sources = {name: (folder / name).read_bytes() for name in SOURCES}
        self.totals = list(_totals(folder))
        self.forms = list(self._forms())

    def _plain(self, i):
        balance = self._rng.randrange(2 * 10**9)
        city, member = "north" if i % 3 else "south", "no" if i % 2 else "yes"
        cells = (f"p{i}", 1000 * (i % 90), balance, 20 + i % 60, city, member, i, "")
        return dict(zip(COLUMNS, map(str, cells), strict=True))

    def _odd(self):
        """Cells that are canaries, each broken in its own way."""
        text, whole, split = self._text, self._whole, self._split
        return [
            {"pid": text(), "income": split(5), "note": text()},
            {"income": whole(15), "ssn": whole(15), "city": text()},
            {"income": f"-{split(6)}e+212", "member": text(), "age": whole(15)},
            {"income": text(), "balance": text(), "city": ""},
            {"income": "1e309", "balance": f"-{whole(18)}", "age": "", "note": text()},
            {"income": "NaN", "balance": "9" * 200, "city": f'"{text()}\n{text()}"'},
            {"age": split(2), "member": "1", "note": f"{text()},{text()},,,"},
        ]

    def _text(self):
        self.texts.append("".join(self._rng.choices(_LETTERS, k=24)))
        return self.texts[-1]

    def _whole(self, digits):
        self.numbers.append(str(self._rng.randrange(10 ** (digits - 1), 10**digits) | 1))
        return self.numbers[-1]

    def _split(self, place):
        digits = str(self._rng.randrange(10**14, 10**15) | 1)
        self.numbers.append(f"{digits[:place]}.{digits[place:]}")
        return self.numbers[-1]

    def csv(self):
        return "\n".join([",".join(COLUMNS), *self.lines, ""]).encode("latin-1")

    def broken(self):
        """The Parquet file with a text that is no UTF-8: the engine refuses it and quotes the text."""
        content = io.BytesIO()
        texts = pa.array([self.texts[0].encode() + b"\xff\xfe"] * 2).view(pa.string())
        pyarrow.parquet.write_table(pa.table({"balance": [1, 10**9], "city": texts}), content)
        return content.getvalue()

    def spoilt(self):
        """The CSV with a cell that is no UTF-8."""
        return self.csv().replace(self.texts[0].encode(), self.texts[0].encode() + b"\xff\xfe")

    def garbage(self):
        """No CSV at all, and full of canaries. What stands for the names of columns is public."""
        return b"\x00\xff\xfe\n" + b'"\r\n'.join(one.encode() + b"\x80\x00" for one in self.texts) * 3

    def write(self, folder):
        for name in ("people", "fragile", "extra"):
            (folder / f"{name}.csv").write_bytes(self.csv())
        (folder / "people.yaml").write_text(PEOPLE)
        (folder / "fragile.yaml").write_text(PEOPLE.replace("people", "fragile"))
        (folder / "coarse.yaml").write_text(PEOPLE.replace("name: people", "name: coarse\npolicy: degrade"))
        (folder / "torn.yaml").write_text(TORN)
        (folder / "crowd.yaml").write_text(CROWD)
        with duckdb.connect() as engine:
            engine.execute("CREATE TABLE torn (balance BIGINT, city VARCHAR, note VARCHAR)")
            cells = [(int(one), other, other) for one, other in zip(
                (one for one in self.numbers if "." not in one), self.texts, strict=False)]  # fmt: skip
            engine.executemany("INSERT INTO torn VALUES (?, ?, ?)", cells)
            engine.execute(f"COPY torn TO '{folder / 'torn.parquet'}' (FORMAT parquet)")
            kinds = (
                f"SELECT CASE WHEN range < 700 THEN 'rare' ELSE 'common' END AS kind FROM range({CROWDED})"
            )
            engine.execute(f"COPY ({kinds}) TO '{folder / 'crowd.parquet'}' (FORMAT parquet)")

    def _forms(self):
        for text in self.texts:
            yield from _text_forms(text)
        for number in self.numbers:
            yield from _number_forms(number)
        for total in self.totals:
            yield from _number_forms(total)
        wholes = [(name, content) for name, content in self.sources.items()]
        wholes += [(f"row {i}", line.encode("latin-1")) for i, line in enumerate(self.lines[:HASHED])]
        for name, content in wholes:
            yield from _digest_forms(name, content)

    def found(self, places):
        """Which canaries are in which of these bytes, by name: in words, without duplicates."""
        texts, binary = (_Index([one for one in self.forms if one.is_text is kind]) for kind in (True, False))
        hits = []
        for place, content in places:
            small = content.lower()
            hits += [f"{form.name} in {place}" for form in (*texts.found(small), *binary.found(content))]
            if re.search(rb"(?<![0-9a-z.])1,?299,?709(?![0-9])", small):
                hits.append(f"number of rows in {place}")
        return list(dict.fromkeys(hits))


class _Index:
    """Forms by how they begin: one pass over the bytes looks for all of them."""

    def __init__(self, forms):
        self._forms = {}
        for form in forms:
            self._forms.setdefault(form.needle[:_BEGIN], []).append(form)
        self._begins = np.zeros(1 << 16, bool)
        for begin in self._forms:
            self._begins[begin[0] | begin[1] << 8] = True

    def found(self, content):
        bytes_ = np.frombuffer(content, np.uint8).astype(np.uint16)
        for at in np.flatnonzero(self._begins[bytes_[:-1] | bytes_[1:] << 8]).tolist():
            for form in self._forms.get(content[at : at + _BEGIN], ()):
                if content.startswith(form.needle, at):
                    yield form


def _totals(folder):
    """Exact answers, as long numbers."""
    data = dataset_file.read(folder / "people.yaml")
    with source.connect(data, folder) as table:
        income, balance = table.names["income"], table.names["balance"]
        for where in ("TRUE", f"{table.names['city']} = 0", f"{table.names['member']} = 1"):
            ((count, total, squares, earned),) = table.tally(
                f"SELECT count(*), sum({balance}), sum({balance}::HUGEINT * {balance}), sum({income}) "
                f"FROM {table.relation} WHERE {where}"
            )
            assert len(str(total)) >= _DIGITS
            yield str(total)
            yield str(squares)
            yield from (repr(one / count) for one in (total, earned) if len(repr(one / count)) > _DIGITS + 2)


def _text_forms(text):
    for part in (text[:_KEPT], text[-_KEPT:]):
        yield Form(f"text {text}", part.encode())
        yield Form(f"UTF-16 of {text}", part.encode("utf-16-le"))
        yield Form(f"hex of {text}", part.encode().hex().encode())
        for skipped in range(3):  # how many bytes of a group come before it
            coded = base64.b64encode(b"\0" * skipped + part.encode())
            yield Form(f"base64 of {text}", coded[(skipped * 4 + 2) // 3 + 1 : -4], is_text=False)
    yield from _digest_forms(text, text.encode())


def _digest_forms(name, content):
    for kind in _DIGESTS:
        digest = hashlib.new(kind, content).digest()
        yield Form(f"{kind} of {name}", digest[:8], is_text=False)
        yield Form(f"{kind} of {name}", digest.hex()[:16].encode())
        for code in (base64.b64encode, base64.urlsafe_b64encode):
            yield Form(f"{kind} of {name}", code(digest)[:11], is_text=False)


def _number_forms(text):
    digits = text.replace(".", "")[:_DIGITS]
    shapes = [text[: _DIGITS + 1], digits, f"{digits[0]}.{digits[1:]}"]
    if "." not in text:
        shapes += [f"{int(text):,}"[: _DIGITS + 4], f"{int(text):_}"[: _DIGITS + 4], f"{int(text):x}"[:12]]
    for shape in shapes:
        yield Form(f"digits of {text}", shape.encode())
    for order in "<>":
        yield Form(f"double of {text}", struct.pack(f"{order}d", float(text)), is_text=False)
        if "." not in text and int(text) < 1 << 63:
            yield Form(f"integer of {text}", struct.pack(f"{order}q", int(text)), is_text=False)
            yield Form(f"integer of {text}", struct.pack(f"{order}q", -int(text)), is_text=False)
    if "." not in text and int(text) < 1 << 47:  # as SQLite keeps it
        yield Form(f"integer of {text}", int(text).to_bytes(6, "big"), is_text=False)


def files(folder, but=()):
    """Every file below a folder, with its content, and its name as well."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in but:
            yield path.name, path.name.encode() + b"\n" + path.read_bytes()


def planted_in(rows):
    """The canaries in every form, each in a place of its own: what a search must find."""
    for number, form in zip(itertools.count(), rows.forms, strict=False):
        yield f"{number}", b"before " + form.needle + b" after"
