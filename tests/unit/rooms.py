"""The four kinds of devices, alike: each reports a period or round, of one of two values far apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.collect.device import Device
from reticent.collect.signing import signed as signed_survey
from reticent.federated.client import Client
from reticent.federated.personalised import PersonalClient, PersonalTask
from reticent.federated.personalised.tasks import signed as signed_personal
from reticent.fleet.counted import Counted
from reticent.location import LocationDevice

from .collect import fleet
from .federated import people
from .federated.personalised import parts
from .location import campaign

MOST = 200  # periods that a test may ask for


@dataclass
class Room:
    """One kind of devices.

    Args:
        kind: its class.
        options: of it, beside path and enrolment.
        numbered: an enrolment.
    """

    kind: type
    options: dict[str, Any]
    numbered: Any

    def open(self, path, number=7, **options):
        """The device at a path."""
        return self.kind(path, self.numbered(number), **self.options | options)

    def report(self, device, period, value=0):
        """Its report of a period: bytes."""
        raise NotImplementedError

    def heed(self, device, periods, closed=0, **changes):
        """Let it take a collector's word."""
        raise NotImplementedError

    def word(self, study, periods, closed, number=7):
        return Counted(study, self.numbered(number).id, tuple(periods), closed)

    def spent(self, device):
        """What it says to have spent."""
        return device.spent


class Collect(Room):
    """Surveys. A report has a nonce, so that no two draws are the same."""

    survey = fleet.single("Duchi", epsilon=1.0, periods=MOST)

    def __init__(self):
        super().__init__(Device, {"signer": fleet.SIGNER, "lifetime": 1000.0}, fleet.enrolment)

    def report(self, device, period, value=0):
        taken = device.take(signed_survey(self.survey, fleet.SIGNING))
        return device.report(taken, {"speed": 130.0 * value}, period=period)

    def heed(self, device, periods, closed=0, **changes):
        taken = device.take(signed_survey(self.survey, fleet.SIGNING))
        return device.heed(taken, self.word(f"survey:{taken.id.hex()}", periods, closed, **changes))


class Federated(Room):
    """Trainings; 64 numbers are sent, so that no two draws are the same."""

    task = people.task("PM", 64, 64, epsilon=1.0, rounds=MOST, participations=MOST)

    def __init__(self):
        super().__init__(Client, {"signer": people.SIGNER, "lifetime": 1000.0}, people.enrolment)

    def report(self, device, period, value=0):
        taken = device.take(people.file_of(self.task))
        return device.report(taken, period, np.full(64, 2.0 * value - 1.0))

    def heed(self, device, periods, closed=0, **changes):
        taken = device.take(people.file_of(self.task))
        return device.heed(taken, self.word(f"training:{taken.id.hex()}", periods, closed, **changes))


class Personal(Room):
    """Personalised trainings, with Gaussian noise."""

    task = PersonalTask(**parts.FIELDS | {"rounds": MOST, "participations": MOST})

    def __init__(self):
        options = {"signer": parts.SIGNER, "lifetime": 1000.0, "most": 1000.0}
        super().__init__(PersonalClient, options, parts.enrolment)

    def report(self, device, period, value=0):
        taken = device.take(signed_personal(self.task, parts.SIGNING))
        return device.report(taken, period, parts.HYPOTHESES, value, parts.HYPOTHESES[value] + 0.1)

    def heed(self, device, periods, closed=0, **changes):
        taken = device.take(signed_personal(self.task, parts.SIGNING))
        return device.heed(taken, self.word(f"training:{taken.id.hex()}", periods, closed, **changes))


class Location(Room):
    """Places: a level so low that every cell is about as likely as any other."""

    def __init__(self):
        options = {"signer": campaign.SIGNER, "lifetime_per_km": 1000.0, "most_jump_km": 5.0}
        super().__init__(LocationDevice, options, campaign.enrolment)

    def report(self, device, period, value=0):
        taken = device.take(campaign.file_of(campaign.asked(0.01, period, rounds=MOST)))
        return device.report(taken, 48.83 + 0.05 * value, 2.3)

    def heed(self, device, periods, closed=0, **changes):
        taken = device.take(campaign.file_of(campaign.asked(0.01, 0, rounds=MOST)))
        return device.heed(taken, self.word("campaign:paris", periods, closed, **changes))

    def spent(self, device):
        return device.spent_per_km


ROOMS = {"collect": Collect, "federated": Federated, "personal": Personal, "location": Location}
