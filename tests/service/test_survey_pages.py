"""The pages of surveys: what is asked, what came, what was refused; and the ledger says what was learnt."""

import json
import re
import time

import pytest

from reticent.collect.estimates import estimates
from reticent.collect.shaping import expected_errors
from reticent.collect.signing import signed
from reticent.collect.study import of_survey
from reticent.collect.wire import batch
from reticent.fleet.enrolment import enrolled
from reticent.randomness import SimulationStream
from reticent.service import showing

from ..unit.collect import fleet
from ..unit.collect.many_devices import PERIOD_S
from ..unit.collect.test_waves import follow_of, learning
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
    drawn = json.loads(chart.replace("&#34;", '"'))
    assert (len(drawn["cells"]), drawn["x"], drawn["y"]) == (10, "speed", "percent")
    assert "by period</h3>" not in shown.text, "there is one only"


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


def test_each_period_is_shown_with_its_intervals(service, signed_in):
    """What stands in the tables is what the API gives of one period."""
    operator = Operator(service, size=300, start=int(time.time()) - PERIOD_S - 1000)
    assert operator.collect().status_code == 201
    for period in (0, 1):
        operator.send(batch(operator.fleet.reports(period)), BATCH)
    page = signed_in("alice")("/surveys/fleet").text
    assert page.count("by period</h3>") == 2
    for period in (0, 1):
        tally = service.app.state.collecting.collector.tally(operator.survey, [period])
        speed, kind = estimates(tally)
        low, high = showing.interval(speed.mean.lower, speed.mean.upper)
        row = re.search(rf'<th scope="row">{period + 1}</th>.*?</tr>', page)[0]
        assert f'<td class="right">{low}</td><td class="right">{high}</td>' in row
        assert f'<td class="right">{speed.reports}</td>' in row
        share = f"<strong>{showing.percent(max(0.0, float(kind.frequencies.frequencies[0])))}</strong>"
        assert share in page
    accounts = service.get("vera", "/api/v1/ledger").json()["accounts"]
    (spent,) = [one["spent"] for one in accounts if one["name"].startswith("survey:")]
    assert int(spent) == 2 * operator.survey.units, "both were entered before they were shown"


def test_what_learning_gained_is_shown(service, signed_in):
    """Both waves in one estimate, the follow-up for devices, the expected error with and without."""
    operator = Operator(service)
    survey = learning(start=int(time.time()) - 100)
    follow = follow_of(survey, 0)
    for text in (survey, follow):
        assert operator.collect(file=signed(text, operator.key)).status_code == 201
    stream, sent = SimulationStream(1), []
    for _ in range(150):
        who = enrolled(operator.master)
        is_first = survey.is_first(fleet.reporter(who), 0)[0]
        sent.append(fleet.report(survey if is_first else follow, who, values={"speed": 50.0}, stream=stream))
    reply = operator.send(batch(sent), BATCH).json()
    assert reply["counts"] == {"counted": 150}
    (told,) = service.get(None, "/api/v1/surveys").json()["surveys"]
    assert json.loads(told["follow_ups"]["0"])["survey"] == follow.text.decode()
    with_it, without = expected_errors(survey, follow, 0, 10_000)
    page = signed_in("alice")(f"/surveys/{survey.name}").text
    assert "150 reports by Window and Tailored, which learnt" in page
    assert f"standard error of {with_it:.3g}, and {without:.3g} without" in page
    found = service.get("alice", f"/api/v1/surveys/{survey.name}/estimates").json()
    assert (found["reports"], found["estimates"][0]["reports"]) == ({"0": 150}, 150)


def test_unknown_surveys_and_strangers(operator, service, signed_in):
    assert service.client.get("/surveys", follow_redirects=False).status_code == 303
    look = signed_in("bob")
    assert look("/surveys/nothing").status_code == 404
