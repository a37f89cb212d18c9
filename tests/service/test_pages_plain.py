"""The pages without a browser: forms and their tokens, who sees what, what a form becomes."""

import math
import re
import shutil
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from reticent.apps.ledger import words as ledger_words
from reticent.apps.ledger.words import Account, Measured
from reticent.apps.query import builder
from reticent.apps.service.serving import create_app
from reticent.errors import ParameterError
from reticent.ledger.entries import encode
from reticent.query.declarations import dataset_file
from reticent.query.language import tree
from reticent.query.language.words import line
from reticent.service import limits, showing, visits
from reticent.service.keys import Role
from reticent.service.settings import Settings

from .browsing import IMAGE, SCRIPT, furnish
from .running import OPEN, TestClient, assign


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A service in this process, and a client for whoever signs in."""
    folder = tmp_path_factory.mktemp("plain")
    keys = furnish(folder)
    app = create_app(Settings(folder, **OPEN))
    with TestClient(app) as client:

        def visit(who):
            fresh = TestClient(app, follow_redirects=False, raise_server_exceptions=False)
            fresh.post("/signin", data={"key": keys[who], "csrf": token(fresh.get("/signin"))})
            assert fresh.get("/").status_code == 200
            return fresh

        yield SimpleNamespace(
            app=app, keys=keys, visit=visit, folder=folder, desk=client.app.state.desk, client=client
        )


def token(reply):
    return re.search('name="csrf" value="([^"]+)"', reply.text).group(1)


# Forms

FORMS = {
    "/datasets/census/price": {"kind": "count"},
    "/datasets/census/plan": {"sql": "SELECT COUNT(*) FROM census WHERE age > 30", "error": "50"},
    "/datasets/census/ask": {"kind": "mean", "column": "age", "exactness": "1"},
    "/datasets/census/quota": {"analyst": "bob", "share": "50"},
    "/owner/keys": {"name": "mallory", "role": "owner"},
    "/owner/keys/revoke": {"name": "bob"},
    "/owner/keys/replace": {"name": "bob"},
    "/owner/register/blanks": {"file": "survey.csv"},
    "/owner/register/review": {"declaration": "x"},
    "/owner/register": {"declaration": "x"},
    "/market/0000000000000000/fund": {},
    "/datasets/census/download": {"query": '{"kind": "count"}', "units": "1", "form": "csv"},
    "/signout": {},
}


def posts(app):
    """Every page that takes a form."""
    found, left = set(), [*app.routes]
    while left:
        route = left.pop()
        left += getattr(route, "routes", None) or getattr(
            getattr(route, "original_router", None), "routes", []
        )
        path = getattr(route, "path", "")
        if "POST" in (getattr(route, "methods", None) or ()) and not path.startswith("/api/"):
            found.add(path.replace("{name}", "census").replace("{bill}", "0" * 16))
    return found


def forged(world, **more):
    """The forms that are taken without the token of their visit."""
    taken, client = [], world.visit("olga")
    for path, fields in FORMS.items():
        reply = client.post(path, data=fields | more)
        if reply.status_code != 403 or "the form is stale" not in reply.text:
            taken.append(path)
    return taken


def test_no_form_is_taken_without_its_token(world, monkeypatch):
    assert posts(world.app) == {*FORMS, "/signin"}

    def everything():
        names = world.desk.names()
        return names, world.desk.state.all_keys(), [world.desk.balance(name).spent for name in names]

    before = everything()
    other = token(world.visit("olga").get("/owner/keys"))
    assert forged(world) == forged(world, csrf="") == forged(world, csrf=other) == []
    assert everything() == before
    monkeypatch.setitem(world.app.dependency_overrides, visits.checked, visits.visitor)  # planted
    for path in ("/owner/keys", "/owner/keys/revoke", "/owner/keys/replace"):
        monkeypatch.delitem(FORMS, path)
    assert forged(world) == list(FORMS)


def test_signing_in_needs_the_page_that_asks_for_it(world):
    stranger = TestClient(world.app, follow_redirects=False)
    reply = stranger.post("/signin", data={"key": world.keys["alice"]})
    assert reply.status_code == 403
    assert "reticent" not in reply.cookies
    elsewhere = token(TestClient(world.app).get("/signin"))
    stranger.get("/signin")
    assert stranger.post("/signin", data={"key": world.keys["alice"], "csrf": elsewhere}).status_code == 403
    csrf = token(stranger.get("/signin"))
    reply = stranger.post("/signin", data={"key": world.keys["alice"], "csrf": csrf})
    assert reply.status_code == 303
    assert "HttpOnly" in reply.headers["set-cookie"]
    assert "SameSite=strict" in reply.headers["set-cookie"]


def test_unknown_keys_are_taken_slowly(folder, keys, monkeypatch):
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: 1000.0))  # nothing is forgiven
    app = create_app(Settings(folder, grid_s=0.0))
    with TestClient(app, follow_redirects=False) as client:
        csrf = token(client.get("/signin"))

        def sign_in(key):
            return client.post("/signin", data={"key": key, "csrf": csrf})

        assert {sign_in("rk_guess").status_code for _ in range(20)} == {401}
        reply = sign_in("rk_guess")
        assert reply.status_code == 429
        assert "Too many unknown keys" in reply.text
        assert sign_in(keys["alice"]).status_code == 429  # a right guess is not told from a wrong one
        del app.state.failed_sign_ins
        for _ in range(25):  # who has a key is not held up
            reply = sign_in(keys["alice"])
            csrf = token(client.get("/signin"))
            assert reply.status_code == 303


# Who sees what


def test_pages_are_for_their_roles(world):
    for path in ("/owner/keys", "/owner/register"):
        for who, status in (("olga", 200), ("alice", 404), ("vera", 404)):
            assert world.visit(who).get(path).status_code == status
    vera = world.visit("vera")
    for path in ("/", "/ledger", "/datasets/census", "/datasets/census/reuse"):
        assert vera.get(path).status_code == 200
    for path in ("/datasets/census/ask", "/datasets/census/plan", "/datasets/census/answers"):
        assert vera.get(path).status_code == 403
        assert path not in vera.get("/").text
    csrf = token(vera.get("/"))
    for path in ("/datasets/census/ask", "/datasets/census/price"):
        assert vera.post(path, data={"csrf": csrf, "kind": "count"}).status_code == 403
    stranger = TestClient(world.app, follow_redirects=False)
    for path in ("/", "/overview", "/ledger", "/ledger/proofs", "/datasets/census", "/owner/keys"):
        assert stranger.get(path).headers["location"] == "/signin"
    assert stranger.get("/overview", headers={"hx-request": "true"}).headers["hx-redirect"] == "/signin"


def test_an_owner_sees_no_quotas_of_others_and_keeps_her_own_key(world):
    otto, olga = world.visit("otto"), world.visit("olga")
    text = (world.folder / "census.yaml").read_text().replace("census", "ottos")
    shutil.copy(world.folder / "census.csv", world.folder / "ottos.csv")
    assign(world.folder, "ottos.csv", "otto")
    reply = otto.post("/owner/register", data={"csrf": token(otto.get("/")), "declaration": text})
    assert reply.headers["location"] == "/datasets/ottos"
    assert 'id="quotas"' in otto.get("/datasets/ottos").text
    assert 'id="quotas"' not in olga.get("/datasets/ottos").text
    csrf = token(olga.get("/"))
    quota = {"csrf": csrf, "analyst": "bob", "share": "1"}
    assert olga.post("/datasets/ottos/quota", data=quota).status_code == 404
    assert olga.post("/owner/keys/revoke", data={"csrf": csrf, "name": "olga"}).status_code == 404
    assert olga.get("/").status_code == 200
    for share in ("-1", "101", "nan", "x"):
        quota["share"] = share
        assert (
            otto.post("/datasets/ottos/quota", data=quota | {"csrf": token(otto.get("/"))}).status_code == 400
        )


def test_faults_are_pages_with_the_way_back_and_nothing_else(world):
    alice = world.visit("alice")
    for path, status in (("/nowhere", 404), ("/datasets/none", 404), ("/ledger?last=x", 422),
                         ("/datasets/census/answers?key=none", 404)):  # fmt: skip
        reply = alice.get(path)
        assert (reply.status_code, reply.headers["content-type"]) == (status, "text/html; charset=utf-8"), (
            path
        )
        assert "Back to the data sets" in reply.text
        assert "alice" in reply.text  # still signed in
    assert alice.get("/api/v1/nowhere").headers["content-type"] == "application/json"
    assert alice.get("/ledger/proofs?first=0&last=1&size=99999").status_code == 404
    csrf = token(alice.get("/"))
    odd = {"csrf": csrf, "kind": "mean", "column": "age"}
    for more in ({"rows": "inf"}, {"rows": "1.5"}, {"error": "nan"}, {"exactness": "x"}, {"kind": "?"},
                 {"where_column": "none", "where_op": "=", "where_value": "1"},
                 {"mode": "sql"}, {"by": "age", "bins": "x"}):  # fmt: skip
        reply = alice.post("/datasets/census/price", data=odd | more, headers={"hx-request": "true"})
        assert reply.status_code == 200, more  # a line in place: the person is still typing
        assert 'role="alert"' in reply.text, more


def test_browsers_keep_files_and_no_pages(world):
    alice = world.visit("alice")
    assert alice.get("/").headers["cache-control"] == "no-store"
    reply = alice.get("/static/style.css")
    assert reply.headers["cache-control"] == "no-cache"
    assert alice.get("/static/style.css", headers={"if-none-match": reply.headers["etag"]}).status_code == 304


def test_the_overview_is_sent_only_when_it_changed(world):
    alice = world.visit("alice")
    seen = re.search("/overview[?]seen=([0-9a-f]+)", alice.get("/").text).group(1)
    assert alice.get(f"/overview?seen={seen}").status_code == 204
    world.desk.ask(world.desk.state.named("bob"), "census", tree.mean("age"), information=0.01)
    assert alice.get(f"/overview?seen={seen}").status_code == 200


# Texts


class Elements(HTMLParser):
    """The elements of a page that could do harm."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "img" or (tag == "script" and "src" not in given) or any(n.startswith("on") for n in given):
            self.found.append(tag)


