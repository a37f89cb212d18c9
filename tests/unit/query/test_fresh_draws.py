"""A fresh draw is charged once under its idempotency text, and is nobody else's, whatever happens between."""

from __future__ import annotations

import contextlib

import pytest

import reticent
from reticent.errors import BudgetExceeded, IdempotencyConflict, ReticentError
from reticent.ledger import Amount, MemoryLedger, Unit
from reticent.query.language import tree
from reticent.query.notebook import Notebook

from .population import DECLARATION, declared, file_of_people
from .reusing import Town

UNITS = 10**9
FRESH = {"information": UNITS / 1e12, "reuse": "none"}
TEXT = "retry"


class InjectedCrash(BaseException):
    """The process ends at a named point."""


class FaultyNotebook(Notebook):
    """A notebook in RAM whose process ends before or after a note, at the point that is named."""

    def __init__(self, point: str = "") -> None:
        super().__init__()
        self.point = point

    def note_request(self, idempotency, note):
        name = "charged note" if note.is_charged else "tried note"
        self._end_at(f"before the {name}")
        super().note_request(idempotency, note)
        self._end_at(f"after the {name}")

    def _end_at(self, point):
        if point == self.point:
            self.point = ""
            raise InjectedCrash


POINTS = [f"{when} the {note} note" for note in ("tried", "charged") for when in ("before", "after")]


def ask_as_another(town):
    """Buy a fresh draw of the same question without a text: somebody sees it."""
    return town.whole(**FRESH)


class FirstLook(Notebook):
    """Planted, the old rule: what was noted before the ledger was asked holds, charged or not."""

    def note_request(self, idempotency, note):
        super().note_request(idempotency, note._replace(is_charged=True))


# After a refusal


def refuse_by_quota(town):
    def paying(units):
        raise ReticentError("the quota does not suffice")

    with pytest.raises(ReticentError, match="quota"):
        town.whole(**FRESH, idempotency=TEXT, paying=paying)


def refuse_by_budget(town):
    ledger = town.session._ledger
    held = ledger._find("town")
    spent, held.spent = held.spent, held.terms.cap
    with pytest.raises(BudgetExceeded):
        town.whole(**FRESH, idempotency=TEXT)
    held.spent = spent


def draw_after_refusal(refuse, notebook=Notebook):
    """Return what a fresh draw costs that was refused first, when another has bought one meanwhile."""
    town = Town([[10, 10], [10, 10]], seed=3, notebook=notebook())
    with town.session:
        refuse(town)
        ask_as_another(town)
        return town.whole(**FRESH, idempotency=TEXT).cost


@pytest.mark.parametrize("refuse", [refuse_by_quota, refuse_by_budget])
def test_a_draw_after_a_refusal_is_paid_for_and_fresh(refuse):
    assert draw_after_refusal(refuse) == UNITS


def test_planted_a_position_of_the_first_look_is_caught():
    cost = draw_after_refusal(refuse_by_budget, FirstLook)
    assert cost == 0, "somebody else's draw, which was seen already"


# After a crash


def crash_and_retry(point, *, meanwhile):
    """Return the units charged for a draw in all, and those of its answer, if the process ends at a point."""
    notebook = FaultyNotebook(point)
    town = Town([[10, 10], [10, 10]], seed=3, notebook=notebook)
    with town.session:
        ask_as_another(town)
        before = town.session.balance().spent
        with pytest.raises(InjectedCrash):
            town.whole(**FRESH, idempotency=TEXT)
        bought_by_others = ask_as_another(town).cost if meanwhile else 0
        for _ in range(2):
            answer = town.whole(**FRESH, idempotency=TEXT)
        return town.session.balance().spent - before - bought_by_others, answer


@pytest.mark.parametrize("meanwhile", [False, True])
@pytest.mark.parametrize("point", POINTS)
def test_a_draw_is_charged_once_wherever_the_process_ends(point, meanwhile):
    charged, answer = crash_and_retry(point, meanwhile=meanwhile)
    assert charged == UNITS
    assert answer.cost == UNITS, "as the first try would have been told"


def test_planted_no_note_before_the_ledger_is_asked_is_caught(monkeypatch):
    """Without it nobody knows from where the charged draw counted, and the text is refused for ever."""
    monkeypatch.setattr(FaultyNotebook, "request_notes", lambda *given: [])
    with pytest.raises(IdempotencyConflict):
        crash_and_retry("before the charged note", meanwhile=True)


def test_a_text_of_another_question_is_refused():
    town = Town([[10, 10], [10, 10]], seed=3)
    with town.session:
        town.whole(**FRESH, idempotency=TEXT)
        with pytest.raises(IdempotencyConflict):
            town.among([0], **FRESH, idempotency=TEXT)


# After the account moved


class ForgetfulLedger(MemoryLedger):
    """A ledger that repeats measurements of another, and knows none of its texts."""

    def forget_texts(self):
        for held in self._accounts.values():
            held.answered.clear()


@pytest.mark.parametrize("others", [False, True])
def test_a_charged_draw_is_not_charged_again_where_texts_are_unknown(others):
    ledger = ForgetfulLedger()
    town = Town([[10, 10], [10, 10]], seed=3, ledger=ledger)
    with town.session:
        town.whole(**FRESH, idempotency=TEXT)
        ledger.forget_texts()
        if others:
            ask_as_another(town)
        spent = town.session.balance().spent
        town.whole(**FRESH, idempotency=TEXT)
        assert town.session.balance().spent == spent


def join_and_retry(tmp_path):
    """Return what is charged for a draw that is tried again after its data set joined its people."""
    place = tmp_path / "desk"
    path = declared(place, "visits", people="")
    query = tree.count()
    with reticent.open(path) as session:
        information = session.data.terms.cap / 1e13
        session.ask(query, information=information, reuse="none")
        cost = session.ask(query, information=information, reuse="none", idempotency=TEXT).cost
    file_of_people(place)
    path.write_text(DECLARATION % ("visits", "visits", "people: patients\n"))
    with reticent.open(path) as session:
        spent = session.balance().spent
        assert spent >= 2 * cost
        session.ask(query, information=information, reuse="none", idempotency=TEXT)
        return session.balance().spent - spent


def test_joining_people_charges_no_draw_twice(tmp_path):
    assert join_and_retry(tmp_path) == 0


def test_planted_notes_by_account_are_caught(tmp_path, monkeypatch):
    """The old fault: notes were kept under the name of the account, which joining changes."""
    right, accounts = Notebook.request_notes, {}

    def note_with_account(notebook, idempotency, note, kept=Notebook.note_request):
        accounts[idempotency] = note.position.account
        kept(notebook, idempotency, note)

    def only_of_people(notebook, idempotency):
        return right(notebook, idempotency) if accounts.get(idempotency) == "patients" else []

    monkeypatch.setattr(Notebook, "note_request", note_with_account)
    monkeypatch.setattr(Notebook, "request_notes", only_of_people)
    assert join_and_retry(tmp_path) > 0


def test_the_amounts_are_those_of_the_ledger():
    """A ledger that was asked for the same text and amount answers as before, and charges nothing."""
    town = Town([[10, 10], [10, 10]], seed=3)
    with town.session, contextlib.closing(Notebook()):
        answer = town.whole(**FRESH, idempotency=TEXT)
        amount = Amount(UNITS, Unit.MU2, town.data.relation)
        key = answer.receipt.key
        assert town.session._ledger.request("town", key, amount, idempotency=TEXT).charged == UNITS
