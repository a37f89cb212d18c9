"""A decoder written from docs/report-format.md alone agrees with the code on every vector and many reports.

The first half of this file shares nothing with Reticent: it is what a stranger would write.
"""

import hashlib
import hmac
import json
import math
import random
from functools import lru_cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

PRIME = 2**32 - 5


def tag_of(key, label, content):
    return hmac.new(key, label + content, hashlib.sha256).digest()[:16]


def bits_for(symbols):
    return max(1, (symbols - 1).bit_length())


@lru_cache
def subsets(k, w):
    """How many seeds there are, the modulus, and the block of each seed."""

    def prime(n):
        return all(n % divisor for divisor in range(2, n))

    if w == 1:
        return 1, k, lambda seed: [0]
    if math.comb(k, w) * k <= 2**19 and not prime(k):
        listed = list(combinations(range(k), w))
        return len(listed), k, lambda seed: listed[seed]
    m = next(n for n in range(k, 2 * k) if prime(n))
    return m - 1, m, lambda seed: [(seed + 1) * place % m for place in range(w)]


class Stranger:
    """Reads the reports of one survey."""

    def __init__(self, text):
        self.id = hashlib.sha256(text).digest()[:8]
        self.fields = json.loads(text)
        self.attributes = self.fields["attributes"]
        self.cipher = Cipher(AES(bytes.fromhex(self.fields["key"])), ECB()).encryptor()

    def draw(self, identity, period, purpose, number):
        block = identity + period.to_bytes(4, "big") + bytes([purpose]) + number.to_bytes(3, "big")
        return int.from_bytes(self.cipher.update(block)[:8], "big")

    def level(self, identity, period, place):
        levels = self.attributes[place]["mechanism"]["dither_levels"]
        return self.draw(identity, period, 0, place) % levels

    def assigned(self, identity, period):
        draws = [(self.draw(identity, period, 1, place), place) for place in range(len(self.attributes))]
        return sorted(place for _, place in sorted(draws)[: self.fields["sample_size"]])

    def group(self, identity):
        return self.draw(identity, 0, 2, 0) % self.fields["groups"]

    def categories(self, place):
        values = self.attributes[place]["values"]
        return values if isinstance(values, int) else len(values)

    def symbols_of(self, place):
        """How many symbols the mechanism has."""
        mechanism = self.attributes[place]["mechanism"]
        kind, levels = mechanism["kind"], mechanism.get("levels")
        if kind in ("Duchi", "OneBit"):
            return 2
        if kind == "ThreeOutputs":
            return 3
        if kind in ("PM", "PMOpt", "PMSub"):
            return levels
        if kind == "HM":
            return 2 if levels is None else levels + 2
        if kind == "HMTP":
            return 3 if levels is None else levels + 2
        if kind in ("Window", "Tailored"):
            return len(mechanism["y"])
        return self.categories(place)

    def width(self, place):
        mechanism = self.attributes[place]["mechanism"]
        if mechanism["kind"] == "OUE":
            return self.categories(place)
        if mechanism["kind"] == "OLH":
            return 64 + bits_for(mechanism["buckets"])
        if mechanism["kind"] == "Subset":
            return bits_for(self.subset(place)[0] * self.subset(place)[1])
        return bits_for(self.symbols_of(place))

    def subset(self, place):
        return subsets(self.categories(place), self.attributes[place]["mechanism"]["subset_size"])

    def decode(self, report, key):
        """(period, reporter, nonce, group, symbols by attribute), or the reason why there are none."""
        if report[:1] != b"\x02":
            return "version" if report else "length"
        if not 47 <= len(report) <= 65535:
            return "length"
        if report[1:9] != self.id:
            return "survey"
        content, tag = report[:-16], report[-16:]
        if tag_of(key, b"reticent-survey-report/v2\n", content) != tag:
            return "tag"
        period, identity, nonce = int.from_bytes(report[9:13], "big"), report[13:21], report[21:29]
        if period >= self.fields["periods"]:
            return "period"
        d = len(self.attributes)
        end = 29 + (d + 7) // 8
        mask = "".join(f"{byte:08b}" for byte in content[29:end])
        asked = [place for place in range(d) if mask[place : place + 1] == "1"]
        if len(mask) < d or "1" in mask[d:] or len(asked) != self.fields["sample_size"]:
            return "attributes"
        if self.fields["assigned"] and asked != self.assigned(identity, period):
            return "attributes"
        total = sum(self.width(place) for place in asked)
        if len(content) - end != (total + 7) // 8:
            return "length"
        text = "".join(f"{byte:08b}" for byte in content[end:])
        if "1" in text[total:]:
            return "symbol"
        symbols, start = {}, 0
        for place in asked:
            piece = text[start : start + self.width(place)]
            start += len(piece)
            symbol = self.symbol(place, piece, identity, period)
            if symbol is None:
                return "symbol"
            symbols[self.attributes[place]["name"]] = symbol
        return period, identity.hex(), nonce.hex(), self.group(identity), symbols

    def symbol(self, place, piece, identity, period):
        mechanism = self.attributes[place]["mechanism"]
        if mechanism["kind"] == "OUE":
            return [int(bit) for bit in piece]
        if mechanism["kind"] == "OLH":
            high, low, value = int(piece[:32], 2), int(piece[32:64], 2), int(piece[64:], 2)
            if high >= PRIME or low >= PRIME or value >= mechanism["buckets"]:
                return None
            return {"seed": f"{high:08x}{low:08x}", "value": value}
        number = int(piece, 2)
        if mechanism["kind"] == "Subset":
            seeds, m, _ = self.subset(place)
            return number if number < seeds * m else None
        if number >= self.symbols_of(place):
            return None
        if mechanism["kind"] == "OneBit":
            return {"level": self.level(identity, period, place), "bit": number}
        return number

    def output(self, place, symbol):
        """What a symbol of a number stands for, by the real-number formulas."""
        attribute = self.attributes[place]
        lower, upper = attribute["bounds"]
        unit = unit_output(attribute["mechanism"], symbol)
        return (lower + upper) / 2 + (upper - lower) / 2 * unit

    def supports(self, place, symbol):
        """Which categories a report supports."""
        mechanism, k = self.attributes[place]["mechanism"], self.categories(place)
        if mechanism["kind"] == "OUE":
            return [i for i in range(k) if symbol[i]]
        if mechanism["kind"] == "KRR":
            return [symbol]
        if mechanism["kind"] == "Subset":
            _, m, block = self.subset(place)
            held = {(element + symbol % m) % m for element in block(symbol // m)}
            return [i for i in range(k) if i in held]
        p, r = int(symbol["seed"][:8], 16), int(symbol["seed"][8:], 16)
        g = mechanism["buckets"]
        return [i for i in range(k) if ((p * olh_key(i) + r) % PRIME) * g >> 32 == symbol["value"]]


def olh_key(v):
    v ^= v >> 16
    v = v * 0x7FEB352D % 2**31
    v ^= v >> 15
    v = v * 0x046CA68B % 2**31
    return v ^ v >> 16


def bisected(f, low, high):
    """The root of a function that is positive at `low` and negative at `high`."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) > 0 else (low, middle)
    return low


def three_bound(c):
    a = 0.0
    if c >= (3 + math.sqrt(65)) / 2:
        a = c / (c + 2)
    elif c > 2:
        a = bisected(
            lambda a: (
                2 * a**3 - (c * c + 4 * c + 5) * a * a + (7 * c - 4 * c * c - c**3) * a + 2 * c * c * (c - 2)
            ),
            0.0,
            c / (c + 2),
        )
    return c * (c + 1) / ((c - 1) * (c - a))


def unit_output(mechanism, symbol):
    kind, epsilon = mechanism["kind"], mechanism["epsilon"]
    c = math.exp(epsilon)
    bound = (c + 1) / (c - 1)
    levels = mechanism.get("levels")
    if kind == "Duchi" or (kind == "HM" and levels is None):
        return (-bound, bound)[symbol]
    if kind == "ThreeOutputs" or (kind == "HMTP" and levels is None):
        return (-three_bound(c), 0.0, three_bound(c))[symbol]
    if kind == "OneBit":
        m, rho = mechanism["dither_levels"], mechanism["rho"]
        a, v = rho / bound, -1 + (2 * symbol["level"] + 1) / m
        g = rho * (m / a) * math.sinh(a / m) / math.sinh(a)
        return g * math.exp(a * v) if symbol["bit"] else -g * math.exp(-a * v)
    if kind == "Tailored":
        y, first, last = mechanism["y"], [], []
        top = max(int(pattern, 16).bit_length() for _, _, pattern in mechanism["columns"]) - 1
        for knot, row in ((0, first), (top, last)):
            row += [0.0] * len(y)
            for output, weight, pattern in mechanism["columns"]:
                row[output] += weight * (c if int(pattern, 16) >> knot & 1 else 1) / 2**50
        low, high = (sum(p * one for p, one in zip(row, y, strict=True)) for row in (first, last))
        return 2 * (y[symbol] - low) / (high - low) - 1
    if kind == "Window":
        y, m = mechanism["y"], mechanism["window"]
        q = 1 / (len(y) - m + c * m)
        last = sum(one * (c * q if i >= len(y) - m else q) for i, one in enumerate(y))
        return y[symbol] / last
    if symbol >= levels:
        side = bound if kind == "HM" else three_bound(c)
        return (-side, side)[symbol - levels]
    t = math.exp(epsilon / (2 if kind in ("PM", "HM") else 3))
    if kind == "PMOpt":
        t = bisected(lambda t: c * c + 2 * c * t - 2 * c * t**3 - t**4, 0.0, 2 * c)
    return (c + t) * (t + 1) / (t * (c - 1)) * (2 * symbol / (levels - 1) - 1)


def split(batch):
    found = []
    while batch:
        size = int.from_bytes(batch[:2], "big")
        found.append(batch[2 : 2 + size])
        batch = batch[2 + size :]
    return found


GIVEN = json.loads((Path(__file__).parents[3] / "docs" / "report-vectors.json").read_text())


@pytest.mark.parametrize("given", GIVEN["surveys"], ids=lambda given: json.loads(given["text"])["name"])
def test_the_decoder_agrees_on_the_vectors(given):
    stranger = Stranger(given["text"].encode())
    assert stranger.id.hex() == given["id"]
    for vector in given["reports"]:
        identity = bytes.fromhex(vector["reporter"])
        master = bytes.fromhex(GIVEN["master"])
        key = hmac.new(master, b"reticent-device/v1" + identity, hashlib.sha256).digest()
        assert key.hex() == vector["key"]
        told = stranger.decode(bytes.fromhex(vector["report"]), key)
        assert told == tuple(vector[name] for name in ("period", "reporter", "nonce", "group", "symbols"))


def test_the_decoder_agrees_on_signature_and_batch():
    file = json.loads(GIVEN["signed"])
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(GIVEN["signing_key"]))
    signer = Ed25519PublicKey.from_public_bytes(bytes.fromhex(file["signer"]))
    assert key.public_key() == signer
    signer.verify(bytes.fromhex(file["signature"]), b"reticent-survey/v1\n" + file["survey"].encode())
    with pytest.raises(InvalidSignature):
        signer.verify(bytes.fromhex(file["signature"]), b"reticent-survey/v2\n" + file["survey"].encode())
    assert file["survey"] == GIVEN["surveys"][0]["text"]
    reports = [one["report"] for survey in GIVEN["surveys"] for one in survey["reports"]]
    assert [one.hex() for one in split(bytes.fromhex(GIVEN["batch"]))] == reports[:3]


@pytest.mark.parametrize("given", GIVEN["others"], ids=lambda given: given["label"])
def test_the_decoder_agrees_on_reports_of_other_uses(given):
    """Where the id stands differs: after the round in trainings, after the round's own id in campaigns."""
    report, identity = bytes.fromhex(given["report"]), bytes.fromhex(given["reporter"])
    key = hmac.new(bytes.fromhex(GIVEN["master"]), b"reticent-device/v1" + identity, hashlib.sha256).digest()
    assert report[1:9].hex() == given["id"]
    at = 9
    if "round" in given:
        assert hashlib.sha256(given["text"].encode()).digest()[:8].hex() == given["id"]
        assert int.from_bytes(report[9:13], "big") == given["round"]
        at = 13
    assert (report[0], report[at : at + 8]) == (2, identity)
    assert report[at + 8 : -16].hex() == given["body"]
    assert tag_of(key, given["label"].encode() + b"\n", report[:-16]) == report[-16:]


def test_reports_of_version_1_are_of_another_version():
    for vector in GIVEN["version_1"]:
        report, key = bytes.fromhex(vector["report"]), bytes.fromhex(vector["key"])
        assert (report[0], hmac.new(key, report[:-16], hashlib.sha256).digest()[:16]) == (1, report[-16:])
        assert Stranger(vector["text"].encode()).decode(report, key) == "version"


# From here on Reticent is imported, to compare.

from reticent.collect.collector import Collector  # noqa: E402
from reticent.collect.wire import Layout  # noqa: E402
from reticent.mechanisms.base import Channel  # noqa: E402
from reticent.mechanisms.numeric.base import NumericChannel  # noqa: E402
from reticent.mechanisms.numeric.one_bit import OneBit  # noqa: E402
from reticent.mechanisms.record import Category, Number  # noqa: E402
from reticent.randomness import SimulationStream  # noqa: E402

from . import fleet  # noqa: E402


def random_survey(rng, number):
    """Any kinds, any epsilon, any number of attributes."""
    asked = []
    size = rng.choice((1, 2, 3))
    epsilon = rng.choice((0.25, 0.625, 1.0, 2.0, 6.0))  # exact: three times each is a double
    for place in range(rng.choice((size, size + 2, 9, 17))):
        name = f"attribute {place}"
        if rng.random() < 0.5:
            attribute, kind = Number(name, (-2.0, 3.0)), rng.choice(list(fleet.NUMERIC))
        else:
            values = rng.choice((2, 3, 8, 33, ["a", "b", 7]))
            attribute, kind = Category(name, values), rng.choice(list(fleet.CATEGORICAL))
        options = {"kind": kind, "epsilon": epsilon} | (fleet.NUMERIC | fleet.CATEGORICAL)[kind]
        if kind in ("Subset", "Tailored"):
            options = fleet.instruments.described(fleet.instrument(attribute, kind, epsilon))
        if (kind == "HM" and epsilon <= 0.6093524930273095) or (
            kind == "HMTP" and epsilon < 0.6109863354200205
        ):
            del options["levels"]
        asked.append((attribute, fleet.instruments.made(attribute, options)))
    return fleet.survey(
        *asked,
        epsilon=epsilon * size,
        sample_size=size,
        assigned=rng.random() < 0.5,
        groups=rng.choice((1, 2, 64)),
        key=rng.randbytes(32),
        name=f"random-{number}",
    )


@pytest.fixture(scope="module")
def written():
    """Random surveys with random reports: (survey, layout, enrolment, period, report, drawn)."""
    rng, stream, found = random.Random(17), SimulationStream(17), []
    for number in range(25):
        survey = random_survey(rng, number)
        layout = Layout(survey)
        for _ in range(80):
            enrolled, period = fleet.enrolment(rng.getrandbits(40)), rng.randrange(survey.periods)
            values = {one.name: rng.uniform(-3.0, 4.0) for one in survey.attributes}
            body, drawn = fleet.body(layout, enrolled, period, values, stream)
            report = layout.report(enrolled, period, rng.randbytes(8), body)
            found.append((survey, enrolled, period, report, drawn))
    return found


def plain(survey, drawn):
    return {
        survey.attributes[place].name: fleet._plain(survey.instruments[place], one)
        for place, one in drawn.items()
    }


def test_the_decoder_agrees_on_random_reports(written):
    """2000 reports of 25 surveys: symbols, dither levels, assigned attributes, groups."""
    strangers = {survey.id: Stranger(survey.text) for survey, *_ in written}
    for survey, enrolled, period, report, drawn in written:
        group = int(survey.lots.group(fleet.reporter(enrolled), survey.groups)[0])
        told = strangers[survey.id].decode(report, enrolled.key)
        assert told == (period, enrolled.id.hex(), report[21:29].hex(), group, plain(survey, drawn))


def test_the_decoder_tells_another_key_of_the_survey(written):
    """Planted: a decoder that draws under another key disagrees on levels, attributes or groups."""
    differ = 0
    for survey, enrolled, _, report, _ in written[:300]:
        stranger, other = Stranger(survey.text), Stranger(survey.text)
        other.cipher = Cipher(AES(bytes(32)), ECB()).encryptor()
        differ += stranger.decode(report, enrolled.key) != other.decode(report, enrolled.key)
    assert differ > 100


def test_the_decoder_agrees_on_what_is_wrong(written, tmp_path):
    """Reports changed in every field, with a right tag: the same reason from the collector."""
    rng, bad, reasons = random.Random(5), [], []
    strangers = {survey.id: Stranger(survey.text) for survey, *_ in written}
    for survey, enrolled, _, report, _ in written:
        content = bytearray(report[:-16])
        for _ in range(rng.choice((1, 1, 2))):
            content[rng.choice((0, 1, 9, 12, *range(29, len(content))))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.2:
            del content[rng.randrange(len(content)) :]
        content += rng.randbytes(rng.choice((0, 0, 0, 1)))
        one = bytes(content) + tag_of(enrolled.key, b"reticent-survey-report/v2\n", bytes(content))
        reason = strangers[survey.id].decode(one, enrolled.key)
        is_long = len(one) > Layout(survey).longest and reason not in ("version", "survey")
        bad.append(one)
        reasons.append("length" if is_long else reason)
    now = fleet.START + 12 * fleet.PERIOD_S
    options = {"late_s": 1e9, "early_s": 1e9, "clock": lambda: now}
    with Collector(tmp_path / "collection", fleet.MASTER, **options) as collector:
        for survey in {survey.id: survey for survey, *_ in written}.values():
            collector.collect(fleet.signed(survey, fleet.SIGNING), fleet.SIGNER)
        told = [outcome.value for outcome in collector.receive(bad)]
    assert told == [reason if isinstance(reason, str) else "counted" for reason in reasons]
    assert set(told) == {"counted", "version", "length", "survey", "period", "attributes", "symbol"}


@pytest.mark.parametrize("epsilon", [0.3, 0.65, 1.0, 1.5, 3.0, 8.0])
@pytest.mark.parametrize("kind", fleet.NUMERIC)
def test_symbols_stand_for_what_the_page_says(kind, epsilon):
    options = {"kind": kind, "epsilon": epsilon} | fleet.NUMERIC[kind]
    if kind == "Tailored":
        options = fleet.instruments.described(fleet.instrument(fleet.SPEED, kind, epsilon))
    if kind in ("HM", "HMTP") and epsilon < 0.6:
        del options["levels"]
    survey = fleet.survey((fleet.SPEED, fleet.instruments.made(fleet.SPEED, options)), epsilon=epsilon)
    instrument, stranger = survey.instruments[0], Stranger(survey.text)
    assert isinstance(instrument, NumericChannel)
    symbols = range(instrument.size)
    if isinstance(instrument, OneBit):
        symbols = [{"level": index // 2, "bit": index % 2} for index in symbols]
    outputs = [stranger.output(0, symbol) for symbol in symbols]
    np.testing.assert_allclose(outputs, instrument.alphabet, atol=1e-5 * np.ptp(instrument.alphabet))


def test_supports_are_what_the_page_says():
    stream = SimulationStream(3)
    for kind in fleet.CATEGORICAL:
        survey = fleet.single(kind)
        instrument, stranger = survey.instruments[0], Stranger(survey.text)
        draw = instrument.sample if isinstance(instrument, Channel) else instrument.perturb
        drawn = draw(["bus", "tram"] * 100, stream)
        counts = np.zeros(5, dtype=int)
        for one in drawn:
            for category in stranger.supports(0, fleet._plain(instrument, [one])):
                counts[category] += 1
        assert counts.tolist() == instrument.support_counts(drawn).tolist()


def test_reports_of_todays_devices_are_refused_by_name(tmp_path):
    """Version 1, as 0.1.0 made it: `version`, in surveys, trainings and campaigns."""
    vector = GIVEN["version_1"][0]
    survey = fleet.Survey.parse(vector["text"].encode())
    clock = {"clock": lambda: fleet.START + 10.0, "early_s": 1e9, "late_s": 1e9}
    with Collector(tmp_path / "c", fleet.MASTER, **clock) as collector:
        collector.collect(fleet.signed(survey, fleet.SIGNING), fleet.SIGNER)
        (told,) = collector.receive([bytes.fromhex(vector["report"])])
        assert told.value == "version"
        again = bytes.fromhex(GIVEN["surveys"][0]["reports"][0]["report"])
        assert [one.value for one in collector.receive([again])] == ["counted"]
