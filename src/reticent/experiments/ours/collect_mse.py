"""Four million people answer a survey: the error of the mean against epsilon, and bytes per report.

The whole way of a report: a survey is designed for each mechanism, every person's number is perturbed, packed
into bits, unpacked and counted, and the mean is estimated from the counts alone. Beside the squared error
stands the variance that theory gives for such people (the mean of V(x) over a sample of them, by n), and
the bytes that one report takes on the wire, of which the answer is a few bits.

The numbers are those of Fig. 3.7 of the thesis with mean 1/3: normal, standard deviation 1/4, in [-1, 1].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reticent.collect.design import designed
from reticent.collect.survey import Survey
from reticent.collect.tally import Tally
from reticent.collect.wire import Layout
from reticent.estimation import mean_estimate
from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.zhao_2022.chapter_3.fig_3_7 import truncated_normal
from reticent.mechanisms.base import Floats
from reticent.mechanisms.numeric.base import NumericChannel
from reticent.mechanisms.numeric.one_bit import OneBit
from reticent.mechanisms.record import Number
from reticent.randomness import SimulationStream, uniform_below

PEOPLE, QUICK_PEOPLE = 4_000_000, 20_000
REPETITIONS, QUICK_REPETITIONS = 10, 3
EPSILONS, QUICK_EPSILONS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0), (0.5, 2.0)
MEAN = 1.0 / 3.0
NAMES = {
    "Duchi": "Duchi",
    "PM": "PM",
    "HM": "HM",
    "Three-Outputs": "ThreeOutputs",
    "PM-SUB": "PMSub",
    "PM-OPT": "PMOpt",
    "HM-TP": "HMTP",
    "OneBit": "OneBit",
    "Optimal": None,
}
_BLOCK = 1 << 18


def survey_of(kind: str | None, epsilon: float) -> Survey:
    """A survey of one number; with no kind the best mechanism is chosen."""
    return designed(
        "people",
        [Number("x")],
        epsilon=epsilon,
        purpose="A simulation.",
        start=0,
        period_s=1,
        periods=1,
        mechanisms=None if kind is None else {"x": kind},
    )


def collected(survey: Survey, people: Floats, stream: SimulationStream) -> Tally:
    """The counts of everybody's report, packed and unpacked on the way."""
    channel = survey.instruments[0]
    assert isinstance(channel, NumericChannel)
    tally = Tally.empty(survey)
    for start in range(0, people.size, _BLOCK):
        values = people[start : start + _BLOCK]
        if isinstance(channel, OneBit):
            dither = uniform_below(channel.dither_levels, values.size, stream)
            data = channel.pack(channel.sample(values, stream, dither=dither))
            symbols = channel.unpack(data, values.size, dither=dither)
        else:
            symbols = channel.unpack(channel.pack(channel.sample(values, stream)), values.size)
        tally.add(0, np.zeros(values.size, dtype=np.int64), symbols)
    return tally


def run(options: Options) -> Outcome:
    """Simulate every mechanism at every epsilon."""
    n = QUICK_PEOPLE if options.quick else PEOPLE
    times = options.repetitions or (QUICK_REPETITIONS if options.quick else REPETITIONS)
    epsilons = QUICK_EPSILONS if options.quick else EPSILONS
    stream = SimulationStream(options.seed, path=(81,))
    people = truncated_normal(MEAN, n, stream.spawn(0))
    sample = people[: min(n, 2_000)]
    truth, rows, done = float(people.mean()), [], 0
    for place, (name, kind) in enumerate(NAMES.items()):
        for at, epsilon in enumerate(epsilons):
            survey = survey_of(kind, epsilon)
            channel = survey.instruments[0]
            assert isinstance(channel, NumericChannel)
            errors = []
            for time in range(times):
                here = stream.spawn(1 + place).spawn(at).spawn(time)
                counts = collected(survey, people, here).counts[0].sum(axis=0)
                errors.append(mean_estimate(channel, counts).value - truth)
            rows.append(
                _row(name, survey, channel, np.array(errors), float(channel.variance(sample).mean()) / n)
            )
            done += 1
            options.progress(done, len(NAMES) * len(epsilons))
    return Outcome(rows, _caption(rows, n, times), lambda: _draw(rows, n))


def _row(name: str, survey: Survey, channel: NumericChannel, errors: Floats, expected: float) -> Row:
    return {
        "mechanism": name,
        "chosen": type(channel).__name__,
        "epsilon": survey.epsilon,
        "mse": float(np.mean(errors**2)),
        "expected": expected,
        "ratio": float(np.mean(errors**2) / expected),
        "answer_bits": channel.bits,
        "report_bytes": Layout(survey).longest,
    }


def _caption(rows: list[Row], n: int, times: int) -> str:
    best: dict[float, Row] = {}
    for row in rows:
        if row["epsilon"] not in best or row["expected"] < best[row["epsilon"]]["expected"]:
            best[row["epsilon"]] = row
    ratios = np.array([row["ratio"] for row in rows])
    lines = [
        f"{epsilon:g}: {row['mechanism']} (bits: {row['answer_bits']}), root of the expected squared error "
        f"{row['expected'] ** 0.5:.3g}"
        for epsilon, row in sorted(best.items())
    ]
    return "\n".join(
        [
            f"{n:,} simulated people, {times} repetitions: squared error of the mean, through the whole way.",
            "",
            f"Squared error over what theory expects: {ratios.mean():.3f} in the mean of all rows "
            f"(1 if the way adds nothing; deviates by chance by {(2 / (times * ratios.size)) ** 0.5:.3f}).",
            "A report takes 47 bytes or 48 on the wire (id, nonce, tag); its answer takes the bits told.",
            "Least expected error at each epsilon:",
            *lines,
        ]
    )


def _draw(rows: list[Row], n: int) -> Any:
    figure, axes = plots.panels(1, 2, size=(11, 4.4))
    for name in NAMES:
        mine = [row for row in rows if row["mechanism"] == name]
        x = [row["epsilon"] for row in mine]
        line = plots.style(name, marker=False)
        axes[0][0].plot(x, [row["expected"] for row in mine], label=plots.label(name), **line)
        points = plots.style(name) | {"linestyle": "none"}
        axes[0][0].plot(x, [row["mse"] for row in mine], **points)
        axes[0][1].plot(x, [row["answer_bits"] for row in mine], label=plots.label(name), **plots.style(name))
    axes[0][0].set(
        yscale="log",
        xlabel="epsilon of one report",
        title=f"squared error of the mean, {n:,} people: expected (lines), measured",
    )
    axes[0][1].set(xlabel="epsilon of one report", title="bits of an answer")
    plots.legend_right(figure, axes[0][0])
    return figure
