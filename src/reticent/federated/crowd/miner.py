"""A miner: stakes, draws lots, judges and votes, for all tasks of a contract. Killed anywhere, it goes on.

It fetches a round's updates when it has taken its seats, before the first leader's turn: those are the ones
that it could fetch in time. As a leader it proposes what it computes. It votes only for a proposal that
counts all of those and is, to the last bit, what it computes from the updates that the proposal counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from reticent.arguments import whole
from reticent.chain.keys import Key
from reticent.errors import ParameterError, StoreError
from reticent.federated.crowd import task_text
from reticent.federated.crowd.calls import Calls
from reticent.federated.crowd.contract import Seat, Status, alpha, chain_proof
from reticent.federated.crowd.deciding import Action, Do, due_rewards, due_slashes, may_sit, miner_action
from reticent.federated.crowd.following import Follower, Seen
from reticent.federated.crowd.lottery import seats, secp256k1
from reticent.federated.crowd.rounds import Judged, Place, judged
from reticent.federated.crowd.running import Program
from reticent.federated.crowd.task_text import CrowdTask
from reticent.federated.crowd.updates import size_of
from reticent.store import Store

_GAS = ("seat", "propose", "deciding vote", "seed", "close")  # of a round
_LARGER = 3  # times as many seats decide a dispute
MOST_DRAWS = 10  # of a round, in a task that is served: each costs a miner gas, and only a decided one pays
MOST_BYTES = 2 << 30  # of all updates of a round, which are held at once
MAX_LOCK_BLOCKS = 50_400  # for which a seat may lock the stake: a week of blocks of 12 s
_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 600.0  # before a text that could not be fetched is asked for again


@dataclass
class _Draw:
    """A draw as the miner knows it.

    Attributes:
        proof: of the lot.
        lot: Number of seats that the proof gives.
        mine: Result that the miner computes from all updates that it could fetch; None before it fetched.
    """

    proof: bytes
    lot: int
    mine: Judged | None = None
    refused: set[bytes] = field(default_factory=set)  # proposals that it does not vote for


class Miner(Program):
    """The program of a miner, which serves every task of a contract whose text it can read.

    Args:
        follower: see `Program`, also for calls, store and say.
        key: Key of the miner on the chain, whose lots it proves.
        stake: units to enrol with, if it is not enrolled; 0 for none.
        most_bytes: Limit of bytes of all updates of a round; tasks that may have more are not served.
        max_lock_blocks: Blocks for which a seat may lock the stake; tasks that lock it longer are not served.

    A stranger who posts a task chooses its text, its windows and its customers. None of that may stop a miner
    that serves others, too: the reason to skip a task is reported once, and the next one is served.
    """

    def __init__(
        self,
        follower: Follower,
        calls: Calls,
        store: Store,
        say: Callable[[str], None],
        *,
        key: Key,
        stake: int = 0,
        most_bytes: int = MOST_BYTES,
        max_lock_blocks: int = MAX_LOCK_BLOCKS,
    ) -> None:
        super().__init__(follower, calls, store, say)
        self._key, self._stake, self._most_bytes = key, stake, most_bytes
        self._max_lock_blocks = whole("max_lock_blocks", max_lock_blocks, low=1)
        self._later: dict[bytes, tuple[float, float]] = {}  # by task: when its text is asked for, the pause
        self._told: dict[bytes, str] = {}  # by task: the trouble that was said last
        self._texts: dict[bytes, CrowdTask | None] = {}
        self._draws: dict[tuple[int, bytes], _Draw] = {}  # by number and seed, for reorganisations

    def act(self) -> bool:
        """Do what can be done now, for every task; return True, as there is always more."""
        if self._is_enrolled():
            for identifier in list(self.follower.history.tasks):
                seen = self.follower.seen(identifier)
                if seen is not None:
                    self._serve_alone(seen)
            self._slash()
        return True

    def _serve_alone(self, seen: Seen) -> None:
        """Serve a task; what goes wrong with its files is no other task's trouble."""
        try:
            self._serve(seen)
        except (StoreError, ParameterError) as error:
            self._tell_once(seen, f"is left for now: {error}")
        except MemoryError:
            self._tell_once(seen, "is left for now: it needs more memory than there is")

    # Stake

    def _is_enrolled(self) -> bool:
        if self.me in self.follower.history.units:
            return True
        if not self._stake:
            raise ParameterError(f"{self.me} is no miner of this contract: give --stake")
        worth = self._stake * self.follower.contract.stake_unit()
        self.calls.check_purse("enrol", *_GAS, value_wei=worth)
        self.calls.send("enrol", once=str(self.calls.number()), value_wei=worth)
        return False

    def _slash(self) -> None:
        for action in due_slashes(self.follower.history):
            if action.who != self.me:
                self.calls.send("slash", action.draw, action.who, once=str(action.draw))

    # A task

    def _serve(self, seen: Seen) -> None:
        for reward in due_rewards(seen, self.follower.history, self.me):
            once = f"{seen.identifier.hex()}/{reward.round}"
            self.calls.send("reward", seen.identifier, reward.round, self.me, once=once)
        if seen.is_over or self._text(seen) is None:
            return
        seat, lot = self._seats(seen)
        miners = self.follower.history.units
        action = miner_action(seen, self.me, miners=miners, seat=seat, lot=lot)
        if action is not None:
            self._do(action, seen)
        elif seat is not None and seat.seats and seen.progress.status is Status.JUDGING:
            self._fetch(seen)

    def _text(self, seen: Seen) -> CrowdTask | None:
        """Return the text of a task; None, reported once, where the task cannot be judged."""
        named = seen.identifier
        if named not in self._texts:
            at, pause = self._later.get(named, (0.0, _PAUSE_S))
            if time.monotonic() < at:
                return None
            try:
                text = task_text.read(self.store, seen.task.text)
                self._check_fit(seen, text)
            except StoreError as error:  # it may still come; a store may take long to say that it has none
                self._later[named] = time.monotonic() + pause, min(_LONGEST_PAUSE_S, 2 * pause)
                self._tell_once(seen, f"its text cannot be read ({error})")
                return None
            except ParameterError as error:
                self._tell(seen, f"is not served: {error}")
                self._texts[named] = None
                return None
            self._texts[named] = text
        return self._texts[named]

    def _check_fit(self, seen: Seen, text: CrowdTask) -> None:
        """Refuse a task that is another than its text says, or that would take all that the miner has.

        Posting a task that pays nothing costs a stranger little: its windows must not lock a stake for years.
        """
        terms = seen.task.terms
        text.check_terms(terms)
        if terms.lock_blocks > self._max_lock_blocks:
            raise ParameterError(
                f"a seat must lock the stake for at most {self._max_lock_blocks} blocks (--max-lock-blocks), "
                f"got {terms.lock_blocks}"
            )
        terms.check_claims(self.follower.confirmations)
        if terms.draws > MOST_DRAWS:
            raise ParameterError(f"draws must be at most {MOST_DRAWS}, got {terms.draws}")
        needed = terms.people * size_of(text.grid)
        if needed > self._most_bytes:
            raise ParameterError(f"updates of a round must be at most {self._most_bytes} bytes, got {needed}")

    def _tell_once(self, seen: Seen, line: str) -> None:
        if self._told.get(seen.identifier) != line:
            self._told[seen.identifier] = line
            self._tell(seen, line)

    def _tell(self, seen: Seen, line: str) -> None:
        self._say(f"task {seen.identifier.hex()[:8]}, round {seen.progress.round}: {line}")

    def _do(self, action: Action, seen: Seen) -> None:
        task, progress = seen.identifier, seen.progress
        once = f"{task.hex()}/{progress.round}/{progress.tries}/{progress.status.value}"
        match action.do:
            case Do.SEED:
                change = self.follower.contract.change_before(_seed_block(seen))
                self.calls.send("seed", task, change, once=once)
            case Do.CLOSE | Do.REDRAW:
                self.calls.send(action.do.value, task, once=once)
            case Do.SEAT:
                if progress.tries and self._fetch(seen) is None:
                    return  # nothing was decided, and nothing can be: a seat would earn nothing
                self.calls.check_purse(*_GAS)
                drawn = self._drawn(seen)
                public = secp256k1().public_key(self._key.secret)
                proof = chain_proof(public, self._alpha(seen), drawn.proof)
                self.calls.send("seat", task, *proof, once=str(progress.draw))
            case Do.PROPOSE:
                self._propose(seen, once)
            case Do.VOTE:
                self._vote(seen, action.rank)
            case Do.OVERTURN:
                self._overturn(seen)
            case _:
                raise AssertionError(action)

    # Seats

    def _alpha(self, seen: Seen) -> bytes:
        assert seen.draw is not None
        contract, progress = self.follower.contract, seen.progress
        chain = self.follower.node.chain_id
        return alpha(chain, contract.address, seen.identifier, progress.round, progress.draw, seen.draw.seed)

    def _drawn(self, seen: Seen) -> _Draw:
        """Return the lot in the draw that runs, proved once."""
        assert seen.draw is not None
        which = seen.progress.draw, seen.draw.seed
        if which not in self._draws:
            vrf, stake = secp256k1(), self.follower.contract.miner(self.me, block=seen.block)
            proof = vrf.prove(self._key.secret, self._alpha(seen))
            expected = seen.task.terms.expected
            if seen.progress.status is Status.APPEALING:
                expected *= _LARGER
            lot = 0
            if stake is not None and may_sit(stake, seen.draw.block):
                lot = seats(vrf.output(proof), stake.units, seen.draw.stake, expected)
            self._draws = {key: one for key, one in self._draws.items() if key[0] > which[0] - 64}
            self._draws[which] = _Draw(proof, lot)
        return self._draws[which]

    def _seats(self, seen: Seen) -> tuple[Seat | None, int]:
        """Return the seats that were taken, and the number that the lot gives, in the draw that runs."""
        if seen.draw is None or seen.progress.status not in (Status.JUDGING, Status.APPEALING):
            return None, 0
        seat = self.follower.contract.seat(seen.progress.draw, self.me, block=seen.block)
        return seat, self._drawn(seen).lot

    # Judging

    def _judged(self, seen: Seen, counted: int | None = None) -> Judged | None:
        """Return the result of the round; None, reported once, where it cannot be judged."""
        text = self._text(seen)
        assert text is not None
        place = Place(self.follower.node.chain_id, self.follower.contract.address, seen.identifier)
        try:
            return judged(text, place, seen.task, seen.progress.round, self.store, counted=counted)
        except (StoreError, ParameterError) as error:
            self._tell_once(seen, f"cannot be judged: {error}")
            return None

    def _fetch(self, seen: Seen) -> Judged | None:
        """Return the miner's own result, from all updates that it can fetch; once for each draw."""
        drawn = self._drawn(seen)
        if drawn.mine is None:
            drawn.mine = self._judged(seen)
        return drawn.mine

    def _propose(self, seen: Seen, once: str) -> None:
        """Propose the result of the round, from all updates that can be fetched now."""
        drawn, found = self._drawn(seen), self._judged(seen)
        if found is None:
            return
        drawn.mine = found
        self.store.put(found.file)  # before anybody may rely on it
        words = (found.counted, found.accepted, found.low, found.paid)
        self.calls.send("propose", seen.identifier, bytes(found.cid), *words, once=once)

    def _vote(self, seen: Seen, rank: int) -> None:
        assert seen.draw is not None
        named, drawn = seen.draw.proposals[rank], self._drawn(seen)
        if named in drawn.refused:
            return
        agreed, why = self._agrees(seen, named)
        if not agreed and not why:
            return  # it cannot be told yet
        if not agreed:
            drawn.refused.add(named)
            self._tell(seen, f"no vote for {named.hex()[:8]}: {why}")
            return
        self.calls.send("vote", seen.identifier, named, once=f"{seen.progress.draw}/{rank}")

    def _agrees(self, seen: Seen, named: bytes) -> tuple[bool, str]:
        """Whether a proposal is what the miner computes, and counts all that it could fetch in time.

        If not, why not; nothing, if it cannot be told yet.
        """
        mine, held = self._fetch(seen), seen.task.rounds[seen.progress.round].proposals.get(named)
        if mine is None or held is None:
            return False, ""
        _, cid, proposal = held
        if mine.counted & ~proposal.counted:
            return False, "it leaves out updates that can be fetched"
        if proposal.counted != mine.counted:
            again = self._judged(seen, proposal.counted)
            if again is None or again.counted != proposal.counted:
                return False, "it counts updates that cannot be fetched"
            mine = again
        if mine.proposal(proposal.draw) != proposal or bytes(mine.cid) != cid:
            return False, "it is not what comes out"
        self.store.put(mine.file)  # the leader may not have
        return True, ""

    def _overturn(self, seen: Seen) -> None:
        """Vote against a result that is not what comes out of the updates that it counts.

        Whether it should have counted more nobody can tell later: a file may have come after the vote.
        """
        result = seen.task.rounds[seen.progress.round].result
        if result is None or result in self._drawn(seen).refused:
            return
        _, cid, proposal = seen.task.rounds[seen.progress.round].proposals[result]
        found = self._judged(seen, proposal.counted)
        if found is None or found.counted != proposal.counted:
            return  # it cannot be told
        if found.proposal(proposal.draw) == proposal and bytes(found.cid) == cid:
            self._drawn(seen).refused.add(result)
            self._tell(seen, "the disputed result is what comes out")
            return
        self.calls.send("vote", seen.identifier, result, once=f"{seen.progress.draw}/appeal")


def _seed_block(seen: Seen) -> int:
    """The block whose hash is the seed."""
    terms, since = seen.task.terms, seen.progress.since
    if seen.progress.status is Status.COLLECTING:
        return since + terms.commit_blocks + terms.reveal_blocks
    return since
