"""What customers and miners do next, by what the chain says alone."""

from dataclasses import replace

import pytest

from reticent.federated.crowd import deciding
from reticent.federated.crowd.contract import NOBODY, DrawState, Miner, Progress, Proposal, Seat, Status
from reticent.federated.crowd.deciding import (
    HASHES,
    PATIENCE,
    Action,
    Do,
    common_action,
    customer_action,
    due_rewards,
    due_slashes,
    may_sit,
    miner_action,
    place_in_line,
)
from reticent.federated.crowd.following import Seen
from reticent.federated.crowd.history import DrawHistory, History, RoundHistory, TaskHistory
from reticent.federated.crowd.terms import Prices, Terms

TERMS = Terms(
    rounds=3, people=7, f=1, commit_blocks=10, reveal_blocks=5, seat_blocks=4, turn_blocks=6, dispute_blocks=3
)
ME, OTHERS = "0x" + "aa" * 20, ["0x" + f"{number:02x}" * 20 for number in range(1, 7)]
NAMED = b"\x07" * 32
SINCE = 100
NO_SEAT, SEATED = Seat(0, (False, False), False), Seat(3, (False, False), False)


def seen(
    status=Status.COLLECTING,
    at=SINCE,
    *,
    confirmations=0,
    number=0,
    customers=(ME, *OTHERS),
    draw=None,
    **now,
):
    """A task at which the newest block is `at`, whose status began in block 100."""
    rounds = [RoundHistory(is_closed=True) for _ in range(number)] + [RoundHistory(**now)]
    task = TaskHistory(
        OTHERS[0], NOBODY, b"text", b"model", TERMS, Prices(1, 1, 1, 5, 1), 0, list(customers), rounds
    )
    progress = Progress(status, number, len(customers), 0, SINCE, 0 if draw is None else 1)
    return Seen(b"\x22" * 32, task, progress, draw, at - confirmations, at + 1)


def drawn(leaders=(NOBODY, NOBODY), proposals=(bytes(32), bytes(32))):
    return DrawState(b"seed", 500, 99, 20, (0, 0), leaders, proposals)


def does(action):
    return None if action is None else action.do


# A customer


def test_who_is_no_customer_applies_while_there_is_room():
    assert does(customer_action(seen(customers=OTHERS[:6]), ME, is_drawn=False)) is Do.APPLY
    assert does(customer_action(seen(customers=[*OTHERS, "0x" + "bb" * 20]), ME, is_drawn=False)) is Do.END
    assert does(customer_action(seen(Status.DONE, customers=()), ME, is_drawn=False)) is Do.END


def test_a_round_of_a_customer_by_its_windows():
    bound = {ME: b"bound"}
    for at, drawn_, now, expected in (
        (SINCE, False, {}, Do.TRAIN),
        (SINCE, True, {}, Do.COMMIT),
        (SINCE + 8, True, {}, Do.COMMIT),  # into block 109, the last
        (SINCE + 9, True, {}, None),  # late: the next round
        (SINCE + 9, False, {}, None),  # late: nothing is paid or drawn
        (SINCE + 3, True, {"commits": bound}, None),
        (SINCE + 8, True, {"commits": bound}, None),
        (SINCE + 9, True, {"commits": bound}, Do.REVEAL),
        (SINCE + 13, True, {"commits": bound}, Do.REVEAL),
        (SINCE + 14, True, {"commits": bound}, None),
        (SINCE + 9, False, {"commits": bound}, None),  # what was committed to is lost
        (SINCE + 10, True, {"commits": bound, "revealed": {ME: (b"", b"")}}, None),
    ):
        assert does(customer_action(seen(at=at, **now), ME, is_drawn=drawn_)) is expected, (at, drawn_, now)


def key_is_safe(decide):
    """Whether no key is shown before the last block of commitments has its confirmations."""
    for confirmations in range(6):
        for at in range(SINCE, SINCE + 16):
            state = seen(at=at, confirmations=confirmations, commits={ME: b"bound"})
            if does(decide(state, ME, is_drawn=True)) is Do.REVEAL and at - confirmations < SINCE + 9:
                return False
    return True


def test_a_key_is_shown_when_nobody_can_commit_any_more_even_after_a_reorganisation():
    assert key_is_safe(customer_action)


