"""One population, one account: what several data sets about the same people reveal is added up."""

import contextlib
import json
import shutil
from dataclasses import replace

import pytest

import reticent
from reticent.apps.query import dataset_work
from reticent.apps.query.data_sets import DataSets
from reticent.errors import AccountConflict, LedgerError, ParameterError
from reticent.ledger import SqlLedger
from reticent.ledger.ethereum.chain_file import ChainFile
from reticent.ledger.verify import verify
from reticent.query.declarations import (
    account_joining,
    account_moving,
    account_opening,
    dataset_file,
    home,
    populations,
)
from reticent.query.declarations.explanation import explain
from reticent.query.declarations.home import folder, known
from reticent.service.settings import Settings
from reticent.service.state import State

from .homes import refused, spend
from .population import DECLARATION, PEOPLE, declared, file_of_people, tables

__all__ = ["tables"]  # fixtures


def spent(path, part, where="age >= 30"):
    with reticent.open(path) as session:
        spend(session, part, where)
        return session.balance()


class TestOneAccount:
    def test_what_two_tables_reveal_is_added_up(self, tables):
        visits, drugs = tables
        first = spent(visits, 0.5)
        both = spent(drugs, 0.4)
        assert first.terms == both.terms
        assert both.spent > 1.7 * first.spent
        assert first.terms.name == "people:patients"
        with reticent.open(visits) as session:
            assert session.balance() == both
            refused(session)

    def test_the_same_question_of_two_tables_is_two_questions(self, tables):
        visits, drugs = tables
        spent(visits, 0.3)
        with reticent.open(drugs) as session:
            assert spend(session, 0.3).cost > 0

    def test_declarations_may_lie_anywhere(self, tmp_path):
        file_of_people(tmp_path / "shared")
        paths = [
            declared(tmp_path / place, place, people="people: ../shared/patients.people\n")
            for place in ("here", "there")
        ]
        (tmp_path / "link").symlink_to(tmp_path / "shared")
        linked = declared(tmp_path / "linked", "third", people="people: ../link/patients.people\n")
        assert len({known_after(path).folder for path in [*paths, linked]}) == 1

    def test_versions_and_contributions_may_change(self, tables):
        visits, _ = tables
        spent(visits, 0.3)
        visits.write_text(
            visits.read_text().replace("version: 1", "version: 2").replace("rows: 2", "rows: 3")
        )
        with reticent.open(visits) as session:
            assert spend(session, 0.3).cost > 0

    def test_the_ledger_verifies(self, tables):
        for path in tables:
            spent(path, 0.3)
        with SqlLedger(known(tables[0]).place) as ledger:
            assert verify(ledger).accounts == 1

    def test_the_account_moves_for_all(self, tables, tmp_path):
        visits, drugs = tables
        spent(visits, 0.5)
        data = dataset_file.read(visits)
        with home.settled(visits, data) as held, SqlLedger(tmp_path / "new.sqlite") as ledger:
            account_moving.moved_to(held, data, ledger)
        assert known(visits).place == str(tmp_path / "new.sqlite")
        with reticent.open(drugs) as session:
            refused(session)


def known_after(path):
    reticent.open(path).close()
    return known(path)


