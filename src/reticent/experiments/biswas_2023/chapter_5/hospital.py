"""Fig. 5.5, Fig. 5.6 and Table 5.1: what hospitals charge, learnt with several hypotheses; ours beside it.

Reference: Biswas 2023, Section 5.5.3 and Appendix E; Algorithms 6 and 7. Not printed, and chosen here: a
local step of 0.1, one epoch. Validation, early stopping and every RMSE are simulation only: nobody paid.

The documents' level n / nu is none: the scale of their noise is read off the secret update. With a fixed
scale for the longest update S, and hypotheses up to D apart, a round costs (n / nu) (2 + D / S).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.biswas_2023.chapter_5 import hospitals
from reticent.experiments.biswas_2023.chapter_5.hospitals import DOLLARS, Hospitals
from reticent.federated.personalised.noise import DELTA
from reticent.federated.personalised.simulation import (
    Seen,
    documents_noise_without_guarantee,
    drawn,
    identity,
    simulate,
)
from reticent.federated.personalised.tasks import PersonalTask
from reticent.mechanisms.base import Floats
from reticent.privacy import epsilon_of
from reticent.randomness import SimulationStream, Stream

HYPOTHESES = (1, 3, 5, 7)
MULTIPLIERS = (0.0, 0.1, 1.0, 2.0, 3.0, 5.0)
SHOWN = (5, 3.0)  # hypotheses and nu of Fig. 5.6
RUNS = 10
TRAIN_SHARE, GROUP, JUDGES, PATIENCE, MOST_ROUNDS = 0.7, 100, 200, 30, 600
RATE = 0.1
OUR_MUS = (1.0, 3.0)  # of all that a client ever sends
OUR_CLIP, OUR_ROUNDS, REACH = 0.05, 40, 1000.0
PRINTED = {  # Table 5.1: median and maximum, by nu and hypotheses
    0.1: {7: (517.0, 1551.0), 5: (418.0, 1342.0), 3: (473.0, 1386.0), 1: (528.0, 1540.0)},
    1.0: {7: (36.3, 126.5), 5: (40.7, 127.6), 3: (44.0, 138.6), 1: (49.5, 147.4)},
    2.0: {7: (15.4, 57.8), 5: (14.3, 54.5), 3: (22.0, 69.3), 1: (21.5, 66.6)},
    3.0: {7: (7.7, 32.3), 5: (8.4, 36.7), 3: (12.5, 40.0), 1: (12.1, 40.0)},
    5.0: {7: (5.7, 21.3), 5: (5.9, 22.0), 3: (5.5, 21.6), 1: (5.3, 20.9)},
}


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        rmse: of the validation clients, in dollars.
        claimed: n / nu in each round, in sum, by client: the documents' "leakage".
        sound: what the same noise at one fixed scale would cost, by client; or mu, if it is ours.
        rounds: until it stopped.
    """

    rmse: float
    claimed: Floats
    sound: Floats
    rounds: int


def run(options: Options) -> Outcome:
    """Train every combination, by the documents' rule and by ours."""
    everyone = hospitals.load(options.data)
    runs = options.repetitions or (2 if options.quick else RUNS)
    counts = HYPOTHESES[:2] if options.quick else HYPOTHESES
    nus = (0.0, 3.0) if options.quick else MULTIPLIERS
    plans = [(k, nu, False) for k in counts for nu in nus] + [(k, mu, True) for k in counts for mu in OUR_MUS]
    found: dict[tuple[int, float, bool], list[Run]] = {}
    for done, (k, level, ours) in enumerate(plans):
        train = _ours if ours else _documents
        found[k, level, ours] = [train(everyone, k, level, options.seed + time) for time in range(runs)]
        options.progress(done + 1, len(plans))
    rows = [_row(k, level, ours, trained) for (k, level, ours), trained in found.items()]
    shown = found.get((*SHOWN, False)) or found[counts[-1], nus[-1], False]
    return Outcome(rows, _caption(rows, everyone, runs), lambda: _draw(rows, shown[-1]))


def _split(everyone: Hospitals, seed: int) -> tuple[Hospitals, Hospitals]:
    order = np.argsort(SimulationStream(seed, path=(0,)).words(len(everyone)))
    cut = int(TRAIN_SHARE * len(everyone))
    return everyone.some(order[:cut]), everyone.some(order[cut:])


