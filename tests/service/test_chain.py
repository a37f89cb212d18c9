"""A service whose ledger is a contract: on a chain of this machine, with a real oracle beside the rows."""

import contextlib
import json
import re
import shutil
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from types import SimpleNamespace

import httpx
import pytest

from reticent.apps import main
from reticent.apps.chain import service_ledger as on_chain
from reticent.apps.chain import work as commands
from reticent.apps.chain.oracle import opened as opened_oracle
from reticent.apps.query import jobs
from reticent.apps.query.desk import Desk
from reticent.chain.keys import make_key
from reticent.chain.node import Node
from reticent.chain.sender import Sender
from reticent.collect.wire import batch
from reticent.errors import ParameterError, UnknownAccount
from reticent.fleet.record import Record
from reticent.ledger.ethereum.chain_file import ChainFile
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.query import Session, census
from reticent.query.answers import Case
from reticent.query.chain.commitment import place as commitment_place
from reticent.query.chain.finding import opened_ledger, registrant
from reticent.query.declarations import dataset_file
from reticent.query.opening import folder as folder_of
from reticent.service.settings import Settings

from .running import BASE, Process, Service, TestClient, free_port, make_keys, refused, until
from .test_collecting import BATCH, Operator
from .test_pages_plain import token
from .test_places import Crowd

DEAD = "http://127.0.0.1:9"


def funded(url, path):
    key = make_key(path)
    with contextlib.closing(Node(url)) as node:
        node.rpc("anvil_setBalance", key.address, hex(10**19))
    return key


@pytest.fixture(scope="module")
def place(anvil, tmp_path_factory):
    with placed(anvil.url, tmp_path_factory.mktemp("chain")) as found:
        yield found


@contextlib.contextmanager
def placed(url, folder):
    """A contract with a census, whose rows lie in the oracle's folder alone; the service's key may ask."""
    declaration = census.write(folder, rows=300)
    keys = {name: funded(url, folder / f"{name}.key") for name in ("owner", "oracle", "front")}
    chain, own = folder / "chain.json", folder / "owner.key"
    with contextlib.redirect_stdout(StringIO()):
        commands.deploy(url, own, out=chain, confirmations=None, forget_rpc=False)
        commands.register(declaration, oracle=keys["oracle"].address, key=own, chain=chain, rpc=None)
        allowed = keys["front"].address
        told = {"share": 1.0, "epsilon": None, "key": own, "chain": chain, "rpc": None, "owner": None}
        commands.allow(declaration, allowed, **told)
    with contextlib.closing(Node(url)) as node:
        yield SimpleNamespace(
            folder=folder, declaration=declaration, chain=chain, file=ChainFile.read(chain), node=node,
            keys=keys, settings={"ledger": str(chain), "key": str(folder / "front.key"),
                                 "owner": keys["owner"].address},
        )  # fmt: skip


@pytest.fixture
def front(place, tmp_path):
    """The folder of a service: the declaration, and no rows."""
    folder = tmp_path / "front"
    folder.mkdir()
    (folder / "census.yaml").write_text(place.declaration.read_text())
    return folder


@contextlib.contextmanager
def measuring(place):
    """The oracle at work."""
    stop = threading.Event()
    with opened_oracle(place.declaration, place.file, place.keys["oracle"]) as oracle:
        thread = threading.Thread(target=oracle.run, args=(stop, 0.05))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


@contextlib.contextmanager
def serving(place, folder, **settings):
    service = Service(folder, make_keys(folder), **place.settings, **{"longest_s": 600.0, **settings})
    with service.client:
        yield service


def visit(service, who):
    """A browser of somebody who signed in."""
    client = TestClient(service.app, follow_redirects=False, raise_server_exceptions=False)
    client.post("/signin", data={"key": service.keys[who], "csrf": token(client.get("/signin"))})
    return client


def question(at):
    """Another one for each number, so that tests do not find each other's answers."""
    return {"query": f"SELECT COUNT(*) FROM census WHERE income > {at}", "information": 1e-3}


# Asking


