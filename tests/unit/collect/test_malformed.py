"""T17: malformed, truncated, bit-flipped and replayed reports: none counted, none crashes.

Some of the senders know no key; some are enrolled and put a right tag on a wrong report. After all of it the
table holds exactly what the honest reports gave. Planted bugs in the collector are found by the same attack.
"""

import random
from collections import Counter

import numpy as np
import pytest

from reticent.collect import wire
from reticent.collect.counts import sqlite as counts_in_sqlite
from reticent.collect.wire import TAG_BYTES, Layout
from reticent.fleet import intake
from reticent.fleet.enrolment import Use, tag
from reticent.mechanisms.categorical import OLH, OUE
from reticent.randomness import SimulationStream

from . import fleet

NOW = 12  # the open period
QUICK, FULL, BATCH = 20_000, 1_000_000, 5_000
SURVEYS = [
    fleet.mixed(),
    fleet.mixed(assigned=True, groups=4, name="assigned"),
    fleet.wide(),
    *(fleet.single(kind) for kind in ("ThreeOutputs", "Window", "PM", "KRR", "OLH", "Subset", "OneBit")),
]
HONEST, ATTACKERS, POOL = range(30), range(1000, 1120), 60


class Attack:
    """Makes bad reports: `kinds` by name, each a function that gives a report."""

    def __init__(self, seed):
        self.rng, stream = random.Random(seed), SimulationStream(seed)
        self.layouts = [Layout(survey) for survey in SURVEYS]
        self.honest = [
            fleet.report(of.survey, fleet.enrolment(i), NOW, {}, stream=stream, layout=of, nonce=self.nonce())
            for of in self.layouts
            for i in HONEST
        ]
        self.attackers = [fleet.enrolment(i) for i in ATTACKERS]
        self.revoked = fleet.enrolment(2000)
        # Right in all, of people who never sent one: whatever is counted of them shows in the table.
        self.good = [
            (of, who, fleet.body(of, who, NOW, {}, stream)[0])
            for of in self.layouts
            for who in self.rng.sample(self.attackers, POOL)
        ]
        self.symbols = self.made(self.with_illegal_symbol)
        self.padding = self.made(self.with_padding)
        self.counts = self.made(self.with_another_count)
        self.unassigned = self.made(self.with_other_attributes)

    def nonce(self):
        return self.rng.randbytes(8)

    def made(self, make):
        """Bodies of one kind of fault, by attackers, for all surveys where there is such a fault."""
        found = [(of, who, make(of, who)) for of in self.layouts for who in self.attackers]
        return [one for one in found if one[2] is not None]

    # Bodies with a fault

    def asked(self, of, who):
        survey = of.survey
        size, d = survey.sample_size, len(survey.attributes)
        if survey.assigned:
            return np.flatnonzero(survey.lots.attributes(fleet.reporter(who), NOW, size, d)[0]).tolist()
        return sorted(self.rng.sample(range(d), size))

    def bits(self, instrument, *, legal=True):
        """The bits of one symbol, or of an illegal one; None if there is none."""
        width = instrument.bits
        if isinstance(instrument, OUE) or instrument.name == "OneBit":
            return format(self.rng.getrandbits(width), f"0{width}b") if legal else None
        if isinstance(instrument, OLH):
            halves = [self.rng.randrange(2**32 - 5) for _ in range(2)]
            value = self.rng.randrange(instrument.buckets)
            if not legal:
                fault = self.rng.randrange(3)
                if fault == 2:
                    value = self.rng.randrange(instrument.buckets, 2 ** (width - 64))
                else:
                    halves[fault] = self.rng.randrange(2**32 - 5, 2**32)
            return f"{halves[0]:032b}{halves[1]:032b}{value:0{width - 64}b}"
        low, high = (0, instrument.size) if legal else (instrument.size, 2**width)
        return f"{self.rng.randrange(low, high):0{width}b}" if low < high else None

    def joined(self, of, asked, pieces, mask_end="", end=""):
        d = len(of.survey.attributes)
        mask = "".join("1" if place in asked else "0" for place in range(d)) + mask_end
        whole = [one.ljust(-(-len(one) // 8) * 8, "0") for one in (mask, "".join(pieces) + end)]
        return b"".join(int(one, 2).to_bytes(len(one) // 8, "big") if one else b"" for one in whole)

    def legal(self, of, asked):
        return [self.bits(of.survey.instruments[place]) for place in asked]

    def with_illegal_symbol(self, of, who):
        asked = self.asked(of, who)
        pieces = self.legal(of, asked)
        for number in self.rng.sample(range(len(asked)), len(asked)):
            piece = self.bits(of.survey.instruments[asked[number]], legal=False)
            if piece is not None:
                pieces[number] = piece
                return self.joined(of, asked, pieces)
        return None

    def with_padding(self, of, who):
        asked = self.asked(of, who)
        pieces, d = self.legal(of, asked), len(of.survey.attributes)
        if d % 8 and self.rng.random() < 0.3:
            spare = 8 - d % 8
            return self.joined(of, asked, pieces, mask_end=f"{self.rng.randrange(1, 2**spare):0{spare}b}")
        spare = -sum(map(len, pieces)) % 8
        if not spare:
            return None
        return self.joined(of, asked, pieces, end=f"{self.rng.randrange(1, 2**spare):0{spare}b}")

    def with_another_count(self, of, who):
        d, size = len(of.survey.attributes), of.survey.sample_size
        count = self.rng.choice([n for n in range(d + 1) if n != size])
        asked = sorted(self.rng.sample(range(d), count))
        return self.joined(of, asked, self.legal(of, asked)) + (b"" if count else b"\0")

    def with_other_attributes(self, of, who):
        if not of.survey.assigned:
            return None
        size, d = of.survey.sample_size, len(of.survey.attributes)
        right = self.asked(of, who)
        while (asked := sorted(self.rng.sample(range(d), size))) == right:
            pass
        return self.joined(of, asked, self.legal(of, asked))

    # Reports

    def tagged(self, pool, period=NOW):
        of, who, body = self.rng.choice(pool)
        return of.report(who, period, self.nonce(), body)

    def content(self, pool=None):
        """The content of a report and the key for its tag."""
        of, who, body = self.rng.choice(pool or self.good)
        return of.report(who, NOW, self.nonce(), body)[:-TAG_BYTES], who.key

    def random_bytes(self):
        return self.rng.randbytes(self.rng.randrange(120))

    def random_after_head(self):
        report = self.tagged(self.good)
        keep = self.rng.choice((1, 9, 13, 21, 29))
        return report[:keep] + self.rng.randbytes(
            self.rng.choice((len(report) - keep, self.rng.randrange(80)))
        )

    def truncated(self):
        report = self.tagged(self.good)
        return report[: self.rng.randrange(len(report))]

    def truncated_and_tagged(self):
        content, key = self.content()
        content = content[: self.rng.randrange(len(content))]
        return content + tag(key, Use.SURVEY, content)

    def longer(self):
        return self.tagged(self.good) + self.rng.randbytes(self.rng.randrange(1, 40))

    def longer_and_tagged(self):
        content, key = self.content()
        content += self.rng.choice((bytes, self.rng.randbytes))(self.rng.randrange(1, 40))
        return content + tag(key, Use.SURVEY, content)

    def flipped(self):
        report = bytearray(self.tagged(self.good))
        for place in self.rng.sample(range(8 * len(report)), self.rng.choice((1, 1, 2, 5))):
            report[place // 8] ^= 1 << place % 8
        return bytes(report)

    def of_another_survey(self):
        content, key = self.content()
        content = content[:1] + self.rng.randbytes(8) + content[9:]
        return content + tag(key, Use.SURVEY, content)

    def of_another_period(self):
        near = self.rng.choice((0, 3, NOW - 2, NOW + 2, 23, 24, 2**31, 2**32 - 1))
        return self.tagged(self.good, self.rng.choice((near, self.rng.randrange(24, 2**32))))

    def of_another_version(self):
        content, key = self.content()
        content = bytes([self.rng.choice((0, 1, 3, 128, 255))]) + content[1:]
        return content + tag(key, Use.SURVEY, content)

    def of_somebody_else(self):
        victim, thief = self.rng.sample(self.attackers, 2)
        content = self.content()[0]
        content = content[:13] + victim.id + content[21:]
        return content + tag(thief.key, Use.SURVEY, content)

    def of_nobody(self):
        content, key = self.content()
        content = content[:13] + self.rng.randbytes(8) + content[21:]
        return content + tag(key, Use.SURVEY, content)

    def of_a_revoked(self):
        of, _, body = self.rng.choice([self.good[0], self.good[-1]])
        return of.report(self.revoked, NOW, self.nonce(), body)

    def replayed(self):
        return self.rng.choice(self.honest)

    def second(self):
        of = self.rng.choice(self.layouts)
        who = fleet.enrolment(self.rng.choice(HONEST))
        asked = self.asked(of, who)
        return of.report(who, NOW, self.nonce(), self.joined(of, asked, self.legal(of, asked)))

    def kinds(self):
        """Each kind, and what may be said of it; of None anything but that it is counted."""
        return {
            "random bytes": (self.random_bytes, None),
            "random after the head": (self.random_after_head, None),
            "truncated": (self.truncated, None),
            "truncated and tagged": (self.truncated_and_tagged, None),
            "longer": (self.longer, None),
            "longer and tagged": (self.longer_and_tagged, {"length"}),
            "flipped": (self.flipped, None),
            "illegal symbol": (lambda: self.tagged(self.symbols), {"symbol"}),
            "padding": (lambda: self.tagged(self.padding), {"symbol", "attributes"}),
            "another count": (lambda: self.tagged(self.counts), {"attributes", "length"}),
            "not assigned": (lambda: self.tagged(self.unassigned), {"attributes", "length"}),
            "another survey": (self.of_another_survey, {"survey"}),
            "another period": (self.of_another_period, {"period"}),
            "another version": (self.of_another_version, {"version"}),
            "somebody else": (self.of_somebody_else, {"tag"}),
            "nobody": (self.of_nobody, {"tag"}),
            "revoked": (self.of_a_revoked, {"revoked"}),
            "replayed": (self.replayed, {"duplicate"}),
            "second": (self.second, {"second"}),
        }


def table(collector):
    return [
        array.tolist()
        for survey in SURVEYS
        for array in (*collector.tally(survey).counts, *collector.tally(survey).reports)
    ]


def attacked(collector, count, seed=17):
    """Send honest reports, then `count` bad ones; what went wrong, by kind, and what was said."""
    attack, trouble, told = Attack(seed), Counter(), Counter()
    collector.revoke(attack.revoked.id)
    assert {one.value for one in collector.receive(attack.honest)} == {"counted"}
    before, kinds = table(collector), attack.kinds()
    names = list(kinds)
    for start in range(0, count, BATCH):
        chosen = attack.rng.choices(names, k=min(BATCH, count - start))
        bad = [kinds[name][0]() for name in chosen]
        try:
            outcomes = collector.receive(bad)
        except Exception as error:
            trouble[f"crash: {type(error).__name__}"] += 1
            continue
        for name, outcome in zip(chosen, outcomes, strict=True):
            told[outcome.value] += 1
            allowed = kinds[name][1]
            is_right = outcome.value in allowed if allowed else not outcome.is_acknowledged
            trouble[name] += not is_right
    try:
        trouble["table"] += table(collector) != before
    except IndexError:  # it holds a symbol that there is not
        trouble["table"] += 1
    return +trouble, told


@pytest.fixture
def collector(collecting):
    return collecting(*SURVEYS, late_s=fleet.PERIOD_S, early_s=fleet.PERIOD_S)


def check_all_refused(collector, count):
    trouble, told = attacked(collector, count)
    assert trouble == {}
    assert sum(told.values()) == count
    assert told["counted"] == 0
    rejected = collector.rejected()
    assert {reason: n for reason, n in told.items() if reason != "duplicate"} == rejected
    assert set(rejected) == {
        *("version", "length", "survey", "tag", "revoked", "period", "attributes", "symbol", "second")
    }


def test_bad_reports_are_refused_and_counted(collector):
    check_all_refused(collector, QUICK)


@pytest.mark.slow
def test_a_million_bad_reports_are_refused_and_counted(collector):
    check_all_refused(collector, FULL)


# Planted bugs: each is found by the same attack


def found(collector, count=4_000):
    return set(attacked(collector, count)[0])


def test_planted_no_tag_check(collector, monkeypatch):
    monkeypatch.setattr(intake, "are_genuine", lambda _, table, *rest: np.ones(len(table), dtype=bool))
    assert found(collector) >= {"flipped", "somebody else", "nobody", "table"}


def test_planted_no_symbol_check(collector, monkeypatch):
    real = wire._from_bits

    def lenient(instrument, bits):
        symbols, legal = real(instrument, bits)
        return symbols, np.ones_like(legal)

    monkeypatch.setattr(wire, "_from_bits", lenient)
    trouble = found(collector)
    assert trouble & {"illegal symbol", "crash: ParameterError", "crash: IndexError"}


def test_planted_no_padding_check(collector, monkeypatch):
    real = Layout.read

    def lenient(self, bodies):
        bodies = bodies.copy()
        for row in bodies:
            d = len(self.survey.attributes)
            mask = np.unpackbits(row[: self.mask_bytes])[:d]
            if mask.size == d:
                row[: self.mask_bytes] = np.packbits(mask)
                bits = np.unpackbits(row[self.mask_bytes :])
                bits[int((mask * self.widths).sum()) :] = 0
                row[self.mask_bytes :] = np.packbits(bits)
        return real(self, bodies)

    monkeypatch.setattr(Layout, "read", lenient)
    assert found(collector) >= {"padding", "table"}


def test_planted_replays_counted(collector, monkeypatch):
    monkeypatch.setattr(
        counts_in_sqlite, "_SEE", counts_in_sqlite._SEE.replace("INSERT OR IGNORE", "INSERT OR REPLACE")
    )
    assert found(collector) >= {"replayed", "second", "table"}


def test_planted_attributes_not_compared(collector, monkeypatch):
    """The collector believes every sender that these are the attributes assigned."""
    layout = collector._held[SURVEYS[1].id].layout
    real = layout.read

    def trusting(bodies):
        read = real(bodies)
        layout.survey.lots.attributes = lambda *_: read.asked
        return read

    monkeypatch.setattr(layout, "read", trusting)
    assert found(collector) >= {"not assigned", "table"}


def test_planted_periods_not_checked(collector, monkeypatch):
    monkeypatch.setattr(collector, "_late_s", 1e9)
    monkeypatch.setattr(collector, "_early_s", 1e9)
    assert found(collector) >= {"another period", "table"}
