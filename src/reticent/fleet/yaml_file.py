"""Reading of YAML files that operators write; errors name the file, the field and the rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from reticent.errors import MissingExtra, ParameterError, ParameterTypeError
from reticent.mechanisms.attributes import Attribute, Category, Number

LARGEST_FILE = 1 << 20
Result = TypeVar("Result")


def read(what: str, path: Path, parse: Callable[[str], Result]) -> Result:
    """Read a file and parse what it describes.

    Raises:
        ParameterError: in one line, with the file, the field, the rule and the value.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ParameterError(f"must be at most {LARGEST_FILE} bytes")
        return parse(content.decode())
    except UnicodeDecodeError as error:
        raise ParameterError(f"{what} {path.name}: must be text in UTF-8") from error
    except (ParameterError, ParameterTypeError) as error:
        raise type(error)(f"{what} {path.name}: {error}") from error


def loaded(what: str, text: str, extra: str) -> Any:
    """Load the content of a YAML text."""
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra(f"reading a {what}", extra) from error
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ParameterError("must be YAML") from error


def fields(where: str, given: Any, names: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, Any]:
    """Return an object that has these fields and no others, or raise."""
    if not isinstance(given, dict):
        raise ParameterError(f"{where} must have fields, got {type(given).__name__}")
    for name in given:
        if name not in names + optional:
            raise ParameterError(f"{where}: field {name!r:.60} is not known")
    for name in names:
        if given.get(name) is None:
            raise ParameterError(f"{where}: field {name} is missing")
    return given


def attribute(where: str, name: str, given: Any, optional: tuple[str, ...] = ()) -> Attribute:
    """Parse an attribute: a number with bounds, or a category with values."""
    if not isinstance(given, dict):
        raise ParameterError(f"{where} must have fields: low and high, or values")
    if "values" in given:
        fields(where, given, ("values",), ("fallback", *optional))
        return Category(name, given["values"], given.get("fallback"))
    fields(where, given, ("low", "high"), optional)
    return Number(name, (number(f"{where}.low", given["low"]), number(f"{where}.high", given["high"])))


def text(field: str, given: Any) -> str:
    """Return a value as a text; YAML reads a version 1 as a number."""
    if isinstance(given, bool) or not isinstance(given, (str, int, float)):
        raise ParameterTypeError(f"{field} must be a text, got {type(given).__name__}")
    return str(given)


def number(field: str, given: Any) -> float:
    """Return a value as a number; YAML reads 1e-4 as a text."""
    if isinstance(given, bool) or not isinstance(given, (str, int, float)):
        raise ParameterTypeError(f"{field} must be a number, got {given!r:.60}")
    try:
        return float(given)
    except (ValueError, OverflowError) as error:
        raise ParameterError(f"{field} must be a number, got {given!r:.60}") from error
