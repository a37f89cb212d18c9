"""Owners are kept apart: whose a file is, what may be registered over it, and what one account pays for.

The first test is the attack as it was shown; it, and those of names, fail on the code before them. Every look
has its planted hole beside it.
"""

import contextlib
import json
import os
import shutil
import threading
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent import files
from reticent.apps.query import sources
from reticent.apps.query.desk import Desk
from reticent.errors import AccountConflict, ParameterError, ReticentError, SourceError
from reticent.query.rows.source import Table
from reticent.service.keys import Role
from reticent.service.settings import Settings
from reticent.service.state import State

from ..unit.query import hostile
from ..unit.query.watching import Watch
from .owners_at_work import olga, otto, text
from .running import assign, refused

__all__ = ["olga", "otto"]  # fixtures


COUNTS = [pytest.param(300, id="quick"), pytest.param(10_000, id="full", marks=pytest.mark.slow)]


# The attack


def test_no_owner_reads_the_file_of_another(service, folder):
    """Otto declares olga's file under a name and an epsilon of his own, and asks for single rows."""
    made = service.call("olga", "POST", "/api/v1/datasets", json={"declaration": text()})
    assert made.status_code == 201, made.text
    before = ledger_and_files(service.desk, folder)
    for epsilon in (1, 1e6):
        for given in (
            "town.csv",
            {"csv": "town.csv"},
            {"csv": "./town.csv"},
            {"csv": str(folder / "town.csv")},
        ):
            body = {"declaration": text("mine", given, epsilon)}
            told = refused(service.call("otto", "POST", "/api/v1/datasets", json=body), 400, "bad_request")
            assert told["message"].startswith(
                ("source.csv must be a file that the op", "budget.epsilon must")
            )
    query = {"query": "SELECT SUM(age) FROM mine", "information": 1e9}
    refused(service.ask("otto", query, path="/api/v1/datasets/mine/ask"), 404, "not_found")
    assert ledger_and_files(service.desk, folder) == before


def ledger_and_files(desk, folder):
    """All that registering changes."""
    kept = [
        str(path) for path in folder.rglob("*") if not path.name.endswith(("-wal", "-shm", ".log", ".lock"))
    ]
    owned = [(name, desk.state.owner(name)) for name in ("mine", "town", "other")]
    return sorted(kept), owned, desk.ledger.accounts()


@pytest.mark.usefixtures("seeded_noise")
def test_planted_the_attack_where_files_are_anybodys(desk, folder, otto, monkeypatch):
    """As it was: any file in the folder, any epsilon."""
    desk.settings.__dict__["most_epsilon"] = 1e6
    monkeypatch.setattr(sources, "registrable", lambda *_: sources.Rows("town.csv", ""))
    monkeypatch.setattr(sources, "check", lambda *_: None)
    desk.register(otto, text("mine", epsilon=1e6))
    answer = desk.ask(otto, "mine", "SELECT SUM(age) FROM mine WHERE age = 77", information=1.5e6)
    lines = (folder / "town.csv").read_text().splitlines()
    column = lines[0].split(",").index("age")
    exact = 77 * sum(line.split(",")[column] == "77" for line in lines[1:])
    assert abs(answer.value - exact) < 0.5  # sigma 0.1


# Epsilon


@pytest.mark.parametrize(
    ("part", "allowed", "wanted"),
    [("epsilon", 1, 1.0000001), ("epsilon", 0.5, 1e6), ("delta", 1e-6, 1.01e-6), ("delta", 1e-9, 0.4)],
)
def test_budgets_over_the_network_are_what_the_operator_allows(folder, keys, part, allowed, wanted):
    most = {"most_epsilon": 1.0, "most_delta": 1e-6} | {f"most_{part}": allowed}
    with contextlib.closing(Desk(Settings(folder, grid_s=0.0, **most))) as desk:
        olga = desk.state.named("olga")
        budget = {"epsilon": most["most_epsilon"], "delta": most["most_delta"]}
        with pytest.raises(ParameterError) as refusal:
            desk.register(olga, text(**budget | {part: wanted}))
        rule = f"budget.{part} must be <= {allowed:g}, what the operator allows, got {wanted!r}"
        assert str(refusal.value) == rule
        assert desk.names() == ["census"]
        desk.register(olga, text(**budget))
        assert desk.names() == ["census", "town"], "what the operator declared by hand is not bound"


def test_the_default_is_small(folder):
    assert (Settings(folder).most_epsilon, Settings(folder).most_delta) == (1.0, 1e-6)


