"""Descriptions of a federation and of its deals for people: who earned how much, and why.

Privacy: every line about a member gives her own epsilon, which is what she spends. The level of Eq. 8.1
stands beside it as what the buyer gets, and is called accuracy.
"""

from __future__ import annotations

from decimal import Decimal

from reticent.errors import ParameterError
from reticent.market.federations.acts import EARLIER_RULE
from reticent.market.federations.deals import Deal, Settlement
from reticent.market.federations.federation import Federation
from reticent.market.federations.formulas import UNITS
from reticent.market.shapley import threshold_values
from reticent.privacy import UNITS_PER_ONE


def short(key: str) -> str:
    """Shorten a public key to the part that people compare."""
    return key[:8]


def epsilon(units: int) -> str:
    """Format units of epsilon as a number, with all its digits."""
    return f"{(Decimal(units) / UNITS_PER_ONE).normalize():f}"


def reports(units: int) -> str:
    """Format units of contribution as a number of true reports."""
    return f"{units / UNITS:.6g}"


def status(federation: Federation) -> list[str]:
    """Describe the present state of a federation."""
    charter = federation.charter
    acts_for = "its founder, until somebody is elected"
    if federation.representative in federation.members:
        acts_for = "elected by its members"
    lines = [
        f"{charter.name} ({federation.id}): {charter.purpose}",
        f"{len(federation.members)} members, {len(federation.waiting)} waiting; "
        f"{short(federation.representative)} acts for it, {acts_for}.",
        f"Who keeps back epsilon {epsilon(charter.tolerated)} or more of what she is asked for, over "
        f"{charter.period} deals, is excluded.",
    ]
    if federation.deal is not None:
        lines += _open(federation.deal)
    lines += [
        f"Deal {number}: {outcome(settlement)}" for number, (_, settlement) in enumerate(federation.settled)
    ]
    lines += [
        f"Demerit: {short(one.member)} kept back epsilon {epsilon(one.saved)} up to deal {one.deal}; from "
        f"{epsilon(one.tolerated)} on it is too much."
        for one in federation.demerits
    ]
    return lines


def _open(deal: Deal) -> list[str]:
    if deal.award is None or deal.terms is None:
        return [f"A bid for {deal.wanted.name}: accuracy level {deal.made[0]:.4g}. Not sealed yet."]
    level, terms = deal.award.share * deal.made[0], deal.terms
    lines = [
        f"A deal for {deal.wanted.name}: {terms.cents} cents for {reports(terms.quota)} true reports of "
        f"{terms.points}; accuracy level {level:.4g}, which is nobody's privacy.",
        f"Round {deal.round}.",
    ]
    if deal.rule == EARLIER_RULE:
        lines.append(
            "An earlier release sealed it, without the rule by which the money is divided: shares of the two "
            "rules differ by up to 0.002 %."
        )
    if deal.better_alone:
        lines.append(
            f"Theorem 8.1 fails for {len(deal.better_alone)} of {len(deal.members)}: excluding them costs "
            "them nothing, since alone they would earn as much."
        )
    return lines


def outcome(settlement: Settlement) -> str:
    """Describe the result of a deal."""
    brought = reports(sum(settlement.contributions.values()))
    if not settlement.reached:
        return f"void: {brought} true reports of the {reports(settlement.quota)} promised; nobody is paid."
    return (
        f"kept: {brought} true reports of the {reports(settlement.quota)} promised; "
        f"{sum(settlement.paid.values())} cents to {len(settlement.paid)} members."
    )


def account(federation: Federation, member: str, number: int | None = None) -> list[str]:
    """Describe a member's reports, spending, earnings and savings in a deal, by default the last.

    Raises:
        ParameterError: There is no such deal, or the member had no part in it.
    """
    if not federation.settled:
        raise ParameterError("no deal is settled yet")
    place = len(federation.settled) - 1 if number is None else number
    if not 0 <= place < len(federation.settled):
        raise ParameterError(f"deal must be 0 to {len(federation.settled) - 1}, got {number}")
    deal, settlement = federation.settled[place]
    if member not in deal.members:
        raise ParameterError(f"{member} was no member in deal {place}")
    limits, charter = deal.members[member], federation.charter
    lines = [f"Deal {place}: {outcome(settlement)}", f"Member {short(member)}:"]
    lines += [
        f"- gave {one.points} reports at epsilon {epsilon(one.units)} each in round {turn}."
        for turn, one in sorted(deal.given.get(member, {}).items())
    ]
    lines.append(
        f"- spent epsilon {epsilon(settlement.spent[member])} in all, of at most "
        f"{epsilon(limits.information)} ({limits.points} reports at {epsilon(limits.threshold)})."
    )
    lines.append(
        f"- brought {reports(settlement.contributions[member])} true reports and earned "
        f"{settlement.paid.get(member, 0)} cents: {_why(settlement, member)}"
    )
    saved, due = settlement.saved[member], epsilon(deal.due.get(member, 0))
    lines.append(
        f"- kept back epsilon {epsilon(settlement.kept[member])} of the {due} that "
        f"she was asked for, {epsilon(saved)} over the last {charter.period} deals; "
        + (
            f"{epsilon(charter.tolerated)} or more is too much: she is excluded, with a demerit."
            if member in settlement.excluded
            else f"below {epsilon(charter.tolerated)}."
        )
    )
    return lines


def _why(settlement: Settlement, member: str) -> str:
    if not settlement.reached:
        return "a deal that misses its quota pays nobody."
    names = list(settlement.contributions)
    shares = threshold_values([settlement.contributions[name] for name in names], settlement.quota)
    share = float(shares[names.index(member)])
    if share == 0.0:
        return "the other members reached or missed the quota without her in every order."
    return f"in {share:.2%} of all orders in which members could come, it is she who reaches the quota."
