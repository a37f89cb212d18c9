"""A federation as its chain of acts makes it: its members, its representative, its deals and its demerits.

`Federation.apply` takes one act after the other. It refuses an act that its signer may not do, that comes at
the wrong time, or whose sums differ when they are redone. A refused act changes nothing. So a chain that can
be replayed is right, no matter who wrote it. Only somebody who remembers its last hash can tell that the end
of a chain is missing.

The seal of a deal names the rule by which its money is divided, before anything is given. Seals of earlier
releases name none; such a deal may be divided by either rule, if its settlement is stored already and no deal
of the chain was sealed with a rule before it.

Trust: the buyer declares what arrived. The representative can be slow or give up a deal, and can be replaced;
she cannot write wrong sums. Epsilons are what members declare: nobody can see whether the noise was really
drawn at them.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.fleet.signing import signer_of, verified
from reticent.market.federations import acts, deals
from reticent.market.federations.acts import Act, Signed
from reticent.market.federations.deals import Deal, Given, Limits, Settlement
from reticent.market.federations.purchases import Award, Delivery, Wanted, check_award

Text = TypeVar("Text", Wanted, Award, Delivery)


@dataclass(frozen=True)
class Demerit:
    """A record that a member was excluded as a free rider.

    Attributes:
        member: Public key of the excluded member.
        deal: Number of the deal, starting at 0.
        saved: Units of epsilon that the member saved over the tolerance period.
        tolerated: Units of epsilon from which on members are excluded.
        act: Number of the act that excluded the member.
    """

    member: str
    deal: int
    saved: int
    tolerated: int
    act: int


class Federation:
    """The state of a federation after a chain of acts. See `through`."""

    def __init__(self, founding: bytes) -> None:
        first = acts.read(founding)
        if not isinstance(first.act, acts.Found) or first.after != acts.NOTHING:
            raise ParameterError("the first act of a federation must be its founding")
        self.charter, self.founder, self.id = first.act, first.by, first.id
        self.heads = [first.hash]  # hashes of all acts
        self.members: dict[str, Limits] = {}
        self.waiting: dict[str, Limits] = {}  # applicants, with their limits
        self.votes: dict[str, str] = {}
        self.demerits: list[Demerit] = []
        self.deal: Deal | None = None
        self.settled: list[tuple[Deal, Settlement]] = []
        self.savings: dict[str, tuple[int, ...]] = {}  # savings of each member, deal by deal
        self.admissions: list[tuple[str, Mapping[str, str]]] = []
        self._elected: str | None = None
        self._rule = acts.EARLIER_RULE  # the latest that a seal named
        self._least_rule = acts.EARLIER_RULE  # the earliest that the act at hand may be by

    @classmethod
    def through(cls, files: Iterable[bytes]) -> Federation:
        """Replay a chain of signed acts, in which earlier releases may have sealed and settled deals.

        Raises:
            ParameterError, GuaranteeError: An act breaks a rule; the message gives its number, from 0.
        """
        found: Federation | None = None
        for number, file in enumerate(files):
            try:
                if found is None:
                    found = cls(file)
                else:
                    found.apply(file, is_stored=True)
            except (ParameterError, ParameterTypeError, GuaranteeError) as error:
                raise type(error)(f"act {number}: {error}") from error
        if found is None:
            raise ParameterError("a federation must have a founding, got no acts")
        return found

    @property
    def head(self) -> str:
        """The hash of the last act."""
        return self.heads[-1]

    @property
    def count(self) -> int:
        """The number of acts in the chain."""
        return len(self.heads)

    @property
    def representative(self) -> str:
        """The member whom more than half of the members elected last, or else the founder."""
        return self._elected if self._elected in self.members else self.founder

    def apply(self, file: bytes, *, is_stored: bool = False) -> Signed:
        """Check one more act and apply it.

        Args:
            file: The signed act.
            is_stored: True if a stored chain holds the act already; a new act obeys the rules of today.

        Raises:
            ParameterError, ParameterTypeError: The file holds no act, or the act comes at the wrong time.
            GuaranteeError: The signer may not do this act, or its sums differ when they are redone.
        """
        signed = acts.read(file)
        if isinstance(signed.act, acts.Found):
            raise ParameterError("a federation is founded once")
        if signed.federation != self.id:
            raise ParameterError(f"the act is of federation {signed.federation}, this is {self.id}")
        if signed.after != self.head:
            raise ParameterError(
                f"the act comes after {signed.after[:16]}, the last one is {self.head[:16]}: sign it again"
            )
        tried = copy.copy(self)  # handlers replace what they change, or change copies
        tried._least_rule = self._rule if is_stored else acts.EXACT_RULE
        getattr(tried, f"_{signed.act.kind}")(signed.by, signed.act)
        tried.heads = [*self.heads, signed.hash]
        self.__dict__.update(tried.__dict__)
        return signed

    def demerit_of(self, member: str) -> Demerit | None:
        """Return the last demerit of a person, or None."""
        return next((one for one in reversed(self.demerits) if one.member == member), None)

    def check_admissions(self, others: Mapping[str, Federation]) -> None:
        """Check every admission against the chains that the representative declared to have read.

        Args:
            others: Federations by id; those that are missing here are skipped.

        Raises:
            GuaranteeError: An admitted member had a demerit at the act that was read, or that act is not in
                the chain of the other federation.
        """
        for member, read in self.admissions:
            for federation, last in read.items():
                other = others.get(federation)
                if other is None:
                    continue
                if last not in other.heads:
                    raise GuaranteeError(
                        f"member {member} was admitted by act {last[:16]} of federation {federation}, which "
                        "has no such act here"
                    )
                given = other.demerit_of(member)
                if given is not None and given.act <= other.heads.index(last):
                    raise GuaranteeError(
                        f"member {member} was admitted though federation {federation} gave her a demerit"
                    )

    # Handlers, one for each kind of act

    def _join(self, by: str, act: acts.Join) -> None:
        if self.demerit_of(by) is not None:
            raise GuaranteeError(f"{by} was excluded from this federation as a free rider")
        limits = Limits(act.points, act.threshold)
        if by in self.members:
            self._check_no_deal("limits change")
            self.members = self.members | {by: limits}
        else:
            self.waiting = self.waiting | {by: limits}

    def _admit(self, by: str, act: acts.Admit) -> None:
        self._check_representative(by)
        self._check_no_deal("members are admitted")
        if act.member not in self.waiting:
            raise ParameterError(f"{act.member} did not ask to join")
        if len(self.members) >= acts.MOST_MEMBERS:
            raise ParameterError(f"members must be at most {acts.MOST_MEMBERS}")
        self.members = self.members | {act.member: self.waiting[act.member]}
        self.waiting = _without(self.waiting, act.member)
        self.admissions = [*self.admissions, (act.member, act.read)]

    def _vote(self, by: str, act: acts.Vote) -> None:
        self._check_member(by)
        if act.candidate not in self.members:
            raise ParameterError(f"candidate must be a member, got {act.candidate}")
        self.votes = self.votes | {by: act.candidate}
        self._count_votes()

    def _leave(self, by: str, act: acts.Leave) -> None:
        if by in self.waiting:
            self.waiting = _without(self.waiting, by)
            return
        self._check_member(by)
        self._check_no_deal("members leave")
        self._remove([by])

    def _bid(self, by: str, act: acts.Bid) -> None:
        self._check_representative(by)
        self._check_no_deal("another bid is made")
        file = act.wanted.encode("ascii")
        buyer = signer_of(Wanted, file)
        wanted = verified(Wanted, file, buyer)
        made = deals.bid(self.members, wanted.k)
        if not math.isclose(act.level, made[0], rel_tol=1e-9) or (act.points, act.most) != made[1:]:
            raise GuaranteeError(
                f"the bid says level {act.level:g} and {act.most} units, redone {made[0]:g} and {made[2]}"
            )
        self.deal = Deal(wanted, buyer, dict(self.members), (act.level, act.points, act.most))

    def _seal(self, by: str, act: acts.Seal) -> None:
        self._check_representative(by)
        deal = self._open_deal()
        if deal.award is not None:
            raise ParameterError("the deal is sealed already")
        if act.rule < self._least_rule:
            raise GuaranteeError(
                f"rule must be {self._least_rule} in the seal of a new deal, got {act.rule}: seal it with a "
                "later release"
            )
        award = self._of_buyer(Award, act.award)
        self._check_not_settled(award)
        check_award(deal.wanted, award)
        terms = award.of(self.id)
        deals.check_terms(deal.made, terms)
        fails = deals.better_alone(deal.wanted, deal.members, terms)
        if act.better_alone != fails:
            raise GuaranteeError(
                f"Theorem 8.1 fails for {len(fails)} members, the act says {len(act.better_alone)}"
                if len(fails) != len(act.better_alone)
                else "Theorem 8.1 fails for other members than the act says"
            )
        self.deal = replace(deal, award=award, terms=terms, better_alone=fails, rule=act.rule)
        self._rule = act.rule

    def _ask(self, by: str, act: acts.Ask) -> None:
        self._check_representative(by)
        deal = self._open_deal(sealed=True)
        if act.round != deal.round + 1 or act.round > self.charter.rounds:
            raise ParameterError(
                f"round must be {deal.round + 1} of at most {self.charter.rounds}, got {act.round}"
            )
        redone = deals.asked(deal, self.saved())
        if act.asked != redone:
            raise GuaranteeError(_differs("asked", "units", act.asked, redone))
        due = deal.due
        if act.round == 1:
            due = {name: units * deal.members[name].points for name, units in redone.items()}
        self.deal = replace(deal, round=act.round, asked=redone, due=due)

    def _give(self, by: str, act: acts.Give) -> None:
        deal = self._open_deal(sealed=True)
        if by not in deal.members:
            raise GuaranteeError(f"{by} is no member of this deal")
        if act.round != deal.round:
            raise ParameterError(f"round must be {deal.round}, got {act.round}")
        before = deal.given.get(by, {})
        if act.round in before:
            raise ParameterError(f"{by} gave in round {act.round} already")
        if act.units > deal.members[by].threshold:
            raise GuaranteeError(
                f"units must be within her threshold of {deal.members[by].threshold}, got {act.units}"
            )
        if act.points > deal.points_left(by):
            raise ParameterError(f"points must be at most the {deal.points_left(by)} left, got {act.points}")
        given = deal.given | {by: before | {act.round: Given(act.points, act.units)}}
        self.deal = replace(deal, given=given)

    def _settle(self, by: str, act: acts.Settle) -> None:
        self._check_representative(by)
        deal = self._open_deal(sealed=True)
        delivery = self._of_buyer(Delivery, act.delivery)
        redone = self.settlement(delivery)
        if act.paid != redone.paid:
            may_be_earlier = max(deal.rule, self._least_rule) == acts.EARLIER_RULE
            if not may_be_earlier or act.paid != self.settlement(delivery, earlier_rule=True).paid:
                raise GuaranteeError(_differs("paid", "cents", act.paid, redone.paid))
            redone = replace(redone, paid=act.paid)
        if act.saved != redone.saved:
            raise GuaranteeError(_differs("saved", "units", act.saved, redone.saved))
        if act.excluded != redone.excluded:
            raise GuaranteeError(
                f"excluded: {len(act.excluded)} members, redone {len(redone.excluded)} or others"
            )
        number = len(self.settled)
        self.savings = self.savings | {
            name: (*self.savings.get(name, ()), kept) for name, kept in redone.kept.items()
        }
        self.demerits = [
            *self.demerits,
            *(
                Demerit(one, number, redone.saved[one], self.charter.tolerated, self.count)
                for one in redone.excluded
            ),
        ]
        self.settled = [*self.settled, (deal, redone)]
        self.deal = None
        self._remove(redone.excluded)

    def _withdraw(self, by: str, act: acts.Withdraw) -> None:
        self._check_representative(by)
        self._open_deal()
        self.deal = None

    # Contents of new acts

    def saved(self) -> dict[str, int]:
        """Return the units of epsilon that each member saved over the tolerance period."""
        period = self.charter.period
        return {name: sum(kept[-period:]) for name, kept in self.savings.items() if name in self.members}

    def settlement(self, delivery: Delivery, *, earlier_rule: bool = False) -> Settlement:
        """Return the settlement of the open deal for a delivery.

        Args:
            delivery: Delivery that the buyer signed.
            earlier_rule: Divide the money as earlier releases did; see `threshold_values`.

        Raises:
            GuaranteeError: The delivery is of another deal, or has reports that no member declared.
        """
        deal = self._open_deal(sealed=True)
        assert deal.award is not None
        if (delivery.award, delivery.federation) != (deal.award.id.hex(), self.id):
            raise GuaranteeError(f"the delivery {delivery.name} is of another deal")
        return deals.settled(
            deal,
            delivery.arrived,
            self.savings,
            period=self.charter.period,
            tolerated=self.charter.tolerated,
            earlier_rule=earlier_rule,
        )

    def act_of(self, file: bytes) -> Act:
        """Build the act by which the representative takes a buyer's text: a bid, a seal or a settlement.

        Raises:
            ParameterError: The file is none of these texts.
        """
        text = file.decode("ascii", errors="replace")
        if self.deal is None:
            wanted = verified(Wanted, file, signer_of(Wanted, file))
            level, points, most = deals.bid(self.members, wanted.k)
            return acts.Bid(text, level, points, most)
        if self.deal.award is None:
            award = self._of_buyer(Award, text)
            fails = deals.better_alone(self.deal.wanted, self.deal.members, award.of(self.id))
            return acts.Seal(text, fails)
        redone = self.settlement(self._of_buyer(Delivery, text))
        return acts.Settle(text, dict(redone.paid), dict(redone.saved), redone.excluded)

    def next_round(self) -> acts.Ask:
        """Build the act that begins the next round of collecting."""
        deal = self._open_deal(sealed=True)
        return acts.Ask(deal.round + 1, deals.asked(deal, self.saved()))

    # Rules

    def _check_representative(self, by: str) -> None:
        if by != self.representative:
            raise GuaranteeError(f"{by} is not the representative, {self.representative} is")

    def _check_member(self, by: str) -> None:
        if by not in self.members:
            raise GuaranteeError(f"{by} is no member")

    def _check_no_deal(self, what: str) -> None:
        if self.deal is not None:
            raise ParameterError(f"a bid or a deal is open: {what} once it is settled or withdrawn")

    def _open_deal(self, *, sealed: bool = False) -> Deal:
        if self.deal is None:
            raise ParameterError("no bid or deal is open")
        if sealed and self.deal.award is None:
            raise ParameterError("the deal is not sealed yet")
        return self.deal

    def _check_not_settled(self, award: Award) -> None:
        """Refuse an award that was settled before: the buyer signed it for one deal."""
        for number, (deal, _) in enumerate(self.settled):
            if deal.award == award:
                raise GuaranteeError(
                    f"the award {award.name} was settled as deal {number}: who wants the same again says so "
                    "in a text of another name or version"
                )

    def _of_buyer(self, kind: type[Text], file: str) -> Text:
        return verified(kind, file.encode("ascii", errors="replace"), self._open_deal().buyer)

    def _remove(self, gone: Iterable[str]) -> None:
        self.members = _without(self.members, *gone)
        self.votes = {voter: one for voter, one in self.votes.items() if voter in self.members}
        self._count_votes()

    def _count_votes(self) -> None:
        for candidate, votes in Counter(self.votes.values()).most_common(1):
            if 2 * votes > len(self.members) and candidate in self.members:
                self._elected = candidate


def _without(held: Mapping[str, Limits], *gone: str) -> dict[str, Limits]:
    return {name: limits for name, limits in held.items() if name not in gone}


def _differs(what: str, unit: str, said: Mapping[str, int], redone: Mapping[str, int]) -> str:
    """Describe the first member whose amount differs from the redone sum."""
    name = next(one for one in sorted({*said, *redone}) if said.get(one) != redone.get(one))
    return f"{what}: {said.get(name, 0)} {unit} of member {name}, redone {redone.get(name, 0)}"
