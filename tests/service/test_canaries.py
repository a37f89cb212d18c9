"""T22: nothing of the raw rows is in replies, pages, logs, files or on a chain, whatever people try."""

import contextlib
import json
import logging
import re
import signal
import threading
from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace

import httpx
import pytest

from reticent.apps.query.pages import main as pages
from reticent.apps.service.serving import create_app
from reticent.errors import ReticentError, SourceError
from reticent.query import Session
from reticent.query.chain.oracle import open_oracle
from reticent.query.declarations import dataset_file
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.measure import plan
from reticent.query.opening import folder as kept_folder
from reticent.query.opening import snapshot_path
from reticent.query.rows import snapshot, source
from reticent.service.settings import Settings
from reticent.service.state import State

from ..unit.query.town import Town
from .canaries import SOURCES, Rows, files, planted_in
from .running import Process, Service, TestClient, make_keys, until

API = "/api/v1"
LITTLE = {"information": 1e-4}
GOOD = (
    "SELECT COUNT(*) FROM {}",
    "SELECT COUNT(*) FROM {} WHERE city = 'north' AND balance > 5",
    "SELECT SUM(balance) FROM {}",
    "SELECT AVG(balance) FROM {} WHERE city = 'south'",
    "SELECT VAR_POP(balance) FROM {}",
    "SELECT city, SUM(balance) FROM {} GROUP BY city",
    "SELECT MEDIAN(balance) FROM {}",
    "SELECT AVG(balance) FROM {} WHERE balance > 1999999999",
)
BAD = (
    "SELECT AVG(income / 0) FROM {}",
    "SELECT SUM(balance / (balance - balance)) FROM {}",
    "SELECT SUM(CAST(city AS INTEGER)) FROM {}",
    "SELECT SUM(balance * balance * balance) FROM {}",
    "SELECT SUM(balance) FROM {} WHERE balance > 1e309",
    "SELECT COUNT(*) FROM {} WHERE note = 'x'",
    "SELECT COUNT(*) FROM {} WHERE city = 'elsewhere'",
    "SELECT COUNT(*) FROM {} WHERE city IS NULL",
    "SELECT note, COUNT(*) FROM {} GROUP BY note",
    "SELECT COUNT(DISTINCT pid) FROM {}",
    "SELECT MAX(balance) FROM {}",
    "SELECT * FROM {}",
    "SELECT COUNT(*) FROM read_csv('people.csv')",
    "SELECT ssn FROM {}; DROP TABLE x",
    {"kind": "mean", "column": "note"},
    {"kind": "histogram", "by": [{"column": "pid"}]},
    {"kind": "sum", "column": "balance", "where": {"column": "ssn", "op": "<", "value": 1}},
    {},
)
TREES = ({"kind": "histogram", "by": [{"column": "balance", "bins": 4}]},)


class Crowd:
    """People with keys and browsers, and every byte that they are sent."""

    def __init__(self, client, keys):
        self._client, self._keys, self.replies = client, keys, []
        self._open = contextlib.ExitStack()
        self._at = {}

    def close(self):
        self._open.close()

    def _kept(self, reply):
        told = "\n".join(f"{name}: {value}" for name, value in reply.headers.items())
        self.replies.append(f"{reply.status_code} {told}\n".encode() + reply.content)
        return reply

    def call(self, who, method, path, **options):
        """Over the API."""
        if "api" not in self._at:
            self._at["api"] = self._open.enter_context(self._client())
        headers = options.pop("headers", {})
        if who is not None:
            headers = {"Authorization": f"Bearer {self._keys.get(who, who)}", **headers}
        return self._kept(self._at["api"].request(method, path, headers=headers, **options))

    def ask(self, name, query, verb="ask", who="alice", key=None, **accuracy):
        headers = {} if key is None else {"Idempotency-Key": key}
        body = {"query": query.format(name) if isinstance(query, str) else query, **(accuracy or LITTLE)}
        return self.call(who, "POST", f"{API}/datasets/{name}/{verb}", json=body, headers=headers)

    def enter(self, who):
        """Sign in with a browser."""
        browser = self._at[who] = self._open.enter_context(self._client())
        token = _token(self._kept(browser.get("/signin")))
        self._kept(browser.post("/signin", data={"key": "rk_wrong", "csrf": token}))
        self._kept(browser.post("/signin", data={"key": self._keys[who], "csrf": token}))

    def look(self, who, path, **options):
        return self._kept(self._at[who].get(path, **options))

    def send(self, who, path, is_part=False, **fields):
        csrf = _token(self.look(who, "/owner/keys" if who == "olga" else "/datasets/people/ask"))
        headers = {"HX-Request": "true"} if is_part else {}
        return self._kept(self._at[who].post(path, data=fields | {"csrf": csrf}, headers=headers))


