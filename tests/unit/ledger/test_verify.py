"""T9: whatever is changed in a ledger is found, and what a log alone cannot see is shown to be so."""

import itertools
import json
import random
import shutil
import sqlite3
from contextlib import closing
from io import StringIO
from unittest import mock

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.errors import LedgerDamaged, LedgerError, RolledBack
from reticent.ledger import Amount, SqlLedger, Terms, Unit, entries
from reticent.ledger import verify as module
from reticent.ledger.checkpoint import PublicKey, parse, sign
from reticent.ledger.export import export, verify_export
from reticent.ledger.merkle import Frontier, leaf_hash
from reticent.ledger.replay import Replay
from reticent.ledger.verify import verify
from reticent.privacy import Neighbours

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
MU2 = (Unit.MU2, Neighbours.REPLACE_ONE)
TERMS = [
    Terms("census", *MU2, "one person of census-2026", 10**9, 5),
    Terms("phones", Unit.EPSILON, Neighbours.ANY_TWO_VALUES, "one phone", 10**8),
    Terms("unused", *MU2, "nobody", 1000),
    Terms("full", *MU2, "one person", 60, 7),
]


def amount(terms, units):
    return Amount(units, terms.unit, terms.neighbours)


def filled(where, steps=150):
    """A ledger with everything in it: idle and full accounts, keys asked again, pending, paid, recovered."""
    ledger = SqlLedger(where, key=KEY)
    for terms in TERMS:
        ledger.open(terms)
    for i in range(8):  # every other one is closed in the recovery, and half of these are bought again
        grant = ledger.request("phones", f"early {i}", amount(TERMS[1], 30), idempotency=f"early-{i}")
        if i % 2:
            ledger.fulfil(grant.pending[0].number, (i,))
    ledger.charge_witnessed({0: 10**6, 1: 500}, entries.head_text(400, bytes(32)))
    for i in range(0, 8, 4):
        ledger.request("phones", f"early {i}", amount(TERMS[1], 30), idempotency=f"again-{i}")
    for i in range(steps):
        terms = TERMS[i % 2]
        again = f"call-{i}" if i % 5 == 0 else None
        grant = ledger.request(terms.name, f"question {i % 41}", amount(terms, 9 + 7 * i), idempotency=again)
        if i % 10 == 0:  # asked again for less: answered, nothing charged
            ledger.request(terms.name, f"question {i % 41}", amount(terms, 3), idempotency=f"less-{i}")
        if i % 4 and grant.pending:
            ledger.fulfil(grant.pending[0].number, (i, -i * i))
    for key in ("a", "b", "c"):
        ledger.request("full", key, amount(TERMS[3], 20))
    return ledger


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """The file of a closed ledger, to be copied."""
    path = tmp_path_factory.mktemp("template") / "ledger.db"
    with closing(filled(path)) as ledger:
        assert ledger.head().size > 256, "it must hold stored subtrees"
        verify(ledger)
    return path


@pytest.fixture
def copy(template, tmp_path):
    """A function that gives a fresh copy of the template."""
    counter = itertools.count()

    def fresh():
        path = tmp_path / f"{next(counter)}.db"
        shutil.copyfile(template, path)
        return path

    return fresh


def test_an_untouched_ledger_verifies(place):
    with closing(filled(place)) as ledger:
        seen = []
        report = verify(ledger, progress=lambda done, total: seen.append((done, total)))
        head = ledger.head()
        assert (report.origin, report.size, report.root, report.totals) == (
            head.origin, head.size, head.root, head.totals,
        )  # fmt: skip
        assert (report.accounts, report.recoveries) == (4, 2)
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
        assert names == set(COLUMNS)


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


