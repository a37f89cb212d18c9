"""A client pays before it draws, the same report ever after, whatever its data are; and refuses in public."""

import numpy as np
import pytest

from reticent.errors import BudgetExceeded, GuaranteeError, ParameterError, ReticentError
from reticent.federated.participation import Participations, ParticipationsSpent
from reticent.federated.personalised import PersonalClient, PersonalRound, Sanitiser, wire
from reticent.federated.personalised.tasks import signed
from reticent.fleet.counted import Counted
from reticent.ledger.base import Unit
from reticent.ledger.device.ledger import DeviceLedger

from ...operating import operator
from .parts import HYPOTHESES, LAPLACE, MASTER, SIGNER, SIGNING, enrolment

X, Y = np.ones((10, 2)), np.full(10, 11.0)


def uncharged(client, task, number, payload):
    """Whether a payload left a client whose ledger holds no charge for it."""
    before = client.spent
    client.train(task, number, HYPOTHESES, X, Y)  # the same round again
    records = [client.ledger.recorded("personalised-training", f"{task.id.hex()}/{enrolment(1).id.hex()}/{p}")
               for p in range(task.participations)]  # fmt: skip
    return payload is not None and (client.spent != before or not any(r and r[0] == number for r in records))


@pytest.mark.parametrize("kind", [{}, LAPLACE])
@pytest.mark.parametrize("about", ["hypothesis", "centre", "slots"])
def test_a_report_is_charged_what_the_round_costs_and_counted(task, client, about, kind):
    made = task(about=about, **kind)
    one, price = client(made), Sanitiser(made, HYPOTHESES).units
    payload = one.train(made, 0, HYPOTHESES, X, Y)
    assert one.spent == price / 1e12
    server = PersonalRound(made, 0, HYPOTHESES, operator(MASTER))
    assert [outcome.value for outcome in server.add([payload])] == ["counted"]
    assert server.reports().shape == (1, made.numbers)
    assert not uncharged(one, made, 0, payload)


def test_a_skipped_ledger_is_caught(task, client, monkeypatch):
    """Planted: the draw without the charge."""
    monkeypatch.setattr(Participations, "paid", lambda self, number, units, draw: tuple(draw()))
    made = task()
    one = client(made)
    assert uncharged(one, made, 0, one.train(made, 0, HYPOTHESES, X, Y))


def test_the_charge_follows_the_hypotheses_of_the_round(task, client):
    made = task(about="hypothesis")
    one = client(made)
    one.train(made, 0, HYPOTHESES / 10.0, X, Y)
    near = one.spent
    one.train(made, 1, HYPOTHESES, X, Y)
    assert one.spent - near > 10 * near


def test_the_same_round_is_the_same_report_whatever_changed(task, client, tmp_path):
    made = task(about="hypothesis")
    one = client(made)
    first = one.train(made, 3, HYPOTHESES, X, Y)
    spent = one.spent
    assert one.train(made, 3, HYPOTHESES, X, -Y) == first
    assert one.train(made, 3, HYPOTHESES / 2.0, X, Y) == first  # a server that asks again with others
    one.close()
    again = client(made)
    assert again.train(made, 3, HYPOTHESES, X, Y) == first
    assert again.spent == spent


def test_repetition_composes_and_stops(task, client):
    made = task()
    one, price = client(made), Sanitiser(made, HYPOTHESES).units / 1e12
    for number in (0, 4):
        one.train(made, number, HYPOTHESES, X, Y)
    assert one.spent == pytest.approx(2.0 * price, rel=1e-12)
    with pytest.raises(ParticipationsSpent):
        one.train(made, 2, HYPOTHESES, X, Y)
    assert one.spent == pytest.approx(2.0 * price, rel=1e-12)


