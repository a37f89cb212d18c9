"""Records whose update is the one that was seen: DLG, cosine matching, and the most likely under a prior.

The server knows the network and what it sent, so it looks for records that give the same update. An
objective of the update is differentiated by the records, which takes a gradient of a gradient. All three
attacks work on single records and batches, pictures and tables, gradients and local steps (`Observed.local`).

An attack that fails proves nothing about privacy: a better one may come. What bounds them all is a guarantee.

Needs the part `torch`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.audit.reconstruction.observed import Observed, Rebuilt
from reticent.audit.reconstruction.prior import GaussianPrior
from reticent.errors import ParameterError
from reticent.federated.torch_models import torch_or_error
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream

Slope = Callable[[list[Any]], tuple[float, float]]
"""From the tensors of an update: the objective, and the factor of `Matcher.back` in its slope by them."""

_DECAYS = (3 / 8, 5 / 8, 7 / 8)  # of the steps, after which the rate falls to a tenth


class Matcher:
    """An update that is to be matched, as tensors.

    `slopes` is one matching step: the update of trial records, the objective, its gradient by the records.
    Beside theta and the update that was seen it holds two more vectors of their length: the trial's update
    and the objective's derivative by it.
    """

    def __init__(self, observed: Observed) -> None:
        self.torch = torch_or_error()
        self.observed = observed
        self.tensors = observed.network.tensors(observed.theta)
        self.seen = [*observed.network.split(observed.update).values()]
        self.length = math.sqrt(_inner(self.seen, self.seen))
        self.back = [self.torch.empty_like(part) for part in self.seen]
        self.evaluations = 0

    def update(self, records: Any, targets: Any) -> list[Any]:
        """Return the update of trial records, differentiable."""
        local = self.observed.local
        steps = {} if local is None else {"rate": local.rate, "epochs": local.epochs, "batch": local.batch}
        try:
            return list(self.observed.network.differentiable(self.tensors, records, targets, **steps))
        except (RuntimeError, IndexError, ValueError) as error:
            raise ParameterError(
                f"records of shape {self.observed.shape} must go through the network, and its gradient twice"
            ) from error

    def slopes(self, records: Any, targets: Any, slope: Slope, by: list[Any]) -> tuple[float, list[Any]]:
        """Return the objective of trial records, and its gradient by each of `by`."""
        self.evaluations += 1
        found = self.update(records, targets)
        with self.torch.no_grad():
            objective, factor = slope(found)
            slopes = self.torch.autograd.grad(found, by, grad_outputs=self.back)
        return objective, [one.mul_(factor) for one in slopes]

    # Objectives

    def squares(self, found: list[Any]) -> tuple[float, float]:
        """|g - g'|^2, as DLG has it."""
        for mine, seen, back in zip(found, self.seen, self.back, strict=True):
            self.torch.sub(mine, seen, out=back)
        return _inner(self.back, self.back), 2.0

    def cosine(self, found: list[Any]) -> tuple[float, float]:
        """1 - cos(g, g'), which does not see the update's length."""
        length, inner = math.sqrt(_inner(found, found)) or 1e-30, _inner(found, self.seen)
        for mine, seen, back in zip(found, self.seen, self.back, strict=True):
            self.torch.add(seen, mine, alpha=-inner / length**2, out=back)
        return 1.0 - inner / (length * self.length), -1.0 / (length * self.length)

    # Between numpy and tensors

    def tensor(self, values: Any) -> Any:
        """Numbers in the type of the network."""
        return self.torch.as_tensor(np.asarray(values), dtype=self.seen[0].dtype)

    def targets(self) -> Any:
        """Return the labels that are known."""
        observed = self.observed
        kind = self.torch.int64 if observed.network.outputs > 1 else self.seen[0].dtype
        return self.torch.as_tensor(observed.known, dtype=kind)

    def rebuilt(self, records: Any, labels: Any, objective: float) -> Rebuilt:
        """Return the result of an attack, within the bounds."""
        observed = self.observed
        values = records.detach().double().numpy().reshape(observed.records, *observed.shape)
        inside = np.clip(np.nan_to_num(values, nan=observed.low), observed.low, observed.high)
        return Rebuilt(inside, np.asarray(labels), objective, self.evaluations)

    def start(self, seed: int, normal: bool) -> Floats:
        """Return the start of an attack: standard normal as printed, or uniform within the bounds."""
        stream, shape = SimulationStream(seed, path=(23,)), (self.observed.records, *self.observed.shape)
        count = math.prod(shape)
        if normal:
            u, v = stream.units(2 * count).reshape(2, count)
            return np.asarray(np.sqrt(-2.0 * np.log(2.0 - u)) * np.cos(2.0 * np.pi * v)).reshape(shape)
        low, high = self.observed.low, self.observed.high
        return np.asarray(low + (high - low) * (stream.units(count) - 1.0)).reshape(shape)


