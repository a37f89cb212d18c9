"""One population, one account: two tables and a survey, asked by command, Python and service.

Every opener buys answers of its own about one of two tables, a part of the budget each; the operator puts a
survey of the same people under their account meanwhile, and looks at its periods. However they come together,
what was shown is within one cap, and the account counts all of it.
"""

import contextlib
import itertools
import sys
from io import StringIO
from unittest.mock import patch

import pytest

import reticent
from reticent.apps import main
from reticent.apps.collect import work as surveys
from reticent.apps.collect.collecting import Collecting
from reticent.apps.query.data_sets import DataSets
from reticent.apps.query.desk import Desk
from reticent.collect.study import of_survey
from reticent.errors import BudgetExceeded, LedgerError
from reticent.fleet import people as peoples
from reticent.fleet.people import price, under
from reticent.fleet.record import Record
from reticent.ledger import SqlLedger
from reticent.ledger.verify import verify
from reticent.query import count as how_many
from reticent.query.declarations import dataset_file, home
from reticent.service.settings import Settings
from reticent.service.state import State

from ..support.crash_points import enumerate_crashes, preload_modules, run_to_end
from ..unit.query.population import declared, file_of_people, tables
from .test_one_ledger import COMMITS, _person

__all__ = ["tables"]  # fixtures

PARTS = 8
PERIODS, LOOKS = 3, 9  # that are looked at, and how often by one process: the tables shall have a share, too
SURVEY = """\
name: mood
version: 1
purpose: How people are.
epsilon: 0.12
start: 2026-01-01
period: 1 day
periods: 300
groups: 2
attributes:
  well: {values: [yes, no], fallback: no}
"""


def part_of(path):
    return dataset_file.read(path).terms.cap // PARTS


def by_python(paths, ages):
    """Buy with `reticent.open`, of the first table."""
    with reticent.open(paths[0]) as session:
        for age in ages:
            session.ask(how_many(where=f"age > {age}"), information=part_of(paths[0]) / 10**12)
            yield age


def by_command(paths, ages):
    """Buy with the command, of the second table."""
    for age in ages:
        question = f"SELECT COUNT(*) FROM drugs WHERE age > {age}"
        units = repr(part_of(paths[1]) / 10**12)
        argv = ["reticent", "ask", str(paths[1]), question, "--information", units]
        said = StringIO()
        with (
            patch.object(sys, "argv", argv),
            contextlib.redirect_stdout(StringIO()),
            contextlib.redirect_stderr(said),
            pytest.raises(SystemExit) as ended,
        ):
            main()
        if ended.value.code:
            raise LedgerError(said.getvalue())
        yield age


def by_service(paths, ages):
    """Buy at the desk of a service, of both tables in turn."""
    with contextlib.closing(Desk(Settings(paths[0].parent, grid_s=0.0))) as desk:
        person, names = _person(desk.state), itertools.cycle(("visits", "drugs"))
        for age in ages:
            units = part_of(paths[0]) / 10**12
            desk.ask(person, next(names), how_many(where=f"age > {age}"), information=units)
            yield age


def by_survey(paths, numbers):
    """Look at periods of the survey, once it is under the account of the people."""
    folder = paths[0].parent
    with contextlib.redirect_stdout(StringIO()):
        surveys.under(folder, "mood", folder / "patients.people")
    with (
        contextlib.closing(DataSets(Settings(folder))) as data_sets,
        contextlib.closing(Collecting(Settings(folder), lambda: data_sets.book)) as collecting,
    ):
        survey = collecting.survey("mood")
        for number in itertools.islice(numbers, LOOKS):
            collecting.learn(survey, [number % PERIODS])
            yield number % PERIODS


BUY = {"python": by_python, "command": by_command, "service": by_service, "survey": by_survey}


