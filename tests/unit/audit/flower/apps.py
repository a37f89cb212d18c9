"""Apps to be judged: plain ones, ones with a planted leak each, and one behind the mod."""

import struct
import tempfile
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from reticent.audit.flower import Node
from reticent.federated.flower import PrivateMod, records
from reticent.federated.models import Logistic
from reticent.fleet.enrolment import enrolled

from ...federated.flower import nodes

MODEL, THETA = Logistic(4), np.array([0.2, -0.1, 0.4, 0.3, 0.05])
RECORDS = np.array([[0.31, 0.02, 0.77, 0.5], [-0.4, 0.9, 0.1, -0.2], [0.6, 0.6, -0.3, 0.8]])
TARGETS = np.array([1.0, -1.0, 1.0])
RATE = 0.1
ENROLMENT = enrolled(nodes.MASTER)

HELD: dict = {}  # where the apps read their data


def holding(features, targets, make=None):
    """A data set, as the audit is given it."""

    def data_set():
        HELD["x"], HELD["y"] = np.array(features), np.array(targets)
        return Node(records=features) if make is None else make(features)

    return data_set


def neighbours(make=None):
    """All records, one replaced, one missing."""
    other = np.array([[-0.8, 0.1, 0.2, 0.9], *RECORDS[1:]])
    return [
        holding(RECORDS, TARGETS, make),
        holding(other, TARGETS, make),
        holding(RECORDS[1:], TARGETS[1:], make),
    ]


def single():
    """One record each."""
    return [holding(RECORDS[:1], TARGETS[:1]), holding(RECORDS[1:2], TARGETS[1:2])]


def trained(message):
    (arrays,) = message.content.array_records.values()
    theta = np.concatenate([np.ravel(array.numpy()) for array in arrays.values()])
    moved = theta - RATE * MODEL.mean_gradient(theta, HELD["x"], HELD["y"])
    return records.shaped(moved, arrays)


