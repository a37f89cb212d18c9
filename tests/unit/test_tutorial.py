"""The tutorial, typed as it stands, and its notebooks, cell by cell; each in an empty folder."""

import json

import pytest

from .reading import ROOT, blocks, masked, reader

__all__ = ["reader"]  # a fixture
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def mistakes(reader, page):
    """What does not run, or prints something else than the page says."""
    said = ""
    for language, block in blocks(page):
        if language == "text":
            if masked(said) != masked(block):
                yield block, said
        else:
            program = f"set -eu\n{block}" if language == "sh" else block
            code, said = reader.run(language, program)
            if code != 0:
                yield block, said


def test_the_tutorial_runs_as_it_is_written(reader):
    assert {language for language, _ in blocks(TUTORIAL)} == {"python", "sh", "text"}
    assert list(mistakes(reader, TUTORIAL)) == []


def test_planted_mistakes_are_found(reader):
    page = "```python\nprint('1 ± 2 costs 3')\nprint(4)\n```\n\n```text\n7 ± 8 costs 9\n4\n```\n"
    assert list(mistakes(reader, page)) == []
    assert len(list(mistakes(reader, page.replace("\n4\n", "\n5\n")))) == 1
    assert len(list(mistakes(reader, "```sh\nreticent dataset check none.yaml\ntrue\n```\n"))) == 1


RUN = """
import ast, json, sys

names = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:  # what a notebook shows
            shown = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
            html = getattr(shown, "_repr_html_", None)
            print(repr(shown), html() if html else "")
"""


def ran(reader, path):
    """Exit code and output of a notebook's cells, run as Jupyter runs them, without Jupyter."""
    (reader.folder / "run.py").write_text(RUN)
    return reader.run("sh", f"{reader.python} run.py {path}")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(reader, path):
    code, said = ran(reader, path)
    assert code == 0, said
    assert ("<table" in said) == (path.stem == "first-answer")  # answers, as notebooks show them


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_keeps_no_output(path):
    """Outputs would be of another run, and nothing would look at them."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert [cell for cell in cells if cell["outputs"] or cell["execution_count"] is not None] == []
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])


def test_planted_a_notebook_that_fails_is_found(reader):
    path = reader.folder / "planted.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": ["1 + 1\n", "assert False"]}]}))
    assert ran(reader, path)[0] == 1
