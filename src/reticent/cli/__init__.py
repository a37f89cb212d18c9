"""The shell of the `reticent` command: what capabilities add to it is given (`commands.Commands`).

`entry.main` is the one way in: it turns every failure into one line. What a command does lives in a module
of its own, imported when the command runs, so that `reticent --help` loads neither numpy nor any room.
"""

from reticent.cli.entry import main

__all__ = ["main"]