PLACES = [
    ("DELETE FROM entry WHERE number = 9", "entry 9 is missing"),
    ("DELETE FROM entry WHERE number = 344", "entry 344 is missing"),
    ("INSERT INTO entry VALUES (9999, '{}')", "the table entry has rows that no entry speaks of"),
    ("UPDATE node SET hash = zeroblob(32)", "entries 0 to 255 do not have the hash kept for them"),
    ("DELETE FROM node", "entries 0 to 255 do not have the hash kept for them"),
    ("INSERT INTO node VALUES (20, 5, zeroblob(32))", "the table node has rows that no entry speaks of"),
    ("DELETE FROM account WHERE id = 2", "account 2 is missing"),
    ("UPDATE account SET nonce = 5 WHERE id = 2", "account 2: its nonce is no byte string"),
    (
        "UPDATE account SET nonce = zeroblob(32) WHERE id = 2",
        "account 2: its name is not the one of entry 3",
    ),
    ("DELETE FROM measurement WHERE number = 3", "measurements 0 to 162: a row is missing"),
    (
        "UPDATE measurement SET information = information + 1 WHERE number = 3",
        "measurement 3: its row is not what entry 12 says",
    ),
    ("UPDATE bought SET nonce = zeroblob(32) WHERE id = 3", "key 3: its name is not the one of entry 12"),
    (
        "UPDATE measurement SET nonce = zeroblob(32) WHERE number = 3",
        "measurement 3: its values are not those of entry 14",
    ),
    (
        "UPDATE measurement SET recorded = NULL, nonce = NULL WHERE number = 3",
        "measurement 3: its values are not those of entry 14",
    ),
    (
        "UPDATE measurement SET recorded = '1', nonce = zeroblob(32) WHERE number = 2",
        "measurement 2: it has values that no entry speaks of, or has none",
    ),
    (
        "UPDATE measurement SET nonce = zeroblob(32) WHERE number = 2",
        "measurement 2: it has a nonce and no values",
    ),
    ("INSERT INTO meta VALUES ('more', 'x')", "the settings kept in the ledger are not those of entry 0"),
]


@pytest.mark.parametrize(("sql", "said"), PLACES, ids=range(len(PLACES)))
def test_the_first_wrong_place_is_named(copy, sql, said):
    path = copy()
    with closing(sqlite3.connect(path)) as db:
        db.execute(sql)
        db.commit()
    with closing(SqlLedger(path)) as ledger, pytest.raises(LedgerDamaged) as found:
        verify(ledger)
    assert str(found.value) == said


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("UPDATE account SET minimum = 6 WHERE id = 0", "account 0: its terms are not those of entry 1"),
        ("UPDATE account SET unit = 'mu2' WHERE id = 1", "account 1: its terms are not those of entry 2"),
        (
            "UPDATE account SET spent = spent - 1 WHERE id = 0",
            "account 0: what is spent is not the sum of its entries",
        ),
        ("UPDATE bought SET sums = '91' WHERE id = 3", "key 3: its sums are not those of its measurements"),
        (
            "UPDATE bought SET waiting = '2:30' WHERE id = 2",
            "key 2: its sums are not those of its measurements",
        ),
    ],
)
def test_a_row_that_was_sealed_again_is_named(copy, monkeypatch, sql, said):
    """Seals are no secret: whoever edits a row can make its seal fit."""
    path = copy()
    with closing(sqlite3.connect(path)) as db:
        db.execute(sql)
        db.commit()
    for row in (module.Account, module.Bought):
        monkeypatch.setattr(row, "seal", lambda self, *given: mock.ANY)
    with closing(SqlLedger(path)) as ledger, pytest.raises(LedgerDamaged) as found:
        verify(ledger)
    assert str(found.value) == said


def test_a_repeated_call_writes_nothing(database):
    with closing(filled(database, 20)) as ledger:
        head = ledger.head()
        for i in range(0, 20, 5):
            terms = TERMS[i % 2]
            ledger.request(terms.name, f"question {i}", amount(terms, 9 + 7 * i), idempotency=f"call-{i}")
        assert ledger.head() == head


@pytest.mark.parametrize(
    "change",
    [
        "charged = 0, asked = information + 1",
        "charged = charged + 1",
        "information = information + 1",
        "asked = 0",
        "asked = information - charged",
        "name = 'question 1'",
        "verb = 'pay'",
        "verb = 'refund'",
    ],
)
def test_answers_must_fit_the_charges(copy, change):
    path = copy()
    with closing(sqlite3.connect(path)) as db:
        done = db.execute(f"UPDATE answered SET {change} WHERE idempotency = 'call-5'")
        assert done.rowcount == 1
        db.commit()
    with closing(SqlLedger(path)) as ledger, pytest.raises(LedgerDamaged, match="answer"):
        verify(ledger)


