"""`reticent demo audit`: a person's record and a digit, rebuilt from one update, and not from a private one.

Both are invented, and built in. A client computes one update of each model and sends it twice: as it is, and
as one report of LDP-FedSGD, paid for in a ledger of its own. The server takes both apart in the same way.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.console import Console
from rich.table import Table

from reticent.apps.audit import reports
from reticent.audit import gradients
from reticent.audit.leak_page import Exhibit, leak_page, of_update
from reticent.audit.leakage import Layers, success_under_exchange
from reticent.audit.leakage.sources import Arrays, subject
from reticent.audit.reconstruction.measures import psnr
from reticent.federated import payload, tasks
from reticent.federated.client import Client
from reticent.federated.encoding import Encoding
from reticent.federated.models import Logistic
from reticent.federated.server import averaged, summed
from reticent.fleet.enrolment import enrolled
from reticent.ledger.device.marks import Marks
from reticent.mechanisms.base import Floats
from reticent.mechanisms.record import Category, Number
from reticent.randomness import SimulationStream

EPSILON = 2.0
_HIDDEN, _CLASSES = 24, 10
_PERSON: dict[str, float | str] = {
    "age": 23.0,
    "income": 38_200.0,
    "hours": 61.0,
    "education": "school",
    "family": "married",
    "health": "chronic",
}
_CENSUS = Encoding(
    [
        Number("age", (0.0, 100.0)),
        Number("income", (0.0, 200_000.0)),
        Number("hours", (0.0, 80.0)),
        Category("education", ("school", "college", "university")),
        Category("family", ("single", "married", "divorced", "widowed")),
        Category("health", ("chronic", "well")),
    ],
    Category("moved", ("no", "yes")),
)
_DIGIT = """
............
...######...
..##....##..
........##..
.......##...
....####....
.......##...
........##..
........##..
..##....##..
...######...
............
"""
_THREE = 3


def run(*, folder: Path) -> None:
    """Show both in the terminal, and write the page."""
    console = Console(highlight=False, markup=False, emoji=False)
    person = _CENSUS.encoded({name: np.array([value]) for name, value in _PERSON.items()})
    model = Logistic(_CENSUS.inputs, l2=0.0)
    theta = SimulationStream(5).units(model.dimensions) - 1.5  # the parameters of a round are public
    console.print(f"A client trains on one record, and sends one update: {model.dimensions} numbers.\n")
    census = _sent_twice((model, theta), person, [1.0], console, "A person", columns=_CENSUS.columns)
    console.print(_table(census))
    digit, layers = picture(), _network()
    size = sum(w.size + b.size for w, b in zip(layers.weights, layers.biases, strict=True))
    console.print(f"\nThe same with a drawn digit and a network of {size:,} parameters.\n")
    drawn = _sent_twice(layers, digit, [_THREE], console, "A digit", shape=(12, 12))
    console.print(_side_by_side(digit[0], [one.rebuilt for one in drawn]))
    found = [f"{psnr(digit[0], one.rebuilt[0]):.0f}" for one in drawn if one.rebuilt is not None]
    console.print(f"Nearness to the truth, in decibels: {', '.join(found)}.")
    best = success_under_exchange(1.0 / _CLASSES, EPSILON)
    console.print(
        f"Whatever a server knows besides: who is right 1 time in {_CLASSES} without a report of epsilon "
        f"{EPSILON:g} is right at most {best:.2f} of the time with it.",
        soft_wrap=True,
    )
    place = folder / "audit.html"
    made = reports.made_line("records invented, one update each, as it is and as a private report")
    page = leak_page([*census, *drawn], title="What one update says", made=made)
    reports.write(page, place)
    console.print(f"\nPage: {place}", soft_wrap=True)


def picture() -> Floats:
    """The drawn digit, one record of numbers in [0, 1]."""
    rows = [[float(cell == "#") for cell in line] for line in _DIGIT.strip().splitlines()]
    return np.array([np.ravel(rows)])


def _network() -> Layers:
    """A network that nobody has trained yet."""
    rng = SimulationStream(11)

    def drawn(*shape: int) -> Floats:
        wide = 2.0 / np.sqrt(shape[-1])
        return np.asarray(wide * (rng.units(int(np.prod(shape))) - 1.5)).reshape(shape)

    weights = drawn(_HIDDEN, picture().shape[1]), drawn(_CLASSES, _HIDDEN)
    return Layers(weights, (drawn(_HIDDEN), drawn(_CLASSES)))


def _sent_twice(
    model: tuple[Logistic, Floats] | Layers,
    records: Floats,
    targets: Sequence[float],
    console: Console,
    title: str,
    *,
    columns: Sequence[str] = (),
    shape: tuple[int, int] | None = None,
) -> list[Exhibit]:
    """The update as it is and as a private report; both taken apart by the server."""
    plain, _ = subject(model).measured(records, targets)
    report, noisy = private(plain)
    found = []
    for arrays, words in ((plain, "a plain update"), (noisy, f"a private report, epsilon {EPSILON:g}")):
        audit = gradients(model, update=arrays, truth=records, records=1)
        console.print(f"{title}, {words}:")
        for line in audit.lines[:1]:
            console.print(f"  {line}", soft_wrap=True)
        shown = of_update(audit, arrays, title=f"{title}: {words}", columns=columns, shape=shape)
        found.append(shown)
    found[1] = _guessed(found[1], noisy, report)
    return found


def _guessed(shown: Exhibit, arrays: Arrays, report: bytes) -> Exhibit:
    """What a server would take for the record, though it has no reason to: the same division as before."""
    sent = [f"{len(report)} bytes: {report.hex()}", "what they mean, on average over many clients:"]
    return replace(
        shown,
        rebuilt=guess(arrays),
        sent=[*sent, *shown.sent],
        label="the server's best guess" if not shown.found else shown.label,
    )


def guess(arrays: Arrays) -> Floats:
    """What enters the first layer, by the row whose bias moved most; zeros where none moved.

    Reference: Biswas 2023, Lemma 6.1.
    """
    if "theta" in arrays:
        weights, bias = arrays["theta"][None, :-1], arrays["theta"][-1:]
    else:
        weights, bias = arrays["0.weight"], arrays["0.bias"]
    row = int(np.abs(bias).argmax())
    if bias[row] == 0.0:
        return np.zeros((1, weights.shape[1]))
    return np.asarray(np.clip(weights[row : row + 1] / bias[row], -1.0, 1.0))


def private(arrays: Arrays) -> tuple[bytes, dict[str, Floats]]:
    """One report of an update, and what the server makes of it alone: an unbiased estimate by array."""
    flat = np.concatenate([np.ravel(array) for array in arrays.values()])
    task = tasks.designed(
        "audit", flat.size, epsilon=EPSILON, purpose="a demonstration", rounds=1, group=1, rate=1.0
    )
    signing = Ed25519PrivateKey.generate()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        signer = signing.public_key().public_bytes_raw()
        me = enrolled(os.urandom(32))
        with Client(
            place / "client.ledger", me, signer, lifetime=EPSILON, marks=Marks(place / "marks")
        ) as client:
            report = client.report(client.take(tasks.signed(task, signing)), 0, flat)
    _, read = payload.parsed(task, 0, [report])
    estimate = averaged(task, summed(task, read.asked, read.symbols), 1)
    found, first = {}, 0
    for name, array in arrays.items():
        found[name] = estimate[first : first + array.size].reshape(array.shape)
        first += array.size
    return report, found


# In the terminal


def _table(census: Sequence[Exhibit]) -> Table:
    table = Table(title="One person", title_justify="left")
    headings = ("attribute", "truth", "from the plain update", "guessed from the private one")
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    told = [decoded(one.rebuilt[0]) if one.rebuilt is not None else {} for one in census]
    for name, value in _PERSON.items():
        truth = f"{value:,.0f}" if isinstance(value, float) else str(value)
        table.add_row(name, truth, *(one.get(name, "") for one in told))
    return table


def decoded(record: Floats) -> dict[str, str]:
    """A record in words."""
    found, first = {}, 0
    for one in _CENSUS.described()["features"]:
        if "bounds" in one:
            low, high = one["bounds"]
            found[one["name"]] = f"{(low + high) / 2 + (high - low) / 2 * record[first]:,.0f}"
            first += 1
            continue
        width = len(one["values"]) - 1
        part = record[first : first + width]
        best = int(part.argmax()) if part.max() > 0.0 else width
        found[one["name"]] = str(one["values"][best])
        first += width
    return found


def _side_by_side(truth: Floats, rebuilt: Sequence[Floats | None]) -> str:
    pictures = [truth, *(one[0] for one in rebuilt if one is not None)]
    names = ("truth", "from the plain update", "guessed from the private one")
    side = 12
    lines = ["".join(f"{name:<28}" for name in names).rstrip()]
    for row in range(side):
        parts = [_line(one.reshape(side, side)[row]) for one in pictures]
        lines.append("".join(f"{part:<28}" for part in parts).rstrip())
    return "\n".join(lines)


def _line(pixels: Floats) -> str:
    shades = " .:-=+*#%@"
    places = np.clip(np.nan_to_num(pixels), 0.0, 1.0) * (len(shades) - 1)
    return "".join(2 * shades[round(place)] for place in places.tolist())
