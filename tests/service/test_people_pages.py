"""A service whose data sets share an account with a survey: what its pages and calls say of it."""

import pytest

from reticent.collect.study import of_survey
from reticent.collect.wire import batch
from reticent.fleet.people import UNDER
from reticent.query.declarations import people_account

from ..unit.query.population import declared, file_of_people
from .test_collecting import BATCH
from .test_survey_pages import operator, signed_in

__all__ = ["operator", "signed_in"]  # fixtures


@pytest.fixture
def people(service, operator):
    """A table of people, and their file; reports of a survey have come."""
    folder = service.desk.settings.folder
    path = file_of_people(folder)
    declared(folder, "visits")
    service.desk.session("visits")
    operator.send(batch(operator.fleet.reports()), BATCH)
    return path


def test_what_is_not_added_is_said(people, operator, signed_in):
    look = signed_in("alice")
    assert look("/surveys/fleet").status_code == 200
    name = of_survey(operator.survey).terms.name
    for page in ("/datasets/visits", "/ledger"):
        assert f"{name} is added to no account of people: nobody said" in look(page).text
    assert "Shared: this budget is that of the people in patients" in look("/datasets/visits").text


def test_a_period_that_their_budget_does_not_hold_is_not_shown(people, operator, signed_in, service):
    """At epsilon 4 a period costs more than a budget of (2, 1e-6) holds."""
    ledger = service.desk.ledger
    who = people_account.opened(people, ledger)
    service.app.state.collecting.operator.record.put_under(of_survey(operator.survey), who)
    look = signed_in("alice")
    page = look("/surveys/fleet")
    assert page.status_code == 409
    assert "people:patients" in page.text
    assert "Liars could have moved" not in page.text
    told = service.call("alice", "GET", "/api/v1/surveys/fleet/estimates")
    assert told.status_code == 409
    assert "people:patients" in told.text
    assert ledger.balance("people:patients").spent == 0
    accounts = look("/ledger").text
    assert f"{of_survey(operator.survey).terms.name}{UNDER}" in accounts
    assert "is added to no account of people" not in accounts
