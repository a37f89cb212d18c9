"""What runs where the data are: takes signed texts, and gives one private report for each part of them.

Everything that protects the person behind a device is here, once for all kinds: whose texts are taken, what
they may ask, that a report is paid for before it is drawn, drawn once, remembered before it leaves, and the
same ever after; and that nothing is drawn which the collector says has left. A kind of devices adds what it
draws and how that is written as bytes.

A device is a total function of its data: odd and missing values are reported like any other. It refuses only
for what everybody may know: a text that is not signed, does not keep its guarantee or asks for more than the
owner allows; a part that there is not; a spent ledger.
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

if TYPE_CHECKING:  # few are told
    from reticent.fleet.counted import Counted

Asked = TypeVar("Asked", bound=Published)


class Kept(TypedDict, total=False):
    """What a `Reporter` has of its own, as arguments of a call."""

    rng: Stream | None
    marks: Marks | None
    total: Lifetime | None


class Held(Kept):
    """The same, with its lifetime budget."""

    lifetime: Required[float]


class Reporter(Budgeted, ABC, Generic[Asked]):
    """One enrolled device and its lifetime budget.

    Attributes:
        kind: of the texts that it takes.
        account: of its ledger.
        part: what one report answers.
        me: what it calls itself.
        per: what the names of its amounts end in, where they are no plain epsilon.

    Args:
        path: the device's ledger, one file; made if there is none.
        enrolment: what the operator gave it.
        signer: the public key (32 bytes) whose texts it answers.
        lifetime: what its reports may spend in all, over all texts; fixed with the ledger.
        most: what it allows a single report.
        rng: None for secure randomness; a SimulationStream in tests and simulations.
        marks: where it is remembered what has left, apart from the ledger; None for the usual place.
        lifetime_delta: what its reports may spend in all of delta, where a level is kept but for a delta; a
            second account. None for devices that take no such texts.
        total: one lifetime above all that the ledger pays for: surveys, trainings and places. Fixed with the
            ledger; None takes the one that it has, if it has one.
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
        self._noted: dict[str, datetime.date] = {}  # until when the ledger says who asks
        whose = f"the person behind this {self.me}"
        self._terms = Terms(self.account, self._unit, self._neighbours, whose, cap)
        beside = None
        if lifetime_delta is not None:
            most_delta = cap_units(real("lifetime_delta", lifetime_delta, low=0.0, high=1.0, open_low=True))
            name = f"{self.account}-delta"
            beside = Terms(name, Unit.METRIC_DELTA, self._neighbours, whose, most_delta)
        super().__init__(path, self._terms, enrolment.key, marks, beside, total)

    def take(self, file: bytes) -> Asked:
        """Take part in what a signed text asks, if it keeps what it says and asks no more than is allowed.

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
        """What its reports have spent of delta in all."""
        return 0.0 if self._beside is None else self.ledger.balance(self._beside.name).spent / UNITS_PER_ONE

    @property
    def spent(self) -> float:
        """What its reports have spent in all."""
        return self.ledger.balance(self.account).spent / UNITS_PER_ONE

    @property
    def left(self) -> int:
        """What a report may still cost, in units of 1e-12, below the lifetime of the ledger if it has one."""
        left = self.ledger.balance(self.account).remaining
        if self._total is None or self._unit is not Unit.EPSILON:
            return left
        return min(left, lifetime.epsilon_left(self._total, self.ledger.balance(self._total.name).remaining))

    @property
    def signer(self) -> bytes:
        """The public key whose texts it answers."""
        return self._signer

    @property
    def enrolment(self) -> Enrolment:
        """What the operator gave it; for what runs on the same device."""
        return self._enrolment

    # What a kind adds

    @abstractmethod
    def _check(self, asked: Asked) -> None:
        """Refuse a text that asks for more than is allowed, or that cannot be drawn: it is not paid for.

        Raises:
            GuaranteeError: it does.
        """

    @abstractmethod
    def _number(self, asked: Asked, number: int) -> int:
        """The number of a part that a collector names, or an error."""

    @abstractmethod
    def _price(self, asked: Asked) -> int:
        """What the report of a part costs, in units of 1e-12."""

    def _delta(self, asked: Asked) -> int:
        """What the report of a part costs of delta, in units of 1e-12; nothing where the level is pure."""
        return 0

    def _reach(self, asked: Asked) -> Reach | None:
        """How far apart, at most, two places so many km apart are to the mechanism; None without places."""
        return None

    def _kept(self, asked: Asked, head: str) -> Memory:
        """How the reports of a series are kept, under keys with this beginning."""
        return ByNumber(self.ledger, self._terms, head)

    # What all of them do

    def _held(self, asked: Asked) -> Asked:
        """The text as it was taken."""
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
        """What is said in a part: paid for, drawn and recorded now; or as it was recorded.

        Args:
            held: the text.
            number: of the part.
            draw: what is said, as whole numbers; called once it is paid for.
            price: see `_paid`.

        Raises:
            BudgetExceeded: the lifetime budget does not hold another report.
            ReportForgotten: one has left, as the collector says, and is not remembered.
        """
        with self._guard:
            said = self._memory(held).remembered(number)
            if self._is_forgotten(self._head(held), number, said):
                from reticent.fleet.counted import FORGOTTEN  # most never forget

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
        """Pay, draw, record. The price, in units of 1e-12, is that of the text unless another is given."""
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
        """Keep in the ledger who asks and on which days, for the person behind it (`told`)."""
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
        """Pay all accounts for what has left; the first last, since what it holds says that it is done."""
        self._settle_above(self._price(held), key, self._reach(held))
        if (delta := self._delta_amount(held)) and self._beside is not None:
            self._settle_in(self._beside.name, delta, key)
        self._settle(Amount(self._price(held), self._unit, self._neighbours), key, values)

    def _heed(self, asked: Asked, word: Counted) -> list[int]:
        """Take the collector's word on the parts that it has counted: what is not remembered is never drawn.

        It is paid for all the same, since it has left. A liar can only silence.

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