def _start(everyone: Hospitals, k: int, seed: int) -> Floats:
    return np.stack([everyone.network.start(100 * seed + place) for place in range(k)])


def _task(everyone: Hospitals, k: int, **given: Any) -> PersonalTask:
    return PersonalTask(
        name="hospital-charges",
        version="1",
        purpose="what hospitals are paid for four services",
        model=None,
        dimensions=everyone.network.dimensions,
        hypotheses=k,
        reach=REACH,
        rate=RATE,
        **given,
    )


def _documents(everyone: Hospitals, k: int, nu: float, seed: int) -> Run:
    """Algorithm 6 with the documents' noise, stopped by validation; nothing is guaranteed."""
    trained, judges = _split(everyone, seed)
    task = _task(
        everyone, k, clip=REACH, level=1.0, rounds=MOST_ROUNDS, group=GROUP, participations=MOST_ROUNDS
    )
    parts, judging = np.zeros(len(trained)), SimulationStream(seed, path=(2,))
    noisy = identity if nu == 0.0 else documents_noise_without_guarantee(nu)
    best, stop, longest, widest = (np.inf, 0, np.inf), [0], [0.0], [0.0]

    def sent(starts: Floats, updated: Floats, rng: Stream) -> Floats:
        longest[0] = max(longest[0], float(np.sqrt(np.square(updated - starts).sum(axis=1)).max()))
        return noisy(starts, updated, rng)

    def judged(seen: Seen) -> bool:
        nonlocal best
        parts[seen.who] += 1
        widest[0] = max(widest[0], _spread(seen.hypotheses))
        rmse = judges.rmse(seen.hypotheses, drawn(np.arange(len(judges)), JUDGES, judging))
        if rmse < best[0]:
            best = (rmse, seen.number, judges.rmse(seen.hypotheses))
        stop[0] = seen.number + 1
        return seen.number - best[1] >= PATIENCE

    rng = SimulationStream(seed, path=(1,))
    simulate(task, trained, _start(everyone, k, seed), rng=rng, unguarded=sent, on_round=judged)
    claimed = np.full(len(parts), np.inf) if nu == 0.0 else parts * task.dimensions / nu
    return Run(DOLLARS * best[2], claimed, claimed * (2.0 + widest[0] / longest[0]), stop[0])


def _ours(everyone: Hospitals, k: int, mu: float, seed: int) -> Run:
    """Clipped updates in slots under the discrete Gaussian; each client reports once, and pays all of mu."""
    trained, judges = _split(everyone, seed)
    group = len(trained) // OUR_ROUNDS
    task = _task(everyone, k, clip=OUR_CLIP, level=2.0 * OUR_CLIP / mu, rounds=OUR_ROUNDS, group=group)
    found = simulate(task, trained, _start(everyone, k, seed), rng=SimulationStream(seed, path=(1,)))
    spent = np.sqrt(found.spent)
    return Run(DOLLARS * judges.rmse(found.training.hypotheses), spent, spent, OUR_ROUNDS)


def _spread(hypotheses: Floats) -> float:
    apart = hypotheses[:, None, :] - hypotheses[None, :, :]
    return float(np.sqrt(np.square(apart).sum(axis=2)).max())


def _row(k: int, level: float, ours: bool, runs: list[Run]) -> Row:
    rmses = [one.rmse for one in runs]
    printed = PRINTED.get(level, {}).get(k, ("", "")) if not ours else ("", "")
    return {
        "hypotheses": k,
        "rule": "ours" if ours else "documents",
        "nu": "" if ours else level,
        "mu": level if ours else "",
        "rmse": float(np.mean(rmses)),
        "rmse sd": float(np.std(rmses, ddof=1)),
        "rounds": float(np.mean([one.rounds for one in runs])),
        "claimed median": float(np.mean([np.median(one.claimed) for one in runs])),
        "claimed max": float(np.mean([one.claimed.max() for one in runs])),
        "printed median": printed[0],
        "printed max": printed[1],
        "sound max": float(np.mean([one.sound.max() for one in runs])),
    }