def test_a_question_is_paid_for_on_the_chain_and_free_again(place, front):
    assert not list(front.glob("*.csv"))
    with measuring(place), serving(place, front) as service:
        before = service.spent()
        first = service.ask("alice", question(1)).json()
        assert (first["case"], first["cost"]) == (Case.FRESH.value, str(10**9))
        again = service.ask("bob", question(1)).json()
        assert (again["case"], again["cost"], again["cells"]) == (Case.EQUAL.value, "0", first["cells"])
        told = service.get("vera", f"{BASE}/budget").json()
        with contextlib.closing(opened_ledger(place.file, Node(place.node.url), place.keys["oracle"],
                                              place.keys["owner"].address)) as ledger:  # fmt: skip
            assert int(told["spent"]) == ledger.balance("census").spent == before + 10**9
        remote = service.get("alice", f"{BASE}/answers").json()
        assert remote["answers"][-1]["answer"]["cells"] == first["cells"]


def test_the_pages_show_block_transaction_and_gas(place, front):
    with measuring(place), serving(place, front) as service:
        answer = service.ask("alice", question(2)).json()
        page = visit(service, "vera").get("/ledger").text
        told = service.get("vera", "/api/v1/ledger").json()
        last = told["events"][:3]
        assert [one["event"] for one in last] == ["Fulfilled", "MeasurementRequested", "Declared"]
        for one in last:
            receipt = place.node.receipt(one["transaction"])
            assert (one["block"], one["gas"]) == (receipt.block, receipt.gas)
            for part in (f">{one['block']}<", f">{one['gas']:,}<", one["transaction"], one["words"]):
                assert part in page
        assert told["contract"] == place.file.contract
        assert place.file.contract in page
        assert told["accounts"][0]["name"] == "census"
        key = answer["receipt"]["key"]
        shown = visit(service, "alice").get("/datasets/census/answers", params={"key": key}).text
        assert all(one["transaction"] in shown for one in last)
        other = service.get("vera", "/api/v1/ledger").json()["events"][3]
        assert other["transaction"] not in shown
        assert "epsilon" in visit(service, "vera").get("/datasets/census").text
        refused(service.get("vera", "/api/v1/ledger/entries"), 409, "refused")


def test_gas_is_asked_for_once(place, front, monkeypatch):
    with serving(place, front) as service:
        first = service.get("vera", "/api/v1/ledger").json()["events"]
        asked = []
        many = Node.rpc_many
        monkeypatch.setattr(Node, "rpc_many", lambda node, calls: asked.extend(calls) or many(node, calls))
        assert service.get("vera", "/api/v1/ledger").json()["events"] == first
        assert "eth_getTransactionReceipt" not in [method for method, _ in asked]
        service.desk.ledger._gas.clear()  # planted: nothing is remembered
        service.get("vera", "/api/v1/ledger")
        assert "eth_getTransactionReceipt" in [method for method, _ in asked]


# Waiting


def test_what_takes_long_is_a_job_that_says_so(place, front):
    grid_s = 0.05
    with serving(place, front, longest_s=0.3, grid_s=grid_s) as service:
        before = service.spent()
        told = service.ask("alice", question(3))
        assert told.status_code == 202
        assert (told.json()["state"], told.json()["waits_for"]) == ("running", "chain and oracle")
        browser = visit(service, "alice")
        page = browser.get("/datasets/census/ask")
        assert "The ledger is on a chain" in page.text
        form = {"mode": "sql", "sql": question(4)["query"], "exactness": "1", "csrf": token(page)}
        part = browser.post("/datasets/census/ask", data=form, headers={"HX-Request": "true"}).text
        assert "Not answered yet" in part
        assert "the oracle" in part
        place_of_job = re.search('hx-get="([^"]+)"', part)[1]
        assert "Not answered yet" in browser.get(place_of_job).text
        assert visit(service, "bob").get(place_of_job).status_code == 404
        until(lambda: len(service.desk.ledger.pending("census")) == 2)  # both are in a block
        paid = service.spent()
        assert paid > before
        with measuring(place):
            job = until(lambda: finished(service, told.json()["job"]))
            shown = until(lambda: answered(browser, place_of_job))
        assert (job["state"], job["waits_for"], job["result"]["cost"]) == ("done", None, str(10**9))
        assert "Where it came from" in shown.text
        assert shown.headers["HX-Trigger-After-Settle"] == "asked"
        assert service.spent() == paid
        kept = service.desk.state.job(job["job"], service.desk.state.named("alice"))
        steps = (kept.shown - kept.made) / grid_s
        assert abs(steps - round(steps)) < 1e-3


