"""Random schemas, queries and rewritings, and a naive reference that says when two queries ask the same.

The reference shares nothing with the source but the tree: it works on raw values (some missing, some out of
bounds), scaled to whole numbers, row by row with numpy. Steps of a thousandth are its unit.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from reticent.query.language import sql
from reticent.query.language.questions import resolve
from reticent.query.language.tree import And, By, Comparison, In, Not, Or, Query, from_json, to_json
from reticent.query.rows.columns import Kind

from .random_queries import (
    COLOURS,
    NEGATED,
    NUMERIC,
    SCALE,
    Declared,
    Spec,
    World,
    grouping,
    leaf,
    near_schema,
    number,
    query,
    random_schema,
    scaled,
)

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
