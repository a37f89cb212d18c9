"""T9: whatever is changed in a ledger is found, and what a log alone cannot see is shown to be so."""

import random
import sqlite3
from contextlib import closing

import pytest

from reticent.errors import LedgerDamaged, LedgerError
from reticent.ledger import SqlLedger, entries
from reticent.ledger import verify as module
from reticent.ledger.merkle import Frontier, leaf_hash
from reticent.ledger.verify import verify

from .tampered_ledgers import KEY, copy, filled, template

__all__ = ["copy", "template"]  # fixtures


def test_an_untouched_ledger_verifies(place):
    with closing(filled(place)) as ledger:
        seen = []
        report = verify(ledger, progress=lambda done, total: seen.append((done, total)))
        head = ledger.head()
        assert (report.origin, report.size, report.root, report.totals) == (
            head.origin, head.size, head.root, head.totals,
        )  # fmt: skip
        assert (report.accounts, report.recoveries, report.audits) == (4, 2, 1)
        assert (report.measurements, report.void) == (163, 4)
        assert 0 < report.fulfilled < report.measurements
        assert seen[-1] == (head.size, head.size)


def test_an_empty_ledger_verifies(database):
    with closing(SqlLedger(database)) as ledger:
        assert verify(ledger).size == 1


def test_chunks_change_nothing(template, monkeypatch):
    with closing(SqlLedger(template, key=KEY)) as ledger:
        whole = verify(ledger)
        for chunk in (1, 3, 64, 100):
            monkeypatch.setattr(module, "CHUNK", chunk)
            assert verify(ledger) == whole


# T9


def tables(path):
    """Everything that is stored, with its types."""
    with closing(sqlite3.connect(path)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        return {name: sorted(map(repr, db.execute(f"SELECT * FROM {name}"))) for name in names}


COLUMNS = {
    "meta": ["name", "setting"],
    "head": ["id", "size", "accounts", "keys", "measurements", "frontier", "seal"],
    "account": [
        *("id", "name", "unit", "neighbours", "subject", "cap", "minimum", "spent", "nonce", "seal"),
    ],
    "bought": ["id", "account", "name", "requested", "information", "sums", "waiting", "nonce", "seal"],
    "measurement": ["number", "bought", "information", "recorded", "nonce"],
    "answered": [
        *("account", "idempotency", "verb", "name", "asked", "information", "charged", "entry", "nonce"),
    ],
    "entry": ["number", "leaf"],
    "node": ["level", "number", "hash"],
}


def test_every_column_is_in_the_list(template):
    with closing(sqlite3.connect(template)) as db:
        for table, columns in COLUMNS.items():
            held = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
            assert held == set(columns)
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        assert names == {*COLUMNS, "question"}  # which has tests of its own: a text may be missing


def altered(rng, old, others):
    """A value that differs a little, or a lot, from the old one."""
    choices = [None, 0, 1, -1, 1 << 61, 0.5, "", "x", b"", b"x" * 32, *others]
    match old:
        case int():
            choices += [old + 1, old - 1, old * 2, str(old) + "0", -old]
        case str():
            i = rng.randrange(max(1, len(old)))
            digit = "1" if old[i : i + 1] != "1" else "2"
            choices += [
                old[:i] + digit + old[i + 1 :],
                old[:i] + old[i + 1 :],
                old + " ",
                old + "\0",
                old[::-1],
            ]
            choices += [old.swapcase(), old.encode()]
        case bytes():
            i = rng.randrange(max(1, len(old)))
            choices += [old[:i] + bytes([old[i] ^ (1 << rng.randrange(8))]) + old[i + 1 :] if old else b"1"]
            choices += [old[:-1], old + b"\0", old[::-1], old.hex()]
            choices.remove(1 << 61)  # tried on its own, below
        case None:
            choices += ["1,2", "5"]
    return rng.choice(choices)


def edit(rng, db):
    table = rng.choice([name for name in COLUMNS for _ in COLUMNS[name]])
    column = rng.choice(COLUMNS[table])
    rows = db.execute(f"SELECT * FROM {table}").fetchall()
    names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    place = names.index(column)
    row = rng.choice(rows)
    new = altered(rng, row[place], [other[place] for other in rng.sample(rows, min(3, len(rows)))])
    where = " AND ".join(f"{name} IS ?" for name in names)
    db.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (new, *row))
    return f"{table}.{column}"


def delete(rng, db):
    table = rng.choice(list(COLUMNS))
    names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    row = rng.choice(db.execute(f"SELECT * FROM {table}").fetchall())
    where = " AND ".join(f"{name} IS ?" for name in names)
    db.execute(f"DELETE FROM {table} WHERE {where}", row)
    return f"delete {table}"