def test_planted_a_customer_that_trusts_the_newest_block_is_found():
    assert not key_is_safe(
        lambda state, me, is_drawn: customer_action(
            replace(state, block=state.next - 1), me, is_drawn=is_drawn
        )
    )


def test_a_customer_is_settled_before_it_commits_again_and_before_it_ends():
    for status, number in ((Status.COLLECTING, 1), (Status.DONE, 3)):
        state = seen(status, number=number)
        state.task.rounds[0].revealed[ME] = b"", b""
        assert customer_action(state, ME, is_drawn=True) == Action(Do.SETTLE, 0)
        state.task.rounds[0].settled[ME] = 1, 5
        assert does(customer_action(state, ME, is_drawn=True)) is (Do.COMMIT if number == 1 else Do.END)


# What anybody may do


@pytest.mark.parametrize(
    ("status", "revealed", "first", "expected"),
    [
        (Status.COLLECTING, 5, SINCE + 16, Do.SEED),
        (Status.COLLECTING, 5, SINCE + 15 + HASHES + 1, Do.REDRAW),
        (Status.COLLECTING, 4, SINCE + 16, Do.CLOSE),
        (Status.WAITING, 5, SINCE + 1, Do.SEED),
        (Status.WAITING, 5, SINCE + HASHES + 1, Do.REDRAW),
        (Status.JUDGING, 5, SINCE + 4 + 12, Do.REDRAW),
        (Status.DECIDED, 5, SINCE + 3, Do.CLOSE),
        (Status.DISPUTED, 5, SINCE + 1, Do.SEED),
        (Status.DISPUTED, 5, SINCE + HASHES + 1, Do.CLOSE),
        (Status.APPEALING, 5, SINCE + 4 + 6, Do.CLOSE),
    ],
)
def test_what_moves_a_task_on_and_from_which_block(status, revealed, first, expected):
    shown = dict.fromkeys(OTHERS[:revealed], (b"", b""))
    before = common_action(seen(status, first - 2, revealed=shown))
    assert before is None or before[0].do is not expected
    action, since = common_action(seen(status, first - 1, revealed=shown))
    assert (action.do, since) == (expected, first)


def test_nothing_moves_a_task_that_is_over():
    assert common_action(seen(Status.DONE)) is None
    assert common_action(seen(Status.CANCELLED)) is None


def test_miners_stand_in_line_and_the_next_one_goes_when_the_first_is_dead():
    miners = [ME, *OTHERS]
    places = {one: place_in_line(seen(Status.DECIDED), one, miners) for one in miners}
    assert sorted(places.values()) == list(range(7))
    for who, place in places.items():
        told = {"miners": miners, "seat": None, "lot": 0}
        due = SINCE + 3 + PATIENCE * place  # the block
        assert miner_action(seen(Status.DECIDED, due - 2), who, **told) is None
        assert does(miner_action(seen(Status.DECIDED, due - 1), who, **told)) is Do.CLOSE
    other = seen(Status.WAITING)
    assert {one: place_in_line(other, one, miners) for one in miners} != places


# A committee


def test_a_seat_is_taken_in_its_window_by_whom_the_lot_gives_one():
    for at, seat, lot, expected in (
        (SINCE, NO_SEAT, 2, Do.SEAT),
        (SINCE + 2, NO_SEAT, 2, Do.SEAT),
        (SINCE + 3, NO_SEAT, 2, None),
        (SINCE, NO_SEAT, 0, None),
        (SINCE, SEATED, 2, None),
    ):
        for status in (Status.JUDGING, Status.APPEALING):
            state = seen(status, at, draw=drawn())
            assert does(miner_action(state, ME, miners=[ME], seat=seat, lot=lot)) is expected


