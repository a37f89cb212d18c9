"""Whatever the app inside does: one report, paid for, and nothing else. Every check has planted bugs."""

import subprocess
import sys

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MessageType, MetricRecord, RecordDict

from reticent.errors import ParameterError
from reticent.federated import Client, payload
from reticent.federated.flower import PrivateMod, mod, of_simulation, private_mod, records
from reticent.federated.payload import Outcome
from reticent.federated.server import Round
from reticent.fleet.enrolment import enrolled

from ...operating import operator
from . import nodes

SECRET = 0.6180339887


def answering(content):
    return lambda message, _: Message(content(message), reply_to=message)


def raising(error):
    def train(_message, _context):
        raise error

    return train


def mutating(message, _context):
    """An app that writes what it knows wherever it can."""
    message.metadata.__dict__["_message_id"] = str(SECRET)
    message.metadata.group_id = str(SECRET)
    message.metadata.__dict__["_src_node_id"] = 618
    message.content["arrays"] = nodes.arrays([SECRET] * 5)
    message.content["config"][records.ROUND] = 1
    return nodes.honest([SECRET] * 5)(message, _context)


def strict(message, context):
    np.seterr(all="raise")
    return nodes.honest([1e-300] * 5)(message, context)


APPS = {
    "honest": nodes.honest([SECRET] * 5),
    "huge": nodes.honest([1e38] * 5),
    "endless": nodes.honest([np.inf, -np.inf, np.nan, 0.0, 1.0]),
    "raises": raising(ValueError(f"income {SECRET}")),
    "exits": raising(SystemExit(f"income {SECRET}")),
    "returns nothing": lambda *_: None,
    "returns an error": lambda message, _: Message(Error(0, f"income {SECRET}"), reply_to=message),
    "returns no arrays": answering(lambda _: RecordDict({"m": MetricRecord({"loss": SECRET})})),
    "returns two records": answering(lambda _: RecordDict({"a": ArrayRecord(), "b": ArrayRecord()})),
    "returns other shapes": answering(lambda _: RecordDict({"a": ArrayRecord([np.full(5, SECRET)])})),
    "returns text": answering(lambda _: RecordDict({"a": ConfigRecord({"income": str(SECRET)})})),
    "returns what came": answering(lambda message: message.content),
    "mutates": mutating,
    "makes numpy strict": strict,
}


def what_left(reply):
    """Everything that a server sees of a reply, but the time."""
    seen = reply.metadata
    meta = (seen.run_id, seen.message_id, seen.src_node_id, seen.dst_node_id, seen.reply_to_message_id)
    meta += (seen.group_id, seen.message_type, seen.src_task_id, seen.dst_task_id)
    if reply.has_error():
        return meta, (reply.error.code, reply.error.reason)
    return meta, {name: dict(record) for name, record in reply.content.items()}


def check_train(folder, make, apps=APPS, **changes):
    """One report, paid for, of the same form whatever the app did; or AssertionError."""
    task, forms = nodes.task(**changes), []
    file = nodes.signed(task)
    for number, train in enumerate(apps.values()):
        held = nodes.context(nodes.node_config(folder, number))
        app, message = nodes.app_of(train, [make()]), nodes.question(file)
        with np.errstate():
            try:
                reply = app(message, held)
            except (Exception, SystemExit) as error:
                raise AssertionError("the app's error left the node") from error
        meta, content = what_left(reply)
        forms.append(meta)
        assert isinstance(content, dict), "no report"
        assert list(content) == ["report"], "something beside a report"
        assert list(content["report"]) == ["payload"]
        report = content["report"]["payload"]
        assert Round(task, 0, operator(nodes.MASTER)).add([report]) == [Outcome.COUNTED]
        with of_files(folder, number) as client:
            assert client.ledger.balance("training").spent == task.units, "not paid for"
            assert client.report(client.take(file), 0, np.ones(5)) == report, "not what was paid for"
    assert len(set(forms)) == 1, "the envelope depends on the data"


def of_files(folder, number):
    run = {"reticent-clients": str(folder), "reticent-signer": nodes.SIGNER.hex(), "reticent-lifetime": 10.0}
    return of_simulation(nodes.context({"partition-id": number}, run))


def test_one_report_whatever_the_app_does(tmp_path):
    check_train(tmp_path, PrivateMod)


def test_one_report_by_codebook_whatever_the_app_does(tmp_path):
    check_train(tmp_path, PrivateMod, mechanism="Codebook", length=2.0)


class Forwards(PrivateMod):
    def __call__(self, message, context, call_next):
        reply = super().__call__(message, context, call_next)
        reply.content["arrays"] = next(iter(call_next(message, context).content.array_records.values()))
        return reply


class LeaksMetrics(PrivateMod):
    def __call__(self, message, context, call_next):
        found = []

        def watched(message, context):
            found.append(call_next(message, context))
            return found[0]

        reply = super().__call__(message, context, watched)
        reply.content["metrics"] = found[0].content["metrics"]
        return reply


