"""Ledger page and overview name what pays: data sets, surveys, campaigns, trainings, questions."""

import re
from html import unescape

from reticent.apps.ledger import names
from reticent.federated import server as training_server
from reticent.federated.models import Logistic
from reticent.federated.tasks import designed
from reticent.query.language import tree

from .test_collecting import BATCH, Operator
from .test_place_pages import filled
from .test_survey_pages import batch, signed_in

__all__ = ["signed_in"]  # a fixture


def busy(service):
    """A question, a survey, a campaign and a training, each in the ledger."""
    service.desk.ask(service.desk.state.named("alice"), "census", tree.mean("income"), information=0.1)
    operator = Operator(service, size=100)
    operator.collect()
    operator.send(batch(operator.fleet.reports()), BATCH)
    service.app.state.collecting.learn(operator.survey, [0])
    filled(service)
    service.app.state.places.named("paris").counts(0)
    task = designed("braking", Logistic(2), epsilon=2.0, purpose="To warn.", rounds=5, group=100, rate=1.0)
    service.app.state.collecting.operator.record.learn(training_server.study(task), {0: 100})
    return operator


def words(page):
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", unescape(page.text)))


def test_the_ledger_names_data_sets_studies_and_questions(service, signed_in):
    busy(service)
    seen = words(signed_in("vera")("/ledger"))
    assert re.search(r"census charged [\d.]+ % \(mu² 0\.1\) for mean of income \(measurement 0\)", seen)
    assert "Recorded for census: mean of income (measurement 0)" in seen
    assert re.search(r"survey fleet charged [\d.]+ % \(epsilon 2\) for period 1 ", seen)
    assert re.search(r"training braking charged 20 % \(epsilon 2\) for round 1 ", seen)
    assert re.search(r"campaign paris opened, cap epsilon per km \d", seen)
    of_devices = re.findall(r"(?:survey|training|campaign) \w+ (?:opened|charged)[^)]*", seen)
    assert len(of_devices) == 5, of_devices
    assert not [line for line in of_devices if "mu²" in line.split("not checked")[0]]


def questions_for(service, signed_in, who):
    return "mean of income" in words(signed_in(who)("/ledger"))


def test_buyers_see_no_questions(service, signed_in, monkeypatch):
    busy(service)
    assert questions_for(service, signed_in, "alice")
    assert not questions_for(service, signed_in, "bert")
    told = names.measurements
    monkeypatch.setattr(names, "measurements", lambda *given, is_told: told(*given, is_told=True))  # planted
    assert questions_for(service, signed_in, "bert")


def test_studies_are_all_on_the_overview(service, signed_in):
    look = signed_in("alice")
    assert "Learnt from devices" not in look("/").text
    assert not (service.folder / ".service" / "collected.sqlite").exists(), "looking begins nothing"
    operator = busy(service)
    page = look("/")
    seen = words(page)
    assert re.search(r"fleet survey 100 reports, 1000 periods in all epsilon 2000 0\.1 %", seen), seen
    assert re.search(r"paris campaign 120 reports, round 2 of 3 epsilon per km \d", seen), seen
    assert re.search(r"braking training trained elsewhere, its rounds entered here epsilon 10 20 %", seen), (
        seen
    )
    for address in (f"/surveys/{operator.survey.id.hex()}", "/places/paris"):
        assert f'href="{address}"' in page.text
        assert look(address).status_code == 200
    live = re.search(r'hx-get="([^"]+)"', page.text)[1]
    assert look(live).status_code == 204
