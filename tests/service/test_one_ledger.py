"""T24: command, Python, service and oracle on one declaration, in all orders, ended at every commit.

The budget is cut into `PARTS`; every opener buys answers to questions of its own, a part each, until it is
refused. However they come together, exactly `PARTS` are sold. At once, and killed, they are in tests/races.
"""

import contextlib
import itertools
import json
import os
import shutil
import sys
import time
from functools import partial
from io import StringIO
from unittest.mock import patch

import pytest

import reticent
from reticent.apps import main
from reticent.apps.query.desk import Desk
from reticent.errors import BudgetExceeded, LedgerError, ReticentError
from reticent.ledger import SqlLedger
from reticent.query import Session, census
from reticent.query import count as how_many
from reticent.query.declarations import account_moving, dataset_file, home, ledger_places
from reticent.query.declarations.home import folder as kept_folder
from reticent.query.notebook import Notebook
from reticent.query.rows import source
from reticent.service.keys import Role
from reticent.service.settings import Settings
from reticent.service.state import State

from ..support.crash_points import enumerate_crashes, preload_modules, run_to_end

PARTS = 8
OPENERS = ("python", "command", "service")
# Whatever lasts of an opening and a purchase: the note of where the ledger is, and each write to a ledger.
COMMITS = {"write", "SqliteStore._commit", "Quotas.reserve", "Quotas.settle"}


def part_of(path):
    return dataset_file.read(path).terms.cap // PARTS


def by_python(path, ages):
    """Buy with `reticent.open`; the ages whose answers came."""
    with reticent.open(path) as session:
        for age in ages:
            session.ask(how_many(where=f"income > {age}"), information=part_of(path) / 10**12)
            yield age


def by_command(path, ages):
    """Buy with the command, as a person types it."""
    for age in ages:
        question = f"SELECT COUNT(*) FROM census WHERE income > {age}"
        argv = ["reticent", "ask", str(path), question, "--information", repr(part_of(path) / 10**12)]
        with (
            patch.object(sys, "argv", argv),
            contextlib.redirect_stdout(StringIO()),
            contextlib.redirect_stderr(StringIO()) as said,
            pytest.raises(SystemExit) as ended,
        ):
            main()
        if ended.value.code:
            raise LedgerError(said.getvalue())
        yield age


def by_service(path, ages):
    """Buy at the desk of a service, which serves the declaration's folder."""
    with contextlib.closing(Desk(Settings(path.parent, grid_s=0.0))) as desk:
        person = _person(desk.state)
        for age in ages:
            desk.ask(person, "census", how_many(where=f"income > {age}"), information=part_of(path) / 10**12)
            yield age


def _person(state):
    with contextlib.suppress(ReticentError):
        return state.make_key(f"p{os.getpid()}-{time.monotonic_ns()}", Role.ANALYST)[0]
    raise AssertionError("no key could be made")


BUY = {"python": by_python, "command": by_command, "service": by_service}


def bought(opener, path, ages):
    """The ages that were answered before the budget was gone."""
    got = []
    with contextlib.suppress(BudgetExceeded, LedgerError):
        for age in BUY[opener](path, ages):
            got.append(age)
    return got


@pytest.fixture
def declaration(tmp_path):
    place = tmp_path / "desk"
    place.mkdir()
    path = census.write(place, rows=60)
    State.of(place).close()
    return path


def spent(path):
    """What the one ledger says; no other beside the declaration may have anything left."""
    found = home.known(path)
    for place in (kept_folder(path) / home.OWN, path.parent / home.SERVICE / home.OWN):
        if place.is_file() and str(place.resolve()) != found.place:
            with SqlLedger(place) as left:
                assert all(one.remaining < one.terms.minimum for one in left.accounts())
    with SqlLedger(found.place) as ledger:
        return ledger.balance(found.account).spent


@pytest.mark.parametrize("order", list(itertools.permutations(OPENERS)), ids="-".join)
def test_in_all_orders(declaration, order):
    ages, sold = iter(range(1, 1000)), []
    few = PARTS // 2 - 1
    for opener in order[:2]:
        sold += bought(opener, declaration, itertools.islice(ages, few))
    sold += bought(order[2], declaration, itertools.islice(ages, PARTS))
    assert len(sold) == PARTS
    assert spent(declaration) // part_of(declaration) == PARTS


def test_through_links_and_copies(declaration, tmp_path):
    link, copy, hard = (
        tmp_path / "link.yaml",
        declaration.with_name("copy.yaml"),
        declaration.with_name("h.yaml"),
    )
    link.symlink_to(declaration)
    shutil.copyfile(declaration, copy)
    os.link(declaration, hard)
    ages, sold = iter(range(1, 1000)), []
    for opener, path in (("python", declaration), ("python", copy), ("command", link), ("python", hard)):
        sold += bought(opener, path, itertools.islice(ages, 2))
    sold += bought("service", declaration, itertools.islice(ages, PARTS))
    assert len(sold) == PARTS


# Ended at every commit


def units_closed(path):
    """Return what was paid for and never told, since the account moved meanwhile."""
    with SqlLedger(home.known(path).place) as ledger:
        bought = ledger.rows(
            "SELECT b.name, m.information FROM measurement m JOIN bought b ON b.id = m.bought"
        )
    return sum(units for name, units in bought if name.endswith(": closed before"))


