# pragma version 0.4.3
# pragma evm-version paris
# pragma optimize gas
"""
@title Head anchor
@license Apache-2.0
@notice Signed heads of ledgers that live elsewhere, written where nobody can take them back.
@dev Nothing is stored: the log of the chain is the memory. Whoever verifies a ledger holds it against every head that
    its writer ever anchored; a smaller head after a larger one shows a ledger that was put back.
"""


event Anchored:
    writer: indexed(address)
    origin: indexed(bytes32)
    size: uint64
    root: bytes32
    totals: bytes32
    signature: bytes32[2]


@external
def anchor(origin: bytes32, size: uint64, root: bytes32, totals: bytes32, signature: bytes32[2]):
    """
    @notice Write a signed head.
    @param origin SHA-256 of the log's name.
    @param size How many entries the log has.
    @param root Its Merkle root.
    @param totals SHA-256 of the spent totals.
    @param signature The log's Ed25519 signature of the head in the C2SP checkpoint format.
    """
    log Anchored(
        writer=msg.sender,
        origin=origin,
        size=size,
        root=root,
        totals=totals,
        signature=signature,
    )
