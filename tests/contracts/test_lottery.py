"""Lottery.vy: it takes the proofs that Python makes and no others, and gives the seats that Python counts."""

import random
from functools import cache

import pytest

from reticent.errors import ParameterError
from reticent.federated.crowd.contract import chain_proof, compressed
from reticent.federated.crowd.lottery import priority, seats, secp256k1
from reticent.federated.crowd.lottery.weierstrass import SECP256K1

from .revm import Contract, Refused, artifact, planted

SECRET = bytes(range(1, 33))
ALPHA = b"\x5a" * 32


@pytest.fixture(scope="module")
def lottery():
    return Contract(artifact("Lottery"))


@cache
def honest(secret=SECRET, alpha=ALPHA):
    """Point, proof and roots for the contract, output."""
    vrf = secp256k1()
    public, proof = vrf.public_key(secret), vrf.prove(secret, alpha)
    return *chain_proof(public, alpha, proof), vrf.output(proof)


def is_accepted(lottery, point, proof, alpha=ALPHA, roots=None):
    roots = honest()[2] if roots is None else roots
    try:
        return lottery.read("output", point, alpha, proof, roots) is not None
    except Refused:
        return False


def test_outputs_are_those_of_python(lottery):
    for number in range(200):
        secret, alpha = number.to_bytes(31) + b"\1", (number * number).to_bytes(32)
        point, proof, roots, output = honest(secret, alpha)
        assert lottery.read("output", point, alpha, proof, roots) == output
        found, count, least = lottery.read("seats", point, alpha, proof, roots, 30, 100, 20)
        assert (found, count) == (output, seats(output, 30, 100, 20))
        assert count == 0 or least == priority(output, count)


def words_of(proof):
    return [word for part in proof for word in (part if isinstance(part, tuple) else (part,))]


def proof_of(words):
    return (tuple(words[:2]), *words[2:4], *(tuple(words[place : place + 2]) for place in (4, 6, 8, 10)))


def test_every_flipped_bit_is_refused(lottery):
    """Of the 12 words of a proof on a chain, 3,072 bits, the 648 of RFC 9381 among them; and of its roots."""
    point, proof, roots, _ = honest()
    words = words_of(proof)
    assert is_accepted(lottery, point, proof)
    accepted = 0
    for place in range(len(words)):
        for bit in range(256):
            flipped = list(words)
            flipped[place] ^= 1 << bit
            accepted += is_accepted(lottery, point, proof_of(flipped))
    for place in range(len(roots)):
        for bit in range(256):
            flipped = list(roots)
            flipped[place] ^= 1 << bit
            accepted += is_accepted(lottery, point, proof, roots=tuple(flipped))
    assert accepted == 0
    assert not is_accepted(lottery, point, proof, b"\x5b" * 32)
    assert not is_accepted(lottery, honest(SECRET[::-1])[0], proof)
    assert not is_accepted(lottery, (point[0], SECP256K1.p - point[1]), proof)


def test_a_proof_that_python_refuses_is_not_written_for_the_contract():
    vrf = secp256k1()
    public, proof = vrf.public_key(SECRET), vrf.prove(SECRET, ALPHA)
    with pytest.raises(ParameterError, match="proof must be right for the key and alpha"):
        chain_proof(public, b"\x5b" * 32, proof)