def test_each_leader_has_its_turn_and_votes_follow():
    none, some = bytes(32), NAMED
    for at, leaders, proposals, voted, expected in (
        (SINCE + 2, (ME, OTHERS[0]), (none, none), (False, False), None),
        (SINCE + 3, (ME, OTHERS[0]), (none, none), (False, False), (Do.PROPOSE, 0)),
        (SINCE + 3, (OTHERS[0], ME), (none, none), (False, False), None),
        (SINCE + 8, (OTHERS[0], ME), (some, none), (False, False), (Do.VOTE, 0)),
        (SINCE + 8, (OTHERS[0], ME), (some, none), (True, False), None),
        (SINCE + 9, (OTHERS[0], ME), (none, none), (False, False), (Do.PROPOSE, 1)),  # a silent first leader
        (SINCE + 9, (OTHERS[0], ME), (some, none), (True, False), (Do.PROPOSE, 1)),
        (SINCE + 9, (ME, OTHERS[0]), (none, some), (True, False), (Do.VOTE, 1)),
        (SINCE + 14, (ME, OTHERS[0]), (none, some), (True, True), None),
    ):
        state = seen(Status.JUDGING, at, draw=drawn(leaders, proposals))
        action = miner_action(state, ME, miners=[ME], seat=Seat(3, voted, False), lot=3)
        assert (action and (action.do, action.rank)) == expected, (at, leaders)


def test_without_a_seat_nobody_proposes_or_votes():
    state = seen(Status.JUDGING, SINCE + 4, draw=drawn((ME, NOBODY), (NAMED, bytes(32))))
    assert miner_action(state, ME, miners=[ME], seat=NO_SEAT, lot=3) is None


def test_a_disputed_result_is_looked_at_once():
    state = seen(Status.APPEALING, SINCE + 4, draw=drawn())
    assert does(miner_action(state, ME, miners=[ME], seat=SEATED, lot=3)) is Do.OVERTURN
    voted = Seat(3, (True, False), False)
    assert miner_action(state, ME, miners=[ME], seat=voted, lot=3) is None


def test_stakes_count_from_before_the_seed_until_one_leaves():
    assert may_sit(Miner(5, 98, 0, 0), 99)
    assert not may_sit(Miner(5, 99, 0, 0), 99)
    assert may_sit(Miner(5, 98, 99, 0), 99)
    assert not may_sit(Miner(5, 90, 98, 0), 99)
    assert not may_sit(None, 99)


def test_rewards_and_slashes_are_due_once():
    history, state = History(), seen(Status.DONE, number=1)
    state.task.rounds[0].proposals[NAMED] = OTHERS[0], b"cid", Proposal(1, b"", 0, 0, 0, 0)
    state.task.rounds[0].result = NAMED
    history.draws[1] = DrawHistory(b"", 0, 500, 20, {ME: 3, OTHERS[0]: 2}, {NAMED: {ME}})
    assert list(due_rewards(state, history, ME)) == [Action(Do.REWARD, 0)]
    free = replace(
        state, task=replace(state.task, prices=Prices(1, 1, 1, 1, 1))
    )  # 3 of 5 seats of 1: nothing
    assert list(due_rewards(free, history, ME)) == []
    assert list(due_rewards(state, history, OTHERS[0])) == []
    state.task.rounds[0].rewarded[ME] = 5
    assert list(due_rewards(state, history, ME)) == []
    history.overturned[1], history.units = NAMED, {ME: 100}
    assert list(due_slashes(history)) == [Action(Do.SLASH, draw=1, who=ME)]
    history.slashed.add((1, ME))
    assert list(due_slashes(history)) == []


def test_every_action_is_somebodys():
    assert {one.value for one in Do} == {
        "apply", "train", "commit", "reveal", "settle", "end", "seed", "seat", "propose", "vote", "overturn",
        "close", "redraw", "reward", "slash",
    }  # fmt: skip
    assert deciding.PATIENCE > 0


def test_miners_leave_a_task_in_which_nobody_commits_to_its_customers():
    late = SINCE + 10 + 5 + 1 + PATIENCE * 8
    for number in range(deciding.EMPTY):
        assert does(miner_action(seen(at=late, number=number), ME, miners=[ME], seat=None, lot=0)) is Do.CLOSE
        assert customer_action(seen(at=late, number=number), ME, is_drawn=False) is None
    left = seen(at=late, number=deciding.EMPTY)
    assert miner_action(left, ME, miners=[ME], seat=None, lot=0) is None
    assert does(customer_action(left, ME, is_drawn=False)) is Do.CLOSE
    taken = seen(at=late, number=deciding.EMPTY, commits={OTHERS[0]: b""})
    assert does(miner_action(taken, ME, miners=[ME], seat=None, lot=0)) is Do.CLOSE
