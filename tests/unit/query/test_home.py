"""One declaration, one ledger: links, copies, second declarations, moves, files of earlier releases."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import reticent
from reticent import files
from reticent.apps.query import dataset
from reticent.errors import AccountConflict, BudgetExceeded, LedgerError, QuestionRefused
from reticent.ledger import MemoryLedger, SqlLedger
from reticent.query import Session, census
from reticent.query.declarations import claims, dataset_file, home
from reticent.query.declarations.home import folder, known, placed
from reticent.query.notebook import Notebook
from reticent.query.rows import source

MOST = 0.9  # of the budget, asked at once


@pytest.fixture
def declaration(tmp_path):
    (tmp_path / "here").mkdir()
    return census.write(tmp_path / "here", rows=50)


def spend(session, part=MOST, where="age >= 30"):
    cap = session.data.terms.cap
    return session.count(where=where, information=part * cap / 10**12)


def refused(session):
    with pytest.raises(QuestionRefused):
        spend(session, where="age >= 50")


def as_before(path, ledger, part=MOST):
    """Spend as an earlier release did: an account without identity, in a ledger of the opener's choice."""
    data = dataset_file.read(path)
    ledger.parent.mkdir(exist_ok=True)
    rows = partial(source.connect, data, path.parent)
    with Session(data, rows, SqlLedger(ledger), Notebook()) as session:
        spend(session, part)
        return session.balance().spent


