"""Commands against a service that lies: every field of an honest reply is replaced by odd values in turn.

The work of a command must print something or raise an error of ours, which is one line for users. It must
never raise anything else, nor write a sign to the terminal that steers it.
"""

import contextlib
import copy
import json
import re

import pytest

from reticent import peers
from reticent.apps.market import work
from reticent.apps.query import ask_work, views
from reticent.errors import ReticentError
from reticent.fleet.enrolment import enrolled
from reticent.market import remote as market_client
from reticent.query import census, proposals, remote
from reticent.query.remote import RemoteSession

from ...service.running import BASE, MEAN, Service, make_keys

ESCAPE = "\x1b]0;owned\x07\x1b[2J\u202eevil\x9b31m"
COLOURS = re.compile("\x1b\\[[0-9;]*m")
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ODD_VALUES = (None, True, 0, -1, 10**400, "", ESCAPE, [], [[None]], {"x": 1})

STATUS = {
    "id": "0123456789abcdef", "name": "speeds", "state": "open", "deposit": 300, "held": 0, "paid": 200,
    "refund": 0, "left": 100, "sold": [1, 1], "version": "1", "purpose": "to plan roads", "closes": 1,
    "hold_s": 900, "attributes": ["speed"], "levels": [{"epsilon": 1.0, "units": "1", "cents": 100}] * 2,
}  # fmt: skip
NUMBERS = {"value": 0.5, "shown": 0.5, "lower": 0.1, "upper": 0.9, "robust": None}
RESULTS = STATUS | {
    "estimates": [
        {"name": "speed", "reports": 2, "mean": NUMBERS, "frequencies": None, "shifts": {}},
        {"name": "kind", "reports": 2, "mean": None, "frequencies": [NUMBERS | {"category": "car"}]},
    ],
    "apart": ["speed"],
    "of_levels": [None, None],
}
SALES = {"sales": [{"bill": "00", "name": "speeds", "sale": "00", "place": 0, "cents": 100, "is_paid": True}]}
BILLS = {"signer": "00" * 32, "bills": [{"file": "{}", "surveys": ["{}"]}]}
BILL = "0123456789abcdef"
KEY = "rk_x"
URL = "http://127.0.0.1:9"
MARKET_COMMANDS = {
    "fund": (STATUS, lambda _: work.fund(URL, BILL, key=KEY)),
    "close": (STATUS, lambda _: work.close(URL, BILL, key=KEY)),
    "results": (RESULTS, lambda _: work.results(URL, BILL, key=KEY, out=None)),
    "sales": (SALES, lambda files: work.sales(URL, enrolment=files["enrolment"])),
    "quote": (BILLS, lambda _: work.quote(URL, price="1", budget=1.0)),
}


def places(value, path=()):
    """The path of every value in JSON, the whole first."""
    yield path
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in children:
        yield from places(child, (*path, key))


def replaced(value, path, odd):
    """A copy of JSON with another value at a path."""
    if not path:
        return odd
    changed = copy.deepcopy(value)
    parent = changed
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = odd
    return changed


def lies(honest):
    return [replaced(honest, path, odd) for path in places(honest) for odd in ODD_VALUES]


class HonestHeaders:
    """The part of a reply that is not its body."""

    status, will_close, headers = 200, True, {}

    def isclosed(self):
        return True


@pytest.fixture
def replies(monkeypatch):
    """The body of the reply to each path, by its end; nothing goes over a socket."""
    bodies = {}

    def exchange(connection, method, path, data, headers, *, seconds, most):
        body = next((body for end, body in bodies.items() if path.endswith(end)), {})
        return HonestHeaders(), json.dumps(body).encode()

    monkeypatch.setattr(peers, "exchange", exchange)
    monkeypatch.setattr(remote, "_TRIES", 1)
    return bodies


@pytest.fixture(scope="module")
def honest_service(tmp_path_factory):
    """What an honest service replies about a census: its description, a price, an answer, the budget."""
    folder = census.write(tmp_path_factory.mktemp("census"), rows=500).parent
    service = Service(folder, make_keys(folder))
    with service.client:
        replies = {
            "describe": service.get("alice", BASE).json(),
            "price": service.call("alice", "POST", f"{BASE}/price", json=MEAN).json(),
            "ask": service.ask("alice").json(),
            "budget": service.get("alice", f"{BASE}/budget").json(),
            "plan": service.call("alice", "POST", f"{BASE}/plan", json={"questions": [MEAN]}).json(),
        }
    assert "receipt" in replies["ask"]
    assert "information" in replies["price"]
    return replies