def dlg(observed: Observed, *, seed: int = 0, rounds: int = 300, inner: int = 20) -> Rebuilt:
    """Deep leakage from gradients: squared distance, L-BFGS, from normal noise; labels learnt unless known.

    Args:
        observed: the update.
        seed: Seed of the start.
        rounds: Rounds of L-BFGS; 300 as printed.
        inner: steps of a round; 20, PyTorch's own, as printed.

    Reference: Zhu et al. 2019, Algorithm 1 and Section 4.
    Departure: it ends early where the printed one would go on in vain: at an objective below 1e-12 of the
        update's square, after one that is no number, and after 15 rounds without a lower one. The lowest is
        kept, not the last.
    """
    rounds, inner = whole("rounds", rounds, low=1), whole("inner", inner, low=1)
    matcher = Matcher(observed)
    torch = matcher.torch
    records = matcher.tensor(matcher.start(seed, normal=True)).requires_grad_()
    classes, free, given = observed.network.outputs, [records], None
    scores = None
    if observed.labels is None and classes > 1:
        begin = SimulationStream(seed, path=(24,)).units(observed.records * classes) - 1.5
        scores = matcher.tensor(begin.reshape(observed.records, classes)).requires_grad_()
        free.append(scores)
    else:
        given = matcher.targets()
    engine = torch.optim.LBFGS(free, max_iter=inner)

    def closure() -> float:
        targets = given if scores is None else scores.softmax(dim=1)
        objective, slopes = matcher.slopes(records, targets, matcher.squares, free)
        for held, slope in zip(free, slopes, strict=True):
            held.grad = slope
        return objective

    best, kept, since = math.inf, [one.detach().clone() for one in free], 0
    for _ in range(rounds):
        before = [one.detach().clone() for one in free]
        objective = engine.step(closure)  # of the records before the step
        if not math.isfinite(objective):
            break
        best, kept, since = (objective, before, 0) if objective < best else (best, kept, since + 1)
        if best <= 1e-12 * matcher.length**2 or since >= 15:
            break
    labels = observed.known if scores is None else kept[1].argmax(dim=1).numpy()
    return matcher.rebuilt(kept[0], labels, best)


def cosine(
    observed: Observed,
    *,
    seed: int = 0,
    steps: int = 300,
    rate: float = 0.1,
    variation: float = 1e-2,
    start: Any = None,
) -> Rebuilt:
    """Cosine distance and total variation, by the signs of gradients through Adam, within the bounds.

    Args:
        observed: the update.
        seed: Seed of the start.
        steps: Steps of Adam; the rate falls to a tenth after 3/8, 5/8 and 7/8 of them.
        rate: Rate of the first steps, as a share of half the range of the features.
        variation: the weight of the total variation of pictures; more of it under more noise.
        start: records to begin with; None for uniform noise.

    Reference: Geiping et al. 2020, Eq. 4 and Appendix A.
    """
    steps, rate = whole("steps", steps, low=1), real("rate", rate, low=0.0, open_low=True)
    real("variation", variation, low=0.0)
    matcher, half = Matcher(observed), (observed.high - observed.low) / 2.0
    begin = matcher.start(seed, normal=False) if start is None else _checked_start(observed, start)
    records, targets = matcher.tensor(begin).requires_grad_(), matcher.targets()
    engine, schedule = _adam(matcher, records, rate * half, steps)
    objective = math.inf
    for _ in range(steps):
        objective, (slope,) = matcher.slopes(records, targets, matcher.cosine, [records])
        if variation and len(observed.shape) == 2:
            slope = slope.add_(_variation_slope(matcher, records), alpha=variation)
        records.grad = slope.sign_()
        engine.step()
        schedule.step()
        with matcher.torch.no_grad():
            records.clamp_(observed.low, observed.high)
    return matcher.rebuilt(records, observed.known, objective)


