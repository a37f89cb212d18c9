"""The way into the command: run it, and say every failure in one line on standard error.

What is wrong in several ways (`SeveralErrors`) has a line for each.

| what happened                                         | exit code |
|-------------------------------------------------------|-----------|
| done, or help was shown                               | 0         |
| a fault of ours                                       | 1         |
| bad input: an option, a value, a file, a missing part | 2         |
| a disk or a quota is full                             | 2         |
| interrupted by Ctrl-C                                 | 130       |
| ended by SIGTERM                                      | 143       |

`reticent --debug COMMAND` shows the traceback instead. Without it, an unexpected fault prints only its
type: its text could hold data.
"""

from __future__ import annotations

import _thread
import codecs
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

from reticent.errors import MissingExtra, ReticentError, SeveralErrors, SourceError
from reticent.files import FULL, is_out_of_space

if TYPE_CHECKING:
    from reticent.cli.commands import Commands

_INTERRUPTED, _TERMINATED = 130, 143
_REPEAT_AFTER_S = 0.05
_IN_ASCII = {"±": "+/-", "█": "#", "░": ".", "²": "2", "€": "EUR"}

_EXTRA_OF = {
    "click": "cli",
    "rich": "cli",
    "typer": "cli",
    "matplotlib": "plot",
    "numba": "fast",
    "web3": "chain",
    "requests": "chain",
    "eth_abi": "chain",
    "eth_account": "chain",
    "eth_utils": "chain",
    "coincurve": "chain",
    "dp_accounting": "accounting",
    "scipy": "accounting",
    "opendp": "central",
    "ot": "location",
    "duckdb": "query",
    "ibis": "query",
    "pandas": "query",
    "distributed": "cluster",
    "paho": "mqtt",
    "pyarrow": "query",
    "sqlglot": "query",
    "yaml": "query",
    "anyio": "service",
    "fastapi": "service",
    "httptools": "service",
    "jinja2": "service",
    "multipart": "service",
    "pydantic": "service",
    "python_multipart": "service",
    "starlette": "service",
    "uvicorn": "service",
    "uvloop": "service",
}


def main(capabilities: Callable[[], Sequence[Commands]]) -> NoReturn:
    """Run the command given by `sys.argv` and exit.

    Args:
        capabilities: loads what they add to the command.
    """
    ended = _heed_sigterm()
    _write_anywhere()
    try:
        with _repeat_lost_interrupts(ended):
            code = _run(capabilities)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`| head`) has gone. Nothing is left to say; keep Python from saying so at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except KeyboardInterrupt:
        code = _fail("ended", _TERMINATED) if ended else _fail("interrupted", _INTERRUPTED)
    except Exception as error:
        if "--debug" in sys.argv[1:]:
            if isinstance(error, SourceError) and error.details:
                error.add_note(error.details)
            raise
        code = _explain(error)
    sys.exit(code)


def _write_anywhere() -> None:
    """Let a terminal that has no Unicode show what it can: whoever paid for an answer must see it."""
    codecs.register_error("reticent", _plainly)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="reticent")


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that cannot be written: signs of ours in ASCII, all others escaped."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    said = error.object[error.start : error.end]
    shown = (_IN_ASCII.get(one) or one.encode("ascii", "backslashreplace").decode() for one in said)
    return "".join(shown), error.end


def _heed_sigterm() -> list[int]:
    """Let SIGTERM end the command as Ctrl-C does, with everything that it started; the list holds whether."""
    ended: list[int] = []

    def end(number: int, frame: Any) -> None:
        ended.append(number)
        raise KeyboardInterrupt

    with suppress(ValueError):  # not in the main thread: whoever called looks after signals
        signal.signal(signal.SIGTERM, end)
    return ended


@contextmanager
def _repeat_lost_interrupts(ended: list[int]) -> Iterator[None]:
    """Interrupt the block once more if an interrupt was lost.

    Python drops whatever a destructor or the callback of a weak reference raises. HTTP clients have many of
    them; a signal that comes while one runs would end nothing.

    Args:
        ended: Signals that came, other than Ctrl-C.
    """
    usual_hook, timers = sys.unraisablehook, list[threading.Timer]()

    def repeat(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            usual_hook(lost)
            return
        number = ended[-1] if ended else signal.SIGINT
        timers.append(threading.Timer(_REPEAT_AFTER_S, _thread.interrupt_main, (number,)))
        timers[-1].daemon = True
        timers[-1].start()

    sys.unraisablehook = repeat
    try:
        yield
    finally:
        sys.unraisablehook = usual_hook
        for timer in timers:
            timer.cancel()


def _run(capabilities: Callable[[], Sequence[Commands]]) -> int:
    import click

    from reticent.cli.app import create_app

    app = create_app(capabilities(), only=_named_command(sys.argv[1:]))
    try:
        code = app(prog_name="reticent", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        return 0
    except click.ClickException as error:
        return _fail(_once(error.format_message()), error.exit_code)
    except click.Abort as error:
        raise KeyboardInterrupt from error
    if code == _INTERRUPTED:  # typer has already turned Ctrl-C into an exit code
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _named_command(arguments: Sequence[str]) -> str | None:
    """Return the command that the arguments name first; None where the help of all may be shown."""
    return next((word for word in arguments if word != "--debug"), None)


def _once(message: str) -> str:
    """Typer and click both say what somebody may have meant."""
    said, hint, rest = message.partition(" Did you mean")
    return said + hint + rest.split(" Did you mean")[0]


def _explain(error: Exception) -> int:
    """Say in one line what went wrong, or in one for each thing, and return the exit code."""
    if isinstance(error, SeveralErrors):
        return max(_fail(one, 2) for one in error.each)
    if isinstance(error, ModuleNotFoundError) and error.name in _EXTRA_OF:
        return _fail(str(MissingExtra("this command", _EXTRA_OF[error.name])), 2)
    if is_out_of_space(error):
        return _fail(_describe_full_disk(error), 2)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return _fail(f"{error.filename}: {error.strerror}", 2)
    if isinstance(error, (ReticentError, ValueError, OSError)):
        return _fail(str(error), 2)
    return _fail(f"internal fault ({type(error).__name__}); `reticent --debug COMMAND ...` shows where", 1)


def _describe_full_disk(error: Exception) -> str:
    """Say that a disk is full, where, and what to do: the words of engines may hold data."""
    place = f": {error.filename}" if isinstance(error, OSError) and error.filename else ""
    told = f" ({error})" if isinstance(error, ReticentError) and FULL not in str(error) else place
    subject = str(error) if isinstance(error, ReticentError) and FULL in str(error) else FULL + told
    return f"{subject}; free some space, then run the command again"


def _fail(message: str, code: int) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return code
