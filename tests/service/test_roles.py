"""T11: every endpoint, as everybody, on things of their own and of others. Made from the OpenAPI document."""

import json

import pytest

from reticent.collect.signing import signed
from reticent.collect.wire import batch
from reticent.fleet.counted import question
from reticent.fleet.enrolment import enrolled
from reticent.query.declarations import dataset_file
from reticent.service import callers as api
from reticent.service.keys import Role
from reticent.service.state import State

from ..unit.collect.many_devices import make_survey
from ..unit.location.stations.asking_town import library, provider
from .running import BASE, MEAN, ROWS, until
from .test_collecting import Operator
from .test_market import offer
from .test_places import Crowd

# olga registered `town`, alice has the job, bert the bill; otto, bob and berta are the others in their roles.
CALLERS = ("none", "revoked", "olga", "otto", "alice", "bob", "vera", "bert", "berta")
TOWN = "/api/v1/datasets/town"


def table(**statuses):
    """What each caller gets: none and revoked are always strangers."""
    return {"none": 401, "revoked": 401, "bert": 403, "berta": 403, **statuses}


def by_role(owner, analyst, auditor, buyer=403):
    return table(olga=owner, otto=owner, alice=analyst, bob=analyst, vera=auditor, bert=buyer, berta=buyer)


ALL, ASKERS = by_role(200, 200, 200), by_role(200, 200, 403)
ANY_KEY = by_role(200, 200, 200, 200)
BERTS = by_role(200, 403, 403, 404) | {"bert": 200}
EXPECTED = {
    ("GET", "/health"): dict.fromkeys(CALLERS, 200),
    ("GET", "/health/live"): dict.fromkeys(CALLERS, 200),
    ("GET", "/health/ready"): dict.fromkeys(CALLERS, 200),
    ("GET", "/metrics"): by_role(200, 403, 200),
    ("GET", "/api/v1/me"): ANY_KEY,
    ("GET", "/api/v1/datasets"): ALL,
    ("POST", "/api/v1/datasets"): table(olga=201, otto=400, alice=403, bob=403, vera=403),  # her file
    ("GET", "/api/v1/sources"): by_role(200, 403, 403),
    ("GET", "/api/v1/datasets/{name}"): ALL,
    ("GET", "/api/v1/datasets/{name}/budget"): ALL,
    ("GET", "/api/v1/datasets/{name}/answers"): ASKERS,
    ("POST", "/api/v1/datasets/{name}/known"): ASKERS,
    ("POST", "/api/v1/datasets/{name}/price"): ASKERS,
    ("POST", "/api/v1/datasets/{name}/plan"): ASKERS,
    ("POST", "/api/v1/datasets/{name}/rehearse"): ASKERS,
    ("POST", "/api/v1/datasets/{name}/ask"): ASKERS,
    ("POST", "/api/v1/datasets/{name}/jobs"): by_role(202, 202, 403),
    ("GET", "/api/v1/jobs/{job}"): table(olga=404, otto=404, alice=200, bob=404, vera=403),
    ("GET", "/api/v1/ledger"): ANY_KEY,
    ("GET", "/api/v1/ledger/entries"): ANY_KEY,
    ("GET", "/api/v1/ledger/entries/{number}/proof"): ANY_KEY,
    ("GET", "/api/v1/ledger/consistency"): ANY_KEY,
    ("GET", "/api/v1/keys"): by_role(200, 403, 403),
    ("POST", "/api/v1/keys"): by_role(201, 403, 403),
    ("DELETE", "/api/v1/keys/{name}"): by_role(204, 403, 403),
    ("POST", "/api/v1/keys/{name}/replace"): by_role(200, 403, 403),
    ("GET", "/api/v1/datasets/{name}/quotas"): table(olga=200, otto=404, alice=403, bob=403, vera=403),
    ("PUT", "/api/v1/datasets/{name}/quotas/{analyst}"): table(
        olga=200, otto=404, alice=403, bob=403, vera=403
    ),
    ("POST", "/api/v1/reports"): dict.fromkeys(CALLERS, 200),  # devices have no key
    ("POST", "/api/v1/reports/batch"): dict.fromkeys(CALLERS, 200),
    ("GET", "/api/v1/enrolments/revoked"): by_role(200, 403, 403),
    ("PUT", "/api/v1/enrolments/revoked/{enrolment}"): by_role(204, 403, 403),
    ("GET", "/api/v1/surveys"): dict.fromkeys(CALLERS, 200),
    ("POST", "/api/v1/surveys"): by_role(201, 403, 403),
    ("GET", "/api/v1/surveys/{name}/estimates"): ALL,
    ("GET", "/api/v1/places"): dict.fromkeys(CALLERS, 200),
    ("GET", "/api/v1/places/{name}/round"): dict.fromkeys(CALLERS, 200),
    ("POST", "/api/v1/places/{name}/reports"): dict.fromkeys(CALLERS, 200),
    ("POST", "/api/v1/surveys/{name}/counted"): dict.fromkeys(CALLERS, 200),  # by a tag of its key
    ("POST", "/api/v1/places/{name}/counted"): dict.fromkeys(CALLERS, 200),
    ("POST", "/api/v1/places/{name}/end"): by_role(200, 403, 403),
    ("GET", "/api/v1/stations"): dict.fromkeys(CALLERS, 200),
    ("GET", "/api/v1/stations/{name}/service"): dict.fromkeys(CALLERS, 200),
    ("GET", "/api/v1/stations/{name}/map"): dict.fromkeys(CALLERS, 200),
    ("GET", "/api/v1/stations/{name}/list"): dict.fromkeys(CALLERS, 200),
    ("GET", "/api/v1/stations/{name}/library"): dict.fromkeys(CALLERS, 200),
    ("GET", "/api/v1/stations/{name}/free"): dict.fromkeys(CALLERS, 200),
    ("PUT", "/api/v1/stations/{name}/free"): by_role(200, 403, 403),
    ("POST", "/api/v1/stations/{name}/points"): dict.fromkeys(CALLERS, 200),  # from an edge, which has no key
    ("GET", "/api/v1/market/bills"): dict.fromkeys(CALLERS, 200),
    ("GET", "/api/v1/market/bills/{bill}"): dict.fromkeys(CALLERS, 200),
    ("POST", "/api/v1/market/holds"): dict.fromkeys(CALLERS, 200),  # devices have no key
    ("POST", "/api/v1/market/sales"): dict.fromkeys(CALLERS, 200),
    ("POST", "/api/v1/market/earned"): dict.fromkeys(CALLERS, 200),  # by a tag of its key
    ("POST", "/api/v1/market/bills"): by_role(201, 403, 403, 201),
    ("GET", "/api/v1/market/bills/{bill}/account"): BERTS | {"vera": 200},
    ("POST", "/api/v1/market/bills/{bill}/fund"): by_role(200, 403, 403),
    ("POST", "/api/v1/market/bills/{bill}/close"): BERTS,
    ("GET", "/api/v1/market/bills/{bill}/results"): BERTS,
    ("GET", "/api/v1/market/bills/{bill}/reports/{level}"): BERTS,
}