class TestOpenings:
    def test_a_symbolic_link_opens_no_second_budget(self, declaration, tmp_path):
        link = tmp_path / "link.yaml"
        link.symlink_to(declaration)
        with reticent.open(declaration) as session:
            spend(session)
        with reticent.open(link) as session:
            refused(session)
        assert not (tmp_path / "link.reticent").exists()

    @pytest.mark.parametrize("copied", [shutil.copyfile, os.link], ids=["copy", "hard link"])
    def test_a_copied_declaration_shares_the_account(self, declaration, copied):
        other = declaration.with_name("other.yaml")
        copied(declaration, other)
        with reticent.open(declaration) as first, reticent.open(other) as second:
            spend(first)
            refused(second)
            assert second.balance() == first.balance()
            assert spend(second, 0.5, "age >= 30").cost == 0  # what the first bought is free

    def test_a_declaration_under_another_name_shares_the_account(self, declaration):
        other = declaration.with_name("other.yaml")
        other.write_text(declaration.read_text().replace("name: census", "name: town"))
        with reticent.open(declaration) as session:
            spend(session)
        with reticent.open(other) as session:
            refused(session)
            assert session.data.account == "census"

    def test_links_to_the_rows_are_the_same_rows(self, declaration):
        rows = declaration.with_suffix(".csv")
        for number, link in enumerate((os.link, os.symlink)):
            link(rows, rows.with_name(f"rows{number}.csv"))
            other = declaration.with_name(f"d{number}.yaml")
            other.write_text(declaration.read_text().replace("census.csv", f"rows{number}.csv"))
        with reticent.open(declaration) as session:
            spend(session)
        for number in range(2):
            with reticent.open(declaration.with_name(f"d{number}.yaml")) as session:
                refused(session)

    def test_a_number_that_the_disk_gives_out_again_is_another_file(self, declaration, monkeypatch):
        """Planted: a file that is known by its number. Other people would get the answers of the first."""
        rows = declaration.with_suffix(".csv")
        reticent.open(declaration).close()
        other = declaration.with_name("other.yaml")
        other.write_text(declaration.read_text().replace("census", "town"))

        def of_new_rows():
            shutil.copyfile(rows, rows.with_name("town.csv"))
            reticent.open(other).close()
            return known(other).account

        numbers = {rows.name: 7, "town.csv": 7}
        with monkeypatch.context() as planted:
            planted.setattr(files, "identity", lambda path: f"inode {numbers[path.name]}")
            (note,) = rows.parent.glob(".*.reticent")
            note.unlink()
            reticent.open(declaration).close()
            assert of_new_rows() == "census"
        shutil.rmtree(folder(other))
        for note in rows.parent.glob(".*.reticent"):
            note.unlink()
        reticent.open(declaration).close()
        assert of_new_rows() == "town"

    def test_a_snapshot_has_the_account_of_its_rows(self, declaration):
        """It failed: of a declaration that was never opened, whose source was then removed, nobody knew."""
        other = declaration.with_name("other.yaml")
        shutil.copyfile(declaration, other)
        with reticent.open(declaration) as session:
            spend(session)
        dataset.snapshot(other)
        declaration.with_suffix(".csv").unlink()
        with reticent.open(other) as session:
            assert session.data.account == "census"
            refused(session)

    def test_the_check_finds_a_snapshot_without_an_account(self, declaration, monkeypatch):
        with monkeypatch.context() as planted:
            planted.setattr(home, "settled", lambda path, _: nullcontext(folder(path).mkdir()))
            other = declaration.with_name("other.yaml")
            shutil.copyfile(declaration, other)
            dataset.snapshot(other)
        with reticent.open(declaration) as session:
            spend(session)
        declaration.with_suffix(".csv").unlink()
        with reticent.open(other) as session:
            spend(session)

    def test_other_terms_over_the_same_rows_are_refused(self, declaration):
        other = declaration.with_name("other.yaml")
        text = declaration.read_text()
        other.write_text(text.replace("epsilon: 8", "epsilon: 80"))
        assert other.read_text() != text
        reticent.open(declaration).close()
        with pytest.raises(
            AccountConflict, match="account census is open with other terms than are declared"
        ):
            reticent.open(other)

    def test_people_told_apart_by_another_column_are_refused(self, declaration):
        """The unit is the account's: else whoever declares the file again picks a column that hides less."""
        text = declaration.read_text().replace("unit: row", "unit: {person: age, rows: 3}")
        text = text.replace("replace one", "add or remove one").replace("rows: 50\n", "")
        declaration.write_text(text)
        other = declaration.with_name("other.yaml")
        other.write_text(text.replace("person: age", "person: income"))
        reticent.open(declaration).close()
        for path in (other, declaration):
            with pytest.raises(AccountConflict, match="unit must be that of the account, 'person age', got"):
                reticent.open(path)
            declaration.write_text(other.read_text())  # and the first does not change its mind

    def test_the_check_finds_a_unit_that_nobody_compares(self, declaration, monkeypatch):
        monkeypatch.setattr(home, "_check_unit", lambda *_: None)
        with pytest.raises(pytest.fail.Exception):
            self.test_people_told_apart_by_another_column_are_refused(declaration)

    def test_two_names_of_one_file_are_claimed_one_after_the_other(self, declaration, monkeypatch):
        """Both would look, find nothing, and note themselves: whoever writes holds the folder."""
        fcntl, real, held = pytest.importorskip("fcntl"), claims._noted, []

        def noted(note, claim):
            place = os.open(note.parent, os.O_RDONLY)
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.append(note)
            finally:
                os.close(place)
            return real(note, claim)

        monkeypatch.setattr(claims, "_noted", noted)
        reticent.open(declaration).close()
        assert len(held) == 1
        for note in held:
            note.unlink()
        monkeypatch.setattr(claims, "_alone", contextlib.nullcontext)  # planted
        reticent.open(declaration).close()
        assert len(held) == 1

    def test_a_table_is_one_however_duckdb_lets_it_be_spelt(self, tmp_path):
        duckdb = pytest.importorskip("duckdb")
        # Python\'s lower() ends the first with another letter.
        written = ("\u0391\u03a3", "\u03b1\u03c3", "\u0391\u03c3")
        with duckdb.connect(str(tmp_path / "t.db")) as made:
            made.execute(f'CREATE TABLE "{written[0]}" AS SELECT 1 AS x')
            assert len({made.execute("SELECT lower(?)", [one]).fetchone() for one in written}) == 1
        assert len({claims._small(one) for one in written}) == 1
        assert len({one.lower() for one in written}) == 2  # planted: what it was before

    def test_the_check_finds_sources_without_notes(self, declaration, monkeypatch):
        monkeypatch.setattr(home, "claimed", lambda path, data, identity, place: place)
        other = declaration.with_name("other.yaml")
        shutil.copyfile(declaration, other)
        for path in (declaration, other):
            with reticent.open(path) as session:
                spend(session)  # twice 0.9: what the tests above find

    def test_the_check_finds_paths_that_are_not_resolved(self, declaration, tmp_path, monkeypatch):
        monkeypatch.setattr(home, "claimed", lambda path, data, identity, place: place)
        monkeypatch.setattr(home, "folder", lambda path: path.with_name(f"{path.stem}.reticent"))
        monkeypatch.setattr("reticent.query.opening.folder", home.folder)
        link = declaration.with_name("link.yaml")
        link.symlink_to(declaration)
        with home.settled(declaration, dataset_file.read(declaration)) as one:
            pass
        with home.settled(link, dataset_file.read(link)) as two:
            assert one.identity != two.identity

    def test_a_copy_of_everything_is_refused(self, declaration, tmp_path):
        with reticent.open(declaration) as session:
            spend(session)
        shutil.copytree(declaration.parent, tmp_path / "copy")
        copy = tmp_path / "copy" / "census.yaml"
        with pytest.raises(
            LedgerError, match=r"is a copy, or was restored.*reticent dataset moved census\.yaml"
        ):
            reticent.open(copy)
        home.moved(copy)
        with reticent.open(copy) as session:
            refused(session)

    def test_nothing_of_a_chain_is_needed_without_one(self, declaration):
        """It failed: `make demo` installs no packages of chains. Planted: looking for a contract at once."""
        code = """
import sys
sys.modules.update(dict.fromkeys(("requests", "eth_abi", "eth_account", "eth_utils")))
import reticent
{planted}
with reticent.open({path!r}) as session:
    print(session.ask("SELECT COUNT(*) FROM census WHERE age > 30", information=1e-4).cost)
"""
        for planted, is_fine in (("", True), ("import reticent.query.chain.commitment", False)):
            told = subprocess.run(
                [sys.executable, "-c", code.format(path=str(declaration), planted=planted)],
                capture_output=True,
                text=True,
            )
            assert (told.returncode == 0) is is_fine, told.stderr

    def test_a_folder_may_be_renamed(self, declaration, tmp_path):
        with reticent.open(declaration) as session:
            spend(session)
        declaration.parent.rename(tmp_path / "there")
        with reticent.open(tmp_path / "there" / "census.yaml") as session:
            refused(session)

    def test_a_ledger_that_forgets_is_refused(self, declaration):
        with pytest.raises(LedgerError, match=r"ledger must be a path, .* got MemoryLedger"):
            reticent.open(declaration, ledger=MemoryLedger())

    def test_another_ledger_is_refused_by_name(self, declaration, tmp_path):
        with reticent.open(declaration, ledger=tmp_path / "chosen.sqlite") as session:
            spend(session)
        with reticent.open(declaration) as session:
            refused(session)
        with pytest.raises(LedgerError, match=r"census\.yaml pays from .*chosen\.sqlite, and from no other"):
            reticent.open(declaration, ledger=tmp_path / "other.sqlite")
        assert not (tmp_path / "other.sqlite").exists()
        with (
            SqlLedger(tmp_path / "chosen.sqlite") as held,
            reticent.open(declaration, ledger=held) as session,
        ):
            refused(session)

    def test_a_renamed_data_set_keeps_its_account(self, declaration):
        with reticent.open(declaration) as session:
            spend(session)
        declaration.write_text(declaration.read_text().replace("name: census", "name: town"))
        with reticent.open(declaration) as session:
            refused(session)

    def test_a_damaged_home_is_no_new_one(self, declaration):
        reticent.open(declaration).close()
        place = folder(declaration) / "home.json"
        for text in ("", "{", "[]", '{"identity": 3}', json.dumps({"identity": "x" * 32}), "9" * 5000):
            place.write_text(text)
            with pytest.raises(LedgerError, match="does not say where the ledger is"):
                reticent.open(declaration)

    def test_first_openings_at_once_agree(self, declaration):
        from concurrent.futures import ThreadPoolExecutor

        other = declaration.with_name("other.yaml")
        shutil.copyfile(declaration, other)

        def opened(number):
            with reticent.open((declaration, other)[number % 2]) as session:
                return session.data.terms

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(opened, range(16)))) == 1


