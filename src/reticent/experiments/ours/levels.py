"""How many outputs does it take? Discretisation from 3 to 2001 levels, against Window and OneBit.

Reference: Zhao 2022, Section 3.5.3, Fig. 3.14 and 3.15 (there as the error of a regression).
Departure: the worst-case variance, exact, and the simulated error of one mean (WISDM, vertical acceleration).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from reticent.experiments import contenders, plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.data import SOURCES, load
from reticent.experiments.ours import limit
from reticent.experiments.paired import paired
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric import (
    HM,
    HMTP,
    PM,
    Duchi,
    NumericChannel,
    NumericRandomiser,
    OneBit,
    Optimal,
    PMOpt,
    PMSub,
    ThreeOutputs,
    Window,
)
from reticent.mechanisms.numeric.laplace import Laplace
from reticent.randomness import SimulationStream

EPSILONS = (1.0, 2.0, 4.0)
LEVELS = (3, 5, 7, 9, 11, 15, 21, 33, 65, 129, 257, 513, 1025, 2001)
QUICK_LEVELS = (3, 5, 21, 2001)
WINDOWS = (2, 3, 4, 8, 16, 32, 64)
SWEPT: tuple[type[NumericChannel], ...] = (PM, HM, PMSub, PMOpt, HMTP)


def channels(epsilon: float, levels: Sequence[int]) -> Iterator[tuple[str, int, NumericRandomiser]]:
    """(name, outputs, mechanism): the swept ones at each number of levels, then the others as they are."""
    for kind in SWEPT:
        for count in levels:
            yield kind.name, count, kind(epsilon=epsilon, levels=count)  # type: ignore[call-arg]
    yield "Laplace", 0, Laplace(epsilon=epsilon)
    yield "Duchi", 2, Duchi(epsilon=epsilon)
    yield "Three-Outputs", 3, ThreeOutputs(epsilon=epsilon)
    yield "OneBit", 2, OneBit(epsilon=epsilon)
    for outputs in WINDOWS:
        yield "Window", outputs, Window(epsilon=epsilon, outputs=outputs)


def errors_of(mechanism: Any, values: Floats, times: int, seed: int) -> Floats:
    """The squared error of the mean in each repetition; every mechanism reads the same stream."""
    stream = SimulationStream(seed, path=(14,))
    tiled = np.broadcast_to(values, (times, values.size)).copy()
    means = mechanism.perturb(tiled, stream).mean(axis=1)
    errors: Floats = (means - values.mean()) ** 2
    return errors


def run(options: Options) -> Outcome:
    """Sweep the levels at three epsilons."""
    people = load(SOURCES[0], options.data)
    values = people.numbers[:, 0]
    levels = QUICK_LEVELS if options.quick else LEVELS
    rows: list[Row] = []
    for done, epsilon in enumerate(EPSILONS):
        ours = errors_of(Optimal(epsilon=epsilon), values, options.times, options.seed)
        for name, outputs, mechanism in channels(epsilon, levels):
            mine = errors_of(mechanism, values, options.times, options.seed)
            gap = paired(mine, ours)
            bits: int = mechanism.bits  # type: ignore[attr-defined]
            rows.append(
                {
                    "epsilon": epsilon,
                    "mechanism": name,
                    "outputs": outputs,
                    "bits": bits,
                    "worst_variance": mechanism.worst_case_variance,
                    "ideal_variance": mechanism.ideal_worst_case_variance,
                    "limit": limit.limit(epsilon),
                    "mse": float(mine.mean()),
                    "expected_mse": contenders.mean_variance(mechanism, values) / values.size,
                    "ratio": float(mine.mean() / ours.mean()),
                    "verdict": gap.verdict,
                }
            )
        options.progress(done + 1, len(EPSILONS))
    return Outcome(rows, _caption(rows, levels), lambda: _draw(rows))


def _caption(rows: Sequence[Row], levels: Sequence[int]) -> str:
    lines = [
        "Discretisation sweep: worst-case variance over the number of outputs, and the error of one mean.",
        "",
        "Printed (Fig. 3.14, 3.15): the error falls as outputs grow; 2000 segments are satisfactory.",
        "Found: confirmed, and far fewer do. Worst-case variance over the continuous one, PM-OPT:",
    ]
    for epsilon in EPSILONS:
        here = [row for row in rows if row["epsilon"] == epsilon]
        opt = {row["outputs"]: row for row in here if row["mechanism"] == "PM-OPT"}
        window = {row["outputs"]: row for row in here if row["mechanism"] == "Window"}
        losses = ", ".join(
            f"{count}: {opt[count]['worst_variance'] / opt[count]['ideal_variance'] - 1.0:+.2%}"
            for count in levels
        )
        best = min(
            (row for row in here if row["mechanism"] not in ("Window", "OneBit")),
            key=lambda row: float(row["worst_variance"]),
        )
        least = min(n for n in WINDOWS if window[n]["worst_variance"] < best["worst_variance"])
        lines += [
            f"  epsilon {epsilon:g}: {losses}",
            f"    Window needs {least} outputs ({window[least]['bits']} bits) to be below every document at"
            f" any number of outputs (best: {best['mechanism']} {best['worst_variance']:.5g});"
            f" with 64 it has {window[64]['worst_variance']:.5g}, limit {here[0]['limit']:.5g}.",
        ]
    lines.append(
        "The simulated error is on data near 0.35, where piecewise mechanisms are below their worst case."
    )
    return "\n".join(lines)


def _draw(rows: Sequence[Row]) -> Any:
    figure, axes = plots.panels(2, len(EPSILONS), size=(15.5, 8.4))
    for column, epsilon in enumerate(EPSILONS):
        here = [row for row in rows if row["epsilon"] == epsilon]
        bound = here[0]["limit"]
        for name in (*(kind.name for kind in SWEPT), "Duchi", "Three-Outputs", "OneBit", "Window"):
            mine = [row for row in here if row["mechanism"] == name]
            look = plots.style("Optimal" if name == "Window" else name)
            text = "Window (ours)" if name == "Window" else plots.label(name)
            outputs = [row["outputs"] for row in mine]
            if len(mine) == 1:
                look |= {"linestyle": "none", "markersize": 8}
            axes[0, column].plot(outputs, [row["worst_variance"] / bound for row in mine], label=text, **look)
            axes[1, column].plot(outputs, [row["expected_mse"] for row in mine], **look)
            simulated = {
                **look,
                "linestyle": "none",
                "markersize": 9,
                "markerfacecolor": "none",
                "alpha": 0.5,
            }
            axes[1, column].plot(outputs, [row["mse"] for row in mine], **simulated)
        axes[0, column].axhline(1.0, color=plots.LIMIT, linewidth=1.0, label="physical limit")
        axes[0, column].set_ylim(0.95, 2.0)
        axes[1, column].set_yscale("log")
        axes[0, column].set_title(f"epsilon {epsilon:g}", loc="left", fontsize=11)
        for axis in axes[:, column]:
            axis.set_xscale("log", base=2)
            ticks = [2, 4, 8, 16, 64, 256, 2001]
            axis.set_xticks(ticks, [str(tick) for tick in ticks])
            axis.set_xlabel("outputs")
    axes[0, 0].set_ylabel("worst-case variance / physical limit")
    axes[1, 0].set_ylabel("error of one mean: exact (lines), simulated (open)")
    figure.suptitle("Outputs needed: the documents' mechanisms discretised, and ours", x=0.01, ha="left")
    plots.legend_right(figure, axes[0, 0])
    return figure
