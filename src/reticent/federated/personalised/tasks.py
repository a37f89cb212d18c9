"""A personalised training task: several hypotheses, how far a client may move them, which noise; signed.

Everything that decides about privacy is in the signed text, except the hypotheses of a round. These are
public, and each client works out itself, from those that it was given, what a report costs (`noise`).

What a client sends, the field `about`:

    "hypothesis"  hypothesis + update, as in the documents. The hypothesis is chosen from private data, so two
                  clients may be 2 S + max |theta_i - theta_j| apart (mathematics 4.11).
    "centre"      hypothesis + update, clipped to radius S about one public centre, the mean of the
                  hypotheses: 2 S apart.
    "slots"       the update and the number S, in the place of the chosen hypothesis among k places; zeros in
                  the others: 2 S apart, for the same choice and for another, and nobody needs k-means to
                  tell how many chose what. The default. With one hypothesis, the update alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.errors import ParameterError, ParameterTypeError
from reticent.federated import models
from reticent.federated.any_task import AnyTask
from reticent.federated.models import Model
from reticent.federated.tasks import MOST_PARTICIPATIONS, MOST_ROUNDS
from reticent.fleet import signing
from reticent.fleet.enrolment import Use
from reticent.fleet.published import WORDS
from reticent.fleet.signing import signed as signed
from reticent.mechanisms.base import Floats
from reticent.mechanisms.sampling import MAX_DIMENSIONS

FORMAT = 1
ABOUT = ("hypothesis", "centre", "slots")
NOISE = ("gaussian", "laplace")
MOST_HYPOTHESES = 64
MOST_EPOCHS = 1000
MOST_NUMBERS = (1 << 16) - 1  # of one report: a ledger records them, and the round
_LEARNT = ("model", "dimensions", "hypotheses", "clip", "reach", "about", "noise", "level")
_ASKED = ("rounds", "group", "participations", "epochs", "rate")


@dataclass(frozen=True)
class PersonalTask(AnyTask):
    """Several models to be learnt together, each by the clients that it fits best.

    Args:
        name: and `version` and `purpose`, see `Published`.
        model: Model to learn; None if clients bring losses and updates of a model of their own.
        dimensions: n, the length of a hypothesis.
        hypotheses: k.
        clip: S, the radius to which an update is clipped. Public.
        reach: no hypothesis is longer than this. Public; a client refuses others.
        about: Content of a report, see above.
        noise: "gaussian", charged in mu^2, or "laplace", charged in epsilon.
        level: sigma, the standard deviation of each number, or epsilon per unit of distance.
        rounds: Number T of rounds.
        group: U, clients of one round.
        participations: Number of rounds in which one client may report.
        epochs: E, steps of a local update, each over all records of the client.
        rate: Rate s of a local step.

    Reference: Biswas 2023, Algorithm 6.
    """

    use = Use.PERSONAL_TRAINING  # of a client's key
    field = "personal-task"
    head = b"reticent-personal-task/v1\n"
    names = (*WORDS, *_LEARNT, *_ASKED)

    hypotheses: int
    clip: float
    reach: float
    level: float
    rounds: int
    group: int
    rate: float
    about: str = "slots"
    noise: str = "gaussian"
    participations: int = 1
    epochs: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.model, Model | None):
            raise ParameterTypeError("model must be of `reticent.federated`")
        for field, allowed in (("about", ABOUT), ("noise", NOISE)):
            given = getattr(self, field)
            if not isinstance(given, str) or given not in allowed:
                raise ParameterError(f"{field} must be one of {', '.join(allowed)}, got {given!r:.60}")
        for field, high in (
            ("dimensions", MAX_DIMENSIONS),
            ("hypotheses", MOST_HYPOTHESES),
            ("rounds", MOST_ROUNDS),
            ("group", 1 << 40),
            ("participations", MOST_PARTICIPATIONS),
            ("epochs", MOST_EPOCHS),
        ):
            object.__setattr__(self, field, whole(field, getattr(self, field), low=1, high=high))
        whole("participations", self.participations, high=self.rounds)
        for field in ("clip", "reach", "level", "rate"):
            object.__setattr__(self, field, real(field, getattr(self, field), low=1e-9, high=1e9))
        self._check_dimensions()
        if self.model is not None and self.model.axes is not None:
            raise ParameterError("model of a personalised task must have no axes: prepare features before")

    # As text

    def _fields(self) -> dict[str, Any]:
        fields = {"format": FORMAT, "model": None if self.model is None else self.model.described()}
        return fields | {name: getattr(self, name) for name in self.names if name not in fields}

    @classmethod
    def _of(cls, given: dict[str, Any]) -> PersonalTask:
        if given.pop("format") != FORMAT:
            raise ParameterError(f"format must be {FORMAT}")
        model = given.pop("model")
        return cls(model=None if model is None else models.made(model), **given)

    # What it means

    @property
    def numbers(self) -> int:
        """The number of numbers in a report."""
        if self.about == "slots" and self.hypotheses > 1:
            return self.hypotheses * (self.dimensions + 1)
        return self.dimensions

    def checked_hypotheses(self, given: Any) -> Floats:
        """The hypotheses of a round, which are public, or an error: shape (k, n)."""
        try:
            found = np.array(given, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            found = np.empty(0)
        if found.shape != (self.hypotheses, self.dimensions) or not np.isfinite(found).all():
            raise ParameterError(f"hypotheses must be {self.hypotheses} x {self.dimensions} finite numbers")
        with np.errstate(over="ignore"):
            longest = float(np.sqrt(np.square(found).sum(axis=1)).max())
        if not longest <= self.reach:
            raise ParameterError(f"hypotheses must be no longer than {self.reach:g}, got {longest:g}")
        return found


def verified(file: bytes, signer: bytes) -> PersonalTask:
    """The task of a signed file, if this signer signed it."""
    return signing.verified(PersonalTask, file, signer)


def task_of(file: bytes) -> PersonalTask:
    """Return the task of a signed file without checking who signed it, for its own server and for people."""
    return signing.unverified(PersonalTask, file)