def test_a_spent_budget_refuses_and_draws_nothing(task, client, monkeypatch):
    made = task()
    price = Sanitiser(made, HYPOTHESES).units / 1e12
    one = client(made, lifetime=1.5 * price)
    one.train(made, 0, HYPOTHESES, X, Y)
    monkeypatch.setattr(Sanitiser, "sample", lambda *_: pytest.fail("noise was drawn"))
    with pytest.raises(BudgetExceeded):
        one.train(made, 1, HYPOTHESES, X, Y)
    assert one.spent == pytest.approx(price, rel=1e-12)


def test_a_crash_after_paying_costs_only_the_draw(task, client, monkeypatch):
    made = task(about="hypothesis")
    one = client(made)
    with monkeypatch.context() as broken:
        broken.setattr(DeviceLedger, "fulfil", lambda *_: (_ for _ in ()).throw(RuntimeError("power")))
        with pytest.raises(RuntimeError, match="power"):
            one.train(made, 0, HYPOTHESES, X, Y)
    paid = one.spent
    one.close()
    again = client(made)
    again.train(made, 0, HYPOTHESES, X, Y)
    assert again.spent == paid
    again.train(made, 1, HYPOTHESES, X, Y)
    assert again.spent == pytest.approx(2.0 * paid, rel=1e-12)


def test_a_crash_and_dearer_hypotheses_pay_the_dearer_price(task, client, monkeypatch):
    made = task(about="hypothesis")
    one = client(made)
    with monkeypatch.context() as broken:
        broken.setattr(DeviceLedger, "fulfil", lambda *_: (_ for _ in ()).throw(RuntimeError("power")))
        with pytest.raises(RuntimeError, match="power"):
            one.train(made, 0, HYPOTHESES / 10.0, X, Y)
    one.train(made, 1, HYPOTHESES, X, Y)
    assert one.spent == Sanitiser(made, HYPOTHESES).units / 1e12
    assert len(one.train(made, 1, HYPOTHESES, X, Y)) == wire.size(Sanitiser(made, HYPOTHESES))


def paid_less_than_left(made, client, hypotheses):
    """Whether the server's word on a forgotten round is paid with less than its report had cost."""
    one, price = client(made), Sanitiser(made, hypotheses).units / 1e12
    assert one.heed(made, Counted(f"training:{made.id.hex()}", enrolment(1).id, (0,))) == [0]
    return one.spent < price


@pytest.mark.parametrize("kind", [{}, LAPLACE])
@pytest.mark.parametrize("about", ["hypothesis", "centre", "slots"])
def test_a_forgotten_round_is_paid_at_what_it_may_have_cost(task, client, about, kind):
    made = task(about=about, **kind)
    corners = np.array([[made.reach, 0.0], [-made.reach, 0.0]])  # the farthest apart that it takes
    assert not paid_less_than_left(made, client, corners)


@pytest.mark.parametrize("kind", [{}, LAPLACE])
def test_planted_a_price_at_hypotheses_that_are_all_one_is_caught(task, client, monkeypatch, kind):
    made = task(about="hypothesis", **kind)
    zeros = np.zeros((made.hypotheses, made.dimensions))
    monkeypatch.setattr(PersonalClient, "_price", lambda self, task: Sanitiser(task, zeros).units)
    assert paid_less_than_left(made, client, HYPOTHESES)


@pytest.mark.parametrize("reach", [1e3, 1e9])
def test_a_forgotten_round_that_may_have_cost_more_than_there_is_leaves_nothing(task, client, reach):
    made = task(about="hypothesis", reach=reach)
    one = client(made)
    assert one.heed(made, Counted(f"training:{made.id.hex()}", enrolment(1).id, (0,))) == [0]
    assert one.spent == 100.0  # its lifetime
    with pytest.raises(BudgetExceeded):
        one.train(made, 1, HYPOTHESES, X, Y)


def test_a_dear_round_is_refused_in_public(task, client):
    made = task(about="hypothesis")
    one = client(made, most=1.0)
    with pytest.raises(GuaranteeError, match=r"a report costs 9\.\d+ in mu2, this client allows 1"):
        one.train(made, 0, HYPOTHESES, X, Y)
    assert one.spent == 0.0
    one.train(made, 0, HYPOTHESES / 100.0, X, Y)


