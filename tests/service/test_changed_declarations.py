"""A running server asks and charges for what is declared, and published, by now."""

import contextlib
import re
import shutil

import pytest

from reticent.apps.query import publishing
from reticent.apps.query.data_sets import DataSets
from reticent.apps.query.desk import Desk
from reticent.errors import LedgerError, ReticentError
from reticent.query import Session
from reticent.service.refusals import Refused
from reticent.service.settings import Settings

from .several import Database, machine, published

QUERY = "SELECT COUNT(*) FROM census WHERE income > 100"
WORDS = {"information": 1e-5}


@pytest.fixture(scope="module")
def database():
    found = Database()
    yield found
    found.end()


def declare_anew(place):
    """Raise the version of the declaration in a folder."""
    path = place / "census.yaml"
    text = path.read_text()
    path.write_text(re.sub(r"^version: .*$", "version: 2026-02", text, flags=re.M))
    assert path.read_text() != text


def ask(desk):
    return desk.ask(desk.state.named("alice"), "census", QUERY, **WORDS)


# One machine


def test_a_version_that_is_declared_anew_is_asked(folder, keys):
    with contextlib.closing(Desk(Settings(folder, grid_s=0.0))) as desk:
        first = ask(desk)
        assert ask(desk).cost == 0
        declare_anew(folder)
        assert desk.data("census").version == desk.session("census").data.version == "2026-02"
        second = ask(desk)
        assert second.cost > 0, "another version is another question"
        assert second.receipt.key != first.receipt.key


def test_a_declaration_that_is_gone_is_not_served(folder, keys):
    with contextlib.closing(Desk(Settings(folder, grid_s=0.0))) as desk:
        ask(desk)
        (folder / "census.yaml").rename(folder / "census.txt")
        with pytest.raises(Refused, match="data set"):
            ask(desk)
        (folder / "census.txt").rename(folder / "census.yaml")
        assert ask(desk).cost == 0


def ask_while_it_changes(folder, monkeypatch):
    """Ask while the data set is declared anew, after its session was taken and before it is paid for."""
    with contextlib.closing(Desk(Settings(folder, grid_s=0.0))) as desk:
        true = Session._due

        def changed(self, *given):
            declare_anew(folder)
            return true(self, *given)

        desk.session("census")
        with monkeypatch.context() as patch:
            patch.setattr(Session, "_due", changed)
            try:
                ask(desk)
            except ReticentError as error:
                return desk.balance("census").spent, str(error)
        return desk.balance("census").spent, ""


def test_nothing_is_charged_for_a_version_that_changes_meanwhile(folder, keys, monkeypatch):
    spent, why = ask_while_it_changes(folder, monkeypatch)
    assert (spent, "declared anew: ask again" in why) == (0, True)


def test_planted_a_charge_without_a_look_is_caught(folder, keys, monkeypatch):
    monkeypatch.setattr(DataSets, "check_current", lambda *given: None)
    assert ask_while_it_changes(folder, monkeypatch)[0] > 0


def test_what_was_paid_for_is_measured_by_nobody_who_opened_another_version(folder, keys):
    """The other process opens the data set by itself: it may find the next version there."""
    with contextlib.closing(Desk(Settings(folder, grid_s=0.0))) as desk:
        session, grants = desk.session("census"), []

        class Waiting:
            def due(self, query, accuracy):
                return session.due(query, accuracy)

            def record(self, query, grant):
                grants.append(grant)

        session.pay(QUERY, _accuracy(), hand=Waiting())
        declare_anew(folder)
        for wrong in (desk.session("census").record,):
            with pytest.raises(LedgerError, match="declared anew after this was paid for"):
                wrong(QUERY, grants[0])
        session.record(QUERY, grants[0])


def _accuracy():
    from reticent.query.accuracy import Accuracy

    return Accuracy(**WORDS)


# Several servers


def version_that_is_charged(place, made_census, url):
    """Return the key that a running server charges for, after another version was published elsewhere."""
    shutil.copytree(made_census, place / "home")
    published(place / "home", url)
    server = machine(place / "home", place / "server")
    with contextlib.closing(Desk(Settings(server, ledger=url, shared=True))) as desk:
        before = ask(desk)
        declare_anew(place / "home")
        with contextlib.closing(DataSets(Settings(place / "home", ledger=url))) as sets:
            assert publishing.publish(sets, url) == (["census"], {})
        spent = desk.balance("census").spent
        with contextlib.suppress(LedgerError):
            other = desk.ask(desk.state.named("alice"), "census", QUERY, information=2e-5)
            return before.receipt.key == other.receipt.key, desk.balance("census").spent - spent
        declare_anew(server)
        after = ask(desk)
        return before.receipt.key == after.receipt.key, 0


def test_a_server_stops_when_another_version_is_published(tmp_path, made_census, database):
    assert version_that_is_charged(tmp_path, made_census, database.fresh()) == (False, 0)


def test_planted_an_open_session_that_is_returned_unchecked_is_caught(
    tmp_path, made_census, database, monkeypatch
):
    monkeypatch.setattr(DataSets, "_is_current", lambda sets, name: name in sets._sessions)
    is_same, charged = version_that_is_charged(tmp_path, made_census, database.fresh())
    assert is_same
    assert charged > 0
