"""Section 5.3.3: seconds on phone and edge, and bytes between them, for each way of training.

One home of 28 x 28 pictures. The phone is one thread of this machine, the edge another: there is no Raspberry
Pi here, so what is compared is where the work lies. Numbers are a machine's, on a day: no run is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.federated import Softmax, torch_models
from reticent.federated.on_device import HomeTask
from reticent.federated.robust import Grid
from reticent.federated.split.documented import Documented
from reticent.federated.split.front import KEPT, Front, strokes
from reticent.federated.split.noised import NoisedTask
from reticent.randomness import SimulationStream

SIDE, IMAGES = 28, 256
PRINTED_PHONE_S, PRINTED_EDGE_S, PRINTED_IMAGES = 144.0, 9.0, 6000


def run(options: Options) -> Outcome:
    """Time a pass of each way."""
    count = 32 if options.quick else IMAGES
    images = strokes(count, SIDE, options.seed).astype(np.float32)
    labels = np.arange(count) % 10
    rows = [*_documented(images, labels), *_noised(images, labels), *_on_device(images, labels)]
    of = {(row["way"], row["place"]): row for row in rows}
    split = of["documents' split", "phone"], of["documents' split", "edge"]
    caption = wrapped(
        f"Section 5.3.3: one pass over {count} pictures of {SIDE} x {SIDE} pixels, one thread each; a "
        "machine's seconds, on a day.",
        f"Printed: {PRINTED_PHONE_S:g} s on a Raspberry Pi 4 and {PRINTED_EDGE_S:g} s on a laptop for an "
        f"epoch of {PRINTED_IMAGES:,} pictures of the whole network; models of 617.8 KB.",
        "Found, seconds for 1,000 pictures: "
        + "; ".join(f"{row['way']}, {row['place']} {row['seconds for 1,000']:.2f}" for row in rows)
        + ".",
        f"Bytes sent for a picture of {SIDE * SIDE}: documents' split {split[0]['bytes a picture']:,} in "
        f"every pass ({split[0]['bytes a picture'] / SIDE**2:.0f} times the picture, and as many back), "
        f"noised {of['noised', 'phone']['bytes a picture']:,} once, on the device none. The convolutions, "
        "which stay on the phone, are most of the work: the split takes little of it away.",
    )
    return Outcome(rows, caption, lambda: _draw(rows))


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def _row(way: str, place: str, seconds: float, count: int, size: int) -> Row:
    return {"way": way, "place": place, "seconds for 1,000": seconds * 1000 / count, "bytes a picture": size}


def _documented(images: Any, labels: Any) -> list[Row]:
    torch_models.torch_or_error().set_num_threads(1)
    task = Documented(SIDE)
    theta = task.start(1)
    phone, edge = task.phone(theta, SimulationStream(1)), task.edge(theta)
    phone.learnt(edge.slopes(phone.sent(images[:8]), labels[:8]))  # what is loaded once is loaded now
    on_phone = at_edge = 0.0
    for at in range(0, len(images), task.batch):
        some = slice(at, at + task.batch)
        first, features = _timed(partial(phone.sent, images[some]))
        second, slopes = _timed(partial(edge.slopes, features, labels[some]))
        third, _ = _timed(partial(phone.learnt, slopes))
        on_phone += first + third
        at_edge += second
    size = 4 * task.features + 4
    way = "documents' split"
    return [_row(way, "phone", on_phone, len(images), size), _row(way, "edge", at_edge, len(images), size)]


def _noised(images: Any, labels: Any) -> list[Row]:
    front = Front.made(SIDE)
    task = NoisedTask("device", KEPT, 10, Grid(10 * KEPT, 1 << 16, 1 << 24), 1.0, 1.0)
    on_phone, vectors = _timed(lambda: task.noised(front.features(images), labels, SimulationStream(1)))
    at_edge, _ = _timed(lambda: task.slopes(np.zeros(task.dimensions), vectors))
    size = 4 * task.dimensions
    return [
        _row("noised", "phone", on_phone, len(images), size),
        _row("noised", "edge", at_edge, len(images), 0),
    ]


def _on_device(images: Any, labels: Any) -> list[Row]:
    model = Softmax(SIDE * SIDE, 10, l2=0.0)
    grid = Grid(model.dimensions, 1 << 16, 1 << 24)
    task = HomeTask("device", model, grid, 1.0, len(images), 1.0, 1, 1, 1.0)
    rows = images.reshape(len(images), -1)
    seconds, _ = _timed(lambda: task.trained(np.zeros(model.dimensions), rows, labels, SimulationStream(1)))
    return [_row("on the device", "phone", seconds, len(images), 0)]


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 1, size=(7.0, 3.6))
    axis = axes[0, 0]
    names = [f"{row['way']}, {row['place']}" for row in rows]
    axis.barh(names, [row["seconds for 1,000"] for row in rows], color="#1f5fa8")
    axis.set_xscale("log")
    axis.set_xlabel("CPU seconds for 1,000 pictures, one pass")
    axis.invert_yaxis()
    return figure