def finished(service, job):
    found = service.get("alice", f"/api/v1/jobs/{job}").json()
    return found if found["result"] is not None else None


def answered(browser, at):
    found = browser.get(at)
    return found if "Not answered yet" not in found.text else None


def left_waiting(place, front, at):
    """A service that ends while a question waits for the oracle; the job's state afterwards."""
    with serving(place, front, longest_s=0.3) as service:
        waiting = len(service.desk.ledger.pending("census"))
        job = service.ask("alice", question(at)).json()["job"]
        until(lambda: len(service.desk.ledger.pending("census")) > waiting)
    desk = Desk(Settings(front, **place.settings))
    with contextlib.closing(desk):
        return job, desk.state.job(job, desk.state.named("alice")).state


def test_a_service_ends_while_a_question_waits_and_the_next_goes_on(place, front):
    job, state = left_waiting(place, front, 5)
    assert state == "running"
    service = Service(front, {}, **place.settings, job_lapse_s=0.1)
    with measuring(place), service.client:
        person = service.desk.state.named("alice")
        until(lambda: service.desk.state.job(job, person).state == "done")
        charges = [one for one in service.desk.ledger.log.state.measurements if one.information == 10**9]
        assert len({one.key for one in charges}) == len(charges)


def test_planted_a_job_that_is_given_up_at_the_end_is_caught(place, front, monkeypatch):
    monkeypatch.setattr(jobs, "NotMeasured", KeyError)  # which is never raised
    assert left_waiting(place, front, 6)[1] == "refused"


# What is not on the chain


def test_nobody_registers_by_looking(place, front):
    """With the owner's own key, too: opening a session alone would register the data set."""
    text = place.declaration.read_text().replace("name: census", "name: other")
    (front / "other.yaml").write_text(text)
    settings = {**place.settings, "key": str(place.folder / "owner.key")}
    service = Service(front, make_keys(front), **settings)
    with service.client:
        assert "was never opened" in visit(service, "olga").get("/").text
        asked = {"query": "SELECT AVG(income) FROM other", "information": 1e-3}
        refused(service.ask("alice", asked, path="/api/v1/datasets/other/ask"), 409, "refused")
        data = dataset_file.read(front / "other.yaml")
        body = {"declaration": text.replace("other", "third")}
        told = refused(service.call("olga", "POST", "/api/v1/datasets", json=body), 409, "refused")
        assert "reticent chain register" in told["message"]
        with pytest.raises(UnknownAccount):
            service.desk.ledger.balance("other")
        Session(data, None, service.desk.ledger)  # planted: without the desk's look
        assert service.desk.ledger.balance("other").spent == 0


# Starting


def started(monkeypatch, capsys, *args):
    """`reticent serve ARGS`, which must end at once: exit code and standard error."""
    monkeypatch.setattr(sys, "argv", ["reticent", "serve", *args, "--port", str(free_port())])
    with pytest.raises(SystemExit) as stopped:
        main()
    out, err = capsys.readouterr()
    assert (stopped.value.code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def changed(place, tmp_path, **fields):
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(json.loads(place.chain.read_text()) | fields))
    return str(path)


def test_what_is_wrong_is_said_at_the_start(place, front, tmp_path, monkeypatch, capsys):
    key = str(place.folder / "front.key")

    def line(chain, *more, signer=key):
        return started(monkeypatch, capsys, str(front), "--chain", chain, "--key", signer, *more)

    assert "serves chain 31337, asked for 5" in line(changed(place, tmp_path, chain_id=5))
    assert "does not answer" in line(changed(place, tmp_path, rpc=DEAD))
    with monkeypatch.context() as away:
        away.setenv("RETICENT_RPC", DEAD)
        assert "does not answer" in line(str(place.chain))
    assert "there is no contract at" in line(changed(place, tmp_path, contract=place.keys["front"].address))
    assert "is not this version" in line(changed(place, tmp_path, contract=place.file.anchor))
    assert "there is no" in line(str(tmp_path / "none.json"))
    assert "owner must be an address" in line(str(place.chain), "--owner", "me")
    assert "max_tip must be at most max_fee (1 gwei)" in line(
        str(place.chain), "--max-fee", "1", "--max-tip", "2"
    )
    assert "No such file" in line(str(place.chain), signer=str(tmp_path / "none.key"))
    locked = tmp_path / "locked.key"
    locked.write_text("{}")
    assert "is locked: give its password in RETICENT_KEY_PASSWORD" in line(
        str(place.chain), signer=str(locked)
    )
    assert "say with --owner ADDRESS who registered the data sets of" in line(str(place.chain))
    assert "--chain goes with --key" in started(monkeypatch, capsys, str(front), "--chain", str(place.chain))
    assert "are for --chain" in started(monkeypatch, capsys, str(front), "--max-fee", "1")
    assert "key must name" in started(monkeypatch, capsys, str(front), "--ledger", str(place.chain))
    assert "ledger must name" in started(monkeypatch, capsys, str(front), "--key", key)


