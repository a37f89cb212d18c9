"""The `reticent` command: the shell, with every capability."""

from __future__ import annotations

from typing import NoReturn

from reticent.cli import entry
from reticent.cli.commands import Commands


def main() -> NoReturn:
    """Run the command given by `sys.argv` and exit."""
    entry.main(_commands)


def _commands() -> list[Commands]:
    from reticent.apps.listed import APPS  # late: what fails here is said in one line too

    return [one.commands() for one in APPS]
