"""Random declarations and queries, and a reference that answers them row by row."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import numpy as np

from reticent.privacy import Budget, Neighbours
from reticent.query.declarations.datasets import DataSet
from reticent.query.language.tree import And, By, Comparison, In, Not, Or, Query
from reticent.query.rows.columns import Column, Kind

SCALE = 1000
COLOURS = ("red", "green", "blue", "o'hara", "x", "Red")
TABLES = 1000
BUDGET = Budget(1.0, 1e-6)
NUMERIC = (Kind.NUMBER, Kind.INTEGER)
NEGATED = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


# Schemas


@dataclass(frozen=True)
class Spec:
    """A column; numbers in thousandths, categories by their place in COLOURS."""

    name: str
    kind: Kind
    low: int = 0
    high: int = 1
    step: int = SCALE
    values: tuple[int, ...] = ()
    missing: int = 0

    @property
    def grid(self):
        """All values it can have, in the order of their codes."""
        if self.kind is Kind.CATEGORY:
            return self.values
        if self.kind is Kind.BOOLEAN:
            return (0, 1)
        return range(self.low, self.high + 1, self.step)

    def column(self) -> Column:
        if self.kind is Kind.CATEGORY:
            values = tuple(COLOURS[one] for one in self.values)
            return Column(self.name, self.kind, values=values, missing=COLOURS[self.missing])
        if self.kind is Kind.BOOLEAN:
            return Column(self.name, self.kind, missing=bool(self.missing))
        step = None if self.kind is Kind.INTEGER else self.step / SCALE
        numbers = (self.low / SCALE, self.high / SCALE, step)
        return Column(self.name, self.kind, *numbers, missing=self.missing / SCALE)


@dataclass(frozen=True)
class Declared:
    """A data set in the words of the test."""

    specs: tuple[Spec, ...]
    version: str = "1"
    relation: Neighbours = Neighbours.REPLACE_ONE
    person: str | None = None
    contribution: int = 1
    name: str = "census"

    def data(self) -> DataSet:
        n = 50 if self.person is None and self.relation is Neighbours.REPLACE_ONE else None
        columns = tuple(spec.column() for spec in self.specs)
        return DataSet(
            self.name, self.version, columns, BUDGET, self.relation, n, self.person, self.contribution
        )

    @property
    def is_counted(self) -> bool:
        return self.person is None and self.relation is Neighbours.REPLACE_ONE

    def spec(self, name: str) -> Spec:
        return next(one for one in self.specs if one.name == name)


def random_spec(rng: random.Random, name: str, kind: Kind) -> Spec:
    if kind is Kind.CATEGORY:
        values = tuple(rng.sample(range(len(COLOURS)), rng.randint(2, 4)))
        return Spec(name, kind, values=values, missing=rng.choice(values))
    if kind is Kind.BOOLEAN:
        return Spec(name, kind, missing=rng.randint(0, 1))
    step = SCALE if kind is Kind.INTEGER else rng.choice((500, 250, 100, 1000))
    low = step * rng.randint(-4, 2)
    high = low + step * rng.randint(2, 6)
    return Spec(name, kind, low, high, step, missing=rng.randrange(low, high + 1, step))


def random_schema(rng: random.Random) -> Declared:
    kinds = [rng.choice(NUMERIC), Kind.CATEGORY]
    kinds += rng.choices(kinds if rng.random() < 0.5 else list(Kind), k=rng.randint(0, 2))
    names = rng.sample(["a", "b", "year", "my col", 'q"q'], len(kinds))
    return Declared(tuple(random_spec(rng, name, kind) for name, kind in zip(names, kinds, strict=True)))


def near_schema(rng: random.Random, declared: Declared) -> Declared:
    """The same data set but for one thing in what is declared."""
    choice = rng.randrange(6)
    if choice == 0:
        return replace(declared, version="2")
    if choice == 1:
        return replace(declared, relation=Neighbours.ADD_REMOVE_ONE)
    if choice == 2:
        return replace(declared, person="id", contribution=rng.choice((1, 2)))
    at = rng.randrange(len(declared.specs))
    spec = declared.specs[at]
    if choice == 3 or spec.kind is Kind.BOOLEAN:
        changed = replace(spec, missing=rng.choice(spec.grid))
    elif spec.kind is Kind.CATEGORY:
        changed = replace(spec, values=tuple(rng.sample(spec.values, len(spec.values))))
    elif choice == 4:
        changed = replace(spec, high=spec.high + spec.step)
    else:
        changed = replace(spec, low=spec.low - spec.step)
    return replace(declared, specs=(*declared.specs[:at], changed, *declared.specs[at + 1 :]))


# The reference


class World:
    """Raw small tables of one schema, others for each version; the last are all rows one by one."""

    def __init__(self, rng: random.Random, declared: Declared) -> None:
        draw = np.random.default_rng(rng.getrandbits(64))
        sizes = draw.integers(0, 6, TABLES)
        single = min(1000, int(np.prod([len(spec.grid) for spec in declared.specs])))
        self.tables = TABLES + single
        self.table = np.concatenate([np.repeat(np.arange(TABLES), sizes), TABLES + np.arange(single)])
        every = np.array(list(product(*(spec.grid for spec in declared.specs))))
        every = every[draw.permutation(len(every))[:single]]
        self.raw = {}
        for version, (at, spec) in product("12", enumerate(declared.specs)):
            given = draw.choice(self._wide(spec), sizes.sum())
            missing = draw.random(given.size) < 0.15
            whole = np.concatenate([given, every[:, at]])
            self.raw[version, spec.name] = whole, np.concatenate([missing, np.zeros(single, dtype=bool)])
        self._prepared: dict = {}

    @staticmethod
    def _wide(spec: Spec) -> np.ndarray:
        if spec.kind is Kind.CATEGORY:
            return np.arange(len(COLOURS))
        if spec.kind is Kind.BOOLEAN:
            return np.arange(2)
        return np.arange(spec.low - 2 * spec.step, spec.high + 2 * spec.step + 1, spec.step)

    def prepared(self, declared: Declared, name: str) -> np.ndarray:
        """The values of a column after clamping and replacing."""
        spec = declared.spec(name)
        if (declared.version, spec) not in self._prepared:
            raw, missing = self.raw[declared.version, name]
            if spec.kind in NUMERIC:
                values = np.clip(raw, spec.low, spec.high)
            else:
                values = np.where(np.isin(raw, spec.grid), raw, spec.missing)
            self._prepared[declared.version, spec] = np.where(missing, spec.missing, values)
        return self._prepared[declared.version, spec]

    def holds(self, declared: Declared, predicate) -> np.ndarray:
        match predicate:
            case None:
                return np.ones(self.table.size, dtype=bool)
            case And(parts):
                return np.logical_and.reduce(
                    [self.holds(declared, None), *(self.holds(declared, one) for one in parts)]
                )
            case Or(parts):
                return np.logical_or.reduce(
                    [~self.holds(declared, None), *(self.holds(declared, one) for one in parts)]
                )
            case Not(part):
                return ~self.holds(declared, part)
            case In(column, constants):
                equal = [self.holds(declared, Comparison(column, "=", one)) for one in constants]
                return np.logical_or.reduce([~self.holds(declared, None), *equal])
            case Comparison(column, op, constant):
                values = self.prepared(declared, column)
                number = COLOURS.index(constant) if isinstance(constant, str) else constant
                if declared.spec(column).kind in NUMERIC:
                    number = scaled(constant)
                return {"=": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal,
                        ">": np.greater, ">=": np.greater_equal}[op](values, number)  # fmt: skip

    def cells(self, declared: Declared, by: By) -> tuple[np.ndarray, int]:
        spec, values = declared.spec(by.column), self.prepared(declared, by.column)
        if by.edges is not None:
            return np.sum([values >= scaled(edge) for edge in by.edges], axis=0), len(by.edges) + 1
        order = np.array(spec.grid)
        rank = np.argsort(order)[np.searchsorted(np.sort(order), values)]
        if by.bins is None:
            return rank, len(order)
        bins = min(by.bins, len(order))
        return rank * bins // len(order), bins

    def answer(self, declared: Declared, query: Query) -> tuple:
        """What must be measured for a query, on every table, and the promise under which it is."""
        cell, cells = np.zeros(self.table.size, dtype=int), 1
        for by in sorted(query.by, key=lambda one: one.column):
            one, count = self.cells(declared, by)
            cell, cells = cell * count + one, cells * count
        where = self.holds(declared, query.where)
        is_whole = declared.is_counted and where.all() and not query.by
        x = (
            np.ones(self.table.size, dtype=int)
            if query.column is None
            else self.prepared(declared, query.column)
        )
        one = np.ones(self.table.size, dtype=int)
        match query.kind:
            case "sum":
                summed = [x]
            case "mean":
                summed = [x] if is_whole else [x, one]
            case "variance":
                summed = [x, x * x] if is_whole else [x, x * x, one]
            case "proportion":
                of = self.holds(declared, query.of).astype(int)
                summed = [of] if is_whole else [of, one]
            case _:
                summed = [one]
        at = (self.table * cells + cell)[where]
        sums = np.array([np.bincount(at, part[where], self.tables * cells) for part in summed])
        # Promises, and for persons the columns that decide which rows are kept, are no matter of rows.
        promise = (
            declared.relation,
            declared.person,
            declared.contribution,
            declared.specs if declared.person else 0,
        )
        return cells, promise, sums.shape, sums.tobytes()


def scaled(number) -> int:
    exact = Fraction(repr(number)) * SCALE
    assert exact.denominator == 1
    return int(exact)


# Queries


def number(rng: random.Random, thousandths: int) -> int | float:
    if thousandths % SCALE == 0 and rng.random() < 0.7:
        return thousandths // SCALE
    return thousandths / SCALE


def leaf(rng: random.Random, declared: Declared, spec: Spec | None = None):
    spec = spec or rng.choice(declared.specs)
    if spec.kind in NUMERIC:
        some = range(spec.low - spec.step, spec.high + 2 * spec.step, spec.step // 2)
        if rng.random() < 0.25:
            return In(spec.name, tuple(number(rng, one) for one in rng.sample(some, rng.randint(0, 3))))
        return Comparison(spec.name, rng.choice(list(NEGATED)), number(rng, rng.choice(some)))
    values = (False, True, 0, 1) if spec.kind is Kind.BOOLEAN else [COLOURS[one] for one in spec.values]
    if rng.random() < 0.3:
        return In(spec.name, tuple(rng.choices(values, k=rng.randint(0, 3))))
    return Comparison(spec.name, rng.choice(("=", "!=")), rng.choice(values))


def predicate(rng: random.Random, declared: Declared, depth: int):
    draw = rng.random()
    if depth == 0 or draw < 0.35:
        return leaf(rng, declared)
    if draw < 0.5:
        return Not(predicate(rng, declared, depth - 1))
    parts = tuple(predicate(rng, declared, depth - 1) for _ in range(rng.randint(2, 3)))
    return And(parts) if draw < 0.75 else Or(parts)


def grouping(rng: random.Random, spec: Spec, *, quantile: bool = False) -> By:
    if spec.kind not in NUMERIC:
        return By(spec.name)
    if quantile and rng.random() < 0.5:
        return By(spec.name, bins=256)
    if rng.random() < 0.5:
        return By(spec.name, bins=rng.randint(2, 9))
    inner = spec.grid[1:]
    edges = sorted(rng.sample(inner, rng.randint(1, len(inner))))
    return By(spec.name, edges=tuple(one / SCALE for one in edges))


def query(rng: random.Random, declared: Declared) -> Query:
    kind = rng.choice(("count", "sum", "mean", "proportion", "variance", "histogram", "quantile"))
    where = None if rng.random() < 0.25 else predicate(rng, declared, rng.randint(0, 3))
    if rng.random() < 0.15:  # so that another column in another place is still read
        where = rng.choice((And, Or))(tuple(leaf(rng, declared, spec) for spec in declared.specs))
    summable = [spec for spec in declared.specs if spec.kind is not Kind.CATEGORY]
    if kind == "quantile":
        spec = rng.choice([spec for spec in summable if spec.kind in NUMERIC])
        by = (grouping(rng, spec, quantile=True),)
        return Query(kind, spec.name, where, by=by, levels=(rng.choice((0.25, 0.5)),))
    count = rng.choice((0, 0, 1, 2)) if kind != "histogram" else rng.randint(1, 2)
    by = tuple(grouping(rng, spec) for spec in rng.sample(declared.specs, count))
    if kind == "proportion":
        return Query(kind, None, where, predicate(rng, declared, rng.randint(0, 2)), by)
    column = rng.choice(summable).name if kind in ("sum", "mean", "variance") else None
    return Query(kind, column, where, by=by)