# One account


def test_all_data_sets_over_a_file_share_its_account(desk, olga):
    desk.register(olga, text())
    desk.register(olga, text("ages", columns={"age": {"type": "integer", "low": 0, "high": 60}}))
    assert desk.data("ages").account == "town"
    for name in ("town", "ages"):
        desk.ask(olga, name, f"SELECT SUM(age) FROM {name}", information=1e-3)
    assert desk.balance("ages") == desk.balance("town")
    assert desk.balance("town").spent == 2 * 10**9


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.5},
        {"delta": 1e-7},
        {"unit": {"person": "income", "rows": 3}, "rows": None, "relation": "add or remove one"},
        {"rows": None, "relation": "add or remove one"},
    ],
    ids=["epsilon", "delta", "unit", "neighbours"],
)
def test_a_data_set_with_other_terms_is_refused_by_name(desk, folder, olga, changes):
    desk.register(olga, text())
    before = ledger_and_files(desk, folder)
    changes = {name: value for name, value in changes.items() if value is not None}
    declared = json.loads(text("other", **changes))
    if "relation" in changes:
        del declared["rows"]
    rule = r"^account town is open with other terms|^other\.yaml: unit must be that of the account"
    with pytest.raises(AccountConflict, match=rule):
        desk.register(olga, json.dumps(declared))
    assert ledger_and_files(desk, folder) == before
    desk.register(olga, text("other"))


def test_of_a_database_one_table_is_registered(desk, folder, olga):
    """A view of the same people would have a budget of its own."""
    with duckdb.connect(str(folder / "rows.db")) as made:
        made.execute("CREATE TABLE people AS SELECT 5 AS age FROM range(2000)")
        made.execute("CREATE VIEW again AS SELECT * FROM people")
    assign(folder, "rows.db", "olga")
    desk.register(olga, text(source={"duckdb": "rows.db", "table": "people"}))
    before = ledger_and_files(desk, folder)
    with pytest.raises(
        ParameterError, match=r"^source\.table must be that of town: all data sets over rows\.db"
    ):
        desk.register(olga, text("other", source={"duckdb": "rows.db", "table": "again"}))
    assert ledger_and_files(desk, folder) == before
    (folder / "town.yaml").unlink()  # by the operator: who registered what stays known
    with pytest.raises(ParameterError, match=r"^source\.table must be that of town"):
        desk.register(olga, text("other", source={"duckdb": "rows.db", "table": "again"}))
    desk.register(olga, text("other", source={"duckdb": "rows.db", "table": "PEOPLE", "schema": "main"}))


# Names


def test_a_name_that_was_somebodys_is_never_anothers(desk, folder, olga, otto):
    """The operator removes a declaration; ledger and snapshots are left. Its owner may register it again."""
    shutil.copy(folder / "town.csv", folder / "ottos.csv")
    assign(folder, "ottos.csv", "otto")
    desk.register(olga, text())
    (folder / "town.yaml").unlink()
    with pytest.raises(AccountConflict, match=r"^data set town is registered already"):
        desk.register(otto, text(source="ottos.csv"))
    with pytest.raises(AccountConflict, match=r"^data set town is registered already"):
        desk.register(olga, text(source="fresh.csv"))
    assert desk.names() == ["census"]
    desk.register(olga, text())
    assert desk.owns(olga, "town")
    assert not desk.owns(otto, "town")


@pytest.mark.parametrize("left", ["account", "folder"])
def test_a_name_of_the_operators_is_never_anothers(desk, folder, olga, left):
    """A declaration by hand that cannot be read, or is gone, leaves its account and its snapshots."""
    desk.session("census").warm()
    (folder / "census.yaml").unlink()
    if left == "account":
        shutil.rmtree(folder / "census.reticent")
    desk._sessions.clear()
    with pytest.raises(AccountConflict, match=r"^data set census is registered already"):
        desk.register(olga, text("census"))
    assert desk.state.owner("census") is None


# Whose a file is


def test_a_file_that_took_the_place_of_another_is_nobodys(desk, folder, olga):
    desk.register(olga, text())
    (folder / "new.csv").write_text("age\n" + "3\n" * 2000)
    (folder / "new.csv").replace(folder / "town.csv")
    assert desk.files_of(olga) == ["fresh.csv"]
    with pytest.raises(
        ParameterError, match=r"^source\.csv must be a file that the operator assigned to you"
    ):
        desk.register(olga, text("other"))
    with pytest.raises(SourceError):
        desk.ask(olga, "town", "SELECT SUM(age) FROM town", information=1e-3)
    assert desk.balance("town").spent == 0
    assign(folder, "town.csv", "olga")
    desk.ask(olga, "town", "SELECT SUM(age) FROM town", information=1e-3)


