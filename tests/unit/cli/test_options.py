"""Options that go together: one value in a command, each an option of its own on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from reticent.cli.options import group_of_commands, with_options


@dataclass(frozen=True)
class Whose:
    key: Annotated[Path, typer.Option("--key", help="Who signs.")]
    node: Annotated[str | None, typer.Option(help="Where.")] = None


@dataclass(frozen=True)
class HowExact:
    error: Annotated[float | None, typer.Option(help="How wide.")] = None


said = []
group = group_of_commands("toy", "Toys.")


@group.command()
@with_options
def buy(
    name: Annotated[str, typer.Argument()],
    once: Annotated[bool, typer.Option("--once")] = False,
    *,
    whose: Whose,
    exact: HowExact,
) -> None:
    """Buy a toy."""
    said.append((name, once, whose, exact))


@group.command()
def look() -> None:
    """Look at toys."""


def told(*words):
    said.clear()
    return CliRunner().invoke(group, words)


def test_each_field_is_an_option():
    assert told("buy", "bear", "--key", "k", "--error", "2", "--once").exit_code == 0
    assert said == [("bear", True, Whose(Path("k")), HowExact(2.0))]
    assert told("buy", "bear", "--key", "k", "--node", "here").exit_code == 0
    assert said == [("bear", False, Whose(Path("k"), "here"), HowExact())]


def test_what_must_be_given_is_asked_for():
    found = told("buy", "bear")
    assert (found.exit_code, said) == (2, [])
    assert "--key" in found.output


def test_help_lists_them_in_their_order():
    lines = told("buy", "--help").output
    places = [lines.index(word) for word in ("Buy a toy.", "--once", "--key", "--node", "--error")]
    assert places == sorted(places)


@pytest.mark.parametrize("words", [(), ("--help",)])
def test_a_group_says_what_it_is_for(words):
    output = told(*words).output
    assert "Toys." in output
    assert "buy" in output