def test_data_sets_of_two_owners(place, front):
    (front / "shop.yaml").write_text(place.declaration.read_text().replace("name: census", "name: shop"))
    other = place.folder / "oracle.key"
    with contextlib.redirect_stdout(StringIO()):
        told = {"oracle": place.keys["oracle"].address, "key": other, "chain": place.chain, "rpc": None}
        commands.register(front / "shop.yaml", **told)
    beside = folder_of(front / "census.yaml")
    beside.mkdir(exist_ok=True)
    shutil.copy(commitment_place(place.declaration), beside)
    with pytest.raises(ParameterError, match="census and shop have different owners"):
        Desk(Settings(front, **place.settings | {"owner": None}))
    with contextlib.closing(Desk(Settings(front, **place.settings))) as desk:
        assert "census" in desk.balances()


def adopted(place, front):
    """Whose data sets a service serves that was told nothing."""
    with contextlib.closing(Desk(Settings(front, **place.settings | {"owner": None}))) as desk:
        return desk.ledger.owner


def test_a_strangers_data_set_is_not_adopted(place, front, monkeypatch):
    """It failed: whoever alone registered the name was taken for its owner. Planted: the old guess."""
    text = place.declaration.read_text().replace("name: census", "name: fresh")
    for path in (front / "census.yaml", place.folder / "strange" / "fresh.yaml"):
        path.unlink(missing_ok=True)
    strange = place.folder / "strange"
    strange.mkdir(exist_ok=True)
    for folder in (front, strange):
        (folder / "fresh.yaml").write_text(text)
    with contextlib.redirect_stdout(StringIO()):  # somebody who saw the name, and not the rows
        told = {"oracle": place.keys["oracle"].address, "key": place.folder / "oracle.key"}
        commands.register(strange / "fresh.yaml", **told, chain=place.chain, rpc=None)
    with pytest.raises(ParameterError, match="none of them has the commitment of a registration there"):
        adopted(place, front)
    beside = folder_of(front / "fresh.yaml")
    beside.mkdir(exist_ok=True)
    shutil.copy(commitment_place(strange / "fresh.yaml"), beside)
    assert adopted(place, front) == place.keys["oracle"].address, "the owner's own word is taken"
    shutil.rmtree(beside)

    def guessed(settings, declared, file):
        ((path, data),) = declared
        return registrant(path, data, file, place.node, None)

    monkeypatch.setattr(on_chain, "_owner", guessed)
    assert adopted(place, front) == place.keys["oracle"].address


# Workers


def sent(place, start):
    """The nonces of the service's key in the blocks after one, in order; every transaction succeeded."""
    sender, nonces = place.keys["front"].address, []
    for number in range(start + 1, place.node.number() + 1):
        for one in place.node.rpc("eth_getBlockByNumber", hex(number), True)["transactions"]:
            if one["from"].lower() == sender.lower():
                nonces.append(int(one["nonce"], 16))
                assert place.node.receipt(one["hash"]).succeeded
    return nonces


def signed_anew(place, front, monkeypatch, first, together):
    """Two services send with one key in turns, then `together`: how often a nonce was taken by the other."""
    anew, sign = [], Sender._signed_anew
    monkeypatch.setattr(Sender, "_signed_anew", lambda *given: anew.append(1) or sign(*given))
    start = place.node.number()
    keys = make_keys(front)
    with contextlib.ExitStack() as held:
        held.enter_context(measuring(place))
        services = [Service(front, keys, **place.settings, longest_s=600.0) for _ in range(2)]
        for service in services:
            held.enter_context(service.client)

        def ask(at):
            return services[at % 2].ask("alice", question(first + at)).json()["cost"]

        costs = [ask(at) for at in range(4)]
        with ThreadPoolExecutor(6) as pool:
            costs += pool.map(ask, range(4, 4 + together))
    assert costs == [str(10**9)] * (4 + together)
    nonces = sent(place, start)
    assert nonces == list(range(nonces[0], nonces[0] + 2 * len(costs)))  # declaration and request for each
    return len(anew)