def endpoints(app):
    """Every method and path that the application has, the pages and static files aside."""
    app.openapi_schema = None
    paths = app.openapi()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


def declaration(name):
    text = dataset_file.write(dataset_file.parse(_CENSUS.format(rows=ROWS)))
    return text.replace("name: census", f"name: {name}")


_CENSUS = """
name: census
version: 1
source: town.csv
unit: row
relation: replace one
rows: {rows}
budget: {{epsilon: 8, delta: 1e-4}}
columns:
  age: {{type: integer, low: 0, high: 120}}
"""


@pytest.fixture
def town(service):
    """A service whose objects belong to somebody: the job of alice is in `job`."""
    reply = service.call("olga", "POST", "/api/v1/datasets", json={"declaration": declaration("town")})
    assert reply.status_code == 201, reply.text
    service.question = {"query": "SELECT AVG(age) FROM town", "information": 1e-4}
    service.job = service.call("alice", "POST", f"{TOWN}/jobs", json=service.question).json()["job"]
    until(lambda: service.get("alice", f"/api/v1/jobs/{service.job}").json()["state"] == "done")
    service.operator = Operator(service, 1, name="town")
    assert service.operator.collect().status_code == 201
    service.report = service.operator.fleet.reports()[0]
    service.survey = service.get(None, "/api/v1/surveys").json()["surveys"][0]["id"]
    Crowd(service, name="town")
    provider(service.folder / "stations" / "town", journeys=library()).close()
    service.bill = service.call("bert", "POST", "/api/v1/market/bills", json=offer()).json()["id"]
    return service


