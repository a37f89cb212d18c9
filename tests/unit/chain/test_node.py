"""The node: what is no node, what is slow, dead, or another chain's; batches, ranges of logs, PoA blocks."""

import datetime
import json
import logging
import threading
import traceback

import pytest

from reticent.chain.node import Node, _reason, as_block, as_receipt
from reticent.chain.sender import Sender
from reticent.errors import ChainError, NodeUnavailable, ParameterError, TransactionRefused, WrongChain

from .proxy import Proxy, Refused

SECRET = "c0ffee-secret"


def test_wrong_chain(anvil):
    Node(anvil.url, chain_id=31337).close()
    with pytest.raises(WrongChain, match=r"serves chain 31337, asked for 1$"):
        Node(anvil.url, chain_id=1)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "anvil",
        "ftp://host",
        "http://",
        "http://host:99999",
        f"http://host:{SECRET}",
        "http://[::1",
        f"ws://{SECRET}@host",
        None,
        7,
    ],
)
def test_no_address(url):
    with pytest.raises(ParameterError, match=r"^rpc must be an http:// or https:// address of a node$"):
        Node(url)


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan")])
def test_no_timeout(timeout_s):
    with pytest.raises(ParameterError, match="timeout_s"):
        Node("http://127.0.0.1:1", timeout_s=timeout_s)


def test_dead_at_the_start_and_in_the_middle(own_anvil):
    running = own_anvil()
    node = Node(running.url)
    running.close()
    for fails in (node.number, lambda: Node(running.url), lambda: node.rpc_many([("eth_chainId", [])] * 2)):
        with pytest.raises(NodeUnavailable, match=r"^the node at 127\.0\.0\.1:\d+ does not answer"):
            fails()
    node.close()


def served(content, status=200):
    return Proxy(message=lambda body, forward: (status, content))


@pytest.mark.parametrize(
    "content",
    [
        b"hello",
        b"",
        b"<html><body>hello</body></html>",
        b'{"id": 1, "result": ',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"[]",
        b"null",
        b"7",
        b'"0x7a69"',
        b"{}",
        b'{"jsonrpc": "2.0", "result": "0x7a69"}',
        b'{"id": 999, "result": "0x7a69"}',
        b'{"id": 1, "result": null}',
        b'{"id": 1, "result": 31337}',
        b'{"id": 1, "result": "seven"}',
        b'{"id": 1, "result": ["0x7a69"]}',
        b'{"id": 1, "error": null}',
    ],
)
def test_no_json_rpc_node(content):
    with served(content) as server, pytest.raises(NodeUnavailable, match=r"no JSON-RPC node|no number as"):
        Node(server.url)


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [(b"<html>", 502, "HTTP status 502"), (b"null", 404, "HTTP status 404"), (b"{}", 429, "HTTP status 429")],
)
def test_statuses(content, status, words):
    with served(content, status) as server, pytest.raises(NodeUnavailable, match=words):
        Node(server.url)


def test_refusals_in_words_of_the_node(anvil):
    """Also with a status of 400, and with words that would play with a screen."""
    said = {"code": -32005, "message": "slow\x1b[2J\ndown" + "!" * 1000}
    refuse = {"status": 400}

    def message(body, forward):
        if body["method"] == "eth_blockNumber":
            return refuse["status"], json.dumps({"id": None, "error": said}).encode()
        return forward(body)

    with Proxy(anvil.url, message=message) as server:
        node = Node(server.url)
        for refuse["status"] in (400, 200):
            with pytest.raises(ChainError, match=r"refused: slow \[2J down!") as caught:
                node.number()
            assert len(str(caught.value)) < 300
            assert str(caught.value).isprintable()
            assert not isinstance(caught.value, NodeUnavailable)
        said = "as a text"
        with pytest.raises(ChainError, match="refused: as a text"):
            node.number()
        node.close()


def test_slow_node():
    done = threading.Event()

    def message(body, forward):
        done.wait(60)
        return 200, b"{}"

    with Proxy(message=message) as server:
        with pytest.raises(NodeUnavailable, match=r"does not answer within 0\.05 s"):
            Node(server.url, timeout_s=0.05)
        done.set()


def test_a_connection_that_was_closed_while_idle_is_opened_again(anvil):
    """A node behind a load balancer ends connections; the next call must not fail for it."""
    state = {"close": False}

    def message(body, forward):
        if state["close"]:
            state["close"] = False
            raise ConnectionAbortedError
        return forward(body)

    with Proxy(anvil.url, message=message) as server:
        server._server.handle_error = lambda *args: None
        node = Node(server.url)
        state["close"] = True
        assert node.number() >= 0
        node.close()