def _token(reply):
    return re.search('name="csrf" value="([^"]+)"', reply.text).group(1)


# What people do


def questions(crowd, names):
    """Good and bad ones, by every verb."""
    for name in names:
        for query in (*GOOD, *TREES):
            for verb in ("price", "rehearse", "ask", "known"):
                more = {"confidence": 0.9} if verb == "known" else LITTLE
                reply = crowd.ask(name, query, verb, **more)
                assert reply.status_code == 200, reply.text
        for query in BAD:
            for verb in ("price", "ask"):
                assert crowd.ask(name, query, verb).status_code in (400, 422)
        for accuracy in (
            {"error": 0.0},
            {"error": 1e-300},
            {"epsilon": 50.0},
            {"information": 1e9},
            {"rows": 3},
        ):
            assert crowd.ask(name, GOOD[3], **accuracy).status_code in (400, 409)
    assert crowd.ask("crowd", "SELECT COUNT(*) FROM {} WHERE kind = 'rare'").status_code == 200


def retries_and_jobs(crowd):
    for _ in range(2):
        crowd.ask("people", GOOD[1], key="one")
    crowd.ask("people", GOOD[2], key="one")
    made = [crowd.ask("people", query, "jobs", key=f"job {i}") for i, query in enumerate(GOOD[:4])]
    crowd.ask("people", GOOD[2], "jobs", information=1e9)
    for job in [reply.json()["job"] for reply in made]:
        until(lambda job=job: crowd.call("alice", "GET", f"{API}/jobs/{job}").json()["result"])
        crowd.look("alice", f"/datasets/people/jobs/{job}")
        crowd.call("bob", "GET", f"{API}/jobs/{job}")


def looking(crowd, names):
    """Every page and every call that only looks, with good and bad names and numbers."""
    paths = ["me", "datasets", "ledger", "ledger/entries?count=1000", "ledger/entries/3/proof", "keys",
             "ledger/entries/99999/proof", "ledger/consistency?old=1&new=3", "ledger/consistency?old=9&new=3",
             "ledger/entries?count=-1"]  # fmt: skip
    for name in (*names, "nobody"):
        paths += [f"datasets/{name}{rest}" for rest in ("", "/budget", "/answers", "/quotas")]
    for path in paths:
        for who in ("olga", "vera", None):
            crowd.call(who, "GET", f"{API}/{path}")
    for who in ("vera", None, "rk_unknown"):
        for path in ("/health", "/metrics", "/openapi.json", "/nowhere"):
            crowd.call(who, "GET", path)
    pages = ["/", "/overview", "/audits", "/ledger", "/ledger?last=2", "/ledger/proofs?first=0&last=2&size=3",
             "/ledger/consistency?old=1&new=2", "/ledger/consistency?old=5&new=2", "/owner/keys",
             "/owner/register", "/static/ledger.js", "/signin",
             *(f"/owner/register?file={file}" for file in (*SOURCES, "x.yaml", "../x.csv"))]  # fmt: skip
    for name in (*names, "nobody"):
        pages += [f"/datasets/{name}{rest}" for rest in ("", "/ask", "/answers", "/answers?key=x", "/reuse")]
    for path in pages:
        for who in ("alice", "olga"):
            crowd.look(who, path)
    for key in crowd.call("alice", "GET", f"{API}/datasets/people/answers").json()["answers"]:
        crowd.look("alice", "/datasets/people/answers", params={"key": key["key"]})


def knocking(crowd, folder):
    """Every route there is, with nothing useful to say."""
    for method, path in sorted(of_routes(create_app(Settings(folder)))):
        for who in ("olga", None):
            crowd.call(who, method, re.sub("{[^}]*}", "people", path), json={})


