"""A training task: what is learnt, from how many clients, under which epsilon; signed.

A task is a text, JSON with sorted fields and no spaces, that means the same on the server and on every
client. Its id is the first eight bytes of SHA-256 of the text; every report names it. Everything that decides
about privacy is in it: bounds, mechanism, how many coordinates a report holds. The parameters of a round are
not, and need not be: a report is epsilon-LDP whatever gradient goes in.

Privacy: the report of one round is epsilon-LDP between any two data sets of a client (user level, local
    perturbation: the server itself is the adversary). A client that answers in several rounds spends
    epsilon in each.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.collect import instruments
from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.federated import choice, models, steps
from reticent.federated.any_task import AnyTask
from reticent.federated.models import Model
from reticent.federated.steps import Steps
from reticent.fleet import signing, texts
from reticent.fleet.enrolment import Use
from reticent.fleet.lots import KEY_BYTES
from reticent.fleet.published import WORDS, Local
from reticent.fleet.signing import signed as signed
from reticent.mechanisms.base import Floats, checked_epsilon
from reticent.mechanisms.numeric.base import NumericChannel
from reticent.mechanisms.numeric.one_bit import OneBit
from reticent.mechanisms.numeric.priors import Guess
from reticent.mechanisms.record import Number
from reticent.mechanisms.sampling import MAX_DIMENSIONS
from reticent.mechanisms.vector.codebook import Codebook, lifted
from reticent.privacy import LocalDP

FORMAT = 1
MOST_ROUNDS = 1 << 20
MOST_PARTICIPATIONS = 1 << 12
MOST_SAMPLED = 1 << 12  # coordinates of a report; under 20 are best, and a ledger must hold their symbols
UNIT = Number("coordinate", (-1.0, 1.0))
_LEARNT = ("model", "dimensions", "bounds", "epsilon", "sample_size")
_ASKED = ("mechanism", "rounds", "group", "participations", "steps", "key")
_WRITTEN = ("format", "model", "bounds", "mechanism", "steps", "key")  # not as they are


@dataclass(frozen=True)
class Task(Local, AnyTask):
    """One model to be learnt by LDP-FedSGD.

    Args:
        name: and `version` and `purpose`, see `Published`.
        model: Model to learn; None if clients bring gradients of a model of their own.
        dimensions: d, the length of a gradient.
        bounds: each coordinate of a gradient is clipped to [-b, b]; one b for all, or d of them. With a
            `Codebook` one number: the length of a gradient is clipped to it. Public.
        epsilon: the LDP level of the report of one round.
        mechanism: Mechanism of one coordinate, in units of its bound; or a `Codebook`, of a whole gradient.
        sample_size: k, how many coordinates a report holds; drawn by the task, never by their values. With a
            `Codebook` 1, the one number of a direction.
        rounds: Number of rounds.
        group: clients of one round.
        participations: Number of rounds in which one client may report.
        steps: Steps of the server.
        key: 32 bytes for the task's draws, public.

    Raises:
        GuaranteeError: a report may spend more than epsilon.
    """

    use = Use.TRAINING  # of a client's key
    field = "task"
    head = b"reticent-task/v1\n"
    names = (*WORDS, *_LEARNT, *_ASKED)

    bounds: float | tuple[float, ...]
    epsilon: float
    mechanism: NumericChannel | Codebook
    sample_size: int
    rounds: int
    group: int
    steps: Steps
    key: bytes
    participations: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "epsilon", checked_epsilon(self.epsilon))
        self._check_whole("dimensions", MAX_DIMENSIONS)
        self._check_whole("sample_size", min(self.dimensions, MOST_SAMPLED))
        self._check_whole("rounds", MOST_ROUNDS)
        self._check_whole("group", 1 << 40)
        self._check_whole("participations", min(self.rounds, MOST_PARTICIPATIONS))
        for field, kind in (("model", Model | None), ("steps", Steps)):
            if not isinstance(getattr(self, field), kind):
                given = type(getattr(self, field)).__name__
                raise ParameterTypeError(f"{field} must be of `reticent.federated`, got {given}")
        self._check_dimensions()
        object.__setattr__(self, "bounds", _checked_bounds(self.bounds, self.dimensions))
        self._check_mechanism()
        if Fraction(self.mechanism.epsilon) * self.sample_size > Fraction(self.epsilon):
            raise GuaranteeError(
                f"{self.sample_size} coordinates under epsilon {self.mechanism.epsilon:g} each may spend "
                f"more than epsilon {self.epsilon:g}"
            )
        self._check_key()
        self._check_length()

    def _check_mechanism(self) -> None:
        if isinstance(self.mechanism, Codebook):
            if self.mechanism.dimensions != self.dimensions:
                raise ParameterError(f"mechanism must be of {self.dimensions} dimensions, as the task is")
            if isinstance(self.bounds, tuple):
                raise ParameterError("bounds must be one number with a Codebook: the longest gradient")
            if self.sample_size != 1:
                raise ParameterError(f"sample_size must be 1 with a Codebook, got {self.sample_size}")
        elif not isinstance(self.mechanism, NumericChannel) or not instruments.fits(UNIT, self.mechanism):
            raise ParameterError("mechanism must be a numeric channel with bounds -1 and 1, or a Codebook")

    def _check_whole(self, field: str, high: int) -> None:
        object.__setattr__(self, field, whole(field, getattr(self, field), low=1, high=high))

    # As text

    def _fields(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.names if name not in _WRITTEN}
        return plain | {
            "format": FORMAT,
            "model": None if self.model is None else self.model.described(),
            "bounds": list(self.bounds) if isinstance(self.bounds, tuple) else self.bounds,
            "mechanism": _described(self.mechanism),
            "steps": self.steps.described(),
            "key": self.key.hex(),
        }

    @classmethod
    def _of(cls, given: dict[str, Any]) -> Task:
        """The task of these fields; its mechanism's guarantee is checked in exact integers."""
        if given["format"] != FORMAT:
            raise ParameterError(f"format must be {FORMAT}, got {given['format']!r:.60}")
        mechanism = _made(given["mechanism"], given["dimensions"])
        bounds = given["bounds"]
        return cls(
            model=None if given["model"] is None else models.made(given["model"]),
            bounds=tuple(bounds) if isinstance(bounds, list) else bounds,
            mechanism=mechanism,
            steps=steps.made(given["steps"]),
            key=texts.hexadecimal("key", given["key"]),
            **{name: given[name] for name in cls.names if name not in _WRITTEN},
        )

    # What it means

    @property
    def guarantee(self) -> LocalDP:
        """The guarantee of one report."""
        return LocalDP(self.epsilon, unit="all data of one client in one round")

    @property
    def codebook(self) -> Codebook | None:
        """The mechanism, if it is about whole gradients; None if it is about coordinates."""
        return self.mechanism if isinstance(self.mechanism, Codebook) else None

    @property
    def channel(self) -> NumericChannel:
        """The mechanism of one coordinate."""
        assert isinstance(self.mechanism, NumericChannel)
        return self.mechanism

    @property
    def reach(self) -> float:
        """The largest size of each coordinate of a gradient where all are alike: the unit of plans."""
        if self.codebook is None:
            return float(np.mean(self.scale))
        return float(self.scale[0]) / math.sqrt(self.dimensions)

    @cached_property
    def scale(self) -> Floats:
        """The bound of each coordinate; with a `Codebook`, of the length, which bounds each one too."""
        return np.broadcast_to(np.asarray(self.bounds, dtype=np.float64), (self.dimensions,))

    def clipped(self, gradients: Any) -> Floats:
        """Gradients in units of their bounds, in [-1, 1] or the unit ball: what is no number counts as 0."""
        if self.codebook is not None:
            with np.errstate(all="ignore"):
                return lifted(np.asarray(gradients, dtype=np.float64) / self.scale)[..., :-1].astype(
                    np.float64
                )
        with np.errstate(all="ignore"):
            units = np.asarray(gradients, dtype=np.float64) / self.scale
        return np.clip(np.nan_to_num(units, nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)

    def asked(self, clients: Any, number: Any) -> Any:
        """Return the request to each client in a round: k coordinates, or the seed of its directions."""
        if self.codebook is not None:
            return self.lots.codebook(clients, number)[:, None]
        return self.lots.subset(clients, number, self.sample_size, self.dimensions)

    def dither(self, clients: Any, number: Any, asked: Any) -> Any:
        """The dither level of each bit of `OneBit`, shape (clients, k)."""
        assert isinstance(self.mechanism, OneBit)
        levels = [
            self.lots.dither(clients, number, asked[:, place], self.mechanism.dither_levels)
            for place in range(self.sample_size)
        ]
        return np.stack(levels, axis=1)

    def checked_theta(self, theta: Any) -> Floats:
        """Return the parameters of a round, which are public, or raise an error."""
        try:
            found = np.array(theta, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            found = np.empty(0)
        if found.shape != (self.dimensions,) or not np.isfinite(found).all():
            raise ParameterError(f"theta must be {self.dimensions} finite numbers")
        return found

    def noise(self, clients: int, gradient: Any = None) -> Floats:
        """Return each coordinate's variance in the averaged gradient of a group, noise and sampling together.

        (d/k E[Y^2] - g^2) / n in units of the squared bound: for a clipped gradient `gradient` that all
        clients share, or the worst over all that they may hold.
        """
        if self.codebook is not None:
            return self._length_noise(self.codebook, whole("clients", clients, low=1), gradient)
        rate = self.sample_size / self.dimensions
        x = np.linspace(-1.0, 1.0, 257) if gradient is None else self.clipped(gradient)
        spread = (np.asarray(self.channel.variance(x)) + x * x) / rate - x * x
        worst = np.max(spread) if gradient is None else spread
        return np.asarray(worst / whole("clients", clients, low=1) * np.square(self.scale))

    def _length_noise(self, codebook: Codebook, clients: int, gradient: Any) -> Floats:
        """Return the noise as `noise` does; the worst has the worst length, spread over all coordinates."""
        if gradient is None:
            spread = np.full(self.dimensions, codebook.worst_case_error / self.dimensions)
        else:
            spread = codebook.variance(self.clipped(gradient))
        return np.asarray(spread / clients * np.square(self.scale))


def designed(
    name: str,
    model: Model | int,
    *,
    epsilon: float,
    purpose: str,
    rounds: int,
    group: int,
    rate: float,
    bounds: float | Sequence[float] = 1.0,
    kind: str = "inverse-root",
    momentum: float = 0.0,
    participations: int = 1,
    sample_size: int | None = None,
    mechanism: str | None = None,
    typical: float | None = None,
    prior: Guess | None = None,
    length: float | None = None,
    version: str = "1",
) -> Task:
    """Design a task with the mechanism and the number of coordinates of least variance, see `choice`.

    Args:
        name: see `Task`, as for what is not listed here.
        model: Model to learn, or the number of coordinates of a model of the clients' own.
        epsilon: Epsilon of the report of one round.
        purpose: Purpose in words for the person behind a client.
        rounds: Number of rounds.
        group: clients of one round.
        rate: Rate of the first step.
        bounds: Bounds of the coordinates.
        kind: Kind of the rate's fall, see `Steps`.
        momentum: see `Steps`.
        participations: Number of rounds in which one client may report.
        sample_size: coordinates in a report; the number of least variance if not given.
        mechanism: a kind of `choice.KINDS` instead of the best, or Codebook.
        typical: Usual size of a coordinate, as a share of its bound, from public knowledge: 0.1. The variance
            is then least on average over such coordinates, without it in the worst case. Privacy does not
            depend on it: whatever is chosen keeps epsilon for all gradients.
        prior: instead of `typical`, a guess of where clipped coordinates lie in units of their bounds: "small
            gradients", or the weights of equal bins, see `choice.pilot`. A `Tailored` is solved for it.
        length: Largest length of a gradient, from public knowledge: longer ones are clipped. With it a
            `Codebook` is used where it has less noise; it must be given for one that is asked for.
        version: Version of the task's text.
    """
    d = model.dimensions if isinstance(model, Model) else whole("model", model, low=1, high=MAX_DIMENSIONS)
    given = tuple(bounds) if isinstance(bounds, (Sequence, np.ndarray)) else bounds
    channel: NumericChannel | Codebook
    if mechanism == choice.CODEBOOK:
        if sample_size not in (None, 1) or length is None:
            raise ParameterError("length must be given for a Codebook, and no sample_size")
        channel, k, given = choice.codebook(epsilon, d), 1, length
    else:
        channel, k = choice.chosen(
            epsilon, d, kind=mechanism, sample_size=sample_size, typical=typical, prior=prior
        )
        if length is not None and mechanism is None and sample_size is None:
            other = choice.codebook(epsilon, d)
            if choice.is_better(other, length, channel, k, given, typical, prior):
                channel, k, given = other, 1, length
    return Task(
        name=name,
        version=version,
        purpose=purpose,
        model=model if isinstance(model, Model) else None,
        dimensions=d,
        bounds=given,
        epsilon=epsilon,
        mechanism=channel,
        sample_size=k,
        rounds=rounds,
        group=group,
        participations=participations,
        steps=Steps(rate, kind, momentum),
        key=os.urandom(KEY_BYTES),
    )


def _described(mechanism: NumericChannel | Codebook) -> dict[str, Any]:
    if not isinstance(mechanism, Codebook):
        return instruments.described(mechanism)
    fields = {name: getattr(mechanism, name) for name in mechanism.travels}
    return {"kind": choice.CODEBOOK, "epsilon": mechanism.epsilon, **fields}


def _made(given: Any, dimensions: Any) -> NumericChannel | Codebook:
    """The mechanism of its numbers; its guarantee is checked exactly, and nothing is solved."""
    if isinstance(given, dict) and given.get("kind") == choice.CODEBOOK:
        if set(given) != {"kind", "epsilon", *Codebook.travels}:
            raise ParameterError(f"mechanism: fields must be kind, epsilon, {', '.join(Codebook.travels)}")
        whole("mechanism: top", given["top"], low=1)  # a client does not look for it
        return Codebook(dimensions=dimensions, **{name: one for name, one in given.items() if name != "kind"})
    mechanism = instruments.made(UNIT, given)
    if not isinstance(mechanism, NumericChannel):
        raise ParameterError("mechanism must be a numeric channel")
    return mechanism


def verified(file: bytes, signer: bytes) -> Task:
    """The task of a signed file, if this signer signed it and its mechanism keeps its guarantee."""
    return signing.verified(Task, file, signer)


def task_of(file: bytes) -> Task:
    """Return the task of a signed file without checking who signed it, for its own server and for people."""
    return signing.unverified(Task, file)


def _checked_bounds(given: Any, dimensions: int) -> float | tuple[float, ...]:
    if isinstance(given, tuple):
        if len(given) != dimensions:
            raise ParameterError(f"bounds must be one or {dimensions} numbers, got {len(given)}")
        return tuple(_bound(f"bounds[{place}]", one) for place, one in enumerate(given))
    return _bound("bounds", given)


def _bound(field: str, given: Any) -> float:
    return real(field, given, low=1e-150, high=1e150)
