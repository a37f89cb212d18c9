"""Section 5.4: pictures rebuilt from what the edge is sent, under the documents' split and under ours.

The attacker is the edge. It has public pictures (those of MNIST that nobody trained on), runs the public
front or the round's own front layers on them with the same noise, and fits the best linear decoder: ridge
regression from what is sent to pixels. It then rebuilds pictures of a home. Under the documents' split it
sees each record once in every pass, with fresh noise, and takes the mean; under ours it sees one draw, ever.

How well it does: the share of pictures that are recognised, each rebuilt one being nearest to its own among
100, and the mean squared error against that of the mean picture. Labels need no attack under the documents'
split: they are sent. Under ours the block is named that is most like the mean of its class in the public
pictures. Simulation only: all data are public.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_5 import writers
from reticent.experiments.zhao_2022.chapter_5.split_training import EPOCHS, EPSILON, RATE, SIDE, halved
from reticent.federated import torch_models
from reticent.federated.robust import Grid
from reticent.federated.softmax import Labels
from reticent.federated.split.documented import PUBLIC, Documented, Singles, laplace, trained
from reticent.federated.split.front import KEPT, Front
from reticent.federated.split.noised import FINE, NoisedTask
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream

LEARNT, ATTACKED, CROWD = 3000, 300, 100  # public pictures, pictures of the home, pictures to tell apart
MUS = (1.0, 2.0, 4.0)
PASSES = (1, 2 * EPOCHS)
SHOWN = 8
RIDGES = (1e-3, 1e-1, 1e1, 1e3)


@dataclass(frozen=True)
class Rebuilt:
    """What a decoder makes of what was sent."""

    way: str
    pictures: Floats
    error: float
    recognised: float
    labels: float


def decoded(sent: Floats, pixels: Floats, seen: Floats) -> Floats:
    """Pictures from what was sent, by ridge regression; the penalty that does best on the last sixth."""
    cut = len(sent) - len(sent) // 6
    centre, mean = sent[:cut].mean(axis=0), pixels[:cut].mean(axis=0)
    x, y = sent[:cut] - centre, pixels[:cut] - mean
    square, cross = x.T @ x, x.T @ y
    held, best = (np.inf, np.zeros_like(cross))
    for ridge in RIDGES:
        weights = np.linalg.solve(
            square + ridge * np.trace(square) / len(square) * np.eye(len(square)), cross
        )
        error = float(np.square((sent[cut:] - centre) @ weights + mean - pixels[cut:]).mean())
        if error < held:
            held, best = error, weights
    return np.asarray((seen - centre) @ best + mean)


def recognised(rebuilt: Floats, true: Floats) -> float:
    """The share of rebuilt pictures that are nearest to their own, among `CROWD`."""
    hits = 0
    for at in range(len(true)):
        others = [(at + k) % len(true) for k in range(min(CROWD, len(true)))]
        hits += int(np.argmin(np.square(true[others] - rebuilt[at]).sum(axis=1))) == 0
    return hits / len(true)


def documented_sent(
    options: Options, images: Singles, digits: Labels
) -> Callable[[Singles, int, int], Floats]:
    """What the edge is sent of pictures, the mean of so many passes; front layers after a round."""
    torch_models.torch_or_error().set_num_threads(1)
    task = Documented(SIDE, 10, 64, PUBLIC, EPSILON, 64, 1 if options.quick else EPOCHS, RATE)
    theta = task.start(options.seed)
    stream = SimulationStream(options.seed, path=(9,))
    phone = trained(
        task, theta, images, digits, edge=task.edge(theta), rng=stream.spawn(0), order=stream.spawn(1)
    )

    def sent(pictures: Singles, passes: int, number: int) -> Floats:
        quiet = np.concatenate(
            [phone.quiet(pictures[at : at + 500]) for at in range(0, len(pictures), 500)]
        ).astype(np.float64)
        noise = np.zeros_like(quiet)
        mine = stream.spawn(number)
        for _ in range(passes):
            noise += laplace(quiet.shape, 2.0 / EPSILON, mine)
        return quiet + noise / passes

    return sent


def noised_sent(front: Front, mu: float, seed: int) -> Callable[[Singles, Labels, int], Floats]:
    """What the edge is sent of pictures and labels, all blocks."""
    task = NoisedTask("decoder", KEPT, 10, Grid(10 * KEPT, 1 << 16, 1 << 24), 1.0, mu)

    def sent(pictures: Singles, labels: Labels, number: int) -> Floats:
        stream = SimulationStream(seed, path=(10, number, round(1000 * mu)))
        return task.noised(front.features(pictures), labels, stream).astype(np.float64) / FINE

    return sent


def labels_named(vectors: Floats, features: Floats, digits: Labels) -> Labels:
    """The block of each vector that is most like the mean of its class in public features."""
    means = np.stack([features[digits == digit].mean(axis=0) for digit in range(10)])
    blocks = vectors.reshape(len(vectors), 10, KEPT)
    return np.asarray((blocks * means).sum(axis=2).argmax(axis=1))


def run(options: Options) -> Outcome:
    """Rebuild pictures of a home, by what it was sent and how."""
    learnt, attacked = (300, 40) if options.quick else (LEARNT, ATTACKED)
    pixels, digits = writers.pixels_of("test")
    public, said = halved(pixels[:learnt]), digits[:learnt]
    mine, own = writers.pixels_of("train")
    images, labels = halved(mine[:attacked]), own[:attacked]
    flat, true = public.reshape(learnt, -1).astype(float), images.reshape(attacked, -1).astype(float)
    plain = float(np.square(true - flat.mean(axis=0)).mean())
    found = []
    sent = documented_sent(options, halved(mine[: 1000 if not options.quick else 64]), own[:1000])
    for passes in PASSES:
        rebuilt = decoded(sent(public, passes, 1), flat, sent(images, passes, 2))
        found.append(_judged(f"documents' split, {passes} pass(es)", rebuilt, true, 1.0))
        options.progress(len(found), len(PASSES) + len(MUS))
    front = Front.made(SIDE)
    for mu in MUS:
        vectors = noised_sent(front, mu, options.seed)
        given, seen = vectors(public, said, 1), vectors(images, labels, 2)
        rebuilt = decoded(given, flat, seen)
        named = float(np.mean(labels_named(seen, front.features(public), said) == labels))
        found.append(_judged(f"noised, mu {mu:g}", rebuilt, true, named))
        options.progress(len(found), len(PASSES) + len(MUS))
    rows: list[Row] = [
        {
            "way": one.way,
            "error": one.error,
            "error of the mean picture": plain,
            "recognised": one.recognised,
            "labels known": one.labels,
        }
        for one in found
    ]
    caption = wrapped(
        f"Section 5.4: {attacked} pictures of a home rebuilt by the edge, a linear decoder fitted on "
        f"{learnt:,} public ones; {SIDE} x {SIDE} pixels, epsilon {EPSILON:g} per feature value.",
        "Printed: features under epsilon below 10 keep pictures from being rebuilt; nothing was rebuilt.",
        "Found, pictures recognised among 100 (1 % by chance), squared error over that of the mean picture, "
        "labels known: "
        + "; ".join(
            f"{one.way} {one.recognised:.1%}, {one.error / plain:.2f}, {one.labels:.0%}" for one in found
        )
        + ".",
        "Differences: passes have fresh noise, so their mean gets better with every epoch; the draw of a "
        "noised task is remembered. A better decoder may rebuild more; mu bounds every one of them, and "
        "nothing bounds those of the documents' split.",
    )
    return Outcome(rows, caption, lambda: _draw(images, found))


def _judged(way: str, rebuilt: Floats, true: Floats, labels: float) -> Rebuilt:
    error = float(np.square(rebuilt - true).mean())
    return Rebuilt(way, rebuilt, error, recognised(rebuilt, true), labels)


def _draw(images: Singles, found: list[Rebuilt]) -> Any:
    import matplotlib.pyplot as plt

    lines: list[tuple[str, Any]] = [
        ("true", images.reshape(len(images), -1)),
        *((one.way, one.pictures) for one in found),
    ]
    figure, axes = plt.subplots(len(lines), SHOWN, figsize=(9.0, 1.2 * len(lines)), layout="constrained")
    for line, (name, pictures) in zip(axes, lines, strict=True):
        for axis, one in zip(line, pictures, strict=False):
            axis.imshow(one.reshape(SIDE, SIDE), cmap="gray_r", vmin=0.0, vmax=1.0)
            axis.set_xticks([])
            axis.set_yticks([])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    return figure
