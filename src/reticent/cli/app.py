"""The shell of the command: what capabilities add to it is given. What commands do is imported when they run.

Help is plain text: drawing it with rich costs more time than all the rest of `reticent --help`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
import typer.core

from reticent import __version__
from reticent.cli.commands import ALONE, Commands

# Without this, typer 0.20 loads rich even for plain help, and prints `\[required]`.
typer.core.HAS_RICH = False


def create_app(capabilities: Sequence[Commands]) -> typer.Typer:
    """The command with what these capabilities add, by name: groups first.

    Raises:
        ValueError: two of them add something of the same name.
    """
    app = typer.Typer(
        name="reticent",
        help="Learn from personal data while every release is paid for out of one privacy ledger.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    groups = [_demos(capabilities), *(group for one in capabilities for group in one.groups)]
    commands = [version, *(run for one in capabilities for run in one.commands)]
    _check_names([*map(_name, groups), *(run.__name__ for run in commands)])
    for group in sorted(groups, key=_name):
        app.add_typer(group)
    for run in sorted(commands, key=lambda run: run.__name__):
        app.command()(run)
    return app


def _name(group: typer.Typer) -> str:
    return str(group.info.name)


def _demos(capabilities: Sequence[Commands]) -> typer.Typer:
    """`reticent demo`, with every demonstration."""
    demo = typer.Typer(name="demo", invoke_without_command=True, rich_markup_mode=None)
    demos = [named for one in capabilities for named in one.demos.items()]
    _check_names(name for name, _ in demos)
    for name, run in demos:
        if name == ALONE:
            demo.callback()(run)
        else:
            demo.command(name)(run)
    return demo


def _check_names(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"two capabilities add {name!r} to the command")
        seen.add(name)


def _show_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    shown: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Learn from personal data while every release is paid for out of one privacy ledger."""


def version() -> None:
    """Show the version."""
    typer.echo(f"reticent {__version__}")
