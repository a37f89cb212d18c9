"""The pages of surveys: what is asked, what came, what was refused; and the ledger says what was learnt."""

import json
import re

import pytest

from reticent.collect.study import of_survey
from reticent.collect.wire import batch

from .test_collecting import BATCH, Operator


@pytest.fixture
def signed_in(service):
    """Look at a page as somebody."""

    def look(who):
        form = service.client.get("/signin")
        token = re.search(r'name="csrf" value="([^"]+)"', form.text)[1]
        sent = service.client.post("/signin", data={"key": service.keys[who], "csrf": token})
        assert sent.status_code == 200
        return lambda path: service.client.get(path)

    return look


@pytest.fixture
def operator(service):
    found = Operator(service, size=400)
    assert found.collect().status_code == 201
    return found


def test_a_survey_fills_as_reports_come(operator, signed_in):
    look = signed_in("alice")
    assert "fleet" in look("/surveys").text
    empty = look("/surveys/fleet").text
    assert "Nobody reported it yet" in empty
    live = re.search(r'hx-get="([^"]+)"', empty)[1].replace("&amp;", "&")
    assert look(live).status_code == 204, "nothing is new"
    reports = operator.fleet.reports()
    operator.send(batch([*reports, b"\1nonsense"]), BATCH)
    shown = look(live)
    assert shown.status_code == 200
    assert '<div class="number">400</div>' in shown.text
    assert "Liars could have moved" in shown.text
    assert re.search(r"<td>version</td>\s*<td[^>]*>1</td>", shown.text)
    chart = re.search(r'data-chart="cells" data-values="([^"]+)"', shown.text)[1]
    assert len(json.loads(chart.replace("&#34;", '"'))) == 10


def test_what_is_shown_is_in_the_ledger_first(operator, signed_in, service, monkeypatch):
    """Planted: a page that shows estimates without entering them."""
    name = of_survey(operator.survey).terms.name

    def spent():
        return {one.terms.name: one.spent for one in service.desk.ledger.accounts()}.get(name)

    operator.send(batch(operator.fleet.reports()), BATCH)
    assert spent() is None, "counting is not looking"
    look = signed_in("vera")
    with monkeypatch.context() as planted:
        planted.setattr(type(service.app.state.collecting), "learn", lambda *_: None)
        assert look("/surveys/fleet").status_code == 200
        assert spent() is None
    for _ in range(2):
        assert look("/surveys/fleet").status_code == 200
        assert operator.estimates().status_code == 200
        assert spent() == operator.survey.units
    assert look("/ledger").status_code == 200


def test_unknown_surveys_and_strangers(operator, service, signed_in):
    assert service.client.get("/surveys", follow_redirects=False).status_code == 303
    look = signed_in("bob")
    assert look("/surveys/nothing").status_code == 404
