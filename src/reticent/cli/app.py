"""The shell of the command: what capabilities add to it is given. What commands do is imported when they run.

Help is plain text: drawing it with rich costs more time than all the rest of `reticent --help`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

import click
import typer
import typer.core
import typer.main

from reticent import __version__
from reticent.cli.commands import ALONE, Commands, Panel

# Without this, typer 0.20 loads rich even for plain help, and prints `\[required]`.
typer.core.HAS_RICH = False


class _Listed(typer.core.TyperGroup):
    """Commands under headings, for somebody who looks for one: those of a heading by name."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list under each heading, all of them with the same indent."""
        shown = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        shown = [(name, one) for name, one in shown if not one.hidden]
        widest = max(len(name) for name, _ in shown)
        for panel in Panel:
            rows = [
                (f"{name:{widest}}", one.get_short_help_str(formatter.width - widest - 6))
                for name, one in sorted(shown)
                if getattr(one, "rich_help_panel", None) == panel
            ]
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows)


def create_app(capabilities: Sequence[Commands], only: str | None = None) -> typer.Typer:
    """Build the command with what these capabilities add, each under its heading.

    Args:
        capabilities: Commands of every capability.
        only: Name of the one command or group to build, which is many times as quick; without, or if there
            is none of that name, all of them.

    Raises:
        ValueError: If two capabilities add something of the same name.
    """
    app = typer.Typer(
        name="reticent",
        cls=_Listed,
        help="Learn from personal data while every release is paid for out of one privacy ledger.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    groups = [(_demos(capabilities), Panel.START)]
    groups += [(group, one.panel) for one in capabilities for group in one.groups]
    commands = [(version, Panel.START), *((run, one.panel) for one in capabilities for run in one.commands)]
    names = [*(_name(group) for group, _ in groups), *(_command_name(run) for run, _ in commands)]
    _check_names(names)
    wanted = {only} if only in names else set(names)
    for group, panel in groups:
        if _name(group) in wanted:
            app.add_typer(group, rich_help_panel=panel)
    for run, panel in commands:
        if _command_name(run) in wanted:
            app.command(rich_help_panel=panel)(run)
    return app


def _name(group: typer.Typer) -> str:
    return str(group.info.name)


def _command_name(run: Callable[..., None]) -> str:
    return typer.main.get_command_name(run.__name__)


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
