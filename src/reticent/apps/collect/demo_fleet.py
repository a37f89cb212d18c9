"""`reticent demo fleet`: a simulated fleet reports its speed, through every mechanism side by side.

Each mechanism is a world of its own: the same vehicles, one report each, packed into bytes, unpacked and
counted by a collector that never sees a speed. The truth is shown because this is a simulation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.live import Live
from rich.table import Table

from reticent.arguments import whole
from reticent.errors import MissingExtra
from reticent.estimation import MeanEstimate, mean_estimate, numeric_distribution, symbol_counts
from reticent.mechanisms.base import checked_epsilon
from reticent.mechanisms.numeric import (
    HM,
    HMTP,
    PM,
    Duchi,
    NumericChannel,
    OneBit,
    Optimal,
    PMOpt,
    PMSub,
    ThreeOutputs,
)
from reticent.mechanisms.numeric.hybrid import Hybrid
from reticent.randomness import SimulationStream, uniform_below

BOUNDS = (0.0, 130.0)  # km/h, declared before any data is seen
BATCHES = 24
OURS = "ours"

Floats = NDArray[np.float64]


@dataclass
class World:
    """One mechanism, the collector's counts, and how its estimate went."""

    name: str
    channel: NumericChannel
    counts: NDArray[np.int64]
    sent: int = 0
    history: list[tuple[int, MeanEstimate]] = field(default_factory=list)

    def receive(self, speeds: Floats) -> None:
        """Devices perturb and pack, the collector unpacks and counts."""
        channel = self.channel
        if isinstance(channel, OneBit):
            dither = uniform_below(channel.dither_levels, speeds.size)  # public: the collector knows it
            data = channel.pack(channel.sample(speeds, dither=dither))
            symbols = channel.unpack(data, speeds.size, dither=dither)
        else:
            data = channel.pack(channel.sample(speeds))
            symbols = channel.unpack(data, speeds.size)
        self.sent += len(data)
        self.counts += symbol_counts(channel, symbols)
        reports = int(self.counts.sum())
        self.history.append((reports, mean_estimate(channel, self.counts)))


def run(*, epsilon: float, devices: int, plot: Path) -> None:
    """Run the fleet, live in the terminal, and write the plot."""
    epsilon = checked_epsilon(epsilon)
    devices = whole("devices", devices, low=1000, high=100_000_000)
    try:
        import matplotlib.pyplot as plt  # noqa: F401 - found missing before the fleet starts
    except ImportError as error:
        raise MissingExtra("the plot", "plot") from error
    plot.parent.mkdir(parents=True, exist_ok=True)
    speeds = simulated_speeds(devices)
    truth = float(np.clip(speeds, *BOUNDS).mean())
    worlds = list(_worlds(epsilon))
    console = Console(highlight=False)
    console.print(f"{devices:,} vehicles report their speed once, each under epsilon = {epsilon:g} (local).")
    with Live(_table(worlds, truth), console=console, auto_refresh=False) as live:
        for batch in np.array_split(speeds, BATCHES):
            for world in worlds:
                world.receive(batch)
            live.update(_table(worlds, truth), refresh=console.is_terminal)
    best = min(worlds, key=lambda world: world.channel.worst_case_variance)
    console.print(f"Least worst-case variance: {best.name}. {best.channel.guarantee.describe()}")
    _draw(worlds, speeds, truth, plot)
    console.print(f"Plot: {plot}")


def simulated_speeds(devices: int) -> Floats:
    """Town and motorway traffic; a simulation, so a fixed seed is right."""
    units = SimulationStream(2026).units(3 * devices).reshape(3, devices) - 1.0
    normal = np.sqrt(-2.0 * np.log1p(-units[0])) * np.cos(2.0 * np.pi * units[1])
    town = units[2] < 0.65
    return np.asarray(np.where(town, 38.0 + 11.0 * normal, 104.0 + 13.0 * normal))


def _worlds(epsilon: float) -> Iterator[World]:
    documents: list[type[Hybrid]] = [Duchi, PM, HM, ThreeOutputs, PMOpt, PMSub, HMTP]
    channels: list[tuple[str, NumericChannel]] = [
        (kind.name, kind(epsilon=epsilon, bounds=BOUNDS)) for kind in documents
    ]
    one_bit, optimal = OneBit(epsilon=epsilon, bounds=BOUNDS), Optimal(epsilon=epsilon, bounds=BOUNDS)
    channels.append((f"{one_bit.name} ({OURS})", one_bit))
    if not isinstance(optimal, OneBit):
        channels.append((f"{optimal.name} ({OURS})", optimal))
    for name, channel in channels:
        yield World(name, channel, np.zeros(channel.size, dtype=np.int64))


def _table(worlds: list[World], truth: float) -> Table:
    reports = worlds[0].history[-1][0] if worlds[0].history else 0
    table = Table(title=f"mean speed, truth {truth:.3f} km/h, {reports:,} reports", title_justify="left")
    table.add_column("mechanism", no_wrap=True)
    for heading in ("estimate", "95 % interval", "error", "bits", "kB sent"):
        table.add_column(heading, justify="right", no_wrap=True)
    for world in worlds:
        if not world.history:
            table.add_row(world.name, *[""] * 5)
            continue
        mean = world.history[-1][1]
        table.add_row(
            world.name,
            f"{mean.shown:.3f}",
            f"{mean.lower:.2f} .. {mean.upper:.2f}",
            f"{mean.shown - truth:+.3f}",
            str(world.channel.bits),
            f"{world.sent / 1000:,.1f}",
            style="bold" if OURS in world.name else "",
        )
    return table


def _draw(worlds: list[World], speeds: Floats, truth: float, plot: Path) -> None:
    """Estimates as reports arrive; final intervals; the distribution behind the noise."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (over_time, final, shape) = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    shown = [world for world in worlds if world.name in ("Duchi", "PM", "HM-TP") or OURS in world.name]
    for world in shown:
        reports, means = zip(*world.history, strict=True)
        thousands = np.array(reports) / 1000.0
        over_time.plot(thousands, [mean.value for mean in means], label=world.name)
    over_time.axhline(truth, color="black", linewidth=1, linestyle="--", label="truth")
    over_time.set(title="estimate as reports arrive", xlabel="thousand reports", ylabel="mean speed, km/h")
    over_time.legend(fontsize=8)

    for row, world in enumerate(reversed(worlds)):
        mean = world.history[-1][1]
        colour = "tab:red" if OURS in world.name else "tab:blue"
        final.plot([mean.lower, mean.upper], [row, row], color=colour, linewidth=3, alpha=0.5)
        final.plot(mean.shown, row, "o", color=colour)
    final.axvline(truth, color="black", linewidth=1, linestyle="--")
    final.set_yticks(range(len(worlds)), [world.name for world in reversed(worlds)])
    final.set(title="final 95 % intervals and the truth (dashed)", xlabel="mean speed, km/h")

    best = min(worlds, key=lambda world: world.channel.worst_case_variance)
    bins = 26
    edges = np.linspace(*BOUNDS, bins + 1)
    true_shape = np.histogram(np.clip(speeds, *BOUNDS), edges)[0] / speeds.size
    estimate = numeric_distribution(best.channel, best.counts, bins)
    shape.stairs(true_shape, edges, fill=True, alpha=0.3, color="black", label="truth")
    shape.stairs(estimate.distribution, edges, color="tab:red", label=f"from {best.name} reports")
    shape.set(title="the distribution behind the noise (IBU)", xlabel="speed, km/h", ylabel="share")
    shape.legend(fontsize=8)
    figure.savefig(plot, dpi=110)
    plt.close(figure)