def answers_fit(*answers, numbers=(3, 5, 9), charges=(30, 20, 7), void=None):
    """Whether these answers (verb, asked, information, charged) fit a key with these measurements."""
    levels = module._Levels(numbers, charges, void or {})
    try:
        module._check_answers(8, 7, levels, [(8, *answer) for answer in answers])
    except LedgerDamaged as error:
        return str(error) != "key 8: an answer kept for it does not fit its charges"
    return True


def test_what_answers_fit_the_charges():
    """Below the commitments, which catch whoever cannot make an entry fit as well. The minimum is 7."""
    first, second, third = ("request", 30, 30, 30), ("request", 50, 50, 20), ("request", 51, 57, 7)
    nothing = ("request", 50, 50, 0)
    assert answers_fit(first, second, third, nothing, nothing, ("request", 1, 30, 0))
    assert answers_fit(("pay", 30, 30, 30))
    for wrong in (
        [("refund", 30, 30, 30)],
        [("pay", 50, 50, 20)],
        [("request", 0, 30, 0)],
        [("request", 31, 30, 0)],
        [("request", 40, 40, 0)],  # never bought
        [("request", 20, 20, 20)],
        [first, first],  # one charge, told twice
        [first, ("pay", 30, 30, 30)],
        [("request", 30, 50, 20)],  # charged for what was there
        [("request", 31, 50, 20)],  # too much
        [("request", 49, 50, 20)],
    ):
        assert not answers_fit(*wrong), wrong


def test_answers_fit_what_a_recovery_closed():
    """The second is closed when seven had been asked for, the third when all had: 30, 50, 30, 37, 30."""
    closed = {"void": {5: 7, 9: 10}}
    for information in (30, 50, 37):
        assert answers_fit(("request", information, information, 0), **closed)
    for information in (57, 7, 20, 0):
        assert not answers_fit(("request", information, information, 0), **closed)
    assert answers_fit(("request", 37, 37, 7), **closed)
    assert not answers_fit(("request", 57, 57, 7), **closed)
    assert answers_fit(("request", 20, 20, 0), numbers=(3, 5), charges=(30, 20), void={3: 6})


@pytest.mark.parametrize(
    "change",
    [
        *("account SET nonce", "bought SET nonce", "measurement SET nonce", "node SET hash"),
        "answered SET nonce",
    ],
)
def test_a_huge_number_in_place_of_bytes_is_damage(copy, change):
    """Planted for `bytes(number)`, which would ask for that much memory."""
    path = copy()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE {change} = ?", (1 << 61,))
        db.commit()
    with closing(SqlLedger(path)) as ledger, pytest.raises(LedgerDamaged):
        verify(ledger)


def test_a_trigger_is_damage(copy):
    path = copy()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TRIGGER t AFTER UPDATE ON account BEGIN UPDATE account SET spent = 0; END")
        db.commit()
    with closing(SqlLedger(path)) as ledger, pytest.raises(LedgerDamaged, match="triggers"):
        verify(ledger)


ON_POSTGRESQL = [
    'UPDATE entry SET leaf = replace(leaf, \'"charged":"9"\', \'"charged":"8"\')',
    "DELETE FROM entry WHERE number = 9",
    "INSERT INTO entry SELECT max(number) + 1, max(leaf) FROM entry",
    "UPDATE account SET spent = spent - 1 WHERE id = 0",
    "UPDATE account SET subject = 'x' WHERE id = 0",
    "UPDATE bought SET requested = requested + 1, information = information + 1 WHERE id = 1",
    "UPDATE bought SET sums = '1,2' WHERE id = 1",
    "UPDATE bought SET nonce = decode(repeat('00', 32), 'hex') WHERE id = 1",
    "UPDATE measurement SET recorded = '1,2' WHERE recorded IS NULL",
    "UPDATE measurement SET recorded = NULL, nonce = NULL WHERE number = 1",
    "UPDATE head SET measurements = measurements + 1",
    "DELETE FROM head",
    "UPDATE meta SET setting = 'other' WHERE name = 'origin'",
    "UPDATE answered SET idempotency = 'other' WHERE idempotency = 'call-5'",
    "UPDATE answered SET nonce = decode(repeat('00', 32), 'hex') WHERE idempotency = 'call-5'",
    "DELETE FROM answered WHERE idempotency = 'call-5'",
    "INSERT INTO answered SELECT account, 'other', verb, name, asked, information, 0, entry, nonce "
    "FROM answered WHERE idempotency = 'call-5'",
    "CREATE FUNCTION f() RETURNS trigger AS 'BEGIN RETURN NULL; END' LANGUAGE plpgsql; "
    "CREATE TRIGGER t BEFORE UPDATE ON account FOR EACH ROW EXECUTE FUNCTION f()",
]