class TestJoining:
    @pytest.mark.parametrize("first", ["visits", "drugs"])
    def test_what_was_spent_before_counts(self, tmp_path, first):
        place = tmp_path / "desk"
        paths = {name: declared(place, name, people="") for name in ("visits", "drugs")}
        before = {name: spent(path, 0.4).spent for name, path in paths.items()}
        file_of_people(place)
        for name in sorted(paths, key=lambda one: one != first):
            paths[name].write_text(DECLARATION % (name, name, "people: patients\n"))
            with reticent.open(paths[name]) as session:
                assert spend(session, 0.4).cost == 0  # what it had bought is bought
        with reticent.open(paths["visits"]) as session:
            assert session.balance().spent == sum(before.values())
            refused(session)
        for path in paths.values():
            with SqlLedger(folder(path) / home.OWN) as left:
                assert all(one.remaining < one.terms.minimum for one in left.accounts())

    def test_beyond_the_cap_nothing_is_left(self, tmp_path):
        place = tmp_path / "desk"
        paths = [declared(place, name, people="") for name in ("visits", "drugs")]
        for path in paths:
            spent(path, 0.8)
        file_of_people(place)
        for path in paths:
            path.write_text(DECLARATION % (path.stem, path.stem, "people: patients\n"))
            reticent.open(path).close()
        with reticent.open(paths[0]) as session:
            assert session.balance().remaining == 0

    def test_a_join_that_was_cut_off_is_ended_by_any_other(self, tmp_path, monkeypatch):
        """The crash comes after the line in the home of the people: a data set that spent 0.8 alone."""
        place = tmp_path / "desk"
        file_of_people(place)
        visits, drugs = declared(place, "visits", people=""), declared(place, "drugs")
        spent(visits, 0.8)
        visits.write_text(DECLARATION % ("visits", "visits", "people: patients\n"))
        with monkeypatch.context() as patch:
            patch.setattr(account_moving, "hand_over", _crash)
            with pytest.raises(KeyboardInterrupt):
                reticent.open(visits)
        with reticent.open(drugs) as session:
            assert session.balance().spent > 0.7 * session.balance().terms.cap
            refused(session)

    def test_the_check_finds_a_join_that_only_its_own_data_set_ends(self, tmp_path, monkeypatch):
        """Planted: no line in the home of the people."""
        monkeypatch.setattr(account_joining, "_before", lambda *_: ("", set()))
        with pytest.raises(AssertionError, match="assert 0 > "):
            self.test_a_join_that_was_cut_off_is_ended_by_any_other(tmp_path, monkeypatch)

    def test_a_budget_is_not_raised_by_joining(self, tmp_path):
        place = tmp_path / "desk"
        visits = declared(place, "visits", people="")
        visits.write_text(visits.read_text().replace("epsilon: 2", "epsilon: 1"))
        spent(visits, 0.4)
        file_of_people(place)
        visits.write_text(DECLARATION % ("visits", "visits", "people: patients\n"))
        before = json.loads((folder(visits) / "home.json").read_text())
        with pytest.raises(AccountConflict, match="a budget is never raised by joining"):
            reticent.open(visits)
        assert json.loads((folder(visits) / "home.json").read_text()) == before

    def test_the_ledger_of_the_first_stays_where_somebody_put_it(self, tmp_path):
        place = tmp_path / "desk"
        visits = declared(place, "visits", people="")
        with reticent.open(visits, ledger=tmp_path / "chosen.sqlite") as session:
            spend(session, 0.4)
        file_of_people(place)
        visits.write_text(DECLARATION % ("visits", "visits", "people: patients\n"))
        assert known_after(visits).place == str(tmp_path / "chosen.sqlite")

    def test_a_witness_is_not_lost_by_joining(self, tmp_path, monkeypatch):
        place = tmp_path / "desk"
        visits = declared(place, "visits", people="")
        spent(visits, 0.4)
        file_of_people(place)
        visits.write_text(DECLARATION % ("visits", "visits", "people: patients\n"))
        (folder(visits) / "ledger.sqlite.witness").write_text(
            json.dumps({"url": "http://localhost:1", "key": "", "origin": "", "signer": "k"})
        )
        with pytest.raises(LedgerError, match="pays from a ledger with a witness"):
            reticent.open(visits)


