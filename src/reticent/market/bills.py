"""A buyer's menu as a text that is signed: what is asked, for how much, until when.

A level of it is one survey with one period, so that a sale is the report of a survey: charged to the seller's
own ledger, drawn once, remembered, then sent. The bill names each survey by its id, with the epsilon and the
cents of the level; a device refuses a bill whose surveys are others, cost something else, or ask for
something else than the level before.

Reference: Biswas 2023, Algorithm 9, where the consumer names epsilon after the provider named a price; here
    the seller picks from what was published, and her price stays with her.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reticent.arguments import whole
from reticent.collect.survey import Survey
from reticent.errors import GuaranteeError, ParameterError
from reticent.fleet import texts
from reticent.fleet.published import WORDS, Published
from reticent.market.menus import Level, Menu
from reticent.market.offers import MOST_POINTS

FORMAT = 1
LATEST = 1 << 40
_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)


@dataclass(frozen=True)
class Bill(Published):
    """A menu whose levels are surveys.

    Args:
        name: Name of the bill; for this, `version` and `purpose` see `Published`.
        closes: Time at which the bill ends, in seconds since 1970.
        levels: Levels of rising epsilon and rising pay.
        surveys: Id of each level's survey.
    """

    what = field = study = "bill"
    head = b"reticent-bill/v1\n"
    names = (*WORDS, "closes", "levels")

    closes: int
    levels: tuple[Level, ...]
    surveys: tuple[bytes, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("closes", self.closes, low=0, high=LATEST)
        if len(self.surveys) != len(self.levels) or len(set(self.surveys)) != len(self.surveys):
            raise ParameterError("levels must have a survey of their own each")
        self.menu  # noqa: B018 (its rules are the bill's)

    @cached_property
    def menu(self) -> Menu:
        """The menu that a seller chooses from."""
        return Menu(self.levels)

    def _fields(self) -> Mapping[str, Any]:
        return {name: getattr(self, name) for name in (*WORDS[1:], "closes")} | {
            "format": FORMAT,
            "levels": [
                {"cents": level.cents, "survey": survey.hex(), "units": level.units}
                for level, survey in zip(self.levels, self.surveys, strict=True)
            ],
        }

    @classmethod
    def _of(cls, given: dict[str, Any]) -> Bill:
        if given["format"] != FORMAT or isinstance(given["format"], bool):
            raise ParameterError(f"format must be {FORMAT}, got {given['format']!r:.60}")
        listed = given["levels"]
        if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_POINTS:
            raise ParameterError(f"levels must be a list of 1 to {MOST_POINTS}")
        levels, surveys = [], []
        for place, one in enumerate(listed):
            fields = texts.checked_fields(f"levels[{place}]", one, ("cents", "survey", "units"))
            if not isinstance(fields["survey"], str) or not _ID.fullmatch(fields["survey"]):
                raise ParameterError(f"levels[{place}]: survey must be 16 hexadecimal digits")
            levels.append(Level(fields["units"], fields["cents"]))
            surveys.append(bytes.fromhex(fields["survey"]))
        words = {name: given[name] for name in (*WORDS[1:], "closes")}
        return cls(levels=tuple(levels), surveys=tuple(surveys), **words)


def billed(
    surveys: Sequence[Survey], cents: Sequence[int], *, name: str, version: str, purpose: str, closes: int
) -> Bill:
    """Return the bill of surveys that ask the same at rising epsilons, with the pay of each.

    Raises:
        ParameterError, GuaranteeError: they do not, or the pay does not rise.
    """
    if len(surveys) != len(cents):
        raise ParameterError(f"cents must be one for each survey, got {len(cents)} for {len(surveys)}")
    levels = tuple(Level(survey.units, paid) for survey, paid in zip(surveys, cents, strict=True))
    made = Bill(name, version, purpose, closes, levels, tuple(survey.id for survey in surveys))
    check_surveys(made, surveys)
    return made


def check_surveys(bill: Bill, surveys: Sequence[Survey]) -> None:
    """Refuse surveys that are not what the bill says.

    Raises:
        GuaranteeError: another survey, another price, more than one report, or another question.
    """
    if len(surveys) != len(bill.levels):
        raise GuaranteeError(f"bill {bill.name} has {len(bill.levels)} levels, got {len(surveys)} surveys")
    for place, (survey, level, known) in enumerate(zip(surveys, bill.levels, bill.surveys, strict=True)):
        if survey.id != known:
            raise GuaranteeError(f"level {place} of bill {bill.name} is of another survey")
        if survey.units != level.units:
            raise GuaranteeError(
                f"level {place} of bill {bill.name} says {level.units} units, its survey takes {survey.units}"
            )
        if survey.periods != 1:
            raise GuaranteeError(f"level {place} of bill {bill.name} asks for {survey.periods} reports")
        if survey.attributes != surveys[0].attributes:
            raise GuaranteeError(f"level {place} of bill {bill.name} asks for something else than level 0")
