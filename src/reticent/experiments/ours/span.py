"""What reuse of everything in the span saves: drill-downs and a dashboard over a census, at equal error.

An analyst looks at one of 26 areas after the other: how many people live there, which share of them works,
and their mean income; then the same of each sex and of each of three ages, and of one of these by the other.
Counts shall be within 60 people, shares within 60 people of so many, mean incomes within 3,000 for an area
and more for a part of it, as there are fewer people; at 95 %. A dashboard shows how many people each area
has, for every filter by sex and by age. Charged is what the rule of the own key charges (the units that are
missing under the question itself), and what is missing once all purchases are combined; with a plan, a fine
table is bought first, at the level at which everything together is cheapest.

Prices depend on the declaration alone, never on rows, so no data is read: the declaration is that of the
public-use sample of Connecticut, 92,368 people in 26 areas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.ledger import Reading
from reticent.privacy import Budget
from reticent.query import By, Column, DataSet, Kind, Query
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.language.tree import And, Comparison, Predicate
from reticent.query.measure import Plan, plan
from reticent.query.prices import predicted_error, units_for_error
from reticent.query.span import Joint
from reticent.randomness import SimulationStream

AREAS = tuple(f"{number:02d}" for number in range(26))
AGES = (18, 65)
PEOPLE = DataSet(
    "census",
    "2018",
    (
        Column("area", Kind.CATEGORY, values=AREAS),
        Column("sex", Kind.CATEGORY, values=("f", "m")),
        Column("age", Kind.INTEGER, low=0, high=99),
        Column("works", Kind.BOOLEAN),
        Column("income", Kind.NUMBER, low=0, high=150_000, step=1),
    ),
    Budget(epsilon=4.0, delta=1e-6),
    rows=92_368,
)
QUESTIONS, CONFIDENCE = 150, 0.95
PEOPLE_ERROR, INCOME_ERROR = 60.0, 3_000.0
LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)  # of the fine table, in what its own cells need
SPLITS: tuple[tuple[Predicate, ...], ...] = (
    (Comparison("sex", "=", "f"), Comparison("sex", "=", "m")),
    (
        Comparison("age", "<", AGES[0]),
        And((Comparison("age", ">=", AGES[0]), Comparison("age", "<", AGES[1]))),
        Comparison("age", ">=", AGES[1]),
    ),
)
T = TypeVar("T")
Asked = tuple[Query, int]
"""A query, and how many people each number in it is taken to be about."""


def drill_down(stream: SimulationStream) -> list[Asked]:
    """The questions of one analyst, in order."""
    asked: list[Asked] = []
    while len(asked) < QUESTIONS:
        area = Comparison("area", "=", _chosen(stream, AREAS))
        size = (PEOPLE.rows or 0) // len(AREAS)
        one, other = SPLITS if _unit(stream) < 0.5 else SPLITS[::-1]
        asked += _looked_at((area,), size)
        for part in (*one, *other):
            asked += _looked_at((area, part), size // len(one if part in one else other))
        closer = _chosen(stream, one)
        for part in other:
            asked += _looked_at((area, closer, part), size // len(one) // len(other))
    return asked[:QUESTIONS]


def _looked_at(rows: tuple[Predicate, ...], size: int) -> list[Asked]:
    """How many, which share of them works, and their mean income."""
    where = _all(rows)
    return [
        (tree.count(where=where), size),
        (tree.proportion(Comparison("works", "=", True), where=where), size),
        (tree.mean("income", where=where), size),
    ]


def _chosen(stream: SimulationStream, among: Sequence[T]) -> T:
    return among[int(_unit(stream) * len(among))]


def _unit(stream: SimulationStream) -> float:
    return float(stream.units(1)[0]) - 1.0  # they lie in [1, 2)


def dashboard() -> list[Asked]:
    """Its tables, the widest first."""
    sexes: tuple[tuple[Predicate, ...], ...] = ((), *((one,) for one in SPLITS[0]))
    ages: tuple[tuple[Predicate, ...], ...] = ((), *((one,) for one in SPLITS[1]))
    filters = [(*sex, *age) for sex in sexes for age in ages]
    size = (PEOPLE.rows or 0) // len(AREAS)
    return [(tree.count(where=_all(rows), by="area"), size // (1 + len(rows))) for rows in filters]


def fine() -> Asked:
    """The table that the plan buys first."""
    by = ["area", "sex", By("age", edges=AGES)]
    return tree.count(by=by), (PEOPLE.rows or 0) // len(AREAS) // 6


def _all(rows: Sequence[Predicate]) -> Predicate | None:
    return None if not rows else rows[0] if len(rows) == 1 else And(tuple(rows))


def wanted(query: Query, prepared: Plan, size: int) -> int:
    """The units at which a question is as exact as the analyst wants it."""
    whole = (PEOPLE.rows or 0) // len(AREAS)
    ratios = {"mean": INCOME_ERROR * whole / size, "proportion": PEOPLE_ERROR / size}
    error = ratios.get(query.kind, PEOPLE_ERROR)
    known = 10**12
    return units_for_error(error, predicted_error(query, prepared, known, CONFIDENCE, size), known)


def own_key(asked: Iterable[Asked]) -> int:
    """The units that the rule of the own key charges."""
    bought: dict[str, int] = {}
    for query, size in asked:
        prepared = plan(resolve(query, PEOPLE))
        units = wanted(query, prepared, size)
        bought[prepared.question.key] = max(units, bought.get(prepared.question.key, 0))
    return sum(bought.values())


class Purse:
    """Buys what is missing once everything recorded is combined. Which values come out plays no part."""

    def __init__(self) -> None:
        self.spent, self._joint = 0, Joint(PEOPLE)

    def buy(self, query: Query, units: int) -> None:
        """Ask for an answer worth so many units."""
        prepared = plan(resolve(query, PEOPLE))
        missing = self._joint.fresh(prepared, units)
        if missing:
            key = prepared.question.key
            all_in_all = self._joint.recorded(key) + missing
            reading = Reading(PEOPLE.account, key, all_in_all, (0,) * prepared.values, 0)
            self._joint.record(prepared, reading)
            self.spent += missing


def spanned(asked: Iterable[Asked], first: Asked | None = None, level: float = 0.0) -> int:
    """The units that are charged when all purchases count, after a first one at some level."""
    purse = Purse()
    if first is not None and level:
        query, size = first
        purse.buy(query, max(1, round(level * wanted(query, plan(resolve(query, PEOPLE)), size))))
    for query, size in asked:
        purse.buy(query, wanted(query, plan(resolve(query, PEOPLE)), size))
    return purse.spent


def run(options: Options) -> Outcome:
    """Charge both workloads by both rules."""
    rows: list[Row] = []
    times = 3 if options.quick else 20
    for number in range(times):
        asked = drill_down(SimulationStream(options.seed, path=(26, number)))
        rows.append(_row("drill-down", number, 0.0, own_key(asked), spanned(asked)))
        options.progress(number + 1, times + len(LEVELS))
    tiles, alone = dashboard(), own_key(dashboard())
    for done, level in enumerate(LEVELS):
        rows.append(_row("dashboard", 0, level, alone, spanned(tiles, fine(), level)))
        options.progress(times + done + 1, times + len(LEVELS))
    return Outcome(rows, _caption(rows), lambda: _draw(rows))


def _row(workload: str, analyst: int, level: float, alone: int, together: int) -> Row:
    return {
        "workload": workload,
        "analyst": analyst,
        "first table": level,
        "own key": alone / 10**12,
        "span": together / 10**12,
        "saved": alone / together,
    }


def _caption(rows: Sequence[Row]) -> str:
    drills = sorted(row["saved"] for row in rows if row["workload"] == "drill-down")
    tiles = [row for row in rows if row["workload"] == "dashboard"]
    best = max(tiles, key=lambda row: row["saved"])
    return "\n".join(
        [
            "Units of privacy at equal error: the rule of the own key over that of the span.",
            "",
            f"Found: drill-downs of {QUESTIONS} questions {drills[0]:.2f} to {drills[-1]:.2f} times cheaper, "
            f"{sum(drills) / len(drills):.2f} on average of {len(drills)} analysts.",
            f"A dashboard of {len(dashboard())} tables {tiles[0]['saved']:.2f} times as it comes; "
            f"{best['saved']:.2f} times with a plan that buys",
            f"the table of area, sex and age first, at {best['first table']:g} of what its own cells need.",
        ]
    )


def _draw(rows: Sequence[Row]) -> Any:
    figure, axes = plots.panels(1, 2, size=(10.0, 4.5))
    left, right = axes[0]
    drills = [row for row in rows if row["workload"] == "drill-down"]
    left.scatter([row["own key"] for row in drills], [row["span"] for row in drills], color=plots.ACCENT)
    most = max(row["own key"] for row in drills)
    left.plot([0, most], [0, most], color="#999999", label="as dear")
    left.set_xlabel("own key: mu^2 of a drill-down")
    left.set_ylabel("span: mu^2 of the same")
    left.legend(frameon=False)
    tiles = [row for row in rows if row["workload"] == "dashboard"]
    right.plot([row["first table"] for row in tiles], [row["saved"] for row in tiles], color=plots.ACCENT,
               marker="o")  # fmt: skip
    right.set_xlabel("first table, in what its own cells need")
    right.set_ylabel("times cheaper than the own key")
    return figure
