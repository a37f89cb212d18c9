"""The reporter on a device: it takes signed documents and gives one private report for each part of them.

Everything that protects the person behind a device is here, once for all kinds: the signer is checked, and
what a text may ask; a report is paid for before it is drawn, drawn once, stored before it leaves, and the
same ever after; and nothing is drawn that has left according to the collector. A kind of devices adds what it
draws and how the result is encoded.

A device is a total function of its data: odd and missing values are reported like any other. It refuses only
for reasons that everybody may know: a text that is not signed, does not keep its guarantee or asks for more
than the owner allows; a part that does not exist; a spent ledger.
"""

from __future__ import annotations

import datetime
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Generic, Required, TypedDict, TypeVar

from reticent.arguments import real
from reticent.errors import GuaranteeError, ParameterError, ReportForgotten
from reticent.fleet.enrolment import Enrolment
from reticent.fleet.memory import ByNumber, Memory
from reticent.fleet.published import Published
from reticent.fleet.signing import verified
from reticent.ledger.base import Amount, Terms, Unit
from reticent.ledger.device import lifetime
from reticent.ledger.device.budgeted import Budgeted
from reticent.ledger.device.lifetime import Lifetime, Reach
from reticent.ledger.device.marks import Marks
from reticent.ledger.device.told import Told, note_name
from reticent.privacy.budget import UNITS_PER_ONE, cap_units
from reticent.privacy.neighbours import Neighbours
from reticent.randomness import Stream, secure_or

if TYPE_CHECKING:  # rarely needed
    from reticent.fleet.counted import Counted

Asked = TypeVar("Asked", bound=Published)


class Kept(TypedDict, total=False):
    """The parts of a `Reporter` that are passed on as keyword arguments."""

    rng: Stream | None
    marks: Marks | None
    total: Lifetime | None


class Held(Kept):
    """The parts of a `Reporter` that are passed on, together with its lifetime budget."""

    lifetime: Required[float]


