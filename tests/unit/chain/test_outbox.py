"""The outbox: durable before broadcast, one datum a label for ever, and a damaged file is said to be one."""

import contextlib
import os
import signal
import sqlite3
import threading
import warnings

import pytest
from eth_utils.crypto import keccak

from reticent.chain.node import Node
from reticent.chain.outbox import Outbox, Sent
from reticent.chain.sender import Sender
from reticent.errors import ChainError

TO = "0x" + "00" * 19 + "Aa"


def sent(label="a", data=b"data", raw=b"raw", nonce=0, fee=1):
    return Sent(label, "0xTo", data, "0x" + keccak(raw).hex(), raw, nonce, fee)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "outbox"


@pytest.fixture
def outbox(path):
    opened = Outbox(path)
    yield opened
    opened.close()


def test_there_and_back(path, outbox):
    assert outbox.find("a") is None
    outbox.put(sent())
    assert outbox.find("a") == sent()
    other = Outbox(path)
    assert other.find("a") == sent()
    other.close()


def test_the_same_with_another_nonce_or_fee_replaces(outbox):
    outbox.put(sent())
    newer = sent(raw=b"newer", nonce=5, fee=9)
    outbox.put(newer)
    assert outbox.find("a") == newer


def check_fixed(outbox):
    """What a label was first put with, it holds for ever."""
    outbox.put(sent())
    for other in (sent(data=b"other", raw=b"r2"), Sent("a", "0xElsewhere", b"data", "0x", b"", 0, 1)):
        with pytest.raises(ChainError, match=r"^something else was signed before under the label a$"):
            outbox.put(other)
        assert outbox.find("a") == sent()


def test_other_data_is_refused(outbox):
    check_fixed(outbox)