def forms(crowd):
    for fields in (
        {"kind": "count"}, {"kind": "mean", "column": "balance", "exactness": "1"}, {"kind": "median"},
        {"kind": "histogram", "by": "city"}, {"mode": "sql", "sql": BAD[0].format("people")},
        {"kind": "sum", "column": "note"}, {"kind": "mean", "column": "income", "error": "1", "rows": "9"},
    ):  # fmt: skip
        for path in ("price", "ask"):
            crowd.send("alice", f"/datasets/people/{path}", is_part=path == "price", **fields)
    crowd.send("olga", "/datasets/people/quota", analyst="bob", share="0.0001")
    crowd.ask("people", GOOD[2], who="bob", information=2e-4)
    crowd.send("alice", "/datasets/people/quota", analyst="bob", share="")
    crowd.call("olga", "PUT", f"{API}/datasets/people/quotas/bob", json={"share": None})
    crowd.send("olga", "/owner/keys", name="ann", role="analyst")
    crowd.send("olga", "/owner/keys/revoke", name="ann")
    crowd.call("olga", "POST", f"{API}/keys", json={"name": "ben", "role": "analyst"})
    crowd.call("olga", "DELETE", f"{API}/keys/ben")


def registering(crowd, declaration):
    extra = declaration.replace("people", "extra")
    for text in (
        extra.replace("low: 0", "low: x"),
        extra.replace("extra.csv", "/etc/passwd"),
        "x",
        extra * 2,
    ):
        for path in ("/owner/register", "/owner/register/review"):
            crowd.send("olga", path, declaration=text, file="extra.csv")
        crowd.call("olga", "POST", f"{API}/datasets", json={"declaration": text})
    crowd.send("olga", "/owner/register/blanks", file="extra.csv", name="extra", column_name="income")
    assert crowd.call("olga", "POST", f"{API}/datasets", json={"declaration": extra}).status_code == 201
    missing = extra.replace("name: extra", "name: other").replace("  age:", "  aged:")
    crowd.call("olga", "POST", f"{API}/datasets", json={"declaration": missing})
    for name in ("extra", "other"):
        for verb in ("price", "ask"):
            crowd.ask(name, GOOD[0], verb)


def breaking(crowd, folder, rows):
    """Files that break, go and come back while the service runs; each question about them is a new one."""
    broken = {
        "fragile.csv": [rows.spoilt(), rows.garbage(), b"", b"pid,note\n" + rows.csv(), None],
        "torn.parquet": [rows.sources["torn.parquet"][:-50], rows.garbage(), rows.broken(), None],
    }
    failed = 0
    for file, contents in broken.items():
        name = file.split(".")[0]
        for i, content in enumerate(contents):
            if content is None:
                (folder / file).unlink()
            else:
                (folder / file).write_bytes(content)
            query = f"SELECT SUM(balance) FROM {{}} WHERE balance > {i} AND city = 'north'"
            replies = [crowd.ask(name, query, key=f"{file} {i}"), crowd.ask(name, query, "jobs")]
            failed += sum(reply.status_code == 503 for reply in replies)
            if replies[1].status_code == 202:
                job = replies[1].json()["job"]
                until(lambda job=job: crowd.call("alice", "GET", f"{API}/jobs/{job}").json()["result"])
            crowd.send("alice", f"/datasets/{name}/ask", kind="mean", column="balance", exactness=str(i))
            crowd.look("alice", f"/datasets/{name}")
            crowd.look("olga", f"/owner/register?file={file}")
        (folder / file).write_bytes(rows.sources[file])
        crowd.ask(name, query, key=f"{file} {i}")
    assert failed > 3, "the engine had nothing to say"


def exhaust(crowd):
    left = crowd.call("vera", "GET", f"{API}/datasets/extra/budget").json()["remaining"]
    everything_left = {"information": int(left) * 0.999e-12}
    assert crowd.ask("extra", "SELECT SUM(age) FROM {}", **everything_left).status_code == 200
    assert crowd.ask("extra", GOOD[3], **everything_left).status_code == 409
    crowd.send("alice", "/datasets/extra/ask", kind="mean", column="balance")


def everything(crowd, folder, rows, names):
    for who in ("alice", "olga"):
        crowd.enter(who)
    questions(crowd, names)
    retries_and_jobs(crowd)
    forms(crowd)
    registering(crowd, (folder / "people.yaml").read_text())
    exhaust(crowd)
    breaking(crowd, folder, rows)
    looking(crowd, names)
    knocking(crowd, folder)
    crowd.send("olga", "/signout")
    for i in range(5):  # the service is killed with these in its hands
        crowd.ask("people", f"SELECT SUM(balance) FROM {{}} WHERE balance > {i}", "jobs", key=f"last {i}")


def after_a_kill(crowd):
    for who in ("alice", "olga"):
        crowd.enter(who)
    for i in range(5):
        crowd.ask("people", f"SELECT SUM(balance) FROM {{}} WHERE balance > {i}", key=f"last {i}")
    looking(crowd, ("people",))


