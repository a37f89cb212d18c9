"""How often attacks succeed against private updates, and the bound that no attack can pass.

The attacker knows that the record is one of N pictures, and everything else. From LDP-FedSGD reports, in
their bytes, and from Gaussian updates the best attacker is worked out by Bayes' rule; searches and the linear
most likely picture are judged by which candidate they come nearest to, and by whether they come nearer to the
truth than the mean of public pictures, which takes no update. Simulation only: all pictures are public.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.audit.leakage import success_under_epsilon, success_under_exchange, success_under_mu
from reticent.audit.reconstruction import (
    GaussianPrior,
    Observed,
    best_success_of_reports,
    cosine,
    dlg,
    measures,
    most_likely,
    most_likely_linear,
    posterior_of_gaussian,
    posterior_of_reports,
    updates,
)
from reticent.audit.statistics import share_below
from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row, wrapped
from reticent.experiments.biswas_2023.chapter_5 import writers
from reticent.federated import payload, torch_models
from reticent.federated.client import Client
from reticent.federated.models import Logistic
from reticent.federated.tasks import Task, designed, signed
from reticent.fleet.enrolment import ID_BYTES, Enrolment, device_key
from reticent.ledger.device.marks import Marks
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream

EPSILONS, MUS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0), (0.25, 0.5, 1.0, 2.0, 4.0)
CANDIDATES, PUBLIC, DIRECTIONS, SIDE = 20, 4000, 100, 28
BOUND, CLIP = 0.5, 1.0  # of a coordinate of the logistic gradient, and of an update's length
SEARCHED = (4.0, 1.0)  # the epsilon and the mu under which pictures are searched for
MASTER, KEY = bytes(32), hashlib.sha256(b"leakage-bounds").digest()
ERROR = 1e-6  # of saying that a sound attack is above its bound
MARGIN = 0.1  # decibels: what counts as nearer than the mean picture beyond chance
EXACT, BYTES, OPPOSITE = "best of N, exact", "best of N, from bytes", "two opposite, exact"
BAYES, LINEAR = "best of N", "most likely, linear"


@dataclass(frozen=True)
class Effort:
    """How much is drawn and searched."""

    rounds: int = 40  # reports through bytes, for each epsilon
    draws: int = 400  # Gaussian updates, for each mu
    pictures: int = CANDIDATES
    dlg_rounds: int = 3
    steps: int = 60
    under_prior: int = 40


QUICK = Effort(rounds=3, draws=20, pictures=2, dlg_rounds=1, steps=3, under_prior=3)


class People:
    """The candidates, what anybody knows of digits, and the models that are trained."""

    def __init__(self) -> None:
        images, labels = writers.pixels_of("test")
        order = np.argsort(labels, kind="stable")
        each = [order[labels[order] == digit][: CANDIDATES // 10] for digit in range(10)]
        chosen = np.concatenate(each)
        self.pictures, self.digits = images[chosen] / 255.0, labels[chosen]
        public = writers.pixels_of("train")[0][:PUBLIC] / 255.0
        self.prior = GaussianPrior.of(public, directions=min(DIRECTIONS, len(public) - 1))
        self.mean = self.prior.mean.reshape(SIDE, SIDE)
        self.model = Logistic(SIDE * SIDE, l2=0.0)
        self.theta = self.model.start()
        sides = np.where(self.digits % 2 == 0, 1.0, -1.0)
        self.gradients = self.model.gradients(self.theta, self.pictures.reshape(CANDIDATES, -1), sides)

    def gain(self, who: int, picture: Floats) -> float:
        """By how many decibels a picture is nearer to the truth than the mean of public ones."""
        truth = self.pictures[who]
        return measures.psnr(truth, picture) - measures.psnr(truth, self.mean)

    def nearest(self, picture: Floats) -> int:
        """The candidate that a rebuilt picture is nearest to."""
        return int(np.square(self.pictures - picture).sum(axis=(1, 2)).argmin())


def run(options: Options) -> Outcome:
    """Reports and updates of every level, then searches at the levels of `SEARCHED`."""
    people, effort = People(), QUICK if options.quick else Effort()
    epsilons, mus = ((1.0, 4.0), (1.0,)) if options.quick else (EPSILONS, MUS)
    total, rows = len(epsilons) + len(mus) + 2, []
    parts: list[Callable[[], list[Row]]] = [
        *((lambda epsilon=epsilon: _reports(people, epsilon, effort, options.seed)) for epsilon in epsilons),
        *((lambda mu=mu: _gaussian(people, mu, effort, options.seed)) for mu in mus),
        lambda: _searched(people, "epsilon", SEARCHED[0], effort, options.seed),
        lambda: _searched(people, "mu", SEARCHED[1], effort, options.seed),
    ]
    for done, part in enumerate(parts):
        rows += part()
        options.progress(done + 1, total)
    return Outcome(rows, _caption(rows, effort), lambda: _draw(rows))


def _row(
    notion: str, level: float, attack: str, candidates: int, trials: float, success: float, gains: Any = ()
) -> Row:
    """One attack beside its bound; trials are infinite where the success is exact.

    What was drawn is above its bound if even the lower end of its interval is, which is wrong once in 1e6.
    """
    kappa = 1.0 / candidates
    bound = success_under_exchange(kappa, level) if notion == "epsilon" else success_under_mu(kappa, level)
    loose = success_under_epsilon(kappa, level) if notion == "epsilon" else ""
    found = np.asarray(gains, dtype=np.float64)
    least = success / (1.0 + 1e-9)
    if math.isfinite(trials):
        least = float(share_below(round(success * trials), int(trials), ERROR))
    return {
        "notion": notion,
        "level": level,
        "attack": attack,
        "candidates": candidates,
        "trials": trials,
        "guess": kappa,
        "success": success,
        "bound": bound,
        "kappa e^epsilon": loose,
        "above": int(least > bound),
        "mean gain in dB": float(found.mean()) if found.size else "",
        "largest gain in dB": float(found.max()) if found.size else "",
        "nearer than the mean": int((found > 0.0).sum()) if found.size else "",
        "nearer by 0.1 dB": int((found > MARGIN).sum()) if found.size else "",
    }


# LDP-FedSGD reports


def _task(model: Logistic | int, epsilon: float, rounds: int) -> Task:
    task = designed(
        "leakage-bounds", model, epsilon=epsilon, purpose="to be attacked", rounds=rounds, group=1, rate=1.0,
        bounds=BOUND, participations=rounds,
    )  # fmt: skip
    return replace(task, key=KEY)


def _enrolment() -> Enrolment:
    identity = hashlib.sha256(b"client").digest()[:ID_BYTES]
    return Enrolment(identity, device_key(MASTER, identity))


def sent(task: Task, gradients: Floats, seed: int) -> list[bytes]:
    """The payloads of a real client, one a round, each of another gradient."""
    signing = Ed25519PrivateKey.from_private_bytes(KEY)
    signer = signing.public_key().public_bytes_raw()
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        with Client(
            where / "ledger", _enrolment(), signer, lifetime=task.epsilon * len(gradients) + 1.0,
            most=task.epsilon, rng=SimulationStream(seed), marks=Marks(where / "marks"),
        ) as client:  # fmt: skip
            held = client.take(signed(task, signing))
            return [client.report(held, number, one) for number, one in enumerate(gradients)]


def _reports(people: People, epsilon: float, effort: Effort, seed: int) -> list[Row]:
    task, me = _task(people.model, epsilon, effort.rounds), payload.client_number(_enrolment())
    who = np.arange(effort.rounds) * 7 % CANDIDATES
    payloads = sent(task, people.gradients[who], seed)
    right, exact = 0, []
    for number, truth in enumerate(who):
        chances = posterior_of_reports(task, number, [payloads[number]], MASTER, people.gradients)[0]
        right += int(chances.argmax() == truth)
        exact.append(best_success_of_reports(task, me, number, people.gradients))
    two = BOUND * np.vstack([np.ones(task.dimensions), -np.ones(task.dimensions)])
    return [
        _row("epsilon", epsilon, EXACT, CANDIDATES, math.inf, float(np.max(exact))),
        _row("epsilon", epsilon, BYTES, CANDIDATES, effort.rounds, right / effort.rounds),
        _row("epsilon", epsilon, OPPOSITE, 2, math.inf, best_success_of_reports(task, me, 0, two)),
    ]


# Gaussian updates


def _gaussian(people: People, mu: float, effort: Effort, seed: int) -> list[Row]:
    without = np.stack([updates.clipped(one, CLIP).update for one in people.gradients])
    right, named, gains, reached = 0, 0, [], mu
    for draw in range(effort.draws):
        who = draw % CANDIDATES
        update = updates.gaussian(people.gradients[who], CLIP, mu, SimulationStream(seed, path=(2, draw)))
        reached = min(reached, update.mu or mu)
        right += int(posterior_of_gaussian(update.update, without, update.noise).argmax() == who)
        if draw < effort.draws // 4:
            guess = most_likely_linear(people.model, people.theta, update.update, people.prior, update.noise)
            picture = np.clip(guess.record, 0.0, 1.0).reshape(SIDE, SIDE)
            named += int(people.nearest(picture) == who)
            gains.append(people.gain(who, picture))
    return [
        _row("mu", mu, BAYES, CANDIDATES, effort.draws, right / effort.draws),
        _row("mu", mu, LINEAR, CANDIDATES, len(gains), named / len(gains), gains),
        _row("mu", mu, OPPOSITE, 2, math.inf, NormalDist().cdf(reached / 2.0)),
    ]


# Searches on the documents' network


def _searched(people: People, notion: str, level: float, effort: Effort, seed: int) -> list[Row]:
    """DLG, cosine matching and the prior on what a network's client sends under a guarantee."""
    torch_models.torch_or_error().set_num_threads(1)
    network = torch_models.convolutional()
    theta = network.start(seed)
    found: dict[str, list[Floats]] = {"DLG": [], "cosine": [], "prior": []}
    for who in range(effort.pictures):
        gradient = network.mean_gradient(theta, people.pictures[who : who + 1], people.digits[who : who + 1])
        if notion == "mu":
            noisy = updates.gaussian(gradient, CLIP, level, SimulationStream(seed, path=(3, who)))
            update, noise = noisy.update, noisy.noise
        else:
            update, noise = _as_gradient(network.dimensions, gradient, level, seed + who)
        seen = Observed(network, theta, update, (SIDE, SIDE), labels=people.digits[who : who + 1])
        found["DLG"].append(dlg(seen, rounds=effort.dlg_rounds, seed=seed).records[0])
        found["cosine"].append(cosine(seen, steps=effort.steps, variation=0.03, seed=seed).records[0])
        found["prior"].append(most_likely(seen, people.prior, noise, steps=effort.under_prior).records[0])
    return [
        _row(
            notion, level, f"{attack}, network", CANDIDATES, effort.pictures,
            float(np.mean([people.nearest(one) == who for who, one in enumerate(pictures)])),
            [people.gain(who, one) for who, one in enumerate(pictures)],
        )
        for attack, pictures in found.items()
    ]  # fmt: skip