def test_an_outbox_that_takes_other_data_would_be_caught(path):
    """Planted: the last one wins."""

    class Planted(Outbox):
        def put(self, sent):
            row = (sent.label, sent.destination, sent.data, sent.hash, sent.raw, sent.nonce, sent.fee)
            self._connection.execute("INSERT OR REPLACE INTO sent VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    outbox = Planted(path)
    with pytest.raises(pytest.fail.Exception):
        check_fixed(outbox)
    outbox.close()


def test_threads(outbox):
    """Of eight that say other things under a label one wins, and is never changed."""
    won, refused = [], []

    def put(i):
        try:
            outbox.put(sent(data=bytes([i]), raw=bytes([i])))
            won.append(i)
        except ChainError:
            refused.append(i)

    threads = [threading.Thread(target=put, args=(i,)) for i in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (len(won), len(refused)) == (1, 7)
    assert outbox.find("a").data == bytes(won)


def forked(work):
    """Do it in another process, which then ends without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 dislikes forks beside threads
        child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def test_processes(path):
    """Three open a new file at once and put other data under the same labels: one of them has each."""
    ready, go = os.pipe()

    def put(name):
        os.close(go)
        os.read(ready, 1)
        outbox = Outbox(path)
        for i in range(40):
            with contextlib.suppress(ChainError):
                outbox.put(sent(f"label {i}", data=name, raw=name))
        path.with_name(name.decode()).touch()

    children = [forked(lambda name=name: put(name)) for name in (b"x", b"y", b"z")]
    os.close(go)
    for one in children:
        os.waitpid(one, 0)
    os.close(ready)
    assert all(path.with_name(name).exists() for name in "xyz")
    outbox = Outbox(path)
    for i in range(40):
        held = outbox.find(f"label {i}")
        assert held.data in (b"x", b"y", b"z")
        assert held.raw == held.data
    outbox.close()


# Damage


def test_no_database(path):
    path.write_bytes(b"this is no database, and long enough to show it" * 100)
    with pytest.raises(ChainError, match=r"the outbox cannot be used .*not a database"):
        Outbox(path)


def test_no_file(tmp_path):
    with pytest.raises(ChainError, match=r"the outbox cannot be used \(No such file"):
        Outbox(tmp_path / "none" / "outbox")


def test_a_file_that_may_not_be_written(path):
    outbox = Outbox(path)
    outbox.put(sent())
    outbox.close()
    frozen = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", lambda *given, **options: frozen)
        outbox = Outbox(path)
    assert outbox.find("a") == sent()
    with pytest.raises(ChainError, match=r"the outbox cannot be used .*readonly"):
        outbox.put(sent("b"))
    outbox.close()


def test_another_database(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE sent (label TEXT, other TEXT)")
    connection.close()
    outbox = Outbox(path)
    with pytest.raises(ChainError, match="the outbox cannot be used"):
        outbox.find("a")
    with pytest.raises(ChainError, match="the outbox cannot be used"):
        outbox.put(sent())
    outbox.close()


def test_torn_pages(path):
    outbox = Outbox(path)
    for i in range(50):
        outbox.put(sent(f"{i}", raw=b"r" * 500))
    outbox.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xaa" * (len(content) - 4096)
    path.write_bytes(content)
    outbox = Outbox(path)
    with pytest.raises(ChainError, match=r"the outbox cannot be used .*malformed"):
        outbox.find("7")
    outbox.close()


def test_a_flipped_bit(path):
    """SQLite does not see it; what is broadcast must be what was signed."""
    outbox = Outbox(path)
    outbox.put(sent(raw=b"signed bytes"))
    outbox.close()
    path.write_bytes(path.read_bytes().replace(b"signed bytes", b"signed byteS"))
    outbox = Outbox(path)
    with pytest.raises(ChainError, match="the outbox is damaged, in what was signed under the label a"):
        outbox.find("a")
    outbox.close()


def test_a_closed_outbox(path):
    outbox = Outbox(path)
    outbox.close()
    with pytest.raises(ChainError, match="the outbox cannot be used"):
        outbox.put(sent())


# With a sender


def killed(path, anvil, key, *, keep_first=True):
    """A process that dies at its first broadcast. If it does not keep first, it dies after it."""

    def work():
        node, outbox = Node(anvil.url), Outbox(path)
        sender = Sender(node, key, outbox=outbox)
        announce = sender._announce
        if not keep_first:
            outbox.put = lambda sent: None

        def die(signed):
            if not keep_first:
                announce(signed)
            os.kill(os.getpid(), signal.SIGKILL)

        sender._announce = die
        sender.send(TO, b"data", label="once", gas=100_000)

    _, status = os.waitpid(forked(work), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


def test_killed_between_put_and_broadcast(path, anvil, node, rich):
    """Whoever starts again sends the same bytes."""
    key = rich(node)
    killed(path, anvil, key)
    outbox = Outbox(path)
    kept = outbox.find("once")
    assert kept is not None
    assert node.receipt(kept.hash) is None
    sender = Sender(node, key, outbox=outbox, timeout_s=120)
    again = sender.send(TO, b"data", label="once")
    assert again == kept
    assert sender.wait(again).succeeded
    assert sender.send(TO, b"data", label="once") == kept  # and again, when it is in a block
    assert int(node.rpc("eth_getTransactionCount", key.address, "latest"), 16) == 1
    outbox.close()


def test_keeping_after_the_broadcast_would_be_caught(path, anvil, node, rich):
    """Planted: the bytes are out, the restarted process knows nothing of them, and sends others."""
    key = rich(node)
    killed(path, anvil, key, keep_first=False)
    outbox = Outbox(path)
    assert outbox.find("once") is None
    outbox.close()
    assert int(node.rpc("eth_getTransactionCount", key.address, "latest"), 16) == 1


def test_a_label_with_other_data(path, node, rich):
    outbox = Outbox(path)
    sender = Sender(node, rich(node), outbox=outbox, timeout_s=120)
    first = sender.send(TO.lower(), b"one", label="a")
    assert sender.send(TO, b"one", label="a") == first  # the same address, in capitals
    for to, data in ((TO, b"two"), ("0x" + "11" * 20, b"one"), (None, b"one")):
        with pytest.raises(ChainError, match="something else was signed before under the label a"):
            sender.send(to, data, label="a")
    assert sender.wait(first).succeeded
    assert sender.transact(TO, b"two", label="b").succeeded
    outbox.close()


def test_what_has_no_label_is_not_kept(path, node, rich):
    outbox = Outbox(path)
    sender = Sender(node, rich(node), outbox=outbox, timeout_s=120)
    sent = [sender.send(TO, data) for data in (b"one", b"two", b"two")]
    assert [one.label for one in sent] == ["", "", ""]
    assert len({one.nonce for one in sent}) == 3
    assert sender.transact(TO, b"three").succeeded
    assert outbox.versions("") == []
    outbox.close()


def test_a_nonce_taken_while_away(path, node, rich):
    """What was kept and never sent gets another nonce; the label then holds the newer bytes."""
    key = rich(node)
    outbox = Outbox(path)
    away = Sender(node, key, outbox=outbox, timeout_s=120)
    kept = away._signed(TO, b"data", None, "a", 0)
    assert Sender(node, key, timeout_s=120).transact(TO, b"rival").succeeded
    back = Sender(node, key, outbox=outbox, timeout_s=120)
    again = back.send(TO, b"data", label="a")
    assert (again.nonce, again.data) == (kept.nonce + 1, kept.data)
    assert outbox.find("a") == again
    assert back.wait(again).succeeded
    outbox.close()


def test_kept_with_a_fee_that_became_too_low(path, own_anvil):
    """A label must not be stuck for ever because the chain became dearer while nobody looked."""
    running = own_anvil()
    node = Node(running.url)
    outbox = Outbox(path)
    kept = Sender(node, running.keys[0], outbox=outbox)._signed(TO, b"data", None, "a", 0)
    node.rpc("anvil_setNextBlockBaseFeePerGas", hex(kept.fee * 5))
    node.rpc("evm_mine")
    sender = Sender(node, running.keys[0], outbox=outbox, timeout_s=120)
    again = sender.send(TO, b"data", label="a")
    assert (again.nonce, again.data) == (kept.nonce, kept.data)
    assert again.fee > kept.fee
    assert outbox.find("a") == again
    assert sender.wait(again).succeeded
    node.close()
    outbox.close()
