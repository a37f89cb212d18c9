"""What remains of a model when some of its clients lie: attack x defence x share of liars.

Reference: Zhao 2022, Sections 5.1.2 and 5.3.4; the attacks of `federated.robust.attacks`. Clients are writers
of MNIST, images halved to 14 x 14, the model is softmax regression; every round has other writers. Accuracies
are on writers who took no part, simulation only: nobody paid for them, and no noise is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_5 import writers
from reticent.experiments.zhao_2022.chapter_5 import defences
from reticent.experiments.zhao_2022.chapter_5.defences import Defence
from reticent.federated.robust import Evaluation, Grid, judge
from reticent.federated.robust.attacks import ATTACKS, Seen, other_labels
from reticent.federated.softmax import Softmax
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream

SIDE, IMAGES, CLASSES = 14, 100, 10
CLIENTS, LIARS = 20, 6  # of a round; so many may lie, as everybody is told
SHARES = (0.1, 0.2, 0.3)
STEPS, RATE = 5, 0.5  # of a client in a round
ROUNDS = 15
MODEL = Softmax(SIDE * SIDE, CLASSES, l2=0.0)
GRID = Grid(MODEL.dimensions, 1 << 16, 1 << 18)  # up to a length of 4; honest ones have 0.5 to 2
NOBODY = "nobody"


@dataclass(frozen=True)
class People:
    """Writers: images as rows of numbers, and digits; and images of others, to judge by."""

    images: list[Floats]
    digits: list[NDArray[np.int64]]
    seen: Floats
    right: NDArray[np.int64]


@cache
def people(data: Path | None, count: int | None, most: int) -> People:
    """All writers, or some."""
    found = {
        split: writers.load(split, turned_share=0.0, most=most, seed=1, side=SIDE, writers=count, given=data)
        for split in ("train", "test")
    }
    rows = [one.reshape(len(one), -1).astype(np.float64) for one in found["train"].images]
    seen = np.concatenate([one.reshape(len(one), -1) for one in found["test"].images]).astype(np.float64)
    return People(rows, found["train"].labels, seen, np.concatenate(found["test"].labels))


def learnt(theta: Floats, images: Floats, digits: NDArray[np.int64]) -> Floats:
    """A client's update on the grid: full-batch steps on its own images."""
    at = theta.copy()
    for _ in range(STEPS):
        at -= RATE * MODEL.mean_gradient(at, images, digits)
    return GRID.values(GRID.placed(at - theta))


@dataclass(frozen=True)
class Trained:
    """What came of a training.

    Attributes:
        accuracy: of others' images; of the start, if the model is not finite.
        finite: whether all its numbers are.
        stood: rounds that moved nothing, since too few updates were left.
    """

    accuracy: float
    finite: bool
    stood: int


def trained(crowd: People, defence: Defence, attack: str, liars: int, rounds: int, seed: int) -> Trained:
    """A training of which so many of each round lie."""
    stream = SimulationStream(seed, path=(5,))
    theta, before, stood = MODEL.start(), np.zeros((1, MODEL.dimensions)), 0
    for _ in range(rounds):
        who = np.argsort(stream.words(len(crowd.images)))[:CLIENTS]
        updates = np.stack([learnt(theta, crowd.images[one], crowd.digits[one]) for one in who])
        own, others = updates[:liars], updates[liars:]
        came = others
        if liars:
            wrong = [other_labels(crowd.digits[one], CLASSES) for one in who[:liars]]
            flipped = own
            if attack == "label flip":
                pairs = zip(who[:liars], wrong, strict=True)
                flipped = np.stack([learnt(theta, crowd.images[one], said) for one, said in pairs])
            came = np.vstack([ATTACKS[attack](Seen(GRID, own, others, before, flipped)), others])
        step, before = defence(came), others
        stood += step is None
        theta = theta if step is None else theta + step
    finite = bool(np.isfinite(theta).all())
    used = theta if finite else MODEL.start()
    return Trained(1.0 - MODEL.error(used, crowd.seen, crowd.right), finite, stood)


def low_evaluations(crowd: People, rounds: int, seed: int) -> tuple[int, int]:
    """How many of all evaluations are low when everybody is honest: every writer, in every round."""
    stream, theta, low, said = SimulationStream(seed, path=(6,)), MODEL.start(), 0, 0
    for _ in range(rounds):
        order = np.argsort(stream.words(len(crowd.images)))
        updates = [learnt(theta, crowd.images[one], crowd.digits[one]) for one in order]
        for at in range(0, len(updates) - CLIENTS + 1, CLIENTS):
            found = judge(GRID, [GRID.placed(one) for one in updates[at : at + CLIENTS]], LIARS)
            low += found.evaluations.count(Evaluation.LOW)
            said += CLIENTS
        theta = theta + np.mean(updates[:CLIENTS], axis=0)
    return low, said