def test_texts_of_others_never_become_elements(world, monkeypatch):
    alice, olga = world.visit("alice"), world.visit("olga")

    def look():
        csrf = token(alice.get("/"))
        asked = {"csrf": csrf, "kind": "count", "by": "{{7*7}}", "exactness": "10",
                 "where_column": SCRIPT, "where_op": "=", "where_value": "1"}  # fmt: skip
        replies = [alice.post("/datasets/hostile/ask", data=asked)]
        replies.append(alice.post("/datasets/hostile/price", data=asked | {"where_value": IMAGE}))
        replies += [alice.get(f"/datasets/hostile{path}") for path in ("", "/ask", "/answers")]
        csrf = token(olga.get("/"))
        replies.append(olga.post("/owner/keys", data={"csrf": csrf, "name": IMAGE, "role": "analyst"}))
        replies.append(olga.post("/owner/register/review", data={"csrf": csrf, "declaration": SCRIPT}))
        blanks = {"csrf": csrf, "file": "survey.csv", "name": IMAGE, "epsilon": SCRIPT}
        replies.append(olga.post("/owner/register/blanks", data=blanks))
        assert max(reply.status_code for reply in replies) < 500
        return [Elements(reply.text).found for reply in replies]

    assert [found for found in look() if found] == []
    monkeypatch.setattr(world.app.state.templates.env, "autoescape", False)  # planted
    monkeypatch.setattr(world.app.state.templates.env, "cache", None)
    assert all(look())


