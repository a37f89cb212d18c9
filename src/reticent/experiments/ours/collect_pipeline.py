"""The way of a report equals the library in distribution: real people, through devices' bytes and directly.

Twice the same survey of the same people, many times: once through the wire (perturbed, framed as reports with
tags, received by a collector, counted, estimated), once by `Record.perturb` and `Record.estimate`. If the way
adds or loses nothing, both give estimates of one distribution: compared by the two-sample Kolmogorov-Smirnov
test for each attribute, with Bonferroni's correction over all of them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from reticent.collect import batch
from reticent.collect.collector import Collector
from reticent.collect.design import designed
from reticent.collect.estimates import estimates
from reticent.collect.signing import signed
from reticent.collect.survey import Survey
from reticent.collect.wire import Layout
from reticent.experiments import data, plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.fleet.enrolment import Enrolment, device_key
from reticent.mechanisms.base import Floats
from reticent.mechanisms.record import Attribute, Number, Record
from reticent.randomness import SimulationStream

PEOPLE, QUICK_PEOPLE = 3_000, 300
REPETITIONS, QUICK_REPETITIONS = 200, 20
EPSILON = 2.0
MASTER = bytes(32)


def run(options: Options) -> Outcome:
    """Survey every data set both ways."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    times = options.repetitions or (QUICK_REPETITIONS if options.quick else REPETITIONS)
    found: list[tuple[str, str, Floats, Floats, float]] = []
    sources = data.SOURCES[:1] if options.quick else data.SOURCES
    for place, source in enumerate(sources):
        people = data.load(source, options.data).some(QUICK_PEOPLE if options.quick else PEOPLE, options.seed)
        attributes = [Number(name) for name in source.numbers]
        survey = designed(
            source.name, attributes, epsilon=EPSILON, purpose="A simulation.", start=0, period_s=1, periods=1
        )
        stream = SimulationStream(options.seed, path=(82, place))
        table = {one.name: people.numbers[:, at] for at, one in enumerate(attributes)}
        ours, theirs = [], []
        for time in range(times):
            ours.append(through_the_wire(survey, table, key, stream.spawn(2 * time)))
            theirs.append(directly(attributes, survey, table, stream.spawn(2 * time + 1)))
            options.progress(place * times + time + 1, len(sources) * times)
        for at, one in enumerate(attributes):
            truth = float(people.numbers[:, at].mean())
            found.append((source.name, one.name, np.array(ours)[:, at], np.array(theirs)[:, at], truth))
    rows = [_row(*one) for one in found]
    return Outcome(rows, _caption(rows, times), lambda: _draw(found))


def through_the_wire(
    survey: Survey, table: dict[str, Floats], key: Any, stream: SimulationStream
) -> list[float]:
    """The means that a collector estimates from everybody's report."""
    layout, rows = Layout(survey), len(next(iter(table.values())))
    ids = stream.words(rows)
    drawn: list[list[tuple[int, Any]]] = [[] for _ in range(rows)]
    for place, (members, symbols) in enumerate(batch.perturbed(survey, table, rows, stream, ids=ids)):
        for member, symbol in zip(members.tolist(), symbols, strict=True):
            drawn[member].append((place, symbol))
    reports = []
    for number, said in enumerate(drawn):
        identity = int(ids[number]).to_bytes(8, "big")
        body = layout.body([place for place, _ in said], [np.array([symbol]) for _, symbol in said])
        enrolment = Enrolment(identity, device_key(MASTER, identity))
        reports.append(layout.report(enrolment, 0, identity, body))
    with (
        tempfile.TemporaryDirectory() as folder,
        Collector(Path(folder) / "c", MASTER, clock=lambda: 0.0) as held,
    ):
        held.collect(signed(survey, key), key.public_key().public_bytes_raw())
        outcomes = held.receive(reports)
        assert all(one.is_acknowledged for one in outcomes)
        return [one.mean.value if one.mean else np.nan for one in estimates(held.tally(survey))]


def directly(
    attributes: list[Number], survey: Survey, table: dict[str, Floats], stream: SimulationStream
) -> list[float]:
    """The means that `Record` estimates."""
    asked: list[Attribute] = list(attributes)
    record = Record(asked, EPSILON, survey.sample_size)
    means = record.estimate(record.perturb(table, stream), weights="realised").means
    return [means[one.name] for one in attributes]


def _row(dataset: str, attribute: str, ours: Floats, theirs: Floats, truth: float) -> Row:
    from scipy.stats import ks_2samp

    return {
        "dataset": dataset,
        "attribute": attribute,
        "truth": truth,
        "wire_mean": float(ours.mean()),
        "wire_deviation": float(ours.std(ddof=1)),
        "library_mean": float(theirs.mean()),
        "library_deviation": float(theirs.std(ddof=1)),
        "p_value": float(ks_2samp(ours, theirs).pvalue),
    }


def _caption(rows: list[Row], times: int) -> str:
    least = min(row["p_value"] for row in rows)
    verdict = "no difference found" if least * len(rows) > 0.01 else "A DIFFERENCE"
    return "\n".join(
        [
            f"Real people at epsilon {EPSILON:g}, {times} surveys each way: through devices' bytes and a "
            "collector, and by the library.",
            "",
            f"Least p-value of {len(rows)} Kolmogorov-Smirnov tests: {least:.3g} "
            f"(corrected {min(1.0, least * len(rows)):.3g}): {verdict} at 1 %.",
        ]
    )


def _draw(found: list[tuple[str, str, Floats, Floats, float]]) -> Any:
    figure, axes = plots.panels(1, 1, size=(9, 4.5))
    axis = axes[0][0]
    for place, (_, _, ours, theirs, truth) in enumerate(found):
        for shift, values, colour in ((-0.17, ours, plots.ACCENT), (0.17, theirs, "#0072B2")):
            low, high = np.quantile(values - truth, [0.025, 0.975])
            axis.plot([place + shift] * 2, [low, high], color=colour, linewidth=3, alpha=0.5)
            axis.plot(place + shift, float(np.median(values - truth)), "o", color=colour, markersize=4)
    axis.axhline(0.0, color="black", linewidth=0.8)
    axis.set_xticks(range(len(found)), [f"{one[0]}\n{one[1]}" for one in found], fontsize=6, rotation=60)
    axis.set(title="error of means, 95 % of surveys: through the wire (orange), by the library (blue)")
    return figure
