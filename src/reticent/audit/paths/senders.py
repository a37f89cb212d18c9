"""The kinds of devices as an audit of their messages sees them: two private values far apart, odd ones.

Everything is as in production: a text that is signed, an enrolment, a ledger in a file, marks, secure noise.
The class of the device may be another one, which is how planted bugs come in.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.audit.total import ODD_VALUES
from reticent.collect import instruments, wire
from reticent.collect.device import NONCE_BYTES, Device
from reticent.collect.survey import Survey
from reticent.federated import payload
from reticent.federated.client import Client
from reticent.federated.models import Linear
from reticent.federated.personalised import wire as personal_wire
from reticent.federated.personalised.client import PersonalClient
from reticent.federated.personalised.noise import Sanitiser
from reticent.federated.personalised.tasks import PersonalTask
from reticent.federated.server import summed
from reticent.federated.tasks import MOST_PARTICIPATIONS, designed
from reticent.fleet.enrolment import KEY_BYTES, TAG_BYTES, Use, enrolled, tag
from reticent.fleet.lots import KEY_BYTES as LOT_BYTES
from reticent.fleet.published import Published
from reticent.fleet.signing import signed
from reticent.ledger.device.marks import Marks
from reticent.location import payload as place_payload
from reticent.location.device import LocationDevice
from reticent.location.rounds import PlaceRound
from reticent.mechanisms.location import ElasticChannel
from reticent.mechanisms.record import Attribute, Category, Number
from reticent.privacy import GaussianDP
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.spaces import Box, Grid

MOST_REPORTS = MOST_PARTICIPATIONS
_WORDS: dict[str, Any] = {"name": "audit", "purpose": "to be audited"}
_MODEL = Linear(1, l2=0.0, intercept=False)
_MAP = Grid.over(Box(48.84, 48.86, 2.30, 2.33), 2, 2)


class Sender(ABC):
    """One kind of devices, as an audit of messages sees them.

    Attributes:
        name: Name of the kind in the report.
        use: Use of the device's key.
        notion: Unit of the claim: "epsilon", "mu", "epsilon per km".
        values: Two private values.
        odd: Private values that must be reported like any other.
        probes: Missing and unreadable values, whose messages are compared with those of the two values too.

    Args:
        kind: Class of the device.
        level: Claim of one report: between the two values, or per unit of their distance.
        units: Cost of one report in the ledger, in units of 1e-12.
        width: Count of numbers in a message.
        distance: Distance between the two values, in units of the claim.
    """

    name: ClassVar[str]
    use: ClassVar[Use]
    notion: ClassVar[str] = "epsilon"
    values: tuple[Any, Any]
    odd: Sequence[Any] = ODD_VALUES
    probes: Sequence[Any] = (math.nan,)

    def __init__(
        self, kind: type[Any], *, level: float, units: int, width: int, distance: float = 1.0
    ) -> None:
        self.kind, self.level, self.width, self.distance = kind, level, width, distance
        self.price = units / UNITS_PER_ONE
        self._signing = Ed25519PrivateKey.generate()
        self._enrolment = enrolled(os.urandom(KEY_BYTES))

    @property
    def gaussian(self) -> bool:
        """Return whether the claim is in mu."""
        return self.notion == "mu"

    def apart(self, first: Sequence[Any], second: Sequence[Any]) -> float:
        """Return the distance between two sequences of values, one for each report, in units of the claim."""
        gaps = [self._gap(one, other) for one, other in zip(first, second, strict=True)]
        return math.hypot(*gaps) if self.gaussian else sum(gaps)

    def _gap(self, first: Any, second: Any) -> float:
        """Return the distance between two values, in units of the claim."""
        return 0.0 if first is second else self.distance

    def opened(self, folder: Path, reports: float) -> Any:
        """Open a device with a budget for so many reports, with ledger and marks in a folder of its own."""
        folder.mkdir(parents=True)
        signer, marks = self._signing.public_key().public_bytes_raw(), Marks(folder / "marks")
        options = self._options(reports * self.price)
        return self.kind(folder / "ledger", self._enrolment, signer, marks=marks, **options)

    def _options(self, lifetime: float) -> dict[str, Any]:
        return {"lifetime": lifetime, "most": self.price}

    def _taken(self, device: Any, asked: Published) -> Any:
        """Sign a task or survey, and return the document as the device takes it."""
        return device.take(signed(asked, self._signing))

    @abstractmethod
    def said(self, device: Any, number: int, value: Any) -> bytes:
        """Return the report of a round."""

    @abstractmethod
    def body(self, message: bytes) -> list[int]:
        """Return the content of a message as integers."""

    def rest(self, message: bytes | None) -> list[int]:
        """Return the bytes that ought to say nothing, eight at most."""
        return []

    def numbers(self, message: bytes | None) -> list[int]:
        """Return length, validity of the tag, and content; of no message likewise, with a length of -1."""
        if message is None:
            return [-1, 0, *[0] * self.width]
        content, sent = message[:-TAG_BYTES], message[-TAG_BYTES:]
        found = self.body(message)[: self.width]
        is_right = sent == tag(self._enrolment.key, self.use, content)
        return [len(message), is_right, *found, *[0] * (self.width - len(found))]


class Clients(Sender):
    """Clients of LDP-FedSGD, from a record to bytes: its gradient is far beyond the bounds."""

    name, use, values = "Client (messages)", Use.TRAINING, (50.0, -50.0)

    def __init__(self, kind: type[Any] = Client, *, epsilon: float = 1.0) -> None:
        self._task = designed(
            **_WORDS, model=_MODEL, epsilon=epsilon, rounds=MOST_REPORTS, group=1, rate=0.1,
            participations=MOST_REPORTS, mechanism="Duchi",
        )  # fmt: skip
        width = payload.symbol_bytes(self._task)
        super().__init__(kind, level=self._task.epsilon, units=self._task.units, width=width)

    def said(self, device: Any, number: int, value: Any) -> bytes:
        """Return the report on one record."""
        if number == 0:
            self._taken(device, self._task)
        return bytes(device.train(self._task, number, np.zeros(1), [[1.0]], [value]))

    def body(self, message: bytes) -> list[int]:
        """Return the bytes of the symbols."""
        return list(message[payload.HEAD_BYTES : -TAG_BYTES])


class Directions(Sender):
    """Clients whose gradients are reported by a `Codebook`: those of both values are opposite, and too long.

    Every round has directions of its own, so that a number says nothing by itself: it is read with them.
    """

    name, use, values = "Client of a codebook (messages)", Use.TRAINING, (50.0, -50.0)

    def __init__(self, kind: type[Any] = Client, *, epsilon: float = 1.0) -> None:
        model = Linear(3, l2=0.0, intercept=False)
        self._task = designed(
            **_WORDS, model=model, epsilon=epsilon, rounds=MOST_REPORTS, group=1, rate=0.1, length=1.0,
            participations=MOST_REPORTS, mechanism="Codebook",
        )  # fmt: skip
        codebook = self._task.codebook
        assert codebook is not None
        self._scale = codebook.scale
        super().__init__(kind, level=self._task.epsilon, units=self._task.units, width=1)

    def said(self, device: Any, number: int, value: Any) -> bytes:
        """Return the report on one record."""
        if number == 0:
            self._taken(device, self._task)
        return bytes(device.train(self._task, number, np.zeros(3), [[1.0, 1.0, 1.0]], [value]))

    def body(self, message: bytes) -> list[int]:
        """Return how far along a gradient the reported direction is, in eighths of the longest, or -1."""
        if len(message) != payload.size(self._task):
            return [-1]
        number = int.from_bytes(message[payload.ROUND], "big")
        legal, read = payload.parsed(self._task, number, [message])
        if not legal.all():
            return [-1]
        far = summed(self._task, read.asked, read.symbols).sum() / self._task.dimensions**0.5
        return [round(4.0 * float(far) / self._scale) + 4]


class Personal(Sender):
    """Clients of personalised training, with Gaussian noise; both values are far beyond the clip."""

    name, use, notion = "PersonalClient (messages)", Use.PERSONAL_TRAINING, "mu"
    values = (50.0, -50.0)

    def __init__(self, kind: type[Any] = PersonalClient) -> None:
        self._task = PersonalTask(
            **_WORDS, version="1", model=_MODEL, dimensions=1, hypotheses=1, clip=1.0, reach=1.0, level=2.0,
            rounds=MOST_REPORTS, group=1, rate=1.0, participations=MOST_REPORTS,
        )  # fmt: skip
        self._sanitiser = Sanitiser(self._task, np.zeros((1, 1)))
        claim = self._sanitiser.guarantee
        assert isinstance(claim, GaussianDP)
        super().__init__(kind, level=claim.mu, units=self._sanitiser.units, width=self._task.numbers)

    def said(self, device: Any, number: int, value: Any) -> bytes:
        """Return the report on one record."""
        if number == 0:
            self._taken(device, self._task)
        return bytes(device.train(self._task, number, np.zeros((1, 1)), [[1.0]], [value]))

    def body(self, message: bytes) -> list[int]:
        """Return the noisy numbers."""
        found = personal_wire.numbers(self._sanitiser, message)
        return [] if found is None else [int(one) for one in found]


class Devices(Sender):
    """Devices that answer a survey of a number and a category.

    Attributes:
        sample_size: Count of attributes in a report.
        assigned: True if the survey draws which attributes a device reports, False if the device does.
    """

    name, use = "Device (messages)", Use.SURVEY
    values = ({"speed": 0.0, "kind": "car"}, {"speed": 130.0, "kind": "bus"})
    odd = (*({"speed": one, "kind": one} for one in ODD_VALUES), {})
    probes = ({}, {"speed": math.nan, "kind": math.nan})
    sample_size: ClassVar[int] = 2
    assigned: ClassVar[bool] = False

    def __init__(self, kind: type[Any] = Device, *, epsilon: float = 1.0) -> None:
        speed: Attribute = Number("speed", (0.0, 130.0))
        moved: Attribute = Category("kind", ["car", "bus"], "bus")
        each = {"epsilon": epsilon / self.sample_size}
        drawn = (
            instruments.made(speed, {"kind": "Duchi"} | each),
            instruments.made(moved, {"kind": "KRR"} | each),
        )
        self._survey = Survey(
            **_WORDS, version="1", attributes=(speed, moved), instruments=drawn, epsilon=epsilon, start=0,
            period_s=1, periods=MOST_REPORTS, sample_size=self.sample_size, assigned=self.assigned,
            key=os.urandom(LOT_BYTES),
        )  # fmt: skip
        width = wire.Layout(self._survey).longest - wire.HEAD_BYTES - TAG_BYTES
        super().__init__(kind, level=epsilon, units=self._survey.units, width=width)

    def said(self, device: Any, number: int, value: Any) -> bytes:
        """Return the report of a period."""
        if number == 0:
            self._taken(device, self._survey)
        return bytes(device.report(self._survey, value, period=number))

    def body(self, message: bytes) -> list[int]:
        """Return the bytes of attributes and symbols."""
        return list(message[wire.HEAD_BYTES : -TAG_BYTES])

    def rest(self, message: bytes | None) -> list[int]:
        """Return the bytes of the nonce."""
        if message is None:
            return [0] * NONCE_BYTES
        return list(message[wire.HEAD_BYTES - NONCE_BYTES : wire.HEAD_BYTES])


class SamplingDevices(Devices):
    """Devices that draw by themselves which of two attributes they report."""

    name = "Device that samples attributes (messages)"
    sample_size = 1


class AssignedDevices(SamplingDevices):
    """Devices that report the one of two attributes that the survey's lot says."""

    name = "Device with assigned attributes (messages)"
    assigned = True


