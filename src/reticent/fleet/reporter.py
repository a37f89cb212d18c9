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

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Generic, TypeVar

from reticent.arguments import real
from reticent.errors import ParameterError, ReportForgotten
from reticent.fleet.counted import FORGOTTEN, Counted
from reticent.fleet.enrolment import Enrolment
from reticent.fleet.memory import ByNumber, Memory
from reticent.fleet.published import Published
from reticent.fleet.signing import verified
from reticent.ledger.base import Amount, Terms, Unit
from reticent.ledger.device.ledger import Budgeted
from reticent.ledger.device.marks import Marks
from reticent.privacy.budget import UNITS_PER_ONE, cap_units
from reticent.privacy.neighbours import Neighbours
from reticent.randomness import Stream, secure_or

Asked = TypeVar("Asked", bound=Published)


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
    ) -> None:
        self._enrolment, self._signer = enrolment, signer
        self._most = real(f"most{self.per}", most, low=0.0, open_low=True)
        self._stream = secure_or(rng)
        cap = cap_units(real(f"lifetime{self.per}", lifetime, low=0.0, open_low=True))
        self._guard = threading.Lock()
        self._taken: dict[bytes, Asked] = {}
        self._memories: dict[str, Memory] = {}  # by head
        whose = f"the person behind this {self.me}"
        self._terms = Terms(self.account, self._unit, self._neighbours, whose, cap)
        super().__init__(path, self._terms, enrolment.key, marks)

    def take(self, file: bytes) -> Asked:
        """Take part in what a signed text asks, if it keeps what it says and asks no more than is allowed.

        Raises:
            GuaranteeError, ParameterError: it does not; nothing was sent or spent.
        """
        asked = verified(self.kind, file, self._signer)
        self._check(asked)
        self._taken[asked.id] = asked
        return asked

    @property
    def spent(self) -> float:
        """What its reports have spent in all."""
        return self.ledger.balance(self.account).spent / UNITS_PER_ONE

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
        return self._memory(held).paid(number, self._price(held) if price is None else price(), draw)

    def _heed(self, asked: Asked, word: Counted) -> list[int]:
        """Take the collector's word on the parts that it has counted: what is not remembered is never drawn.

        It is paid for all the same, since it has left. A liar can only silence.

        Returns:
            The parts that were counted and that this device does not remember.
        """
        held = self._held(asked)
        word.check(f"{held.study}:{held.series}", self._enrolment)
        numbers = [self._number(held, one) for one in word.periods]
        pay = partial(self._settle, Amount(self._price(held), self._unit, self._neighbours))
        with self._guard:
            memory = self._memory(held)
            lost = [one for one in numbers if memory.settle(one, pay)]
            self._close(self._head(held), word.closed)
        return lost
