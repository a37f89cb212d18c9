"""What devices of each kind do under a seed, told in full: texts, reports, words of collectors, errors.

`stored/` holds it as the code at commit 5516cb5 did it, before the four kinds had one `Reporter` in common;
`python -m tests.unit.fleet.examples` wrote it there, and is not needed again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from reticent.collect import signing as surveys
from reticent.collect.device import Device
from reticent.errors import ReticentError
from reticent.federated import tasks
from reticent.federated.client import Client
from reticent.federated.personalised import PersonalClient, PersonalTask
from reticent.federated.personalised import tasks as personal_tasks
from reticent.fleet.counted import Counted
from reticent.ledger.device.marks import Marks
from reticent.ledger.device.records import records
from reticent.location import LocationDevice, rounds
from reticent.randomness import SimulationStream

from ..collect import fleet
from ..federated import people
from ..federated.personalised import parts
from ..location import campaign

STORED = Path(__file__).parent / "stored"
SEED = 19
_PERSONAL = {"rounds": 8, "participations": 4}


@dataclass(frozen=True)
class Example:
    """One kind of devices and what is asked of it.

    Args:
        kind: its class.
        room: with a signer and enrolments.
        options: of the device.
        signing: the module with `signed` and `verified`.
        texts: what is asked.
        report: makes the report of a number, by a device and a text.
        study: which the collector's word names.
    """

    kind: type
    room: Any
    options: dict[str, Any]
    signing: Any
    texts: Callable[[], list[Any]]
    report: Callable[[Any, Any, int], bytes]
    study: Callable[[Any], str]

    def files(self) -> list[bytes]:
        """The signed texts."""
        return [self.signing.signed(one, self.room.SIGNING) for one in self.texts()]

    def open(self, path: Path, marks: Marks, **changes: Any) -> Any:
        """The device, whose draws are known."""
        options = {"rng": SimulationStream(SEED)} | self.options | changes
        return self.kind(path, self.room.enrolment(3), self.room.SIGNER, marks=marks, **options)

    def word(self, text: Any, periods: tuple[int, ...] = (0, 4), closed: int = 3, number: int = 3) -> Counted:
        """Of its collector."""
        return Counted(self.study(text), self.room.enrolment(number).id, periods, closed)


EXAMPLES = {
    "collect": Example(
        Device,
        fleet,
        {"lifetime": 26.0, "most": 4.0},
        surveys,
        lambda: [fleet.mixed(), fleet.wide(assigned=True, groups=4)],
        lambda device, taken, number: device.report(taken, fleet.VALUES, period=number),
        lambda text: f"survey:{text.id.hex()}",
    ),
    "federated": Example(
        Client,
        people,
        {"lifetime": 6.0, "most": 2.0},
        tasks,
        lambda: [people.task("PM", 8, 3, participations=4), people.task("OneBit", 6, 2, participations=2)],
        lambda device, taken, number: device.report(taken, number, np.linspace(-1.0, 1.0, taken.dimensions)),
        lambda text: f"training:{text.id.hex()}",
    ),
    "personal": Example(
        PersonalClient,
        parts,
        {"lifetime": 2.0, "most": 1.0},
        personal_tasks,
        lambda: [PersonalTask(**parts.FIELDS | _PERSONAL | changes) for changes in ({}, {"about": "centre"})],
        lambda device, taken, number: device.report(taken, number, parts.HYPOTHESES, 1, [4.5, -4.0]),
        lambda text: f"training:{text.id.hex()}",
    ),
    "location": Example(
        LocationDevice,
        campaign,
        {"lifetime_per_km": 3.5, "most_jump_km": 5.0},
        rounds,
        lambda: [*(campaign.asked(number=number) for number in range(5)), campaign.asked(number=1, seed=1)],
        lambda device, taken, number: device.report(taken, 48.85, 2.33),
        lambda text: f"campaign:{text.name}",
    ),
}


def told(example: Example, files: list[bytes], folder: Path) -> dict[str, Any]:
    """All that a device says and does from these signed texts on. Its ledger is left in the folder."""
    marks = Marks(folder / "marks")
    with example.open(folder / "ledger", marks) as device:
        taken = [device.take(file) for file in files]
        said = [_reported(example, device, taken, number) for number in (0, 1, 0, 99)]
        said += [_said(lambda text=text: device.heed(text, example.word(text))) for text in taken[:2]]
        said += [_reported(example, device, taken, number) for number in (3, 4, 2, 0)]
        said += [_said(call) for call in _wrong(example, device, taken[0], files[0])]
        spent = device.ledger.balance(device.ledger.accounts()[0].terms.name)
    with example.open(folder / "ledger", marks) as device:  # which remembers
        taken = [device.take(file) for file in files]
        said += [_reported(example, device, taken, 1)]
    said += [_said(call) for call in _unlike(example, files[0], folder)]
    return {
        "terms": [str(one) for one in (spent.terms.name, spent.terms.unit, spent.terms.neighbours)]
        + [spent.terms.subject, spent.terms.cap],
        "spent": spent.spent,
        "said": said,
        "records": ledger_records((folder / "ledger").read_bytes()),
        "owners": sorted(one.name for one in (folder / "marks").glob("*.owner")),
    }


def _reported(example: Example, device: Any, taken: list[Any], number: int) -> list[Any]:
    """The reports of a number, or why there are none. A round of a campaign is a text of its own."""
    asked = [one for one in taken if getattr(one, "number", number) == number]
    return [_said(lambda text=text: example.report(device, text, number).hex()) for text in asked]


def _wrong(example: Example, device: Any, taken: Any, file: bytes) -> list[Callable[[], Any]]:
    """Calls that are refused."""
    strange = replace(taken, purpose="another")
    return [
        lambda: example.report(device, strange, 0),
        lambda: device.heed(strange, example.word(strange)),
        lambda: device.heed(taken, Counted("survey:0", example.word(taken).enrolment, ())),
        lambda: device.heed(taken, example.word(taken, number=4)),
        lambda: device.heed(taken, example.word(taken, (10**6,))),
        lambda: device.take(file.replace(b"to test", b"to spy!")),
        lambda: device.take(file[:-1]),
        lambda: device.take(b"{}"),
        lambda: device.take(file.replace(example.room.SIGNER.hex().encode(), b"0" * 64)),
    ]


def _unlike(example: Example, file: bytes, folder: Path) -> list[Callable[[], Any]]:
    """Devices that are refused, or that refuse what is asked."""
    lifetime, most = (
        ("lifetime_per_km", "most_per_km") if "lifetime_per_km" in example.options else ("lifetime", "most")
    )

    def opened(**changes: float) -> Any:
        with example.open(folder / "ledger", Marks(folder / "marks"), **changes) as device:
            return device.take(file)

    return [
        lambda: opened(**{most: 0.001}),
        lambda: opened(**{most: 0.0}),
        lambda: opened(**{lifetime: -1.0}),
        lambda: opened(**{lifetime: 99.0}),
    ]


def _said(call: Callable[[], Any]) -> Any:
    """What a call returns, or the error that it raises. The nonces of surveys' reports are known then."""
    numbers = itertools.count()

    def known(size: int) -> bytes:
        return hashlib.sha256(b"nonce %d" % next(numbers)).digest()[:size]

    try:
        with mock.patch.object(os, "urandom", known):
            return call()
    except ReticentError as error:
        return f"{type(error).__name__}: {error}"


def ledger_records(content: bytes) -> list[Any]:
    """The records of a ledger, but for the random name of its mark, and who asked on which day."""
    found = [json.loads(body) for body, _, _ in records(content)]
    found = [one for one in found if one[0] != "note" or not one[1].startswith("told/")]
    return [["note", "mark", "..."] if one[:2] == ["note", "mark"] else one for one in found]


def _store() -> None:
    """Write what this code does."""
    STORED.mkdir(exist_ok=True)
    for name, example in EXAMPLES.items():
        with tempfile.TemporaryDirectory() as folder:
            files = example.files()
            fields = {"files": [one.decode() for one in files]} | told(example, files, Path(folder))
            (STORED / f"{name}.json").write_text(json.dumps(fields, indent=1) + "\n")
            (STORED / f"{name}.ledger").write_bytes((Path(folder) / "ledger").read_bytes())


if __name__ == "__main__":
    _store()
