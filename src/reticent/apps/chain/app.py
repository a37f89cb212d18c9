"""A ledger in a contract, as the shells are given it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reticent.apps.base import App
from reticent.cli.commands import Commands, Panel

if TYPE_CHECKING:
    from reticent.service.served import Served


def _commands() -> Commands:
    from reticent.apps.chain.commands import demo, group, oracle

    return Commands(panel=Panel.LEDGERS, groups=(group,), commands=(oracle,), demos={"chain": demo})


def _served() -> Served:
    from reticent.service.served import Served

    return Served(folder=Path(__file__).parent, routers=(), tabs=(), prepare=None, running=None)


APP = App(name="chain", commands=_commands, served=_served)
