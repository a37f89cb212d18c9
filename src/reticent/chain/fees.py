"""The fees of transactions: a node only suggests a price of gas, the ceiling of the signer decides.

A node can name any price. On chains with EIP-1559 a transaction pays the base fee of its block, which all
nodes agree on, and its tip: so a lie about the fee costs nothing, and one about the tip at most the ceiling
of tips. A node may also say that there is no base fee, as on older chains: the whole price is a tip there.
"""

from __future__ import annotations

from dataclasses import dataclass

import rlp  # type: ignore[import-untyped]

from reticent.arguments import real, whole
from reticent.chain.node import Node, as_number
from reticent.errors import ChainError, FeeTooHigh, NodeUnavailable, ParameterError

GWEI = 10**9
_HIGHEST = 10**18  # of a ceiling, in wei: an ether for a unit of gas. It fits 63 bits
_MARGIN = 2  # on the base fee: six full blocks may come first
_PRICE_MARGIN = 1.25  # on a price, before EIP-1559
_BUMP = 1.25  # of a fee that became too low
_LEAST_BUMP = (9, 8)  # nodes take a replacement for a tenth or an eighth more, of fee and tip


@dataclass(frozen=True)
class Ceiling:
    """The highest price of a unit of gas, and its highest tip, in wei.

    The defaults are 100 and 10 gwei.
    """

    fee: int = 100 * GWEI
    tip: int = 10 * GWEI

    def __post_init__(self) -> None:
        whole("max_fee", self.fee, low=1, high=_HIGHEST)
        if whole("max_tip", self.tip, low=0) > self.fee:
            raise ParameterError(
                f"max_tip must be at most max_fee ({_gwei(self.fee)} gwei), got {_gwei(self.tip)} gwei"
            )

    @classmethod
    def of(cls, max_fee: float | None = None, max_tip: float | None = None) -> Ceiling:
        """Build a ceiling from amounts in gwei.

        Without a tip, it takes the default or the fee, whichever is less.
        """
        most = _HIGHEST // GWEI
        fee, tip = cls.fee, cls.tip
        if max_fee is not None:
            fee = int(real("max_fee", max_fee, low=0.0, high=most, open_low=True) * GWEI)
            tip = min(tip, fee)
        if max_tip is not None:
            tip = int(real("max_tip", max_tip, low=0.0, high=most) * GWEI)
        return cls(fee, tip)


@dataclass(frozen=True)
class Fees:
    """The highest fees of a transaction for a unit of gas, in wei.

    `tip` is None on chains without EIP-1559.
    """

    most: int
    tip: int | None

    def fields(self) -> dict[str, int]:
        """Return the fees as fields of a transaction."""
        if self.tip is None:
            return {"gasPrice": self.most}
        return {"type": 2, "maxFeePerGas": self.most, "maxPriorityFeePerGas": self.tip}


def current_fees(node: Node, ceiling: Ceiling) -> Fees:
    """Return the fees to sign now, with a margin, and never above the ceiling.

    Raises:
        FeeTooHigh: The chain asks for more.
    """
    base = node.block().base_fee
    if base is None:
        price = price_of(node)
        _check("max_tip", price, ceiling.tip)
        return Fees(min(int(price * _PRICE_MARGIN), ceiling.tip), None)
    _check("max_fee", base, ceiling.fee)
    tip = min(_tip(node, base), (ceiling.tip + 1) // 2)  # what is stuck can be replaced for twice as much
    most = min(_MARGIN * base + tip, ceiling.fee)
    return Fees(most, min(tip, most))


def raised_fees(node: Node, ceiling: Ceiling, raw: bytes, fee: int) -> Fees:
    """Return the fees to sign in a replacement of a transaction, which has the same nonce.

    Raises:
        FeeTooHigh: A node would take no replacement below the ceiling.
    """
    now = current_fees(node, ceiling)
    most = max(now.most, int(fee * _BUMP) + 1)
    if now.tip is None:
        found = Fees(min(most, ceiling.tip), None)
    else:
        most = min(max(most, _MARGIN * price_of(node)), ceiling.fee)  # it may know the next base fee
        tip = max(now.tip, int(gas_and_tip(raw)[1] * _BUMP) + 1)
        found = Fees(most, min(tip, ceiling.tip, most))
    if not _is_replacement(found, raw, fee):
        raise FeeTooHigh(
            f"a replacement must pay more than max_fee {_gwei(ceiling.fee)} or max_tip {_gwei(ceiling.tip)} "
            "gwei for a unit of gas"
        )
    return found


def _is_replacement(found: Fees, raw: bytes, fee: int) -> bool:
    more, of = _LEAST_BUMP
    tip = 0 if found.tip is None else found.tip
    return found.most * of >= fee * more and tip * of >= gas_and_tip(raw)[1] * more


def price_of(node: Node) -> int:
    """Return the price of a unit of gas according to the node."""
    return as_number(node.rpc("eth_gasPrice"))


def _tip(node: Node, base: int) -> int:
    try:
        return as_number(node.rpc("eth_maxPriorityFeePerGas"))
    except NodeUnavailable:
        raise
    except ChainError:  # a node without the method
        return max(0, price_of(node) - base)


def _check(name: str, asked: int, most: int) -> None:
    if asked > most:
        raise FeeTooHigh(
            f"{name} must be at least {_gwei(asked)} gwei for a unit of gas now, got {_gwei(most)}: "
            "nothing was signed"
        )


def _gwei(wei: int) -> str:
    return f"{wei / GWEI:.6g}"


def gas_and_tip(raw: bytes) -> tuple[int, int]:
    """Return the gas limit of a signed transaction, and its tip; 0 without EIP-1559."""
    fields = rlp.decode(raw[1:] if raw[0] == 2 else raw)
    gas, tip = (fields[4], fields[2]) if raw[0] == 2 else (fields[2], b"")
    return int.from_bytes(gas, "big"), int.from_bytes(tip, "big")


def value_of(raw: bytes) -> int:
    """Return the coin that goes with a signed transaction, in wei."""
    fields = rlp.decode(raw[1:] if raw[0] == 2 else raw)
    return int.from_bytes(fields[6 if raw[0] == 2 else 4], "big")
