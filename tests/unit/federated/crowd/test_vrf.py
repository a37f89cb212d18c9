"""ECVRF: the published vectors, and that a proof has one right form."""

import random

import pytest

from reticent.errors import ParameterError
from reticent.federated.crowd.lottery import Vrf, edwards25519, p256, secp256k1
from reticent.federated.crowd.lottery.edwards import Edwards25519
from reticent.federated.crowd.lottery.weierstrass import P256, SECP256K1, Coincurve

SUITES = {"p256": p256(), "secp256k1": secp256k1(), "edwards25519": edwards25519()}
SECRET = bytes(range(1, 33))

# RFC 9381, B.1 (examples 10 to 12) and B.3 (16 to 18): secret, public, alpha, proof, output.
ANSI = b"Example using ECDSA key from Appendix L.4.2 of ANSI.X9-62-2005"
VECTORS = [
    (
        "p256",
        "c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721",
        "0360fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6",
        b"sample",
        "035b5c726e8c0e2c488a107c600578ee75cb702343c153cb1eb8dec77f4b5071b4"
        "a53f0a46f018bc2c56e58d383f2305e0"
        "975972c26feea0eb122fe7893c15af376b33edf7de17c6ea056d4d82de6bc02f",
        "a3ad7b0ef73d8fc6655053ea22f9bede8c743f08bbed3d38821f0e16474b505e",
    ),
    (
        "p256",
        "c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721",
        "0360fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6",
        b"test",
        "034dac60aba508ba0c01aa9be80377ebd7562c4a52d74722e0abae7dc3080ddb56"
        "c19e067b15a8a8174905b13617804534"
        "214f935b94c2287f797e393eb0816969d864f37625b443f30f1a5a33f2b3c854",
        "a284f94ceec2ff4b3794629da7cbafa49121972671b466cab4ce170aa365f26d",
    ),
    (
        "p256",
        "2ca1411a41b17b24cc8c3b089cfd033f1920202a6c0de8abb97df1498d50d2c8",
        "03596375e6ce57e0f20294fc46bdfcfd19a39f8161b58695b3ec5b3d16427c274d",
        ANSI,
        "03d03398bf53aa23831d7d1b2937e005fb0062cbefa06796579f2a1fc7e7b8c667"
        "d091c00b0f5c3619d10ecea44363b5a5"
        "99cadc5b2957e223fec62e81f7b4825fc799a771a3d7334b9186bdbee87316b1",
        "90871e06da5caa39a3c61578ebb844de8635e27ac0b13e829997d0d95dd98c19",
    ),
    (
        "edwards25519",
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        b"",
        "8657106690b5526245a92b003bb079ccd1a92130477671f6fc01ad16f26f723f"
        "26f8a57ccaed74ee1b190bed1f479d97"
        "27d2d0f9b005a6e456a35d4fb0daab1268a1b0db10836d9826a528ca76567805",
        "90cf1df3b703cce59e2a35b925d411164068269d7b2d29f3301c03dd757876ff"
        "66b71dda49d2de59d03450451af026798e8f81cd2e333de5cdf4f3e140fdd8ae",
    ),
    (
        "edwards25519",
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        b"\x72",
        "f3141cd382dc42909d19ec5110469e4feae18300e94f304590abdced48aed593"
        "3bf0864a62558b3ed7f2fea45c92a465"
        "301b3bbf5e3e54ddf2d935be3b67926da3ef39226bbc355bdc9850112c8f4b02",
        "eb4440665d3891d668e7e0fcaf587f1b4bd7fbfe99d0eb2211ccec90496310eb"
        "5e33821bc613efb94db5e5b54c70a848a0bef4553a41befc57663b56373a5031",
    ),
    (
        "edwards25519",
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        b"\xaf\x82",
        "9bc0f79119cc5604bf02d23b4caede71393cedfbb191434dd016d30177ccbf80"
        "96bb474e53895c362d8628ee9f9ea3c0"
        "e52c7a5c691b6c18c9979866568add7a2d41b00b05081ed0f58ee5e31b3a970e",
        "645427e5d00c62a23fb703732fa5d892940935942101e456ecca7bb217c61c45"
        "2118fec1219202a0edcf038bb6373241578be7217ba85a2687f7a0310b2df19f",
    ),
]


@pytest.mark.parametrize(("suite", "secret", "public", "alpha", "proof", "output"), VECTORS)
def test_the_published_vectors(suite, secret, public, alpha, proof, output):
    vrf, secret = SUITES[suite], bytes.fromhex(secret)
    assert vrf.public_key(secret).hex() == public
    assert vrf.prove(secret, alpha).hex() == proof
    assert vrf.output(bytes.fromhex(proof)).hex() == output
    assert vrf.verify(bytes.fromhex(public), alpha, bytes.fromhex(proof)).hex() == output


def test_alpha_on_secp256k1_as_others_have_it():
    """A point that Witnet's vrf-rs publishes for the suite 0xfe."""
    public = bytes.fromhex("032c8c31fc9f990c6b55e3865a184a4ce50e09481f2eaeb3e60ec1cea13a6ae645")
    found = secp256k1().encoded(public, b"sample")
    assert found.hex() == "0221ceb1ce22cd34d8b73a619164ed64e917ca31fd454075d02e4bdfa9c5ce0b48"