def test_planted_a_file_that_is_known_by_its_name_alone(desk, folder, olga, monkeypatch):
    monkeypatch.setattr(sources, "_is_same", lambda path, identity: path.is_file())
    (folder / "new.csv").write_text("age\n" + "3\n" * 2000)
    (folder / "new.csv").replace(folder / "town.csv")
    assert desk.files_of(olga) == ["fresh.csv", "town.csv"]


def test_a_file_written_to_stays_itself_and_a_number_given_again_does_not(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a\n")
    first, number = files.identity(path), path.stat().st_ino
    with path.open("a") as file:
        file.write("1\n")
    path.chmod(0o600)
    os.link(path, tmp_path / "y.csv")
    os.utime(path, (1, 1))
    assert files.identity(path) == files.identity(tmp_path / "y.csv") == first
    (tmp_path / "y.csv").unlink()
    for _ in range(100):  # until the disk gives the number out again; some never do
        path.unlink()
        path.write_text("a\n")
        assert files.identity(path) != first
        if path.stat().st_ino == number:
            break


def test_names_of_one_file(desk, folder, olga, otto):
    """A link leads to the file; a second name of the same inode is refused, to either owner."""
    (folder / "soft.csv").symlink_to("town.csv")
    os.link(folder / "town.csv", folder / "hard.csv")
    desk.register(olga, text(source="soft.csv"))
    with pytest.raises(ParameterError, match="that the operator assigned to you"):
        desk.register(olga, text("other", source="hard.csv"))
    for owner in ("olga", "otto"):
        with pytest.raises(
            ParameterError, match=r"^file must have one name: hard\.csv is town\.csv, which is olga"
        ):
            assign(folder, "hard.csv", owner)
    (folder / "soft.csv").unlink()
    (folder / "soft.csv").symlink_to("census.csv")  # the operator's: town must not follow it
    with pytest.raises(SourceError):
        desk.ask(olga, "town", "SELECT SUM(age) FROM town", information=1e-3)


@pytest.mark.parametrize("is_known_by", ["name", "inode"])
def test_planted_half_a_look(desk, folder, otto, monkeypatch, is_known_by):
    """Who looks at names alone gives a hard link away; who looks at the path as it is written, a soft one."""
    if is_known_by == "name":
        monkeypatch.setattr(files, "identity", str)
        os.link(folder / "town.csv", folder / "mine.csv")
    else:
        monkeypatch.setattr(sources, "located", lambda field, given, folder, is_inside: folder / given)
        (folder / "mine.csv").symlink_to("town.csv")
        monkeypatch.setattr(files, "identity", lambda path: str(path.lstat().st_ino))
    assign(folder, "mine.csv", "otto")
    desk.register(otto, text("mine", source="mine.csv"))


def test_a_new_person_of_the_same_name_has_nothing(desk, folder, olga):
    """The source stays with the number of the key, until the operator gives it to the new one."""
    desk.register(olga, text())
    desk.state.revoke("olga")
    other, _ = desk.state.make_key("olga", Role.OWNER)
    assert desk.files_of(other) == []
    assert not desk.owns(other, "town")
    with pytest.raises(ParameterError, match="that the operator assigned to you"):
        desk.register(other, text("mine"))
    with pytest.raises(
        ParameterError, match=r"^file must be nobody else's, town\.csv is olga's \(key \d+\): release"
    ):
        assign(folder, "town.csv", "olga")
    sources.release(desk.state, "town.csv")
    assign(folder, "town.csv", "olga")
    assert desk.files_of(other) == ["town.csv"]
    assert desk.owns(other, "town")
    assert not desk.owns(olga, "town")


def test_what_is_released_is_opened_no_more(desk, folder, olga, otto):
    desk.register(olga, text())
    sources.release(desk.state, "town.csv")
    with pytest.raises(SourceError):
        desk.ask(olga, "town", "SELECT SUM(age) FROM town", information=1e-3)
    assign(folder, "town.csv", "otto")
    assert desk.owns(otto, "town")
    assert not desk.owns(olga, "town")
    desk.ask(olga, "town", "SELECT SUM(age) FROM town", information=1e-3)
    assert desk.balance("town").spent == 10**9, "the account stays with the rows"


def test_what_an_earlier_release_registered_waits_for_the_operator(desk, folder, otto):
    """Then any owner could register any file: who did is known, whose the file is was not."""
    shutil.copy(folder / "census.csv", folder / "olds.csv")
    (folder / "old.yaml").write_text(text("old", source="olds.csv"))
    with desk.state._writing() as connection:
        connection.execute("INSERT INTO owned VALUES ('old', ?)", (otto.number,))

    def ask():
        return desk.ask(otto, "old", "SELECT SUM(age) FROM old", information=1e-3)

    with pytest.raises(SourceError):
        ask()
    assign(folder, "olds.csv", "olga")
    with pytest.raises(SourceError):
        ask()
    sources.release(desk.state, "olds.csv")
    assign(folder, "olds.csv", "otto")
    assert ask().cost == 10**9


def test_a_data_set_by_hand_over_an_assigned_file_is_its_owners(desk, folder, olga, otto):
    (folder / "hand.yaml").write_text(text("hand"))
    assert desk.owns(olga, "hand")
    assert not desk.owns(otto, "hand")
    assert desk.owns(otto, "census"), "over no assigned file: any owner sets quotas"
    desk.ask(otto, "hand", "SELECT SUM(age) FROM hand", information=1e-3)


# Several at once


def test_workers_who_register_at_once(folder, keys):
    """Eight desks, two owners, one name and one source each: one of them gets it, and all of it is theirs."""
    shutil.copy(folder / "town.csv", folder / "ottos.csv")
    assign(folder, "ottos.csv", "otto")
    settings = Settings(folder, grid_s=0.0)
    told, refusals, together = [], [], threading.Barrier(8)
    with contextlib.ExitStack() as held:
        desks = [held.enter_context(contextlib.closing(Desk(settings))) for _ in range(8)]

        def work(number):
            desk, who = desks[number], ("olga", "otto")[number % 2]
            person = desk.state.named(who)
            together.wait()
            for name, rows in (
                ("both", f"{'town' if who == 'olga' else 'ottos'}.csv"),
                (f"own{number}", None),
            ):
                rows = rows or f"{'town' if who == 'olga' else 'ottos'}.csv"
                try:
                    desk.register(person, text(name, source=rows))
                    told.append((name, who))
                except AccountConflict as refusal:
                    refusals.append(str(refusal))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [who for name, who in told if name == "both"]
        assert len(winners) == 1
        desk = desks[0]
        assert desk.owns(desk.state.named(winners[0]), "both")
        accounts = {name: desk.session(name).data.account for name in desk.names() if name != "census"}
        for who in ("olga", "otto"):
            mine = {accounts[name] for name, owner in told if owner == who}
            assert len(mine) == 1, accounts
        assert len(told) == 9
        assert refusals == ["data set both is registered already"] * 7


# T26


def breaches(world, desk, person, count):
    """What hostile declarations came to: registered, refused in several lines, read, or left half done."""
    found = []
    desk.register(person, text("first", source={"duckdb": "rows.db", "table": "people"}, rows=2))
    before = ledger_and_files(desk, world.desk)
    names = zip(hostile.files(world, count), hostile.tables(world, count), strict=True)
    with Watch(world.elsewhere) as watch:
        for number, (file, (table, schema)) in enumerate(names):
            form = ("csv", "parquet", "duckdb", "table")[number % 4]
            given = {form: file} | ({"table": "people"} if form == "duckdb" else {})
            if form == "table":
                given = {"duckdb": "rows.db", "table": table} | ({} if schema is None else {"schema": schema})
            try:
                desk.register(person, text("mine", source=given, rows=2))
                found.append(f"{given} was registered")
                (world.desk / "mine.yaml").unlink()
            except ReticentError as refusal:
                if "\n" in str(refusal) or not str(refusal).startswith("source"):
                    found.append(f"{given} was refused with {refusal}")
            found += [f"{given} opened {name}" for name in watch.opened()]
            if number % 100 == 0 and ledger_and_files(desk, world.desk) != before:
                found.append(f"{given} left something")
    if ledger_and_files(desk, world.desk) != before:
        found.append("something is left")
    return found


@pytest.fixture
def hostile_desk(tmp_path):
    """A desk on the rigged folder; `rows.db` is olga's, and nothing else is."""
    world = hostile.rigged(tmp_path)
    with contextlib.closing(State.of(world.desk)) as state:
        olga, _ = state.make_key("olga", Role.OWNER)
        sources.assign(state, world.desk, "rows.db", "olga")
    with contextlib.closing(Desk(Settings(world.desk, grid_s=0.0))) as desk:
        yield world, desk, olga


@pytest.mark.parametrize("count", COUNTS)
def test_no_hostile_name_is_registered(hostile_desk, count):
    assert breaches(*hostile_desk, count) == []


def test_the_operator_cannot_assign_what_is_no_rows(hostile_desk):
    world, desk, _ = hostile_desk
    for name in hostile.files(world, 1000):
        with contextlib.suppress(ParameterError):
            found = sources.assign(desk.state, world.desk, name, "olga")
            assert (world.desk / found).stat()[1:3] not in world.protected, name


def test_planted_any_file_of_the_folder(hostile_desk, monkeypatch):
    """As it was: what lies in the folder may be registered."""
    world, desk, olga = hostile_desk

    def anything(state, folder, person, data):
        named = str(next(iter(data.source.values()))).replace("\0", "")
        path = Path(os.path.realpath(folder / named.encode(errors="replace").decode()))
        if not path.is_file() or path.parent != folder.resolve():
            raise ParameterError("source must be a file in the folder")
        return sources.Rows(path.name, sources.part(data))

    monkeypatch.setattr(sources, "registrable", anything)
    assert any("was registered" in one for one in breaches(world, desk, olga, 200))


# Files that change while a data set is open


def rows_of(folder, form, file, ages):
    if form == "csv":
        (folder / file).write_text("age\n" + "".join(f"{age}\n" for age in ages))
    elif form == "parquet":
        pq.write_table(pa.table({"age": ages}), folder / file)
    else:
        with contextlib.closing(duckdb.connect(folder / file)) as connection:
            connection.register("rows", pa.table({"age": ages}))
            connection.execute("CREATE TABLE t AS SELECT * FROM rows")


@pytest.fixture
def opened(desk, folder, olga, request, seeded_noise):
    """A data set of olga's that was asked once, about 50 people; and how others get its file's name."""
    form = getattr(request, "param", "csv")
    rows_of(folder, form, f"mine.{form}", [10] * 50)
    assign(folder, f"mine.{form}", "olga")
    given = {form: f"mine.{form}"} | ({"table": "t"} if form == "duckdb" else {})
    desk.register(olga, text("mine", given, relation="add or remove one", rows=""))
    assert 0 < count(desk, olga) < 100
    rows_of(folder, form, f"other.{form}", [90] * 500)
    return f"mine.{form}", lambda: (folder / f"other.{form}").replace(folder / f"mine.{form}")


def count(desk, olga, above=0):
    query = f"SELECT COUNT(*) FROM mine WHERE age > {above}"
    return desk.ask(olga, "mine", query, information=1e-2).value  # sigma 10


@pytest.mark.parametrize("opened", ["csv", "parquet", "duckdb"], indirect=True)
def test_an_open_data_set_reads_no_file_that_took_the_place_of_its_own(desk, folder, olga, opened):
    file, exchange = opened
    exchange()
    spent = desk.balance("mine").spent
    with pytest.raises(SourceError):
        count(desk, olga, above=1)
    assert desk.balance("mine").spent == spent, "nothing is charged"
    assign(folder, file, "olga")
    assert 400 < count(desk, olga, above=1) < 600


@pytest.mark.parametrize("opened", ["csv", "parquet", "duckdb"], indirect=True)
def test_an_open_data_set_is_read_no_more_once_its_file_is_taken_back(desk, folder, olga, opened):
    sources.release(desk.state, opened[0])
    spent = desk.balance("mine").spent
    with pytest.raises(SourceError):
        count(desk, olga, above=1)
    assert desk.balance("mine").spent == spent
    assert 0 < count(desk, olga) < 100, "what was bought is public"


def test_nothing_is_told_of_a_file_that_came_while_it_was_read(desk, olga, opened, monkeypatch):
    kept = Table.tally

    def tally(table, sql):
        opened[1]()
        return kept(table, sql)

    monkeypatch.setattr(Table, "tally", tally)
    with pytest.raises(SourceError):
        count(desk, olga, above=1)


def test_planted_one_look_when_a_data_set_is_opened(desk, olga, opened, monkeypatch):
    monkeypatch.setattr(sources, "check", lambda *_: desk._sessions["mine"]._rows._file)
    opened[1]()
    assert 400 < count(desk, olga, above=1) < 600, "the rows of others, whom nobody assigned"
