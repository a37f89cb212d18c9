"""`reticent demo federated`: simulated vehicles learn together when drivers brake hard, and a page shows how.

It writes an operator's files (a task, a table that plays the vehicles, a public hold-out) and goes on as
`reticent federated run`. The vehicles are invented, so that training without privacy can be shown beside it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from reticent.apps.federated import work as federated
from reticent.apps.query.demo import demo_listener
from reticent.arguments import whole
from reticent.errors import MissingExtra
from reticent.federated import tables, task_file
from reticent.federated.simulation import IDENTITY, simulate
from reticent.randomness import SECURE, SimulationStream

ROUNDS, HOLD_OUT = 50, 5000
_PACE_S = 0.25  # between rounds, so that they can be watched
_ROADS = ("dry", "wet", "snow")
_KINDS = ("car", "van", "truck", "bus")
_TASK = """\
name: braking
version: 1
purpose: To warn drivers in time, we learn when vehicles brake hard.
model: logistic
features:
  speed: {{low: 0, high: 130}}
  distance: {{low: 0, high: 100}}
  tyres: {{low: 0, high: 8}}
  road: {{values: [dry, wet, snow]}}
  kind: {{values: [car, van, truck, bus]}}
target: {{column: braked, values: [soft, hard]}}
epsilon: 2
rounds: {rounds}
group: {group}
rate: 6
typical: 0.2
simulation: {{table: vehicles.parquet, holdout: public.parquet}}
"""


def run(*, folder: Path, vehicles: int, port: int | None, once: bool) -> None:
    """Invent vehicles, train on them, show a page; then stay.

    Args:
        folder: for the files; those of an earlier demo are replaced.
        vehicles: how many; each reports once.
        port: of the page; by default 8000, or any if that is taken.
        once: train without pauses, and end.
    """
    whole("vehicles", vehicles, low=1000, high=5_000_000)
    file, out = folder / "braking.yaml", folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(_TASK.format(rounds=ROUNDS, group=vehicles // ROUNDS))
    _write(folder / "vehicles.parquet", vehicles)
    _write(folder / "public.parquet", HOLD_OUT)
    federated.check(file)
    screen = Console()
    screen.print(_without_privacy(file), soft_wrap=True)
    screen.print(
        f"More to see: reticent federated show {out / federated.MODEL}, and plan {file} --target 0.17",
        soft_wrap=True,
    )
    with demo_listener(port) as page:
        federated.run(file, out=out, page=page, stay=not once, pace_s=0.0 if once else _PACE_S)


def _write(path: Path, count: int) -> None:
    """Invented vehicles: how they drive, and whether that made them brake hard."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("the demo", "query") from error
    speed, distance, tyres = 130 * _uniform(count), 100 * _uniform(count), 8 * _uniform(count)
    road, kind = (_uniform(count) * len(of) // 1 for of in (_ROADS, _KINDS))
    score = 0.06 * (speed - 65) - 0.08 * (distance - 50) + 0.2 * (tyres - 4) + 0.8 * road - 0.5 * (kind == 2)
    odds = _uniform(count)
    braked = np.log(odds / (1 - odds)) < score
    columns = {
        "speed": speed,
        "distance": distance,
        "tyres": tyres,
        "road": np.array(_ROADS)[road.astype(int)],
        "kind": np.array(_KINDS)[kind.astype(int)],
        "braked": np.where(braked, "hard", "soft"),
    }
    pa.parquet.write_table(pa.table(columns), path)


def _uniform(count: int) -> Any:
    return SECURE.units(count) - 1.0


def _without_privacy(file: Path) -> str:
    """The same training without noise, which nobody could do without seeing the vehicles' data."""
    given = task_file.read(file)
    assert given.table is not None
    assert given.holdout is not None
    rows, public = (tables.read(path, given.encoding) for path in (given.table, given.holdout))
    theta = simulate(
        given.task, rows.features, rows.targets, rng=SimulationStream(1), randomiser=IDENTITY
    ).theta
    assert given.task.model is not None
    error = given.task.model.error(theta, public.features, public.targets)
    return f"Without any privacy the same training would get {100 * (1 - error):.1f} % right."