class TestPeople:
    def test_others_of_the_same_name_get_no_answers(self, tmp_path):
        """Two owners declare different people alike, and share a ledger."""
        ledger, answers = tmp_path / "shared.sqlite", []
        for number in range(2):
            (tmp_path / str(number)).mkdir()
            path = census.write(tmp_path / str(number), rows=50)
            with contextlib.ExitStack() as held:
                if number:
                    held.enter_context(
                        pytest.raises(
                            AccountConflict, match="account census of this ledger belongs to other people"
                        )
                    )
                with reticent.open(path, ledger=ledger) as session:
                    answers.append(spend(session).value)
        assert len(answers) == 1

    def test_the_check_finds_accounts_without_identity(self, tmp_path, monkeypatch):
        monkeypatch.setattr(home, "opened", lambda home, data, ledger: data)
        ledger, answers = tmp_path / "shared.sqlite", []
        for number in range(2):
            (tmp_path / str(number)).mkdir()
            path = census.write(tmp_path / str(number), rows=50)
            with reticent.open(path, ledger=ledger) as session:
                answers.append(spend(session).value)
        assert answers[0] == answers[1]  # the answer about others, at no cost

    def test_an_old_account_in_a_shared_ledger_gets_one_identity(self, tmp_path):
        ledger = tmp_path / "shared.sqlite"
        paths = []
        for number in range(2):
            (tmp_path / str(number)).mkdir()
            paths.append(census.write(tmp_path / str(number), rows=50))
        before = as_before(paths[0], ledger, 0.5)
        with reticent.open(paths[0], ledger=ledger) as session:
            assert session.balance().spent == before + session.data.terms.minimum
        with reticent.open(paths[0]) as session:
            assert session.balance().spent == before + session.data.terms.minimum
        with pytest.raises(AccountConflict, match="belongs to another declaration"):
            reticent.open(paths[1], ledger=ledger)