def _caption(rows: list[Row], everyone: Hospitals, runs: int) -> str:
    theirs = {(row["hypotheses"], row["nu"]): row for row in rows if row["rule"] == "documents"}
    ours = {(row["hypotheses"], row["mu"]): row for row in rows if row["rule"] == "ours"}
    counts = sorted({row["hypotheses"] for row in rows})
    nus = sorted({row["nu"] for row in theirs.values()})
    plain = (everyone.targets * everyone.weights).sum() / everyone.weights.sum()
    constant = DOLLARS * float(
        np.sqrt((np.square(everyone.targets - plain) * everyone.weights).sum(axis=1)).mean()
    )
    lines = [
        f"Fig. 5.5, Fig. 5.6, Table 5.1: {len(everyone)} hospitals, a network of "
        f"{everyone.network.dimensions} numbers, {runs} runs; simulation only.",
        "",
        "RMSE in dollars (mean over runs), by hypotheses " + ", ".join(str(k) for k in counts) + ":",
    ]
    for nu in nus:
        found = ", ".join(f"{theirs[k, nu]['rmse']:.0f}" for k in counts)
        lines.append(f"  documents, nu {nu:g} (no guarantee): {found}")
    for mu in OUR_MUS:
        found = ", ".join(f"{ours[k, mu]['rmse']:.0f}" for k in counts)
        epsilon = epsilon_of(mu, DELTA)
        lines.append(f"  ours, mu {mu:g} in all (epsilon {epsilon:.3g} at delta {DELTA:g}): {found}")
    lines.append(f"  the mean of all payments for everybody: {constant:.0f}")
    lines += [
        "Printed: more hypotheses, less RMSE, above all from 1 to 3; noise matters little.",
        "Table 5.1, median and maximum of n/nu summed over the rounds of a client, printed / here:",
    ]
    for (k, nu), row in theirs.items():
        if nu in PRINTED:
            lines.append(
                f"  {k} hypotheses, nu {nu:g}: {row['printed median']:g}, {row['printed max']:g} / "
                f"{row['claimed median']:.1f}, {row['claimed max']:.1f}; sound {row['sound max']:.3g}"
            )
    lines += [
        "n/nu is no protection: the scale of that noise is read off the secret update, so nothing is",
        "guaranteed. `sound` is the largest epsilon (pure, local) if the noise had one scale for the longest",
        "update S, and the choice among hypotheses up to D apart were charged: (n/nu)(2 + D/S) a round.",
        f"Ours: updates clipped to {OUR_CLIP:g}, {OUR_ROUNDS} rounds, each client reports once; "
        "the choice is charged.",
    ]
    return "\n".join(lines)


def _draw(rows: list[Row], shown: Run) -> Any:
    figure, axes = plots.panels(1, 2, size=(13.0, 5.0))
    errors, leaks = axes[0]
    counts = sorted({row["hypotheses"] for row in rows})
    colours = dict(zip(counts, ("#0072B2", "#56B4E9", "#009E73", "#CC79A7"), strict=False))
    for place, k in enumerate(counts):
        mine = [row for row in rows if row["hypotheses"] == k]
        theirs = [row for row in mine if row["rule"] == "documents"]
        errors.errorbar(
            [row["nu"] + 0.06 * place for row in theirs],  # side by side
            [row["rmse"] for row in theirs],
            yerr=[row["rmse sd"] for row in theirs],
            color=colours[k], marker="o", capsize=3, label=f"{k} hypotheses, documents\n(no guarantee)",
        )  # fmt: skip
        (one,) = [row for row in mine if row["rule"] == "ours" and row["mu"] == OUR_MUS[0]]
        errors.axhline(
            one["rmse"], color=colours[k], linestyle=":", label=f"{k}, ours at mu {OUR_MUS[0]:g} in all"
        )
    errors.set_xlabel("noise multiplier nu of the documents")
    errors.set_ylabel("RMSE of validation clients, dollars (simulation only)")
    errors.set_title("Fig. 5.5", loc="left", fontsize=11)
    plots.legend_right(figure, errors)
    per_round = min(value for value in shown.claimed if value > 0.0) if shown.claimed.any() else math.nan
    levels, clients = np.unique(np.round(shown.claimed / per_round).astype(int), return_counts=True)
    leaks.bar(levels * per_round, clients, width=0.8 * per_round, color="#999999", zorder=2)
    leaks.set_xlabel("n/nu summed over the rounds of a client: claimed, not guaranteed")
    leaks.set_ylabel("clients")
    leaks.set_title(f"Fig. 5.6, {len(shown.claimed)} clients", loc="left", fontsize=11)
    return figure
