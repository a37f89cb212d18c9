"""One declaration, one ledger: links, copies, second declarations, moves, files of earlier releases."""

import contextlib
import gzip
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
from contextlib import nullcontext

import pytest

import reticent
from reticent import files
from reticent.apps.query import dataset_work as dataset
from reticent.errors import AccountConflict, LedgerError
from reticent.ledger import MemoryLedger, SqlLedger
from reticent.query import census
from reticent.query.declarations import (
    account_opening,
    claims,
    dataset_file,
    home,
)
from reticent.query.declarations.home import folder, known

from .homes import as_before, declaration, refused, spend

__all__ = ["declaration"]  # fixtures


def compressed(declaration):
    """The same rows beside themselves, compressed, under a declaration of their own."""
    rows, other = declaration.with_suffix(".csv"), declaration.with_name("other.yaml")
    rows.with_name("census.csv.gz").write_bytes(gzip.compress(rows.read_bytes()))
    other.write_text(declaration.read_text().replace("census.csv", "census.csv.gz"))
    return other


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

    @pytest.mark.parametrize("first", ["census.csv", "census.csv.gz"])
    def test_compressed_beside_it_they_are_the_same_rows(self, declaration, first):
        other = compressed(declaration)
        declared = [declaration, other] if first == "census.csv" else [other, declaration]
        with reticent.open(declared[0]) as session:
            spend(session)
        with reticent.open(declared[1]) as session:
            refused(session)
        declaration.with_suffix(".csv").unlink()  # as `gzip` does
        with reticent.open(other) as session:
            refused(session)

    def test_the_check_finds_a_twin_that_is_not_looked_for(self, declaration, monkeypatch):
        monkeypatch.setattr(claims, "_twin", lambda file: None)
        with pytest.raises(pytest.fail.Exception):
            self.test_compressed_beside_it_they_are_the_same_rows(declaration, "census.csv")

    def test_links_to_both_forms_of_the_rows_are_one_account_in_any_order(self, declaration):
        """It failed: a link to a file whose twin was declared under another link had a second account."""
        compressed(declaration)
        names = ["census.csv", "census.csv.gz", "hard.csv", "hard.csv.gz", "soft.csv"]
        os.link(declaration.with_name("census.csv"), declaration.with_name("hard.csv"))
        os.link(declaration.with_name("census.csv.gz"), declaration.with_name("hard.csv.gz"))
        declaration.with_name("soft.csv").symlink_to("hard.csv.gz")
        orders = random.Random(5).sample(list(itertools.permutations(names)), 12)
        homes = []
        for number, order in enumerate(orders):
            place = declaration.parent.with_name(f"order{number}")
            shutil.copytree(declaration.parent, place, symlinks=True)
            for name in names[2:4]:  # copying has made files of its own of them
                (place / name).unlink()
                os.link(place / name.replace("hard", "census"), place / name)
            for name in order:
                path = place / f"{name}.yaml"
                path.write_text(declaration.read_text().replace("source: census.csv", f"source: {name}"))
                with home.settled(path, dataset_file.read(path)) as found:
                    homes.append((number, found.identity))
        assert len(set(homes)) == len(orders)

    def test_a_declaration_whose_file_was_compressed_keeps_its_account(self, declaration):
        with reticent.open(declaration) as session:
            spend(session)
        compressed(declaration)
        declaration.with_suffix(".csv").unlink()
        declaration.write_text(declaration.read_text().replace("census.csv", "census.csv.gz"))
        with reticent.open(declaration) as session:
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
        monkeypatch.setattr(account_opening, "opened", lambda home, data, ledger: data)
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
