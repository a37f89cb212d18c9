"""Fig. 5.7: pictures rebuilt from noisy updates, by the attack that was printed and by better ones.

Reference: Biswas 2023, Section 5.5.4, Fig. 5.7 and Table 5.2. The documents' network for MNIST (28 x 28
pixels, 10 classes), untrained and trained, and the network that DLG was printed with, which has sigmoids.
What is attacked is the update of one picture under the documents' rule. Simulation only: all data are public.
"""

from __future__ import annotations

import math
import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.audit.reconstruction import (
    GaussianPrior,
    LocalSteps,
    Observed,
    cosine,
    dlg,
    imprinted,
    measures,
    most_likely,
    read_imprint,
    updates,
)
from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_5 import writers
from reticent.federated import torch_models
from reticent.mechanisms.base import Floats
from reticent.privacy import epsilon_of
from reticent.processes import end_with_parent
from reticent.randomness import SimulationStream

NUS = (0.001, 0.01, 0.1, 1.0, 3.0, 5.0, 10.0, 15.0)
ACCURACIES = {  # Table 5.2, cross-entropy: accuracy by nu
    0.001: 0.843, 0.01: 0.832, 0.1: 0.834, 1.0: 0.834, 3.0: 0.835, 5.0: 0.812, 10.0: 0.692, 15.0: 0.561
}  # fmt: skip
UNTRAINED, TRAINED, SIGMOID = "documents' network, untrained", "documents' network, trained", "sigmoid LeNet"
NETWORKS = (UNTRAINED, TRAINED, SIGMOID)
DLG, COSINE, PRIOR, LOCAL, IMPRINT = "DLG", "cosine", "prior", "cosine, 3 local steps", "imprint layer"
SEARCHES = (DLG, COSINE, PRIOR)
DIGITS, PUBLIC, DIRECTIONS = 10, 4000, 150
LESSONS, BATCH, RATE = 9600, 32, 0.1  # pictures, a step, its rate: what trains a network before the attack
LOCAL_NUS, LOCAL_DIGITS, LOCAL_RATE = (1.0, 10.0), 5, 0.1
ROWS, CROWD = 512, 64  # of the imprint layer, and of the batch that it reads
SEEN, CLEAR = 5.0, 30.0  # decibels: above the mean picture, and of a picture that is as good as the truth


@dataclass(frozen=True)
class Effort:
    """How long attacks search: rounds of DLG, steps of cosine matching, steps under the prior."""

    rounds: int
    steps: int
    under_prior: int


FULL = {UNTRAINED: Effort(8, 200, 60), TRAINED: Effort(8, 200, 60), SIGMOID: Effort(40, 500, 100)}
QUICK = Effort(1, 10, 5)


@dataclass(frozen=True)
class Case:
    """One picture under one noise: all searches.

    Attributes:
        network: of `NETWORKS`.
        theta: the file of its parameters.
        picture: its index among the test pictures.
        nu: the documents' noise multiplier.
        effort: of the searches.
        local: whether local steps are attacked instead.
        seed: of the noise.
    """

    network: str
    theta: str
    picture: int
    nu: float
    effort: Effort
    local: bool
    seed: int


def made(name: str) -> Any:
    """A network of `NETWORKS`."""
    if name != SIGMOID:
        return torch_models.convolutional()
    nn = torch_models.torch_or_error().nn
    return torch_models.Network(
        nn.Sequential(
            nn.Unflatten(1, (1, 28)),
            nn.Conv2d(1, 12, 5, padding=2, stride=2), nn.Sigmoid(),
            nn.Conv2d(12, 12, 5, padding=2, stride=2), nn.Sigmoid(),
            nn.Conv2d(12, 12, 5, padding=2), nn.Sigmoid(),
            nn.Flatten(), nn.Linear(588, 10),
        )
    )  # fmt: skip


@cache
def pictures(split: str, count: int) -> tuple[Floats, NDArray[np.int64]]:
    """The first pictures of a split, in [0, 1], and their digits."""
    images, labels = writers.pixels_of(split)
    return images[:count] / 255.0, labels[:count]