def test_tampering_on_postgresql_is_detected(postgres):
    import psycopg

    where = postgres()
    filled(where, 15).close()
    order = ["meta", "head", "account", "bought", "measurement", "answered", "entry", "node"]
    with psycopg.connect(where, autocommit=True) as db:
        for table in order:
            db.execute(f"CREATE TABLE saved_{table} AS SELECT * FROM {table}")
        for sql in ON_POSTGRESQL:
            db.execute(sql)
            with pytest.raises(LedgerError), closing(SqlLedger(where)) as ledger:
                verify(ledger)
            db.execute("DROP FUNCTION IF EXISTS f CASCADE")
            db.execute(f"TRUNCATE {', '.join(order)}")
            for table in order:
                db.execute(f"INSERT INTO {table} SELECT * FROM saved_{table}")
        with closing(SqlLedger(where)) as ledger:
            verify(ledger)


NOT_PLAIN = [
    "CREATE RULE r AS ON UPDATE TO account DO INSTEAD NOTHING",
    "ALTER TABLE answered ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE answered FORCE ROW LEVEL SECURITY",
    "CREATE POLICY p ON account USING (spent = 0)",
    "CREATE FUNCTION f() RETURNS trigger AS 'BEGIN RETURN NULL; END' LANGUAGE plpgsql; "
    "CREATE TRIGGER t BEFORE UPDATE ON account FOR EACH ROW EXECUTE FUNCTION f()",
    "ALTER TABLE node RENAME TO kept; CREATE VIEW node AS SELECT * FROM kept",
    "ALTER TABLE node RENAME TO kept; CREATE MATERIALIZED VIEW node AS SELECT * FROM kept",
    "CREATE TABLE more () INHERITS (entry)",
    "ALTER TABLE node SET UNLOGGED",
]


def changed(postgres, sql):
    """A ledger of a few entries to whose tables something was done."""
    import psycopg

    where = postgres()
    with SqlLedger(where) as ledger:
        ledger.open(TERMS[0])
    with psycopg.connect(where, autocommit=True) as db:
        db.execute(sql)
    return closing(SqlLedger(where))


@pytest.mark.parametrize("sql", NOT_PLAIN)
def test_tables_on_postgresql_must_be_plain(postgres, sql):
    with changed(postgres, sql) as ledger, pytest.raises(LedgerDamaged, match="triggers, rules or views"):
        verify(ledger)


@pytest.mark.parametrize("sql", NOT_PLAIN)
def test_control_rows_alone_do_not_show_it(postgres, monkeypatch, sql):
    """Planted: nobody asks how the tables are kept."""
    monkeypatch.setattr(module, "_NOT_PLAIN", "SELECT 0")
    with changed(postgres, sql) as ledger:
        assert verify(ledger).size == 2


# Replay: rules of the log itself


def log(*more):
    return [
        entries.encode("ledger", origin="o", version=1),
        entries.encode(
            "open", account=0, cap=10, commitment="0" * 64, minimum=2, neighbours="METRIC", unit="mu2"
        ),
        *more,
    ]


def request(**fields):
    told = {"account": 0, "charged": 5, "commitment": "0" * 64, "key": 0, "measurement": 0, **fields}
    return entries.encode("request", **told)


