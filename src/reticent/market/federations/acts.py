"""The acts of a federation: small signed texts, each of which names the act before it.

    {"act": "<the text>", "signature": "<128 hexadecimal digits>", "signer": "<64>"}

A text is JSON with sorted fields: the kind of the act (`kind`), the federation, the SHA-256 of the file of
the act before, and the fields of its kind. People are named by their public keys. `federation` checks
whether a signer may do an act and whether its sums are right.

Compatibility: kinds are added, never removed and never given another meaning, since old chains are replayed.
A field that is added to a kind has a default for acts without it (`absent`), and is left out of the text
where it has that default, so that no old act changes.
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
    """An act of somebody in a federation, with one subclass for each kind of act.

    Attributes:
        absent: Fields that earlier releases did not write, with their values in acts without them.
    """

    what = field = study = "act"
    head = b"reticent-federation/v1\n"
    longest = 2 * LONGEST
    kind: ClassVar[str]
    absent: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def as_fields(self) -> dict[str, Any]:
        """Return the fields of the act itself, as JSON has them."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return {name: said for name, said in found.items() if self.absent.get(name) != said}


@dataclass(frozen=True)
class Found(Act):
    """Found a federation. The founder acts for it until a representative is elected.

    Args:
        name: Name of the federation; it and `purpose` are for people.
        rounds: Rounds of collecting in one deal.
        period: Number of deals over which savings are summed: the tolerance period.
        tolerated: Units of epsilon; a member who keeps back as much of what she is asked for is excluded.
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
    """Ask to become a member, or, for a member, to have other limits while no deal is open.

    Args:
        points: Reports that the member can give in a deal.
        threshold: Largest number of units of epsilon that one report may cost the member.
    """

    kind = "join"
    points: int
    threshold: int

    def __post_init__(self) -> None:
        whole("points", self.points, low=1, high=MOST_POINTS)
        whole("threshold", self.threshold, low=1, high=MAX_UNITS)


@dataclass(frozen=True)
class Admit(Act):
    """Admit somebody who asked to join; by the representative.

    Args:
        member: Public key of the applicant.
        read: Chains of other federations in which the applicant has no demerit: id and last act of each.
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
    """Vote for a member as the representative; by a member, replacing her vote before."""

    kind = "vote"
    candidate: str

    def __post_init__(self) -> None:
        checked_key("candidate", self.candidate)


@dataclass(frozen=True)
class Leave(Act):
    """Stop being a member."""

    kind = "leave"


@dataclass(frozen=True)
class Bid(Act):
    """Bid for what a buyer requests; by the representative.

    Args:
        wanted: Signed text of the buyer, in full.
        level: Level of Eq. 8.1 of the members' thresholds: how accurate their reports would be, and nobody's
            privacy.
        points: Reports that the members have.
        most: Contribution of the members at their thresholds, in units.
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
        award: Signed text of the buyer, in full.
        better_alone: Members for whom Theorem 8.1 fails: dealing alone would earn them at least as much.
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
        round: Number of the round, starting at 1.
        asked: Units of epsilon for each member who has reports left.
    """

    kind = "ask"
    round: int
    asked: Mapping[str, int]

    def __post_init__(self) -> None:
        whole("round", self.round, low=1, high=MOST_ROUNDS)
        _checked_amounts("asked", self.asked, MAX_UNITS)


@dataclass(frozen=True)
class Give(Act):
    """Declare the reports that a member sent in a round and the epsilon that each cost her; by a member.

    Args:
        round: Number of the open round.
        points: Number of reports.
        units: Units of epsilon that each report cost.
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
        delivery: Signed text of the buyer, in full.
        paid: Cents for each member who earned any; empty if the quota was missed.
        saved: Units of epsilon that each member saved over the tolerance period.
        excluded: Public keys of the free riders.
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
    """Give up a bid or a deal that the buyer does not continue; by the representative. Nobody is paid."""

    kind = "withdraw"


KINDS: dict[str, type[Act]] = {
    kind.kind: kind for kind in (Found, Join, Admit, Vote, Leave, Bid, Seal, Ask, Give, Settle, Withdraw)
}


@dataclass(frozen=True)
class Signed:
    """An act with its signer, its federation and its place in the chain.

    Attributes:
        act: Act that was signed.
        by: Public key of the signer.
        federation: Id of the founding act; empty in the founding act itself.
        after: Hash of the act before.
        hash: Hash of the signed file.
    """

    act: Act
    by: str
    federation: str
    after: str
    hash: str

    @property
    def id(self) -> str:
        """The first bytes of the hash, which are the federation's id if the act is a founding."""
        return self.hash[: 2 * ID_BYTES]


def signed(act: Act, key: Ed25519PrivateKey, *, federation: str = "", after: str = NOTHING) -> bytes:
    """Sign an act and return the bytes of its file."""
    said = act.as_fields() | {"after": after, "federation": federation, "kind": act.kind}
    return sealed(Act.field, Act.head, texts.written(said), key)


def read(file: bytes) -> Signed:
    """Read an act from a signed file, if its signature is valid and its fields obey their rules.

    Raises:
        ParameterError, ParameterTypeError: The file holds no act, or a field breaks its rule.
        GuaranteeError: The signature is not valid.
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
