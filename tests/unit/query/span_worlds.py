"""For the tests of the span: exact vectors row by row, simulated purchases, and dense least squares.

Nothing here knows of corners. A world is the number of rows of every combination of codes; a coordinate of a
question is a vector over these combinations, from the table in `measure` by hand; what is known of it follows
from numpy's pseudo-inverse.
"""

from __future__ import annotations

import random
from itertools import product

import numpy as np

from reticent.ledger import Reading
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.query.kinds.base import bounds
from reticent.query.language.conditions import holds
from reticent.query.language.questions import resolve
from reticent.query.measure import Plan, plan
from reticent.query.span import Joint


def planned(query, data) -> Plan:
    return plan(resolve(query, data))


class World:
    """Made-up rows of a declaration, by the number of each combination of codes."""

    def __init__(self, data, seed=0, *, rows=50):
        self.data, self.rng = data, random.Random(seed)
        every = np.array(list(product(*(range(one.first, one.last + 1) for one in data.columns))))
        self.codes = {one.name: every[:, at] for at, one in enumerate(data.columns)}
        size = data.rows if data.rows is not None else rows
        drawn = [self.rng.randrange(len(every)) for _ in range(size)]
        self.numbers = np.bincount(drawn, minlength=len(every))

    def matrix(self, prepared: Plan) -> list[list[int]]:
        """The coordinates of a vector in units (not on the grid) of one row of each combination."""
        question = prepared.question
        where = holds(question.where, self.codes)
        cell = np.zeros(self.numbers.size, dtype=int)
        for one in question.by:
            first = self.data.column(one.column).first
            codes = self.codes[one.column]
            place = codes - first if one.cuts is None else np.searchsorted(one.cuts, codes, side="right")
            cell = cell * one.cells + place
        if question.column is not None:
            x = self.codes[question.column].astype(object)
        else:
            x = holds(question.of, self.codes).astype(int).astype(object)
        low, high = bounds(question)
        z, h, one = 2 * x - (low + high), high - low, np.ones(self.numbers.size, dtype=object)
        listed = {
            "count": [one],
            "sum": [x - prepared.offset],
            "mean": [z, one],
            "share": [z, one],
            "squares": [2 * h * z, 2 * z * z - h * h],
            "variance": [2 * h * z, 2 * z * z - h * h, one],
        }[question.measured.name]
        return [
            list(np.where(where & (cell == number), part, 0))
            for number in range(question.cells)
            for part in listed
        ]

    def scales(self, prepared: Plan) -> list[float]:
        """Grid units of one unit of each coordinate."""
        grid = [2.0**prepared.shift] * prepared.coordinates
        if prepared.weight:
            grid[-1] = float(prepared.weight)
        return grid * prepared.question.cells

    def exact(self, prepared: Plan) -> list[float]:
        """The vector in grid units."""
        parts = zip(self.matrix(prepared), self.scales(prepared), strict=True)
        return [float(np.dot(part, self.numbers)) * scale for part, scale in parts]

    def bought(self, prepared: Plan, reading: Reading | None, units: int) -> Reading:
        """What is recorded after so many fresh units more."""
        noise = prepared.sensitivity / (units / UNITS_PER_ONE) ** 0.5
        drawn = [round(one + self.rng.gauss(0, noise)) for one in self.exact(prepared)]
        before = reading.sums if reading is not None else (0,) * prepared.values
        held = reading.information if reading is not None else 0
        sums = tuple(old + units * new for old, new in zip(before, drawn, strict=True))
        return Reading(self.data.account, prepared.question.key, held + units, sums, 0)


class Dense:
    """Least squares over every recorded value, with floats and without any thought of sparseness."""

    def __init__(self, world: World):
        self.world, self._readings, self._matrices = world, {}, {}

    def update(self, joint: Joint) -> None:
        """Know what the other side knows."""
        self._readings = {one.reading.key: (one.plan, one.reading) for one in joint._purchases.values()}

    def _matrix(self, prepared):
        key = prepared.question.key
        if key not in self._matrices:
            self._matrices[key] = np.array(self.world.matrix(prepared), dtype=float)
        return self._matrices[key]

    def best(self, prepared: Plan) -> list[tuple[float, float] | None]:
        """Value in grid units and information of each coordinate; None where it is not known at all."""
        targets = self._matrix(prepared)
        scales = np.array(self.world.scales(prepared))
        atoms, public = targets.shape[1], self.world.data.rows
        rows, variances, values = np.zeros((0, atoms)), [], []
        for one, reading in self._readings.values():
            rows = np.vstack([rows, self._matrix(one)])
            units = np.array(self.world.scales(one))
            variances += list((one.sensitivity / units) ** 2 / reading.information)
            values += list(np.array(reading.sums, dtype=float) / reading.information / units)
        constants, rest = np.zeros(len(rows)), np.zeros(len(targets))
        if public is not None:  # the sum of all numbers is known: project it out
            constants, rest = rows.mean(axis=1), targets.mean(axis=1)
            rows, targets = rows - constants[:, None], targets - rest[:, None]
        deviations = np.sqrt(variances)
        weighted = (rows / deviations[:, None]).T
        largest = max(1e-300, np.abs(weighted).max(initial=0.0))
        found = np.linalg.pinv(weighted / largest, rcond=1e-11) @ targets.T / largest
        missed = np.abs(weighted @ found - targets.T).max(axis=0)
        answers = []
        for place, scale in enumerate(scales):
            if missed[place] > 1e-6 * max(1.0, np.abs(targets[place]).max()):
                answers.append(None)
                continue
            weights = found[:, place] / deviations
            known = (rest[place] - float(weights @ constants)) * (public or 0)
            value = float(weights @ np.array(values)) + known
            variance, unit = float(found[:, place] @ found[:, place]), (prepared.sensitivity / scale) ** 2
            answers.append((value * scale, unit / variance if variance else np.inf))
        return answers
