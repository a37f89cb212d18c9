"""Documents that an operator publishes and devices answer, and their ids.

Surveys, training tasks and rounds of locations are such documents: texts that mean the same on every machine.
Each kind declares once, as attributes of its class, its name, the line that is signed with it and the key
under which its reports are stored. `signing` and `reporter` use nothing else, so that no kind can be signed
or answered as another.
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
WORDS = ("format", "name", "version", "purpose")  # fields of every document


class Kind:
    """The declarations of a kind of documents. None of them is a field of the text.

    Attributes:
        what: Name of the kind, for messages.
        field: Field of a signed file that holds the text.
        head: Line that is signed before the text.
        names: Names of the fields.
        optional: Names of the fields that may be missing.
        longest: Largest size of the text in bytes.
        study: Prefix of the study in receipts of collectors (`counted`).
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
    """A document of any kind: JSON with sorted fields and no spaces.

    Args:
        name: Name of the study; letters, digits, dots, dashes.
        version: Version of the text, for people.
        purpose: Reason for the study, in words that the person behind a device reads.
    """

    name: str
    version: str
    purpose: str

    def __post_init__(self) -> None:
        texts.check_words(self.name, self.version, self.purpose)

    # Declared by each kind

    @abstractmethod
    def _fields(self) -> Mapping[str, Any]:
        """Return the fields of the text by name."""

    @classmethod
    @abstractmethod
    def _of(cls, given: dict[str, Any]) -> Self:
        """Build the document from these fields, if they keep their rules."""

    def check(self) -> None:
        """Check what is too expensive to check at every parse, before a device answers the document.

        Raises:
            GuaranteeError: it does not keep what it claims.
        """

    @property
    def title(self) -> str:
        """Name of the document, for messages."""
        return self.name

    @property
    def series(self) -> str:
        """Key under which reports are stored: one for each part of a series, whichever text asks for it."""
        return self.id.hex()

    # Derived

    @cached_property
    def text(self) -> bytes:
        """The text that is signed."""
        return texts.written(self._fields())

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Parse a document from its text, and verify what it claims.

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
        """The first eight bytes of SHA-256 of the text, which reports refer to."""
        return hashlib.sha256(self.text).digest()[:ID_BYTES]


class Local(Published):
    """A document whose reports are epsilon-LDP, with pseudo-random draws of its own."""

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
        """Cost of one report in the ledger of its reporter, in units of 1e-12 epsilon, rounded up."""
        return cost_units(self.epsilon)

    @cached_property
    def lots(self) -> Lots:
        """Pseudo-random draws of this document."""
        return Lots(self.key)