def test_credentials_are_never_shown(caplog):
    """Not in a message, a representation, a traceback, or a log of ours."""
    caplog.set_level(logging.INFO)
    shown = []
    for server in (served(b"no"), served(b'{"id": 1, "error": {"message": "no"}}'), served(b"", 500)):
        with server:
            url = server.url.replace("//", f"//{SECRET}:{SECRET}@") + f"/v3/{SECRET}?key={SECRET}"
            with pytest.raises(ChainError) as caught:
                Node(url)
            shown += [repr(caught.value), *traceback.format_exception(caught.value)]
    dead = f"http://{SECRET}:{SECRET}@127.0.0.1:1/{SECRET}"
    with pytest.raises(NodeUnavailable) as caught:
        Node(dead)
    shown += [repr(caught.value), *traceback.format_exception(caught.value)]
    with served(b'{"id": 1, "result": "0x1"}') as server:
        node = Node(server.url + f"/{SECRET}")
        shown += [repr(node), str(node)]
        node.close()
    # The test's own lines stand in the traceback: they name the variable, not its value.
    assert SECRET not in "".join(shown) + caplog.text
    assert "127.0.0.1:1 " in "".join(shown)


BLOCK = {"number": "0x1", "hash": "0xaa", "parentHash": "0xbb", "timestamp": "0x0"}


def test_the_time_of_a_block_is_one_that_a_calendar_has(monkeypatch):
    """`chain watch` shows it; planted, a node's time of any size ends it with a fault of Python's."""
    last = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)
    assert as_block(BLOCK | {"timestamp": hex(int(last.timestamp()))}).timestamp == last.timestamp()
    late = BLOCK | {"timestamp": hex(int(last.timestamp()) + 1)}
    for block in (late, BLOCK | {"timestamp": "0x" + "f" * 64}):
        with pytest.raises(NodeUnavailable, match="no block as JSON-RPC has it"):
            as_block(block)
    monkeypatch.setattr("reticent.chain.node._MAX_TIMESTAMP", 1 << 256)
    with pytest.raises((ValueError, OverflowError)):
        datetime.datetime.fromtimestamp(as_block(late).timestamp, datetime.UTC)


# Batches

CALLS = [
    ("eth_chainId", []),
    ("eth_getBalance", ["0x" + "11" * 20, "latest"]),
    ("eth_nonsense", []),
    ("eth_chainId", []),
]


def check_batch(node):
    results = node.rpc_many(CALLS)
    assert results[0] == results[3] == "0x7a69"
    assert results[1] == "0x0"
    assert isinstance(results[2], ChainError)


def test_batches(node):
    assert node.rpc_many([]) == []
    check_batch(node)
    many = [("eth_getTransactionCount", [f"0x{i:040x}", "latest"]) for i in range(1, 251)]
    assert node.rpc_many(many) == ["0x0"] * 250


ODD = {
    "refused": lambda body, forward: {"jsonrpc": "2.0", "id": None, "error": {"message": "no batches"}},
    "refused with a status": lambda body, forward: (400, b"no batches"),
    "not a list": lambda body, forward: {"jsonrpc": "2.0", "id": 1, "result": 1},
    "backwards": lambda body, forward: forward(body)[::-1],
    "one left out": lambda body, forward: forward(body)[1:],
    "one doubled": lambda body, forward: [*forward(body)[:-1], forward(body)[0]],
    "one too many": lambda body, forward: [*forward(body), forward(body)[0]],
    "no identifiers": lambda body, forward: [{"result": one.get("result")} for one in forward(body)],
    "of other things": lambda body, forward: [1, None, "x", []],
    "null": lambda body, forward: None,
}


@pytest.mark.parametrize("name", ODD)
def test_odd_batches(anvil, name):
    """Whatever a node does with several calls in one message, each call gets its own answer."""

    def message(body, forward):
        return ODD[name](body, forward) if isinstance(body, list) else forward(body)

    with Proxy(anvil.url, message=message) as server:
        node = Node(server.url)
        check_batch(node)
        check_batch(node)
        assert server.batches == (2 if name == "backwards" else 1)  # a node that takes none is asked once
        node.close()


