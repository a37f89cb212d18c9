"""Answers to take along: files, texts to copy, and questions so far with what was answered; and for whom."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from html import unescape

import pytest

from reticent.apps.query.pages import answers, copies, shown
from reticent.query.answers import Answer
from reticent.query.language import tree

from .browsing import declare, served
from .running import make_keys
from .test_survey_pages import signed_in

__all__ = ["signed_in"]  # a fixture
BASE = "/datasets/census"


def token(page):
    return re.search('name="csrf" value="([^"]+)"', page.text)[1]


def form_of(page):
    """The form of a download, as a page has it."""
    place = page.text[page.text.index("/download") :]
    found = {
        name: unescape(re.search(f'name="{name}" value="([^"]*)"', place)[1]) for name in ("query", "units")
    }
    return found | {"csrf": token(page)}


def asked(service, who, query, name="census", **accuracy):
    return service.desk.ask(service.desk.state.named(who), name, query, **(accuracy or {"information": 0.01}))


def opened(look, answer, name="census"):
    return look(f"/datasets/{name}/answers?key={answer.receipt.key}")


# Files


def test_a_file_says_what_was_answered(service, signed_in):
    look = signed_in("alice")
    given = asked(service, "alice", tree.histogram("race"))
    fields = form_of(opened(look, given))
    spent = service.desk.balance("census").spent
    reply = service.client.post(f"{BASE}/download", data=fields | {"form": "csv"})
    assert reply.headers["content-disposition"] == 'attachment; filename="census-histogram.csv"'
    rows = list(csv.DictReader(io.StringIO(reply.text)))
    assert [row["race"] for row in rows] == [cell.labels[0] for cell in given.cells]
    assert [float(row["value"]) for row in rows] == [cell.estimate.value for cell in given.cells]
    reply = service.client.post(f"{BASE}/download", data=fields | {"form": "json"})
    assert Answer.from_json(reply.json()).cells == given.cells
    assert service.desk.balance("census").spent == spent
    assert len(service.desk.state.history("census")) == 1, "taking it along is no question"


def test_nothing_is_bought_by_a_download(service, signed_in):
    """Whatever the form says: another question, or more than was bought."""
    look = signed_in("alice")
    given = asked(service, "alice", tree.mean("income"))
    fields, spent = form_of(opened(look, given)), service.desk.balance("census").spent
    dearer = fields | {"units": str(given.information + 10**6)}
    other = fields | {"query": json.dumps(tree.to_json(tree.mean("age")))}
    for wrong in (dearer, other):
        assert service.client.post(f"{BASE}/download", data=wrong | {"form": "csv"}).status_code == 404
    assert service.client.post(f"{BASE}/download", data=fields | {"form": "xls"}).status_code == 400
    for text in ("{", "[" * 1000, '{"kind": "rows"}', "NaN"):
        bad = fields | {"query": text, "form": "csv"}
        assert service.client.post(f"{BASE}/download", data=bad).status_code == 400
    assert service.desk.balance("census").spent == spent


def readers(service, fields):
    """Who gets a file, of those who should not, by role."""
    found = []
    for who in ("vera", "bert"):
        service.client.cookies.clear()
        page = service.client.get("/signin")
        page = service.client.post("/signin", data={"key": service.keys[who], "csrf": token(page)})
        own = fields | {"csrf": token(page), "form": "csv"}
        if service.client.post(f"{BASE}/download", data=own).status_code == 200:
            found.append(who)
    return found


def test_auditors_and_buyers_get_no_file(service, signed_in):
    given = asked(service, "alice", tree.mean("income"))
    fields = form_of(opened(signed_in("alice"), given))
    assert readers(service, fields) == []
    from reticent.service import visits

    service.app.dependency_overrides[visits.checked_asker] = visits.checked  # planted: a check without a role
    assert readers(service, fields) == ["vera", "bert"]


@pytest.fixture
def tiers(folder, keys, serving):
    """A data set under `degrade`: who asks for less gets a coarser answer."""
    declare(folder, "tiered", **{"policy: share": "policy: degrade"})
    return serving()


def exact_for(service, who, given):
    """Whether somebody gets an answer as it was bought by another, from the form that a page gave them."""
    coarse = asked(service, who, given.query, "tiered", information=0.001)
    with_units = {"query": json.dumps(tree.to_json(given.query)), "units": str(coarse.information)}
    service.client.cookies.clear()
    page = service.client.get("/signin")
    page = service.client.post("/signin", data={"key": service.keys[who], "csrf": token(page)})
    fields = with_units | {"csrf": token(page), "form": "json"}
    told = service.client.post("/datasets/tiered/download", data=fields)
    assert told.status_code == 200, told.text
    return Answer.from_json(told.json()).cells == given.cells


def test_a_file_is_as_coarse_as_what_was_asked(tiers, monkeypatch):
    given = asked(tiers, "alice", tree.mean("income"), "tiered", information=0.02)
    assert not exact_for(tiers, "bob", given)

    def best(name, query, units, form, desk):  # planted: a file of the best there is, whoever looks
        session = desk.session(name)
        held = desk.ledger.reading(session.data.account, given.receipt.key)
        return copies.file(session.free(query, information=copies.information(held.information)), form)

    monkeypatch.setattr(answers, "_file", best)
    assert exact_for(tiers, "bob", given)


# Questions so far


def line_of(page, text):
    table = page.text[page.text.index("Questions so far") :]
    (found,) = [row for row in table.split("<tr>") if text in row]
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", unescape(found)))


def test_questions_have_their_answer_and_day(service, signed_in):
    given = asked(service, "bob", tree.mean("income"))
    asked(service, "bob", tree.histogram("race"))
    seen = line_of(signed_in("alice")(BASE), "mean of income")
    assert shown._said(service.desk.state.history("census")[0]) in seen
    assert re.search(r"[\d,]+ ± [\d,]+ bob \d{4}-\d\d-\d\d", seen), (seen, given)
    assert "4 numbers" in line_of(signed_in("alice")(BASE), "histogram by race")


def test_questions_stand_in_the_order_in_which_they_were_asked(service):
    """Free ones wait to be written together; planted: those that wait are not taken along."""
    for units in (0.01, 0.001, 0.02, 0.001, 0.03):
        asked(service, "bob", tree.mean("income"), information=units)
    assert [bool(one.cost) for one in service.desk.state.history("census")] == [True, False] * 2 + [True]
    service.desk.state._taken_along = lambda: nullcontext([])
    for units in (0.001, 0.04):
        asked(service, "bob", tree.mean("income"), information=units)
    del service.desk.state._taken_along
    assert [bool(one.cost) for one in service.desk.state.history("census")][5:] == [True, False]


def told(service, signed_in):
    """Whether an auditor's page has what was answered."""
    return "±" in line_of(signed_in("vera")(BASE), "mean of income")


