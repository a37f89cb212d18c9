"""The span of what was bought: pricing and answering one number beside 5,000 recorded values.

The values are those of seven tables and of thousands of counts, sums, means and shares below conditions of
one to four columns, about a population of seven. Every question that is timed is a new one.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Iterator

from benchmarks.measure import Figure
from reticent.ledger import Reading
from reticent.privacy import Budget
from reticent.query import By, Column, DataSet, Kind, Query
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.language.tree import And, Comparison, In, Predicate
from reticent.query.measure import Plan, plan
from reticent.query.span import Joint, combined_cells

VALUES = 5_000
TIMED = 300
REGIONS = tuple(f"r{number:02d}" for number in range(26))
DATA = DataSet(
    "bench",
    "1",
    (
        Column("region", Kind.CATEGORY, values=REGIONS),
        Column("sex", Kind.CATEGORY, values=("f", "m")),
        Column("age", Kind.INTEGER, low=0, high=99),
        Column("education", Kind.INTEGER, low=1, high=16),
        Column("income", Kind.NUMBER, low=0, high=200_000, step=1),
        Column("employed", Kind.BOOLEAN),
        Column("children", Kind.INTEGER, low=0, high=9),
    ),
    Budget(40.0, 1e-6),
    rows=1_000_000,
)
TABLES = (
    tree.histogram("region"),
    tree.histogram(["region", By("age", bins=10)]),
    tree.histogram([By("age", bins=20), "sex", "employed"]),
    tree.histogram([By("education", bins=16), "sex"]),
    tree.mean("income", by="region"),
    tree.total("income", by=["sex", By("age", bins=10)]),
    tree.mean("children", by=["region", "sex"]),
)


def leaf(rng: random.Random) -> Predicate:
    match rng.randrange(6):
        case 0:
            return Comparison("region", "=", rng.choice(REGIONS))
        case 1:
            return Comparison("sex", "=", rng.choice("fm"))
        case 2:
            return Comparison("age", rng.choice((">=", "<")), 10 * rng.randrange(1, 10))
        case 3:
            return Comparison("education", ">=", rng.randrange(6, 15))
        case 4:
            return Comparison("employed", "=", rng.random() < 0.5)
        case _:
            return In("region", tuple(rng.sample(REGIONS, 3)))


def where(rng: random.Random) -> Predicate:
    parts = tuple(leaf(rng) for _ in range(rng.choice((1, 1, 2, 2, 3, 4))))
    return parts[0] if len(parts) == 1 else And(parts)


def scalar(rng: random.Random) -> Query:
    rows = where(rng)
    match rng.randrange(6):
        case 0:
            return tree.total("income", where=rows)
        case 1:
            return tree.mean("age", where=rows)
        case 2:
            return tree.proportion(leaf(rng), where=rows)
        case _:
            return tree.count(where=rows)


def planned(query: Query) -> Plan:
    return plan(resolve(query, DATA))


def bought(prepared: Plan, units: int, rng: random.Random) -> Reading:
    sums = tuple(units * rng.randrange(1 << 40) for _ in range(prepared.values))
    return Reading(DATA.account, prepared.question.key, units, sums, 0)


def purchases(rng: random.Random) -> Iterator[Plan]:
    yield from (planned(query) for query in TABLES)
    while True:
        yield planned(scalar(rng))


def recorded(rng: random.Random) -> Joint:
    """All purchases, recorded."""
    joint = Joint(DATA)
    for prepared in purchases(rng):
        joint.record(prepared, bought(prepared, rng.randrange(10**8, 10**10), rng))
        if len(joint) >= VALUES:
            return joint
    raise AssertionError


def milliseconds() -> float:
    """CPU, the 95th of 100: plan, price, and answer where it is in the span."""
    rng = random.Random(1)
    joint = recorded(rng)
    taken: list[float] = []
    asked = {
        planned(query).question.key: query for query in (tree.count(where=where(rng)) for _ in range(2000))
    }
    fresh = [query for key, query in asked.items() if not joint.recorded(key)][:TIMED]
    for query in fresh:
        wanted = rng.randrange(10**8, 10**10)
        start = time.process_time()
        prepared = planned(query)
        joint.fresh(prepared, wanted)
        found = joint.estimates(prepared)
        if found is not None:
            combined_cells(query, prepared, found, 0.95)
        taken.append(1000 * (time.process_time() - start))
    assert len(taken) == TIMED
    return sorted(taken)[int(0.95 * TIMED)]


def megabytes() -> float:
    """Of memory, held by 5,000 values after they were asked about."""
    rng = random.Random(1)
    tracemalloc.start()
    joint = recorded(rng)
    for _ in range(300):
        joint.estimates(planned(tree.count(where=where(rng))))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(joint) >= VALUES
    return held / 2**20


FIGURES = [
    Figure("span: ms CPU p95 to price and answer a number", "5 ms", 5.0, milliseconds, at_most=True),
    Figure("span: MB held by 5,000 recorded values", "32 MB", 32.0, megabytes, at_most=True),
]