def test_what_a_client_takes(task, client, tmp_path):
    with pytest.raises(GuaranteeError, match="a report costs"):
        client(task(), most=0.1)
    with pytest.raises(GuaranteeError, match="somebody else"):
        client(task(), number=2, file=signed(task(), SIGNING).replace(SIGNER.hex().encode(), b"0" * 64))
    with (
        PersonalClient(
            tmp_path / "e", enrolment(3), SIGNER, lifetime=9.0, most=9.0, unit=Unit.EPSILON
        ) as one,
        pytest.raises(GuaranteeError, match="charged in mu2, this client in epsilon"),
    ):
        one.take(signed(task(), SIGNING))
    with pytest.raises(ParameterError, match="one that this client took"):
        client(task(), number=4).train(task(rounds=6), 0, HYPOTHESES, X, Y)


def test_a_report_that_no_ledger_holds_is_refused(task, client):
    with pytest.raises(ParameterError, match="at most 65535 numbers"):
        client(task(model=None, dimensions=40_000))


@pytest.mark.parametrize("number", [-1, 5, 1.0, None])
def test_no_such_round(task, client, number):
    made = task()
    with pytest.raises(ReticentError, match="round must be") as refused:
        client(made).train(made, number, HYPOTHESES, X, Y)
    assert "11" not in str(refused.value)


ODD = [
    (None, None),
    ([], []),
    (np.full((3, 2), np.nan), [1, 2, 3]),
    (np.full((3, 2), np.inf), [np.inf] * 3),
    (np.full((3, 2), 1e300), [1e300] * 3),
    ("text", object()),
    (np.ones((3, 5)), np.ones(3)),
    (np.ones((2, 2)), np.ones(7)),
    ([[1, 2], [3]], [1, 2]),
]


@pytest.mark.parametrize("about", ["hypothesis", "slots"])
@pytest.mark.parametrize("place", range(len(ODD)))
def test_whatever_the_data_are_a_report_of_the_same_size_leaves(task, client, place, about):
    made = task(about=about)
    one = client(made)
    payload = one.train(made, 0, HYPOTHESES, *ODD[place])
    assert len(payload) == wire.size(Sanitiser(made, HYPOTHESES))
    assert one.spent == Sanitiser(made, HYPOTHESES).units / 1e12


@pytest.mark.parametrize("choice", [-1, 9, None, np.nan, "x", 1e300])
@pytest.mark.parametrize("updated", [None, [1.0], "x", [np.nan, np.inf]])
def test_a_network_may_bring_anything_too(task, client, choice, updated):
    made = task(model=None)
    payload = client(made).report(made, 0, HYPOTHESES, choice, updated)
    assert len(payload) == wire.size(Sanitiser(made, HYPOTHESES))


def test_silence_on_overflow_is_caught(task, client, monkeypatch):
    """Planted: a client that raises when its data are odd tells something about them."""
    monkeypatch.setattr("reticent.federated.personalised.client._total", lambda task, choice, updated, _: (
        int(choice), np.asarray(updated, dtype=np.float64)))  # fmt: skip
    with pytest.raises((ValueError, TypeError)):
        client(task(model=None)).report(task(model=None), 0, HYPOTHESES, None, None)


def test_production_noise_is_drawn(task, tmp_path):
    """The secure path: OpenDP for the Gaussian, the secure stream for Laplace."""
    for number, kind in enumerate(({}, LAPLACE)):
        made = task(**kind)
        unit = Unit.EPSILON if kind else Unit.MU2
        with PersonalClient(
            tmp_path / str(number), enrolment(number), SIGNER, lifetime=9.0, most=9.0, unit=unit
        ) as one:
            one.take(signed(made, SIGNING))
            payloads = {one.train(made, number, HYPOTHESES, X, Y) for number in (0, 1)}
        assert len({payload[21:-16] for payload in payloads}) == 2
