"""T10: bad requests straight into the whole application: no fault, no hang, and no budget moved by a refusal.

Half of them schemathesis makes from the service's own OpenAPI document, half are valid bodies with something
wrong. One judge for both, `World.faults`, which the planted bugs at the end are shown to.
"""

import json
import multiprocessing
import random
import threading
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlencode, urlsplit

import hypothesis
import pytest
import requests
from fastapi.responses import JSONResponse

from reticent.apps.query import builder
from reticent.apps.query.desk import Desk
from reticent.errors import ReticentError
from reticent.ledger import Amount, Unit

from .fuzzing import Answered, Call, World, wrong_budget, wrong_reply
from .mutating import ACCURACY, CENSUS, DECLARATION, FORM, QUESTIONS, mutate, mutated

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis.core.transport import Response
    from schemathesis.specs.openapi import checks

BODIES, CHUNK = 1_000_000, 25_000
_CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def world(made_census, tmp_path_factory):
    with World(tmp_path_factory.mktemp("fuzz") / "desk", made_census) as found:
        yield found


# From the OpenAPI document


def operations(app):
    """Cases of each operation, right and wrong ones, and how many to take: more where there is a body."""
    app.openapi_schema = None
    schema = schemathesis.openapi.from_dict(app.openapi())
    modes = list(schemathesis.GenerationMode)
    for found in schema.get_all_operations():
        one = found.ok()
        share = 4 if one.method in ("post", "put") else 1
        yield share, hypothesis.strategies.one_of([one.as_strategy(generation_mode=mode) for mode in modes])


def from_schema(world, count, seed=0):
    """What is wrong after so many cases, as owner, analyst, auditor and nobody."""
    found, rng, sent, rounds = [], random.Random(seed), 0, 0
    callers, known = [*world.keys, None], list(operations(world.app))
    while sent < count:
        rounds += 1
        for share, strategy in known:

            def judged(case):
                nonlocal sent
                who = callers[sent % 4]
                sent += 1
                found.extend(judge(world, furnished(world, case, rng), who))

            run = hypothesis.given(case=strategy)(judged)
            run = hypothesis.settings(
                max_examples=1 + share * count // 240,
                deadline=None,
                database=None,
                phases=[hypothesis.Phase.generate],
                suppress_health_check=list(hypothesis.HealthCheck),
            )(run)
            hypothesis.seed(seed * 1000 + rounds)(run)()
    return found


def furnished(world, case, rng):
    """With things that are there and questions that can be asked, now and then: chance finds none."""
    if rng.random() < 0.7:
        given = case.path_parameters or {}
        if "name" in given:
            given["name"] = "gone" if "/keys/" in case.path else rng.choice(("census", "census", "town"))
        if "analyst" in given:
            given["analyst"] = "bob"
        if "job" in given and (known := world.desk.state._all("SELECT id FROM job LIMIT 1")):
            given["job"] = known[0][0]
    if isinstance(case.body, dict) and rng.random() < 0.5:
        if "query" in case.body:
            kept = {name: case.body[name] for name in ("confidence", "rows") if name in case.body}
            accuracy = {} if case.path.endswith("/known") else rng.choice(ACCURACY)
            case.body = {"query": rng.choice(QUESTIONS), **accuracy, **(kept if rng.random() < 0.5 else {})}
        if "declaration" in case.body:
            case.body["declaration"] = DECLARATION.replace("fresh", f"new-{rng.randrange(50)}")
    return case


def judge(world, case, who):
    """What is wrong with the reply to one case."""
    told = case.as_transport_kwargs(base_url="http://127.0.0.1")
    asked = requests.Request(**told).prepare()
    place = urlsplit(asked.url)
    headers = {name.lower(): text for name, text in asked.headers.items()}
    for name in ("content-length", "transfer-encoding", *(("authorization",) if who else ())):
        headers.pop(name, None)
    kind = headers.pop("content-type", "")
    body = asked.body.encode() if isinstance(asked.body, str) else asked.body or b""
    call = Call(
        asked.method,
        unquote(place.path),
        who,
        body,
        _bytes(kind),
        place.query.encode(),
        tuple((name.encode(), _bytes(text)) for name, text in headers.items()),
    )

    def nonconforming(answered):
        reply = Response(
            answered.status,
            {name.decode(): [text.decode()] for name, text in answered.headers.items()},
            answered.body,
            asked,
            answered.wall_s,
            verify=False,
        )
        try:
            case.validate_response(reply, checks=_CHECKS)
        except schemathesis.errors.FailureGroup as error:
            yield f"not as the document says: {str(error)[:300]}"

    return world.faults(call, nonconforming)


def _bytes(text):
    return text if isinstance(text, bytes) else text.encode("latin-1")


def test_cases_from_the_openapi_document(world):
    world.counts.clear()
    assert from_schema(world, 700) == []
    assert {200, 201, 400, 401, 403, 404, 422} <= set(world.counts)


