"""`reticent market federation`: what the commands do."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from reticent.cli.terminal import console
from reticent.errors import GuaranteeError, ParameterError
from reticent.files import write_new
from reticent.fleet.signing import signed, signer_of, verified
from reticent.ledger.checkpoint import load_key
from reticent.market.federations import Valuation, acts, folder, words
from reticent.market.federations.federation import Federation
from reticent.market.federations.purchases import Arrived, Delivery, Wanted, awarded
from reticent.privacy.budget import cap_units, cost_units, parse_decimal


def key(file: Path) -> None:
    """Make a key and print the public one, alone on standard output."""
    public = _public(file)
    print(f"Whoever has {file} can act for you; others know you by:", file=sys.stderr)
    print(public)


def found(
    place: Path, key: Path, *, name: str, purpose: str, tolerated: str, period: int, rounds: int
) -> None:
    """Found a federation."""
    act = acts.Found(name, purpose, rounds, period, cap_units(parse_decimal(tolerated)))
    made = folder.founded(place, act, load_key(key))
    _say([f"{name} is founded: {made.id}."])


def join(place: Path, key: Path, *, points: int, threshold: str) -> None:
    """Ask to be a member."""
    act = acts.Join(points, cap_units(parse_decimal(threshold)))
    federation = _do(place, key, act)
    if _public(key) in federation.waiting:
        _say([f"{words.short(_public(key))} asked to join; {words.short(federation.representative)} admits."])
    else:
        _say([f"{words.short(_public(key))} has other limits from the next deal on."])


def admit(place: Path, member: str, key: Path, *, read: Sequence[Path]) -> None:
    """Take somebody who asked, unless she has a demerit elsewhere."""
    federation = folder.opened(place)
    name = _named(federation.waiting, member)
    others = [folder.opened(one) for one in read]
    for other in others:
        demerit = other.demerit_of(name)
        if demerit is not None:
            raise GuaranteeError(
                f"{name} was excluded from {other.charter.name} as a free rider: she kept back epsilon "
                f"{words.epsilon(demerit.saved)}, from {words.epsilon(demerit.tolerated)} on it is too much"
            )
    act = acts.Admit(name, {other.id: other.head for other in others})
    folder.done(place, federation, act, load_key(key))
    _say([f"{words.short(name)} is a member; {len(others)} other federations were read."])


def vote(place: Path, member: str, key: Path) -> None:
    """Vote for a member."""
    federation = folder.opened(place)
    act = acts.Vote(_named(federation.members, member))
    folder.done(place, federation, act, load_key(key))
    _say([f"{words.short(federation.representative)} acts for {federation.charter.name}."])


def leave(place: Path, key: Path) -> None:
    """Be no member any more."""
    _do(place, key, acts.Leave())
    _say([f"{words.short(_public(key))} left."])


def answer(place: Path, file: Path, key: Path, kind: str, *, look: bool) -> None:
    """Bid, seal or settle by a buyer's text, or only look what it would come to."""
    federation = folder.opened(place)
    stage = "bid" if federation.deal is None else "seal" if federation.deal.award is None else "settle"
    if stage != kind:
        wrong = {
            "bid": "no bid is open",
            "seal": "the bid is not sealed yet",
            "settle": "the deal is sealed",
        }[stage]
        raise ParameterError(f"{wrong}: {stage} comes next, not {kind}")
    act = federation.act_of(_bytes(file))
    if look:
        federation.apply(acts.signed(act, load_key(key), federation=federation.id, after=federation.head))
    else:
        folder.done(place, federation, act, load_key(key))
    _say([*words.status(federation), *(["Nothing was kept: this was a look."] if look else [])])


def ask(place: Path, key: Path) -> None:
    """Begin a round."""
    federation = folder.opened(place)
    act = federation.next_round()
    folder.done(place, federation, act, load_key(key))
    lines = [f"Round {act.round} of {federation.charter.rounds}. Each report at:"]
    lines += [
        f"- {words.short(member)}: epsilon {words.epsilon(units)}"
        for member, units in sorted(act.asked.items())
    ]
    _say(lines)


def give(place: Path, key: Path, *, points: int, epsilon: str) -> None:
    """Say what was given."""
    federation = folder.opened(place)
    turn = 0 if federation.deal is None else federation.deal.round
    act = acts.Give(max(1, turn), points, cost_units(parse_decimal(epsilon)))
    folder.done(place, federation, act, load_key(key))
    cost = words.epsilon(points * act.units)
    _say([f"{points} reports at epsilon {words.epsilon(act.units)}: {cost} of your own budget in all."])


