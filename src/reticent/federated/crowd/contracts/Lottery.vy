# pragma version 0.4.3
# pragma evm-version paris
# pragma optimize gas
"""
@title Lottery
@license Apache-2.0
@notice Seats by lot that anybody can check: the output of a verifiable random function of a miner's own key, and how
    many seats it gives a stake. Nothing is stored here, and nothing depends on who asks.
@dev Proofs are those of RFC 9381 on secp256k1 (try and increment, SHA-256, suite 0xfe). Points that follow from a proof
    come along, so that `ecrecover` can check products and no inversion is needed.
"""


version: public(constant(uint256)) = 1

# secp256k1: the field and the order.
P: constant(uint256) = 115792089237316195423570985008687907853269984665640564039457584007908834671663
N: constant(uint256) = 115792089237316195423570985008687907852837564279074904382605163141518161494337

# Sortition: fractions of 120 bits.
BITS: constant(uint256) = 120
ONE: constant(uint256) = 2**120
HALF: constant(uint256) = 2**119
LARGE: constant(uint256) = 2**152
MOST_UNITS: constant(uint256) = 2**32 - 1
MOST_EXPECTED: constant(uint256) = 765
MOST_SEATS: constant(uint256) = 1000
MOST_TRIES: constant(uint256) = 64  # to find a point; more are needed once in 2**64 draws


struct Proof:
    gamma: uint256[2]
    c: uint256
    s: uint256
    # What follows is determined by the rest, and told to spare inversions.
    u: uint256[2]
    s_h: uint256[2]
    c_gamma: uint256[2]
    v: uint256[2]


@external
@view
def seats(
    point: uint256[2],
    alpha: bytes32,
    proof: Proof,
    roots: DynArray[uint256, MOST_TRIES],
    stake: uint256,
    total: uint256,
    expected: uint256,
) -> (bytes32, uint256, uint256):
    """
    @notice What a proof gives; refused if it is wrong.
    @param point Of the key.
    @param alpha What the output is a hash of.
    @param proof Of it.
    @param roots Of the tries that put alpha onto the curve.
    @param stake Of the miner, in units.
    @param total Of all.
    @param expected Seats of the committee.
    @return The output, how many seats, and the least hash of output and seat.
    """
    output: bytes32 = self._verified(point, alpha, proof, roots)
    count: uint256 = self._seats(convert(output, uint256), stake, total, expected)
    return output, count, self._priority(output, count)


@external
@view
def output(
    point: uint256[2], alpha: bytes32, proof: Proof, roots: DynArray[uint256, MOST_TRIES]
) -> bytes32:
    """
    @notice The output of a proof; refused if it is wrong.
    @param point The point of the key.
    @param alpha What it is a hash of.
    @param proof Of it.
    @param roots Of the tries that put alpha onto the curve.
    @return 32 bytes.
    """
    return self._verified(point, alpha, proof, roots)


@external
@pure
def drawn(output: uint256, stake: uint256, total: uint256, expected: uint256) -> uint256:
    """
    @notice The seats of an output.
    @param output As a number.
    @param stake Of the miner, in units.
    @param total Of all.
    @param expected Seats of the committee.
    @return How many.
    """
    return self._seats(output, stake, total, expected)


@internal
@pure
def _address(point: uint256[2]) -> address:
    """
    @dev The address of a key, or of any point: what `ecrecover` tells of one.
    """
    return convert(
        convert(keccak256(abi_encode(point[0], point[1])), uint256) & (2**160 - 1), address
    )


@internal
@pure
def _encoded(point: uint256[2]) -> Bytes[33]:
    """
    @dev A point, compressed.
    """
    return concat(convert(convert(2 + point[1] % 2, uint8), bytes1), convert(point[0], bytes32))


@internal
@pure
def _is_on_curve(point: uint256[2]) -> bool:
    """
    @dev y^2 = x^3 + 7, with coordinates that are reduced.
    """
    if point[0] >= P or point[1] >= P:
        return False
    return uint256_mulmod(point[1], point[1], P) == self._right_side(point[0])


@internal
@pure
def _right_side(x: uint256) -> uint256:
    """
    @dev x^3 + 7.
    """
    return uint256_addmod(uint256_mulmod(uint256_mulmod(x, x, P), x, P), 7, P)


@internal
@view
def _is_multiple(point: uint256[2], k: uint256, claimed: uint256[2]) -> bool:
    """
    @dev Whether k times a point is what is claimed: `ecrecover` of the hash 0 is r^-1 s R.
    """
    found: address = ecrecover(
        empty(bytes32), 27 + point[1] % 2, point[0], uint256_mulmod(k, point[0], N)
    )
    return found != empty(address) and found == self._address(claimed)


