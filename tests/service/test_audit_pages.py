"""The page of audits: what the ledger keeps of them in words, for whoever signs in, and never too much."""

import pytest

from reticent.apps.audit import pages
from reticent.apps.service.serving import create_app
from reticent.ledger import MemoryLedger, audits
from reticent.ledger.audits import Verdict
from reticent.service.settings import Settings

from .browsing import furnish
from .running import OPEN, TestClient
from .test_pages_plain import token

HOSTILE = "mine: <script>window.hit=1</script> {{7*7}}"


def record(ledger, claim, verdict):
    return audits.record(ledger, claim=claim, verdict=verdict, report=audits.mark()).entry


@pytest.fixture
def world(tmp_path):
    keys = furnish(tmp_path)
    app = create_app(Settings(tmp_path, **OPEN))
    with TestClient(app) as client:

        def visit(who):
            fresh = TestClient(app, follow_redirects=False)
            fresh.post("/signin", data={"key": keys[who], "csrf": token(fresh.get("/signin"))})
            return fresh

        yield client.app.state.desk.ledger, visit


def test_claims_in_words_the_broken_ones_first(world):
    ledger, visit = world
    olga = visit("olga")
    assert "No audit is in the ledger yet" in olga.get("/audits").text
    record(ledger, "mechanism Duchi: epsilon 1", Verdict.BROKEN)
    second = record(ledger, "mechanism Duchi: epsilon 1", Verdict.NOTHING_FOUND)
    third = record(ledger, HOSTILE, Verdict.BROKEN)
    text = olga.get("/audits").text
    assert text.count('class="card"') == 2
    assert text.index(f'id="claim-{third}"') < text.index(f'id="claim-{second}"')
    assert "<strong>Broken</strong>" in text
    assert "Nothing was found against it." in text
    assert f'href="/ledger?last={second + 1}"' in text
    assert "<script>window" not in text
    assert "{{7*7}}" in text
    record(ledger, HOSTILE, Verdict.NOTHING_FOUND)
    assert "<strong>Broken</strong>" not in olga.get("/audits").text
    assert "Audit, broken: mechanism Duchi: epsilon 1" in olga.get("/ledger").text


def test_owners_find_the_way_and_nobody_comes_without_a_key(world):
    _, visit = world
    tab = '<a href="/audits" aria-current="page">Audits</a>'
    assert tab in visit("olga").get("/audits").text
    told = visit("vera").get("/audits")
    assert told.status_code == 200
    assert tab not in told.text
    assert 'href="/audits"' in visit("vera").get("/ledger").text
    stranger = TestClient(visit("olga").app, follow_redirects=False)
    assert stranger.get("/audits").status_code in (303, 307)


def test_a_long_log_is_read_in_parts(world, monkeypatch):
    ledger, visit = world
    for number in range(6):
        record(ledger, f"claim {number}", Verdict.NOTHING_FOUND)
    monkeypatch.setattr(pages, "_AT_ONCE", 2)
    olga, seen = visit("olga"), []
    for _ in range(20):
        text = olga.get("/audits").text
        seen.append(text.count('class="card"'))
        if "entries are read so far" not in text:
            break
    assert seen[-1] == 6
    assert all(0 <= after - before <= 2 for before, after in zip([0, *seen], seen, strict=False)), seen


def test_a_ledger_that_keeps_no_audits_says_so():
    assert pages._shown(None, MemoryLedger())["is_elsewhere"]
