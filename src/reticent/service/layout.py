"""Templates and static files: those of the shell, and those of each capability, under one address.

A name belongs to one folder: a file that two have is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles
from fastapi.templating import Jinja2Templates

from reticent.service import showing
from reticent.service.served import Tab

SHELL = Path(__file__).parent


def templates(capabilities: Iterable[Path], tabs: Sequence[Tab] = ()) -> Jinja2Templates:
    """The templates of the shell and of these folders; what they show is escaped."""
    made = Jinja2Templates(_folders("templates", capabilities))
    made.env.filters |= {
        "percent": showing.percent,
        "epsilon": showing.epsilon,
        "mu2": showing.mu2,
        "cents": showing.cents,
        "amount": showing.amount,
        "capped": showing.capped,
        "data": showing.data,
    }
    made.env.globals["tabs"] = sorted(tabs)
    return made


class Static(StaticFiles):
    """Files that a browser may keep, and asks whether they changed."""

    def __init__(self, capabilities: Iterable[Path]) -> None:
        shell, *others = _folders("static", capabilities)
        super().__init__(directory=shell)
        self.all_directories = [shell, *others]

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """The file, to be asked for again."""
        reply = super().file_response(*args, **kwargs)
        reply.headers["cache-control"] = "no-cache"
        return reply


def _folders(kind: str, capabilities: Iterable[Path]) -> list[Path]:
    found = [folder for one in (SHELL, *capabilities) if (folder := one / kind).is_dir()]
    seen: dict[str, Path] = {}
    for folder in found:
        for path in folder.rglob("*"):
            if path.is_file() and seen.setdefault(str(path.relative_to(folder)), path) != path:
                raise ValueError(f"{path} has the name of {seen[str(path.relative_to(folder))]}")
    return found
