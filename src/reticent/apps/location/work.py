"""`reticent location`: what the commands do."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.console import Console
from rich.progress import track
from rich.table import Table

from reticent.arguments import real, whole
from reticent.errors import MissingExtra, ParameterError
from reticent.estimation.transport import earth_movers_distance
from reticent.files import NOT_FOR_RELEASE, appearing, made, not_for_release, private
from reticent.fleet.counted import Counted
from reticent.fleet.enrolment import ID_BYTES, Enrolment
from reticent.fleet.operator import Operator
from reticent.fleet.secret_file import kept_secret
from reticent.ledger.device.marks import Marks
from reticent.location import checkins as checkin_files
from reticent.location.campaign import Campaign, Settings
from reticent.location.device import LocationDevice
from reticent.location.privic import NONE, Defence, Privic
from reticent.mechanisms.base import Floats
from reticent.mechanisms.location import (
    blahut_arimoto,
    exponential,
    for_distortion,
    linear_program,
    planar_laplace,
)
from reticent.randomness import SimulationStream
from reticent.spaces import Box, Grid
from reticent.spaces.grid import Cells
from reticent.spaces.roads import read_map

KINDS = ("ba", "exponential", "laplace", "lp")
SIGNING, MASTER = "round.key", "enrolment.key"
_LARGEST = 1 << 24


def channel(
    *,
    box: str,
    grid: str,
    beta: float | None,
    level: float | None,
    distortion: float | None,
    kind: str,
    prior: Path | None,
    plot: Path | None,
    out: Path | None,
) -> None:
    """Make a channel and describe it."""
    space = _grid(box, grid)
    people = np.ones(space.size) if prior is None else _prior(prior, space)
    made = _channel(kind, space, people, beta, level, distortion)
    people = people / people.sum()
    table = Table(show_header=False, box=None)
    for name, text in (
        ("cells", f"{space.rows} x {space.columns}, {space.height:.3f} x {space.width:.3f} km each"),
        ("level", f"{made.level:.6g} per km, between the centres of any two cells"),
        ("mean distance", f"{made.distortion(people):.4g} km from the truth to a report"),
        ("mutual information", f"{made.mutual_information(people):.4g} nats"),
        ("reported as it is", f"{made.staying.min():.3f} to {made.staying.max():.3f} of the time, by cell"),
        ("moved", f"{made.displacement.min():.3g} to {made.displacement.max():.3g} km on average, by cell"),
    ):
        table.add_row(name, text)
    Console(highlight=False).print(table)
    if out is not None:
        _written(
            out,
            space,
            {"report": made.forward(people), "staying": made.staying, "moved_km": made.displacement},
        )
    if plot is not None:
        _maps(
            plot, space, {"people": people, "reports": made.forward(people), "moved, km": made.displacement}
        )


def _channel(
    kind: str, space: Grid, people: Floats, beta: float | None, level: float | None, distortion: float | None
) -> Any:
    if kind not in KINDS:
        raise ParameterError(f"kind must be one of {', '.join(KINDS)}, got {kind!r:.60}")
    if sum(given is not None for given in (beta, level, distortion)) != 1:
        raise ParameterError("one of beta, level and distortion must be given")
    if distortion is not None:
        if kind != "ba":
            raise ParameterError(f"distortion must go with kind ba, got {kind}")
        return for_distortion(space, people, distortion)
    if beta is None:
        assert level is not None
        beta = real("level", level, low=0.0, open_low=True) / 2.0
    beta = real("beta", beta, low=0.0, open_low=True)
    if kind == "ba":
        return blahut_arimoto(space, people, beta)
    if kind == "exponential":
        return exponential(space, 2.0 * beta)
    return (planar_laplace if kind == "laplace" else _solved(people))(space, 2.0 * beta)


def _solved(people: Floats) -> Any:
    return lambda space, level: linear_program(space, people, level)


def estimate(folder: Path, *, out: Path | None, plot: Path | None) -> None:
    """Print where people are."""
    with _campaign(folder) as campaign:
        found, space, account = campaign.privic(), campaign.settings.grid, campaign.study.terms.name
        reports = sum(int(np.sum(counts)) for _, counts in found.rounds)
    console = Console(highlight=False)
    console.print(f"{reports} reports in {len(found.rounds)} rounds; the most likely cells:")
    if reports:
        console.print(f"Entered in the ledger under the account {account}.", soft_wrap=True)
    table = Table("row", "column", "share")
    for cell in np.argsort(-found.estimate)[:10]:
        row, column = divmod(int(cell), space.columns)
        table.add_row(str(row), str(column), f"{found.estimate[cell]:.3f}")
    console.print(table)
    for number in found.alarms:
        console.print(f"The estimate jumped after round {number}: somebody may be lying.")
    if out is not None:
        _written(out, space, {"share": found.estimate})
    if plot is not None:
        _maps(plot, space, {"estimate": found.estimate})


def report(
    file: Path,
    *,
    latitude: str,
    longitude: str,
    ledger: Path,
    enrolment: Path,
    signer: str,
    out: Path,
    lifetime: float,
    most: float,
    most_jump: float,
    moved: bool,
    counted: Path | None,
) -> None:
    """One private report of a place."""
    if not re.fullmatch(r"[0-9a-f]{64}", signer, re.ASCII):
        raise ParameterError("signer must be 64 hexadecimal digits")
    here = [_degrees("latitude", latitude), _degrees("longitude", longitude)]
    who = Enrolment.from_json(_content(enrolment).decode("utf-8", "replace"))
    device = LocationDevice(
        ledger,
        who,
        bytes.fromhex(signer),
        lifetime_per_km=lifetime,
        most_per_km=most,
        most_jump_km=most_jump,
        marks=Marks(moved=moved),
    )
    with device:
        asked = device.take(_content(file))
        if counted is not None:
            device.heed(asked, Counted.from_json(_content(counted)))
        report = device.report(asked, *here)
        with appearing(out) as target:
            target.write(report)
        spent = device.spent_per_km
    Console(highlight=False).print(f"{out} is private; this device has spent {spent:.4g} per km in all.")


def new(folder: Path, *, box: str, grid: str, beta: float, purpose: str, rounds: int) -> None:
    """Begin a campaign, with keys of its own beside it."""
    space = _grid(box, grid)
    assert space.box is not None
    settings = Settings(
        name=folder.name,
        purpose=purpose,
        south=space.box.south,
        north=space.box.north,
        west=space.box.west,
        east=space.box.east,
        rows=space.rows,
        columns=space.columns,
        beta=beta,
        rounds=rounds,
    )
    made(folder.parent)
    with _operator(folder) as (operator, key):
        Campaign.begin(folder, settings, operator, key).close()
    show(folder)


def show(folder: Path) -> None:
    """Describe a campaign."""
    with _campaign(folder) as campaign:
        settings, asked = campaign.settings, campaign.current
        counts = [campaign.store.reports(one.number) for one in campaign.store.rounds()]
        refusals = campaign.store.refusals()
        private(folder / f"round-{asked.number}.json").write_bytes(campaign.file())
    level = asked.channel.level
    console = Console(highlight=False)
    console.print(settings.purpose)
    grid = settings.grid
    table = Table(show_header=False, box=None)
    for name, text in (
        ("cells", f"{grid.rows} x {grid.columns}, {grid.height:.3f} x {grid.width:.3f} km each"),
        ("one report", f"{level:.6g} per km between the centres of any two cells, against everybody"),
        ("all rounds", f"{settings.rounds * level:.6g} per km for a person who answers in each"),
        ("across the box", f"epsilon {level * grid.diameter:.4g} between the cells farthest apart"),
        (
            "open round",
            f"{asked.number} of {settings.rounds}: round-{asked.number}.json, {len(asked.text)} bytes",
        ),
        ("reports", ", ".join(map(str, counts))),
        ("refused", ", ".join(f"{count} {reason}" for reason, count in refusals.items()) or "none"),
    ):
        table.add_row(name, text)
    console.print(table)
    with _operator(folder) as (_, key):
        signer = key.public_key().public_bytes_raw().hex()
    console.print(f"Devices trust the signer {signer}", soft_wrap=True)


def counted(folder: Path, identity: str) -> None:
    """Print the campaign's word on an enrolment."""
    if not re.fullmatch(rf"[0-9a-f]{{{2 * ID_BYTES}}}", identity, re.ASCII):
        raise ParameterError(f"id must be {2 * ID_BYTES} hexadecimal digits, got {len(identity)}")
    with _campaign(folder) as campaign:
        print(campaign.store.counted(bytes.fromhex(identity)).to_json())