# Looking for canaries


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return Rows(tmp_path_factory.mktemp("rows"))


@pytest.fixture
def folder(rows, tmp_path):
    """The sources and their declarations; the people have a snapshot too."""
    place = tmp_path / "desk"
    place.mkdir()
    rows.write(place)
    path = place / "people.yaml"
    data = dataset_file.read(path)
    kept_folder(path).mkdir(mode=0o700)
    snapshot.make(data, place, snapshot_path(path, data))
    return place


REQUEST = '"event": "request"'
SNAPSHOT = "snapshot-1.duckdb"  # the prepared rows, which the owner had written: raw data like its source


def left_behind(crowd, folder):
    """All replies, and every file except those that hold the rows by their nature."""
    yield "replies", b"\n\n".join(crowd.replies)
    yield from files(folder, but=(*SOURCES, SNAPSHOT))


def test_the_search_finds_every_form(rows):
    found = rows.found(planted_in(rows))
    assert {one.rsplit(" ", 1)[1] for one in found} == {place for place, _ in planted_in(rows)}
    count = [("page", b"<td>1,299,709 rows</td>"), ("hash", b"ab1299709")]
    assert rows.found(count) == ["number of rows in page"]
    assert rows.found([("source", rows.csv())])


def of_routes(app):
    """Every method and path."""
    found, left = set(), [*app.routes]
    while left:
        route = left.pop()
        inner = getattr(route, "original_router", route)
        left += getattr(inner, "routes", None) or []
        found |= {(method, route.path) for method in getattr(route, "methods", None) or ()}
    return {(method, path) for method, path in found if path != "/openapi.json"}  # no route of ours


def live(folder, keys, do, *given, **settings):
    """What people do in a service, until it is killed; what they were sent."""
    service, log = Process(folder, **settings), folder / "service.log"
    before = log.read_text().count(REQUEST)
    crowd = Crowd(lambda: httpx.Client(base_url=service.url, timeout=60), keys)
    try:
        do(crowd, *given)
        until(lambda: log.read_text().count(REQUEST) >= before + len(crowd.replies))  # a thread writes it
    finally:
        service.end(signal.SIGKILL)
        crowd.close()
    return crowd


def check_routes(folder):
    lines = (folder / "service.log").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    taken = {(one["method"], one["route"]) for one in told if one["event"] == "request"}
    assert of_routes(create_app(Settings(folder))) <= taken
    assert not [one for one in told if one["event"] == "fault"]


def test_nothing_of_the_rows_gets_away(folder, rows):
    crowd = live(folder, make_keys(folder), everything, folder, rows, ("people",))
    assert rows.found(left_behind(crowd, folder)) == []
    check_routes(folder)


@pytest.mark.slow
def test_nothing_of_the_rows_gets_away_in_full(folder, rows):
    keys = make_keys(folder)
    before = live(folder, keys, everything, folder, rows, ("people", "coarse", "torn"), workers=2)
    assert rows.found(left_behind(before, folder)) == []
    after = live(folder, keys, after_a_kill, workers=2)
    assert rows.found(left_behind(after, folder)) == []
    check_routes(folder)


# On a chain


def on_chain(town):
    """Whatever anybody can read there since the contract was made."""
    node = town.node
    for number in range(town.first_block, int(node.rpc("eth_blockNumber"), 16) + 1):
        block = node.rpc("eth_getBlockByNumber", hex(number), True)
        for sent in block["transactions"]:
            receipt = node.rpc("eth_getTransactionReceipt", sent["hash"])
            told = [json.dumps([block, receipt]).encode(), bytes.fromhex(sent["input"][2:])]
            for event in receipt["logs"]:
                told += [bytes.fromhex(part[2:]) for part in (event["data"], *event["topics"])]
            yield f"block {number}", b"\n".join(told)