@pytest.mark.parametrize(
    ("leaves", "rule"),
    [
        (log(request(account=1)), "entry 2: account 1 was not opened"),
        (log(request(charged=1)), "entry 2: charges less than the minimum"),
        (log(request(charged=11)), "entry 2: passes the cap of account 0"),
        (log(request(), request(measurement=1, charged=6)), "entry 3: passes the cap"),
        (log(request(key=1)), "entry 2: key 1 is not one of account 0"),
        (log(request(measurement=1)), "entry 2: measurement 1 is not the next"),
        (log(request(), request()), "entry 3: measurement 0 is not the next"),
        (log(entries.encode("fulfil", commitment="0" * 64, measurement=0)), "entry 2: measurement 0 was not"),
        (
            log(request(), *[entries.encode("fulfil", commitment="0" * 64, measurement=0)] * 2),
            "was recorded before",
        ),
        (log(log()[1]), "entry 2: account 0 is not the next"),
        (log(log()[0]), "entry 2: a log begins"),
        (log()[1:], "entry 0: a log begins"),
        ([entries.encode("ledger", origin="o", version=9)], "version 9 is not known"),
        (
            log(request(), entries.encode("recover", account=0, head="1:" + "0" * 64, spent=4)),
            "must not lower",
        ),
        (log(entries.encode("recover", account=0, head="1:" + "0" * 64, spent=11)), "nor pass its cap"),
        (
            log(entries.encode("recover", account=1, head="1:" + "0" * 64, spent=1)),
            "account 1 was not opened",
        ),
        (log(entries.encode("answer", account=1, commitment="0" * 64)), "account 1 was not opened"),
        (log("{}"), "entry 2: an entry is not in canonical form"),
        (log(log()[1].replace('"account":"0"', '"account":"1"').replace("mu2", "mu3")), "impossible terms"),
        (
            log(log()[1].replace('"account":"0"', '"account":"1"').replace("METRIC", "NONE")),
            "impossible terms",
        ),
        (log(log()[1].replace('"account":"0"', '"account":"1"').replace('"10"', '"1"')), "impossible terms"),
        (
            log(log()[1].replace('"account":"0"', '"account":"1"').replace('"10"', f'"{1 << 62}"')),
            "impossible terms",
        ),
    ],
)
def test_replay_refuses(leaves, rule):
    with pytest.raises(LedgerDamaged, match=rule):
        Replay().read(leaves)


def test_replay_adds_up():
    replay = Replay()
    replay.read(log(request(), request(measurement=1, charged=5)))
    replay.read([entries.encode("recover", account=0, head="1:" + "0" * 64, spent=10)])
    assert (replay.totals(), replay.size, replay.recoveries) == ({0: 10}, 5, 1)


# Checkpoints kept elsewhere


class Remembered:
    """A witness that remembers one head."""

    def __init__(self, ledger):
        self.seen = ledger.checkpoint(), ledger.totals()

    def last(self, origin):
        return self.seen


def test_a_checkpoint_on_the_way_holds(database):
    with closing(filled(database, 20)) as ledger:
        early, public = ledger.checkpoint(), KEY.public_key()
        ledger.request("census", "later", amount(TERMS[0], 50))
        report = verify(ledger, checkpoint=early, public_key=public, witness=Remembered(ledger))
        assert (report.checked, report.witnessed) == (parse(early)[0].size, report.size)
        assert verify(ledger, checkpoint=ledger.checkpoint()).checked == report.size


def test_a_rolled_back_ledger_verifies_alone_and_not_against_what_was_seen(tmp_path):
    """The planted control: an old backup is a perfect ledger. Only memory elsewhere tells."""
    with closing(filled(tmp_path / "a.db", 20)) as ledger:
        pass
    shutil.copyfile(tmp_path / "a.db", tmp_path / "backup.db")
    with closing(SqlLedger(tmp_path / "a.db", key=KEY)) as ledger:
        ledger.request("census", "later", amount(TERMS[0], 50))
        late, witness = ledger.checkpoint(), Remembered(ledger)
    with closing(SqlLedger(tmp_path / "backup.db", key=KEY)) as backup:
        verify(backup)
        size = backup.head().size
        for evidence in ({"checkpoint": late}, {"witness": witness}):
            with pytest.raises(RolledBack, match=f"has {size} entries, the .* saw {size + 1}"):
                verify(backup, **evidence)
        backup.request("census", "another", amount(TERMS[0], 50))  # the fork: as long, and different
        verify(backup)
        for evidence in ({"checkpoint": late}, {"witness": witness}):
            with pytest.raises(RolledBack, match="forked"):
                verify(backup, **evidence)
        backup.request("census", "more", amount(TERMS[0], 50))  # longer than what was seen
        verify(backup)
        with pytest.raises(RolledBack, match="forked"):
            verify(backup, witness=witness)