def streets(folder: Path, file: Path, *, nodes: Path | None) -> None:
    """Put a map under the maps of a campaign."""
    from reticent.apps.location import streets as drawing

    with _campaign(folder) as campaign:
        box = campaign.settings.grid.box
    count = drawing.write(folder, read_map(file, nodes), box)
    Console(highlight=False).print(f"{count:,} streets are drawn under the maps of {folder.name}.")


def add(folder: Path, reports: list[Path]) -> None:
    """Count reports from files."""
    with _campaign(folder) as campaign:
        outcomes = campaign.add([_content(one) for one in reports])
    for file, outcome in zip(reports, outcomes, strict=True):
        Console(highlight=False).print(f"{file}: {outcome.value}", soft_wrap=True, markup=False)


def end(folder: Path) -> None:
    """End the open round."""
    with _campaign(folder) as campaign:
        following = campaign.end_round()
    if following is None:
        Console(highlight=False).print(
            "This was the last round; `reticent location estimate` says what it came to."
        )
    else:
        show(folder)


def simulate(
    checkins: Path,
    *,
    box: str,
    grid: str,
    beta: float,
    rounds: int,
    people: int | None,
    liars: float,
    inside: bool,
    seed: int,
    out: Path,
) -> None:
    """Play a campaign against the truth, with and without the defence."""
    space = _grid(box, grid)
    cells, share_outside = _read_cells(checkins, space, inside_only=inside)
    truth = space.histogram(cells) / max(1, len(cells))
    size = len(cells) if people is None else whole("people", people, low=1)
    liars = real("liars", liars, low=0.0, high=0.9)
    place = not_for_release(out)
    rows: list[dict[str, Any]] = []
    for name, defence in (("defended", Defence()), ("undefended", NONE)):
        stream = SimulationStream(seed)
        privic = Privic(space, beta, defence)
        lonely = int(np.argmax(np.where(truth > 0.0, exponential(space, beta).displacement, -1.0)))
        for number in track(range(whole("rounds", rounds, low=1)), f"simulating, {name}"):
            used = privic.channel()
            drawn = np.searchsorted(np.cumsum(truth), stream.units(size) - 1.0).clip(0, space.size - 1)
            counts = space.histogram(used.sample(drawn, stream))
            counts[lonely] += round(size * liars / (1.0 - liars))
            privic.learn(used, counts)
            away = earth_movers_distance(space, privic.estimate, truth)
            rows.append(
                {
                    "defence": name,
                    "round": number,
                    "emd_km": away.value,
                    "mean_distance_km": used.distortion(truth),
                    "largest_staying": float(used.staying.max()),
                    "staying_of_the_target": float(used.staying[lonely]),
                }
            )
    with private(place / "rounds.csv").open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    _curves(private(place / "rounds.png"), rows)
    console = Console(highlight=False)
    for name in ("defended", "undefended"):
        last = [row for row in rows if row["defence"] == name][-1]
        console.print(
            f"{name}: {last['emd_km']:.4g} km from the truth after {rounds} rounds; the "
            f"{'cell that the lying reports name' if liars else 'most remote cell'} is reported as it is "
            f"{last['staying_of_the_target']:.2f} of the time"
        )
    if share_outside:
        treatment = (
            "were left out"
            if inside
            else "counted in the nearest cell, as a device there reports; --inside leaves them out"
        )
        console.print(f"{share_outside:.1%} of the check-ins are outside of the box: they {treatment}.")
    console.print(
        f"No service has the truth to compare with: {NOT_FOR_RELEASE}. {place}/rounds.csv, rounds.png",
        soft_wrap=True,
    )