def app_of(content, mods=()):
    """A ClientApp whose replies hold what `content` makes of a message."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message, context):
        return Message(RecordDict(content(message)), reply_to=message)

    return app


def metrics(**values):
    return {"metrics": MetricRecord(values)}


def raising(_message):
    raise ValueError(f"income {HELD['x'][0, 0]} is out of range")


def lost(_message):
    raise FileNotFoundError("no data")


def failing(message):
    if HELD["x"][0, 0] < 0:
        raise ValueError("out of range")
    return metrics(rounds=1)


def ending(_message):
    if HELD["x"][0, 0] < 0:
        raise SystemExit(1)
    return metrics(rounds=1)


class Uniform:
    """Noise of a test, without a seed that an app could be blamed for."""

    def __init__(self):
        self._generator = np.random.default_rng(5)

    def __call__(self):
        return float(self._generator.uniform())


NOISE = Uniform()


class Later:
    """A leak that only comes after the first runs, beside noise that has the app run more often."""

    def __init__(self, place):
        self._place, self._count = place, 0

    def __call__(self, _message):
        self._count += 1
        secret = float(sign()) if self._count > 200 else 0.0
        if self._place == "key":
            return metrics(noise=NOISE(), **({"more": 1} if secret else {}))
        if self._place == "array":
            return array_of(np.array([NOISE(), secret]))
        return metrics(noise=NOISE(), told=secret)


def sign():
    return int(HELD["x"][0, 0] > 0)


def array_of(numbers, **changes):
    array = Array(numbers)
    for name, value in changes.items():
        setattr(array, name, value)
    return {"arrays": ArrayRecord({"w": array})}


def wide():
    """A whole number of which a double holds only the first digits."""
    return (int(NOISE() * 2**52) << 10) + 2**61


def odd_number():
    return float(np.array([-0.0, np.nan, -np.inf, 1.5])[int(4 * NOISE())])


QUIET = {
    "odd numbers": lambda _: metrics(noise=odd_number()) | array_of(np.array([odd_number(), NOISE()])),
    "complex and wide": lambda _: metrics(wide=wide()) | array_of(np.array([NOISE() + 1j * NOISE()])),
    "constant": lambda _: metrics(rounds=1),
    "echo": lambda message: {"arrays": next(iter(message.content.array_records.values()))},
    "noise alone": lambda _: metrics(noise=NOISE()),
    "empty": lambda _: {},
}
LEAKY = {
    "parameters": (lambda message: {"arrays": trained(message)}, r"arrays\.theta.*depends on the data"),
    "examples": (lambda _: metrics(**{"num-examples": len(HELD["x"])}), "how many examples there are: 3 on"),
    "loss": (
        lambda _: metrics(train_loss=float(MODEL.losses(THETA, HELD["x"], HELD["y"]).mean())),
        "how well the model fits these records",
    ),
    "error text": (raising, "what the app writes of its data in an error.*income 0.31"),
    "an error at all": (failing, "of which form the reply is"),
    "silence": (ending, "of which form the reply is"),
    "size": (
        lambda _: {"config": ConfigRecord({"log": "x" * int(10 * (1 + HELD["x"][0, 0]))})},
        "a length that depends on the data",
    ),
    "list": (lambda _: metrics(history=[0.0] * len(HELD["x"])), "a length that depends on the data"),
    "name": (lambda _: metrics(**{f"seen-{len(HELD['x'])}": 1}), "of which form the reply is"),
    "loss now and then": (
        lambda _: metrics(**({"loss": HELD["x"][0, 0]} if NOISE() < 0.5 else {})),
        "how well the model fits",
    ),
    "nothing, in words": (
        lambda _: {"config": ConfigRecord({"said": "nothing"} if HELD["x"][0, 0] < 0 else {})},
        "of which form the reply is",
    ),
    "empty record": (lambda _: {f"is-{sign()}": MetricRecord({})}, "of which form"),
    "kind of record": (lambda _: {"m": (MetricRecord, ConfigRecord)[sign()]({"a": 1})}, "of which form"),
    "where a name ends": (
        lambda _: {"a": MetricRecord({"b.c": 1})} if sign() else {"a.b": MetricRecord({"c": 1})},
        "of which form",
    ),
    "kind of array": (lambda _: array_of(np.ones(2), stype=f"mine-{sign()}"), "of which form"),
    "after the numbers": (
        lambda _: array_of(np.ones(2), data=Array(np.ones(2)).data + bytes([sign()])),
        r"bytes around arrays\.w",
    ),
    "which NaN": (
        lambda _: metrics(v=struct.unpack("<d", struct.pack("<Q", (0x7FF8 << 48) + sign()))[0]),
        r"metrics\.v",
    ),
    "sign of zero": (lambda _: metrics(v=1.0 if NOISE() < 0.1 else (0.0, -0.0)[sign()]), r"metrics\.v"),
    "last digits": (lambda _: metrics(v=wide() + sign()), r"metrics\.v"),
    "last digits of arrays": (lambda _: array_of(np.array([wide() + sign()])), r"arrays\.w"),
    "imaginary part": (lambda _: array_of(np.array([NOISE() + 1j * sign()])), r"arrays\.w"),
    "array of texts": (lambda _: array_of(np.array([f"{sign()}{NOISE() < 0.5:d}"])), r"arrays\.w"),
    "noisy list": (lambda _: metrics(v=[NOISE(), NOISE() + 2 * sign()]), r"metrics\.v"),
    "noise that is none at times": (
        lambda _: metrics(v=float("nan") if NOISE() < 0.1 else NOISE() + 2 * sign()),
        r"metrics\.v",
    ),
    "later": (Later("value"), r"metrics\.told"),
    "later, by its name": (Later("key"), r"metrics\.more"),
    "later, in a place": (Later("array"), r"arrays\.w"),
    "noisy loss": (lambda _: metrics(loss=NOISE() + HELD["x"][0, 0]), "how well the model fits"),
    "other bytes": (
        lambda _: {
            "arrays": ArrayRecord(
                {"a": Array("object", (1,), "pickle", np.float64(HELD["x"][0, 0]).tobytes())}
            )
        },
        r"arrays\.a",
    ),
}


def behind(mod_class=PrivateMod, **options):
    """An app that would leak everything, behind a mod."""
    return app_of(
        lambda message: (
            {"arrays": trained(message)} | metrics(**{"num-examples": len(HELD["x"]), "loss": 0.5})
        ),
        [mod_class(local_rate=RATE, **options)],
    )


def numbering(message):
    """An app that knows its arrays by their order."""
    (theta,) = message.content["arrays"].to_numpy_ndarrays()
    moved = theta - RATE * MODEL.mean_gradient(theta, HELD["x"], HELD["y"])
    return {"arrays": ArrayRecord([moved])}


def private_node(folder):
    """Nodes with a ledger of their own for every run: the same client, who reports once."""
    file = nodes.signed(nodes.task(rounds=1, participations=1))

    def make(_features):
        place = Path(tempfile.mkdtemp(dir=folder))
        config = nodes.node_config(place, 0, ENROLMENT)
        same = {name: value for name, value in config.items() if name != "partition-id"}
        return Node(node_config=same, config={records.TASK: file, records.ROUND: 0})

    return make