class Reporter(Budgeted, ABC, Generic[Asked]):
    """One enrolled device and its lifetime budget.

    Attributes:
        kind: Class of the documents that it takes.
        account: Name of its account in the ledger.
        part: Name of the unit that one report answers.
        me: Word for the device in messages.
        per: Suffix of the names of its amounts, where they are not a plain epsilon.

    Args:
        path: File of the device's ledger; created if it is missing.
        enrolment: Enrolment that the operator issued.
        signer: Public key (32 bytes) of the signer whose texts it answers.
        lifetime: Amount that its reports may spend in all, over all texts; fixed with the ledger.
        most: Largest amount that it allows a single report.
        rng: Random stream: None for secure randomness; a SimulationStream in tests and simulations.
        marks: Record of what has left, stored apart from the ledger; None for the usual location.
        lifetime_delta: Amount of delta that its reports may spend in all, where a level holds except with
            probability delta; a second account. None for devices that take no such texts.
        total: Lifetime above everything that the ledger pays for: surveys, trainings and locations. Fixed
            with the ledger; None takes the lifetime that the ledger has, if any.
    """

    kind: type[Asked]
    account: ClassVar[str]
    part: ClassVar[str] = "round"
    me: ClassVar[str] = "device"
    per: ClassVar[str] = ""
    _unit = Unit.EPSILON
    _neighbours = Neighbours.ANY_TWO_VALUES

    def __init__(
        self,
        path: str | os.PathLike[str],
        enrolment: Enrolment,
        signer: bytes,
        *,
        lifetime: float,
        most: float = 4.0,
        rng: Stream | None = None,
        marks: Marks | None = None,
        lifetime_delta: float | None = None,
        total: Lifetime | None = None,
    ) -> None:
        self._enrolment, self._signer = enrolment, signer
        self._most = real(f"most{self.per}", most, low=0.0, open_low=True)
        self._stream = secure_or(rng)
        cap = cap_units(real(f"lifetime{self.per}", lifetime, low=0.0, open_low=True))
        self._guard = threading.Lock()
        self._taken: dict[bytes, Asked] = {}
        self._memories: dict[str, Memory] = {}  # by head
        self._noted: dict[str, datetime.date] = {}  # last day noted in the ledger, by name of the note
        whose = f"the person behind this {self.me}"
        self._terms = Terms(self.account, self._unit, self._neighbours, whose, cap)
        beside = None
        if lifetime_delta is not None:
            most_delta = cap_units(real("lifetime_delta", lifetime_delta, low=0.0, high=1.0, open_low=True))
            name = f"{self.account}-delta"
            beside = Terms(name, Unit.METRIC_DELTA, self._neighbours, whose, most_delta)
        super().__init__(path, self._terms, enrolment.key, marks, beside, total)

    def take(self, file: bytes) -> Asked:
        """Accept a signed document, if it keeps its guarantee and asks no more than is allowed.

        Raises:
            GuaranteeError, ParameterError: it does not; nothing was sent or spent.
        """
        asked = verified(self.kind, file, self._signer)
        self._check(asked)
        if self._delta(asked) and self._beside is None:
            raise GuaranteeError(f"{asked.title} costs delta, and this {self.me} has no budget for it")
        self._taken[asked.id] = asked
        return asked

    @property
    def spent_delta(self) -> float:
        """Amount of delta that its reports have spent in all."""
        return 0.0 if self._beside is None else self.ledger.balance(self._beside.name).spent / UNITS_PER_ONE

    @property
    def spent(self) -> float:
        """Amount that its reports have spent in all."""
        return self.ledger.balance(self.account).spent / UNITS_PER_ONE

    @property
    def left(self) -> int:
        """Largest price of a further report, in units of 1e-12, also below the lifetime of the ledger."""
        left = self.ledger.balance(self.account).remaining
        if self._total is None or self._unit is not Unit.EPSILON:
            return left
        return min(left, lifetime.epsilon_left(self._total, self.ledger.balance(self._total.name).remaining))

    @property
    def signer(self) -> bytes:
        """Public key of the signer whose texts it answers."""
        return self._signer

    @property
    def enrolment(self) -> Enrolment:
        """Enrolment that the operator issued, for other code on the same device."""
        return self._enrolment

    # Added by each kind

    @abstractmethod
    def _check(self, asked: Asked) -> None:
        """Refuse a document that asks for more than is allowed, or that cannot be drawn, before it is paid.

        Raises:
            GuaranteeError: it does.
        """

    @abstractmethod
    def _number(self, asked: Asked, number: int) -> int:
        """Validate the number of a part that a collector names, and return it."""

    @abstractmethod
    def _price(self, asked: Asked) -> int:
        """Return the price of the report of a part, in units of 1e-12."""

    def _delta(self, asked: Asked) -> int:
        """Return the price of the report of a part in delta, in units of 1e-12; 0 where the level is pure."""
        return 0

    def _reach(self, asked: Asked) -> Reach | None:
        """Return a bound on the mechanism's distance by km; None for documents without locations."""
        return None

    def _kept(self, asked: Asked, head: str) -> Memory:
        """Return the storage of a series' reports, under keys with this beginning."""
        return ByNumber(self.ledger, self._terms, head)

    # Shared by all kinds

    def _held(self, asked: Asked) -> Asked:
        """Return the accepted document with this id, or raise."""
        held = self._taken.get(asked.id)
        if held is None:
            raise ParameterError(f"{asked.what} must be one that this {self.me} took, got {asked.title}")
        return held

    def _head(self, asked: Asked) -> str:
        return f"{asked.series}/{self._enrolment.id.hex()}"

    def _memory(self, asked: Asked) -> Memory:
        head = self._head(asked)
        if head not in self._memories:
            self._memories[head] = self._kept(asked, head)
        return self._memories[head]

    def _once(
        self, held: Asked, number: int, draw: Callable[[], Sequence[int]], **price: Callable[[], int]
    ) -> Sequence[int]:
        """Return the values of a part: paid for, drawn and recorded now, or as they were recorded.

        Args:
            held: Document to answer.
            number: Number of the part.
            draw: Function that draws the values, as whole numbers; called once they are paid for.
            price: Price of the report, see `_paid`.

        Raises:
            BudgetExceeded: the lifetime budget does not hold another report.
            ReportForgotten: one has left, as the collector says, and is not remembered.
        """
        with self._guard:
            said = self._memory(held).remembered(number)
            if self._is_forgotten(self._head(held), number, said):
                from reticent.fleet.counted import FORGOTTEN  # rarely needed

                raise ReportForgotten(f"{self.part} {number} of {held.name}: {FORGOTTEN}")
            return self._paid(held, number, draw, **price) if said is None else said

    def _paid(
        self,
        held: Asked,
        number: int,
        draw: Callable[[], Sequence[int]],
        *,
        price: Callable[[], int] | None = None,
    ) -> Sequence[int]:
        """Pay, draw and record the values of a part.

        The price, in units of 1e-12, is that of the document unless another is given.
        """
        units, memory = self._price(held) if price is None else price(), self._memory(held)
        beside, delta = f"{self._head(held)}/{number}", self._delta_amount(held)
        if delta is not None and self._beside is not None:
            self._check_holds(self._beside.name, delta.units, beside)
        if self._total is not None:
            self._pay_above(units, memory.next_key(number), self._reach(held))
        if delta is not None:
            self._pay_beside(units, delta, beside)
        said = memory.paid(number, units, draw)
        self._note(held)
        return said

    def _note(self, held: Asked) -> None:
        """Note in the ledger who asks and on which days, for the person behind the device (`told`)."""
        name, today = note_name(self.account, self._head(held)), datetime.datetime.now(datetime.UTC).date()
        if self._noted.get(name) == today:
            return
        told = Told.noted(self.ledger.kept(name), held.what, held.name, held.purpose, self._signer, today)
        self.ledger.keep(name, told.text)
        self._noted[name] = today

    def _delta_amount(self, held: Asked) -> Amount | None:
        units = self._delta(held)
        return Amount(units, Unit.METRIC_DELTA, self._neighbours) if units else None

    def _settle_both(self, held: Asked, key: str, values: Sequence[int] = ()) -> None:
        """Charge all accounts for a report that has left; the main account last, as it marks the end."""
        self._settle_above(self._price(held), key, self._reach(held))
        if (delta := self._delta_amount(held)) and self._beside is not None:
            self._settle_in(self._beside.name, delta, key)
        self._settle(Amount(self._price(held), self._unit, self._neighbours), key, values)

    def _heed(self, asked: Asked, word: Counted) -> list[int]:
        """Apply a receipt: a report that was counted and is not stored here is never drawn again.

        It is paid for all the same, since it has left. A collector that lies can only silence the device.

        Returns:
            The parts that were counted and that this device does not remember.
        """
        held = self._held(asked)
        word.check(f"{held.study}:{held.series}", self._enrolment)
        numbers = [self._number(held, one) for one in word.periods]
        pay = partial(self._settle_both, held)
        with self._guard:
            memory = self._memory(held)
            lost = [one for one in numbers if memory.settle(one, pay)]
            self._close(self._head(held), word.closed)
        return lost