def test_a_batch_by_place_would_be_caught(anvil):
    """Planted: answers are taken in the order in which they come."""

    class Planted(Node):
        def _answers(self, part):
            answers = zip(part, self._post(part), strict=True)
            return {asked["id"]: one | {"id": asked["id"]} for asked, one in answers}

    def message(body, forward):
        return ODD["backwards"](body, forward) if isinstance(body, list) else forward(body)

    with Proxy(anvil.url, message=message) as server:
        node = Planted(server.url)
        with pytest.raises(AssertionError):
            check_batch(node)
        node.close()


def test_a_node_that_dies_is_not_taken_for_one_without_batches(own_anvil):
    state = {"dead": False}
    running = own_anvil()

    def message(body, forward):
        return (503, b"busy") if state["dead"] else forward(body)

    with Proxy(running.url, message=message) as server:
        node = Node(server.url)
        state["dead"] = True
        with pytest.raises(NodeUnavailable, match="503"):
            node.rpc_many(CALLS)
        state["dead"] = False
        check_batch(node)
        assert server.batches == 2
        node.close()


# Blocks and receipts


def test_blocks(node, sender):
    receipt = sender.transact(sender.address, b"")
    block = node.block(receipt.block)
    assert (block.number, block.hash) == (receipt.block, receipt.block_hash)
    assert block.parent == node.block(receipt.block - 1).hash
    assert block.base_fee is not None
    assert node.block().number >= receipt.block
    assert node.number() >= receipt.block
    with pytest.raises(ChainError, match="has no block 1000000000"):
        node.block(10**9)


def test_blocks_with_long_extra_data(anvil, rich, ledger):
    """A proof-of-authority chain: 97 bytes and more, where web3 allows 32."""

    def call(method, parameters, forward):
        found = forward(method, parameters)
        if method in ("eth_getBlockByNumber", "eth_getBlockByHash") and found:
            found["extraData"] = "0x" + "ab" * 240
        return found

    with Proxy(anvil.url, call=call) as server:
        node = Node(server.url)
        sender = Sender(node, rich(node), timeout_s=120)
        deployed = sender.transact(None, ledger.creation)
        ledger.check(node, deployed.contract)
        assert node.block(deployed.block).hash == deployed.block_hash
        assert "eth_getBlockByNumber" in server.methods
        node.close()


BROKEN = [7, "x", [], {}, {"number": None}, {"blockNumber": "0x1"}, {"blockNumber": 1, "logs": None}]


@pytest.mark.parametrize("found", BROKEN)
@pytest.mark.parametrize("verb", ["block", "number", "code", "call", "receipt", "logs"])
def test_answers_of_another_shape(found, verb):
    def call(method, parameters, forward):
        return "0x1" if method == "eth_chainId" else found

    with Proxy(call=call) as server:
        node = Node(server.url)
        asked = {
            "block": node.block,
            "number": node.number,
            "code": lambda: node.code("0x" + "11" * 20),
            "call": lambda: node.call("0x" + "11" * 20, b""),
            "receipt": lambda: node.receipt("0x" + "11" * 32),
            "logs": lambda: list(node.logs("0x" + "11" * 20, 0, 5)),
        }[verb]
        if (verb == "receipt" and found in ({}, {"number": None})) or (verb == "logs" and found in ([], {})):
            assert asked() in (None, [[]])
        else:
            with pytest.raises(NodeUnavailable, match=r"^the node gave no [a-z ]+ as JSON-RPC has it$"):
                asked()
        node.close()


def test_a_receipt_without_a_block_is_none():
    assert as_receipt(None) is None
    assert as_receipt({"blockNumber": None}) is None


def test_calls_that_revert(node, sender, ledger):
    address = sender.transact(None, ledger.creation).contract
    data = ledger.encode("pause", bytes(32), True)
    with pytest.raises(TransactionRefused) as caught:
        node.call(address, data, sender=sender.address)
    assert caught.value.reason == "ledger: not the owner"


@pytest.mark.parametrize(
    "data",
    [
        None,
        7,
        {},
        "zz",
        "0x",
        "0x08c379a0",
        "0x08c379a0" + "ff" * 64,
        "0x08c379a0" + f"{32:064x}{2**255:064x}",
        "0x08c379a0" + f"{32:064x}{1:064x}ff" + "00" * 31,
        "0x4e487b71" + f"{17:064x}",
    ],
)
def test_reasons_that_cannot_be_read(data):
    """The words of the node are shown instead."""
    assert _reason(data, "execution reverted: so") == "so"