def most_likely(
    observed: Observed,
    prior: GaussianPrior,
    noise: float,
    *,
    steps: int = 300,
    rate: float = 0.1,
    start: Any = None,
) -> Rebuilt:
    """Return the most likely records given the update, its noise and a public prior: maximum a posteriori.

    |g - g'|^2 / (2 s^2) + |z|^2 / 2 for records mean + L z, by Adam. For a linear model
    the answer is known in closed form, see `linear`.

    Args:
        observed: the update; if it was clipped or scaled, so that its length is not the gradient's, use
            `cosine`.
        prior: Prior of the records, from public ones.
        noise: the standard deviation of each number of the update.
        steps: Steps of Adam, see `cosine`.
        rate: Rate of the first steps, in standard deviations of the prior.
        start: records to begin with, what `cosine` found; None for the prior's mean.

    Reference: Balunovic et al. 2022, Section 3, Eq. 2, with a Gaussian prior.
    """
    variance = real("noise", noise, low=0.0, open_low=True) ** 2
    matcher = Matcher(observed)
    width = prior.factor.shape[1]
    mean, factor, targets = matcher.tensor(prior.mean), matcher.tensor(prior.factor), matcher.targets()
    if mean.numel() != math.prod(observed.shape):
        raise ParameterError(f"prior must be of {math.prod(observed.shape)} features, got {mean.numel()}")
    begin = np.zeros((observed.records, width))
    if start is not None:
        apart = _checked_start(observed, start).reshape(observed.records, -1) - prior.mean
        begin = apart @ prior.factor / np.square(prior.factor).sum(axis=0)
    free = matcher.tensor(begin).requires_grad_()
    engine, schedule = _adam(matcher, free, rate, steps)
    shape, objective = (observed.records, *observed.shape), math.inf
    for _ in range(steps):
        records = (mean + free @ factor.T).view(shape)
        objective, (slope,) = matcher.slopes(records, targets, matcher.squares, [free])
        free.grad = slope.div_(2.0 * variance).add_(free.detach())
        engine.step()
        schedule.step()
    with matcher.torch.no_grad():
        records = mean + free @ factor.T
    return matcher.rebuilt(records, observed.known, objective)


def _inner(mine: list[Any], other: list[Any]) -> float:
    """Return the inner product of two updates, without a third of their length."""
    return sum(float(a.reshape(-1).dot(b.reshape(-1))) for a, b in zip(mine, other, strict=True))


def _adam(matcher: Matcher, held: Any, rate: float, steps: int) -> tuple[Any, Any]:
    optim = matcher.torch.optim
    engine = optim.Adam([held], lr=rate)
    stops = [round(steps * share) for share in _DECAYS]
    return engine, optim.lr_scheduler.MultiStepLR(engine, stops, gamma=0.1)


def _variation_slope(matcher: Matcher, records: Any) -> Any:
    """Return the derivative of the mean absolute difference of neighbouring pixels, both ways."""
    with matcher.torch.no_grad():
        found = matcher.torch.zeros_like(records)
        for axis in (1, 2):
            signs = records.diff(dim=axis).sign_()
            size = signs.shape[axis]
            found.narrow(axis, 1, size).add_(signs, alpha=1.0 / signs.numel())
            found.narrow(axis, 0, size).sub_(signs, alpha=1.0 / signs.numel())
        return found


def _checked_start(observed: Observed, given: Any) -> Floats:
    found, shape = np.asarray(given, dtype=np.float64), (observed.records, *observed.shape)
    if found.shape != shape or not np.isfinite(found).all():
        raise ParameterError(f"start must be finite numbers of shape {shape}, got shape {found.shape}")
    return found
