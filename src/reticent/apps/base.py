"""What a capability is to the shells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reticent.cli.commands import Commands

if TYPE_CHECKING:  # the command needs no web framework
    from reticent.service.served import Served


@dataclass(frozen=True, kw_only=True)
class App:
    """A capability. Whoever has no part of a kind says so: nothing has a default.

    Attributes:
        name: of its folder.
        commands: loads what it adds to the command: options and help alone, since `reticent --help` waits
            for it.
        served: loads what it adds to the service; None for nothing.
    """

    name: str
    commands: Callable[[], Commands]
    served: Callable[[], Served] | None
