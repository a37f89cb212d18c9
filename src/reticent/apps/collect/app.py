"""Surveys of devices, as the shells are given it."""

from __future__ import annotations

from reticent.apps.base import App
from reticent.cli.commands import Commands


def _commands() -> Commands:
    from reticent.apps.collect.commands import aggregate, bridge, demo, enrolment_group, fleet, group, perturb

    return Commands(
        groups=(group, enrolment_group),
        commands=(aggregate, bridge, perturb),
        demos={"collect": demo, "fleet": fleet},
    )


APP = App(name="collect", commands=_commands)