@internal
@view
def _verified(
    point: uint256[2], alpha: bytes32, proof: Proof, roots: DynArray[uint256, MOST_TRIES]
) -> bytes32:
    """
    @dev RFC 9381, 5.3: the output of a proof, or a refusal. The key was recovered by nobody: that it is a point of the
        curve follows from `ecrecover`, which takes x and a parity, and from the challenge, which has both.
    """
    assert len(roots) > 0, "lottery: wrong proof"
    assert proof.c < 2**128 and proof.s < N, "lottery: wrong proof"
    assert self._is_on_curve(point) and self._is_on_curve(proof.gamma), "lottery: wrong proof"
    h: uint256[2] = self._on_curve(point, alpha, roots)
    # u = s B - c Y: ecrecover gives r^-1 (s' R - z B), with R = Y, r = its x, s' = -c r and z = -s r.
    r: uint256 = point[0]
    found: address = ecrecover(
        convert(N - uint256_mulmod(proof.s, r, N), bytes32),
        27 + point[1] % 2,
        r,
        N - uint256_mulmod(proof.c, r, N),
    )
    assert found != empty(address) and found == self._address(proof.u), "lottery: wrong proof"
    assert self._is_multiple(h, proof.s, proof.s_h), "lottery: wrong proof"
    assert self._is_multiple(proof.gamma, proof.c, proof.c_gamma), "lottery: wrong proof"
    assert self._is_difference(proof.s_h, proof.c_gamma, proof.v), "lottery: wrong proof"
    challenge: bytes32 = sha256(
        concat(
            0xfe02,
            self._encoded(point),
            self._encoded(h),
            self._encoded(proof.gamma),
            self._encoded(proof.u),
            self._encoded(proof.v),
            0x00,
        )
    )
    assert convert(challenge, uint256) >> 128 == proof.c, "lottery: wrong proof"
    return sha256(concat(0xfe03, self._encoded(proof.gamma), 0x00))


@internal
@pure
def _is_difference(one: uint256[2], other: uint256[2], claimed: uint256[2]) -> bool:
    """
    @dev Whether one - other is claimed: one, -other and -claimed lie on a line, which meets the curve in no fourth
        point, and no two of them have the same x.
    """
    if not self._is_on_curve(claimed):
        return False
    if one[0] == other[0] or one[0] == claimed[0] or other[0] == claimed[0]:
        return False
    left: uint256 = uint256_mulmod(
        uint256_addmod(other[1], one[1], P), uint256_addmod(claimed[0], P - one[0], P), P
    )
    right: uint256 = uint256_mulmod(
        uint256_addmod(claimed[1], one[1], P), uint256_addmod(other[0], P - one[0], P), P
    )
    return left == right


@internal
@view
def _on_curve(
    point: uint256[2], alpha: bytes32, roots: DynArray[uint256, MOST_TRIES]
) -> uint256[2]:
    """
    @dev `alpha` as a point, by try and increment (RFC 9381, 5.4.1.1). Nobody chooses among the tries: for each the even
        root comes along of what should be y^2, or, where that has none, of its negative; P is 3 modulo 4, so that exactly
        one of both has roots.
    """
    salt: Bytes[67] = concat(0xfe01, self._encoded(point), alpha)
    last: uint256 = len(roots) - 1
    for counter: uint256 in range(len(roots), bound=MOST_TRIES):
        x: uint256 = convert(
            sha256(concat(salt, convert(convert(counter, uint8), bytes1), 0x00)), uint256
        )
        if x >= P:
            continue
        y: uint256 = roots[counter]
        assert y < P and y % 2 == 0, "lottery: wrong proof"
        square: uint256 = self._right_side(x)
        found: uint256 = uint256_mulmod(y, y, P)
        if found == square:
            assert counter == last, "lottery: wrong proof"
            return [x, y]
        assert uint256_addmod(found, square, P) == 0, "lottery: wrong proof"
    raise "lottery: wrong proof"


@internal
@pure
def _priority(output: bytes32, count: uint256) -> uint256:
    """
    @dev The least hash of an output and the numbers of its seats.
    """
    least: uint256 = max_value(uint256)
    for number: uint256 in range(count, bound=MOST_SEATS):
        least = min(least, convert(keccak256(concat(output, convert(number + 1, bytes32))), uint256))
    return least


@internal
@pure
def _seats(output: uint256, stake: uint256, total: uint256, expected: uint256) -> uint256:
    """
    @dev The least j with output < CDF(j) of the binomial distribution of `stake` units that sit with chance
        expected / total each. Fractions have 120 bits and floating exponents; all are rounded down.
    """
    assert stake <= total and total <= MOST_UNITS, "lottery: stake out of range"
    assert expected > 0 and expected <= MOST_EXPECTED, "lottery: seats out of range"
    most: uint256 = min(stake, MOST_SEATS)
    if expected >= total:
        return most
    # (1 - p) ** stake by squaring: at least a half, and how often it is halved.
    term: uint256 = ONE
    exponent: uint256 = 0
    base: uint256 = (total - expected) * ONE // total
    more: uint256 = 0
    for _: uint256 in range(32):
        if base >= HALF:
            break
        base <<= 1
        more += 1
    times: uint256 = stake
    for _: uint256 in range(32):
        if times == 0:
            break
        if times & 1 == 1:
            term = (term * base) >> BITS
            exponent += more
            if term < HALF:
                term <<= 1
                exponent += 1
        base = (base * base) >> BITS
        more *= 2
        if base < HALF:
            base <<= 1
            more += 1
        times >>= 1
    u: uint256 = output >> (256 - BITS)
    below: uint256 = 0
    for j: uint256 in range(most, bound=MOST_SEATS):
        below += term >> exponent
        if u < below:
            return j
        # At most 2**172 times 2**42: see the bound of a step in the Python twin.
        term = term * ((stake - j) * expected) // ((j + 1) * (total - expected))
        if term >= LARGE:
            halvings: uint256 = min(exponent, 32)
            term >>= halvings
            exponent -= halvings
    return most