def _crash(*_):
    raise KeyboardInterrupt


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (
                ("unit: {person: id, rows: 2}", "unit: row\nrows: 60"),
                r"unit must be \{person: COLUMN.*got row",
            ),
            (
                ("replace one", "add or remove one"),
                "relation must be 'replace one', those of .*'add or remove",
            ),
            (("epsilon: 2", "epsilon: 3"), r"budget\.epsilon must be 2, those of patients\.people, got 3"),
            (("delta: 1e-6", "delta: 1e-5"), r"budget\.delta must be 1e-06, those of patients.*got 1e-05"),
        ],
    )
    def test_a_declaration_must_agree_with_its_people(self, tables, change, why):
        visits, _ = tables
        visits.write_text(visits.read_text().replace(*change))
        with pytest.raises(AccountConflict, match=why):
            reticent.open(visits)
        assert not folder(visits).exists()
        assert not list(visits.parent.glob("*.people.reticent"))

    def test_nobody_leaves(self, tables):
        visits, drugs = tables
        spent(visits, 0.5)
        visits.write_text(DECLARATION % ("visits", "visits", ""))
        with pytest.raises(
            AccountConflict, match=r"people must be patients\.people, .*for ever, got nothing"
        ):
            reticent.open(visits)
        shutil.copyfile(visits.parent / "patients.people", visits.parent / "others.people")
        visits.write_text(DECLARATION % ("visits", "visits", "people: others\n"))
        with pytest.raises(AccountConflict, match=r"people must be patients\.people.*got others\.people"):
            reticent.open(visits)
        assert spent(drugs, 0.4).spent

    def test_the_check_finds_somebody_who_may_leave(self, tables, monkeypatch):
        """Planted: the home does not remember its people, and asks again what the declaration says."""
        monkeypatch.setattr(home, "_check_people", lambda *_: None)
        with pytest.raises(pytest.fail.Exception):
            self.test_nobody_leaves(tables)

    def test_a_name_from_before_they_joined_is_taken(self, tmp_path):
        """Its measurements moved along: other rows of that name would be answered from them."""
        desk, other = tmp_path / "desk", tmp_path / "else"
        visits = declared(desk, "visits", people="")
        spent(visits, 0.1)
        file_of_people(desk)
        told = visits.read_text().replace("name: visits", "name: calls")
        visits.write_text(told.replace("columns:", "people: patients\ncolumns:"))
        reticent.open(visits).close()
        later = declared(other, "visits", people="people: ../desk/patients.people\n")
        with pytest.raises(AccountConflict, match=r"name must be that of no other data set .* got visits"):
            reticent.open(later)

    def test_a_name_from_before_that_others_have_is_refused(self, tables, tmp_path):
        visits, _ = tables
        spent(visits, 0.1)
        other = declared(tmp_path / "else", "visits", people="")
        spent(other, 0.1)
        told = other.read_text().replace("name: visits", "name: calls")
        other.write_text(told.replace("columns:", "people: ../desk/patients.people\ncolumns:"))
        with pytest.raises(AccountConflict, match=r"name must be that of no other data set .* got visits"):
            reticent.open(other)

    def test_two_data_sets_of_one_name_are_refused(self, tables, tmp_path):
        visits, _ = tables
        spent(visits, 0.3)
        other = declared(tmp_path / "else", "visits", people="people: ../desk/patients.people\n")
        with pytest.raises(
            AccountConflict, match="name must be that of no other data set of people:patients"
        ):
            reticent.open(other)

    def test_the_check_finds_an_answer_of_another_table(self, tables, tmp_path, monkeypatch):
        """Planted: names are not compared, so the answer about one table is sold for the other's."""
        monkeypatch.setattr(account_joining, "members", lambda _: {})
        visits, _ = tables
        spent(visits, 0.3)
        other = declared(tmp_path / "else", "visits", people="people: ../desk/patients.people\n")
        with reticent.open(other) as session:
            assert spend(session, 0.3).cost == 0

    def test_a_second_declaration_of_the_same_rows_must_agree(self, tables):
        visits, _ = tables
        spent(visits, 0.3)
        second = visits.with_name("second.yaml")
        second.write_text(visits.read_text().replace("people: patients\n", ""))
        with pytest.raises(AccountConflict, match=r"people must be patients\.people"):
            reticent.open(second)
        second.write_text(visits.read_text())
        with reticent.open(second) as session:
            assert spend(session, 0.3).cost == 0

    def test_people_that_the_first_declaration_does_not_name(self, tmp_path):
        place = tmp_path / "desk"
        file_of_people(place)
        visits = declared(place, "visits", people="")
        spent(visits, 0.3)
        second = visits.with_name("second.yaml")
        second.write_text(DECLARATION % ("visits", "visits", "people: patients\n"))
        with pytest.raises(AccountConflict, match=r"people must be declared in visits\.yaml, too"):
            reticent.open(second)

    def test_a_copied_home_of_people_is_refused(self, tables):
        spent(tables[0], 0.5)
        theirs = known(tables[0]).folder
        shutil.copytree(theirs, theirs.with_name("kept"))
        shutil.rmtree(theirs)
        theirs.with_name("kept").rename(theirs)
        with pytest.raises(LedgerError, match=r"is a copy.*reticent dataset moved patients\.people`"):
            reticent.open(tables[1])

    def test_a_home_of_people_that_is_gone_is_not_made_anew(self, tables):
        spent(tables[0], 0.5)
        shutil.rmtree(known(tables[0]).folder)
        with pytest.raises(LedgerError, match=r"shares the account of .*which is gone: bring it back"):
            reticent.open(tables[0])
        reticent.open(tables[1]).close()  # it never joined, and begins anew
        with pytest.raises(LedgerError, match=r"shares the account of other people .*: bring back the home"):
            reticent.open(tables[0])

    def test_a_restored_home_of_people_is_taken_on_the_owners_word(self, tables):
        before = spent(tables[0], 0.5)
        theirs = known(tables[0]).folder
        shutil.copytree(theirs, theirs.with_name("kept"))
        shutil.rmtree(theirs)
        theirs.with_name("kept").rename(theirs)
        home.moved(tables[0].parent / "patients.people")
        with reticent.open(tables[1]) as session:
            assert session.balance() == before

    def test_another_name_of_their_file_is_no_other_people(self, tables):
        """Renamed, its home left behind; or a second name for it, by a hard link."""
        visits, drugs = tables
        spent(visits, 0.8)
        (visits.parent / "clients.people").hardlink_to(visits.parent / "patients.people")
        drugs.write_text(DECLARATION % ("drugs", "drugs", "people: clients\n"))
        for _ in range(2):
            with pytest.raises(AccountConflict, match=r"people must be patients\.people, .*is the same file"):
                reticent.open(drugs)
            (visits.parent / "patients.people").unlink(missing_ok=True)
        assert not (visits.parent / "clients.people.reticent" / "home.json").exists()
        (visits.parent / "clients.people").rename(visits.parent / "patients.people")
        drugs.write_text(DECLARATION % ("drugs", "drugs", "people: patients\n"))
        with reticent.open(drugs) as session:
            refused(session)

    def test_the_check_finds_a_second_name_that_is_not_noticed(self, tables, monkeypatch):
        """Planted: nothing is noted beside the file of people."""
        monkeypatch.setattr(home, "claimed_people", lambda file, identity, place: place)
        with pytest.raises(pytest.fail.Exception):
            self.test_another_name_of_their_file_is_no_other_people(tables)

    def refuse_first_declaration(self, tables):
        """Open a declaration whose file of people is refused; return another one of the same rows."""
        visits, drugs = tables
        spent(visits, 0.3)
        (visits.parent / "clients.people").hardlink_to(visits.parent / "patients.people")
        drugs.write_text(DECLARATION % ("drugs", "drugs", "people: clients\n"))
        with pytest.raises(AccountConflict, match="is the same file"):
            reticent.open(drugs)
        other = drugs.with_name("medicine.yaml")
        other.write_text(DECLARATION % ("medicine", "drugs", "people: patients\n"))
        return other

    @pytest.mark.parametrize("declared_format", [1, 2])
    def test_a_refused_file_of_people_leaves_the_rows_to_others(self, tables, declared_format, monkeypatch):
        """Its note stayed: nobody else could declare the rows with people, or at all once it was deleted."""
        if declared_format == 2:  # then a key that orders rows is kept in the home, too
            monkeypatch.setitem(globals(), "DECLARATION", f"format: 2\n{DECLARATION}")
        other = self.refuse_first_declaration(tables)
        assert not list(other.parent.glob(".drugs.csv*.reticent"))
        shutil.rmtree(other.parent / "drugs.reticent")
        with reticent.open(other) as session:
            assert session.balance().spent > 0, "and shares the account of its people"

    def test_control_a_note_that_stays_keeps_others_out(self, tables, monkeypatch):
        """Planted: what is refused is not forgotten."""
        monkeypatch.setattr(home, "_forgotten_if_refused", lambda *_: contextlib.nullcontext())
        with pytest.raises(AccountConflict, match=r"people must be declared in drugs\.yaml, too"):
            reticent.open(self.refuse_first_declaration(tables))

    def test_a_refusal_after_joining_forgets_nothing(self, tables, monkeypatch):
        """The people know the data set by then: its home stays, and a second opening works."""
        with monkeypatch.context() as patch:
            patch.setattr(
                account_opening, "opened", lambda *_: (_ for _ in ()).throw(AccountConflict("planted"))
            )
            with pytest.raises(AccountConflict, match="planted"):
                reticent.open(tables[0])
        assert spent(tables[0], 0.3).spent > 0

    def test_the_file_of_people_may_be_written_anew_and_move_with_its_home(self, tables):
        visits, drugs = tables
        first, place = spent(visits, 0.8), visits.parent
        (place / "new").write_text(PEOPLE)
        (place / "new").replace(place / "patients.people")  # as editors save
        with reticent.open(visits) as session:
            assert session.balance() == first
        for name in ("patients.people", "patients.people.reticent"):
            (place / name).rename(place / name.replace("patients", "clients", 1))
        drugs.write_text(DECLARATION % ("drugs", "drugs", "people: clients\n"))
        with reticent.open(drugs) as session:
            refused(session)

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("people: a b\n", "people must be 1 to 80 letters"),
            ("people: patients\n", "budget must be filled in"),
            (PEOPLE.replace("devices: 1", "devices: 0"), "devices must be 1 to 1000, got 0"),
            (PEOPLE + "ledger: x\n", "'ledger' must be one of people, budget, relation, devices"),
            (PEOPLE.replace("replace one", "replace"), "relation must be one of"),
        ],
    )
    def test_a_bad_file_of_people(self, tables, text, why):
        (tables[0].parent / "patients.people").write_text(text)
        with pytest.raises(ParameterError, match=rf"patients\.people: .*{why}"):
            reticent.open(tables[0])

    def test_a_missing_file_of_people(self, tables):
        (tables[0].parent / "patients.people").unlink()
        with pytest.raises(ParameterError, match="people must name a file with their budget, there is none"):
            reticent.open(tables[0])

    @pytest.mark.parametrize("people", ["a/b", "..", "pat ients", "x" * 81])
    def test_a_bad_name_of_people(self, tables, people):
        tables[0].write_text(DECLARATION % ("visits", "visits", f"people: {people}\n"))
        with pytest.raises(ParameterError, match=r"people must be a name, or a path that ends in \.people"):
            reticent.open(tables[0])

    def test_renamed_people_are_refused(self, tables):
        spent(tables[0], 0.3)
        (tables[0].parent / "patients.people").write_text(PEOPLE.replace("patients", "others"))
        with pytest.raises(AccountConflict, match="people must be patients, as when they were first asked"):
            reticent.open(tables[1])


