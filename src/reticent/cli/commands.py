"""What a capability adds to the command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # whoever has no typer is told what to install, by `entry`
    import typer

ALONE = ""  # the name of the demonstration that `reticent demo` shows without one


class Panel(StrEnum):
    """Under which heading `reticent --help` lists commands, in this order."""

    START = "Start here"
    ASK = "Ask a data set"
    DEVICES = "Ask devices"
    TOGETHER = "Learn from many people"
    SERVE = "Serve"
    LEDGERS = "Ledgers and chains"
    CHECK = "Compare and check"


@dataclass(frozen=True, kw_only=True)
class Commands:
    """Its commands. Whoever has none of a kind says so: nothing has a default.

    Attributes:
        panel: under which they are listed.
        groups: commands with commands of their own, `reticent ledger show`.
        commands: the others, each under the name of its function.
        demos: demonstrations by their name, `reticent demo NAME`; one capability may have the one that is
            shown without a name (`ALONE`), a callback of typer that looks whether another was named.
    """

    panel: Panel
    groups: Sequence[typer.Typer]
    commands: Sequence[Callable[..., None]]
    demos: Mapping[str, Callable[..., None]]
