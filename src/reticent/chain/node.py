"""A JSON-RPC node of any Ethereum chain: calls, blocks, receipts and logs, as plain values.

Requests go over plain HTTP and not through web3's provider, which hides the identifiers of answers, drops the
message of a refusing node and writes the address, with its secret, to a log. Blocks are read as JSON, so a
proof-of-authority chain, whose blocks carry longer extra data, reads like any other.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar
from urllib.parse import urlsplit

import requests
import urllib3
from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError
from eth_utils.address import to_checksum_address
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection

from reticent import peers
from reticent.arguments import real, whole
from reticent.errors import ChainError, NodeUnavailable, ParameterError, TransactionRefused, WrongChain

_TOGETHER = 100  # calls in one message
_MOST_BYTES, _PART = 64 << 20, 1 << 16  # of an answer, and of what is read of it at once
_MOST_BLOCKS = 10_000  # of one request for logs; many nodes allow no more
_ERROR = bytes.fromhex("08c379a0")  # selector of Error(string), which carries the reason of a revert
_NUMBER = re.compile("0x[0-9a-fA-F]{1,64}")
# `requests` translates errors of a connection until the body begins; reading that raises those of `urllib3`.
_FAILED_EXCHANGE = (requests.RequestException, urllib3.exceptions.HTTPError, ValueError, OSError)
_BROKEN_CONNECTION = (requests.ConnectionError, urllib3.exceptions.ProtocolError)
_MAX_TIMESTAMP = 253_402_300_799  # of a block: the last second that a calendar has, of the year 9999
_REVERTED = 3  # code of a JSON-RPC error for a call that a contract refused


@dataclass(frozen=True)
class Block:
    """The head of a block; `base_fee` is None before EIP-1559."""

    number: int
    hash: str
    parent: str
    timestamp: int
    base_fee: int | None


@dataclass(frozen=True)
class Log:
    """An entry that a contract wrote to the log of the chain."""

    address: str
    topics: tuple[bytes, ...]
    data: bytes
    block: int
    block_hash: str
    transaction: str
    index: int


@dataclass(frozen=True)
class Receipt:
    """The outcome of a transaction that is in a block."""

    transaction: str
    block: int
    block_hash: str
    succeeded: bool
    gas: int
    contract: str | None
    logs: tuple[Log, ...]


class _Refused(NodeUnavailable):
    """An error for a peer that answers, but not as asked."""


class _TimedConnection(HTTPConnection):
    """A connection that reads the head of a reply in bounded time.

    The timeout of a socket starts anew with every byte, so that interim replies (100 Continue) or headers
    that drip would hold it for ever.

    Attributes:
        reply_socket: Socket of the last reply, which `http.client` may already have closed for others.
    """

    reply_socket: Any = None

    def getresponse(self) -> Any:
        """Return the reply once its head is there."""
        self.reply_socket = self.sock
        seconds = self.timeout
        assert isinstance(seconds, int | float)
        with peers.cut_after(self.sock, seconds):
            return super().getresponse()


class _TimedHttpsConnection(_TimedConnection, HTTPSConnection):
    """A connection over TLS that reads the head of a reply in bounded time."""


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _TimedConnection


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TimedHttpsConnection


class _TimedAdapter(HTTPAdapter):
    """The adapter of `requests` with timed connections, through a proxy too."""

    _POOLS: ClassVar[dict[str, Any]] = {"http": _HttpPool, "https": _HttpsPool}

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        """Create the pools of direct connections."""
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = self._POOLS

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        """Return the pools of connections through a proxy."""
        manager = super().proxy_manager_for(proxy, **options)
        if type(manager) is urllib3.ProxyManager:
            manager.pool_classes_by_scheme = self._POOLS
        return manager


class Node:
    """A node at an http(s) address.

    Args:
        url: Address of the node's JSON-RPC interface. It may hold a secret: errors show the host only.
        chain_id: Id of the expected chain; a node of another chain is refused.
        timeout_s: Seconds that one call may take.

    Raises:
        NodeUnavailable: Nobody answers there.
        WrongChain: The node serves another chain.
    """

    def __init__(self, url: str, *, chain_id: int | None = None, timeout_s: float = 30.0) -> None:
        self._where = _host(url)
        self._timeout_s = real("timeout_s", timeout_s, low=0, open_low=True)
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _TimedAdapter())
        self._session.trust_env = not peers.is_here(urlsplit(url).hostname)  # no proxy to this machine
        self._session.headers["Accept-Encoding"] = "identity"
        self._identities = count(1)
        self._together = True  # until the node refuses several calls in one message
        self.url = url
        try:
            self.chain_id = as_number(self.rpc("eth_chainId"))
            if chain_id is not None and self.chain_id != chain_id:
                raise WrongChain(
                    f"the node at {self._where} serves chain {self.chain_id}, asked for {chain_id}"
                )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def __repr__(self) -> str:
        return f"Node({self._where})"

    def rpc(self, method: str, *parameters: Any) -> Any:
        """Make one call, and return its result.

        Raises:
            TransactionRefused: A contract reverted; the reason is its own.
            ChainError: The node refused.
            NodeUnavailable: There is no answer.
        """
        asked = self._asked(method, parameters)
        return self._result(self._post(asked), asked["id"])

    def rpc_many(self, calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        """Make several calls together, and return their results; a refused call gives its error.

        Raises:
            NodeUnavailable: There is no answer.
        """
        results: list[Any] = []
        for start in range(0, len(calls), _TOGETHER):
            part = [
                self._asked(method, parameters) for method, parameters in calls[start : start + _TOGETHER]
            ]
            together = self._together and len(part) > 1
            answers = self._answers(part) if together else None
            for asked in part:
                answer = answers[asked["id"]] if answers is not None else self._post(asked)
                try:
                    results.append(self._result(answer, asked["id"]))
                except NodeUnavailable:
                    raise
                except ChainError as error:
                    results.append(error)
            self._together &= not together or answers is not None
        return results

    def _asked(self, method: str, parameters: Sequence[Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": next(self._identities), "method": method, "params": list(parameters)}

    def _answers(self, part: list[dict[str, Any]]) -> dict[int, Any] | None:
        """Return the answers to calls in one message, in any order; None if they must be made singly.

        Nothing happens twice as a result: to broadcast the same bytes again is the same as once.
        """
        try:
            answers = self._post(part)
            found = {one["id"]: one for one in answers}
            if len(answers) == len(part) and set(found) == {one["id"] for one in part}:
                return found
        except (_Refused, TypeError, KeyError):
            pass
        return None

    def _post(self, body: Any) -> Any:
        """Return the node's reply as JSON.

        A connection that breaks, also in the middle of a reply, is tried once more: the node may have closed
        an idle one, and to broadcast the same bytes again is the same as once. Messages of `requests` and
        `urllib3` quote the address, which may hold a password, so neither they nor their cause is shown.
        """
        for is_last in (False, True):
            try:
                response, content = self._exchange(body)
                break
            except (requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError):  # as below
                raise NodeUnavailable(
                    f"the node at {self._where} does not answer within {self._timeout_s:g} s"
                ) from None
            except _FAILED_EXCHANGE as error:  # it quotes the address
                if is_last or not isinstance(error, _BROKEN_CONNECTION):
                    name = type(error).__name__
                    raise NodeUnavailable(f"the node at {self._where} does not answer ({name})") from None
        try:
            answer = peers.read_json(content)
        except ValueError:
            answer = None
        if response.ok or (isinstance(answer, dict) and "error" in answer):  # some refuse with a status, too
            return answer
        raise _Refused(f"the node at {self._where} answers with HTTP status {response.status_code}")

    def _exchange(self, body: Any) -> tuple[requests.Response, bytes]:
        """Return the node's reply and its body, read in bounded time and size.

        No redirect is followed: it would take signed bytes elsewhere.
        """
        until, content = time.monotonic() + self._timeout_s, bytearray()
        with self._session.post(
            self.url, json=body, timeout=self._timeout_s, allow_redirects=False, stream=True
        ) as response:
            read = getattr(response.raw, "read1", response.raw.read)  # what has come; urllib3 2 knows how
            with self._limit_time(response, until - time.monotonic()):
                while part := read(_PART, decode_content=False):
                    content += part
                    if time.monotonic() > until:
                        raise requests.Timeout
                    if len(content) > _MOST_BYTES:
                        raise _Refused(
                            f"the node at {self._where} answers with more than {_MOST_BYTES} bytes"
                        )
        return response, bytes(content)

    @staticmethod
    def _limit_time(response: requests.Response, seconds: float) -> AbstractContextManager[None]:
        """Return a block that reads the body of a reply; a connection through SOCKS has no such limit."""
        line = getattr(response.raw.connection, "reply_socket", None)
        return nullcontext() if line is None else peers.cut_after(line, max(seconds, 0.0))

    def _result(self, answer: Any, identity: int) -> Any:
        known = isinstance(answer, dict) and (
            answer.get("error") is not None or ("result" in answer and answer.get("id") == identity)
        )
        if not known:
            raise NodeUnavailable(f"what answers at {self._where} is no JSON-RPC node")
        error = answer.get("error")
        if error is None:
            return answer["result"]
        message = _one_line(error.get("message", "no reason") if isinstance(error, dict) else error)
        if isinstance(error, dict) and (error.get("code") == _REVERTED or "revert" in message):
            raise TransactionRefused(_reason(error.get("data"), message))
        raise ChainError(f"the node at {self._where} refused: {message}")

    # Reading

    def block(self, which: int | str = "latest") -> Block:
        """Return the head of a block, by number or tag."""
        found = self.rpc("eth_getBlockByNumber", block_tag(which), False)
        if found is None:
            raise ChainError(f"the node at {self._where} has no block {which}")
        return as_block(found)

    def number(self) -> int:
        """Return the number of the latest block."""
        return as_number(self.rpc("eth_blockNumber"))

    def call(
        self,
        to: str,
        data: bytes,
        *,
        sender: str | None = None,
        block: int | str = "latest",
        value_wei: int = 0,
    ) -> bytes:
        """Return a contract's answer to a call that changes nothing.

        Raises TransactionRefused if the contract reverts.
        """
        asked = {"to": to, "data": "0x" + data.hex()}
        if sender is not None:
            asked["from"] = sender
        if value_wei:
            asked["value"] = hex(value_wei)
        return as_bytes(self.rpc("eth_call", asked, block_tag(block)))

    def code(self, address: str, block: int | str = "latest") -> bytes:
        """Return the code of a contract; empty if there is none."""
        return as_bytes(self.rpc("eth_getCode", address, block_tag(block)))

    def receipt(self, transaction: str) -> Receipt | None:
        """Return the receipt of a transaction; None while it is in no block."""
        return as_receipt(self.rpc("eth_getTransactionReceipt", transaction))

    def logs(
        self, address: str, first: int, last: int, topics: Sequence[str | None] = ()
    ) -> Iterator[list[Log]]:
        """Yield the logs of a contract from block to block, both included, range by range.

        A node that refuses a range for its size is asked for half of it, and then for slowly more again.
        """
        whole("first", first, low=0)
        size = _MOST_BLOCKS
        while first <= last:
            end = min(last, first + size - 1)
            asked = {"address": address, "fromBlock": hex(first), "toBlock": hex(end), "topics": list(topics)}
            try:
                found = self.rpc("eth_getLogs", asked)
            except NodeUnavailable:
                raise
            except ChainError:
                if size == 1:
                    raise
                size = max(1, min(size, end - first + 1) // 2)
                continue
            with _understood("list of logs"):
                kept = [one for one in found if not one.get("removed", False)]
            yield [as_log(one) for one in kept]
            first = end + 1
            size = min(_MOST_BLOCKS, size + size // 4 + 1)  # a crowded place must not slow down all the rest


def block_tag(which: int | str) -> str:
    """Return a block number or tag in the form of JSON-RPC."""
    return hex(which) if isinstance(which, int) else which


def as_number(found: Any) -> int:
    """Read a number from its JSON: no sign, and at most 256 bits, which is all that a chain has."""
    with _understood("number"):
        if not _NUMBER.fullmatch(found):
            raise ValueError
        return int(found, 16)


def as_block(found: dict[str, Any]) -> Block:
    """Read the head of a block from its JSON."""
    with _understood("block"):
        fee = found.get("baseFeePerGas")
        timestamp = as_number(found["timestamp"])
        if timestamp > _MAX_TIMESTAMP:
            raise ValueError
        return Block(
            as_number(found["number"]),
            _text(found["hash"]),
            _text(found["parentHash"]),
            timestamp,
            None if fee is None else as_number(fee),
        )


def as_log(found: dict[str, Any]) -> Log:
    """Read a log from its JSON."""
    with _understood("log"):
        return Log(
            _text(found["address"]),
            tuple(as_bytes(topic) for topic in found["topics"]),
            as_bytes(found["data"]),
            as_number(found["blockNumber"]),
            _text(found["blockHash"]),
            _text(found["transactionHash"]),
            as_number(found["logIndex"]),
        )


def as_receipt(found: dict[str, Any] | None) -> Receipt | None:
    """Read a receipt from its JSON; None while a node knows none, or knows it without a block."""
    with _understood("receipt"):
        if found is None or found.get("blockNumber") is None:
            return None
        made = found.get("contractAddress")
        return Receipt(
            _text(found["transactionHash"]),
            as_number(found["blockNumber"]),
            _text(found["blockHash"]),
            as_number(found["status"]) == 1,
            as_number(found["gasUsed"]),
            to_checksum_address(made) if made else None,
            tuple(as_log(one) for one in found["logs"]),
        )


@contextmanager
def _understood(what: str) -> Iterator[None]:
    """Convert errors that a wrong shape of JSON causes inside the block to one error."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NodeUnavailable(f"the node gave no {what} as JSON-RPC has it") from error


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError
    return found


def as_bytes(found: Any) -> bytes:
    """Read bytes from their JSON."""
    with _understood("bytes"):
        return bytes.fromhex(_text(found).removeprefix("0x"))


def _host(url: str) -> str:
    """Return host and port of an address, which is all that may be shown of it."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname:
            return parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
    except (AttributeError, TypeError, ValueError):
        pass
    raise ParameterError("rpc must be an http:// or https:// address of a node")


def _one_line(message: Any) -> str:
    """Make the words of a stranger safe to show."""
    return peers.one_line(message)


def _reason(data: Any, message: str) -> str:
    """Return the reason why a contract reverted, in its own words if it gave any."""
    if isinstance(data, str):
        try:
            raw = bytes.fromhex(data.removeprefix("0x"))
            if raw[:4] == _ERROR:
                return _one_line(decode(["string"], raw[4:])[0])
        except (ValueError, OverflowError, DecodingError):
            pass
    return message.removeprefix("execution reverted: ")
