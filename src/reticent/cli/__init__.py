"""The `reticent` command.

`entry.main` is the one way in: it turns every failure into one line. `app` holds the commands with
their help; what a command does lives in a module of its own, imported when the command runs, so that
`reticent --help` loads neither numpy nor any room.
"""

from reticent.cli.entry import main

__all__ = ["main"]