def insert(rng, db):
    """A copy of a row under the next number, or under a strange one."""
    table = rng.choice(list(COLUMNS))
    names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    rows = db.execute(f"SELECT * FROM {table}").fetchall()
    row = list(rng.choice(rows))
    first = 1 if table == "node" else 0
    row[first] = (
        f"{row[first]}x" if isinstance(row[first], str) else rng.choice([len(rows), -1, 10**9, 10**6])
    )
    if table in ("account", "bought"):
        row[names.index("name")] += "x"
    if table == "answered" and rng.random() < 0.5:  # under an account that there is
        row[first], row[1] = rng.choice(rows)[first], f"{row[1]}x"
    db.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)
    return f"insert {table}"


def swap(rng, db):
    """Two rows exchange all but their numbers: a reordering."""
    table = rng.choice(["entry", "account", "bought", "measurement", "node", "answered", "answered"])
    key = {"account": "id", "bought": "id", "answered": "entry"}.get(table, "number")
    names = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] not in (key, "level")]
    rows = db.execute(f"SELECT {key}, {', '.join(names)} FROM {table}").fetchall()
    if len(rows) < 2:
        return "swap nothing"
    one, two = rng.sample(rows, 2)
    marks = ", ".join(f"{name} = ?" for name in names)
    aside = [f"aside {i}" if name in ("name", "idempotency") else one[1 + i] for i, name in enumerate(names)]
    for number, fields in ((one[0], aside), (two[0], one[1:]), (one[0], two[1:])):
        db.execute(f"UPDATE {table} SET {marks} WHERE {key} = ?", (*fields, number))
    return f"swap {table}"


def truncate(rng, db):
    keys = {"entry": "number", "measurement": "number", "bought": "id", "account": "id", "answered": "entry"}
    table, key = rng.choice(list(keys.items()))
    keep = rng.randrange(db.execute(f"SELECT max({key}) FROM {table}").fetchone()[0] + 1)
    db.execute(f"DELETE FROM {table} WHERE {key} >= ?", (keep,))
    return f"truncate {table}"


def shift(rng, db):
    """An entry is taken out, or one is put in, and those after it move up or down."""
    leaves = [leaf for (leaf,) in db.execute("SELECT leaf FROM entry ORDER BY number")]
    place = rng.randrange(len(leaves))
    leaves[place : place + rng.randrange(2)] = rng.sample(leaves, 1)
    if rng.random() < 0.5:
        del leaves[place]
    db.execute("DELETE FROM entry")
    db.executemany("INSERT INTO entry VALUES (?, ?)", enumerate(leaves))
    return "shift entries"


def reseal(db):
    """A clever editor: rebuild subtrees, frontier, size and seals over whatever the entries are now."""
    from zlib import crc32

    frontier = Frontier()
    leaves = [leaf for (leaf,) in db.execute("SELECT leaf FROM entry ORDER BY number")]
    made = frontier.extend([leaf_hash(leaf.encode()) for leaf in leaves])
    db.execute("DELETE FROM node")
    db.executemany("INSERT INTO node VALUES (?, ?, ?)", [node for node in made if node[0] >= 8])
    counts = db.execute("SELECT accounts, keys, measurements FROM head").fetchone()
    edge = b"".join(frontier.hashes)
    seal = crc32(b"%d %d %d %d %b" % (len(leaves), *counts, edge))
    db.execute("UPDATE head SET size = ?, frontier = ?, seal = ?", (len(leaves), edge, seal))


@pytest.mark.parametrize("count", ["accounts", "keys", "measurements"])
def test_a_count_of_the_head_that_no_entry_bears_out_is_named(tmp_path, count):
    filled(tmp_path / "ledger.db", 5).close()
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as db:
        db.execute(f"UPDATE head SET {count} = {count} + 1")
        reseal(db)
        db.commit()
    with closing(SqlLedger(tmp_path / "ledger.db")) as ledger, pytest.raises(LedgerDamaged) as caught:
        verify(ledger)
    assert str(caught.value) == "the head kept in the ledger is not that of its entries"


def forge(rng, db):
    """One entry is changed to another canonical one, and every hash is made to fit."""
    rows = db.execute("SELECT number, leaf FROM entry").fetchall()
    rows = [row for row in rows if entries.decode(row[1])["type"] != "audit"]  # which no table repeats
    number, leaf = rng.choice(rows)
    fields = entries.decode(leaf)
    kind = fields.pop("type")
    name = rng.choice([field for field in fields if field not in ("origin", "head")])
    if name == "commitment":
        fields[name] = rng.randbytes(32).hex()
    elif name in ("unit", "neighbours"):
        fields[name] = {"unit": "epsilon_per_km", "neighbours": "METRIC"}[name]
    else:
        fields[name] = str(max(0, int(fields[name]) + rng.choice([-2, -1, 1, 2, 10**9])))
    db.execute("UPDATE entry SET leaf = ? WHERE number = ?", (entries.encode(kind, **fields), number))
    reseal(db)
    return f"forge {kind}.{name}"


