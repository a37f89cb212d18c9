"""A deployment past one machine: 10^8 devices and 10^4 analysts, by a model calibrated by measured parts.

What one report and one question cost was measured on one machine (`benchmarks.fleets`, `reproduce
service-cpu`), and so was the throughput of one, two and four collectors, on which the model is tried before
it is used beyond (`capacity`). The rest is the utilisation law. Nothing is drawn and nothing is timed here:
the same numbers come out each time.

Assumptions: costs per piece stay what they were measured at (larger tables, networks, TLS and replicas make
    them dearer, faster processors cheaper); devices report evenly over a day but for a factor at the peak; a
    fresh question costs what it does on the rows of `service-cpu`; broker and collectors are divided by topic
    and group, servers by a balancer. Connections and handshakes of devices are not in it. Not divided today:
    the database of the collection, and the ledger, whose entries are one chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.ours.capacity import Part, Report, throughput

DAY_S = 86_400
TARGET = 0.6  # the share of its time that a part is busy for at the peak
MACHINE = 16  # cores
_FEWEST = 3  # machines: brokers and collectors, databases, servers
DEVICES, ANALYSTS = (10**5, 10**6, 10**7, 10**8), 10_000


@dataclass(frozen=True)
class Measured:
    """A run of `benchmarks.fleets`: so many collectors, and the cores that were theirs."""

    processes: int
    together: int
    cores: float
    rate: float


@dataclass(frozen=True)
class Costs:
    """What was measured, in seconds, on one machine of two cores.

    Attributes:
        report: of a report that is a message of its own.
        batched: of a report in a message of 50.
        charge_s: for which a fresh answer holds the ledger: it is charged, and recorded.
        question_s: CPU of a server for a fresh answer.
        row_bytes: of who reported, in the database.
        log_bytes: of the database's log, for each report.
    """

    report: Report
    batched: Report
    charge_s: float
    question_s: float
    row_bytes: float
    log_bytes: float


@dataclass(frozen=True)
class Load:
    """What people do.

    Attributes:
        devices: that are enrolled.
        reports: of each device, a day.
        analysts: who ask.
        questions: fresh ones of each analyst, a day.
        peak: the busiest second, in means of the day.
    """

    devices: int
    reports: float
    analysts: int = ANALYSTS
    questions: float = 50.0
    peak: float = 4.0


COSTS = Costs(
    report=Report(118.5e-6, 35.3e-6, 7.5e-6),
    batched=Report(10.6e-6, 10.0e-6, 0.34e-6),
    charge_s=2 * 3.4e-3,
    question_s=21.7e-3,
    row_bytes=137,
    log_bytes=369,
)
# Four rounds together, beside many others on the machine: the cores are what those left.
RUNS = (
    Measured(1, 1, 0.208, 1178),
    Measured(2, 1, 0.322, 1675),
    Measured(4, 1, 0.464, 2500),
    Measured(1, 50, 0.238, 10_463),
    Measured(2, 50, 0.365, 15_332),
    Measured(4, 50, 0.595, 24_374),
)
SCENARIOS = {
    "a report a day, single": (1.0, False),
    "a report an hour, single": (24.0, False),
    "a report an hour, by gateways": (24.0, True),
    "a report a minute, by gateways": (1440.0, True),
}


def parts(load: Load, *, is_batched: bool = False, costs: Costs = COSTS) -> list[Part]:
    """What a deployment is made of, at its peak."""
    reports = load.devices * load.reports / DAY_S * load.peak
    questions = load.analysts * load.questions / DAY_S * load.peak
    each = costs.batched if is_batched else costs.report
    return [
        Part("broker", reports, each.broker_s),
        Part("collectors", reports, each.collector_s),
        Part("collection's database", reports, each.database_s, most=MACHINE, is_one=True),
        Part("servers", questions, costs.question_s),
        Part("ledger", questions, costs.charge_s, is_one=True),
    ]


def first_full(load: Load, *, is_batched: bool = False) -> tuple[Part, float]:
    """The part that cannot be divided and saturates first, and at how many times this load."""
    ones = [one for one in parts(load, is_batched=is_batched) if one.is_one]
    worst = max(ones, key=lambda one: one.load)
    return worst, 1 / worst.load


def run(options: Options) -> Outcome:
    """Predict what was measured, then what was not."""
    rows: list[Row] = []
    for name, (reports, is_batched) in SCENARIOS.items():
        for devices in DEVICES:
            load = Load(devices, reports)
            found = parts(load, is_batched=is_batched)
            worst, times = first_full(load, is_batched=is_batched)
            cores = sum(one.needed(TARGET) for one in found)
            row: dict[str, Any] = {
                "scenario": name,
                "devices": devices,
                "analysts": load.analysts,
                "reports/s": found[0].rate,
                "questions/s": found[-1].rate,
            }
            row |= {f"cores, {one.name}": one.needed(TARGET) for one in found}
            row |= {
                "machines": max(_FEWEST, -(-cores // MACHINE)),
                "GB of who reported, a day": devices * reports * COSTS.row_bytes / 1e9,
                "MB/s of log": found[0].rate * COSTS.log_bytes / 1e6,
                "saturates first": worst.name,
                "at times this load": times,
            }
            rows.append(row)
            options.progress(len(rows), len(SCENARIOS) * len(DEVICES))
    return Outcome(rows, _caption(rows), lambda: _draw(rows))


def predicted() -> list[tuple[Measured, float]]:
    """Each run of two and four collectors, and what the model says from the run of one."""
    costs = {1: COSTS.report, 50: COSTS.batched}
    alone = {one.together: one for one in RUNS if one.processes == 1}
    return [
        (
            one,
            throughput(
                costs[one.together].calibrated(alone[one.together].rate, cores=alone[one.together].cores),
                one.processes,
                cores=one.cores,
            ),
        )
        for one in RUNS
        if one.processes > 1
    ]


def _caption(rows: list[Row]) -> str:
    lines = ["A deployment by a model that is calibrated by measured parts.", "Printed: nothing; ours."]
    for one, rate in predicted():
        lines.append(
            f"  {one.processes} collectors, {one.together} in a message, {one.cores:.2f} cores: measured "
            f"{one.rate:,.0f} reports/s, predicted {rate:,.0f} ({rate / one.rate - 1:+.0%})."
        )
    quiet = [
        f"{throughput(each, n, cores=2.0):,.0f}" for each in (COSTS.report, COSTS.batched) for n in (1, 2, 4)
    ]
    lines.append(
        wrapped(
            "Two cores to themselves, and a disk that nobody waits for, predicted: "
            f"{', '.join(quiet[:3])} single reports/s for 1, 2 and 4 "
            f"collectors, {', '.join(quiet[3:])} in messages of 50."
        )
    )
    for name in SCENARIOS:
        last = [row for row in rows if row["scenario"] == name][-1]
        lines.append(
            wrapped(
                f"{name}, {last['devices']:,} devices and {last['analysts']:,} analysts: "
                f"{last['reports/s']:,.0f} reports/s and {last['questions/s']:.0f} questions/s at the peak, "
                f"{last['machines']} machines of {MACHINE} cores; the {last['saturates first']} saturates "
                f"first, at {last['at times this load']:.2g} times this load."
            )
        )
    return "\n".join(lines)


def _draw(rows: list[Row]) -> Any:
    """How busy each part is that cannot be divided, by devices."""
    figure, axes = plots.panels(1, len(SCENARIOS), size=(16, 4))
    names = [one.name for one in parts(Load(1, 1.0))]
    for axis, (name, (reports, is_batched)) in zip(axes.flat, SCENARIOS.items(), strict=True):
        for part in names:
            cores = [
                next(one for one in parts(Load(n, reports), is_batched=is_batched) if one.name == part).cores
                for n in DEVICES
            ]
            axis.plot(DEVICES, cores, marker="o", label=part)
        axis.axhline(1.0, color="black", linewidth=0.8, linestyle=":")
        axis.axhline(MACHINE, color="black", linewidth=0.8, linestyle="--")
        axis.set(xscale="log", yscale="log", title=name, xlabel="devices", ylabel="busy cores at the peak")
    axes.flat[0].legend(fontsize=7)
    return figure