def accepted_flips(vrf, verify):
    """How many of all proofs with one bit changed are accepted, and how many there are."""
    proof = vrf.prove(SECRET, b"alpha")
    public, bits = vrf.public_key(SECRET), 8 * len(proof)
    assert verify(public, b"alpha", proof) is not None
    flipped = [(int.from_bytes(proof) ^ 1 << bit).to_bytes(len(proof)) for bit in range(bits)]
    return sum(verify(public, b"alpha", one) is not None for one in flipped), bits


@pytest.mark.parametrize(("suite", "bits"), [("edwards25519", 640), ("p256", 648), ("secp256k1", 648)])
def test_every_flipped_bit_of_a_proof_is_refused(suite, bits):
    assert accepted_flips(SUITES[suite], SUITES[suite].verify) == (0, bits)


def test_planted_a_verifier_without_the_challenge_is_found(monkeypatch):
    """It accepts flips of the challenge and of the answer: 384 bits, whatever they say."""
    vrf = secp256k1()

    def careless(public, alpha, proof):
        with monkeypatch.context() as planted:
            planted.setattr(Vrf, "_challenge", lambda self, points: Same())
            return vrf.verify(public, alpha, proof)

    accepted, _ = accepted_flips(vrf, careless)
    assert accepted >= 384


class Same:
    """Equal to everything."""

    def __eq__(self, other):
        return True

    __hash__ = None


@pytest.mark.parametrize("suite", SUITES)
def test_another_key_or_alpha_is_refused(suite):
    vrf = SUITES[suite]
    proof, public = vrf.prove(SECRET, b"alpha"), vrf.public_key(SECRET)
    assert vrf.verify(public, b"alpha", proof) == vrf.output(proof)
    assert vrf.verify(public, b"alphb", proof) is None
    assert vrf.verify(vrf.public_key(SECRET[::-1]), b"alpha", proof) is None
    for other in (b"", proof[:-1], proof + b"\0", b"\0" * len(proof)):
        assert vrf.verify(public, b"alpha", other) is None
    assert vrf.verify(b"\7" * len(public), b"alpha", proof) is None


def test_an_answer_plus_the_order_is_refused():
    """The same number modulo the order: another proof of the same, if it passed."""
    vrf = edwards25519()
    proof = vrf.prove(SECRET, b"alpha")
    s = int.from_bytes(proof[-32:], "little") + vrf.group.order
    longer = proof[:-32] + s.to_bytes(32, "little")
    assert vrf.verify(vrf.public_key(SECRET), b"alpha", longer) is None


def test_keys_of_small_order_are_refused():
    """With the point (0, 1) as the key everybody knows the answer: c Y is nothing."""
    vrf, group = edwards25519(), Edwards25519()
    identity = group.encode((0, 1, 1, 0))
    order_two = group.encode((0, (1 << 255) - 20, 1, 0))
    for public in (identity, order_two):
        h = vrf.encoded(public, b"alpha")
        k = 12345
        points = [public, *map(group.encode, (h, (0, 1, 1, 0), group.base(k), group.multiply(k, h)))]
        c = vrf._challenge(points)
        proof = identity + c.to_bytes(16, "little") + k.to_bytes(32, "little")
        assert vrf.verify(public, b"alpha", proof) is None


@pytest.mark.parametrize("suite", SUITES)
def test_bad_secrets(suite):
    with pytest.raises(ParameterError, match="secret must be 32 bytes"):
        SUITES[suite].prove(b"short", b"")
    if suite != "edwards25519":
        for secret in (bytes(32), b"\xff" * 32):
            with pytest.raises(ParameterError, match="below the order of the curve"):
                SUITES[suite].prove(secret, b"")
    with pytest.raises(ParameterError, match="proof must be"):
        SUITES[suite].output(b"no proof")


def test_both_secp256k1_agree():
    """Plain Python and libsecp256k1; and each curve's generator has its order."""
    fast, chance = Coincurve(), random.Random(5)
    for _ in range(20):
        k, m = chance.randrange(1, fast.order), chance.randrange(1, fast.order)
        slow, quick = SECP256K1.base(k), fast.base(k)
        assert SECP256K1.encode(slow) == quick
        assert SECP256K1.decode(quick) == slow == fast.coordinates(quick)
        assert SECP256K1.encode(SECP256K1.multiply(m, slow)) == fast.multiply(m, quick)
        assert SECP256K1.encode(SECP256K1.add(slow, SECP256K1.base(m))) == fast.add(quick, fast.base(m))
        assert SECP256K1.encode(SECP256K1.negate(slow)) == fast.negate(quick)
    for curve in (SECP256K1, P256):
        last = curve.base(curve.order - 1)
        assert last == curve.negate((curve.x, curve.y))
        with pytest.raises(ValueError, match="infinity"):
            curve.add(last, (curve.x, curve.y))
        assert curve.add((curve.x, curve.y), (curve.x, curve.y)) == curve.base(2)