def publish_survey(paths):
    """Make the folder of two tables a service's, with the survey."""
    folder = paths[0].parent
    State.of(folder).close()
    (folder.parent / "mood.yaml").write_text(SURVEY)
    with contextlib.redirect_stdout(StringIO()):
        surveys.publish(folder, folder.parent / "mood.yaml")
    return paths


@pytest.fixture
def desk(tables):
    """The folder of a service with both tables and the survey."""
    return publish_survey(tables)


@pytest.fixture
def make_desk(tmp_path):
    """A function that makes such a folder of a number."""

    def make(number):
        folder = tmp_path / f"desk {number}"
        file_of_people(folder)
        paths = declared(folder, "visits"), declared(folder, "drugs")
        run_to_end(lambda: publish_survey(paths))
        return paths

    return make


def account(paths):
    found = home.known(paths[0])
    assert home.known(paths[1]) == found
    with SqlLedger(found.place) as ledger:
        verify(ledger)
        survey = next(iter(under(ledger.accounts())))
        held = ledger.rows(
            "SELECT b.name, m.information FROM measurement m JOIN bought b ON b.id = m.bought "
            "JOIN account a ON a.id = b.account WHERE a.name = ?",
            (found.account,),
        )
        return ledger.balance(found.account), held, survey


def look_at_period(paths):
    assert list(by_survey(paths, iter([0]))) == [0]


def check_period(paths):
    """Look again after a crash; raise AssertionError if the period was not paid for exactly once."""
    look_at_period(paths)
    balance, held, _ = account(paths)
    assert balance.spent == sum(units for _, units in held) == period_price(paths)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_crash_at_any_commit_pays_for_a_period_once(make_desk):
    """From putting the survey under the people's account to the estimate that is shown."""
    paths, points = make_desk("preloaded"), 0
    preload_modules(lambda: check_period(paths))
    paths = make_desk(0)
    for point in enumerate_crashes(lambda: look_at_period(paths), calls=COMMITS):  # noqa: B023
        try:
            run_to_end(lambda: check_period(paths))  # noqa: B023
        except AssertionError as error:
            raise AssertionError(f"{point}: {error}") from error
        points += 1
        paths = make_desk(points)
    assert points >= 6


def period_price(paths):
    folder = paths[0].parent
    with contextlib.closing(Collecting(Settings(folder))) as collecting:
        study = of_survey(collecting.survey("mood"))
    return price(study.unit, study.units, 1)


def test_the_check_finds_a_survey_with_a_cap_of_its_own(desk, monkeypatch):
    """Planted: periods are entered in the survey's account alone, as in the releases before."""
    monkeypatch.setattr(peoples, "of_study", lambda *_: None)
    part, each = part_of(desk[0]), period_price(desk)
    shown = bought("python", desk) * part + min(PERIODS, bought("survey", desk)) * each
    assert shown > account(desk)[0].terms.cap


def test_the_check_finds_tables_with_a_budget_each(desk, monkeypatch):
    """Planted: a declaration's people are passed over."""
    monkeypatch.setattr(dataset_file, "checked_name", lambda _: "")
    assert bought("python", desk) + bought("command", desk) > PARTS


def bought(opener, paths):
    """How much is shown before the budget is gone."""
    got = 0
    with contextlib.suppress(BudgetExceeded, LedgerError):
        for _ in BUY[opener](paths, range(1, 80)):
            got += 1
    return got


def test_a_refused_period_is_not_shown(desk):
    """The table has spent everything: what the survey collected stays unseen."""
    with contextlib.redirect_stdout(StringIO()):
        surveys.under(desk[0].parent, "mood", desk[0].parent / "patients.people")
    assert bought("service", desk) == PARTS
    assert bought("survey", desk) == 0
    with (
        SqlLedger(home.known(desk[0]).place) as ledger,
        contextlib.closing(Collecting(Settings(desk[0].parent))) as collecting,
        pytest.raises(BudgetExceeded, match="people:patients"),
    ):
        Record(ledger).learn(of_survey(collecting.survey("mood")), {0: 1})
