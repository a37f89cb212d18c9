"""A small fleet whose every byte is known: surveys, enrolments, reports, and the vectors of the documents.

`python tests/unit/collect/fleet.py` writes docs/report-vectors.json.
"""

import hashlib
import hmac
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.collect import instruments, wire
from reticent.collect.device import one_value
from reticent.collect.signing import signed
from reticent.collect.survey import Survey
from reticent.collect.wire import Layout
from reticent.federated import payload as training_payload
from reticent.federated.personalised import PersonalTask, Sanitiser
from reticent.federated.personalised import wire as personal_wire
from reticent.federated.steps import Steps
from reticent.federated.tasks import UNIT, Task
from reticent.fleet.enrolment import Enrolment, Use, device_key
from reticent.location import payload as place_payload
from reticent.mechanisms.base import Channel
from reticent.mechanisms.categorical import OLH, OUE
from reticent.mechanisms.numeric.one_bit import OneBit
from reticent.mechanisms.record import Category, Number
from reticent.mechanisms.sampling import sampled_attributes
from reticent.randomness import SimulationStream

VECTORS = Path(__file__).parents[3] / "docs" / "report-vectors.json"
MASTER = bytes(range(32))
SIGNING = Ed25519PrivateKey.from_private_bytes(bytes(range(100, 132)))
SIGNER = SIGNING.public_key().public_bytes_raw()
KEY = bytes(range(200, 232))
START, PERIOD_S = 1_700_000_000, 3600

SPEED = Number("speed", (0.0, 130.0))
KIND = Category("kind", ["car", "bus", "bike", "tram", "lorry"], "bike")
NUMERIC = {
    "Duchi": {},
    "ThreeOutputs": {},
    "PM": {"levels": 2001},
    "PMOpt": {"levels": 101},
    "PMSub": {"levels": 101},
    "HM": {"levels": 101},
    "HMTP": {"levels": 101},
    "OneBit": {"rho": 1.0, "dither_levels": 1024},
    "Window": {"window": 2, "y": [-2.5, -1.0, 0.0, 1.0, 2.5]},
    "Tailored": {"y": [-3.0, 2.0]},
}
CATEGORICAL = {"KRR": {}, "OUE": {}, "OLH": {"buckets": 5}, "Subset": {}}
KINDS = (*(kind for kind in NUMERIC if kind != "Tailored"), *CATEGORICAL, "Tailored")


