"""The acts of a federation: small signed texts, each of which names the one before it.

    {"act": "<the text>", "signature": "<128 hexadecimal digits>", "signer": "<64>"}

A text is JSON with sorted fields: what is done (`kind`), in which federation, after which act (SHA-256 of its
file), and the fields of its kind. People are called by their public keys. Who may do what, and whether the
sums are right, is for `federation`.

How the family may evolve: kinds are added, never removed or given another meaning, since old chains are gone
through again. A field that joins a kind says what acts without it mean (`absent`), and is left out where it
says that, so that no old act changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.fleet import texts
from reticent.fleet.published import ID_BYTES, Kind
from reticent.fleet.signing import opened, sealed, signer_of
from reticent.fleet.texts import check_words
from reticent.market.federations.purchases import LONGEST, MOST_POINTS, checked_id, checked_key, listed
from reticent.market.menus import MOST_CENTS
from reticent.privacy import MAX_UNITS

MOST_MEMBERS = 2_000  # whose Shapley values are worked out in time
MOST_ROUNDS = 1_000
NOTHING = "0" * 64  # before the first act
EARLIER_RULE, EXACT_RULE = 1, 2  # by which a deal's money is divided; see `shapley.threshold_values`


class Act(Kind):
    """What somebody does in a federation; one class for each kind.

    Attributes:
        absent: Fields that earlier releases did not write, with what an act without them says.
    """

    what = field = study = "act"
    head = b"reticent-federation/v1\n"
    longest = 2 * LONGEST
    kind: ClassVar[str]
    absent: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def as_fields(self) -> dict[str, Any]:
        """Its own fields, as JSON has them."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return {name: said for name, said in found.items() if self.absent.get(name) != said}


@dataclass(frozen=True)
class Found(Act):
    """Found a federation. The founder acts for it until a representative is elected.

    Args:
        name: and `purpose`, for people.
        rounds: of collecting, in one deal.
        period: deals over which savings are summed: the tolerance period.
        tolerated: units of epsilon; who keeps back as much of what she is asked for is excluded.
    """

    kind = "found"
    name: str
    purpose: str
    rounds: int
    period: int
    tolerated: int

    def __post_init__(self) -> None:
        check_words(self.name, "1", self.purpose)
        whole("rounds", self.rounds, low=1, high=MOST_ROUNDS)
        whole("period", self.period, low=1, high=MOST_ROUNDS)
        whole("tolerated", self.tolerated, low=1)


@dataclass(frozen=True)
class Join(Act):
    """Ask to be a member, or, of a member, have other limits from the next deal on.

    Args:
        points: reports that she has to give in a deal.
        threshold: the most units of epsilon that one of them may cost her.
    """

    kind = "join"
    points: int
    threshold: int

    def __post_init__(self) -> None:
        whole("points", self.points, low=1, high=MOST_POINTS)
        whole("threshold", self.threshold, low=1, high=MAX_UNITS)


@dataclass(frozen=True)
class Admit(Act):
    """Take somebody who asked; by the representative.

    Args:
        member: who asked.
        read: the chains of other federations in which no demerit of hers was found: id and last act of each.
    """

    kind = "admit"
    member: str
    read: Mapping[str, str]

    def __post_init__(self) -> None:
        checked_key("member", self.member)
        if not isinstance(self.read, dict) or len(self.read) > MOST_MEMBERS:
            raise ParameterError(f"read must be an object of at most {MOST_MEMBERS} federations")
        for federation, last in self.read.items():
            checked_id("read", federation)
            checked_key(f"read: the last act of {federation}", last)


@dataclass(frozen=True)
class Vote(Act):
    """Vote for a member as the representative; by a member, in place of her vote before."""

    kind = "vote"
    candidate: str

    def __post_init__(self) -> None:
        checked_key("candidate", self.candidate)


@dataclass(frozen=True)
class Leave(Act):
    """Be no member any more."""

    kind = "leave"


@dataclass(frozen=True)
class Bid(Act):
    """Bid for what a buyer wants; by the representative.

    Args:
        wanted: the signed text of the buyer, whole.
        level: Eq. 8.1 of the members' thresholds: how accurate their reports would be, and nobody's privacy.
        points: reports that members have.
        most: what they contribute at their thresholds, in units.
    """

    kind = "bid"
    wanted: str
    level: float
    points: int
    most: int

    def __post_init__(self) -> None:
        _checked_file("wanted", self.wanted)
        real("level", self.level, low=0.0, open_low=True)
        whole("points", self.points, low=1)
        whole("most", self.most, low=1)


@dataclass(frozen=True)
class Seal(Act):
    """Agree to a buyer's award; by the representative.

    Args:
        award: the signed text of the buyer, whole.
        better_alone: members for whom Theorem 8.1 fails: dealing alone would earn them at least as much.
        rule: Rule by which the money will be divided, so that nobody chooses one once it is known who earns
            how much by each. Seals of earlier releases name none: `EARLIER_RULE`.
    """

    kind = "seal"
    absent = MappingProxyType({"rule": EARLIER_RULE})
    award: str
    better_alone: tuple[str, ...]
    rule: int = EXACT_RULE

    def __post_init__(self) -> None:
        _checked_file("award", self.award)
        for one in listed("better_alone", self.better_alone, MOST_MEMBERS):
            checked_key("better_alone", one)
        object.__setattr__(self, "better_alone", tuple(self.better_alone))
        whole("rule", self.rule, low=EARLIER_RULE, high=EXACT_RULE)