def run(options: Options) -> Outcome:
    """Train under every attack, with every defence, and shares of liars."""
    crowd = people(options.data, 40 if options.quick else None, 20 if options.quick else IMAGES)
    rounds = 2 if options.quick else ROUNDS
    rules = defences.ours(GRID, LIARS) | defences.flowers(CLIENTS, LIARS)
    runs = 1 if options.quick else options.repetitions or 2
    cases = [(NOBODY, 0.0), *((attack, share) for attack in ATTACKS for share in SHARES)]
    if options.quick:
        cases = [(NOBODY, 0.0), ("sign flip", 0.3), ("not finite", 0.3)]
    rows, done = [], 0
    for attack, share in cases:
        for name, rule in rules.items():
            liars = round(share * CLIENTS)
            several = [
                trained(crowd, rule, attack, liars, rounds, options.seed + time) for time in range(runs)
            ]
            rows.append(_row(attack, share, name, several))
            done += 1
            options.progress(done, len(cases) * len(rules))
    clean = next(
        row["accuracy"] for row in rows if (row["attack"], row["defence"]) == (NOBODY, defences.NONE)
    )
    rows = [{**row, "loss": clean - row["accuracy"]} for row in rows]
    low, said = low_evaluations(crowd, rounds, options.seed)
    return Outcome(rows, _caption(rows, rounds, runs, low, said), lambda: _draw(rows))


def _row(attack: str, share: float, defence: str, several: list[Trained]) -> Row:
    return {
        "attack": attack,
        "share": share,
        "defence": defence,
        "accuracy": float(np.mean([one.accuracy for one in several])),
        "least": min(one.accuracy for one in several),
        "models not finite": sum(not one.finite for one in several),
        "rounds without a step": sum(one.stood for one in several),
    }


def _caption(rows: list[Row], rounds: int, runs: int, low: int, said: int) -> str:
    lines = [
        f"Writers of MNIST ({SIDE} x {SIDE}), {CLIENTS} a round, other ones each time, {rounds} rounds, "
        f"{runs} run(s); softmax regression, {STEPS} steps each. Everybody is told that {LIARS} may lie "
        f"(Bulyan: {(CLIENTS - 3) // 4}). Simulation only, without noise.",
        "Printed (5.3.4): rewards and reputations of one poisoner; no accuracy under attack.",
        f"Loss of accuracy against the mean without liars ({rows[0]['accuracy']:.3f}), by share of liars:",
    ]
    names = list(dict.fromkeys(row["defence"] for row in rows))
    for name in names:
        parts = []
        for share in dict.fromkeys(row["share"] for row in rows):
            worst = max(
                (row for row in rows if (row["defence"], row["share"]) == (name, share)),
                key=lambda row: float(row["loss"]),
            )
            parts.append(f"{share:.0%} {worst['loss']:.3f}" + (f" ({worst['attack']})" if share else ""))
        broken = sum(row["models not finite"] for row in rows if row["defence"] == name)
        lines.append(f"- {name}, worst attack: {', '.join(parts)}; models that are not finite: {broken}.")
    ours = [row for row in rows if row["defence"] == "Multi-Krum" and row["share"] == max(SHARES)]
    lines += [
        f"Multi-Krum at {max(SHARES):.0%}: "
        + ", ".join(f"{row['attack']} {row['loss']:.3f}" for row in ours)
        + ". A little is enough, zeros, copies and replays of a round ago are accepted by it: what they cost "
        "is what remains.",
        f"Without liars {low} of {said} evaluations were low ({low / max(said, 1):.2%}): a rejected "
        "score must also pass twice the median.",
    ]
    return wrapped(*lines)


def _draw(rows: list[Row]) -> Any:
    attacks = [one for one in dict.fromkeys(row["attack"] for row in rows) if one != NOBODY]
    names = list(dict.fromkeys(row["defence"] for row in rows))
    worst = max(row["share"] for row in rows)
    figure, axes = plots.panels(1, 1, size=(10.0, 5.0))
    axis = axes[0, 0]
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        found = {
            row["attack"]: row["accuracy"] for row in rows if row["defence"] == name and row["share"] == worst
        }
        axis.bar(
            [at + place * width for at in range(len(attacks))],
            [found[one] for one in attacks],
            width,
            label=name,
        )
    axis.set_xticks([at + 0.4 for at in range(len(attacks))], attacks, rotation=20, ha="right")
    axis.set_ylabel("accuracy for other writers (simulation only)")
    axis.set_title(f"{worst:.0%} of the clients lie", loc="left", fontsize=11)
    axis.set_ylim(0.0, 1.15)  # the legend above the bars
    axis.legend(frameon=False, fontsize=7, ncols=3, loc="upper center")
    return figure