def test_auditors_see_questions_without_their_answers(service, signed_in, monkeypatch):
    asked(service, "bob", tree.mean("income"))
    assert not told(service, signed_in)
    history = shown.history
    monkeypatch.setattr(shown, "history", lambda *given, openable: history(*given, openable=True))  # planted
    assert told(service, signed_in)


def test_under_degrade_everybody_sees_their_own_answers(tiers, signed_in):
    asked(tiers, "alice", tree.mean("income"), "tiered")
    for who, own in (("alice", True), ("bob", False)):
        service_look = signed_in_at(tiers, who)
        assert ("±" in line_of(service_look("/datasets/tiered"), "mean of income")) is own


def signed_in_at(service, who):
    service.client.cookies.clear()
    page = service.client.get("/signin")
    service.client.post("/signin", data={"key": service.keys[who], "csrf": token(page)})
    return service.client.get


def test_state_of_the_last_release_is_taken_over(folder, keys):
    """Its questions have neither day nor value; planted: the columns taken away again."""
    import contextlib
    import sqlite3

    from reticent.service.state import State

    path = folder / ".service" / "state.sqlite"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as held:
        for column in ("day", "cells", "value", "low", "high"):
            held.execute(f"ALTER TABLE asked DROP COLUMN {column}")
        held.execute("INSERT INTO asked VALUES (1, 'census', 'bob', '{\"kind\": \"count\"}', '1', 5, 5, 5)")
        held.execute("PRAGMA user_version=1")
    with contextlib.closing(State.of(folder)) as state:
        (one,) = state.history("census")
        assert (one.person, one.day, one.cells, one.value) == ("bob", "", 0, None)
        assert shown._said(one) == ""


# Texts to copy


@pytest.fixture(scope="module")
def listened(made_census, tmp_path_factory):
    """A service on a port, with answers of every kind."""
    place = tmp_path_factory.mktemp("copied") / "desk"
    shutil.copytree(made_census, place)
    with served(place, make_keys(place)) as found:
        yield found


ODD = {
    "and": [{"column": "race", "op": "!=", "value": "white"}, {"column": "age", "op": ">=", "value": 40.0}]
}
QUESTIONS = (tree.mean("income", where=ODD), tree.count(by=[tree.By("age", edges=(30.0, 60.0))]))


@pytest.mark.parametrize("query", QUESTIONS, ids=["sql", "no sql"])
def test_what_is_copied_runs_and_is_free(listened, query):
    """Python and curl as they are, in a shell with the key; SQL as a question. Nothing is charged."""
    alice = listened.desk.state.named("alice")
    given = listened.desk.ask(alice, "census", query, information=0.01)
    found = {one["name"]: one["text"] for one in copies.of(given, "census", f"{listened.url}/")}
    assert ("SQL" in found) is (query is QUESTIONS[0])
    spent, key = listened.desk.balance("census").spent, listened.keys["alice"]
    assert all(key not in text for text in found.values())
    environment = {**os.environ, copies.KEY: key}
    run = {"capture_output": True, "text": True, "timeout": 120, "env": environment, "check": True}
    printed = subprocess.run([sys.executable, "-c", found["Python"]], **run).stdout
    assert str(listened.desk.known("census", query)).splitlines()[:2] == printed.splitlines()[:2]
    if shutil.which("curl"):
        reply = subprocess.run(["sh", "-c", found["curl"]], **run).stdout
        assert Answer.from_json(json.loads(reply)).cells == given.cells
    if "SQL" in found:
        assert listened.desk.known("census", found["SQL"]).cells == given.cells
    assert listened.desk.balance("census").spent == spent


def test_what_is_copied_asks_for_no_unit_more():
    """Planted: the nearest float of fewer units."""
    from reticent.privacy.budget import UNITS_PER_ONE, cap_units

    units = range(10**9, 10**9 + 2000)
    assert [cap_units(copies.information(one)) for one in units] == list(units)
    assert [cap_units(one / UNITS_PER_ONE) for one in units] != list(units)