# Numbers and words


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (41311.5, 2027.0, "41,300"),
        (41311.5, 20.27, "41,312"),
        (0.123456, 0.00321, "0.1235"),
        (5000.0, 0.0, "5,000"),
        (-3.4, 12.0, "-3"),
        (-0.2, 12.0, "0"),
        (1e9, 1e7, "1,000,000,000"),
        (0.3, 0.1, "0.30"),
        (math.inf, 1.0, "unknown"),
        (1.0, math.inf, "1"),
    ],
)
def test_values_are_as_exact_as_their_error(value, error, shown):
    assert showing.rounded(value, error) == shown


def test_intervals_and_errors_are_rounded_outwards():
    assert showing.interval(39282.5, 43336.6) == ("39,200", "43,400")
    assert showing.interval(0.3, 0.5) == ("0.30", "0.50")
    assert showing.error_shown(2027.0) == "2,100"
    assert showing.error_shown(0.1) == "0.10"
    for low, high in ((0.1234567, 0.9), (-17.3, 5.2), (1e-9, 3e-9)):
        ends = [float(end.replace(",", "")) for end in showing.interval(low, high)]
        assert ends[0] <= low < high <= ends[1]


def test_questions_in_words():
    for query, words in (
        (tree.count(), "count"),
        (tree.mean("x", where="age >= 40 and not sex = 'f'"), "mean of x where age ≥ 40 and not sex = 'f'"),
        (tree.proportion("x > 6", where="a = 1 or b in (1, 2)"), "share of x > 6 among a = 1 or b in (1, 2)"),
        (tree.median("age"), "median of age"),
        (tree.quantile("age", [0.1, 0.9]), "quantile 0.1, 0.9 of age"),
        (tree.histogram(tree.By("age", bins=4)), "histogram by age in 4 bins"),
        (tree.count(by=[tree.By("age", edges=(20, 40)), "sex"]), "count by age cut at 20, 40, sex"),
    ):  # fmt: skip
        assert line(tree.to_json(query)) == words