def test_totals_in_a_checkpoint_are_checked(database):
    with closing(filled(database, 5)) as ledger:
        head = ledger.head()
        lie = sign(type(head)(head.origin, head.size, head.root, bytes(32)), head.origin, KEY)
        with pytest.raises(RolledBack, match="totals"):
            verify(ledger, checkpoint=lie)
        witness = Remembered(ledger)
        witness.seen[1][0] += 1
        with pytest.raises(RolledBack, match="account 0 has spent less"):
            verify(ledger, witness=witness)
        witness.seen = None
        with pytest.raises(RolledBack, match="never saw"):
            verify(ledger, witness=witness)


def test_a_checkpoint_must_be_signed_and_of_this_log(database, tmp_path):
    other = Ed25519PrivateKey.from_private_bytes(bytes(32))
    with closing(filled(database, 5)) as ledger:
        with pytest.raises(LedgerDamaged, match="not signed"):
            verify(ledger, checkpoint=sign(ledger.head(), ledger.origin, other), public_key=KEY.public_key())
        with closing(SqlLedger(tmp_path / "other.db", origin="other", key=KEY)) as second:
            text = second.checkpoint()
        with pytest.raises(RolledBack, match="of the log other"):
            verify(ledger, checkpoint=text)


# Exports


def exported(ledger, **options):
    file = StringIO()
    export(ledger, file, **options)
    return file.getvalue().splitlines(keepends=True)


@pytest.mark.parametrize("openings", [False, True])
def test_an_export_verifies_without_the_database(place, openings):
    with closing(filled(place, 30)) as ledger:
        early = ledger.checkpoint()
        ledger.open(Terms("late", *MU2, "one", 5))
        lines, whole = exported(ledger, openings=openings), verify(ledger)
    public = PublicKey("reticent/ledger", KEY.public_key())
    assert verify_export(lines) == whole
    assert verify_export(lines, public_key=public, checkpoint=early).checked == whole.size - 1
    told = "".join(lines)
    assert ("question 3" in told) == openings
    assert ("census" in told) == openings


@pytest.mark.parametrize("openings", [False, True])
def test_every_line_of_an_export_matters(database, openings):
    with closing(filled(database, 12)) as ledger:
        lines = exported(ledger, openings=openings)
    verify_export(lines)
    for i, line in enumerate(lines):
        middle = len(line) // 2
        changed = line[:middle] + ("0" if line[middle] != "0" else "1") + line[middle + 1 :]
        for wrong in (
            [*lines[:i], *lines[i + 1 :]],
            [*lines[:i], line, *lines[i:]],
            [*lines[:i], changed, *lines[i + 1 :]],
            [*lines[:i], line[:-1]],
            lines[:i],
        ):
            with pytest.raises(LedgerError):
                verify_export(wrong)


@pytest.fixture
def opened_export(database):
    with closing(filled(database, 3)) as ledger:
        return exported(ledger, openings=True)


SIZES = [
    "\u00b2",
    "\u0663",
    "9" * 5000,
    "9" * 20,
    "0",
    "00",
    "01",
    "-1",
    "+1",
    " 1",
    "1\n",
    "",
    "1.0",
    7,
    None,
    [],
    True,
]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: ascii(size)[:8].replace("\\", ""))
def test_an_export_of_impossible_size_is_damage(opened_export, size):
    header = json.loads(opened_export[0])
    header["size"] = size
    with pytest.raises(LedgerDamaged, match="does not begin as an exported ledger"):
        verify_export([json.dumps(header) + "\n", *opened_export[1:]])


def test_an_export_of_no_entries_is_damage():
    head = {"head": "\n0\n\n"}
    header = {"export": "1", "openings": False, "origin": "", "size": "0"}
    with pytest.raises(LedgerDamaged, match="does not begin as an exported ledger"):
        verify_export([json.dumps(header) + "\n", json.dumps(head) + "\n"])


def test_half_a_surrogate_pair_in_an_export_is_damage(opened_export):
    for i, line in enumerate(opened_export):
        texts = [line[:-2] + "\ud800" + line[-2:]]
        told = json.loads(line)
        for name in told:
            texts.append(json.dumps({**told, name: "\ud800"}) + "\n")
            texts.append(json.dumps({**told, name: ["\ud800"]}) + "\n")
            texts.append(json.dumps({**told, name: {"\ud800": 1}}) + "\n")
        for text in texts:
            with pytest.raises(LedgerDamaged):
                verify_export([*opened_export[:i], text, *opened_export[i + 1 :]])


