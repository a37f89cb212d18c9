"""Flower without its processes: nodes whose apps are called in turn, with Flower's own messages.

What an app raises becomes an error reply with its text, as in a SuperNode.
"""

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from reticent.federated import tasks
from reticent.federated.flower import PrivateMod, records
from reticent.federated.models import Logistic
from reticent.fleet.enrolment import enrolled

MASTER = bytes(range(32))
SIGNING = Ed25519PrivateKey.from_private_bytes(bytes(range(100, 132)))
SIGNER = SIGNING.public_key().public_bytes_raw()
EPSILON = 1.25

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # those of Flower's process


def task(**changes):
    given = {
        "epsilon": EPSILON, "purpose": "a test", "rounds": 3, "group": 100, "rate": 0.5, "mechanism": "PM",
        "participations": min(2, changes.get("rounds", 3)),
    }  # fmt: skip
    return tasks.designed("test", Logistic(4), **given | changes)


def signed(one):
    return tasks.signed(one, SIGNING)


def node_config(folder, number=0, enrolment=None, **changes):
    """The configuration of a SuperNode, and its files."""
    path = folder / f"{number}.json"
    path.write_text((enrolment or enrolled(MASTER)).to_json())
    given = {
        "reticent-ledger": str(folder / f"{number}.ledger"),
        "reticent-enrolment": str(path),
        "reticent-marks": str(folder / "marks"),
        "reticent-signer": SIGNER.hex(),
        "reticent-lifetime": 10.0,
    }
    return {"partition-id": number} | given | changes


def context(config, run=None):
    return Context(run_id=1, node_id=7, node_config=config, state=RecordDict(), run_config=run or {})


def arrays(theta):
    """Parameters in two arrays of other shapes and types, as a network's."""
    theta = np.asarray(theta, dtype=np.float64)
    parts = {"weight": theta[:4].reshape(2, 2), "bias": theta[4:]}
    return ArrayRecord({name: Array(part.astype(np.float32)) for name, part in parts.items()})


def question(file, number=0, theta=(0.0,) * 5, kind=MessageType.TRAIN):
    message = Message(records.question(file, number, arrays(theta), ConfigRecord()), 7, kind, group_id="3")
    message.metadata.__dict__["_message_id"] = "the question"
    return message


def honest(gradient, rate=1.0):
    """An app that returns parameters after a step, with its loss and its number of examples."""

    def train(message, _context):
        (theta,) = message.content.array_records.values()
        moved = records.flat(theta, 5) - rate * np.asarray(gradient)
        metrics = MetricRecord({"loss": 0.123, "num-examples": 17})
        content = RecordDict({"arrays": arrays(moved), "metrics": metrics})
        return Message(content, reply_to=message)

    return train


def app_of(train, mods):
    app = ClientApp(mods=mods)
    app.train()(train)
    app.evaluate()(train)
    app.query()(train)
    return app


class Nodes(Grid):
    """A grid of apps: {node: callable of message and context, with its context}. None is a dead node."""

    def __init__(self, apps):
        self.apps, self.replies = apps, []

    def get_node_ids(self):
        return list(self.apps)

    def send_and_receive(self, messages, *, timeout=None):
        found = []
        for number, message in enumerate(messages):
            message.metadata.__dict__["_message_id"] = str(number)
            app = self.apps[message.metadata.dst_node_id]
            if app is None:
                continue
            try:
                found.append(app(message))
            except Exception as error:
                told = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, str(error))
                found.append(Message(told, reply_to=message))
        self.replies.append(found)
        return found

    def _not_used(self, *_, **__):
        raise NotImplementedError

    set_run = create_message = push_messages = pull_messages = _not_used
    run = property(_not_used)


def node(folder, number, gradient, mod=None, **config):
    """An honest node: its app behind the mod, with its own files."""
    app = app_of(honest(gradient), [mod or PrivateMod()])
    held = context(node_config(folder, number, **config))
    return lambda message: app(message, held)
