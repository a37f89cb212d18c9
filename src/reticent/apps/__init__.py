"""One folder for each capability: its commands, its demonstration, its routes, its pages.

`listed` is the one list of them. The shells, `cli` and `service`, are given what it holds, and rooms know
nothing of it.
"""

from reticent.apps.command import main

__all__ = ["main"]
