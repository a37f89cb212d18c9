"""Training with discretised mechanisms: what Figs. 3.12 to 3.15 share.

Settings are tuned once, for the continuous mechanisms (Figs. 3.12, 3.13) or at 2001 outputs (Figs. 3.14,
3.15), and kept: what differs is the number of outputs alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reticent.estimation.student import half_width
from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.paired import paired
from reticent.experiments.zhao_2022.chapter_3 import continuous
from reticent.experiments.zhao_2022.chapter_3.fed_methods import (
    CONTINUOUS,
    DEFAULT,
    NOBODY,
    SENT,
    SWEPT,
    TYPICAL,
    level_name,
)
from reticent.experiments.zhao_2022.chapter_3.fed_report import MEASURE
from reticent.experiments.zhao_2022.chapter_3.fed_training import Arm, Found, cross_validated, settled
from reticent.experiments.zhao_2022.chapter_3.means import select
from reticent.mechanisms.base import Floats

PRINTED_LEVELS = 2001
LEVELS, QUICK_LEVELS = (3, 5, 9, 17, 65, 257, PRINTED_LEVELS), (3, PRINTED_LEVELS)
BASES = tuple(name.removesuffix(continuous.SUFFIX) for name in continuous.NAMES)


def _errors(found: Found) -> Mapping[str, Floats]:
    """The errors by method; there is one epsilon."""
    return {arm.method: errors for arm, errors in found.items()}


# 2001 outputs against a continuous range


def compare_discretised(kind: str, epsilon: float, title: str, options: Options) -> Outcome:
    """Figs. 3.12 and 3.13: every method in doubles and as really sent, with the same settings."""
    arms = settled(kind, (epsilon,), CONTINUOUS, options)
    ideal, sent = (cross_validated(kind, arms, how, options) for how in (CONTINUOUS, SENT))
    rows: list[Row] = []
    for data in ideal:
        plain, discrete = _errors(ideal[data]), _errors(sent[data])
        for name, errors in discrete.items():
            gap = paired(errors, plain[name])
            rows.append(
                {
                    "data": data,
                    "epsilon": epsilon,
                    "method": name,
                    "error": float(errors.mean()),
                    "half_width": half_width(errors),
                    "error_continuous": float(plain[name].mean()),
                    "more_than_continuous": gap.difference,
                    "more_low": gap.low,
                    "more_high": gap.high,
                    "equal": gap.verdict == "equal",
                    "trainings": errors.size,
                }
            )
    return Outcome(rows, _caption(kind, title, rows), lambda: _draw(kind, title, rows))


def _caption(kind: str, title: str, rows: Sequence[Row]) -> str:
    changed = [row for row in rows if row["method"] in BASES]
    same = sum(row["equal"] for row in changed)
    best = {data: _best(select(rows, data=data)) for data in dict.fromkeys(row["data"] for row in rows)}
    return "\n".join(
        [
            f"{title}: {MEASURE[kind]}, {rows[0]['trainings']} cross-validated trainings each.",
            "",
            'Printed: "the performance is similar to that before discretizing".',
            f"Found: equal by the 95 % interval of the paired difference in {same} of {len(changed)} cases",
            "(one in twenty is chance: the draws of the two differ, the exact variances by less than 3e-6).",
            "",
            f"  {'data':<9}{'method':<15}{'continuous':<12}{'2001 outputs':<14}difference",
            *(
                f"  {row['data']:<9}{row['method']:<15}{row['error_continuous']:<12.4g}{row['error']:<14.4g}"
                f"{row['more_than_continuous']:+.4f} [{row['more_low']:+.4f}, {row['more_high']:+.4f}]"
                for row in changed
            ),
            "",
            "Least mean error as really sent, and ours:",
            *(f"  {data:<9}{text}" for data, text in best.items()),
        ]
    )


def _best(rows: Sequence[Row]) -> str:
    mine = {row["method"]: row for row in rows}
    documents = [row for row in rows if row["method"] not in (NOBODY, DEFAULT, TYPICAL)]
    best = min(documents, key=lambda row: float(row["error"]))
    return (
        f"{best['method']} {best['error']:.4g} +- {best['half_width']:.2g}; ours, worst case "
        f"{mine[DEFAULT]['error']:.4g} +- {mine[DEFAULT]['half_width']:.2g}, typical "
        f"{mine[TYPICAL]['error']:.4g} +- {mine[TYPICAL]['half_width']:.2g}; "
        f"{NOBODY} {mine[NOBODY]['error']:.4g}"
    )


def _draw(kind: str, title: str, rows: Sequence[Row]) -> Any:
    listed = list(dict.fromkeys(row["data"] for row in rows))
    figure, axes = plots.panels(1, len(listed), size=(4.6 * len(listed), 4.8))
    for axis, data in zip(axes[0], listed, strict=True):
        mine = [row for row in select(rows, data=data) if row["method"] != "Laplace"]
        for place, row in enumerate(mine):
            look = {**plots.style(row["method"]), "linestyle": "none", "markersize": 7}
            axis.errorbar(place, row["error"], row["half_width"], elinewidth=1.0, **look)
            hollow = {**look, "markerfacecolor": "none", "markersize": 12, "alpha": 0.6}
            axis.plot(place, row["error_continuous"], **hollow)
        axis.set_xticks(
            range(len(mine)), [plots.label(row["method"]) for row in mine], rotation=60, ha="right"
        )
        axis.set_title(data, fontsize=11)
    axes[0, 0].set_ylabel(MEASURE[kind])
    figure.suptitle(f"{title} (large: continuous, in doubles)", x=0.01, ha="left", fontsize=12)
    return figure


# From 3 to 2001 outputs


def sweep_levels(kinds: Sequence[str], epsilon: float, title: str, printed: str, options: Options) -> Outcome:
    """Figs. 3.14 and 3.15: the error over the number of outputs."""
    levels = QUICK_LEVELS if options.quick else LEVELS
    rows: list[Row] = []
    for kind in kinds:
        tuned = settled(kind, (epsilon,), (PRINTED_LEVELS,), options)
        arms = {data: _spread(some, levels) for data, some in tuned.items()}
        for data, errors in cross_validated(kind, arms, levels, options).items():
            rows += _level_rows(kind, data, epsilon, _errors(errors))
    return Outcome(rows, _level_caption(title, printed, rows), lambda: _level_draw(title, rows))


def _spread(tuned: Sequence[Arm], levels: Sequence[int]) -> tuple[Arm, ...]:
    """The settings at 2001 outputs for every number of outputs."""
    arms: list[Arm] = []
    for arm in tuned:
        base = arm.method.removesuffix(f"/{PRINTED_LEVELS}")
        swept = base != arm.method
        arms += (
            [Arm(level_name(base, count), arm.epsilon, arm.setting) for count in levels] if swept else [arm]
        )
    return tuple(arms)


def _level_rows(kind: str, data: str, epsilon: float, errors: Mapping[str, Floats]) -> list[Row]:
    rows: list[Row] = []
    for method, mine in errors.items():
        name, _, count = method.partition("/")
        full = errors.get(level_name(name, PRINTED_LEVELS), mine)
        gap = paired(mine, full)
        rows.append(
            {
                "model": kind,
                "data": data,
                "epsilon": epsilon,
                "method": name,
                "outputs": int(count) if count else 0,
                "error": float(mine.mean()),
                "half_width": half_width(mine),
                "more_than_2001": gap.difference,
                "more_low": gap.low,
                "more_high": gap.high,
                "equal": gap.verdict == "equal",
                "trainings": mine.size,
            }
        )
    return rows


def _level_caption(title: str, printed: str, rows: Sequence[Row]) -> str:
    lines = [
        f"{title}, {rows[0]['trainings']} cross-validated trainings each.",
        "",
        f"Printed: {printed}",
        "Found (mean error by outputs; * where the paired difference to 2001 outputs is more than chance):",
        "",
    ]
    for model, data in dict.fromkeys((row["model"], row["data"]) for row in rows):
        here = select(rows, model=model, data=data)
        lines.append(f"  {model}, {data} ({MEASURE[model]})")
        for kind in SWEPT:
            cells = (
                f"{row['outputs']}: {row['error']:.4g}{'' if row['equal'] else '*'}"
                for row in select(here, method=kind.name)
            )
            lines.append(f"    {kind.name:<14}{', '.join(cells)}")
        lines += [
            f"    {row['method']:<14}{row['error']:.4g} +- {row['half_width']:.2g}"
            for row in here
            if row["outputs"] == 0
        ]
    lines += [
        "",
        f"{DEFAULT} and {TYPICAL} are ours. Discretisation adds variance h^2/6 with h the distance of",
        "outputs: much at 3 outputs, nothing to speak of from 33 on (see `levels`); where training does not",
        "notice less variance it does not notice fewer outputs.",
    ]
    return "\n".join(lines)


def _level_draw(title: str, rows: Sequence[Row]) -> Any:
    cases = list(dict.fromkeys((row["model"], row["data"]) for row in rows))
    figure, axes = plots.panels(1, len(cases), size=(3.6 * len(cases) + 2.2, 4.8))
    for axis, (model, data) in zip(axes[0], cases, strict=True):
        here = select(rows, model=model, data=data)
        for kind in SWEPT:
            mine = select(here, method=kind.name)
            axis.errorbar(
                [row["outputs"] for row in mine],
                [row["error"] for row in mine],
                [row["half_width"] for row in mine],
                label=plots.label(kind.name),
                elinewidth=0.7,
                **plots.style(kind.name),
            )
        for row in here:
            if row["outputs"] == 0:
                look = plots.style(row["method"], marker=False)
                axis.axhline(row["error"], label=plots.label(row["method"]), **look)
        axis.set_xscale("log", base=2)
        ticks = np.array(sorted({row["outputs"] for row in here} - {0}))
        axis.set_xticks(ticks, [str(tick) for tick in ticks], rotation=60)
        axis.set_title(f"{data}, {model}", fontsize=11)
        axis.set_xlabel("outputs")
    axes[0, 0].set_ylabel("error")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    plots.legend_right(figure, axes[0, 0])
    return figure
