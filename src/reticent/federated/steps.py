"""The steps of a server against an averaged gradient: rates over rounds, and momentum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats

KINDS = ("constant", "inverse", "inverse-root")


@dataclass(frozen=True)
class Steps:
    """theta <- theta - rate(t) v, v <- momentum v + gradient; rounds t count from 0.

    Args:
        rate: eta_0.
        kind: "constant" eta_0, "inverse" eta_0 / (1 + t), "inverse-root" eta_0 / sqrt(1 + t).
        momentum: Momentum in [0, 1).

    Reference: Zhao et al. 2020, Algorithm 1, the line that updates theta; eta_t is left open there.
    """

    rate: float
    kind: str = "inverse-root"
    momentum: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", real("rate", self.rate, low=0.0, open_low=True))
        momentum = real("momentum", self.momentum, low=0.0, high=1.0, open_high=True)
        object.__setattr__(self, "momentum", momentum)
        if self.kind not in KINDS:
            raise ParameterError(f"kind of steps must be one of {', '.join(KINDS)}, got {self.kind!r:.60}")

    def described(self) -> dict[str, Any]:
        """Return the numbers that make the steps again."""
        return {"kind": self.kind, "rate": self.rate, "momentum": self.momentum}

    def rate_at(self, number: int) -> float:
        """Eta of a round."""
        number = whole("round", number, low=0)
        if self.kind == "constant":
            return self.rate
        return self.rate / (1.0 + number if self.kind == "inverse" else math.sqrt(1.0 + number))

    def step(self, theta: Floats, velocity: Floats, gradient: Floats, number: int) -> tuple[Floats, Floats]:
        """Return the parameters and the velocity after a round."""
        velocity = self.momentum * velocity + gradient
        return theta - self.rate_at(number) * velocity, velocity


def made(given: Any) -> Steps:
    """The steps of their numbers."""
    if not isinstance(given, dict) or set(given) != {"kind", "rate", "momentum"}:
        raise ParameterError("steps must have the fields kind, rate, momentum")
    return Steps(rate=given["rate"], kind=given["kind"], momentum=given["momentum"])
