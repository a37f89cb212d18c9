"""Multi-Krum inside Flower: liars, dead and odd nodes; reputations; runs that go on."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from reticent.errors import ParameterError
from reticent.federated.flower import RobustKrum, records, robust
from reticent.federated.robust import Grid, judge

from . import nodes

GRID = Grid(5, 1 << 12, 1 << 16)
WAY = np.array([0.5, -0.25, 1.0, 0.0, 2.0])


def honest(number):
    """A node whose update differs a little in each round."""

    def app(message):
        _, grid, theta = robust.asked(message)
        draw = np.random.default_rng([number, int(1e6 * abs(theta).sum())])
        return robust.answer(message, grid, WAY - 0.5 * theta + 0.05 * draw.normal(size=5))

    return app


def lying(message):
    _, grid, _ = robust.asked(message)
    return robust.answer(message, grid, -3.0 * WAY)


def raw(content):
    return lambda message: Message(content, reply_to=message)


def failing(_message):
    raise RuntimeError("no")


def some(count, **others):
    return {100 + place: honest(place) for place in range(count)} | {
        int(node[1:]): app for node, app in others.items()
    }


def run(made, apps, rounds=3):
    grid = nodes.Nodes(apps)
    return made.start(grid, made.initial_arrays(), num_rounds=rounds, timeout=1.0)


def test_liars_are_rejected_and_lose_their_reputation():
    made = RobustKrum(GRID, clients=11, liars=2)
    result = run(made, some(9, n1=lying, n2=lying), rounds=4)
    for one in made.rounds:
        assert {1, 2}.isdisjoint(one.accepted)
        assert one.low == (1, 2)
        assert (len(one.accepted), one.stepped, one.missing) == (9, True, 0)
    assert [made.reputations[node] for node in (1, 2, 100, 108)] == [0, 0, 4, 4]
    found = records.flat(result.arrays, 5)
    assert np.allclose(found, 2 * WAY, atol=0.4)
    assert np.array_equal(found, GRID.values(made.theta)), "what is published is the grid's"


def test_planted_a_mean_would_be_led_astray():
    plain = RobustKrum(GRID, clients=11, liars=0)
    run(plain, some(9, n1=lying, n2=lying), rounds=4)
    assert not np.allclose(GRID.values(plain.theta), 2 * WAY, atol=0.4)


def test_what_is_no_update_is_refused_and_nothing_ends_the_run():
    short = records.answer(bytes(19))
    far = records.answer(np.full(5, 1 << 30, dtype="<i4").tobytes())
    floats = RecordDict({"arrays": ArrayRecord({"theta": Array(np.full(5, np.nan))})})
    text = RecordDict({"report": ConfigRecord({"payload": "text"})})
    odd = {"n1": raw(short), "n2": raw(far), "n3": raw(floats), "n4": raw(text), "n5": failing, "n6": None}
    made = RobustKrum(GRID, clients=30, liars=4)
    run(made, some(9, **odd), rounds=1)
    (one,) = made.rounds
    assert (one.refused, one.missing, one.stepped) == ((1, 2, 3, 4), 2, True)
    assert set(one.low) == {1, 2, 3, 4}
    assert np.isfinite(GRID.values(made.theta)).all()


def test_too_few_move_nothing_and_change_no_reputation():
    made = RobustKrum(GRID, clients=9, liars=3)
    result = run(made, some(5, n1=lying), rounds=1)
    assert [one.stepped for one in made.rounds] == [False]
    assert made.reputations == {}
    assert not records.flat(result.arrays, 5).any()


def test_a_node_counts_once_and_strangers_not_at_all():
    made = RobustKrum(GRID, clients=5, liars=1)
    apps = some(5)
    grid = nodes.Nodes(apps)
    sent = list(made.configure_train(1, made.initial_arrays(), ConfigRecord(), grid))
    replies = grid.send_and_receive(sent)
    again = [lying(message) for message in sent[:2]]
    stranger = Message(records.answer(bytes(20)), reply_to=sent[0])
    stranger.metadata.__dict__["_src_node_id"] = 9
    made.aggregate_train(1, [*replies, *again, stranger])
    assert 9 not in made.reputations
    updates = [
        np.frombuffer(records.payload_of(one), "<i4")
        for one in sorted(replies, key=lambda r: r.metadata.src_node_id)
    ]
    assert np.array_equal(made.theta, judge(GRID, updates, 1).update)


def test_the_run_is_the_same_whatever_order_replies_come_in():
    found = []
    for order in (1, -1):
        made = RobustKrum(GRID, clients=7, liars=2)
        grid = nodes.Nodes(some(7))
        sent = list(made.configure_train(1, made.initial_arrays(), ConfigRecord(), grid))
        made.aggregate_train(1, grid.send_and_receive(sent)[::order])
        found.append((made.theta.tobytes(), made.reputations))
    assert found[0] == found[1]


def test_a_run_goes_on_where_it_ended(tmp_path):
    path = tmp_path / "kept.npz"
    first = RobustKrum(GRID, clients=9, liars=2, checkpoint=path)
    run(first, some(8, n1=lying), rounds=2)
    second = RobustKrum(GRID, clients=9, liars=2, checkpoint=path)
    assert np.array_equal(second.theta, first.theta)
    assert second.reputations == first.reputations
    run(second, some(8, n1=lying), rounds=1)
    assert second.rounds[0].number == 2
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("other", [{"liars": 1}, {"most": 7}])
def test_a_checkpoint_of_other_terms_is_refused(tmp_path, other):
    path = tmp_path / "kept.npz"
    given = {"clients": 9, "liars": 2, "checkpoint": path}
    run(RobustKrum(GRID, **given), some(9), rounds=1)
    with pytest.raises(ParameterError, match="must be of the same grid and terms"):
        RobustKrum(GRID, **given | other)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ParameterError, match="must be one that this strategy wrote"):
        RobustKrum(GRID, **given)


def test_what_cannot_be():
    with pytest.raises(ParameterError, match="clients must be >= 7"):
        RobustKrum(GRID, clients=6, liars=2)
    made = RobustKrum(GRID, clients=3, liars=0)
    with pytest.raises(ParameterError, match="finite numbers that the grid reaches"):
        list(made.configure_train(1, ArrayRecord([np.full(5, np.nan)]), ConfigRecord(), nodes.Nodes(some(3))))


def test_evaluation_asks_nobody():
    made = RobustKrum(GRID, clients=3, liars=0)
    assert made.configure_evaluate(1, made.initial_arrays(), ConfigRecord(), nodes.Nodes(some(3))) == []
    assert made.aggregate_evaluate(1, []) is None