def _read_cells(checkins: Path, space: Grid, *, inside_only: bool) -> tuple[Cells, float]:
    """Return the cells of the check-ins to simulate, and the share of check-ins outside of the box."""
    latitudes, longitudes = checkin_files.read_points(checkins)
    inside = space.located_box.contains(latitudes, longitudes)
    kept = inside if inside_only else np.ones_like(inside)
    if not kept.any():
        raise ParameterError(f"{checkins.name} must have check-ins{' inside of the box' * inside_only}")
    return space.cells(latitudes[kept], longitudes[kept]), 1.0 - float(inside.mean())


# Arguments and files


def _grid(box: str, grid: str) -> Grid:
    sides = box.split(",")
    try:
        south, north, west, east = (float(side) for side in sides)
    except ValueError as error:
        raise ParameterError(f"box must be south,north,west,east in degrees, got {box!r:.60}") from error
    found = re.fullmatch(r"([0-9]{1,7})x([0-9]{1,7})", grid, re.ASCII)
    if found is None:
        raise ParameterError(f"grid must read like 11x15, got {grid!r:.60}")
    return Grid.over(Box(south, north, west, east), int(found[1]), int(found[2]))


def _degrees(name: str, text: str) -> float:
    """A number that is not quoted: it is where somebody is."""
    try:
        return float(text)
    except ValueError:  # it quotes where somebody is
        raise ParameterError(f"{name} must be a number of degrees") from None


