"""Many enrolled devices at once: reports as `Device` makes them, drawn together and without ledgers."""

import dataclasses
import functools
import os
import time

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.collect.collector import Collector
from reticent.collect.design import designed
from reticent.collect.signing import signed
from reticent.collect.wire import Layout
from reticent.fleet.enrolment import enrolled
from reticent.mechanisms.numeric.one_bit import OneBit
from reticent.mechanisms.record import Category, Number
from reticent.mechanisms.sampling import sampled_attributes
from reticent.randomness import SimulationStream

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
SIGNER = KEY.public_key().public_bytes_raw()
MASTER = bytes(range(50, 82))
KINDS = ("car", "bus", "bike", "train")
PERIOD_S = 3600


def make_survey(**changes):
    """A survey of two attributes, one in each report; its first period began 1,000 seconds ago."""
    fresh = {"start": int(time.time()) - 1000, "key": os.urandom(32)}
    return dataclasses.replace(_designed(changes.get("sample_size", 1)), **fresh | changes)


@functools.cache
def _designed(sample_size):
    return designed(
        "fleet",
        [Number("speed", (0.0, 130.0)), Category("kind", KINDS)],
        epsilon=2.0,
        purpose="to know the traffic",
        start=0,
        period_s=PERIOD_S,
        periods=1000,
        sample_size=sample_size,
        groups=4,
        mechanisms={"speed": "OneBit", "kind": "KRR"},
    )


class Fleet:
    """Devices that are enrolled, and what they say.

    Args:
        size: how many.
        survey: whose attributes are numbers under channels and categories under KRR.
        key: of the operator who signs the survey.
        master: of the operator who enrols.
        seed: of what they hold and draw.
    """

    def __init__(self, size, survey=None, *, key=KEY, master=MASTER, seed=1):
        self.survey = make_survey() if survey is None else survey
        self.file = signed(self.survey, key)
        self.devices = [enrolled(master) for _ in range(size)]
        self.ids = np.array([int.from_bytes(one.id, "big") for one in self.devices], dtype=np.uint64)
        self._stream, self._rng = SimulationStream(seed), np.random.default_rng(seed)
        self._layout = Layout(self.survey)
        self._bodies = {}
        self._drawn = [[] for _ in self.survey.attributes]  # (group, symbol) of each report ever made

    def reports(self, period=0):
        """A report of each device, with fresh noise and nonces."""
        survey, n = self.survey, len(self.devices)
        asked = sampled_attributes(n, len(survey.attributes), survey.sample_size, self._stream)
        groups = survey.lots.group(self.ids, survey.groups)
        said = [[] for _ in range(n)]
        for place, attribute in enumerate(survey.attributes):
            rows = np.flatnonzero((asked == place).any(axis=1))
            symbols = self._symbols(place, attribute, rows, period) if rows.size else []
            self._drawn[place] += zip(groups[rows].tolist(), symbols, strict=True)
            for row, symbol in zip(rows.tolist(), symbols, strict=True):
                said[row].append((place, symbol))
        return [
            self._layout.report(device, period, os.urandom(8), self._body(tuple(one)))
            for device, one in zip(self.devices, said, strict=True)
        ]

    def _symbols(self, place, attribute, rows, period):
        instrument, options = self.survey.instruments[place], {}
        if isinstance(attribute, Number):
            values = self._rng.uniform(*attribute.bounds, rows.size)
        else:
            values = self._rng.choice(attribute.values, rows.size)
        if isinstance(instrument, OneBit):
            levels = instrument.dither_levels
            options["dither"] = self.survey.lots.dither(self.ids[rows], period, place, levels)
        return instrument.sample(values, self._stream, **options).tolist()

    def _body(self, said):
        if said not in self._bodies:
            places, symbols = zip(*said, strict=True)
            self._bodies[said] = self._layout.body(places, [np.array([one]) for one in symbols])
        return self._bodies[said]

    def collector(self, path, **options):
        """A collector of this survey."""
        made = Collector(path, MASTER, **options)
        made.collect(self.file, SIGNER)
        return made

    def faults(self, collector):
        """What is wrong if every report ever made must have been counted once, in words."""
        tally, wrong = collector.tally(self.survey), []
        for place, drawn in enumerate(self._drawn):
            expected = np.zeros_like(tally.counts[place])
            if drawn:
                np.add.at(expected, tuple(np.array(drawn).T), 1)
            difference = tally.counts[place] - expected
            if (difference < 0).any():
                wrong.append(f"attribute {place}: {-difference[difference < 0].sum()} lost")
            if (difference > 0).any():
                wrong.append(f"attribute {place}: {difference[difference > 0].sum()} too many")
            if not np.array_equal(tally.reports[place], expected.sum(axis=1)):
                wrong.append(f"attribute {place}: the number of reports is not that of the symbols")
        return wrong