def test_control_such_an_opening_has_no_bytes(opened_export, monkeypatch):
    monkeypatch.setattr("reticent.ledger.export._is_text", lambda part: True)
    i = next(i for i, line in enumerate(opened_export) if '"opens"' in line)
    told = json.loads(opened_export[i])
    text = json.dumps({**told, "opens": ["\ud800"]}) + "\n"
    with pytest.raises(UnicodeEncodeError):
        verify_export([*opened_export[:i], text, *opened_export[i + 1 :]])


def changed_line(place, **fields):
    """A function that changes fields of one line."""

    def change(lines):
        line = json.dumps({**json.loads(lines[place]), **fields}) + "\n"
        return [line if i == place else other for i, other in enumerate(lines)]

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[:5], "line 6 is missing, cut off, too long or no text"),
        (lambda lines: [*lines, "\n"], "the file goes on after its head"),
        (lambda lines: ["[]\n", *lines[1:]], "line 1 is no JSON object"),
        (lambda lines: ["[" * 100_000 + "\n", *lines[1:]], "line 1 is no JSON object"),
        (changed_line(0, origin="x"), "the header names another log than entry 0"),
        (changed_line(0, origin=5), "the file names no log"),
        (changed_line(0, openings=1), "the file does not begin as an exported ledger"),
        (changed_line(0, export="2"), "the file does not begin as an exported ledger"),
        (changed_line(0, openings=False), "entry 2: an entry is not in canonical form"),
        (changed_line(3, more=1), "a line that should open an entry does not"),
        (changed_line(3, nonce="x"), "a line that should open an entry does not"),
        (changed_line(3, opens=[5]), "a line that should open an entry does not"),
        (lambda lines: [*lines[:3], lines[5], *lines[4:]], "entry 1: what opens it does not fit"),
        (lambda lines: [*lines[:-1], '{"head":""}\n'], "the head of the file is not that of its entries"),
        (lambda lines: [*lines[:-1], '{"checkpoint":5}\n'], "the head of the file is not signed"),
    ],
)
def test_the_wrong_line_of_an_export_is_named(opened_export, change, said):
    with pytest.raises(LedgerDamaged) as found:
        verify_export(change(opened_export))
    assert str(found.value) == said


def test_an_earlier_head_is_not_that_of_an_export(database):
    with closing(filled(database, 3)) as ledger:
        early = json.dumps({"checkpoint": ledger.checkpoint()}) + "\n"
        ledger.request("census", "later", amount(TERMS[0], 50))
        lines = exported(ledger)
    with pytest.raises(LedgerDamaged, match="the signed head is not that of the entries"):
        verify_export([*lines[:-1], early])


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("DELETE FROM answered", "an answer that an entry speaks of is missing"),
        ("DELETE FROM account WHERE id = 2", "a row that entry 3 of this part speaks of is missing"),
        ("UPDATE measurement SET nonce = NULL", "a row that entry 9 of this part speaks of is missing"),
    ],
)
def test_what_is_missing_is_not_exported(copy, sql, said):
    path = copy()
    with closing(sqlite3.connect(path)) as db:
        db.execute(sql)
        db.commit()
    with closing(SqlLedger(path)) as ledger, pytest.raises(LedgerDamaged, match=said):
        exported(ledger, openings=True)


def test_an_export_tells_how_far_it_is(database, monkeypatch):
    monkeypatch.setattr("reticent.ledger.export.CHUNK", 10)
    with closing(filled(database, 3)) as ledger:
        size, written, read = ledger.head().size, [], []
        lines = exported(ledger, openings=True, progress=lambda *how_far: written.append(how_far))
        assert verify_export(lines, progress=lambda *how_far: read.append(how_far)) == verify(ledger)
    assert written == read == [(done, size) for done in (*range(10, size, 10), size)]


def test_an_unsigned_export_is_not_taken_for_a_signed_one(database):
    with closing(SqlLedger(database)) as ledger:
        lines = exported(ledger)
    assert verify_export(lines).size == 1
    with pytest.raises(LedgerDamaged, match="not signed"):
        verify_export(lines, public_key=PublicKey("reticent/ledger", KEY.public_key()))
