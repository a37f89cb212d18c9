"""Random schemas, queries and rewritings, and a naive reference that says when two queries ask the same.

The reference shares nothing with the source but the tree: it works on raw values (some missing, some out of
bounds), scaled to whole numbers, row by row with numpy. Steps of a thousandth are its unit.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import numpy as np

from reticent.privacy import Budget, Neighbours
from reticent.query.declarations.datasets import DataSet
from reticent.query.language import sql
from reticent.query.language.questions import resolve
from reticent.query.language.tree import And, By, Comparison, In, Not, Or, Query, from_json, to_json
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


# Other ways to write the same


def vary(rng: random.Random, declared: Declared, given):
    """A predicate that means the same."""
    if given is None:
        return rng.choice((None, And(()), Not(Or(()))))
    match given:
        case And(parts) | Or(parts):
            kind, other = (And, Or) if isinstance(given, And) else (Or, And)
            varied = [vary(rng, declared, one) for one in parts]
            if varied and rng.random() < 0.4:
                varied.append(rng.choice(varied))
            rng.shuffle(varied)
            if len(varied) > 2 and rng.random() < 0.4:
                varied = [kind(tuple(varied[:2])), *varied[2:]]
            if rng.random() < 0.2:
                varied.append(kind(()))
            if rng.random() < 0.2:
                varied = [Or((one,)) if rng.random() < 0.5 else And((one,)) for one in varied]
            if len(varied) > 1 and rng.random() < 0.2:  # absorption: a and (a or b)
                varied.append(other((*varied[:1], leaf(rng, declared))))
            if rng.random() < 0.4:
                found = Not(other(tuple(Not(one) for one in varied)))  # De Morgan
            else:
                found = kind(tuple(varied))
        case Not(part):
            if isinstance(part, Not) and rng.random() < 0.5:
                found = vary(rng, declared, part.part)
            else:
                found = Not(vary(rng, declared, part))
        case In(column, constants):
            listed = [*constants, *rng.choices(constants, k=1)] if constants else []
            rng.shuffle(listed)
            equal = [Comparison(column, "=", one) for one in listed]
            found = rng.choice((In(column, tuple(listed)), Or(tuple(equal))))
        case Comparison():
            found = vary_comparison(rng, declared.spec(given.column), given)
    return Not(Not(found)) if rng.random() < 0.2 else found


def vary_comparison(rng: random.Random, spec: Spec, given: Comparison):
    column, op, constant = given.column, given.op, given.value
    ways = [given, Not(Comparison(column, NEGATED[op], constant))]
    if op == "=":
        ways += [In(column, (constant,)), In(column, (constant, constant))]
    if op == "!=":
        ways += [Not(In(column, (constant,)))]
    if spec.kind is Kind.CATEGORY:
        others = tuple(COLOURS[one] for one in spec.values if COLOURS[one] != constant)
        ways += [Not(In(column, others)) if op == "=" else In(column, others)]
    elif spec.kind is Kind.BOOLEAN:
        ways += [Comparison(column, NEGATED[op], not constant), Comparison(column, op, int(constant))]
    else:
        ways += vary_number(rng, spec, given)
    return rng.choice(ways)


def vary_number(rng: random.Random, spec: Spec, given: Comparison) -> list:
    column, op, constant = given.column, given.op, given.value
    here = scaled(constant)
    above = (here // spec.step + 1) * spec.step  # the next values of the column
    below = -(-here // spec.step) * spec.step - spec.step
    half = spec.step // 2
    relation = {
        "=": int.__eq__,
        "!=": int.__ne__,
        "<": int.__lt__,
        "<=": int.__le__,
        ">": int.__gt__,
        ">=": int.__ge__,
    }
    inside = [one for one in spec.grid if relation[op](one, here)]
    ways = [Comparison(column, op, float(constant)), In(column, tuple(number(rng, one) for one in inside))]
    match op:
        case ">":
            ways += [
                Comparison(column, ">=", number(rng, above)),
                Comparison(column, ">", number(rng, above - half)),
            ]
        case "<":
            ways += [
                Comparison(column, "<=", number(rng, below)),
                Comparison(column, "<", number(rng, below + half)),
            ]
        case "=":
            pair = Comparison(column, ">=", constant), Comparison(column, "<=", constant)
            ways += [And(pair), And((*pair, Comparison(column, "<=", number(rng, spec.high))))]
        case "!=":
            ways += [Or((Comparison(column, "<", constant), Comparison(column, ">", constant)))]
    return ways


def vary_grouping(rng: random.Random, spec: Spec, by: By) -> By:
    if by.bins is None or rng.random() < 0.5:
        return by
    bins = min(by.bins, len(spec.grid))
    first = [
        next(at for at in range(len(spec.grid)) if at * bins // len(spec.grid) == j) for j in range(1, bins)
    ]
    return By(by.column, edges=tuple(spec.grid[at] / SCALE for at in first))


def vary_query(rng: random.Random, declared: Declared, given: Query) -> Query:
    """A query that needs the same measurement."""
    by = [vary_grouping(rng, declared.spec(one.column), one) for one in given.by]
    rng.shuffle(by)
    kind, column, levels = given.kind, given.column, given.levels
    where = vary(rng, declared, given.where)
    if kind == "quantile":
        levels = (0.1, 0.9) if rng.random() < 0.5 else levels
        if rng.random() < 0.3:
            kind, column, levels = "histogram", None, ()
    elif kind == "histogram" and rng.random() < 0.5:
        kind = "count"
    elif kind == "mean" and declared.is_counted and given.where is None and not by and rng.random() < 0.5:
        kind = "sum"
    elif kind == "proportion":
        if declared.is_counted and given.where is None and not by and rng.random() < 0.5:
            return Query("count", where=vary(rng, declared, given.of))
        of = vary(rng, declared, given.of)
        if where is not None and rng.random() < 0.3:
            of = And((of, where))
        return Query(kind, None, where, of, tuple(by))
    varied = Query(kind, column, where, None, tuple(by), levels)
    return from_json(to_json(varied)) if rng.random() < 0.2 else varied


# SQL


def name_sql(rng: random.Random, name: str) -> str:
    plain = name.isidentifier() and rng.random() < 0.7
    return name if plain else '"' + name.replace('"', '""') + '"'


def constant_sql(rng: random.Random, constant) -> str:
    if isinstance(constant, bool):
        return rng.choice(("TRUE", "true")) if constant else rng.choice(("FALSE", "false"))
    if isinstance(constant, str):
        return "'" + constant.replace("'", "''") + "'"
    if rng.random() < 0.2:
        return f"{scaled(constant)}e-3"
    return f"({constant})" if rng.random() < 0.1 else str(constant)


def predicate_sql(rng: random.Random, given) -> str:
    match given:
        case Comparison(column, op, constant):
            left, right = name_sql(rng, column), constant_sql(rng, constant)
            if constant is True and op == "=" and rng.random() < 0.5:
                return rng.choice((left, f"{left} IS TRUE"))
            if rng.random() < 0.3:
                turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op)
                left, op, right = right, turned, left
            op = {"!=": rng.choice(("<>", "!=")), "=": rng.choice(("=", "=="))}.get(op, op)
            return f"{left}{rng.choice(('', ' '))}{op} {right}"
        case In(column, constants):
            if not constants:
                return "FALSE"
            listed = ", ".join(constant_sql(rng, one) for one in constants)
            return f"{name_sql(rng, column)} IN ({listed})"
        case Not(In(column, constants)) if constants and rng.random() < 0.5:
            listed = ", ".join(constant_sql(rng, one) for one in constants)
            return f"{name_sql(rng, column)} NOT IN ({listed})"
        case Not(part):
            return f"NOT ({predicate_sql(rng, part)})"
        case And((Comparison(column, ">=", low), Comparison(same, "<=", high))) if column == same:
            return f"{name_sql(rng, column)} BETWEEN {constant_sql(rng, low)} AND {constant_sql(rng, high)}"
        case And(parts):
            texts = [
                f"({predicate_sql(rng, one)})" if isinstance(one, Or) else predicate_sql(rng, one)
                for one in parts
            ]
            return rng.choice((" AND ", " and ", "\n AND ")).join(texts) or "TRUE"
        case Or(parts):
            return rng.choice((" OR ", " or ")).join(predicate_sql(rng, one) for one in parts) or "FALSE"


def query_sql(rng: random.Random, given: Query) -> str | None:
    """The query in SQL, if that can say it."""
    column = "" if given.column is None else name_sql(rng, given.column)
    by = [name_sql(rng, one.column) for one in given.by]
    where = "" if given.where is None else f" WHERE {predicate_sql(rng, given.where)}"
    match given.kind:
        case "quantile" if given.by[0].bins == 256:
            level = given.levels[0]
            asked = rng.choice((f"QUANTILE_CONT({column}, {level})", f"median({column})",
                                f"PERCENTILE_CONT({level}) WITHIN GROUP (ORDER BY {column})"))  # fmt: skip
            return f"SELECT {asked} FROM census{where}"
        case "count" | "histogram":
            asked = rng.choice(("COUNT(*)", "count(*) AS n"))
            if where and rng.random() < 0.3:
                asked, where = f"COUNT(*) FILTER ({where.strip()})", ""
        case "sum" | "mean" | "variance":
            asked = {"sum": "SUM", "mean": "avg", "variance": "VAR_POP"}[given.kind] + f"({column})"
        case "proportion":
            of = predicate_sql(rng, given.of)
            asked = f"AVG(CASE WHEN {of} THEN 1 ELSE 0 END)"
        case _:
            return None
    if any(one.edges is not None or one.bins is not None for one in given.by):
        return None
    group = f" GROUP BY {', '.join(by)}" if by else ""
    listed = ", ".join([*rng.sample(by, rng.randint(0, len(by))), asked])
    return f"SELECT {listed} FROM census{where}{group}"


# Near misses


def near_predicate(rng: random.Random, declared: Declared, given):
    """A predicate with one thing changed."""
    if given is None:
        return leaf(rng, declared)
    match given:
        case And(parts) | Or(parts) if rng.random() < 0.75:
            at = rng.randrange(len(parts))
            changed = near_predicate(rng, declared, parts[at])
            return type(given)((*parts[:at], changed, *parts[at + 1 :]))
        case And(parts):
            return rng.choice((Or(parts), And(parts[1:])))
        case Or(parts):
            return rng.choice((And(parts), Or(parts[1:])))
        case Not(part):
            return part if rng.random() < 0.4 else Not(near_predicate(rng, declared, part))
        case In(column, constants):
            return In(column, constants[1:]) if constants else Not(given)
        case Comparison(column, op, constant):
            spec = declared.spec(column)
            if spec.kind in NUMERIC and rng.random() < 0.6:
                return Comparison(column, op, number(rng, scaled(constant) + rng.choice((-1, 1)) * spec.step))
            if spec.kind in NUMERIC:
                return Comparison(column, rng.choice(list(NEGATED)), constant)
            if spec.kind is Kind.CATEGORY and rng.random() < 0.6:
                return Comparison(column, op, COLOURS[rng.choice(spec.values)])
            return Comparison(column, NEGATED[op], constant)


def near_absorbed(rng: random.Random, declared: Declared, given):
    """What stands beside a predicate follows from it only by mistake: a and (a' or b), a or (a' and b)."""
    if given is None:
        given = leaf(rng, declared)
    inner, outer = rng.choice(((Or, And), (And, Or)))
    parts = getattr(given, "parts", (given,))
    match rng.randrange(3):
        case 0:
            beside = near_predicate(rng, declared, rng.choice(parts))
        case 1:
            beside = outer((rng.choice(parts), leaf(rng, declared)))
        case _:
            at = rng.randrange(len(parts))
            beside = inner((*parts[:at], near_predicate(rng, declared, parts[at]), *parts[at + 1 :]))
    return outer((given, inner((beside, leaf(rng, declared)))))


def near_column(rng: random.Random, declared: Declared, given: Query) -> Query:
    """Another column that would do, in one place."""

    def other(name: str, *, summed: bool) -> str:
        kind = declared.spec(name).kind
        fits = [
            spec.name
            for spec in declared.specs
            if spec.kind is kind or (summed and spec.kind is not Kind.CATEGORY)
        ]
        return rng.choice([one for one in fits if one != name] or fits)

    if given.kind == "quantile":
        return given
    if given.column is not None and rng.random() < 0.6:
        return replace(given, column=other(given.column, summed=True))
    moved = [replace(one, column=other(one.column, summed=False)) for one in given.by if one.edges is None]
    if len({one.column for one in moved}) == len(given.by):
        return replace(given, by=tuple(moved))
    return given


def near_query(rng: random.Random, declared: Declared, given: Query) -> Query:
    choice = rng.randrange(7)
    if len(getattr(given.where, "parts", ())) == len(declared.specs) and rng.random() < 0.5:
        choice = 3
    if choice == 0 and given.kind != "quantile":
        fresh = [spec for spec in declared.specs if spec.name not in {one.column for one in given.by}]
        if given.by and (not fresh or given.kind == "histogram" or rng.random() < 0.5):
            moved = tuple(grouping(rng, declared.spec(one.column)) for one in given.by)
            return replace(given, by=moved)
        return replace(given, by=(*given.by, grouping(rng, rng.choice(fresh))))
    if choice == 1 and given.kind in ("sum", "mean", "variance"):
        return replace(given, kind=rng.choice(("sum", "mean", "variance")))
    if choice == 2 and given.kind == "proportion":
        return replace(given, of=near_predicate(rng, declared, given.of))
    if choice == 3:
        return near_column(rng, declared, given)
    if choice == 4:
        return replace(given, where=near_absorbed(rng, declared, given.where))
    return replace(given, where=near_predicate(rng, declared, given.where))


# The survey


def survey(
    rng: random.Random, pairs: int, *, of=lambda question: question.key, until: str | None = None
) -> Counter:
    """Compare the keys of pairs of queries with the reference.

    Args:
        rng: where the queries come from.
        pairs: how many.
        of: what is compared, if not the keys.
        until: stop at the first of these (`false` or `missed`).

    Returns:
        How many pairs there were (`pairs`), matched (`matched`), and differ in the reference (`differ`); how
        many matched though they differ (`false`), or did not though they are the same rewritten (`missed`).
    """
    found: Counter = Counter()
    while found["pairs"] < pairs and not found[until]:
        declared = random_schema(rng)
        world = World(rng, declared)
        data = declared.data()
        before = None
        for _ in range(40 if until is None else 10):
            asked = query(rng, declared)
            key, answer = of(resolve(asked, data)), world.answer(declared, asked)
            others = [(declared, data, vary_query(rng, declared, asked), True) for _ in range(2)]
            others += [(declared, data, near_query(rng, declared, asked), False) for _ in range(2)]
            changed = near_schema(rng, declared)
            others.append((changed, changed.data(), asked, False))
            if before is not None:
                others.append((declared, data, before, False))
            text = query_sql(rng, asked)
            if text is not None:
                others.append((declared, data, sql.read(text, "census"), True))
                found["sql"] += 1
            for schema, where, other, is_same in others:
                matched = of(resolve(other, where)) == key
                differ = world.answer(schema, other) != answer
                assert not (is_same and differ), (declared, asked, other)  # else the test itself is wrong
                found["pairs"] += 1
                found["same"] += is_same
                found["matched"] += matched
                found["differ"] += differ
                found["false"] += matched and differ
                found["missed"] += is_same and not matched
            before = asked
    return found