def _as_gradient(dimensions: int, gradient: Floats, epsilon: float, seed: int) -> tuple[Floats, float]:
    """A report's bytes as an unbiased estimate of the gradient, and the standard deviation of a number."""
    task = _task(dimensions, epsilon, 1)
    _, read = payload.parsed(task, 0, sent(task, gradient[None], seed))
    update = np.zeros(dimensions)
    share = task.dimensions / task.sample_size
    update[read.asked[0]] = task.channel.alphabet[read.symbols[0]] * task.scale[read.asked[0]] * share
    return update, math.sqrt(float(task.noise(1)[0]))


def _caption(rows: list[Row], effort: Effort) -> str:
    by_bytes = {row["level"]: row["success"] for row in rows if row["attack"] == BYTES}
    above = [row for row in rows if row["above"]]
    searched = [row for row in rows if row["attack"].endswith("network")]
    linear = next(row for row in rows if row["attack"] == LINEAR and row["level"] == SEARCHED[1])
    levels = [
        f"  epsilon {row['level']:g}: {row['success']:.4f} exact, {by_bytes[row['level']]:.3f} of "
        f"{effort.rounds} reports by their bytes; at most {row['bound']:.4f}"
        for row in rows
        if row["attack"] == EXACT
    ]
    levels += [
        f"  mu {row['level']:g}: {row['success']:.3f} of {effort.draws} updates; at most {row['bound']:.4f}"
        for row in rows
        if row["attack"] == BAYES
    ]
    two = [row for row in rows if row["attack"] == OPPOSITE and row["notion"] == "epsilon"]
    return "\n".join(
        [
            f"Leakage bounds: one of {CANDIDATES} pictures is behind an update of a linear model; which one?",
            "",
            "Printed: nothing; Balle et al. 2022 and Hayes et al. 2023 have the bounds.",
            f"Found: the best attacker names it (a guess: {1 / CANDIDATES:g}):",
            *levels,
            wrapped(
                f"Attacks above their bound: {len(above)} of {len(rows)}.",
                "Two opposite gradients are told apart as often as epsilon allows, within a factor "
                f"of {max(row['bound'] / row['success'] for row in two):.3f}.",
                f"Pictures searched for at epsilon {SEARCHED[0]:g} and at mu {SEARCHED[1]:g} by DLG, cosine "
                "matching and the prior, on the documents' network: "
                f"{sum(row['nearer than the mean'] for row in searched)} of "
                f"{sum(row['trials'] for row in searched):g} nearer than the mean of public pictures, "
                f"{max(row['largest gain in dB'] for row in searched):.2f} dB at most.",
                f"The most likely picture under the linear model at mu {SEARCHED[1]:g} is nearer in "
                f"{linear['nearer than the mean']} of {linear['trials']}, by "
                f"{linear['largest gain in dB']:.2f} dB at most and {linear['mean gain in dB']:.2f} dB on "
                "average: a guarantee bounds what is learnt, it does not make it nothing.",
                "Epsilon is that of a whole report, mu that of a whole update, between any two data sets of "
                "a client. All pictures are public: simulation only.",
            ),
        ]
    )


