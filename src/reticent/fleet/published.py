"""What an operator publishes and devices answer: a text that means the same on every machine, and its id.

Surveys, training tasks and rounds of places are such texts. A kind of text says once, as attributes of its
class, what it is called, which line is signed with it and under what its reports are remembered. `signing`
and `reporter` go by that alone, so that no kind can be signed or answered under the words of another.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from reticent.errors import ParameterError
from reticent.fleet import texts
from reticent.fleet.lots import KEY_BYTES, Lots
from reticent.fleet.texts import LONGEST_TEXT
from reticent.privacy.budget import cost_units

ID_BYTES = 8
WORDS = ("format", "name", "version", "purpose")  # fields of every text


class Kind:
    """What a kind of texts says of itself. None of it is a field of the text.

    Attributes:
        what: it is called.
        field: of a signed file, that holds it.
        head: the line that is signed before it.
        names: of its fields.
        optional: fields that may be missing.
        longest: how many bytes it may have.
        study: that it belongs to, as the words of collectors call it (`counted`).
    """

    what: ClassVar[str]
    field: ClassVar[str]
    head: ClassVar[bytes]
    names: ClassVar[tuple[str, ...]]
    optional: ClassVar[tuple[str, ...]] = ()
    longest: ClassVar[int] = LONGEST_TEXT
    study: ClassVar[str]


@dataclass(frozen=True)
class Published(Kind, ABC):
    """A text of any kind: JSON with sorted fields and no spaces.

    Args:
        name: of what is asked; letters, digits, dots, dashes.
        version: of its text, for people.
        purpose: why it is asked, in words that the person behind a device reads.
    """

    name: str
    version: str
    purpose: str

    def __post_init__(self) -> None:
        texts.check_words(self.name, self.version, self.purpose)

    # What each kind says of itself

    @abstractmethod
    def _fields(self) -> Mapping[str, Any]:
        """Of the text, by name."""

    @classmethod
    @abstractmethod
    def _of(cls, given: dict[str, Any]) -> Self:
        """The one of these fields, if they keep their rules."""

    def check(self) -> None:
        """Look closer, before a device answers it: at what is too dear for whoever only reads it.

        Raises:
            GuaranteeError: it does not keep what it claims.
        """

    @property
    def title(self) -> str:
        """Its name, for messages."""
        return self.name

    @property
    def series(self) -> str:
        """Under which reports are remembered: one for each part of a series, whatever text asks for it."""
        return self.id.hex()

    # What follows

    @cached_property
    def text(self) -> bytes:
        """The text that is signed."""
        return texts.written(self._fields())

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """What a text says, if what it claims is so.

        Raises:
            ParameterError: in one line, with the field, the rule and the value; also if the text is not
                written as `text` writes it.
            GuaranteeError: it does not keep what it claims, such as its epsilon.
        """
        given = texts.read(text, cls.names, optional=cls.optional, what=cls.what, most=cls.longest)
        found = cls._of(given)
        if found.text != text:
            raise ParameterError(
                f"the {cls.what} must be JSON with sorted fields, no spaces and no other fields"
            )
        return found

    @cached_property
    def id(self) -> bytes:
        """The first eight bytes of SHA-256 of the text: what reports name."""
        return hashlib.sha256(self.text).digest()[:ID_BYTES]


class Local(Published):
    """A text whose reports are epsilon-LDP, and that has draws of its own."""

    epsilon: float
    key: bytes

    def _check_key(self) -> None:
        if not isinstance(self.key, bytes) or len(self.key) != KEY_BYTES:
            raise ParameterError(f"key must be {KEY_BYTES} bytes")

    def _check_length(self) -> None:
        if len(self.text) > LONGEST_TEXT:
            raise ParameterError(
                f"the {self.what} must be at most {LONGEST_TEXT} bytes, got {len(self.text)}"
            )

    @cached_property
    def units(self) -> int:
        """What one report costs the ledger of its reporter, in units of 1e-12 epsilon, rounded up."""
        return cost_units(self.epsilon)

    @cached_property
    def lots(self) -> Lots:
        """The text's own draws."""
        return Lots(self.key)