def cut(rng, db):
    """The end of the log is cut off, every hash made to fit, the tables left as they are."""
    size = db.execute("SELECT count(*) FROM entry").fetchone()[0]
    db.execute("DELETE FROM entry WHERE number >= ?", (rng.randrange(1, size - 2),))
    reseal(db)
    return "cut"


TAMPERING = [edit, edit, edit, edit, delete, insert, swap, truncate, shift, forge, forge, cut]


def tamper(path, seed):
    """Apply the variant of this seed; return what was done, or None if nothing changed in the end."""
    rng = random.Random(seed)
    before = tables(path)
    how = rng.choice(TAMPERING)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA ignore_check_constraints=ON")
        db.execute("BEGIN")
        try:
            said = how(rng, db)
        except (sqlite3.IntegrityError, OverflowError):
            db.rollback()
            return None
        db.execute("COMMIT")
    return None if tables(path) == before else said


def missed(copy, seeds):
    """How many variants were tried, and those that went unseen."""
    tried, unseen = 0, []
    for seed in seeds:
        path = copy()
        said = tamper(path, seed)
        if said is not None:
            tried += 1
            try:
                with closing(SqlLedger(path)) as ledger:
                    verify(ledger)
                unseen.append((seed, said))
            except LedgerError as found:
                message = str(found)
                assert not any(word in message for word in ("census", "question", "phones", "call-")), message
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink()
    return tried, unseen


def test_tampering_is_detected(copy):
    tried, unseen = missed(copy, range(450))
    assert unseen == []
    assert tried >= 350


@pytest.mark.slow
def test_tampering_is_detected_in_full(copy):
    tried, unseen = missed(copy, range(1000, 13_500))
    print(f"T9: {tried} variants, {len(unseen)} unseen")
    assert unseen == []
    assert tried >= 10_000


ANOTHER_ANSWER = (
    "INSERT INTO answered SELECT account, 'x', verb, name, asked, information, 0, 9999, nonce "
    "FROM answered WHERE idempotency = 'less-10'"
)


@pytest.mark.parametrize(
    "method",
    [
        *("_nodes", "_opened", "_requested", "_values", "_counts", "_meta", "_accounts", "_keys"),
        *("_answers", "_no_more_answers"),
    ],
)
def test_control_each_check_is_needed(copy, monkeypatch, method):
    """Planted bugs: with one check left out, some variant goes unseen."""
    monkeypatch.setattr(module._Tables, method, lambda self, *arguments: None)
    sql = {
        "_nodes": "UPDATE node SET hash = zeroblob(32) WHERE number = 0",
        "_opened": "UPDATE account SET nonce = zeroblob(32) WHERE id = 0",
        "_requested": "UPDATE bought SET nonce = zeroblob(32) WHERE id = 3",
        "_values": "UPDATE measurement SET nonce = zeroblob(32) WHERE recorded IS NOT NULL",
        "_counts": "INSERT INTO node VALUES (20, 5, zeroblob(32))",
        "_meta": "INSERT INTO meta VALUES ('more', 'x')",
        "_accounts": "UPDATE account SET spent = 999 WHERE id = 2",
        "_keys": "UPDATE measurement SET nonce = zeroblob(32) WHERE recorded IS NULL",
        "_answers": "UPDATE answered SET nonce = zeroblob(32) WHERE idempotency = 'less-10'",
        "_no_more_answers": ANOTHER_ANSWER,
    }[method]
    path = copy()
    with closing(sqlite3.connect(path)) as db:
        db.execute(sql)
        db.commit()
    with closing(SqlLedger(path)) as ledger:
        if method == "_accounts":
            monkeypatch.setattr(module.Account, "of", lambda row: None)
        if method == "_answers":
            monkeypatch.setattr(module._Tables, "_no_more_answers", lambda self: None)
        verify(ledger)
        monkeypatch.undo()
        with pytest.raises(LedgerDamaged):
            verify(ledger)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ("DELETE FROM answered WHERE idempotency = 'call-5'", "is missing, or another is in its place"),
        ("DELETE FROM answered", "is missing, or another is in its place"),
        (
            "UPDATE answered SET idempotency = 'call-6' WHERE idempotency = 'call-5'",
            "not the one that was given",
        ),
        ("UPDATE answered SET account = 0 WHERE idempotency = 'call-5'", "another is in its place"),
        ("UPDATE answered SET entry = entry + 1 WHERE idempotency = 'call-5'", "another is in its place"),
        ("UPDATE answered SET entry = 10000 + entry", "another is in its place"),
        (ANOTHER_ANSWER, "answered has rows that no entry speaks of"),
        ("UPDATE answered SET name = CAST(name AS BLOB)", "value of the wrong kind"),
    ],
)
def test_answers_are_those_of_the_log(copy, change, match):
    path = copy()
    with closing(sqlite3.connect(path)) as db:
        db.execute(change)
        db.commit()
    with closing(SqlLedger(path)) as ledger, pytest.raises(LedgerDamaged, match=match):
        verify(ledger)