@pytest.mark.slow
def test_20_000_cases_from_the_openapi_document(world):
    world.counts.clear()
    assert from_schema(world, 20_000, seed=1) == []
    print(dict(world.counts))
    assert world.counts.total() >= 20_000


# Mutated bodies


def test_mutated_bodies(world):
    world.counts.clear()
    assert mutate(world, seed=0, count=2500) == []
    assert world.counts[200] > 100, "some come through"
    assert {201, 202, 303, 400, 401, 403, 404, 413, 422} <= set(world.counts)


@pytest.mark.slow
def test_a_million_mutated_bodies(made_census, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2])  # for the other processes
    total, found = Counter(), []
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        chunks = [
            pool.submit(mutated, tmp_path / f"desk-{seed}", made_census, seed, CHUNK)
            for seed in range(1, BODIES // CHUNK + 1)
        ]
        for chunk in chunks:
            more, counts = chunk.result()
            found += more
            total += counts
    print(dict(total))
    assert found == []
    assert total.total() == BODIES


# What the limits let through must not take long either; a few need half a second of a busy machine


def priced(query, **accuracy):
    return Call("POST", f"{CENSUS}/price", "analyst", json.dumps({"query": query, **accuracy}).encode())


def asked(body):
    return Call("POST", f"{CENSUS}/ask", "analyst", json.dumps(body).encode())


def declared(text):
    return Call("POST", "/api/v1/datasets", "owner", json.dumps({"declaration": text}).encode())


def compared(number, column="age"):
    return {"column": column, "op": "=", "value": number}


SQL = "SELECT COUNT(*) FROM census WHERE "
WHERE = {"or": [{"and": [compared(i % 121), compared(i % 99, "hours")]} for i in range(330)]}
HEAVY = {
    "SQL of many parts": priced(SQL + "age>1 OR " * 2200 + "age=1", information=1e-7),
    "SQL of many dots": priced("SELECT " + "a." * 9900, information=1e-7),
    "SQL of many brackets": priced(SQL + "(" * 19_900, information=1e-7),
    "a large tree": priced({"kind": "count", "where": WHERE}, information=1e-7),
    "a large tree of negations": priced({"kind": "count", "where": {"not": WHERE}}, information=1e-7),
    "many bins": priced({"kind": "histogram", "by": [{"column": "income", "bins": 65536}]}, information=1e-7),
    "YAML lists": declared("a: [" + "b," * 16_000 + "]"),
    "YAML names": declared("".join(f"{i:x}:\n" for i in range(5800))),
    "YAML brackets behind a quote": declared("a: ['\"', " + "[" * 32_000 + ", '\"']"),
    "YAML dashes": declared("- " * 16_000),
    "YAML columns": declared(DECLARATION + "".join(f"  c{i}: {{type: boolean}}\n" for i in range(1100))),
    "a body of quotes": Call("POST", f"{CENSUS}/price", "analyst", b'"\\' * 130_000),
    "a form of nothing": Call("POST", "/datasets/census/price", "analyst", b"&" * 260_000, FORM),
}


@pytest.mark.slow
@pytest.mark.parametrize("call", HEAVY.values(), ids=HEAVY)
def test_the_heaviest_are_quick(world, call, monkeypatch):
    monkeypatch.setattr(world, "max_cpu_s", 2.0)
    assert world.faults(call) == []


def test_a_long_form_is_not_written_as_yaml(world, monkeypatch):
    """That took three seconds, to be refused for its length then."""
    written, write = [], builder.declaration
    monkeypatch.setattr(builder, "declaration", lambda *given: written.append(given) or write(*given))
    fields = {"csrf": world.csrf("owner"), "file": "fresh.csv", "name": "x", "column_values": "v," * 60_000}
    fields |= {f"column_{part}": "" for part in ("low", "high", "step", "missing")}
    fields |= {"column_name": "c", "column_type": "category"}
    call = Call("POST", "/owner/register/blanks", "owner", urlencode(fields).encode(), FORM)
    assert world.faults(call) == []
    assert b"the form must hold at most" in world.send(call).body
    assert written == []
    short = urlencode(fields | {"column_values": "v,w"}).encode()
    world.send(Call("POST", "/owner/register/blanks", "owner", short, FORM))
    assert len(written) == 1, "a short one is"


# Found by the tests above


@pytest.mark.parametrize("confidence", [-1, 0, 0.4, 1, 1.35, 2**53])
def test_a_known_answer_has_a_confidence_too(world, confidence):
    """It was only looked at where there was something to pay for."""
    assert world.faults(asked({"query": QUESTIONS[9], **ACCURACY[0]})) == []
    body = {"query": QUESTIONS[9], "confidence": confidence}
    call = Call("POST", f"{CENSUS}/known", "analyst", json.dumps(body).encode())
    assert world.faults(call) == []
    assert world.send(call).status == 400


def test_a_length_of_many_digits(world):
    call = Call("POST", f"{CENSUS}/ask", "analyst", b"{}", length=b"9" * 5000)
    assert world.faults(call) == []
    assert world.send(call).status == 413


def test_brackets_do_not_hide_in_another_encoding(world):
    """In UTF-16, half a letter looks like a quote, and the brackets after it like text."""
    body = ('["\u0122",' + "[" * 60_000 + ',"x"]').encode("utf-16")
    call = Call("POST", f"{CENSUS}/ask", "analyst", body)
    assert world.faults(call) == []
    assert b"must be in UTF-8" in world.send(call).body


def test_brackets_do_not_hide_behind_a_quote(world):
    """A quoted quote looked like the start of a text; deep YAML takes a minute where recursion is allowed."""
    call = declared("a: ['\"', " + "[" * 9 + "]" * 9 + ", '\"']")
    assert world.faults(call) == []
    assert b"must not be nested so deeply" in world.send(call).body


# Planted


MAGIC = asked({"query": {"kind": "magic"}, "information": 1e-6})


def test_planted_a_charge_before_the_check_is_caught(world, monkeypatch):
    plain = Desk.reused

    def hasty(self, person, name, query, *given):
        key = next(iter(self.session(name).questions()))
        bought = self.ledger.reading(name, key).information
        self.ledger.request(name, key, Amount(bought + 10**6, Unit.MU2, self.data(name).relation))
        return plain(self, person, name, query, *given)

    assert world.faults(asked({"query": QUESTIONS[9], **ACCURACY[0]})) == []
    assert world.faults(MAGIC) == []
    monkeypatch.setattr(Desk, "reused", hasty)
    (found,) = world.faults(MAGIC)
    assert "budget moved" in found


def test_planted_a_quota_that_a_refusal_uses_up_is_caught(world, monkeypatch):
    plain = Desk.reused

    def counted(self, person, name, query, *given):
        self.state.reserve("planted", person, name, 10**6)
        return plain(self, person, name, query, *given)

    monkeypatch.setattr(Desk, "reused", counted)
    (found,) = world.faults(MAGIC)
    assert "budget moved" in found


def test_planted_a_spending_over_the_cap_is_caught(world):
    spent, used = world.spent()
    (found,) = wrong_budget(MAGIC, Answered(200), (spent, used), ({"census": (2, 1)}, used))
    assert "census spent 2 of 1" in found


def test_planted_a_handler_that_fails_on_some_input_is_caught(world, monkeypatch):
    monkeypatch.setattr(Desk, "price", lambda self, name, query, accuracy: len(query["kind"]) / 0)
    call = priced({"kind": "magic"}, information=1e-6)
    (found,) = world.faults(call)
    assert "status 500" in found


def plant_in_price(monkeypatch, fault):
    """Let the price of one query, which does not exist, call `fault` first."""
    plain = Desk.price

    def faulty(self, name, query, accuracy):
        if "magic" in str(query):
            fault()
        return plain(self, name, query, accuracy)

    monkeypatch.setattr(Desk, "price", faulty)


def test_planted_a_reply_that_never_comes_is_caught(world, monkeypatch):
    released = threading.Event()
    plant_in_price(monkeypatch, released.wait)
    assert world.faults(priced({"kind": "count"}, information=1e-6)) == []
    monkeypatch.setattr(world, "patience_s", 0.2)
    try:
        (found,) = world.faults(priced({"kind": "magic"}, information=1e-6))
    finally:
        released.set()
    assert "no reply in 0.2 s" in found


def test_planted_work_without_bound_is_caught(world, monkeypatch):
    def work():
        start = time.thread_time()
        while time.thread_time() - start < 0.4:
            pass

    plant_in_price(monkeypatch, work)
    assert world.faults(priced({"kind": "count"}, information=1e-6)) == []
    monkeypatch.setattr(world, "max_cpu_s", 0.3)
    (found,) = world.faults(priced({"kind": "magic"}, information=1e-6))
    assert "s of processor time" in found


def test_planted_an_error_in_another_shape_is_caught(world):
    async def bare(request, error):
        return JSONResponse({"detail": str(error)}, 400)

    plain = world.app.exception_handlers[ReticentError]
    world.app.exception_handlers[ReticentError] = bare
    world.app.middleware_stack = None  # made anew with the handlers
    try:
        (found,) = world.faults(MAGIC)
    finally:
        world.app.exception_handlers[ReticentError] = plain
        world.app.middleware_stack = None
    assert "an error in another shape" in found


def test_planted_a_traceback_is_caught():
    body = json.dumps({"error": {"type": "x", "message": "Traceback (most recent call last)"}}).encode()
    told = Answered(400, {b"content-type": b"application/json"}, body)
    assert ["a traceback" in one for one in wrong_reply(MAGIC, told)] == [True]