@dataclass(frozen=True)
class Ask(Act):
    """Begin a round of collecting; by the representative.

    Args:
        round: from 1 on.
        asked: units of epsilon, by member who has reports left.
    """

    kind = "ask"
    round: int
    asked: Mapping[str, int]

    def __post_init__(self) -> None:
        whole("round", self.round, low=1, high=MOST_ROUNDS)
        _checked_amounts("asked", self.asked, MAX_UNITS)


@dataclass(frozen=True)
class Give(Act):
    """Say what was given in a round; by a member. She sent so many reports, each of which cost her so much.

    Args:
        round: that is open.
        points: reports.
        units: of epsilon, for each of them.
    """

    kind = "give"
    round: int
    points: int
    units: int

    def __post_init__(self) -> None:
        whole("round", self.round, low=1, high=MOST_ROUNDS)
        whole("points", self.points, low=1, high=MOST_POINTS)
        whole("units", self.units, low=1, high=MAX_UNITS)


@dataclass(frozen=True)
class Settle(Act):
    """End a deal; by the representative.

    Args:
        delivery: the signed text of the buyer, whole.
        paid: cents, by member who earned any; none where the quota was missed.
        saved: units of epsilon over the tolerance period, by member.
        excluded: free riders.
    """

    kind = "settle"
    delivery: str
    paid: Mapping[str, int]
    saved: Mapping[str, int]
    excluded: tuple[str, ...]

    def __post_init__(self) -> None:
        _checked_file("delivery", self.delivery)
        _checked_amounts("paid", self.paid, MOST_CENTS)
        _checked_amounts("saved", self.saved, None)
        for one in listed("excluded", self.excluded, MOST_MEMBERS):
            checked_key("excluded", one)
        object.__setattr__(self, "excluded", tuple(self.excluded))


@dataclass(frozen=True)
class Withdraw(Act):
    """Give up a bid or a deal that the buyer does not go on with; by the representative. Nobody is paid."""

    kind = "withdraw"


KINDS: dict[str, type[Act]] = {
    kind.kind: kind for kind in (Found, Join, Admit, Vote, Leave, Bid, Seal, Ask, Give, Settle, Withdraw)
}


@dataclass(frozen=True)
class Signed:
    """An act with who did it, where and after what.

    Attributes:
        act: what is done.
        by: the public key of who signed it.
        federation: the id of its founding; the founding itself has none.
        after: the hash of the act before.
        hash: of its own file.
    """

    act: Act
    by: str
    federation: str
    after: str
    hash: str

    @property
    def id(self) -> str:
        """As the id of a federation, of its founding."""
        return self.hash[: 2 * ID_BYTES]


def signed(act: Act, key: Ed25519PrivateKey, *, federation: str = "", after: str = NOTHING) -> bytes:
    """The file of an act."""
    said = act.as_fields() | {"after": after, "federation": federation, "kind": act.kind}
    return sealed(Act.field, Act.head, texts.written(said), key)


def read(file: bytes) -> Signed:
    """An act of a signed file, if its signature holds and its fields keep their rules.

    Raises:
        ParameterError, ParameterTypeError: it is no such file, or a field breaks its rule.
        GuaranteeError: the signature does not hold.
    """
    by = signer_of(Act, file)
    text = opened(Act.field, Act.head, file, by, most=2 * Act.longest, exact=True)  # its hash is the head
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParameterError("an act must be JSON in ASCII") from error
    said = given.get("kind") if isinstance(given, dict) else None
    kind = KINDS.get(said) if isinstance(said, str) else None
    if kind is None:
        raise ParameterError(f"kind must be one of {', '.join(KINDS)}")
    names = tuple(one.name for one in fields(kind))  # type: ignore[arg-type]
    known = (*names, "after", "federation", "kind")
    found = dict(kind.absent) | texts.checked_fields(f"the act {kind.kind}", given, known, tuple(kind.absent))
    act = kind(**{name: found[name] for name in names})
    after, federation = checked_key("after", found["after"]), found["federation"]
    if (federation == "") != isinstance(act, Found):
        raise ParameterError("federation must be given, except by its founding")
    if federation:
        checked_id("federation", federation)
    if texts.written(act.as_fields() | {"after": after, "federation": federation, "kind": kind.kind}) != text:
        raise ParameterError("an act must be JSON with sorted fields, no spaces and no other fields")
    return Signed(act, by.hex(), federation, after, hashlib.sha256(file).hexdigest())


def _checked_file(field: str, given: Any) -> None:
    if not isinstance(given, str) or not given.isascii() or len(given) > 2 * LONGEST:
        raise ParameterError(f"{field} must be a signed text in ASCII")


def _checked_amounts(field: str, given: Any, most: int | None) -> None:
    if not isinstance(given, dict) or len(given) > MOST_MEMBERS:
        raise ParameterError(f"{field} must be an object of at most {MOST_MEMBERS} members")
    for member, amount in given.items():
        checked_key(field, member)
        whole(field, amount, low=0, high=most)