def later_point():
    """A key's proof of an alpha whose first try is a point, from its second point instead."""
    vrf, group = secp256k1(), SECP256K1
    p = group.p
    for number in range(1000):
        alpha = number.to_bytes(32)
        public = vrf.public_key(SECRET)
        xs = [x for x, _ in zip(vrf.tries(public, alpha), range(2), strict=False)]
        squares = [(x**3 + 7) % p for x in xs]
        ys = [pow(square, (p + 1) // 4, p) for square in squares]
        if all(y * y % p == square for y, square in zip(ys, squares, strict=True)):
            break
    h = (xs[1], ys[1] if ys[1] % 2 == 0 else p - ys[1])
    x, k = int.from_bytes(SECRET), 987654321
    y, gamma, u, v = group.base(x), group.multiply(x, h), group.base(k), group.multiply(k, h)
    c = vrf._challenge([compressed(one) for one in (y, h, gamma, u, v)])
    s = (k + c * x) % group.order
    told = (u, group.multiply(s, h), group.multiply(c, gamma), v)
    first = ys[0] if ys[0] % 2 == 0 else p - ys[0]
    return y, (gamma, c, s, *told), alpha, (first, h[1])


def test_nobody_chooses_among_the_points(lottery):
    """Each try that finds a point would be another output, and another lot."""
    point, proof, alpha, roots = later_point()
    for told in (roots, roots[1:], (2, roots[1]), (0, roots[1])):
        assert not is_accepted(lottery, point, proof, alpha, told)


def test_planted_a_lottery_that_lets_choose_is_found():
    line = '        assert uint256_addmod(found, square, P) == 0, "lottery: wrong proof"\n'
    careless = Contract(planted((line, ""), name="Lottery"))
    point, proof, alpha, roots = later_point()
    assert is_accepted(careless, point, proof, alpha, (2, roots[1]))


class Forger:
    """Somebody with a key who wants another output than the one that is theirs."""

    def __init__(self):
        self.x, self.k = int.from_bytes(SECRET), 987654321
        self.y = SECP256K1.base(self.x)
        self.h = SECP256K1.decode(secp256k1().encoded(compressed(self.y), ALPHA))
        self.gamma = SECP256K1.base(4711)  # not x H
        self.any = SECP256K1.base(31337)

    def answered(self, v):
        """c and s for a claimed V."""
        u = SECP256K1.base(self.k)
        points = [compressed(one) for one in (self.y, self.h, self.gamma, u, v)]
        c = secp256k1()._challenge(points)
        return c, (self.k + c * self.x) % SECP256K1.order, u

    def claims_difference(self):
        c, s, u = self.answered(self.any)
        told = (u, SECP256K1.multiply(s, self.h), SECP256K1.multiply(c, self.gamma), self.any)
        return self.gamma, c, s, *told

    def claims_product(self):
        c, s, u = self.answered(self.any)
        s_h = SECP256K1.multiply(s, self.h)
        return self.gamma, c, s, u, s_h, SECP256K1.add(s_h, SECP256K1.negate(self.any)), self.any

    def claims_other_product(self):
        c, s, u = self.answered(self.any)
        c_gamma = SECP256K1.multiply(c, self.gamma)
        return self.gamma, c, s, u, SECP256K1.add(self.any, c_gamma), c_gamma, self.any

    def claims_challenge(self):
        c, s = 12345, 67890
        u = SECP256K1.add(SECP256K1.base(s), SECP256K1.negate(SECP256K1.multiply(c, self.y)))
        s_h, c_gamma = SECP256K1.multiply(s, self.h), SECP256K1.multiply(c, self.gamma)
        return self.gamma, c, s, u, s_h, c_gamma, SECP256K1.add(s_h, SECP256K1.negate(c_gamma))

    def claims_key(self):
        """U of another key: the answer is right for x + 1."""
        c, s, _ = self.answered(self.any)
        u = SECP256K1.base((s - c * (self.x + 1)) % SECP256K1.order)
        s_h, c_gamma = SECP256K1.multiply(s, self.h), SECP256K1.multiply(c, self.gamma)
        return self.gamma, c, s, u, s_h, c_gamma, SECP256K1.add(s_h, SECP256K1.negate(c_gamma))


FORGED = {
    "claims_difference": "self._is_difference(proof.s_h, proof.c_gamma, proof.v)",
    "claims_product": "self._is_multiple(proof.gamma, proof.c, proof.c_gamma)",
    "claims_other_product": "self._is_multiple(h, proof.s, proof.s_h)",
    "claims_challenge": "convert(challenge, uint256) >> 128 == proof.c",
}


@pytest.mark.parametrize("claim", [*FORGED, "claims_key"])
def test_forged_proofs_are_refused(lottery, claim):
    forger = Forger()
    assert not is_accepted(lottery, forger.y, getattr(forger, claim)())


@pytest.mark.parametrize("claim", FORGED)
def test_planted_a_lottery_without_a_check_takes_the_forged_proof(claim):
    """So each check is needed, and the test above would notice its loss."""
    forger, careless = Forger(), Contract(planted((FORGED[claim], "True"), name="Lottery"))
    assert is_accepted(careless, forger.y, getattr(forger, claim)())


def cases(number, seed):
    """Stakes of all sizes; outputs by chance, and at the ends."""
    chance = random.Random(seed)
    for _ in range(number):
        total = chance.randint(1, chance.choice([3, 30, 1000, 10**6, (1 << 32) - 1]))
        stake = min(total, chance.randint(0, chance.choice([3, 300, total])))
        drawn = chance.choice([chance.randbytes(32)] * 8 + [bytes(32), b"\xff" * 32])
        yield drawn, stake, total, chance.randint(1, chance.choice([5, 20, 60, 765]))


def disagreements(lottery, number):
    def drawn(output, *stakes):
        return lottery.read("drawn", int.from_bytes(output), *stakes)

    return sum(drawn(*case) != seats(*case) for case in cases(number, 9))


def test_seats_are_those_of_python_in_10_000_cases(lottery):
    assert disagreements(lottery, 10_000) == 0


def test_planted_the_printed_interval_is_found():
    shifted = planted(
        (
            "        if u < below:\n            return j\n",
            "        if u < below:\n            return max(j, 1) - 1\n",
        ),
        name="Lottery",
    )
    assert disagreements(Contract(shifted), 300) > 0


def test_stakes_out_of_range(lottery):
    for stakes, said in [
        ((3, 2, 1), "stake"),
        ((1, 1 << 32, 1), "stake"),
        ((1, 2, 0), "seats"),
        ((1, 2, 766), "seats"),
    ]:
        with pytest.raises(Refused, match=f"lottery: {said} out of range"):
            lottery.read("drawn", 1, *stakes)