def request(service, method, path, who):
    """A call that would be fine from the right person; what it makes or removes is its own."""
    state: State = service.desk.state
    if path.startswith("/api/v1/keys/{name}"):
        path = path.format(name=state.make_key(f"gone-{method}-{who}", Role.ANALYST)[0].name)
    named = {"name": "town", "job": service.job, "number": 0, "analyst": "bob", "enrolment": "0" * 16}
    named |= {"bill": service.bill, "level": 0}
    body = None
    if method in ("POST", "PUT"):
        body = {
            "datasets": {"declaration": declaration(f"new-{who}")},
            "known": {"query": service.question["query"]},
            "plan": {"questions": [service.question]},
            "keys": {"name": f"new-{who}", "role": "auditor"},
            "{analyst}": {"share": 0.5},
            "end": {"number": 0},
            "free": {"free": {"S1": 1}},
            "bills": offer(name=f"new-{who}"),
            "surveys": json.loads(signed(make_survey(name=f"new-{who}"), service.operator.key)),
        }.get(path.rsplit("/", 1)[1], service.question)
    options = {"json": body} if body is not None else {}
    if path in ("/api/v1/market/holds", "/api/v1/market/sales"):
        options = {"content": batch([b"nothing"]), "headers": {"Content-Type": "application/octet-stream"}}
    if path.endswith("/earned"):
        content = question(enrolled(service.operator.master), "market")
        options = {"content": content, "headers": {"Content-Type": "application/octet-stream"}}
    if "/reports" in path:
        content = service.report if path == "/api/v1/reports" else batch([service.report])
        options = {"content": content, "headers": {"Content-Type": "application/octet-stream"}}
    if path.endswith("/points"):
        options = {"content": bytes(85), "headers": {"Content-Type": "application/octet-stream"}}
    if path.endswith("/counted"):
        study = f"survey:{service.survey}" if "surveys" in path else "campaign:town"
        content = question(enrolled(service.operator.master), study)
        options = {"content": content, "headers": {"Content-Type": "application/octet-stream"}}
    if path.endswith("/consistency"):
        options["params"] = {"old": 1, "new": 2}
    return method, path.format(**named), options


def violations(service):
    """What is not as the table says."""
    service.keys |= {"revoked": service.keys["rita"]}
    found = [f"{method} {path} is not in the table" for method, path in endpoints(service.app)
             if (method, path) not in EXPECTED]  # fmt: skip
    for (method, path), expected in EXPECTED.items():
        for who in CALLERS:
            verb, address, options = request(service, method, path, who)
            reply = service.call(None if who == "none" else who, verb, address, **options)
            if reply.status_code != expected[who]:
                found.append(f"{method} {path} as {who}: {reply.status_code}, not {expected[who]}")
            elif reply.status_code >= 400 and set(reply.json()) != {"error"}:
                found.append(f"{method} {path} as {who}: not in the shape of an error")
    return found


def test_every_endpoint_and_role(town):
    assert violations(town) == []
    assert set(endpoints(town.app)) == set(EXPECTED)


def test_what_is_denied_changes_nothing(town):
    before = town.get("vera", "/api/v1/ledger").json()
    for (method, path), expected in EXPECTED.items():
        if method == "GET":
            continue
        for who in CALLERS:
            if expected[who] >= 400:
                verb, address, options = request(town, method, path, who)
                town.call({"none": None, "revoked": "rita"}.get(who, who), verb, address, **options)
    assert town.get("vera", "/api/v1/ledger").json() == before
    assert town.get("olga", "/api/v1/enrolments/revoked").json() == {"revoked": []}
    names = {one["name"] for one in town.get("olga", "/api/v1/keys").json()["keys"]}
    assert not [name for name in names if name.startswith("new-")]


def test_a_foreign_thing_looks_like_none(town):
    foreign = town.get("bob", f"/api/v1/jobs/{town.job}")
    missing = town.get("bob", "/api/v1/jobs/job_nothing")
    assert (foreign.status_code, foreign.text) == (missing.status_code, missing.text)
    foreign = town.get("otto", f"{TOWN}/quotas")
    missing = town.get("otto", "/api/v1/datasets/nothing/quotas")
    assert (foreign.status_code, foreign.text) == (missing.status_code, missing.text)


