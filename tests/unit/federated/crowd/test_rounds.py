"""A round judged from history and store: the same bytes everywhere, and nothing counted that was gone."""

import tracemalloc
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from reticent.errors import ContentMissing, ParameterError, StoreError
from reticent.federated.crowd import rounds, updates
from reticent.federated.crowd.history import RoundHistory
from reticent.federated.crowd.rounds import judged, model_before
from reticent.federated.robust import Grid, judge
from reticent.store import Cid, Directory, cid_of

from .round_of import GRID, PEOPLE, PLACE, TASK, TRAINING, history_of, numbers_of


@pytest.fixture
def store(tmp_path):
    return Directory(tmp_path / "store")


def lose(store, cid):
    store._path(Cid.of_bytes(cid)).unlink()


def run(store, history, **how):
    return judged(TASK, PLACE, history, 0, store, **how)


def exact(chosen):
    """The average by fractions, halves up."""
    sums = [sum(int(one[at]) for one in chosen) for at in range(15)]
    return np.array([(Fraction(total, len(chosen)) + Fraction(1, 2)).__floor__() for total in sums])


def test_a_round_of_honest_updates(store):
    given = numbers_of(7)
    found = run(store, history_of(store, given))
    right = judge(GRID, given, 1)
    assert found.counted == 0b1111111
    assert found.accepted == right.bits
    assert found.paid == found.accepted
    assert found.cid == cid_of(found.file)
    store.put(found.file)
    assert (TASK.model(store, found.cid) == exact([given[at] for at in right.accepted])).all()
    assert found.proposal(4).model == rounds.keccak(bytes(found.cid))


def test_what_is_not_in_order_is_low_and_what_is_gone_is_not_counted(store):
    given = numbers_of(9)
    other = updates.seal(
        GRID, given[1], PLACE.origin(1, PEOPLE[1].address), PEOPLE[1].key
    )  # of another round
    longer = replace(GRID, norm=1 << 20)
    far = updates.seal(
        longer, np.full(15, 1 << 16, np.int32), PLACE.origin(0, PEOPLE[2].address), PEOPLE[2].key
    )
    given[1] = bytes(store.put(other.file)), other.key
    given[2] = bytes(store.put(far.file)), far.key
    given[3] = bytes(store.put(b"x" * 5000)), bytes(32)  # longer than any update
    given[4] = b"no CID", bytes(32)
    given[6] = None  # nothing revealed
    history = history_of(store, given)
    lose(store, history.rounds[0].revealed[PEOPLE[5].address][0])
    found = run(store, history)
    assert found.counted == 0b110001111
    assert found.missing == (4, 5)
    assert found.low == 0b1110
    assert set(found.refused) == {1, 2, 3}
    assert found.accepted == 0b110000001, "two are low: three are left, and f of them would be too few"


def test_who_withholds_a_file_stops_no_round(store):
    history = history_of(store, numbers_of(5))  # 2 f + 3
    lose(store, history.rounds[0].revealed[PEOPLE[0].address][0])
    found = run(store, history)
    assert found.counted == 0b11110
    assert found.accepted == 0b11110
    for person in PEOPLE[1:3]:
        lose(store, history.rounds[0].revealed[person.address][0])
    with pytest.raises(ParameterError, match="2 updates that can be fetched"):
        run(store, history)


def test_slight_updates_count_and_are_not_paid(store):
    given = [np.zeros(15, np.int32) + (at == 0) for at in range(5)]
    found = run(store, history_of(store, [one.astype(np.int32) for one in given]))
    assert found.accepted
    assert not found.paid


def test_others_counted_sets_give_others_results(store):
    history = history_of(store, numbers_of(7))
    everybody, some = run(store, history), run(store, history, counted=0b0111111)
    assert some.counted == 0b0111111
    assert some.file != everybody.file
    lose(store, history.rounds[0].revealed[PEOPLE[0].address][0])
    assert run(store, history, counted=0b0111111).missing == (0,)


def test_rounds_go_on_from_the_last_result(store):
    first = run(store, history_of(store, numbers_of(7)))
    store.put(first.file)
    done, void = RoundHistory(is_closed=True), RoundHistory(result=rounds.VOID, is_closed=True)
    done.proposals[b"p"], done.result = (PEOPLE[0].address, bytes(first.cid), first.proposal(1)), b"p"
    given = numbers_of(7, seed=6)
    history = history_of(store, given, number=2, before=[done, void])
    assert model_before(history, 2) == model_before(history, 1) == bytes(first.cid)
    found = judged(TASK, PLACE, history, 2, store)
    right = judge(GRID, given, 1)
    store.put(found.file)
    last = TASK.model(store, first.cid)
    assert (TASK.model(store, found.cid) == last + exact([given[at] for at in right.accepted])).all()
    lose(store, bytes(first.cid))
    with pytest.raises(ContentMissing):
        judged(TASK, PLACE, history, 2, store)


def test_another_text_or_model_is_refused(store):
    history = history_of(store, numbers_of(7))
    with pytest.raises(ParameterError, match="not the one that the contract keeps"):
        judged(replace(TASK, multiple=3), PLACE, history, 0, store)
    history.model = b"none"
    with pytest.raises(StoreError):
        run(store, history)


def test_it_is_the_same_from_every_store_and_in_every_order_of_revealing(store, tmp_path):
    history = history_of(store, numbers_of(7))
    there = Directory(tmp_path / "other")
    for cid, _ in history.rounds[0].revealed.values():
        there.put(store.get(Cid.of_bytes(cid)))
    there.put(TASK.start())
    other = replace(
        history, rounds=[RoundHistory(revealed=dict(reversed(history.rounds[0].revealed.items())))]
    )
    assert run(store, history) == run(there, other)


def test_planted_floats_in_the_sum_are_found(store, monkeypatch):
    """Far from zero, and with a mean that no float of 32 bits holds."""
    given, right = numbers_of(7), None
    history = history_of(store, given)
    start = TASK.model_file(np.full(15, (1 << 40) + 1))
    history.model = bytes(store.put(start))
    right = run(store, history)
    monkeypatch.setattr(
        rounds,
        "_next",
        lambda task, model, update: task.model_file(
            (model.astype(np.float32) + update.astype(np.float32)).astype(np.int64)
        ),
    )
    assert run(store, history).cid != right.cid
    best = exact([given[at] for at in range(7) if right.accepted >> at & 1]) + (1 << 40) + 1
    store.put(right.file)
    assert (TASK.model(store, right.cid) == best).all()


def test_planted_an_update_counted_that_could_not_be_fetched_is_found(store, monkeypatch):
    history = history_of(store, numbers_of(7))
    lose(store, history.rounds[0].revealed[PEOPLE[0].address][0])
    assert not run(store, history).counted & 1
    monkeypatch.setattr(rounds, "StoreError", ())
    monkeypatch.setattr(rounds, "GuaranteeError", ContentMissing)  # taken for one that is not in order
    assert run(store, history).counted & 1


def test_memory_is_at_most_one_and_a_half_times_the_updates(store):
    size = 1 << 18
    training = replace(TRAINING, inputs=(size - 4) // 4, classes=4)
    grid = Grid(training.dimensions, 1 << 12, 1 << 25)
    task = replace(TASK, training=training, grid=grid)
    draw = np.random.default_rng(1)
    given = [draw.integers(-99, 100, grid.dimensions, dtype=np.int32) for _ in range(9)]
    history = history_of(store, given, task=task)
    held = sum(one.nbytes for one in given)
    del given
    tracemalloc.start()
    try:
        judged(task, PLACE, history, 0, store)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most <= 1.5 * held