def withdraw(place: Path, key: Path) -> None:
    """Give up a bid or a deal."""
    _do(place, key, acts.Withdraw())
    _say(["Given up. Nobody is paid, and nothing counts as saved."])


def receive(place: Path, file: Path) -> None:
    """Keep an act of somebody else."""
    signed_act = folder.taken(place, folder.opened(place), _bytes(file))
    _say([f"Kept: {signed_act.act.kind} by {words.short(signed_act.by)}."])


def show(place: Path) -> None:
    """The federation today."""
    _say(words.status(folder.opened(place)))


def account(place: Path, member: str, *, deal: int | None) -> None:
    """The sums of one member, redone."""
    federation = folder.opened(place)
    everybody = {name for settled, _ in federation.settled for name in settled.members}
    _say(words.account(federation, _named(everybody or federation.members, member), deal))
    _say(["All sums were redone from the signed acts, and are as recorded."])


def verify(place: Path, *, read: Sequence[Path], head: str | None) -> None:
    """Go through all acts."""
    federation = folder.opened(place)
    if head is not None and head not in federation.heads:
        raise GuaranteeError(f"head: no act of the folder is {head[:64]}; the end of the chain is missing")
    others = [folder.opened(one) for one in read]
    federation.check_admissions({other.id: other for other in others})
    _say(
        [
            f"{federation.count} acts, {len(federation.settled)} deals, {len(federation.members)} members: "
            "every signature, right and sum is in order.",
            f"Head: {federation.head}",
        ]
    )


# The buyer's


def want(
    out: Path, key: Path, *, name: str, purpose: str, budget: int, k: int, worth: tuple[float, float]
) -> None:
    """Sign what is wanted. No two are the same: an award is of one of them, and settled once."""
    version = secrets.token_hex(8)
    _write(out, signed(Wanted(name, version, purpose, budget, k, Valuation(*worth)), load_key(key)))


def award(file: Path, folders: Sequence[Path], out: Path, key: Path) -> None:
    """Sign an award."""
    content = _bytes(file)
    wanted = verified(Wanted, content, signer_of(Wanted, content))
    bids = {}
    for place in folders:
        federation = folder.opened(place)
        if federation.deal is None or federation.deal.wanted != wanted:
            raise ParameterError(f"{place} has no open bid for {wanted.name}")
        bids[federation.id] = federation.deal.made
    made = awarded(wanted, bids)
    _write(out, signed(made, load_key(key)))
    lines = [f"Share {made.share:.6g} of every highest level; {wanted.budget} cents to spend."]
    lines += [
        f"- {one.federation}: {one.cents} cents for {words.reports(one.quota)} true reports of {one.points}"
        for one in made.taken
    ]
    _say(lines)


def deliver(place: Path, out: Path, key: Path, *, missing: Sequence[str]) -> None:
    """Sign what arrived."""
    federation = folder.opened(place)
    deal = federation.deal
    if deal is None or deal.award is None:
        raise ParameterError("no deal is sealed")
    absent = {_named(deal.members, one) for one in missing}
    arrived = tuple(
        Arrived(member, turn, one.points, one.units)
        for member, given in sorted(deal.given.items())
        if member not in absent
        for turn, one in sorted(given.items())
    )
    text = Delivery("delivery", "1", "what arrived of the deal", deal.award.id.hex(), federation.id, arrived)
    _write(out, signed(text, load_key(key)))


# Shared


def _do(place: Path, key: Path, act: acts.Act) -> Federation:
    federation = folder.opened(place)
    folder.done(place, federation, act, load_key(key))
    return federation


def _public(key: Path) -> str:
    return load_key(key).public_key().public_bytes_raw().hex()


def _named(people: Iterable[str], start: str) -> str:
    """The one whose public key begins so."""
    found = [one for one in people if one.startswith(start.lower())]
    if len(found) != 1 or not start:
        raise ParameterError(
            f"member must be the start of one public key, got {start[:64]!r}: {len(found)} begin so"
        )
    return found[0]


def _bytes(file: Path) -> bytes:
    if not file.is_file() or file.stat().st_size > 2 * acts.Act.longest:
        raise ParameterError(f"there is no signed text at {file}")
    return file.read_bytes()


def _write(out: Path, content: bytes) -> None:
    try:
        write_new(out, content)
    except FileExistsError as error:
        raise ParameterError(f"out must not exist, got {out}") from error
    _say([f"{out} is signed."])


def _say(lines: Sequence[str]) -> None:
    screen = console()
    for line in lines:
        screen.print(line, soft_wrap=True)