def test_a_declaration_with_people_is_written_and_read(tables):
    data = dataset_file.read(tables[0])
    assert dataset_file.parse(dataset_file.write(data)) == data
    assert data.people == "patients"
    assert replace(data, people="").terms.subject != data.terms.subject


def test_a_population_says_what_it_is(tables):
    found = populations.of(tables[0], dataset_file.read(tables[0]))
    assert (found.account, found.devices, found.budget.epsilon) == ("people:patients", 1, 2.0)


def test_a_home_of_an_earlier_release_opens_and_joins(tables):
    """It notes nothing of people."""
    visits, drugs = tables
    visits.write_text(DECLARATION % ("visits", "visits", ""))
    before = spent(visits, 0.4).spent
    file = folder(visits) / "home.json"
    noted = json.loads(file.read_text())
    with file.open("r+") as place:  # in place: a home is known by its file
        old = {name: told for name, told in noted.items() if name not in home._LATER}
        place.write(json.dumps(old))
        place.truncate()
    with reticent.open(visits) as session:
        assert session.balance().spent == before
    visits.write_text(DECLARATION % ("visits", "visits", "people: patients\n"))
    reticent.open(visits).close()
    with reticent.open(drugs) as session:
        assert session.balance().spent == before


def test_the_commands_say_who_shares(tables, capsys):
    for path in tables:
        spent(path, 0.3)
    dataset_work.home(tables[0])
    said = capsys.readouterr().out
    assert "account   people:patients" in said
    assert "shared by visits, drugs" in said
    assert "no survey, no training" in said
    assert "Shared: this budget is that of the people in patients" in " ".join(
        explain(dataset_file.read(tables[0]))
    )