CHARGED = encode("request", account=3, charged=2 * 10**12, commitment="0" * 64, key=5, measurement=7)
UNITS_SAID = {
    "epsilon": "20 % (epsilon 2)",
    "epsilon_per_km": "20 % (epsilon per km 2)",
    "mu2": "20 % (mu² 2)",
    "money": "20,000,000,000.00",
}


def test_entries_in_words():
    assert ledger_words.entry('{"origin":"x","type":"ledger","version":"1"}') == "The log begins"
    assert ledger_words.entry("<script>") == "Not an entry that this version knows"
    assert ledger_words.entry(CHARGED) == "Account 3 charged 2000000000000 units for measurement 7"
    recorded = encode("fulfil", commitment="0" * 64, measurement=7)
    assert ledger_words.entry(recorded) == "Recorded: measurement 7"
    measured = {"7": Measured("3", "period 2")}
    for unit, said in UNITS_SAID.items():
        accounts = {"3": Account("survey traffic", unit, 10 * 10**12)}
        assert ledger_words.entry(CHARGED, accounts, measured) == (
            f"survey traffic charged {said} for period 2 (measurement 7)"
        )
    assert ledger_words.entry(recorded, accounts, measured) == (
        "Recorded for survey traffic: period 2 (measurement 7)"
    )


def test_data_attributes_hold_no_infinity():
    assert showing.data({"a": [math.inf, math.nan, 1.0]}) == '{"a": [null, null, 1.0]}'


# From a form

CENSUS = dataset_file.parse(
    """
name: census
version: 1
unit: row
relation: replace one
rows: 100
budget: {epsilon: 1, delta: 1e-6}
columns:
  age: {type: integer, low: 0, high: 120}
  race: {type: category, values: ["white", "black, brown"]}
  vote: {type: boolean}
"""
)


def built(**fields):
    return builder.asked(
        CENSUS, {name: [one] if isinstance(one, str) else one for name, one in fields.items()}
    )


