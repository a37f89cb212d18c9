"""What the documents show runs, what they point at exists, what the code cites is listed."""

import ast
import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import reticent

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
SNIPPETS = [
    pytest.param(snippet, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    if page.name != "tutorial.md"  # read as a whole by test_tutorial.py
    for number, snippet in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S), 1)
]
MODULES = [found.name for found in pkgutil.walk_packages(reticent.__path__, "reticent.")]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_runs(snippet, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "snippet", "exec"), {"__name__": "__main__"})


def test_the_readme_has_an_example():
    assert any(snippet.id.startswith("README.md") for snippet in SNIPPETS)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_snippets_run(name):
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert outcome.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_point_at_files(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


CITED = re.compile(r"\b([A-Z][\w-]+)(?:,? [A-Z][\w-]+)*,?(?: et al\.| and [A-Z][\w-]+)? ((?:19|20)\d\d)\b")


def citations(source):
    """(first author, year) of every work named in a `Reference:` paragraph of a docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            for paragraph in re.findall(
                r"Reference:(.*?)(?:\n\s*\n|\n\s*[A-Z]\w+:|\Z)", ast.get_docstring(node) or "", re.S
            ):
                yield from CITED.findall(" ".join(paragraph.split()))


@pytest.mark.parametrize(
    "path", sorted((ROOT / "src").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT / "src"))
)
def test_every_work_cited_is_in_the_list_of_references(path):
    listed = set(CITED.findall((ROOT / "docs" / "references.md").read_text()))
    assert set(citations(path.read_text())) - listed == set()


def test_citations_are_recognised():
    source = '"""X.\n\nReference: Zhao et al. 2020, Eq. 24; Dong, Roth and Su 2022; Warner 1965.\n"""'
    assert set(citations(source)) == {("Zhao", "2020"), ("Dong", "2022"), ("Warner", "1965")}