class SilentOnError(PrivateMod):
    def _trained(self, app, asked):
        return self._found(app(), asked)


class TellsTheError(PrivateMod):
    def __call__(self, message, context, call_next):
        try:
            call_next(message, context)
        except Exception as error:
            return Message(Error(0, str(error)), reply_to=message)
        return super().__call__(message, context, call_next)


class RepliesToWhatTheAppLeft(PrivateMod):
    def __call__(self, message, context, call_next):
        reply = super().__call__(message, context, lambda _, context: call_next(message, context))
        return Message(reply.content, reply_to=message)


class NotPaid(Client):
    def report(self, task, number, gradient):
        asked = self._symbols(task, number, gradient, self._stream)
        return payload.written(task, self._enrolment, number, asked)


def unpaid():
    def client(context):
        made = mod.of_node(context)
        made.__class__ = NotPaid
        return made

    return PrivateMod(client)


@pytest.mark.parametrize(
    ("planted", "caught"),
    [
        (Forwards, "something beside a report"),
        (LeaksMetrics, "something beside a report"),
        (SilentOnError, "the app's error left"),
        (TellsTheError, "no report"),
        (RepliesToWhatTheAppLeft, "the envelope"),
        (unpaid, "not paid for"),
    ],
)
def test_planted_bugs_are_caught(tmp_path, planted, caught):
    with pytest.raises(AssertionError, match=caught):
        check_train(tmp_path, planted)


def test_no_mod_at_all_is_caught(tmp_path):
    with pytest.raises(AssertionError, match="something beside a report"):
        check_train(tmp_path, lambda: lambda message, context, call_next: call_next(message, context))


class Listening(Client):
    """A client that keeps what it was given to report."""

    heard: list

    def report(self, task, number, gradient):
        self.heard.append(gradient)
        return super().report(task, number, gradient)


@pytest.mark.parametrize(("returns", "rate"), [("parameters", 0.25), ("gradient", 1.0)])
def test_what_is_made_private_is_the_gradient(tmp_path, returns, rate):
    heard, theta, gradient = [], np.arange(5.0), np.array([0.5, -0.25, 0.125, 2.0, -4.0])

    def client(context):
        made = mod.of_node(context)
        made.__class__, made.heard = Listening, heard
        return made

    if returns == "gradient":
        train = answering(lambda _: RecordDict({"a": nodes.arrays(gradient)}))
    else:
        train = nodes.honest(gradient, rate)
    made = PrivateMod(client, returns=returns, local_rate=rate)
    held = nodes.context(nodes.node_config(tmp_path))
    nodes.app_of(train, [made])(nodes.question(nodes.signed(nodes.task()), theta=theta), held)
    assert np.array_equal(heard[0], gradient)


def test_arrays_in_another_order_are_matched_by_name(tmp_path):
    heard, gradient = [], np.array([1.0, 2.0, 3.0, 4.0, 5.0])

    def client(context):
        made = mod.of_node(context)
        made.__class__, made.heard = Listening, heard
        return made

    turned = RecordDict({"a": ArrayRecord(dict(reversed(nodes.arrays(gradient).items())))})
    held = nodes.context(nodes.node_config(tmp_path))
    app = nodes.app_of(answering(lambda _: turned), [PrivateMod(client, returns="gradient")])
    app(nodes.question(nodes.signed(nodes.task())), held)
    assert np.array_equal(heard[0], gradient)


# Refusals: public grounds only, and no words but those of `Refusal`


def refusal(reply):
    _, told = what_left(reply)
    assert isinstance(told, tuple), "something was sent"
    return told[1]


def check_other_messages(folder, make):
    """Nothing that comes from the data answers a message that is no training."""
    for number, kind in enumerate((MessageType.EVALUATE, MessageType.QUERY)):
        held = nodes.context(nodes.node_config(folder, number))
        reply = nodes.app_of(APPS["honest"], [make()])(nodes.question(b"", kind=kind), held)
        assert refusal(reply) == records.REFUSED + mod.Refusal.KIND.value


def test_evaluation_and_queries_are_refused(tmp_path):
    check_other_messages(tmp_path, PrivateMod)


def test_evaluation_that_answers_is_caught(tmp_path):
    class Evaluates(PrivateMod):
        def __call__(self, message, context, call_next):
            if message.metadata.message_type == MessageType.TRAIN:
                return super().__call__(message, context, call_next)
            return call_next(message, context)

    with pytest.raises(AssertionError, match="something was sent"):
        check_other_messages(tmp_path, Evaluates)


def test_a_public_holdout_may_be_evaluated_on_and_nothing_else(tmp_path):
    app = nodes.app_of(APPS["honest"], [PrivateMod(public_holdout=True)])
    held = nodes.context(nodes.node_config(tmp_path))
    told = app(nodes.question(b"", kind=MessageType.EVALUATE), held)
    assert told.content["metrics"]["loss"] == 0.123
    assert "training only" in refusal(app(nodes.question(b"", kind=MessageType.QUERY), held))


