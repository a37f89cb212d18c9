"""Personalised training in Flower: the same promises, and the rounds of the core."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from reticent.errors import ParameterError
from reticent.federated.flower import (
    PersonalMod,
    PersonalStrategy,
    mod,
    personal_of_node,
    personal_of_simulation,
    records,
)
from reticent.federated.models import Linear
from reticent.federated.payload import Outcome
from reticent.federated.personalised import PersonalRound, PersonalTask, PersonalTraining, tasks

from ...operating import operator
from . import nodes

HYPOTHESES = np.array([[1.0, 0.0, 0.5], [-1.0, 0.25, 0.0]])


def task(**changes):
    given = {
        "name": "test", "version": "1", "purpose": "a test", "model": Linear(2), "dimensions": 3,
        "hypotheses": 2, "clip": 1.0, "reach": 8.0, "level": 4.0, "rounds": 3, "group": 100, "rate": 0.1,
        "participations": 2,
    }  # fmt: skip
    return PersonalTask(**given | changes)


def arrays(hypotheses):
    """Of a model with two arrays."""
    return ArrayRecord({"weight": Array(hypotheses[..., :2]), "bias": Array(hypotheses[..., 2])})


def question(file, number=0, hypotheses=HYPOTHESES):
    content = records.question(file, number, arrays(hypotheses), ConfigRecord())
    message = Message(content, 7, "train", group_id="0")
    message.metadata.__dict__["_message_id"] = "the question"
    return message


def improving(choice, by):
    """An app that chose a hypothesis and moved it, and would like to say more."""

    def train(message, _context):
        (given,) = message.content.array_records.values()
        moved = {name: Array(np.asarray(array.numpy()[choice] + by)) for name, array in given.items()}
        told = {"choice": ConfigRecord({"choice": choice}), "metrics": MetricRecord({"loss": 0.618})}
        return Message(RecordDict({"arrays": ArrayRecord(moved), **told}), reply_to=message)

    return train


def raising(_message, _context):
    raise ValueError("income 0.618")


def choosing(value):
    def train(message, context):
        reply = improving(0, 0.5)(message, context)
        reply.content["choice"] = ConfigRecord({"choice": value})
        return reply

    return train


def silent(message, context):
    reply = improving(1, 0.5)(message, context)
    del reply.content["choice"]
    return reply


APPS = {
    "first": improving(0, 0.25),
    "second": improving(1, 1e300),
    "endless": improving(1, np.nan),
    "raises": raising,
    "nothing": lambda *_: None,
    "a choice beyond": choosing(99),
    "a choice of words": choosing("income"),
    "no choice": silent,
}


def node_config(folder, number):
    return nodes.node_config(folder, number) | {"reticent-lifetime": 5.0}


def check_train(folder, make):
    """One report, paid for, whatever the app did; or AssertionError."""
    one = task()
    file = tasks.signed(one, nodes.SIGNING)
    for number, train in enumerate(APPS.values()):
        app, held = nodes.app_of(train, [make()]), nodes.context(node_config(folder, number))
        message = question(file)
        try:
            reply = app(message, held)
        except Exception as error:
            raise AssertionError("the app's error left the node") from error
        assert not reply.has_error(), "no report"
        assert {name: list(record) for name, record in reply.content.items()} == {"report": ["payload"]}
        found = PersonalRound(one, 0, HYPOTHESES, operator(nodes.MASTER))
        assert found.add([records.payload_of(reply)]) == [Outcome.COUNTED]
        with personal_of_node(held) as client:
            assert client.ledger.balance("personalised-training").spent == found.sanitiser.units > 0, "unpaid"


def test_one_report_whatever_the_app_does(tmp_path):
    check_train(tmp_path, PersonalMod)


class Forwards(PersonalMod):
    def __call__(self, message, context, call_next):
        reply = super().__call__(message, context, call_next)
        reply.content["arrays"] = call_next(message, context).content["arrays"]
        return reply


class Silent(PersonalMod):
    def _trained(self, app, asked):
        return self._found(app(), asked)


class Free(PersonalMod):
    def _report(self, client, asked, found):
        copy = nodes.context(node_config(self.elsewhere, 99))
        with personal_of_node(copy) as other:
            other.take(tasks.signed(asked.task, nodes.SIGNING))
            return super()._report(other, asked, found)


@pytest.mark.parametrize(
    ("planted", "caught"), [(Forwards, "arrays"), (Silent, "the app's error left"), (Free, "unpaid")]
)
def test_planted_bugs_are_caught(tmp_path, planted, caught):
    planted.elsewhere = tmp_path
    with pytest.raises(AssertionError, match=caught):
        check_train(tmp_path, planted)


def test_what_is_reported_is_the_choice_and_the_update(tmp_path):
    heard = []

    class Listening(PersonalMod):
        def _report(self, client, asked, found):
            heard.append(found)
            return super()._report(client, asked, found)

    file = tasks.signed(task(), nodes.SIGNING)
    app = nodes.app_of(improving(1, 0.25), [Listening()])
    app(question(file), nodes.context(node_config(tmp_path, 0)))
    assert heard[0][0] == 1
    assert np.array_equal(heard[0][1], HYPOTHESES[1] + 0.25)


@pytest.mark.parametrize("bad", [HYPOTHESES * 100, HYPOTHESES[:1], HYPOTHESES * np.nan])
def test_hypotheses_beyond_the_task_are_refused_and_cost_nothing(tmp_path, bad):
    file, held = tasks.signed(task(), nodes.SIGNING), nodes.context(node_config(tmp_path, 0))
    reply = nodes.app_of(improving(0, 0.0), [PersonalMod()])(question(file, hypotheses=bad), held)
    assert reply.error.reason == records.REFUSED + mod.Refusal.TASK.value
    with personal_of_node(held) as client:
        assert client.spent == 0.0


def test_a_run_is_that_of_the_core_and_a_ledger_stops_its_client(tmp_path):
    one = task(group=5, participations=3)
    file, summaries, path = tasks.signed(one, nodes.SIGNING), [], tmp_path / "run.npz"
    price = PersonalRound(one, 0, HYPOTHESES, operator(nodes.MASTER)).sanitiser.units
    apps = {}
    for number in range(5):
        held = nodes.context(node_config(tmp_path, number))
        if number == 4:  # one report and no more
            held.node_config["reticent-lifetime"] = 1.5 * price / 1e12
        app = nodes.app_of(improving(number % 2, 0.25), [PersonalMod()])
        apps[number] = lambda message, app=app, held=held: app(message, held)
    grid = nodes.Nodes(apps)
    made = PersonalStrategy(
        file, operator(nodes.MASTER), patience_s=0.0, checkpoint=path, on_round=summaries.append
    )
    result = made.start(grid, arrays(HYPOTHESES), num_rounds=2, timeout=1.0)
    again = PersonalStrategy(file, operator(nodes.MASTER), patience_s=0.0, checkpoint=path, resume=True)
    assert again.rounds_left == 1
    again.start(grid, arrays(HYPOTHESES), num_rounds=1, timeout=1.0)
    by_hand = PersonalTraining.begun(one, HYPOTHESES)
    for number, replies in enumerate(found for found in grid.replies if found):
        found = PersonalRound(one, number, by_hand.hypotheses, operator(nodes.MASTER))
        found.add([report for reply in replies if (report := records.payload_of(reply)) is not None])
        by_hand.step(found.reports())
    assert np.array_equal(again.training.hypotheses, by_hand.hypotheses)
    assert len(again.training.history) == 3
    assert [(summary.counted, summary.refused) for summary in summaries] == [(5, 0), (4, 1)]
    assert [(summary.price, summary.unit) for summary in summaries] == [(price / 1e12, "mu2")] * 2
    assert records.shapes(result.arrays) == {"weight": (2, 2), "bias": (2,)}


def test_the_unit_of_a_node_must_be_one_of_two(tmp_path):
    config = node_config(tmp_path, 0)
    with pytest.raises(ParameterError, match="reticent-unit must be mu2 or epsilon"):
        personal_of_node(nodes.context(config | {"reticent-unit": "rho"}))
    run = {"reticent-clients": str(tmp_path), "reticent-unit": "epsilon"} | config
    with personal_of_simulation(nodes.context({"partition-id": 0}, run)) as client:
        assert client.spent == 0.0