def instrument(attribute, kind, epsilon):
    """A mechanism of a kind."""
    options = (NUMERIC | CATEGORICAL)[kind]
    if kind == "Subset":
        values = attribute.values if isinstance(attribute.values, int) else len(attribute.values)
        options = {"subset_size": max(1, (values - 1) // 2)}
    if kind == "Tailored":  # two outputs at three knots, after Duchi
        weight = int(2**50 / (2 + 2 * math.exp(epsilon)))
        columns = [[output, weight, pattern] for output, pattern in zip((1, 1, 0, 0), "6413", strict=True)]
        options = options | {"columns": columns}
    return instruments.made(attribute, {"kind": kind, "epsilon": epsilon} | options)


def survey(*asked, epsilon=1.0, name="fleet", **changes):
    """A survey of (attribute, kind of mechanism or mechanism) pairs, each under epsilon/sample_size."""
    size = changes.get("sample_size", len(asked))
    made = [one if not isinstance(one, str) else instrument(of, one, epsilon / size) for of, one in asked]
    fields = {
        "name": name,
        "version": "1",
        "purpose": "to test",
        "epsilon": epsilon,
        "start": START,
        "period_s": PERIOD_S,
        "periods": 24,
        "sample_size": size,
        "key": KEY,
    }
    attributes = tuple(of for of, _ in asked)
    return Survey(attributes=attributes, instruments=tuple(made), **fields | changes)


def single(kind, **changes):
    """A survey of one attribute by a mechanism of a kind."""
    return survey((SPEED if kind in NUMERIC else KIND, kind), **{"name": kind} | changes)


def mixed(**changes):
    """A survey of five attributes, of which each report holds two."""
    asked = (
        (SPEED, "OneBit"),
        (KIND, "KRR"),
        (Number("age", (0.0, 20.0)), "PM"),
        (Category("zone", 10), "OLH"),
        (Number("load"), "Window"),
    )
    return survey(*asked, **{"epsilon": 4.0, "sample_size": 2, "name": "mixed"} | changes)


def wide(**changes):
    """A survey of nine attributes: their bits take two bytes."""
    asked = [(Number(f"axle-{i}", (0.0, 10.0)), "OneBit" if i % 2 else "ThreeOutputs") for i in range(8)]
    fields = {"epsilon": 3.0, "sample_size": 3, "name": "wide"}
    return survey(*asked, (KIND, "OUE"), **fields | changes)


def enrolment(number):
    """The enrolment of a device of this fleet."""
    identity = hashlib.sha256(f"device {number}".encode()).digest()[:8]
    return Enrolment(identity, device_key(MASTER, identity))


def reporter(enrolled):
    """The id as the numbers that `lots` takes."""
    return np.frombuffer(enrolled.id, dtype=">u8").astype(np.uint64)


def body(layout, enrolled, period, values, stream):
    """The attributes and symbols of a report, and what was drawn, as a device makes them."""
    of, ids = layout.survey, reporter(enrolled)
    size, d = of.sample_size, len(of.attributes)
    if of.assigned:
        asked = np.flatnonzero(of.lots.attributes(ids, period, size, d)[0]).tolist()
    else:
        asked = sampled_attributes(1, d, size, stream)[0].tolist()
    drawn = []
    for place in asked:
        attribute, mechanism = of.attributes[place], of.instruments[place]
        value = one_value(values.get(attribute.name), is_number=isinstance(attribute, Number))
        if isinstance(mechanism, OneBit):
            level = of.lots.dither(ids, period, place, mechanism.dither_levels)
            drawn.append(mechanism.sample(value, stream, dither=level))
        else:
            draw = mechanism.sample if isinstance(mechanism, Channel) else mechanism.perturb
            drawn.append(draw(value, stream))
    return layout.body(asked, drawn), dict(zip(asked, drawn, strict=True))


def report(of, enrolled, period=0, values=None, *, stream, nonce=bytes(8), layout=None):
    """A report as a device makes it, without the device's ledger."""
    layout = layout or Layout(of)
    return layout.report(enrolled, period, nonce, body(layout, enrolled, period, values or {}, stream)[0])


VALUES = {"speed": 87.5, "kind": "tram", "age": 3.0, "zone": 7, "load": -0.25, "axle-0": 9.0, "axle-1": 1.0}


def vectors():
    """What docs/report-vectors.json holds."""
    surveys = [single(kind) for kind in KINDS]
    surveys += [mixed(), mixed(assigned=True, groups=4, name="assigned"), wide()]
    surveys.append(wide(assigned=True, groups=1024, name="wide-assigned"))
    found = [
        {
            "id": one.id.hex(),
            "text": one.text.decode(),
            "reports": [_vector(one, device, period) for device, period in ((0, 0), (1, 0), (2, 23))],
        }
        for one in surveys
    ]
    reports = [bytes.fromhex(one["report"]) for of in found for one in of["reports"]]
    return {
        "master": MASTER.hex(),
        "signing_key": SIGNING.private_bytes_raw().hex(),
        "signed": signed(surveys[0], SIGNING).decode(),
        "surveys": found,
        "batch": wire.batch(reports[:3]).hex(),
        "others": _others(),
        "version_1": [_version_1(surveys[0], found[0])],
    }


def _others():
    """A report of each other use of a device's key. Of a campaign's round only the id matters here."""
    who, task, personal = enrolment(0), _task(), PersonalTask(**_PERSONAL)
    asked = SimpleNamespace(id=bytes(range(8)), grid=SimpleNamespace(size=300))
    sanitiser = Sanitiser(personal, [[0.0, 0.0]])
    return [
        _other(who, Use.TRAINING, training_payload.written(task, who, 3, b"\x80"), task, 3),
        _other(
            who,
            Use.PERSONAL_TRAINING,
            personal_wire.written(sanitiser, who, 4, [-70_000, 70_000]),
            personal,
            4,
        ),
        _other(who, Use.PLACE, place_payload.written(asked, who, 258)),
    ]


def _other(who, use, report, task=None, number=None):
    of = {} if task is None else {"text": task.text.decode(), "round": number}
    body = report[17 if task is None else 21 : -16]
    told = {"label": use.value.decode().strip(), **of, "id": report[1:9].hex(), "reporter": who.id.hex()}
    return told | {"body": body.hex(), "report": report.hex()}


_PERSONAL = {
    "name": "two", "version": "1", "purpose": "to test", "model": None, "dimensions": 2, "hypotheses": 1,
    "clip": 1.0, "reach": 12.0, "level": 4.0, "rounds": 5, "group": 10, "rate": 0.1,
}  # fmt: skip


def _task():
    each = instruments.made(UNIT, {"kind": "Duchi", "epsilon": 1.0})
    return Task(
        name="duchi", version="1", purpose="to test", model=None, dimensions=6, bounds=1.0, epsilon=1.0,
        mechanism=each, sample_size=1, rounds=10, group=100, participations=1, steps=Steps(0.5), key=KEY,
    )  # fmt: skip


def _version_1(of, given):
    """The first report as 0.1.0 made it: tags had no label."""
    first = given["reports"][0]
    content, key = b"\x01" + bytes.fromhex(first["report"])[1:-16], bytes.fromhex(first["key"])
    report = content + hmac.digest(key, content, "sha256")[:16]
    return {"text": given["text"], "key": first["key"], "report": report.hex()}


def _vector(of, device, period):
    layout, enrolled, ids = Layout(of), enrolment(device), reporter(enrolment(device))
    nonce = hashlib.sha256(b"nonce" + of.id + enrolled.id).digest()[:8]
    stream = SimulationStream(8, path=(KINDS.index(of.name) if of.name in KINDS else 99, device))
    content, drawn = body(layout, enrolled, period, VALUES, stream)
    names = [one.name for one in of.attributes]
    return {
        "reporter": enrolled.id.hex(),
        "key": enrolled.key.hex(),
        "period": period,
        "nonce": nonce.hex(),
        "group": int(of.lots.group(ids, of.groups)[0]),
        "symbols": {names[place]: _plain(of.instruments[place], one) for place, one in drawn.items()},
        "report": layout.report(enrolled, period, nonce, content).hex(),
    }


def _plain(mechanism, drawn):
    """A symbol as the documents tell it."""
    if isinstance(mechanism, OneBit):
        return {"level": int(drawn[0]) // 2, "bit": int(drawn[0]) % 2}
    if isinstance(mechanism, OUE):
        return [int(bit) for bit in drawn[0]]
    if isinstance(mechanism, OLH):
        return {"seed": f"{int(drawn[0]['seed']):016x}", "value": int(drawn[0]["value"])}
    return int(drawn[0])


def vectors_text():
    """The vectors as the file holds them."""
    return json.dumps(vectors(), indent=1) + "\n"


if __name__ == "__main__":
    VECTORS.write_text(vectors_text())
