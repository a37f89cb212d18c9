"""Surveys that learn: the description of their waves and of their follow-ups.

A survey may say that some of its numbers learn. In each period a share of the reporters (the *first wave*, by
the survey's lots) reports by the survey's own mechanisms, which are made for the worst case. The operator
publishes what that comes to, makes mechanisms for it (`shaping`), and signs a *follow-up*: the same survey
with other mechanisms, for one period, that names the survey and the period which it follows. All others
report by that. `last period` does the same with what earlier periods came to: all report by the survey's own
mechanisms in the first period, and by follow-ups later.

Privacy: everybody reports once in a period, under the same epsilon, whatever text asks: a device pays and
    remembers for (survey, period), and takes a follow-up only if it is the survey that it took but for the
    mechanisms, and these keep epsilon by the exact check of any survey. The estimate that shapes a mechanism
    is made of private reports: what it depends on is published already. Nobody can choose who is in which
    wave. A liar in the first wave, or an operator who makes a useless table, can only waste accuracy;
    `regret` bounds how much, for tables that an honest operator makes of whatever was reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reticent.arguments import real, whole
from reticent.errors import ParameterError, ParameterTypeError
from reticent.fleet import texts

FIRST_WAVE, LAST_PERIOD = "first wave", "last period"
SOURCES = (FIRST_WAVE, LAST_PERIOD)
SHARE, REGRET = 0.1, 0.5  # defaults: share of the first wave; excess over the least worst case
LEAST_EPSILON = (
    0.45  # of one number, below which no table has 1 % less variance than the best for the worst case
)
MOST_REGRET = 100.0
_ID_BYTES = 8


@dataclass(frozen=True)
class Waves:
    """The description of how a survey learns.

    Args:
        learns: Names of the numbers that learn.
        source: Source that shapes the mechanisms of the second wave: "first wave" or "last period".
        share: Share of the reporters that report by the survey's own mechanisms in every period.
        regret: Bound on the variance of a follow-up: for no value more than (1 + regret) times the least
            worst case.
    """

    learns: tuple[str, ...]
    source: str
    share: float
    regret: float = REGRET

    def __post_init__(self) -> None:
        if not self.learns or len(set(self.learns)) != len(self.learns):
            raise ParameterError("waves.learns must be distinct names of numbers, one at least")
        if self.source not in SOURCES:
            raise ParameterError(f"waves.source must be one of {', '.join(SOURCES)}, got {self.source!r:.60}")
        needs_some = self.source == FIRST_WAVE
        share = real("waves.share", self.share, low=0.0, high=1.0, open_low=needs_some, open_high=True)
        object.__setattr__(self, "share", share)
        object.__setattr__(self, "regret", real("waves.regret", self.regret, low=0.0, high=MOST_REGRET))

    def fields(self) -> dict[str, Any]:
        """Return the fields of the text."""
        return {
            "learns": list(self.learns),
            "regret": self.regret,
            "share": self.share,
            "source": self.source,
        }

    @classmethod
    def of(cls, given: Any) -> Waves:
        """Build the waves from the fields of a text."""
        held = texts.checked_fields("waves", given, ("learns", "regret", "share", "source"))
        return cls(_names(held["learns"]), held["source"], held["share"], held["regret"])


@dataclass(frozen=True)
class Follows:
    """The survey and period that a follow-up follows, and the guess that shaped it.

    Args:
        survey: Id of the survey.
        period: Period of the follow-up.
        shapes: Name of each number that learns, with the mean and deviation of the guess that its mechanism
            is made for, in halves of its bounds from their middle; for people and auditors.
        reports: Number of reports behind the guess.
    """

    survey: bytes
    period: int
    shapes: tuple[tuple[str, float, float], ...]
    reports: int

    def __post_init__(self) -> None:
        if not isinstance(self.survey, bytes) or len(self.survey) != _ID_BYTES:
            raise ParameterError(f"follows.survey must be {_ID_BYTES} bytes")
        object.__setattr__(self, "period", whole("follows.period", self.period, low=0))
        object.__setattr__(self, "reports", whole("follows.reports", self.reports, low=0))

    def fields(self) -> dict[str, Any]:
        """Return the fields of the text."""
        return {
            "period": self.period,
            "reports": self.reports,
            "shapes": [list(one) for one in self.shapes],
            "survey": self.survey.hex(),
        }

    @classmethod
    def of(cls, given: Any) -> Follows:
        """Build the object from the fields of a text."""
        held = texts.checked_fields("follows", given, ("period", "reports", "shapes", "survey"))
        if not isinstance(held["shapes"], list):
            raise ParameterError("follows.shapes must be a list")
        shapes = []
        for place, one in enumerate(held["shapes"]):
            if not isinstance(one, list) or len(one) != 3 or not isinstance(one[0], str):
                raise ParameterError(f"follows.shapes[{place}] must be a name, a mean and a deviation")
            mean = real(f"follows.shapes[{place}][1]", one[1], low=-1.0, high=1.0)
            deviation = real(f"follows.shapes[{place}][2]", one[2], low=0.0, high=1.0)
            shapes.append((one[0], mean, deviation))
        survey = texts.hexadecimal("follows.survey", held["survey"])
        return cls(survey, held["period"], tuple(shapes), held["reports"])


def _names(given: Any) -> tuple[str, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ParameterTypeError(f"waves.learns must be a list of names, got {type(given).__name__}")
    if not all(isinstance(one, str) for one in given):
        raise ParameterTypeError("waves.learns must be a list of names")
    return tuple(given)
