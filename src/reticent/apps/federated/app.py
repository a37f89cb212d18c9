"""Models that clients train, as the shells are given it."""

from __future__ import annotations

from reticent.apps.base import App
from reticent.cli.commands import Commands, Panel


def _commands() -> Commands:
    from reticent.apps.federated.commands import demo, group

    return Commands(panel=Panel.TOGETHER, groups=(group,), commands=(), demos={"federated": demo})


APP = App(name="federated", commands=_commands, served=None)
