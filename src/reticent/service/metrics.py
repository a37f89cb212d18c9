"""Counts of answers by route and status, in the format of Prometheus. No data, no names, no times."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Mapping

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")


class Metrics:
    """The counts of one process. `worker` tells the processes of a service apart."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self.at_once = 0

    def count(self, method: str, route: str | None, status: int) -> None:
        """One reply. What is under no route is counted together."""
        known = method if method in METHODS else "other"
        with self._guard:
            self._counts[known, route or "none", status] += 1

    def text(self, jobs: Mapping[str, int], *, lost: int = 0, is_ready: bool = True) -> str:
        """Format all counts as text.

        Args:
            jobs: Jobs of all processes, counted by their state.
            lost: Connections to the shared database that were made anew.
            is_ready: True if the server takes new work.
        """
        with self._guard:
            counts = sorted(self._counts.items())
        worker = f'worker="{os.getpid()}"'
        lines = _head("reticent_requests_total", "counter", "Replies by method, route and status.")
        for (method, route, status), number in counts:
            labels = f'{worker},method="{method}",route="{route}",status="{status}"'
            lines.append(f"reticent_requests_total{{{labels}}} {number}")
        lines += _head("reticent_requests_at_once", "gauge", "Requests that are worked on now.")
        lines.append(f"reticent_requests_at_once{{{worker}}} {self.at_once}")
        lines += _head("reticent_ready", "gauge", "1 while new work is taken, 0 while the server ends.")
        lines.append(f"reticent_ready{{{worker}}} {int(is_ready)}")
        lines += _head("reticent_reconnections_total", "counter", "Lost connections to the shared database.")
        lines.append(f"reticent_reconnections_total{{{worker}}} {lost}")
        lines += _head("reticent_jobs", "gauge", "Long questions by state, of all servers together.")
        lines += [f'reticent_jobs{{state="{state}"}} {number}' for state, number in sorted(jobs.items())]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, words: str) -> list[str]:
    return [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