def test_the_builder_makes_the_closed_tree():
    where = {
        "where_column": ["age", "", "vote"],
        "where_op": [">", "=", "="],
        "where_value": ["40", "x", "true"],
    }
    both = [{"column": "age", "op": ">", "value": 40}, {"column": "vote", "op": "=", "value": True}]
    assert built(kind="count", **where) == tree.count(where={"and": both})
    either = built(kind="count", where_join="any", **where)
    assert isinstance(either.where, tree.Or)
    comma = built(kind="proportion", of_column="race", of_op="=", of_value="black, brown")
    assert comma == tree.proportion({"column": "race", "op": "=", "value": "black, brown"})
    assert built(kind="histogram", by=["age", "race"], bins=["", "7"]) == tree.histogram(
        [tree.By("age", bins=10), "race"]
    )
    assert built(kind="quantile", column="age", levels="0.1, 0.9") == tree.quantile("age", [0.1, 0.9])
    assert built(mode="sql", sql=" SELECT 1 ", kind="mean") == "SELECT 1"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "proportion"}, "of must be a condition"),
        ({"kind": "histogram"}, "by must name a column"),
        ({"kind": "count", "where_column": "age", "where_op": "=", "where_value": " "}, "is compared with"),
        ({"kind": "count", "where_column": "vote", "where_op": "=", "where_value": "maybe"}, "true or false"),
        (
            {"kind": "count", "where_column": "age", "where_op": "=", "where_value": "1e999"},
            "must be a number",
        ),
        ({"kind": "count", "by": "age", "bins": "2.5"}, "must be a whole number"),
        ({"kind": "drop"}, "kind must be one of"),
        ({"mode": "sql"}, "sql must be given"),
    ],
)
def test_the_builder_says_what_is_missing(fields, message):
    with pytest.raises(ParameterError, match=message):
        built(**fields)


def test_the_slider_goes_from_a_ten_thousandth_to_all_of_the_cap():
    assert builder.share("0") == pytest.approx(1e-4)
    assert builder.share("50") == pytest.approx(1e-2)
    assert builder.share("100") == builder.share("1e9") == 1.0


def test_a_declaration_from_a_form_is_read_as_typed():
    fields = {
        "name": ["survey"], "version": ["1.10"], "unit": ["person"], "person": ["id"], "contribution": ["3"],
        "relation": ["add or remove one"], "rows": [""], "epsilon": ["1"], "delta": ["1e-6"],
        "policy": ["share"],
        "column_name": ["age", "yes", "left"], "column_type": ["integer", "category", ""],
        "column_low": ["0", "9", ""], "column_high": ["120", "", ""], "column_step": ["", "", ""],
        "column_values": ["x", "yes, no: never", ""], "column_missing": ["40", "", ""],
    }  # fmt: skip
    data = dataset_file.parse(builder.declaration("survey.csv", fields))
    assert (data.name, data.version, data.person, data.contribution) == ("survey", "1.10", "id", 3)
    assert [column.name for column in data.columns] == ["age", "yes"]
    assert data.columns[1].values == ("yes", "no: never", "other")
    assert dict(data.source) == {"csv": "survey.csv"}


def test_no_missing_number_becomes_the_middle_of_its_range_unawares():
    fields = {
        "name": ["survey"], "version": ["1"], "unit": ["row"], "relation": ["add or remove one"],
        "epsilon": ["1"], "delta": ["1e-6"], "policy": ["share"],
        "column_name": ["age"], "column_type": ["integer"], "column_low": ["0"], "column_high": ["120"],
        "column_step": [""], "column_values": [""], "column_missing": [" "],
    }  # fmt: skip
    with pytest.raises(ParameterError, match=r"missing must be filled in"):
        dataset_file.parse(builder.declaration("survey.csv", fields))
    said = dataset_file.parse(builder.declaration("survey.csv", fields | {"column_missing": ["0"]}))
    assert said.columns[0].missing == 0


@pytest.mark.parametrize("unit", [[""], [], ["Row"], ["people"]])
def test_no_unit_is_taken_for_granted(unit):
    fields = {
        "name": ["survey"],
        "version": ["1"],
        "unit": unit,
        "relation": ["add or remove one"],
        "epsilon": ["1"],
        "delta": ["1e-6"],
        "policy": ["share"],
        "column_name": ["wild"],
        "column_type": ["boolean"],
        "column_low": [""],
        "column_high": [""],
        "column_step": [""],
        "column_values": [""],
        "column_missing": [""],
    }
    with pytest.raises(ParameterError, match=r"^unit must be"):
        dataset_file.parse(builder.declaration("survey.csv", fields))
    assert dataset_file.parse(builder.declaration("survey.csv", fields | {"unit": ["row"]})).person is None


def test_roles_are_those_of_the_service():
    assert {role.value for role in Role} == {"owner", "analyst", "auditor", "buyer"}
