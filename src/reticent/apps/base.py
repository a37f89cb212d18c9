"""What a capability is to the shells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reticent.cli.commands import Commands


@dataclass(frozen=True, kw_only=True)
class App:
    """A capability. Whoever has no part of a kind says so: nothing has a default.

    Attributes:
        name: of its folder.
        commands: loads what it adds to the command: options and help alone, since `reticent --help` waits
            for it.
    """

    name: str
    commands: Callable[[], Commands]
