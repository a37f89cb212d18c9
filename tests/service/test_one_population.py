"""One population, one account: two tables and a survey, asked by command, Python and service at once, killed.

Every opener buys answers of its own about one of two tables, a part of the budget each; the operator puts a
survey of the same people under their account meanwhile, and looks at its periods. However they come together,
what was shown is within one cap, and the account counts all of it.
"""

import contextlib
import itertools
import os
import random
import sys
from io import StringIO

import pytest

import reticent
from reticent.apps import main
from reticent.apps.collect import work as surveys
from reticent.apps.collect.collecting import Collecting
from reticent.apps.query.data_sets import DataSets
from reticent.apps.query.desk import Desk
from reticent.collect.study import of_survey
from reticent.errors import BudgetExceeded, LedgerError, ReticentError
from reticent.fleet import people as peoples
from reticent.fleet.people import price, under
from reticent.fleet.record import Record
from reticent.ledger import SqlLedger
from reticent.ledger.verify import verify
from reticent.query import count as how_many
from reticent.query.declarations import dataset_file, home
from reticent.service.settings import Settings
from reticent.service.state import State

from ..unit.query.population import tables
from .test_one_ledger import FORK, _person

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
        sys.argv = ["reticent", "ask", str(paths[1]), question, "--information", units]
        said = StringIO()
        with (
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


@pytest.fixture
def desk(tables):
    """The folder of a service with both tables and the survey."""
    folder = tables[0].parent
    State.of(folder).close()
    (folder.parent / "mood.yaml").write_text(SURVEY)
    with contextlib.redirect_stdout(StringIO()):
        surveys.publish(folder, folder.parent / "mood.yaml")
    return tables


def work(opener, paths, paper, first):
    """One process: buy until refused, and write down each answer that came."""
    file = os.open(paper, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with contextlib.suppress(ReticentError):
        for shown in BUY[opener](paths, range(first, 1000, 9)):
            os.write(file, f"{opener} {shown}\n".encode())
    os._exit(0)


def together(paths, paper, kills, seed=24):
    """All at once, some of them killed and started again; what was shown."""
    rng, firsts = random.Random(seed), itertools.count(1)

    def start(opener):
        child = FORK.Process(target=work, args=(opener, paths, paper, next(firsts)))
        child.start()
        return child

    at_work = {opener: start(opener) for opener in BUY}
    for _ in range(kills):
        opener = rng.choice(list(BUY))
        at_work[opener].join(rng.random() * 0.6)
        at_work[opener].kill()
        at_work[opener].join()
        at_work[opener] = start(opener)
    for child in at_work.values():
        child.join()
    for opener in BUY:  # whatever the account's move cut off
        last = start(opener)
        last.join()
    return set(paper.read_text().split("\n")) - {""}


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


@pytest.mark.parametrize(
    "kills", [0, 8, pytest.param(150, marks=pytest.mark.slow)], ids=["none", "some", "many"]
)
def test_one_cap_holds_over_two_tables_and_a_survey(desk, tmp_path, kills):
    shown = together(desk, tmp_path / "shown.txt", kills)
    balance, held, survey = account(desk)
    part, each = part_of(desk[0]), period_price(desk)
    periods = {line for line in shown if line.startswith("survey")}
    assert len(shown - periods) * part + len(periods) * each <= balance.spent <= balance.terms.cap
    assert balance.remaining < min(part, each)  # all of it was asked for
    assert sum(units for _, units in held) == balance.spent
    assert len(periods) <= sum(name.startswith(survey) for name, _ in held)
    assert periods
    assert shown - periods


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