def _draw(rows: list[Row]) -> Any:
    figure, axes = plots.panels(1, 2, size=(12.0, 5.0))
    for axis, notion in zip(axes[0], ("epsilon", "mu"), strict=True):
        mine = [row for row in rows if row["notion"] == notion]
        known = [row["level"] for row in mine]
        levels = np.geomspace(min(known) / 1.2, max(known) * 1.2, 80)
        bound = success_under_exchange if notion == "epsilon" else success_under_mu
        for candidates, colour in ((CANDIDATES, "black"), (2, "#999999")):
            most = [bound(1 / candidates, one) for one in levels]
            axis.plot(levels, most, color=colour, label=f"bound, {candidates}")
        if notion == "epsilon":
            loose = [success_under_epsilon(1 / CANDIDATES, one) for one in levels]
            axis.plot(levels, loose, ":", color="black", label=f"kappa e^epsilon, {CANDIDATES}")
        for place, attack in enumerate(dict.fromkeys(row["attack"] for row in mine)):
            points = [row for row in mine if row["attack"] == attack]
            axis.plot(
                [row["level"] for row in points], [row["success"] for row in points], "osDv^P"[place % 6],
                label=attack, markersize=5,
            )  # fmt: skip
        axis.set_xscale("log")
        axis.set_ylim(0.0, 1.05)
        axis.set_xlabel(f"{notion} of a report" if notion == "epsilon" else "mu of an update")
        axis.set_ylabel("how often the record is named (simulation only)")
        axis.legend(frameon=False, fontsize=7)
    return figure