def test_a_file_of_somebody_else_looks_like_none(town):
    """What one owner may register, another is not told of; nor is anybody told what else lies there."""
    assert town.get("olga", "/api/v1/sources").json() == {"sources": ["fresh.csv", "town.csv"]}
    assert town.get("otto", "/api/v1/sources").json() == {"sources": []}
    told = set()
    for name in ("town.csv", "census.csv", "nothing.csv", "census.yaml", ".service/state.sqlite"):
        text = declaration("ottos").replace("town.csv", name)
        reply = town.call("otto", "POST", "/api/v1/datasets", json={"declaration": text})
        told.add((reply.status_code, reply.text.replace(name, "...")))
    assert len(told) == 1


def test_no_owner_takes_back_the_key_of_another(town):
    """They would be free to take the name, too; the operator's command does it."""
    foreign = town.call("otto", "DELETE", "/api/v1/keys/olga")
    missing = town.call("otto", "DELETE", "/api/v1/keys/nobody")
    assert (foreign.status_code, foreign.text) == (missing.status_code, missing.text) == (404, missing.text)
    assert town.get("olga", "/api/v1/me").status_code == 200
    assert town.call("otto", "DELETE", "/api/v1/keys/otto").status_code == 204


def test_planted_files_that_any_owner_may_register_are_caught(town, monkeypatch):
    """The look at who has a file forgets the person."""

    def anybodys(self, file):
        row = self._one("SELECT identity FROM source WHERE file = ?", file)
        return None if row is None else (self.named("otto").number, row[0])

    monkeypatch.setattr(State, "source", anybodys)
    assert any("POST /api/v1/datasets as otto: 201" in one for one in violations(town))


def test_planted_an_endpoint_without_a_role_check_is_caught(town):
    town.app.add_api_route("/api/v1/datasets/{name}/rows", lambda name: {}, methods=["GET"])
    assert violations(town) == ["GET /api/v1/datasets/{name}/rows is not in the table"]


def test_planted_a_check_that_forgets_the_role_is_caught(town):
    """Every `Caller(...)` lets everybody through who has a key."""
    for dependency in dependencies(town.app):
        if isinstance(dependency, api.Caller):
            town.app.dependency_overrides[dependency] = api.Caller()
    found = violations(town)
    assert any("/metrics as alice: 200" in one for one in found)
    assert any("/keys as vera: 201" in one for one in found)


def dependencies(app):
    """The functions that calls depend on, wherever routes are kept."""
    left, found = list(app.routes), []
    while left:
        one = left.pop()
        if hasattr(one, "dependant"):
            found += [part.call for part in one.dependant.dependencies]
        left += getattr(one, "routes", None) or []
        left += getattr(getattr(one, "original_router", None), "routes", None) or []
    return found


def test_planted_a_job_that_anybody_may_read_is_caught(town, monkeypatch):
    def anybodys(self, name, person):
        from reticent.service.state.jobs import _JOB, Job

        row = self._one(f"{_JOB} id = ?", name)
        return Job(*row) if row else None

    monkeypatch.setattr(State, "job", anybodys)
    assert any("/jobs/{job} as bob: 200" in one for one in violations(town))


def test_a_key_stops_at_once(service):
    assert service.get("bob", "/api/v1/me").json() == {"name": "bob", "role": "analyst"}
    assert service.call("olga", "DELETE", "/api/v1/keys/bob").status_code == 204
    assert service.get("bob", "/api/v1/me").status_code == 401
    made = service.call("olga", "POST", "/api/v1/keys", json={"name": "bob", "role": "auditor"})
    assert made.status_code == 201
    assert service.get("bob", "/api/v1/me").status_code == 401
    service.keys["bob"] = made.json()["key"]
    assert service.get("bob", "/api/v1/me").json() == {"name": "bob", "role": "auditor"}


def test_secrets_are_kept_nowhere(service, folder):
    made = service.call("olga", "POST", "/api/v1/keys", json={"name": "new", "role": "analyst"}).json()["key"]
    assert len(made) == 46
    for path in (folder / ".service").iterdir():
        assert made.encode() not in path.read_bytes()
    assert made not in json.dumps(service.get("olga", "/api/v1/keys").json())


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic {}", "{}", "Bearer {}x", "Bearer x{}"])
def test_a_wrong_header_is_nobody(shared, header):
    headers = {"Authorization": header.format(shared.keys["alice"])}
    assert shared.client.get("/api/v1/me", headers=headers).status_code == 401
    assert shared.client.post(f"{BASE}/ask", json=MEAN, headers=headers).status_code == 401