def test_nothing_of_the_rows_gets_on_a_chain(anvil, folder, rows, tmp_path):
    """Questions that are answered, and one that the oracle cannot answer before its file is mended."""
    declaration = folder / "fragile.yaml"
    data = dataset_file.read(declaration)
    place = tmp_path / "town"
    place.mkdir()
    town, said, stop = Town(anvil, data, place), [], threading.Event()
    with (
        contextlib.closing(town),
        open_oracle(declaration, town.connect, town.folder) as oracle,
        Session(data, None, town.ledger(town.analyst), wait_s=600) as session,
    ):
        working = threading.Thread(target=oracle.run, args=(stop, 0.02))
        working.start()
        for query in (*GOOD[:6], *BAD):
            with contextlib.suppress(ReticentError):
                asked = query.format("fragile") if isinstance(query, str) else query
                said.append(repr(session.ask(asked, **LITTLE)))
        stop.set()
        working.join()
        assert len(said) == 6
        for content in (rows.spoilt(), rows.garbage(), rows.csv()):
            (folder / "fragile.csv").write_bytes(content)
            town.ask(plan(resolve(tree.mean("age", where="age > 30"), data)), data.terms.minimum)
            try:
                said.append(repr(oracle.step()))
            except ReticentError as error:
                said.append(repr(error))
        places = [("said", "\n".join(said).encode()), *on_chain(town), *files(place)]
        places += files(kept_folder(declaration))
        assert rows.found(places) == []
        with town.ledger(town.owner) as ledger:  # planted: a commitment that is a hash of the rows
            terms = replace(data.terms, name="other")
            ledger.register(terms, oracle=town.keeper.address, commitment=sha256(rows.csv()).digest())
        assert any(one.startswith("sha256 of fragile.csv") for one in rows.found(on_chain(town)))


# Planted


@pytest.fixture
def seen(folder, rows, caplog):
    """A function that lets people do something in a service of this process, and searches what is left."""

    def search(do):
        keys = make_keys(folder)
        service = Service(folder, keys)

        def client():
            return contextlib.nullcontext(TestClient(service.app, raise_server_exceptions=False))

        with caplog.at_level(logging.INFO), service.client:
            crowd = Crowd(client, keys)
            crowd.enter("alice")
            do(SimpleNamespace(crowd=crowd, desk=service.desk))
            places = [*left_behind(crowd, folder), ("log", caplog.text.encode())]
        return rows.found(places)

    return search


def ask_of_a_broken_file(at, folder, rows):
    (folder / "torn.parquet").write_bytes(rows.broken())
    assert at.crowd.ask("torn", GOOD[1]).status_code == 503


def test_the_check_finds_nothing_here(seen, folder, rows):
    def do(at):
        ask_of_a_broken_file(at, folder, rows)
        at.crowd.ask("people", GOOD[2], key="one")
        at.crowd.look("alice", "/datasets/crowd")

    assert seen(do) == []


def test_the_check_finds_an_error_that_quotes_a_row(seen, folder, rows, monkeypatch):
    def loud(call, reason="the data cannot be read"):
        try:
            return call()
        except Exception as error:
            raise SourceError(f"{reason}: {error}") from None

    monkeypatch.setattr(source, "quietly", loud)
    assert f"text {rows.texts[0]} in replies" in seen(lambda at: ask_of_a_broken_file(at, folder, rows))


def test_the_check_finds_a_result_in_the_log(seen, rows, monkeypatch):
    def noted(self, sql):
        found = true(self, sql)
        logging.getLogger("reticent.service").info(f"{sql}: {found}")
        return found

    true = source.Table.tally
    monkeypatch.setattr(source.Table, "tally", noted)
    found = seen(lambda at: at.crowd.ask("people", GOOD[2]))
    assert found == [f"digits of {rows.totals[0]} in log"]


def test_the_check_finds_a_hash_of_the_rows_in_the_state(seen, rows, monkeypatch):
    def bound(self, attempt, person, dataset, body):
        return true(self, attempt, person, dataset, sha256(rows.csv()).hexdigest())

    true = State.attempted
    monkeypatch.setattr(State, "attempted", bound)
    found = seen(lambda at: at.crowd.ask("people", GOOD[2], key="one"))
    assert any(one.startswith("sha256 of people.csv in state.sqlite") for one in found)


def test_the_check_finds_a_number_of_rows_on_a_page(seen, monkeypatch):
    def do(at):
        table = at.desk.session("crowd")._opened()
        ((count,),) = table.tally(f"SELECT count(*) FROM {table.relation}")
        monkeypatch.setattr(pages, "explain", lambda data, **_: [f"It has {count:,} rows."])
        at.crowd.look("alice", "/datasets/crowd")

    assert seen(do) == ["number of rows in replies"]


def test_what_holds_the_rows_is_private(folder, rows):
    kept = kept_folder(folder / "people.yaml")
    assert kept.stat().st_mode & 0o777 == 0o700
    assert (kept / SNAPSHOT).stat().st_mode & 0o777 == 0o600