class TestEarlierReleases:
    def test_the_ledger_beside_the_declaration_goes_on(self, declaration):
        before = as_before(declaration, folder(declaration) / "ledger.sqlite", 0.5)
        with reticent.open(declaration) as session:
            assert session.balance().spent == before
            assert spend(session, 0.5).cost == 0

    def test_pairs_of_ledgers_are_added_up(self, declaration):
        one = as_before(declaration, folder(declaration) / "ledger.sqlite", 0.3)
        two = as_before(declaration, declaration.parent / ".service" / "ledger.sqlite", 0.4)
        for _ in range(2):
            with reticent.open(declaration) as session:
                assert session.balance().spent == one + two
                assert spend(session, 0.69).cost == 0  # both answers count
        with SqlLedger(declaration.parent / ".service" / "ledger.sqlite") as left:
            assert left.balance("census").remaining == 0

    def test_pairs_beyond_the_budget_leave_nothing(self, declaration):
        as_before(declaration, folder(declaration) / "ledger.sqlite", 0.9)
        as_before(declaration, declaration.parent / ".service" / "ledger.sqlite", 0.9)
        with reticent.open(declaration) as session:
            assert session.balance().remaining == 0
            refused(session)

    def test_two_declarations_of_one_file_are_added_up(self, declaration):
        other = declaration.with_name("other.yaml")
        shutil.copyfile(declaration, other)
        spent = sum(as_before(path, folder(path) / "ledger.sqlite", 0.3) for path in (declaration, other))
        reticent.open(declaration).close()
        for path in (other, declaration):
            with reticent.open(path) as session:
                assert session.balance().spent == spent