def crash_at_every_commit(folder, opener, retrying):
    """End a purchase at each commit, from the opening of the declaration on; let another opener ask again.

    Returns:
        The number of crashes.

    Raises:
        AssertionError: If the question was not paid for exactly once. What was paid for and not yet drawn
            when the account moved to the other opener's ledger is closed there, and counts as spent.
    """
    path = None

    def declare(number):
        (folder / str(number)).mkdir(parents=True)
        path = census.write(folder / str(number), rows=60)
        State.of(path.parent).close()
        return path

    def buy(opener):
        assert list(BUY[opener](path, [1])) == [1]

    def check():
        buy(retrying)
        paid = spent(path) - units_closed(path)
        assert paid == part_of(path), f"{paid / part_of(path)} parts were paid"

    path, crashes = declare("preloaded"), 0
    preload_modules(partial(buy, opener))
    preload_modules(check)
    path = declare(crashes)
    for point in enumerate_crashes(partial(buy, opener), calls=COMMITS):
        try:
            run_to_end(check)
        except AssertionError as error:
            raise AssertionError(f"{point}: {error}") from error
        crashes += 1
        path = declare(crashes)
    return crashes


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("opener", "retrying"), [("python", "service"), ("command", "python"), ("service", "command")]
)
def test_a_crash_at_any_commit_is_paid_once(tmp_path, opener, retrying):
    assert crash_at_every_commit(tmp_path / "desks", opener, retrying) >= 8


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_planted_a_charge_for_each_try_is_caught(tmp_path, monkeypatch):
    """A pending measurement that is not found again is paid for a second time."""
    pending = SqlLedger._request

    def forget_pending(self, terms, key, information, idempotency):
        return pending(self, terms, key, information + len(self.pending(terms.name)), idempotency)

    monkeypatch.setattr(SqlLedger, "_request", forget_pending)
    with pytest.raises(AssertionError, match=r"crash \d+"):
        crash_at_every_commit(tmp_path / "desks", "command", "python")


def _each_its_own(path, data, ledger=None):
    """Planted: every opener finds a ledger of its own, as in the first releases."""
    place = kept_folder(path)
    place.mkdir(exist_ok=True)
    where = home.OWN if ledger is None else ledger_places.kept(ledger, place)
    return contextlib.nullcontext(home.Home(place, "0" * 32, data.name, where))


def test_the_check_finds_a_ledger_for_each_opener(declaration, monkeypatch):
    monkeypatch.setattr(home, "settled", _each_its_own)
    monkeypatch.setattr(account_moving, "left_behind", lambda *_, **__: account_moving.Taken(0, 0))
    ages = iter(range(1, 1000))
    sold = [
        age
        for opener in ("python", "service")
        for age in bought(opener, declaration, itertools.islice(ages, PARTS))
    ]
    assert len(sold) > PARTS


# Files of earlier releases


def as_before(path, ledger, parts, first):
    """Buy as an earlier release did: without an identity, in the opener's own ledger."""
    data = dataset_file.read(path)
    ledger.parent.mkdir(exist_ok=True)
    with Session(data, partial(source.connect, data, path.parent), SqlLedger(ledger), Notebook()) as session:
        for age in range(first, first + parts):
            session.ask(how_many(where=f"income > {age}"), information=part_of(path) / 10**12)


@pytest.mark.parametrize("opener", ["python", "service"])
@pytest.mark.parametrize(("beside", "service"), [(3, 0), (0, 3), (3, 2), (6, 6)])
def test_todays_files_are_adopted(declaration, opener, beside, service):
    if beside:
        as_before(declaration, kept_folder(declaration) / home.OWN, beside, 200)
    if service:
        as_before(declaration, declaration.parent / home.SERVICE / home.OWN, service, 300)
    sold = bought(opener, declaration, range(1, 2 * PARTS))
    left = max(0, PARTS - beside - service)
    bound = part_of(declaration) > 0 and len(sold) in ((left, left - 1) if service and left else (left,))
    assert bound, len(sold)  # an account of a service costs the least amount to bind: a part may not fit then
    if left:
        again = bought(opener, declaration, [*range(200, 200 + beside), *range(300, 300 + service)])
        assert len(again) == beside + service  # what either had bought is free


def test_a_service_says_what_it_adopted(declaration, caplog):
    as_before(declaration, kept_folder(declaration) / home.OWN, 5, 200)
    bought("service", declaration, [1])
    (event,) = [json.loads(one.message) for one in caplog.records if "adopted" in one.message]
    assert event == {
        "event": "adopted", "dataset": "census", "units": str(5 * part_of(declaration)), "over_cap": "0",
    }  # fmt: skip


def test_a_service_serves_no_account_that_is_elsewhere(declaration, tmp_path, caplog):
    """Whoever asks over the network is not told where ledgers lie; the operator is."""
    with reticent.open(declaration, ledger=tmp_path / "chosen.sqlite"):
        pass
    with (
        contextlib.closing(Desk(Settings(declaration.parent, grid_s=0.0))) as desk,
        pytest.raises(LedgerError, match=r"^the account of census is not in this service's ledger: its log"),
    ):
        desk.session("census")
    (event,) = [json.loads(one.message) for one in caplog.records if "not opened" in one.message]
    assert "census.yaml pays from " in event["why"]
    assert "chosen.sqlite, the service from " in event["why"]
    where = str(tmp_path / "chosen.sqlite")
    with contextlib.closing(Desk(Settings(declaration.parent, ledger=where, grid_s=0.0))) as desk:
        assert desk.session("census").data.identity == home.known(declaration).identity
