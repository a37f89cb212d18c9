"""Computation of a deal's texts: bids, the members whom Theorem 8.1 fails, requests and settlements.

All of it follows from the members' limits, the buyer's texts and what arrived, in whole numbers: units of
epsilon (1e-12), units of contribution (1e-6 of a true report) and cents. So everybody who has the texts gets
the same sums, and an appeal is to redo them.

A member's spending in a deal is her reports times the epsilon of each, out of her own ledger; its bound, her
information limit, is her points times her threshold. What she was asked for at first, for all her points, and
did not spend, she saved.

Reference: Biswas 2023, Section 8.4, Definitions 8.4.1 to 8.4.3, Theorem 8.1, Algorithms 10 to 12.
Departure: savings are counted report by report (Definition 8.4.2 multiplies a sum over rounds by all points)
    and from what was asked for, not from the threshold: where a deal takes a small share of every level, all
    who give what they are asked for would be free riders. At a share of 1 the two are the same. What is asked
    for is within a member's threshold, always.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reticent.errors import GuaranteeError, ParameterError
from reticent.market.federations.acts import EXACT_RULE
from reticent.market.federations.formulas import contribution, earnings, in_units, pooled_level
from reticent.market.federations.purchases import Arrived, Award, Taken, Wanted
from reticent.market.shapley import threshold_values
from reticent.privacy import UNITS_PER_ONE


@dataclass(frozen=True)
class Limits:
    """The most that a member gives in a deal.

    Attributes:
        points: Number of reports.
        threshold: Largest number of units of epsilon that one report may cost the member.
    """

    points: int
    threshold: int

    @property
    def information(self) -> int:
        """The largest epsilon that a deal can cost the member, in units: her information limit."""
        return self.points * self.threshold


@dataclass(frozen=True)
class Given:
    """The reports that one member gave in one round."""

    points: int
    units: int


@dataclass
class Deal:
    """A deal from the bid to the settlement.

    Attributes:
        wanted: Signed request of the buyer.
        buyer: Public key of the buyer.
        members: Members, with the limits that the bid was computed from.
        made: Bid of the federation: level, points, and the contribution of the members at their thresholds.
        award: Award of the buyer, once the deal is sealed.
        terms: Part of the award for this federation: its quota and its pay.
        round: Round of collecting; 0 before the first.
        asked: Units of epsilon that each member is asked for in this round.
        due: Units of epsilon that the first round asked each member for, for all her points.
        given: Reports by member and round.
        better_alone: Members for whom Theorem 8.1 fails.
        rule: Rule by which the money is divided, as the seal names it.
    """

    wanted: Wanted
    buyer: bytes
    members: Mapping[str, Limits]
    made: tuple[float, int, int]
    award: Award | None = None
    terms: Taken | None = None
    round: int = 0
    asked: Mapping[str, int] = field(default_factory=dict)
    due: Mapping[str, int] = field(default_factory=dict)
    given: dict[str, dict[int, Given]] = field(default_factory=dict)
    better_alone: tuple[str, ...] = ()
    rule: int = EXACT_RULE

    def points_left(self, member: str) -> int:
        """Return the number of reports that a member has not given yet."""
        return self.members[member].points - sum(one.points for one in self.given.get(member, {}).values())


def bid(members: Mapping[str, Limits], k: int) -> tuple[float, int, int]:
    """Compute a federation's bid: the level of its thresholds, its points and its largest contribution.

    Raises:
        ParameterError: there are no members.
    """
    if not members:
        raise ParameterError("a federation must have members to bid, got none")
    limits = list(members.values())
    points, epsilons = [one.points for one in limits], [_epsilon(one.threshold) for one in limits]
    return pooled_level(points, epsilons, k), sum(points), sum(in_units(contribution(points, epsilons, k)))


def check_terms(made: tuple[float, int, int], terms: Taken) -> None:
    """Refuse an award that takes another bid than the federation made.

    Raises:
        GuaranteeError: The award and the bid differ; the message gives both.
    """
    if (terms.level, terms.points, terms.most) != made:
        raise GuaranteeError(
            f"the award takes a bid of level {terms.level:g} with {terms.points} reports; "
            f"level {made[0]:g} with {made[1]} was bid"
        )
    if terms.quota > terms.most:
        raise GuaranteeError(
            f"quota must be within all thresholds together, {terms.most} units, got {terms.quota}"
        )


def better_alone(wanted: Wanted, members: Mapping[str, Limits], terms: Taken) -> tuple[str, ...]:
    """Return the members who lose nothing if they are excluded: Theorem 8.1 fails for them.

    Alone, a member is paid for one report at her threshold; in the federation, her Shapley share of the deal
    with everybody at their thresholds.

    Reference: Biswas 2023, Theorem 8.1: f^-1(threshold) < psi.
    """
    names = list(members)
    points = [members[name].points for name in names]
    epsilons = [_epsilon(members[name].threshold) for name in names]
    shares = threshold_values(in_units(contribution(points, epsilons, wanted.k)), terms.quota)
    return tuple(
        sorted(
            name
            for name, epsilon, share in zip(names, epsilons, shares.tolist(), strict=True)
            if wanted.worth.money(epsilon) >= share * terms.cents
        )
    )


def catalysing(saved: int, limits: Limits) -> int:
    """Return the factor N of a member: her savings in information limits, rounded up, and at least 1.

    Reference: Biswas 2023, Section 8.5.1: N = saving / (points threshold).
    Departure: rounded up, and at least 1 (mathematics 5.3).
    """
    return max(1, -(-saved // limits.information))


def asked(deal: Deal, saved: Mapping[str, int]) -> dict[str, int]:
    """Return the units of epsilon that each member with reports left is asked for next.

    It is N times what the member gave in the round before; in the first round, or if she gave nothing, N
    times her share of what was promised. It is never more than her threshold.

    Reference: Biswas 2023, Algorithm 11.
    """
    if deal.award is None:
        raise ParameterError("a deal must be sealed before anything is asked for")
    found = {}
    for name, limits in deal.members.items():
        if not deal.points_left(name):
            continue
        before = deal.given.get(name, {}).get(deal.round)
        start = before.units if before is not None else max(1, int(deal.award.share * limits.threshold))
        found[name] = min(limits.threshold, catalysing(saved.get(name, 0), limits) * start)
    return found


@dataclass(frozen=True)
class Settlement:
    """The result of a deal.

    Attributes:
        contributions: Contribution of each member, in units.
        quota: Quota of the deal, in the same unit.
        paid: Cents for each member who earned any.
        spent: Units of epsilon that each member's reports cost her.
        kept: Units of epsilon that each member was asked for in this deal and did not spend.
        saved: Units of epsilon that each member saved over the tolerance period.
        excluded: Public keys of the free riders, sorted.
    """

    contributions: Mapping[str, int]
    quota: int
    paid: Mapping[str, int]
    spent: Mapping[str, int]
    kept: Mapping[str, int]
    saved: Mapping[str, int]
    excluded: tuple[str, ...]

    @property
    def reached(self) -> bool:
        """Whether the contributions reach the quota; if not, the deal is void."""
        return sum(self.contributions.values()) >= self.quota


def settled(
    deal: Deal,
    arrived: Iterable[Arrived],
    earlier: Mapping[str, tuple[int, ...]],
    *,
    period: int,
    tolerated: int,
    earlier_rule: bool = False,
) -> Settlement:
    """Compute the settlement of a deal from the reports that arrived.

    Args:
        deal: Sealed deal.
        arrived: Reports as the buyer counted them; in each round at most what the member declared.
        earlier: Units of epsilon that each member saved in the deals before, the latest deal last.
        period: Number of deals over which savings are summed, this one included.
        tolerated: Units of epsilon from which on a saving excludes a member.
        earlier_rule: Divide the money as earlier releases did; see `threshold_values`.

    Raises:
        GuaranteeError: The delivery has reports that no member declared.
    """
    if deal.terms is None:
        raise ParameterError("a deal must be sealed before it is settled")
    contributions = dict.fromkeys(deal.members, 0)
    spent = dict.fromkeys(deal.members, 0)
    for one in arrived:
        said = deal.given.get(one.member, {}).get(one.round)
        if said is None or one.units != said.units or one.points > said.points:
            raise GuaranteeError(
                f"the delivery has {one.points} reports at {one.units} units of member {one.member} in round "
                f"{one.round}, which she did not give"
            )
        contributions[one.member] += in_units(
            contribution([one.points], [_epsilon(one.units)], deal.wanted.k)
        )[0]
        spent[one.member] += one.points * one.units
    names = list(deal.members)
    cents = earnings(
        [contributions[name] for name in names],
        deal.terms.quota,
        deal.terms.cents,
        earlier_rule=earlier_rule,
    )
    kept = {name: max(0, deal.due.get(name, 0) - spent[name]) for name in names}
    saved = {
        name: sum(earlier.get(name, ())[-(period - 1) :] if period > 1 else ()) + kept[name] for name in names
    }
    return Settlement(
        contributions,
        deal.terms.quota,
        {name: paid for name, paid in zip(names, cents, strict=True) if paid},
        spent,
        kept,
        saved,
        tuple(sorted(name for name in names if saved[name] >= tolerated)),
    )


def _epsilon(units: int) -> float:
    return units / UNITS_PER_ONE
