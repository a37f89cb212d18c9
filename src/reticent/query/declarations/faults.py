"""The errors in a declaration, field by field, reported all at once so that all can be mended together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from reticent.errors import ParameterError, ParameterTypeError, SeveralErrors

Found = TypeVar("Found")
Other = TypeVar("Other")
MOST_TOLD = 20


class Faults:
    """A collector of errors in fields that are read one by one."""

    def __init__(self) -> None:
        self._found: list[ParameterError | ParameterTypeError] = []

    def of(self, otherwise: Other, read: Callable[..., Found], *given: Any) -> Found | Other:
        """Return the result of reading a field; if reading fails, note the error and return a default."""
        try:
            return read(*given)
        except (ParameterError, ParameterTypeError) as error:
            self.add(error)
            return otherwise

    def add(self, error: ParameterError | ParameterTypeError) -> None:
        """Note an error."""
        self._found.append(error)

    def about(self, *fields: str) -> bool:
        """Return whether one of these fields has an error."""
        return any(str(one).startswith(fields) for one in self._found)

    def check(self) -> None:
        """Raise the noted errors, if any: a single error as it is.

        Raises:
            SeveralErrors: There is more than one.
        """
        if len(self._found) == 1:
            raise self._found[0]
        if not self._found:
            return
        each: list[str] = []
        for one in self._found:
            each += one.each if isinstance(one, SeveralErrors) else (str(one),)
        more = len(each) - MOST_TOLD
        raise SeveralErrors([*each[:MOST_TOLD], *([f"and {more:,} more like these"] if more > 0 else [])])