@cache
def prior() -> GaussianPrior:
    """What anybody knows of digits: a normal law of public ones."""
    images, _ = pictures("train", PUBLIC)
    return GaussianPrior.of(images, directions=min(DIRECTIONS, len(images) - 1))


def one_of_each() -> list[int]:
    """The first test picture of each digit."""
    labels = writers.pixels_of("test")[1]
    return [int(np.flatnonzero(labels == digit)[0]) for digit in range(DIGITS)]


def theta_of(name: str, seed: int) -> Floats:
    """The parameters that are attacked."""
    network = made(name)
    if name == SIGMOID:  # as printed: uniform in +-1/2
        return np.asarray(SimulationStream(seed, path=(1,)).units(network.dimensions) - 1.5)
    theta = network.start(seed)
    if name == UNTRAINED:
        return np.asarray(theta)
    images, labels = pictures("train", LESSONS)
    return np.asarray(network.updated(theta, images, labels, rate=RATE, epochs=2, batch=BATCH))


def attacked(case: Case) -> dict[str, Floats]:
    """What each search makes of one noisy update."""
    torch_models.torch_or_error().set_num_threads(1)
    network, theta = made(case.network), np.load(case.theta)
    images, labels = writers.pixels_of("test")
    image = images[case.picture : case.picture + 1] / 255.0
    label = labels[case.picture : case.picture + 1]
    rng = SimulationStream(case.seed, path=(case.picture, int(1000 * case.nu)))
    variation = 0.01 if case.nu <= 1.0 else 0.03
    if case.local:
        local = LocalSteps(LOCAL_RATE, epochs=3)
        moved = theta - network.updated(theta, image, label, rate=LOCAL_RATE, epochs=3)
        sent = updates.documents(moved, case.nu, rng)
        seen = Observed(network, theta, sent.update, image.shape[1:], local=local)
        steps = max(10, case.effort.steps // 2)
        return {LOCAL: cosine(seen, steps=steps, variation=variation, seed=case.seed).records[0]}
    sent = updates.documents(network.mean_gradient(theta, image, label), case.nu, rng)
    seen = Observed(network, theta, sent.update, image.shape[1:])
    by_cosine = cosine(seen, steps=case.effort.steps, variation=variation, seed=case.seed).records
    start, rate = (by_cosine, 0.02) if case.network == TRAINED else (None, 0.1)
    under_prior = most_likely(
        seen, prior(), sent.noise, steps=case.effort.under_prior, start=start, rate=rate
    )
    return {
        DLG: dlg(seen, rounds=case.effort.rounds, seed=case.seed).records[0],
        COSINE: by_cosine[0],
        PRIOR: under_prior.records[0],
    }


def all_attacked(cases: Sequence[Case], options: Options) -> Iterator[dict[str, Floats]]:
    """Run cases, in processes if there are several workers."""
    if options.quick or options.workers == 1:
        results = map(attacked, cases)
        yield from _counted(results, len(cases), options)
        return
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn"), end_with_parent) as pool:
        yield from _counted(pool.map(attacked, cases), len(cases), options)


def _counted(
    results: Iterator[dict[str, Floats]], total: int, options: Options
) -> Iterator[dict[str, Floats]]:
    for done, result in enumerate(results):
        options.progress(done + 1, total)
        yield result


def run(options: Options) -> Outcome:
    """Attack every picture under every noise on every network."""
    torch_models.torch_or_error().set_num_threads(1)
    wanted = one_of_each()[: 1 if options.quick else DIGITS]
    nus = (0.001, 1.0) if options.quick else NUS
    accuracy: dict[str, float] = {}
    found: dict[tuple[str, str, float], dict[int, Floats]] = {}
    with tempfile.TemporaryDirectory() as folder:
        cases = []
        for place, name in enumerate(NETWORKS):
            path, theta = Path(folder) / f"{place}.npy", theta_of(name, options.seed)
            np.save(path, theta)
            accuracy[name] = 1.0 - made(name).error(theta, *pictures("test", 1000))
            effort = QUICK if options.quick else FULL[name]
            for local in (False, True) if name == UNTRAINED else (False,):
                cases += [
                    Case(name, str(path), picture, nu, effort, local, options.seed)
                    for nu in (nus if not local else [nu for nu in nus if nu in LOCAL_NUS])
                    for picture in (wanted[:LOCAL_DIGITS] if local else wanted)
                ]
        for case, result in zip(cases, all_attacked(cases, options), strict=True):
            for attack, picture in result.items():
                found.setdefault((case.network, attack, case.nu), {})[case.picture] = picture
        rows = [_row(name, attack, nu, shown) for (name, attack, nu), shown in found.items()]
        rows += [_imprint_row(nu, options.seed) for nu in (0.0, *nus)]
    return Outcome(rows, _caption(rows, accuracy, len(wanted)), lambda: _draw(rows, found, wanted, nus))


def _row(name: str, attack: str, nu: float, shown: dict[int, Floats]) -> Row:
    images, _ = writers.pixels_of("test")
    mean = prior().mean.reshape(28, 28)
    truths = {picture: images[picture] / 255.0 for picture in shown}
    decibels = np.array([measures.psnr(truths[picture], one) for picture, one in shown.items()])
    means = np.array([measures.psnr(truths[picture], mean) for picture in shown])
    alike = [measures.ssim(truths[picture], one) for picture, one in shown.items()]
    return _cells(name, attack, nu, decibels, means, float(np.mean(alike)), made(name).dimensions)


def _cells(
    name: str, attack: str, nu: float, decibels: Floats, means: Floats, alike: float | str, n: int
) -> Row:
    gaussian = math.inf if nu == 0.0 else epsilon_of(2.0 * math.sqrt(n) / nu, 1e-6)
    return {
        "network": name,
        "attack": attack,
        "nu": nu,
        "pictures": len(decibels),
        "PSNR": float(decibels.mean()),
        "least": float(decibels.min()),
        "most": float(decibels.max()),
        "SSIM": alike,
        "mean picture": float(means.mean()),
        "share seen": float(np.mean(decibels >= means + SEEN)),
        "share clear": float(np.mean(decibels >= CLEAR)),
        "claimed": math.inf if nu == 0.0 else n / nu,
        "guaranteed": "none",
        "epsilon if the scale were public": math.inf if nu == 0.0 else 2.0 * n / nu,
        "epsilon of as much Gaussian noise": gaussian,
        "printed accuracy": ACCURACIES.get(nu, 0.832),
    }


def _imprint_row(nu: float, seed: int) -> Row:
    """A batch, read from the layer that a server put in front of the documents' network."""
    public, _ = pictures("train", PUBLIC)
    batch, labels = pictures("test", CROWD)
    network, theta = imprinted(made(UNTRAINED).module, public, ROWS)
    update = network.mean_gradient(theta, batch, labels)
    if nu:
        update = updates.documents(update, nu, SimulationStream(seed, path=(5, int(1000 * nu)))).update
    found = read_imprint(network, update, batch.shape[1:], ROWS)
    if len(found) < len(batch):
        found = np.concatenate([found, np.zeros((len(batch) - len(found), *batch.shape[1:]))])
    pairs = [*zip(batch, found[measures.matched(batch, found)], strict=True)]
    decibels = np.array([measures.psnr(mine, other) for mine, other in pairs])
    mean = prior().mean.reshape(28, 28)
    means = np.array([measures.psnr(mine, mean) for mine in batch])
    alike = float(np.mean([measures.ssim(mine, other) for mine, other in pairs]))
    return _cells(UNTRAINED, IMPRINT, nu, decibels, means, alike, network.dimensions)


def _caption(rows: list[Row], accuracy: dict[str, float], count: int) -> str:
    table = []
    for name in NETWORKS:
        table.append(f"  {name} (reads {accuracy[name]:.3f} of test pictures):")
        for attack in (*SEARCHES, LOCAL):
            mine = [row for row in rows if (row["network"], row["attack"]) == (name, attack)]
            cells = [
                f"{row['nu']:g}: {row['PSNR']:.1f} ({row['share seen'] * row['pictures']:.0f})"
                for row in mine
            ]
            if mine:
                table.append(f"    {attack}, nu " + "; ".join(cells))
    read = {row["nu"]: row["share clear"] for row in rows if row["attack"] == IMPRINT}
    worst = {row["network"]: row for row in rows if (row["attack"], row["nu"]) == (COSINE, 1.0)}
    bare, least, n = read.pop(0.0), min(read), made(UNTRAINED).dimensions
    return "\n".join(
        [
            wrapped(
                f"Fig. 5.7: {count} pictures of MNIST, one of each digit, from one update each under the "
                "documents' rule."
            ),
            "",
            wrapped(
                "Printed: the picture is fully rebuilt at nu 0.001, partly up to 0.1; for nu of 1 and more "
                "DLG fails, which is taken for protection. Accuracy is 0.834 at nu 1, 0.561 at 15 (Table "
                "5.2).",
                "Found: DLG's failure says something about DLG. Mean PSNR in decibels over the pictures, and "
                f"how many of them are seen, {SEEN:g} dB above the mean of public pictures, which has "
                f"{rows[0]['mean picture']:.1f}:",
            ),
            *table,
            wrapped(
                "Cosine matching at nu 1, the worst picture: "
                f"{worst[UNTRAINED]['least']:.1f} dB untrained, {worst[TRAINED]['least']:.1f} dB trained, "
                f"{worst[SIGMOID]['least']:.1f} dB on the LeNet.",
                f"A server that chooses the model: an imprint layer of {ROWS} rows reads {bare:.3f} of a "
                f"batch of {CROWD} at {CLEAR:g} dB or more without noise, {read[least]:.3f} at nu {least:g}: "
                "it is fragile.",
                "On the LeNet, which has fewer numbers to average the noise away, no search gets far beyond "
                "nu 0.1: there the figure is as printed.",
                "Guaranteed: nothing, at any nu: the scale of the noise is read off the secret. Were it "
                f"public, nu 1 would cost epsilon 2 n/nu = {2 * n:,} a report, nu 15 {2 * n / 15:,.0f}; the "
                "claim is half of it.",
                "Labels are read off the last layer; DLG learns them, as printed. DLG is given "
                f"{FULL[UNTRAINED].rounds} rounds of 20 steps ({FULL[SIGMOID].rounds} on the LeNet) of the "
                "300 that were printed. The prior is a normal law of public pictures; on the trained network "
                "its search begins at what cosine matching found. All pictures are public: simulation only.",
            ),
        ]
    )


def _draw(
    rows: list[Row],
    found: dict[tuple[str, str, float], dict[int, Floats]],
    wanted: list[int],
    nus: Sequence[float],
) -> Any:
    """Curves above, every picture below: the truth, then one column for each nu."""
    figure, axes = plots.panels(1 + len(SEARCHES), len(NETWORKS), size=(15.0, 21.0))
    images, _ = writers.pixels_of("test")
    truths = np.concatenate([images[picture] / 255.0 for picture in wanted])
    colours = dict(zip((*SEARCHES, LOCAL), ("#0072B2", plots.ACCENT, "#009E73", "#CC79A7"), strict=True))
    labels = ["truth", *(f"{nu:g}" for nu in nus)]
    for column, name in enumerate(NETWORKS):
        axis = axes[0, column]
        for attack, colour in colours.items():
            mine = [row for row in rows if (row["network"], row["attack"]) == (name, attack)]
            decibels = [row["PSNR"] for row in mine]
            if mine:
                axis.plot([row["nu"] for row in mine], decibels, "o-", color=colour, label=attack)
        axis.axhline(rows[0]["mean picture"], color="black", linestyle=":", label="mean of public pictures")
        axis.set_xscale("log")
        axis.set_xlabel("noise multiplier nu of the documents (no guarantee)")
        axis.set_ylabel("PSNR (dB)")
        axis.set_title(name, loc="left", fontsize=11)
        axis.legend(frameon=False, fontsize=8)
        for row, attack in enumerate(SEARCHES, 1):
            shown = [np.concatenate([found[name, attack, nu][picture] for picture in wanted]) for nu in nus]
            axis = axes[row, column]
            axis.imshow(np.concatenate([truths, *shown], axis=1), cmap="gray", vmin=0.0, vmax=1.0)
            axis.grid(visible=False)
            axis.set_yticks([])
            axis.set_xticks(14 + 28 * np.arange(len(labels)), labels, fontsize=8)
            axis.set_title(attack, loc="left", fontsize=9)
    return figure
