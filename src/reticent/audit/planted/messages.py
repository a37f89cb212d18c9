"""Planted bugs in devices: what leaves them is wrong although their mechanisms are right."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from reticent.audit.findings import Finding
from reticent.audit.paths.messages import audit_messages
from reticent.audit.paths.senders import Sender
from reticent.collect.device import NONCE_BYTES, Device
from reticent.federated import payload
from reticent.federated.client import Client
from reticent.federated.personalised.client import PersonalClient
from reticent.federated.personalised.noise import Sanitiser
from reticent.federated.personalised.tasks import PersonalTask
from reticent.federated.tasks import Task
from reticent.location.device import LocationDevice
from reticent.mechanisms.categorical import KRR
from reticent.mechanisms.vector.codebook import lifted
from reticent.randomness import SimulationStream, Stream

Draw = Callable[[], Sequence[int]]


def _within(secret: bytes, number: int) -> Stream:
    """Return a stream that is the same in two neighbouring rounds."""
    mixed = hashlib.sha256(secret + (number // 2).to_bytes(4, "big")).digest()
    return SimulationStream(int.from_bytes(mixed[:7], "big"))


class NoiseReused(Client):
    """Draws its noise in every other round only: the next report has the same, and tells how values moved."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._secret = os.urandom(16)

    def _symbols(self, task: Task, number: int, gradient: Any, stream: Stream) -> bytes:
        return super()._symbols(task, number, gradient, _within(self._secret, number))


class PlaceNoiseReused(LocationDevice):
    """Says where it is with the noise of the round before."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._secret = os.urandom(16)

    def _drawn(self, asked: Any, latitude: Any, longitude: Any) -> int:
        self._stream = _within(self._secret, asked.number)
        return super()._drawn(asked, latitude, longitude)


class DrawnAgain(Client):
    """Pays once, and draws anew whenever it is asked again: a second report under other noise."""

    _seen: frozenset[int] = frozenset()

    def _once(self, held: Task, number: int, draw: Draw, **price: Callable[[], int]) -> Sequence[int]:
        said = super()._once(held, number, draw, **price)
        if number in self._seen:
            return draw()
        self._seen |= {number}
        return said


class ClipSkipped(PersonalClient):
    """Adds the right noise to an update that was not clipped."""

    def report(self, task: PersonalTask, number: int, hypotheses: Any, choice: Any, updated: Any) -> bytes:
        """Keep the update for the draw."""
        self._updated = np.nan_to_num(np.asarray(updated, dtype=np.float64), posinf=1e9, neginf=-1e9)
        return super().report(task, number, hypotheses, choice, updated)

    def _once(self, held: PersonalTask, number: int, draw: Draw, **price: Callable[[], int]) -> Sequence[int]:
        def unclipped() -> Sequence[int]:
            sanitiser = Sanitiser(held, np.zeros((held.hypotheses, held.dimensions)))
            return [int(one) for one in sanitiser.sample(self._updated[None, :], self._stream)[0]]

        return super()._once(held, number, unclipped, **price)


class NearOnly(Client):
    """Reports none but directions near its gradient "since the far ones are noise"."""

    def _symbols(self, task: Task, number: int, gradient: Any, stream: Stream) -> bytes:
        codebook = task.codebook
        assert codebook is not None
        seeds = task.asked(payload.client_number(self._enrolment), number)[:, 0]
        ball = task.clipped(np.broadcast_to(np.asarray(gradient, dtype=np.float64), task.dimensions))
        report = codebook.sample(ball[None], stream, seeds=seeds)
        near = codebook._ranked(lifted(ball[None]), seeds)[:, : codebook.top]
        report["value"] = near[:, int(report["value"][0]) % codebook.top]
        return codebook.pack(report)


class LedgerSkipped(Device):
    """Remembers its reports by itself, and never asks its ledger."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._mine: dict[int, Sequence[int]] = {}

    def _once(self, held: Any, number: int, draw: Draw, **price: Callable[[], int]) -> Sequence[int]:
        if number not in self._mine:
            self._mine[number] = draw()
        return self._mine[number]


class SilentOnOverflow(Client):
    """Sends nothing when its records overflow: whether a report arrives depends on the data."""

    def train(self, task: Task, number: int, theta: Any, features: Any, targets: Any) -> bytes:
        """Report finite targets alone."""
        if not np.isfinite(np.asarray(targets, dtype=np.float64)).all():
            raise OverflowError("the gradient is not finite")
        return super().train(task, number, theta, features, targets)


class NonceOfTheValue(Device):
    """A device that makes the nonce from the values: anybody who tries all values reads them."""

    def report(self, survey: Any, values: Mapping[str, Any], *, period: int | None = None) -> bytes:
        """Keep the values for the draw."""
        self._values = repr(values).encode()
        return super().report(survey, values, period=period)

    def _once(self, held: Any, number: int, draw: Draw, **price: Callable[[], int]) -> Sequence[int]:
        nonce = hashlib.sha256(self._values).digest()[:NONCE_BYTES]
        return super()._once(held, number, lambda: nonce + bytes(draw())[NONCE_BYTES:], **price)


class NonceOfTheRecord(NonceOfTheValue):
    """Makes the nonce from its values and the period: the same record has the same nonce on every device."""

    def _once(self, held: Any, number: int, draw: Draw, **price: Callable[[], int]) -> Sequence[int]:
        nonce = hashlib.sha256(self._values + number.to_bytes(4, "big")).digest()[:NONCE_BYTES]
        return Device._once(self, held, number, lambda: nonce + bytes(draw())[NONCE_BYTES:], **price)


class AttributeByValue(Device):
    """Reports the attribute that "has something to say": which one it is gives the value away."""

    def report(self, survey: Any, values: Mapping[str, Any], *, period: int | None = None) -> bytes:
        """Keep the values for the choice."""
        self._values = values
        return super().report(survey, values, period=period)

    def _asked(self, survey: Any, period: int) -> list[int]:
        return [0 if self._values.get("speed") else 1]


class PlainMissingCategory(Device):
    """Reports a missing category as the fallback, without noise "since nothing is known anyway"."""

    def _drawn(self, survey: Any, place: int, value: Any, period: int, stream: Stream) -> Any:
        instrument = survey.instruments[place]
        if value is None and isinstance(instrument, KRR):
            return np.array([instrument.categories.fallback])
        return super()._drawn(survey, place, value, period, stream)


class NanOneSymbolDevice(Device):
    """Reports every number that cannot be read by one and the same symbol."""

    def _drawn(self, survey: Any, place: int, value: Any, period: int, stream: Stream) -> Any:
        if isinstance(value, float) and math.isnan(value):
            return np.array([0])
        return super()._drawn(survey, place, value, period, stream)


def audited(check: str, stories: int = 160) -> Callable[[Sender, bool], Finding]:
    """One check of an audit of messages, with so many stories where fewer will do."""

    def find(sender: Sender, quick: bool) -> Finding:
        report = audit_messages(sender, stories=stories if quick else None)
        return next(found for found in report.findings if found.check == check)

    return find
