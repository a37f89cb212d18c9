"""The signed texts of a buyer who deals with federations: her request, her award and her delivery.

Money is in whole cents. A level is that of Eq. 8.1: the accuracy of pooled reports, and nobody's privacy.

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
    """Check that a value is the id of a text, and return it."""
    if not isinstance(given, str) or not _ID.fullmatch(given):
        raise ParameterError(f"{field} must be 16 hexadecimal digits")
    return given


def checked_key(field: str, given: Any) -> str:
    """Check that a value is a public key, which is how people are named, and return it."""
    if not isinstance(given, str) or not _KEY.fullmatch(given):
        raise ParameterError(f"{field} must be a public key: 64 hexadecimal digits")
    return given


def listed(field: str, given: Any, most: int) -> Sequence[Any]:
    """Check that a value is a list of at most a given length, and return it."""
    if not isinstance(given, (list, tuple)) or len(given) > most:
        raise ParameterError(f"{field} must be a list of at most {most}")
    return given


@dataclass(frozen=True)
class Wanted(Published):
    """A signed request to federations: the buyer's budget, and the worth of each level to her.

    Args:
        name: Name of the request; see `Published` for it, `version` and `purpose`.
        budget: Cents for all federations together.
        k: Number of values that the question has.
        worth: Function between cents and levels.
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
        """Return the pay for a level, in cents, rounded down."""
        return math.floor(self.worth.money(level))


@dataclass(frozen=True)
class Taken:
    """A bid as the buyer accepts it.

    Attributes:
        federation: Id of the federation's founding.
        level: Level that the federation bid: Eq. 8.1 of its members' thresholds.
        points: Reports that the members have.
        most: Contribution of the members at their thresholds, in units.
        quota: Contribution that the federation promises, in the same unit.
        cents: Pay if the quota is reached; otherwise nothing is paid.
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
    """A signed award: the bids that a buyer accepts, their share of the highest levels, and the pay.

    Args:
        name: Name of the award; see `Published` for it, `version` and `purpose`.
        wanted: Id of the buyer's request.
        share: Share w of Eq. 8.2.
        taken: All accepted bids, sorted by the ids of their federations.
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
        """Return the accepted bid of a federation."""
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
    """Build the award of Eq. 8.2: one share of every federation's highest level, within the budget.

    Args:
        wanted: Request of the buyer.
        bids: Bids by federation: level, points, and the contribution of the members at their thresholds.
        name: Name of the award.

    Raises:
        ParameterError: There are no bids.
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
    """Recompute an award from the bids that it lists, and refuse it if it differs.

    Raises:
        GuaranteeError: The award is for another request, or a number differs from what the bids give.
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
    """The reports of one member in one round that the buyer counted."""

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
    """A signed delivery: the reports of a deal that arrived, as the buyer counted them.

    Args:
        name: Name of the delivery; see `Published` for it, `version` and `purpose`.
        award: Id of the award.
        federation: Id of the federation whose deal it is.
        arrived: At most one entry for each member and round.
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