def test_workers_take_turns_to_send(place, front, monkeypatch):
    assert signed_anew(place, front, monkeypatch, 100, 6) == 0


def test_planted_workers_that_take_no_turns_are_caught(place, front, monkeypatch):
    monkeypatch.setattr(EthereumLedger, "_turn", lambda self: contextlib.nullcontext())
    monkeypatch.setattr(Sender, "_alone", lambda self: self._guard)
    assert signed_anew(place, front, monkeypatch, 200, 0) > 0


@pytest.mark.slow
def test_two_workers_share_a_key(place, front):
    """As processes: 40 questions over connections of their own, each paid for once."""
    keys, count, start = make_keys(front), 40, place.node.number()
    service = Process(front, **place.settings, longest_s=600.0, workers=2)
    workers = set()

    def ask(at):
        with httpx.Client(base_url=service.url, timeout=120) as client:
            headers = {"Authorization": f"Bearer {keys['alice']}"}
            reply = client.post(f"{BASE}/ask", json=question(1000 + at), headers=headers)
            text = client.get("/metrics", headers={"Authorization": f"Bearer {keys['vera']}"}).text
        workers.add(text.split('worker="')[1].split('"')[0])
        return reply.json()["cost"]

    try:
        with measuring(place), ThreadPoolExecutor(8) as pool:
            costs = list(pool.map(ask, range(count)))
            until(lambda: ask(0) == "0" and len(workers) == 2)
    finally:
        service.end(signal.SIGKILL)
    assert costs == [str(10**9)] * count
    nonces = sent(place, start)
    assert nonces == list(range(nonces[0], nonces[0] + 2 * count))
    assert "fault" not in (front / "service.log").read_text()


# What devices told


def of_devices(place):
    """Accounts that the service registered in the contract under its own address."""
    address = place.keys["front"].address
    with contextlib.closing(
        opened_ledger(place.file, Node(place.node.url), place.keys["front"], address)
    ) as ledger:
        return {one.terms.name: one.spent for one in ledger.accounts()}


def test_a_survey_is_entered_on_the_chain_before_it_is_shown(place, front, monkeypatch):
    """It failed: on a chain nothing of a survey was entered. So it is for campaigns."""
    with serving(place, front) as service:
        operator, crowd = Operator(service), Crowd(service)
        operator.collect()
        operator.send(batch(operator.fleet.reports()), BATCH)
        crowd.send(crowd.reports())
        before = of_devices(place)
        for _ in range(2):
            told = operator.estimates().json()
            assert told["reports"] == {"0": 40}
            assert crowd.end(0).json()["round"] == 1
            found = {name: spent for name, spent in of_devices(place).items() if name not in before}
            campaign = service.app.state.places.named("paris")
            assert found == {
                told["account"]: operator.survey.units,
                campaign.study.terms.name: campaign.store.rounds()[0].units,
            }
        assert {one["name"] for one in service.get("vera", "/api/v1/ledger").json()["accounts"]} >= {"census"}


def shown_without_funds(place, front, keys, path):
    """What an estimate is answered if the service's key cannot pay for gas."""
    settings = {**place.settings, "key": str(path)}
    service = Service(front, keys, **settings)
    with service.client:
        operator = Operator(service)
        operator.collect()
        operator.send(batch(operator.fleet.reports()), BATCH)
        return operator.estimates()


def test_what_cannot_be_entered_on_the_chain_is_not_shown(place, front, tmp_path, monkeypatch):
    """Planted: a record that enters nothing."""
    keys, path = make_keys(front), tmp_path / "poor.key"
    make_key(path)
    told = shown_without_funds(place, front, keys, path)
    assert told.status_code >= 400
    assert "estimates" not in told.json()
    monkeypatch.setattr(Record, "learn", lambda *_: None)
    monkeypatch.setattr(Record, "account", lambda *_: "none")
    assert shown_without_funds(place, front, keys, path).status_code == 200