@pytest.mark.parametrize("name", ["patients.people", "patients.people.reticent", "visits.reticent"])
def test_their_ledger_is_found_by_their_file_and_every_home(tables, command, name):
    """`ledger verify patients.people.reticent` said that there is no ledger."""
    spent(tables[0], 0.3)
    ledger = known(tables[0]).place
    whole = command("ledger", "verify", ledger)
    assert whole[0] == 0
    assert command("ledger", "verify", str(tables[0].parent / name)) == whole
    (tables[0].parent / "patients.people.reticent" / home.FILE).unlink()
    code, _, err = command("ledger", "verify", str(tables[0].parent / "patients.people.reticent"))
    assert (code, "must lead to one ledger" in err) == (2, True)


def test_no_people_on_a_chain_or_over_the_network(tables, tmp_path):
    from reticent.apps.chain import work

    chain = tmp_path / "chain.json"
    ChainFile(None, 1, f"0x{'1' * 40}", f"0x{'2' * 40}", 0, 0).write(chain)
    with pytest.raises(ParameterError, match="people must be left out on a chain"):
        work.register(tables[0], oracle=f"0x{'3' * 40}", key=tmp_path / "k", chain=chain, rpc=None)
    State.of(tables[0].parent).close()
    with contextlib.closing(DataSets(Settings(tables[0].parent))) as data_sets:
        with pytest.raises(ParameterError, match="people must be left out of what comes over the network"):
            data_sets.declared(tables[0].read_text())
        data_sets.session("visits")
        assert data_sets.data("drugs").account == "people:patients"  # though it was never opened