def find_faults(run, honest, set_reply, capsys):
    """Return the lies that end in an internal fault, or reach the terminal as they came."""
    set_reply(honest)
    with contextlib.suppress(ReticentError):
        run()
    capsys.readouterr()
    faults = []
    for lie in lies(honest):
        set_reply(lie)
        try:
            run()
        except ReticentError as error:  # one line and exit code 2
            print(error)
        except Exception as error:
            faults.append(("internal", repr(error)[:200], json.dumps(lie)[:300]))
        shown = "".join(capsys.readouterr())
        if STEERING.search(COLOURS.sub("", shown)):
            faults.append(("terminal", repr(shown)[:200], json.dumps(lie)[:300]))
    return faults


@pytest.fixture
def files(tmp_path):
    (tmp_path / "phone.json").write_text(enrolled(bytes(32)).to_json())
    return {"enrolment": tmp_path / "phone.json"}


def market_faults(name, replies, files, capsys):
    honest, run = MARKET_COMMANDS[name]
    return find_faults(lambda: run(files), honest, lambda body: replies.update({"": body}), capsys)


@pytest.mark.parametrize("name", MARKET_COMMANDS)
def test_a_lying_market_gives_no_internal_fault(name, replies, files, capsys):
    assert market_faults(name, replies, files, capsys) == []


def test_planted_reply_without_checks_is_found(replies, files, capsys, monkeypatch):
    """The client of earlier releases gave fields to the terminal as they came."""
    monkeypatch.setattr(market_client.ReplyFields, "text", market_client.ReplyFields.get)
    monkeypatch.setattr(market_client, "_amount", lambda value: value)
    kinds = {kind for kind, _, _ in market_faults("fund", replies, files, capsys)}
    assert kinds == {"internal", "terminal"}


def ask_for(name):
    """Ask for an answer or a price, and show it in every form, as the command does."""
    with ask_work.opened(f"{URL}/census", {"api_key": KEY, "insecure": False}, buys=True) as (
        session,
        data,
        _,
    ):
        reply = getattr(session, name)("SELECT AVG(income) FROM census", error=500.0)
        print(reply, json.dumps(reply.to_json()))
        if name == "ask":
            print(reply.to_csv())
            views.show_answer(reply, data)
        else:
            views.show_price(reply, data, 0.95)
        session.balance()


def query_faults(name, told, replies, honest, capsys):
    """Return the faults of a remote session while one of the replies lies."""
    paths = {"describe": "/census", "ask": "/ask", "price": "/price", "budget": "/budget", "plan": "/plan"}
    replies.update({paths[part]: body for part, body in honest.items()})
    return find_faults(
        lambda: ask_for(name), honest[told], lambda body: replies.update({paths[told]: body}), capsys
    )


@pytest.mark.parametrize(
    ("name", "told"), [("ask", "ask"), ("price", "price"), ("ask", "describe"), ("price", "budget")]
)
def test_a_lying_query_service_gives_no_internal_fault(name, told, replies, honest_service, capsys):
    assert query_faults(name, told, replies, honest_service, capsys) == []


def plan_faults(replies, honest, capsys):
    """Return the faults of a plan while its reply lies, shown in every form."""

    def run():
        with RemoteSession(f"{URL}/census", KEY) as session:
            proposal = session.plan(["SELECT AVG(income) FROM census"], error=500.0)
            print(proposal, json.dumps(proposal.to_json()))

    replies.update({"/census": honest["describe"]})
    return find_faults(run, honest["plan"], lambda body: replies.update({"/plan": body}), capsys)


def test_a_lying_plan_gives_no_internal_fault(replies, honest_service, capsys):
    assert plan_faults(replies, honest_service, capsys) == []


def test_planted_plan_with_any_whole_number_is_found(replies, honest_service, capsys, monkeypatch):
    """The reader of earlier releases took a budget of 0 and costs beyond doubles."""
    monkeypatch.setattr(proposals, "read_units", lambda amount, *, low=0: int(amount))
    assert plan_faults(replies, honest_service, capsys)


def test_planted_client_that_raises_what_it_meets_is_found(replies, honest_service, capsys, monkeypatch):
    monkeypatch.setattr(RemoteSession, "_understood", lambda self: contextlib.nullcontext())
    assert query_faults("price", "price", replies, honest_service, capsys)
