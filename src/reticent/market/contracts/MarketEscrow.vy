# pragma version 0.4.3
# pragma evm-version paris
# pragma optimize gas
"""
@title Market escrow
@license Apache-2.0
@notice Buyers' deposits, in the coin of the chain or in one ERC-20 token; sellers are paid by claims against Merkle roots.
@dev A batch is one root and one sum, whatever the number of its payments. What a batch was given is its own: no claim
    of another batch can touch it, and no tree pays out more than its batch holds. What was settled belongs to the
    sellers and never returns; what was not settled until the deadline returns to the buyer.
    State is written before money moves, so that whoever is called back finds it done.
    Amounts are in the smallest unit of the coin or the token. Times are in seconds since 1970.
"""

from ethereum.ercs import IERC20

DEPTH: constant(uint256) = 32  # hashes of a proof: four thousand million payments a batch

TOKEN: public(immutable(address))  # empty for the coin of the chain

struct Escrow:
    buyer: address
    settler: address
    deadline: uint256
    free: uint256  # deposited and not settled, nor taken back

escrows: public(HashMap[uint256, Escrow])
count: public(uint256)
left: public(HashMap[uint256, HashMap[bytes32, uint256]])  # of each batch by escrow and root, plus one
words: HashMap[uint256, HashMap[bytes32, HashMap[uint256, uint256]]]  # 256 places of a batch: which were claimed


event Opened:
    escrow: indexed(uint256)
    buyer: indexed(address)
    settler: indexed(address)
    deadline: uint256
    amount: uint256


event Settled:
    escrow: indexed(uint256)
    root: indexed(bytes32)
    amount: uint256


event Claimed:
    escrow: indexed(uint256)
    root: indexed(bytes32)
    payee: indexed(address)
    place: uint256
    amount: uint256


event Refunded:
    escrow: indexed(uint256)
    amount: uint256


@deploy
def __init__(token: address):
    """
    @param token The ERC-20 token that is paid in; empty for the coin of the chain.
    """
    TOKEN = token


@external
@payable
def open(settler: address, deadline: uint256, amount: uint256) -> uint256:
    """
    @notice Deposit an amount that a settler may give to sellers until the deadline.
    @param settler Who works out the payments; the buyer trusts it with the deposit.
    @param deadline From when on nothing is settled, and the rest can be taken back.
    @param amount What is deposited. Of a token it must be approved before; of the coin it comes with the call.
    @return The number of the escrow.
    """
    assert settler != empty(address), "escrow: settler is empty"
    assert deadline > block.timestamp, "escrow: deadline is past"
    assert amount > 0, "escrow: amount is zero"
    number: uint256 = self.count
    self.count = number + 1
    self.escrows[number] = Escrow(buyer=msg.sender, settler=settler, deadline=deadline, free=amount)
    log Opened(escrow=number, buyer=msg.sender, settler=settler, deadline=deadline, amount=amount)
    if TOKEN == empty(address):
        assert msg.value == amount, "escrow: amount did not come"
    else:
        assert msg.value == 0, "escrow: paid in a token"
        before: uint256 = staticcall IERC20(TOKEN).balanceOf(self)
        assert extcall IERC20(TOKEN).transferFrom(msg.sender, self, amount, default_return_value=True), "escrow: amount did not come"
        # Exactly: a token that keeps a part, or that calls somebody who moves money here meanwhile, is refused.
        assert staticcall IERC20(TOKEN).balanceOf(self) == before + amount, "escrow: amount did not come"
    return number


@external
def settle(escrow: uint256, root: bytes32, amount: uint256):
    """
    @notice Give a part of a deposit to the payments of a Merkle tree.
    @param escrow The number of the escrow.
    @param root Of the tree. Its leaves are keccak256(salt, place, payee, amount), a word each.
    @param amount The sum of all payments.
    """
    assert msg.sender == self.escrows[escrow].settler, "escrow: not the settler"
    assert block.timestamp < self.escrows[escrow].deadline, "escrow: deadline is past"
    assert amount > 0, "escrow: amount is zero"
    assert self.left[escrow][root] == 0, "escrow: settled already"
    free: uint256 = self.escrows[escrow].free
    assert amount <= free, "escrow: more than the deposit"
    self.escrows[escrow].free = free - amount
    self.left[escrow][root] = amount + 1
    log Settled(escrow=escrow, root=root, amount=amount)


@external
def claim(escrow: uint256, salt: bytes32, place: uint256, payee: address, amount: uint256, proof: DynArray[bytes32, DEPTH]):
    """
    @notice Pay one payment of a batch to its payee. Anybody may call; nobody else is paid.
    @param escrow The number of the escrow.
    @param salt Of the payment, drawn: without it nobody guesses what neighbours in the tree are paid.
    @param place Of the payment in the batch, from 0.
    @param payee Who is paid.
    @param amount What is paid.
    @param proof The hashes beside the way from the leaf to the root.
    """
    root: bytes32 = keccak256(abi_encode(salt, place, payee, amount))
    way: uint256 = place
    for beside: bytes32 in proof:
        if way & 1 == 0:
            root = keccak256(concat(root, beside))
        else:
            root = keccak256(concat(beside, root))
        way >>= 1
    assert way == 0, "escrow: no such place"
    left: uint256 = self.left[escrow][root]
    assert left > amount, "escrow: not in a batch"  # one more than is left, and zero where there is no batch
    word: uint256 = self.words[escrow][root][place >> 8]
    bit: uint256 = 1 << (place & 255)
    assert word & bit == 0, "escrow: claimed already"
    self.words[escrow][root][place >> 8] = word | bit
    self.left[escrow][root] = left - amount
    log Claimed(escrow=escrow, root=root, payee=payee, place=place, amount=amount)
    self._pay(payee, amount)


@external
def refund(escrow: uint256):
    """
    @notice Return to the buyer what was not settled until the deadline. Anybody may call.
    @param escrow The number of the escrow.
    """
    assert self.escrows[escrow].buyer != empty(address), "escrow: unknown"
    assert block.timestamp >= self.escrows[escrow].deadline, "escrow: before the deadline"
    free: uint256 = self.escrows[escrow].free
    assert free > 0, "escrow: nothing is left"
    self.escrows[escrow].free = 0
    log Refunded(escrow=escrow, amount=free)
    self._pay(self.escrows[escrow].buyer, free)


@external
@view
def claimed(escrow: uint256, root: bytes32, place: uint256) -> bool:
    """
    @notice Whether a payment of a batch was claimed.
    @param escrow The number of the escrow.
    @param root Of the batch.
    @param place Of the payment.
    """
    return self.words[escrow][root][place >> 8] & (1 << (place & 255)) != 0


@internal
def _pay(payee: address, amount: uint256):
    """
    @dev The last thing that a call does.
    """
    if TOKEN == empty(address):
        raw_call(payee, b"", value=amount)
    else:
        assert extcall IERC20(TOKEN).transfer(payee, amount, default_return_value=True), "escrow: the token refused"
