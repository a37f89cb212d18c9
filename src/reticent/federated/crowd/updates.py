"""An update as it travels: encrypted with a key of its own, signed by its customer, bound to one place.

    magic (16 bytes) | signature (65) | ciphertext | tag (16)

AES-256-GCM under a fresh key, so that the nonce may be zeros. The line that says of whom and of what the
update is (chain, contract, task, round, customer) is the associated data, and is signed, with the hash of the
ciphertext, by the customer's key of the chain. So a file shows nothing before its key is revealed, opens as
one customer's update of one round only, and cannot be passed off as another's. The contract holds the key
beside the CID, so there is one key to each file. Inside is a safetensors file of whole numbers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from eth_abi.abi import encode
from eth_utils.address import to_checksum_address

from reticent.arguments import whole
from reticent.chain.keys import Key, writer_of
from reticent.chain.view import checked_address
from reticent.errors import GuaranteeError, ParameterError
from reticent.federated.robust.grid import Grid, Update
from reticent.store import tensors

KEY_BYTES = 32
_MAGIC = b"reticent update1"
_SIGNATURE, _TAG, _NONCE = 65, 16, bytes(12)
_HEAD = len(_MAGIC) + _SIGNATURE


@dataclass(frozen=True)
class Origin:
    """The origin of an update: chain, contract, task, round and customer.

    Attributes:
        chain_id: Identifier of the chain.
        contract: Address of the contract.
        task: Identifier of the task, 32 bytes.
        round: Number of the round.
        customer: Address of the customer who made the update.
    """

    chain_id: int
    contract: str
    task: bytes
    round: int
    customer: str

    def __post_init__(self) -> None:
        whole("chain_id", self.chain_id, low=0, high=(1 << 256) - 1)
        whole("round", self.round, low=0, high=(1 << 256) - 1)
        checked_address("contract", self.contract)
        checked_address("customer", self.customer)
        if not isinstance(self.task, bytes) or len(self.task) != 32:
            raise ParameterError("task must be an identifier of 32 bytes")

    def words(self) -> bytes:
        """Return the origin in one form of fixed length, so that no two origins have the same."""
        kinds = ["uint256", "address", "bytes32", "uint256", "address"]
        told = [self.chain_id, self.contract, self.task, self.round, self.customer]
        return _MAGIC + bytes(encode(kinds, told))


@dataclass(frozen=True)
class Sealed:
    """The file of an update, for everybody, and the key that opens it, for nobody until it is revealed."""

    file: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"Sealed({len(self.file)} bytes)"


def looks(grid: Grid) -> tensors.Looks:
    """Return the tensors inside of the file of an update."""
    return {"update": ("I32", (grid.dimensions,))}


def size_of(grid: Grid) -> int:
    """Return the size of the file of an update in bytes, the same for all updates."""
    return _HEAD + tensors.size_of(looks(grid)) + _TAG


def seal(grid: Grid, update: Update, origin: Origin, signer: Key) -> Sealed:
    """Encrypt and sign an update.

    Args:
        grid: Grid of the task.
        update: Update of `on_device.Home.file`, or another that is on the grid.
        origin: Origin of the update.
        signer: the customer's key of the chain.

    Raises:
        ParameterError: the update is not on the grid, or the key is not the customer's.
    """
    if to_checksum_address(origin.customer) != signer.address:
        raise ParameterError(f"the key is of {signer.address}, not of the customer {origin.customer}")
    inside = tensors.packed({"update": grid.checked(update)})
    key = os.urandom(KEY_BYTES)
    hidden = AESGCM(key).encrypt(_NONCE, inside, origin.words())
    signature = signer.sign_message(_signed(origin, hidden))
    return Sealed(b"".join((_MAGIC, signature, hidden)), key)


def opened(grid: Grid, file: bytes, key: bytes, origin: Origin) -> Update:
    """Decrypt the update of a file. The caller checks the grid's norm with `Grid.checked`.

    Args:
        grid: Grid of the task.
        file: File that was fetched.
        key: Key that was revealed.
        origin: Origin that the update must have.

    Raises:
        ParameterError: it has another size, no such head, or holds no update of this shape.
        GuaranteeError: the customer did not sign it as this, or the key does not open it.
    """
    if len(file) != size_of(grid):
        raise ParameterError(f"the file of an update must have {size_of(grid)} bytes, got {len(file)}")
    if file[: len(_MAGIC)] != _MAGIC:
        raise ParameterError("the file must begin as that of an update")
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise ParameterError(f"the key of an update must be {KEY_BYTES} bytes")
    view = memoryview(file)
    signature, hidden = bytes(view[len(_MAGIC) : _HEAD]), view[_HEAD:]
    if writer_of(_signed(origin, hidden), signature) != to_checksum_address(origin.customer):
        raise GuaranteeError("the update is not signed by its customer for this round")
    try:
        inside = AESGCM(key).decrypt(_NONCE, hidden, origin.words())
    except InvalidTag as error:
        raise GuaranteeError("the key does not open the update") from error
    return np.asarray(tensors.unpacked(inside, looks(grid))["update"])


def _signed(origin: Origin, hidden: bytes | memoryview) -> bytes:
    """Return the line of fixed length that the customer signs."""
    return origin.words() + sha256(hidden).digest()