class TestMoves:
    def test_a_move_takes_everything_along(self, declaration, tmp_path):
        with reticent.open(declaration) as session:
            cost = spend(session).cost
        moved = tmp_path / "moved.sqlite"
        data = dataset_file.read(declaration)
        with home.settled(declaration, data) as held, SqlLedger(moved) as ledger:
            home.moved_to(held, data, ledger)
        with reticent.open(declaration) as session:
            assert session.balance().spent == cost
            assert spend(session).cost == 0
            refused(session)
        assert known(declaration).place == placed(moved)

    @pytest.mark.parametrize("step", ["hand_over", "take_over", "_write"])
    def test_whoever_comes_next_ends_a_move(self, declaration, tmp_path, monkeypatch, step):
        """The process ends before the old account is closed, the new one filled, or the home noted."""
        with reticent.open(declaration) as session:
            cost = spend(session, 0.4).cost
        moved, data, calls = tmp_path / "moved.sqlite", dataset_file.read(declaration), []
        real = getattr(home, step)

        def ended(*given):
            calls.append(given)
            if step == "_write" and len(calls) == 1:
                return real(*given)
            raise KeyboardInterrupt

        with monkeypatch.context() as planted:
            planted.setattr(home, step, ended)
            with (
                pytest.raises(KeyboardInterrupt),
                home.settled(declaration, data) as held,
                SqlLedger(moved) as ledger,
            ):
                home.moved_to(held, data, ledger)
        for _ in range(2):
            with reticent.open(declaration) as session:
                assert session.balance().spent == cost
                assert spend(session, 0.4).cost == 0
        assert known(declaration).place == placed(moved)

    def test_on_the_way_an_address_keeps_its_user(self, declaration, server, monkeypatch):
        """It failed: who came next tried another user. Passwords are left out, by whom and where not."""
        reticent.open(declaration).close()
        told = []

        def ended(written):
            told.append(written)
            raise KeyboardInterrupt

        where = urlsplit(server)
        at = where.netloc.rpartition("@")[2]
        asked = where._replace(netloc=f"{where.username}:secret@{at}").geturl()
        data = dataset_file.read(declaration)
        with home.settled(declaration, data) as held, SqlLedger(server) as ledger:
            ledger.where = asked
            monkeypatch.setattr(home, "_write", ended)
            with pytest.raises(KeyboardInterrupt):
                home.moved_to(held, data, ledger)
        (half,) = told
        assert half.paying == placed(server)
        assert urlsplit(half.paying_address).username == where.username
        assert "secret" not in half.moving

    def test_a_changed_budget_moves_nothing(self, declaration, tmp_path):
        """The old account is not closed if the new one could not take it over."""
        with reticent.open(declaration) as session:
            cost = spend(session, 0.4).cost
        declaration.write_text(declaration.read_text().replace("epsilon: 8", "epsilon: 7"))
        data = dataset_file.read(declaration)
        with (
            pytest.raises(AccountConflict, match="cannot take over census"),
            home.settled(declaration, data) as held,
            SqlLedger(tmp_path / "moved.sqlite") as ledger,
        ):
            home.moved_to(held, data, ledger)
        with SqlLedger(folder(declaration) / "ledger.sqlite") as left:
            assert left.balance("census").spent == cost
        declaration.write_text(declaration.read_text().replace("epsilon: 7", "epsilon: 8"))
        with reticent.open(declaration) as session:  # and it goes on
            assert session.balance().spent == cost

    def test_homes_that_share_in_a_circle_are_refused(self, declaration):
        other = declaration.with_name("other.yaml")
        shutil.copyfile(declaration, other)
        reticent.open(declaration).close()
        reticent.open(other).close()
        first = home._read(folder(declaration))
        home._write(home.replace(first, same=str(folder(other))))
        for path in (declaration, other):
            with pytest.raises(LedgerError, match="shares the account of"):
                reticent.open(path)

    def test_who_has_it_open_is_refused_afterwards(self, declaration, tmp_path):
        with reticent.open(declaration) as session:
            spend(session, 0.3)
            moved, data = tmp_path / "moved.sqlite", dataset_file.read(declaration)
            with home.settled(declaration, data) as held, SqlLedger(moved) as ledger:
                home.moved_to(held, data, ledger)
            with pytest.raises(BudgetExceeded):
                spend(session, 0.1, "age >= 50")

    def test_nothing_moves_to_where_it_was_or_is(self, declaration, tmp_path, monkeypatch):
        """An account that left is closed: moved back there, all of its budget would be lost."""
        with reticent.open(declaration) as session:
            cost = spend(session, 0.3).cost
        data, first = dataset_file.read(declaration), folder(declaration) / "ledger.sqlite"

        def move(where):
            with home.settled(declaration, data) as held, SqlLedger(where) as ledger:
                home.moved_to(held, data, ledger)

        move(tmp_path / "moved.sqlite")
        with pytest.raises(LedgerError, match="left that ledger before and is closed there"):
            move(first)
        with pytest.raises(LedgerError, match="is in that ledger already, under another address"):
            move(tmp_path / "moved.sqlite")  # as if it were spelt otherwise
        with reticent.open(declaration) as session:
            assert session.balance().spent == cost
        monkeypatch.setattr(home, "check_new", lambda *_: None)  # planted
        move(first)
        with reticent.open(declaration) as session:
            assert session.balance().remaining == 0

    def test_a_folder_with_two_declarations_may_be_renamed(self, declaration, tmp_path):
        shutil.copyfile(declaration, declaration.with_name("other.yaml"))
        for name in ("census.yaml", "other.yaml"):
            reticent.open(declaration.with_name(name)).close()
        declaration.parent.rename(tmp_path / "there")
        with reticent.open(tmp_path / "there" / "other.yaml") as session:
            assert session.data.account == "census"

    def test_a_declaration_that_is_refused_leaves_no_note(self, declaration):
        """Else nobody could declare that file any more."""
        data = dataset_file.read(declaration)
        with home.settled(declaration, data):
            pass
        assert list(declaration.parent.glob(".*.reticent"))
        home.given_back(declaration, data)
        assert not folder(declaration).exists()
        assert not list(declaration.parent.glob(".*.reticent"))

    def test_to_a_server_and_back(self, declaration, server, tmp_path):
        with reticent.open(declaration) as session:
            cost = spend(session).cost
        data = dataset_file.read(declaration)
        for where in (server, str(tmp_path / "back.sqlite")):
            with home.settled(declaration, data) as held, SqlLedger(where) as ledger:
                home.moved_to(held, data, ledger)
            with reticent.open(declaration, ledger=where) as session:
                assert session.balance().spent == cost
                refused(session)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("postgresql://u:p@h:5432/d", "postgres://other@h:5432/d"),
        ("postgresql:///d?host=/run/x&sslmode=require", "postgresql://u@/d?host=/run/x"),
        ("a/../b.sqlite", "b.sqlite"),
    ],
)
def test_places_are_one_text_each_without_secrets(one, other):
    assert placed(one) == placed(other)
    assert "p@" not in placed(one)
    kept = home._kept(one, folder(Path("x.yaml")))
    assert placed(kept, folder(Path("x.yaml"))) == placed(one)
    assert ":p@" not in kept


def test_a_folder_of_rows_that_cannot_be_written_stops_nobody(declaration, monkeypatch):
    def refuses(*_):
        raise PermissionError

    monkeypatch.setattr(claims.os, "link", refuses)
    with reticent.open(declaration) as session:
        spend(session)
    assert not list(declaration.parent.glob(".*.reticent*"))