class Places(Sender):
    """Devices that say where they are, on a map of two by two cells."""

    name, use, notion = "LocationDevice (messages)", Use.PLACE, "epsilon per km"
    values = ((48.845, 2.3075), (48.855, 2.3225))  # about the centres of two cells
    odd = tuple((one, one) for one in ODD_VALUES)
    probes = ((math.nan, math.nan),)

    def __init__(self, kind: type[Any] = LocationDevice, *, per_km: float = 1.0) -> None:
        self._channel = ElasticChannel(_MAP, np.ones(_MAP.size), per_km / 2.0)
        self._rounds: dict[int, PlaceRound] = {}
        asked = self._round(0)
        super().__init__(
            kind, level=asked.channel.level, units=asked.units, width=place_payload.cell_bytes(asked),
            distance=self._gap(*self.values),
        )  # fmt: skip

    def _gap(self, first: Any, second: Any) -> float:
        """Return the kilometres between the cells of two points."""
        start, end = (int(_MAP.cells([point[0]], [point[1]])[0]) for point in (first, second))
        return float(_MAP.distances(start)[end])

    def _round(self, number: int) -> PlaceRound:
        if number not in self._rounds:
            made = PlaceRound.made(self._channel, **_WORDS, number=number, rounds=MOST_REPORTS)
            self._rounds[number] = made
        return self._rounds[number]

    def _options(self, lifetime: float) -> dict[str, Any]:
        return {"lifetime_per_km": lifetime, "most_per_km": self.price, "most_jump_km": _MAP.jump}

    def said(self, device: Any, number: int, value: Any) -> bytes:
        """Return the report of a round."""
        asked = self._taken(device, self._round(number))
        return bytes(device.report(asked, *value))

    def body(self, message: bytes) -> list[int]:
        """Return the bytes of the cell."""
        return list(message[-TAG_BYTES - self.width : -TAG_BYTES])


SENDERS: tuple[type[Sender], ...] = (
    Clients,
    Directions,
    Personal,
    Devices,
    SamplingDevices,
    AssignedDevices,
    Places,
)
"""Every kind of devices."""
