"""A line from whoever sits at the terminal, which Ctrl-C and SIGTERM interrupt at every moment.

`input` alone would miss a signal in the instant before it waits: Python sees a signal between two of its own
steps, and waiting for a line is one step. So we wait for the line or a signal, and read once it is there.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def asked(question: str) -> str:
    """Ask, and return the line that was typed.

    Raises:
        EOFError: nobody will type any more.
    """
    with _signals() as heard:
        sys.stdout.flush()
        print(question, end="", file=sys.stderr, flush=True)  # where `input` writes it
        while sys.stdin not in select.select([sys.stdin, heard], [], [])[0]:
            os.read(heard, 1024)  # the signal's own function has run by now, and did not end us
        return input()


@contextmanager
def _signals() -> Iterator[int]:
    """A file that can be read once a signal came. For the main thread."""
    heard, told = os.pipe()
    os.set_blocking(told, False)
    before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    try:
        yield heard
    finally:
        signal.set_wakeup_fd(before)
        os.close(heard)
        os.close(told)
