"""A campaign in a folder: what is asked, the rounds that were published, the reports, and what they come to.

    campaign.json   box, grid, beta, rounds, purpose, defence
    reports.db      the signed rounds and the reports (`store`)

The state of `Privic` is worked out from the rounds and their counts, so a crash loses nothing and a round
ends once. Every estimate, and every count of cells, is entered into the operator's ledger before it is given
out, and so before a round is published that depends on it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.files import appearing, made
from reticent.fleet import texts
from reticent.fleet.operator import Operator
from reticent.fleet.record import Study
from reticent.ledger.base import Unit
from reticent.location.payload import Outcome
from reticent.location.privic import TURNS, Defence, Privic
from reticent.location.rounds import MOST_CELLS, MOST_ROUNDS, PlaceRound, signed
from reticent.location.store import ReportStore
from reticent.privacy import Neighbours
from reticent.spaces import Box, Grid

SETTINGS, STORE = "campaign.json", "reports.db"
_MOST_KEPT = 1 << 22  # cells of all rounds whose estimates are kept in memory


@dataclass(frozen=True)
class Settings:
    """The settings of a campaign, fixed when it begins.

    Args:
        name: letters, digits, dots, dashes.
        purpose: Purpose in words that the person behind a device reads.
        south, north, west, east: the box, in degrees.
        rows, columns: of the grid.
        closed: cells where nobody can be.
        beta: per kilometre; a report keeps 2 beta per kilometre.
        rounds: Number of rounds.
        turns: see `Privic`.
        updates: see `Privic`; None follows the reports.
        defence: against liars.
    """

    name: str
    purpose: str
    south: float
    north: float
    west: float
    east: float
    rows: int
    columns: int
    beta: float
    rounds: int
    closed: tuple[int, ...] = ()
    version: str = "1"
    turns: int = TURNS
    updates: int | None = None
    defence: Defence = field(default_factory=Defence)

    def __post_init__(self) -> None:
        texts.check_words(self.name, self.version, self.purpose)
        whole("rounds", self.rounds, low=1, high=MOST_ROUNDS)
        real("beta", self.beta, low=0.0, open_low=True)
        if not 1 < self.grid.size <= MOST_CELLS:
            raise ParameterError(f"rows x columns must be 2 to {MOST_CELLS}, got {self.grid.size}")

    @property
    def grid(self) -> Grid:
        """Over the box."""
        box = Box(self.south, self.north, self.west, self.east)
        return Grid.over(box, self.rows, self.columns, tuple(self.closed))


class Campaign:
    """One campaign and its files.

    Args:
        folder: Folder that `begin` made.
        operator: Operator who knows the devices, and whose ledger records what is learnt.
        key: Signing key of the operator.
    """

    def __init__(self, folder: str | os.PathLike[str], operator: Operator, key: Ed25519PrivateKey) -> None:
        self.folder, self._key, self._record = Path(folder), key, operator.record
        self.settings = _read(self.folder / SETTINGS)
        self.store = ReportStore(self.folder / STORE, operator)
        self._kept: list[Privic] = []  # after each round, so that only what is new is worked out
        try:
            if not self.store.rounds():
                self._publish()
        except BaseException:  # a round of another geometry, say
            self.store.close()
            raise

    @classmethod
    def begin(
        cls,
        folder: str | os.PathLike[str],
        settings: Settings,
        operator: Operator,
        key: Ed25519PrivateKey,
    ) -> Campaign:
        """Make the folder and publish the first round; over a folder that a crash left empty, too."""
        place = Path(folder)
        made(place)
        if any(not one.name.startswith(f".{SETTINGS}.") for one in place.iterdir()):
            raise ParameterError(f"folder must be new or empty, got {place.name}")
        with appearing(place / SETTINGS, mode=0o600) as file:
            file.write(json.dumps(asdict(settings), indent=1).encode())
        return cls(place, operator, key)

    def close(self) -> None:
        """Give the files up."""
        self.store.close()

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Rounds

    @property
    def current(self) -> PlaceRound:
        """The round that is open, or was the last."""
        return self.store.rounds()[-1]

    def file(self, number: int | None = None) -> bytes:
        """Return the signed file of a round; of the open one by default."""
        number = self.current.number if number is None else whole("number", number, low=0)
        found = self.store.file(number)
        if found is None:
            raise ParameterError(f"number must be of a published round, got {number}")
        return found

    def add(self, reports: list[bytes]) -> list[Outcome]:
        """Count reports of the open round."""
        return self.store.add(reports)

    def end_round(self, number: int | None = None) -> PlaceRound | None:
        """Learn from a round, the open one by default, and publish the next; None after the last.

        A round ends once: asked again, or twice at once, the one that was published is returned.
        """
        open_now = self.current.number
        number = open_now if number is None else whole("number", number, low=0, high=open_now)
        if number + 1 >= self.settings.rounds:
            return None
        return self._publish(number + 1)

    def _publish(self, number: int = 0) -> PlaceRound:
        if found := self.store.rounds()[number:]:
            return found[0]
        asked = PlaceRound.made(
            self.privic().channel(),
            name=self.settings.name,
            version=self.settings.version,
            purpose=self.settings.purpose,
            number=number,
            rounds=self.settings.rounds,
        )
        try:
            return self.store.publish(signed(asked, self._key))
        except ParameterError:  # unless somebody else published it meanwhile
            if found := self.store.rounds()[number:]:
                return found[0]
            raise

    # What it comes to

    @property
    def study(self) -> Study:
        """The campaign as the operator's ledger knows it: by the text of its first round."""
        first = self.store.rounds()[0]
        return Study(
            "campaign",
            first.id,
            f"one device that answers campaign {first.name}",
            Unit.EPSILON_PER_KM,
            Neighbours.METRIC,
            first.most_units,
            first.rounds,
        )

    def _learnt(self, numbers: Iterable[int]) -> dict[int, NDArray[Any]]:
        """Return the count of each cell's reports in some rounds, once the ledger records the release.

        Of a round without reports nothing is told, and nothing is entered.
        """
        rounds = self.store.rounds()
        found = {number: self.store.counts(number) for number in numbers}  # what comes later is not in it
        for number, counts in found.items():
            if counts.any():
                told = None if number == len(rounds) - 1 else int(counts.sum())
                self._record.learn(self.study, {number: told}, rounds[number].units)
        return found

    def steps(self) -> Iterator[tuple[PlaceRound, NDArray[Any], Privic]]:
        """Each round so far, the open one too: what was asked, how often each cell was reported, the state.

        All of them are in the ledger before the first is given out.

        Raises:
            LedgerError: they could not be entered; nothing is given out.
        """
        rounds, privic = self.store.rounds(), self._begun
        counts = self._learnt(range(len(rounds)))
        kept, held = self._kept, []
        for place, asked in enumerate(rounds):
            given = counts[asked.number]
            if kept and place < len(kept) and np.array_equal(kept[place].rounds[-1][1], given):
                privic = kept[place].copy()
            else:
                kept = []  # what follows was learnt from other counts
                privic.learn(asked.channel, given)
            held.append(privic.copy())
            yield asked, given, privic
        self._kept = held if len(held) * self.settings.grid.size <= _MOST_KEPT else []

    @property
    def _begun(self) -> Privic:
        one = self.settings
        return Privic(one.grid, one.beta, one.defence, turns=one.turns, updates=one.updates)

    def privic(self) -> Privic:
        """Return the state after all rounds, the open one too. They are in the ledger then; see `steps`."""
        *_, (_, _, found) = [(None, None, self._begun), *self.steps()]
        return found

    def counts(self, number: int) -> NDArray[Any]:
        """Return the count of each cell's reports in a round, which is in the ledger then; see `steps`."""
        return self._learnt([number])[number]


def _read(path: Path) -> Settings:
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        given["defence"] = Defence(**given["defence"])
        given["closed"] = tuple(given["closed"])
        return Settings(**given)
    except ParameterError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ParameterError(f"{path.name} must be the settings of a campaign, in its folder") from error
