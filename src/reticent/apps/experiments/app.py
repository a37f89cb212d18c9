"""The figures of the documents, as the shells are given it."""

from __future__ import annotations

from reticent.apps.base import App
from reticent.cli.commands import Commands, Panel


def _commands() -> Commands:
    from reticent.apps.experiments.commands import reproduce

    return Commands(panel=Panel.CHECK, groups=(), commands=(reproduce,), demos={})


APP = App(name="experiments", commands=_commands, served=None)