def _prior(path: Path, space: Grid) -> Floats:
    """People by cell; this file is public, so its lines may be quoted."""
    people = np.zeros(space.size)
    for number, line in enumerate(_content(path).decode("utf-8", "replace").splitlines()):
        if number == 0 or not line.strip():
            continue
        try:
            row, column, count = line.split(",")
            place = whole("row", int(row), low=0, high=space.rows - 1) * space.columns
            place += whole("column", int(column), low=0, high=space.columns - 1)
            people[place] += real("people", float(count), low=0.0)
        except ValueError as error:
            raise ParameterError(f"prior {path.name}, line {number + 1}: {error}") from error
    if not people.sum() > 0.0:
        raise ParameterError(f"prior {path.name} must hold people")
    return people


@contextmanager
def _operator(folder: Path) -> Iterator[tuple[Operator, Ed25519PrivateKey]]:
    """The operator and the signing key: beside the campaign's folder, or those of the service it lies in."""
    beside = folder.resolve().parent
    if beside.name == "places" and (beside.parent / ".service").is_dir():
        with _served(beside.parent) as found:
            yield found
        return
    with Operator.at(beside / MASTER) as operator:
        yield operator, Ed25519PrivateKey.from_private_bytes(kept_secret(beside / SIGNING))


@contextmanager
def _served(folder: Path) -> Iterator[tuple[Operator, Ed25519PrivateKey]]:
    from reticent.apps.collect.collecting import Collecting
    from reticent.apps.query.data_sets import DataSets
    from reticent.service.settings import Settings as ServiceSettings

    with (
        closing(DataSets(ServiceSettings(folder))) as served,
        closing(Collecting(served.settings, lambda: served.book)) as collecting,
    ):
        yield collecting.operator, collecting.signing_key


@contextmanager
def _campaign(folder: Path) -> Iterator[Campaign]:
    if not folder.is_dir():
        raise ParameterError(f"there is no campaign at {folder}")
    with _operator(folder) as (operator, key), Campaign(folder, operator, key) as campaign:
        yield campaign


def _content(file: Path) -> bytes:
    if not file.is_file() or file.stat().st_size > _LARGEST:
        raise ParameterError(f"there is no such file, or it is too large: {file}")
    return file.read_bytes()


def _written(out: Path, space: Grid, columns: dict[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(["row", "column", *columns])
        for cell in range(space.size):
            shares = [f"{float(values[cell]):.10g}" for values in columns.values()]
            writer.writerow([*divmod(cell, space.columns), *shares])


def _plotting() -> Any:
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtra("the plot", "plot") from error
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _maps(path: Path, space: Grid, maps: dict[str, Floats]) -> None:
    plt = _plotting()
    figure, axes = plt.subplots(1, len(maps), figsize=(5 * len(maps), 4), squeeze=False, layout="constrained")
    for axis, (name, values) in zip(axes[0], maps.items(), strict=True):
        shown = axis.imshow(values.reshape(space.rows, space.columns), origin="lower", cmap="viridis")
        axis.set_title(name)
        figure.colorbar(shown, ax=axis)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _curves(path: Path, rows: list[dict[str, Any]]) -> None:
    plt = _plotting()
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    for name in ("defended", "undefended"):
        mine = [row for row in rows if row["defence"] == name]
        axis.plot([row["round"] + 1 for row in mine], [row["emd_km"] for row in mine], marker="o", label=name)
    axis.set(
        xlabel="rounds",
        ylabel="earth mover's distance, km",
        title=f"Estimate against truth: {NOT_FOR_RELEASE}",
    )
    axis.set_ylim(bottom=0.0)
    axis.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
