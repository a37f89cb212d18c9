"""No cause is swallowed: an error of ours keeps what it came from, and who keeps quiet says why."""

import ast
from pathlib import Path

import pytest

import reticent

SOURCES = sorted(Path(reticent.__file__).parent.rglob("*.py"))
BROAD = {"Exception", "BaseException"}


def caught(handler):
    """The names of what a handler catches."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {kind.id for kind in kinds if isinstance(kind, ast.Name)} if handler.type else BROAD


def is_silent(handler):
    """Whether a handler of everything neither raises anything nor looks at what it caught."""
    inside = [node for statement in handler.body for node in ast.walk(statement)]
    uses = handler.name and any(isinstance(node, ast.Name) and node.id == handler.name for node in inside)
    return not uses and not any(isinstance(node, ast.Raise) for node in inside)


def swallowed(text):
    """The lines that drop a cause without a word beside them on why."""
    lines = text.split("\n")

    def is_said(first, last):
        return any("#" in line for line in lines[first - 1 : last])

    def looked_at(node, since):
        for child in ast.iter_child_nodes(node):
            first = since
            if isinstance(child, ast.ExceptHandler):
                first = child.lineno
                if (
                    caught(child) & BROAD
                    and is_silent(child)
                    and not is_said(first, child.body[0].end_lineno)
                ):
                    yield first
            is_dropped = isinstance(child, ast.Raise) and isinstance(child.cause, ast.Constant)
            if is_dropped and not is_said(first or child.lineno, child.end_lineno):
                yield child.lineno
            yield from looked_at(child, first)

    return list(looked_at(ast.parse(text), None))


def test_every_error_keeps_its_cause_or_says_why_not():
    found = [f"{path}:{line}" for path in SOURCES for line in swallowed(path.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("try:\n    f()\nexcept KeyError:\n    raise ValueError from None\n", [4]),
        ("try:\n    f()\nexcept KeyError:  # it quotes the rows\n    raise ValueError from None\n", []),
        ("try:\n    f()\nexcept KeyError as error:\n    raise ValueError from error\n", []),
        ("try:\n    f()\nexcept Exception:\n    pass\n", [3]),
        ("try:\n    f()\nexcept (KeyError, BaseException) as error:\n    g()\n", [3]),
        ("try:\n    f()\nexcept:\n    g()\n", [3]),
        ("try:\n    f()\nexcept Exception as error:\n    tell(error)\n", []),
        ("try:\n    f()\nexcept Exception:\n    return None  # a total function\n", []),
        ("try:\n    f()\nexcept BaseException:\n    g()\n    raise\n", []),
    ],
)
def test_planted_a_swallowed_cause_is_found(text, lines):
    assert swallowed(text) == lines