@pytest.mark.parametrize("prefix", ["0x", ""])
def test_a_reason_is_in_the_data(prefix):
    """Not all nodes put it into their words."""
    data = f"{prefix}08c379a0{32:064x}{3:064x}{b'why'.hex():0<64}"
    assert _reason(data, "reverted") == "why"


# Logs


@pytest.fixture(scope="module")
def written(anvil, ledger):
    """A contract with a log in each of 30 blocks, but for every third."""
    node = Node(anvil.url)
    sender = Sender(node, anvil.keys[7], timeout_s=120)
    address = sender.transact(None, ledger.creation).contract
    first = node.number()
    for i in range(30):
        if i % 3:
            terms = (f"d{i}", "mu2", "replace one", b"person", 10, 1, sender.address, bytes(32))
            sender.transact(address, ledger.encode("register", *terms), gas=300_000)
        else:
            node.rpc("evm_mine")
    yield address, first, node.number()
    node.close()


def all_logs(node, written, **options):
    address, first, last = written
    return [one for part in node.logs(address, first, last, **options) for one in part]


def refusing(most, **shown):
    def call(method, parameters, forward):
        if method == "eth_getLogs":
            asked = parameters[0]
            if int(asked["toBlock"], 16) - int(asked["fromBlock"], 16) + 1 > most:
                raise Refused(shown or "block range is too large")
        return forward(method, parameters)

    return call


def test_logs(node, written, ledger):
    found = all_logs(node, written)
    assert [ledger.event(one).fields["name"] for one in found] == [f"d{i}" for i in range(30) if i % 3]
    assert all_logs(node, written, topics=[ledger.topic("Paused")]) == []
    assert all_logs(node, written, topics=[ledger.topic("Registered")]) == found
    assert list(node.logs(written[0], 5, 4)) == []


@pytest.mark.parametrize("most", [1, 2, 7, 29])
def test_logs_of_a_node_that_refuses_long_ranges(node, anvil, written, most):
    """Nothing is lost and nothing comes twice."""
    whole = all_logs(node, written)
    with Proxy(anvil.url, call=refusing(most)) as server:
        split = Node(server.url)
        assert all_logs(split, written) == whole
        split.close()


def test_ranges_grow_again(node, anvil, written):
    """One crowded place does not make every later range small."""
    state = {"left": 4}

    def call(method, parameters, forward):
        if method == "eth_getLogs" and state["left"]:
            state["left"] -= 1
            raise Refused("more than 10000 results")
        return forward(method, parameters)

    with Proxy(anvil.url, call=call) as server:
        split = Node(server.url)
        assert all_logs(split, written) == all_logs(node, written)
        assert server.methods.count("eth_getLogs") < 12
        split.close()


def test_a_range_that_overlaps_or_leaves_out_would_be_caught(node, anvil, written):
    """Planted: the next range starts a block too early, or too late."""
    whole = all_logs(node, written)
    for off in (-1, 1):

        class Planted(Node):
            def rpc(self, method, *parameters, off=off):
                if method == "eth_getLogs" and int(parameters[0]["fromBlock"], 16) > written[1]:
                    moved = int(parameters[0]["fromBlock"], 16) + off
                    if moved <= int(parameters[0]["toBlock"], 16):
                        parameters = ({**parameters[0], "fromBlock": hex(moved)},)
                return super().rpc(method, *parameters)

        with Proxy(anvil.url, call=refusing(2)) as server:
            split = Planted(server.url)
            assert all_logs(split, written) != whole
            split.close()


def test_a_node_that_refuses_every_range(anvil, written):
    with Proxy(anvil.url, call=refusing(0)) as server:
        node = Node(server.url)
        with pytest.raises(ChainError, match="too large"):
            all_logs(node, written)
        node.close()


def test_removed_logs_are_dropped(node, anvil, written):
    whole = all_logs(node, written)

    def call(method, parameters, forward):
        found = forward(method, parameters)
        return (
            [one | {"removed": i % 2 == 1} for i, one in enumerate(found)]
            if method == "eth_getLogs"
            else found
        )

    with Proxy(anvil.url, call=call) as server:
        changed = Node(server.url)
        assert all_logs(changed, written) == whole[::2]
        changed.close()


def test_threads_share_a_node(node):
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.extend(node.rpc_many([("eth_chainId", [])] * 3) for _ in range(5))
        )
        for _ in range(8)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [["0x7a69"] * 3] * 40