def bad_questions():
    good = nodes.task()
    file = nodes.signed(good)
    yield nodes.question(file, number=3)
    yield nodes.question(file, number=-1)
    yield nodes.question(file[:-9] + b"}")
    yield nodes.question(nodes.tasks.signed(good, nodes.Ed25519PrivateKey.generate()))
    yield nodes.question(nodes.signed(nodes.task(epsilon=9.0)))  # more than the node allows
    for broken in ({}, {records.TASK: file}, {records.TASK: "text", records.ROUND: 0}):
        message = nodes.question(file)
        message.content["config"] = ConfigRecord(broken)
        yield message
    message = nodes.question(file)
    message.content["arrays"] = ArrayRecord([np.zeros(4)])
    yield message
    message = nodes.question(file)
    message.content["arrays"]["bias"].data = b"no numbers"
    yield message
    message = nodes.question(file)
    del message.content["arrays"]
    yield message


def test_what_is_no_task_for_this_client_is_refused_and_costs_nothing(tmp_path):
    app, config = nodes.app_of(APPS["honest"], [private_mod]), nodes.node_config(tmp_path)
    config["reticent-most"] = 4.0
    for message in bad_questions():
        reply = app(message, nodes.context(config))
        assert refusal(reply) == records.REFUSED + mod.Refusal.TASK.value
    with of_files(tmp_path, 0) as client:
        assert client.spent == 0.0


def check_budget(folder, make):
    """Reports cost what they cost, and stop; the same round again is free and the same."""
    task = nodes.task(participations=3)
    file, held = nodes.signed(task), nodes.context(nodes.node_config(folder) | {"reticent-lifetime": 2.5})
    app = nodes.app_of(APPS["honest"], [make()])
    sent = [what_left(app(nodes.question(file, number), held)) for number in (0, 0, 1, 2)]
    assert sent[0] == sent[1], "two reports of one round"
    assert sent[1] != sent[2]
    assert sent[3][1] == (6, records.REFUSED + mod.Refusal.BUDGET.value), "not charged"


def test_the_ledger_stops_a_client(tmp_path):
    check_budget(tmp_path, PrivateMod)


def test_a_skipped_ledger_is_caught(tmp_path):
    with pytest.raises(AssertionError, match=r"two reports|not charged"):
        check_budget(tmp_path, unpaid)


def test_participations_are_spent(tmp_path):
    app, held = nodes.app_of(APPS["honest"], [private_mod]), nodes.context(nodes.node_config(tmp_path))
    file = nodes.signed(nodes.task(participations=1))
    assert not app(nodes.question(file, 1), held).has_error()
    assert "no further round" in refusal(app(nodes.question(file, 2), held))


@pytest.mark.parametrize("name", ["ledger", "enrolment", "signer", "lifetime"])
def test_a_node_that_is_not_set_up_says_so_and_not_why(tmp_path, name):
    app, config = nodes.app_of(APPS["honest"], [private_mod]), nodes.node_config(tmp_path)
    for broken in (None, "", str(tmp_path / "not" / "there"), 3.5j):
        changed = config | {f"reticent-{name}": broken}
        reply = app(nodes.question(nodes.signed(nodes.task())), nodes.context(changed))
        assert refusal(reply) == records.REFUSED + mod.Refusal.SET_UP.value
    with of_files(tmp_path, 0) as client:
        assert client.spent == 0.0


def test_the_run_cannot_choose_a_nodes_ledger(tmp_path):
    config = nodes.node_config(tmp_path)
    chosen = {name: value for name, value in config.items() if name != "partition-id"}
    app = nodes.app_of(APPS["honest"], [private_mod])
    message = nodes.question(nodes.signed(nodes.task()))
    reply = app(message, nodes.context({"partition-id": 0}, chosen | {"reticent-clients": str(tmp_path)}))
    assert "not set up" in refusal(reply)


def test_a_simulation_needs_a_number_and_a_folder(tmp_path):
    nodes.node_config(tmp_path)
    with pytest.raises(ParameterError, match="partition-id"):
        of_files(tmp_path, "0/../0")
    with pytest.raises(ParameterError, match="reticent-clients"):
        of_simulation(nodes.context({"partition-id": 0}))


@pytest.mark.parametrize(
    ("changes", "told"), [({"returns": "loss"}, "returns must be one"), ({"local_rate": 0.0}, "local_rate")]
)
def test_a_mod_has_rules(changes, told):
    with pytest.raises(ParameterError, match=told):
        PrivateMod(**changes)


def test_enrolments_of_other_masters_make_reports_nobody_counts(tmp_path):
    held = nodes.context(nodes.node_config(tmp_path, enrolment=enrolled(bytes(32))))
    task = nodes.task()
    reply = nodes.app_of(APPS["honest"], [private_mod])(nodes.question(nodes.signed(task)), held)
    report = records.payload_of(reply)
    assert Round(task, 0, operator(nodes.MASTER)).add([report]) == [Outcome.TAG]


def test_the_core_does_not_import_flower():
    program = "import sys, reticent.federated, reticent.federated.personalised; print('flwr' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
