"""What commands share: groups of commands made alike, and options that go together as one value."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, get_type_hints

import typer

_EMPTY = inspect.Parameter.empty


def group_of_commands(name: str, says: str) -> typer.Typer:
    """A command that has commands of its own, `reticent NAME COMMAND`, with help in plain text."""
    return typer.Typer(name=name, help=says, no_args_is_help=True, rich_markup_mode=None)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes options as one value: each parameter that is a dataclass is its fields instead."""
    given = inspect.signature(command, eval_str=True).parameters
    groups: dict[str, Any] = {
        name: one.annotation for name, one in given.items() if is_dataclass(one.annotation)
    }
    listed: list[inspect.Parameter] = []
    for name, one in given.items():
        if name not in groups:
            listed.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(groups[name], include_extras=True)
        listed += [_option(field, hints[field.name]) for field in fields(groups[name])]

    @functools.wraps(command)
    def run(**said: Any) -> None:
        for name, kind in groups.items():
            said[name] = kind(**{field.name: said.pop(field.name) for field in fields(kind)})
        command(**said)

    run.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in listed}
    return run


def _option(field: Field[Any], annotation: Any) -> inspect.Parameter:
    default = _EMPTY if field.default is MISSING else field.default
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
