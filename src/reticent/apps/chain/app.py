"""A ledger in a contract, as the shells are given it."""

from __future__ import annotations

from reticent.apps.base import App
from reticent.cli.commands import Commands


def _commands() -> Commands:
    from reticent.apps.chain.commands import demo, group, oracle

    return Commands(groups=(group,), commands=(oracle,), demos={"chain": demo})


APP = App(name="chain", commands=_commands)
