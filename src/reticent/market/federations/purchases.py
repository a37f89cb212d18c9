"""The texts of a buyer who deals with federations: what she wants, whom she takes, what arrived.

Money is in whole cents. A level is one of Eq. 8.1: how accurate pooled reports are, and nobody's privacy.

Reference: Biswas 2023, Section 8.4.1, Eq. 8.2, Algorithm 10.
Departure: a promise is a quota of contributions (`formulas.contribution`), since levels do not add up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reticent.arguments import real, whole
from reticent.errors import GuaranteeError, ParameterError
from reticent.fleet import texts
from reticent.fleet.published import WORDS, Published
from reticent.market.federations.formulas import Tabled, Valuation, deal_share, quota_of
from reticent.market.menus import MOST_CENTS
from reticent.privacy import MAX_UNITS

FORMAT = 1
MOST_FEDERATIONS = 1_000
MOST_POINTS = 10**9
MOST_ENTRIES = 100_000
LONGEST = 1 << 24
_NEAR = 1e-9
_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
_KEY = re.compile(r"[0-9a-f]{64}", re.ASCII)


def checked_id(field: str, given: Any) -> str:
    """The id of a text."""
    if not isinstance(given, str) or not _ID.fullmatch(given):
        raise ParameterError(f"{field} must be 16 hexadecimal digits")
    return given


def checked_key(field: str, given: Any) -> str:
    """A public key, which is what people are called."""
    if not isinstance(given, str) or not _KEY.fullmatch(given):
        raise ParameterError(f"{field} must be a public key: 64 hexadecimal digits")
    return given


def listed(field: str, given: Any, most: int) -> Sequence[Any]:
    """A list of some length."""
    if not isinstance(given, (list, tuple)) or len(given) > most:
        raise ParameterError(f"{field} must be a list of at most {most}")
    return given


@dataclass(frozen=True)
class Wanted(Published):
    """What a buyer asks federations for: her budget, and what a level is worth to her.

    Args:
        name: and `version` and `purpose`, see `Published`.
        budget: in cents, for all federations together.
        k: the values of the question that is asked.
        worth: from cents to levels.
    """

    what = field = study = "wanted"
    head = b"reticent-wanted/v1\n"
    names = (*WORDS, "budget", "k", "worth")

    budget: int
    k: int
    worth: Valuation | Tabled

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("budget", self.budget, low=1, high=MOST_CENTS)
        whole("k", self.k, low=2, high=1 << 20)

    def _fields(self) -> Mapping[str, Any]:
        worth: dict[str, Any] = (
            {"k1": self.worth.k1, "k2": self.worth.k2}
            if isinstance(self.worth, Valuation)
            else {"points": [list(one) for one in self.worth.points]}
        )
        return _words(self) | {"budget": self.budget, "k": self.k, "worth": worth}

    @classmethod
    def _of(cls, given: dict[str, Any]) -> Wanted:
        worth: Valuation | Tabled
        if isinstance(given["worth"], dict) and "points" in given["worth"]:
            found = texts.checked_fields("worth", given["worth"], ("points",))
            points = [listed("worth: points", one, 2) for one in listed("worth: points", found["points"], 64)]
            if any(len(one) != 2 for one in points):
                raise ParameterError("worth: points must be pairs of money and level")
            worth = Tabled(tuple((real("money", a), real("level", b)) for a, b in points))
        else:
            worth = Valuation(**texts.checked_fields("worth", given["worth"], ("k1", "k2")))
        return cls(**_given_words(given), budget=given["budget"], k=given["k"], worth=worth)

    def payment(self, level: float) -> int:
        """What a level is paid, in cents, rounded down."""
        return math.floor(self.worth.money(level))


@dataclass(frozen=True)
class Taken:
    """A bid as the buyer takes it.

    Attributes:
        federation: the id of its founding.
        level: that it bid: Eq. 8.1 of its members' thresholds.
        points: reports that its members have.
        most: what its members contribute at their thresholds, in units.
        quota: that is promised, in the same unit.
        cents: that are paid if it is reached; nothing otherwise.
    """

    federation: str
    level: float
    points: int
    most: int
    quota: int
    cents: int

    def __post_init__(self) -> None:
        checked_id("federation", self.federation)
        real("level", self.level, low=0.0, open_low=True)
        whole("points", self.points, low=1, high=MOST_POINTS * MOST_FEDERATIONS)
        whole("most", self.most, low=1)
        whole("quota", self.quota, low=1)
        whole("cents", self.cents, low=0, high=MOST_CENTS)


@dataclass(frozen=True)
class Award(Published):
    """Whom a buyer takes, at which share of their highest levels, for how much.

    Args:
        name: and `version` and `purpose`, see `Published`.
        wanted: the id of what was wanted.
        share: w of Eq. 8.2.
        taken: every bid, in the order of their federations' ids.
    """

    what = field = study = "award"
    head = b"reticent-award/v1\n"
    names = (*WORDS, "share", "taken", "wanted")

    wanted: str
    share: float
    taken: tuple[Taken, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_id("wanted", self.wanted)
        real("share", self.share, low=0.0, high=1.0, open_low=True)
        listed("taken", self.taken, MOST_FEDERATIONS)
        ids = [one.federation for one in self.taken]
        if not ids or ids != sorted(set(ids)):
            raise ParameterError("taken must be of at least one federation, each once, sorted by their ids")

    def _fields(self) -> Mapping[str, Any]:
        return _words(self) | {
            "share": self.share,
            "taken": [vars(one) for one in self.taken],
            "wanted": self.wanted,
        }

    @classmethod
    def _of(cls, given: dict[str, Any]) -> Award:
        names = tuple(Taken.__dataclass_fields__)
        taken = tuple(
            Taken(**texts.checked_fields(f"taken[{place}]", one, names))
            for place, one in enumerate(listed("taken", given["taken"], MOST_FEDERATIONS))
        )
        return cls(**_given_words(given), wanted=given["wanted"], share=given["share"], taken=taken)

    def of(self, federation: str) -> Taken:
        """What a federation is promised and promises."""
        for one in self.taken:
            if one.federation == federation:
                return one
        raise ParameterError(f"the award {self.name} takes no bid of federation {federation}")


def awarded(
    wanted: Wanted,
    bids: Mapping[str, tuple[float, int, int]],
    *,
    name: str = "award",
) -> Award:
    """The award of Eq. 8.2: the same share of every federation's highest level, within the budget.

    Args:
        wanted: the buyer's.
        bids: by federation: level, points, and what its members contribute at their thresholds.
        name: of the award.

    Raises:
        ParameterError: no bids.
    """
    share = deal_share(wanted.worth, [level for level, _, _ in bids.values()], wanted.budget)
    purpose = "the share of every bid that the budget buys"
    return Award(name, "1", purpose, wanted.id.hex(), share, _taken(wanted, share, bids))


def _taken(wanted: Wanted, share: float, bids: Mapping[str, tuple[float, int, int]]) -> tuple[Taken, ...]:
    return tuple(
        Taken(
            federation,
            level,
            points,
            most,
            max(1, min(most, quota_of(points, share * level, wanted.k))),
            wanted.payment(share * level),
        )
        for federation, (level, points, most) in sorted(bids.items())
    )


def check_award(wanted: Wanted, award: Award) -> None:
    """Redo an award from the bids that it lists.

    Raises:
        GuaranteeError: it is of something else, or a number is not what the bids give.
    """
    if award.wanted != wanted.id.hex():
        raise GuaranteeError(f"the award {award.name} is of something else than {wanted.name}")
    bids = {one.federation: (one.level, one.points, one.most) for one in award.taken}
    share = deal_share(wanted.worth, [level for level, _, _ in bids.values()], wanted.budget)
    if abs(award.share - share) > _NEAR:
        raise GuaranteeError(f"the award {award.name} says a share of {award.share:g}, redone {share:g}")
    for said, redone in zip(award.taken, _taken(wanted, award.share, bids), strict=True):
        if said != redone:
            raise GuaranteeError(
                f"the award {award.name} promises federation {said.federation} {said.cents} cents for "
                f"{said.quota} units, redone {redone.cents} for {redone.quota}"
            )
    if sum(one.cents for one in award.taken) > wanted.budget:
        raise GuaranteeError(f"the award {award.name} pays more than the budget of {wanted.budget} cents")


@dataclass(frozen=True)
class Arrived:
    """Reports of one member in one round that the buyer counted."""

    member: str
    round: int
    points: int
    units: int

    def __post_init__(self) -> None:
        checked_key("member", self.member)
        whole("round", self.round, low=1)
        whole("points", self.points, low=1, high=MOST_POINTS)
        whole("units", self.units, low=1, high=MAX_UNITS)


@dataclass(frozen=True)
class Delivery(Published):
    """What arrived of a deal, as the buyer counted it.

    Args:
        name: and `version` and `purpose`, see `Published`.
        award: the id of the award.
        federation: whose deal it is.
        arrived: at most one entry for each member and round.
    """

    what = field = study = "delivery"
    head = b"reticent-delivery/v1\n"
    names = (*WORDS, "arrived", "award", "federation")
    longest = LONGEST

    award: str
    federation: str
    arrived: tuple[Arrived, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_id("award", self.award)
        checked_id("federation", self.federation)
        listed("arrived", self.arrived, MOST_ENTRIES)
        if len({(one.member, one.round) for one in self.arrived}) != len(self.arrived):
            raise ParameterError("arrived must have one entry for each member and round")

    def _fields(self) -> Mapping[str, Any]:
        return _words(self) | {
            "arrived": [vars(one) for one in self.arrived],
            "award": self.award,
            "federation": self.federation,
        }

    @classmethod
    def _of(cls, given: dict[str, Any]) -> Delivery:
        names = tuple(Arrived.__dataclass_fields__)
        arrived = tuple(
            Arrived(**texts.checked_fields(f"arrived[{place}]", one, names))
            for place, one in enumerate(listed("arrived", given["arrived"], MOST_ENTRIES))
        )
        return cls(
            **_given_words(given), award=given["award"], federation=given["federation"], arrived=arrived
        )


def _words(text: Published) -> dict[str, Any]:
    return {name: getattr(text, name) for name in WORDS[1:]} | {"format": FORMAT}


def _given_words(given: dict[str, Any]) -> dict[str, Any]:
    if given["format"] != FORMAT or isinstance(given["format"], bool):
        raise ParameterError(f"format must be {FORMAT}, got {given['format']!r:.60}")
    return {name: given[name] for name in WORDS[1:]}
