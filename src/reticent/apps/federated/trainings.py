"""A training as a service knows it: its rounds, from the ledger, and curves that its operator published.

A training runs elsewhere. Its operator enters each round into the service's ledger, and may put what
`reticent federated run --out` writes, or the like, into the folder `trainings/NAME` of the service: a model,
whose statement names the task, and `rounds.jsonl`. Curves are read from there if a public hold-out gave them.

Privacy: loss and error that were computed on clients' records are never shown, whoever put them there
(mathematics 4.12). How many reports a round counted is what `fleet.record` entered, and public.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reticent.errors import ReticentError
from reticent.federated.curves import Origin
from reticent.federated.saved import Saved, load
from reticent.ledger import Balance
from reticent.ledger.base import Ledger

FOLDER = "trainings"
ACCOUNT = "training:"
_SUBJECT = re.compile(
    r"one client of training (\S+) that reports in every round, of which it may be in (\d+)"
)
_MOST_ROUNDS = 1000  # that are looked up
_MOST_BYTES = 1 << 22
_MOST_FOLDERS = 200
_CURVES = ("loss", "error")


@dataclass(frozen=True)
class Entered:
    """A round that was entered into the ledger.

    Attributes:
        number: from 1.
        units: what it cost a client that was in it.
        reports: how many were counted; None while that is not known.
    """

    number: int
    units: int
    reports: int | None


@dataclass(frozen=True)
class Published:
    """What the operator put into the service's folder.

    Attributes:
        saved: the model's statement, and the model.
        curves: (round, value) of each curve, from a public hold-out; empty if none was given.
    """

    saved: Saved
    curves: dict[str, list[tuple[int, float]]]


@dataclass(frozen=True)
class Training:
    """A training by its account.

    Attributes:
        name: of the task.
        balance: of the account.
        participations: rounds that one client may be in.
    """

    name: str
    balance: Balance
    participations: int

    @property
    def identifier(self) -> str:
        """Of the task, in hexadecimal."""
        return self.balance.terms.name.removeprefix(ACCOUNT)


def training_of(balance: Balance) -> Training | None:
    """The training that an account is of; None if it is of something else."""
    told = _SUBJECT.match(balance.terms.subject) if balance.terms.name.startswith(ACCOUNT) else None
    return None if told is None else Training(told[1], balance, int(told[2]))


def rounds(ledger: Ledger, training: Training) -> list[Entered]:
    """The rounds that were entered, the first one first."""
    found: list[Entered] = []
    account, parts = training.balance.terms.name, _MOST_ROUNDS
    for number in range(_MOST_ROUNDS):
        if number >= parts:
            break
        reading = ledger.reading(account, f"round {number}")
        units = reading.information + reading.pending
        if units:
            parts = min(parts, training.balance.terms.cap // units)  # all rounds cost the same
            counted = None if reading.pending or not reading.sums else round(reading.estimate()[0])
            found.append(Entered(number + 1, units, counted))
    return found


def published(folder: Path, training: Training) -> Published | None:
    """What the operator put into the folder of the service about a training; None if nothing that fits."""
    place = folder / FOLDER
    for one in sorted(place.iterdir())[:_MOST_FOLDERS] if place.is_dir() else ():
        try:
            saved = load(one / "model.safetensors")
        except (ReticentError, OSError):  # another file, or the part `federated` is not installed
            continue
        if saved.statement.task.id.hex() == training.identifier:
            return Published(saved, _curves(one / "rounds.jsonl"))
    return None


def _curves(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Loss and error by round. What is no hold-out's, or no line of a curve, is left out."""
    found: dict[str, list[tuple[int, float]]] = {name: [] for name in _CURVES}
    if not path.is_file() or path.stat().st_size > _MOST_BYTES:
        return found
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            told: dict[str, Any] = json.loads(line)
            if told["origin"] != Origin.HOLD_OUT.value:
                continue
            number, values = int(told["number"]), [float(told[name]) for name in _CURVES]
        except (ValueError, TypeError, KeyError):
            continue
        if all(map(math.isfinite, values)):
            for name, value in zip(_CURVES, values, strict=True):
                found[name].append((number, value))
    return found
