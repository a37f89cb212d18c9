"""The documentation as a site: every page has its place, links lead somewhere, and nothing is fetched."""

import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
import types
import zlib
from pathlib import Path

import pytest
import yaml

import reticent

from .reading import ROOT

SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
ROOT_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PYTHON = Path(sys.prefix) / "docs" / "bin" / "python"  # by `make`
INSIDE = ("reticent.apps", "reticent.cli", "reticent.service")  # for the command and the service alone
PACKAGES = {
    found.name
    for found in pkgutil.walk_packages(reticent.__path__, "reticent.")
    if found.ispkg and not found.name.startswith(INSIDE)
}


def named(entry):
    """Every page of the navigation."""
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in named(part)]


def pages():
    """Where each page that the site has lies in the repository."""
    found = {page.relative_to(ROOT / "docs").as_posix(): page for page in (ROOT / "docs").rglob("*.md")}
    found |= {name: ROOT / name for name in ROOT_PAGES}
    for notebook in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        found[f"notebooks/{notebook.stem}.md"] = notebook
    return found


def test_every_page_is_in_the_navigation_once():
    listed = named(SITE["nav"])
    assert sorted(listed) == sorted(set(listed))
    assert set(listed) == set(pages())


def slugs(text):
    """The anchors of a page's headings, as Markdown makes them."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    for heading in re.findall(r"^#+ (.*?)\s*$", text, re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading)
        yield re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def broken(page, text):
    """Links of a page to anchors that are not there."""
    for path, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", text):
        target = (page.parent / path) if path else page
        if not target.is_file() or anchor not in slugs(target.read_text(encoding="utf-8")):
            yield f"{path}#{anchor}"


@pytest.mark.parametrize("page", sorted(set(pages().values())), ids=lambda page: str(page.relative_to(ROOT)))
def test_anchors_are_there(page):
    assert list(broken(page, page.read_text(encoding="utf-8"))) == []


def test_planted_broken_anchors_are_found():
    page = ROOT / "docs" / "limits.md"
    text = "[a](#nowhere) [b](guarantee.md#nowhere) [c](none.md#a) [d](guarantee.md#one-report)"
    assert list(broken(page, text)) == ["#nowhere", "guarantee.md#nowhere", "none.md#a"]


def test_the_reference_has_every_public_package():
    shown = {
        name
        for page in (ROOT / "docs" / "reference").glob("*.md")
        for name in re.findall(r"^::: (\S+)$", page.read_text(), re.M)
    }
    public = {name for name in PACKAGES if importlib.import_module(name).__all__}
    single = {"reticent.open", "reticent.errors"} | {name for name in shown if name not in PACKAGES}
    assert shown == public | single


@pytest.fixture
def hooks(monkeypatch):
    """What mkdocs is given, without mkdocs."""
    files = types.ModuleType("mkdocs.structure.files")
    files.File = object
    for name in ("mkdocs", "mkdocs.structure"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "mkdocs.structure.files", files)
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site" / "pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("place", "link", "there"),
    [
        ("README.md", "[a](docs/limits.md#x)", "[a](limits.md#x)"),
        ("README.md", "![a](docs/images/budget.svg)", "![a](images/budget.svg)"),
        ("README.md", "[a [b]](tests/conftest.py) [c](docs/runs/fig-3.2.json)", "a [b] c"),
        ("docs/limits.md", "[a](../SECURITY.md)", "[a](SECURITY.md)"),
        ("docs/how-to/index.md", "[a](../limits.md) [b](#here)", "[a](../limits.md) [b](#here)"),
        ("docs/reference/index.md", "[a](../../CHANGELOG.md)", "[a](../CHANGELOG.md)"),
        ("docs/tutorial.md", "[a](notebooks/first-answer.ipynb)", "[a](notebooks/first-answer.md)"),
        ("docs/limits.md", "[a](https://example.org/x)", "[a](https://example.org/x)"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(hooks, place, link, there):
    assert hooks.relinked(link, place, {*pages(), "images/budget.svg"}) == there


def test_the_picture_is_current(tmp_path):
    """Drawn again, it is the same."""
    drawn = subprocess.run(
        [sys.executable, "-c", "import picture; print(picture.drawn(list(picture.charges())), end='')"],
        cwd=ROOT / "docs" / "site", capture_output=True, check=True,
        env={"PYTHONPATH": f"{ROOT / 'docs' / 'site'}:{ROOT / 'src'}", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert drawn.stdout == (ROOT / "docs" / "images" / "budget.svg").read_bytes()


def missing(inventory):
    """Public classes and functions that the reference, by its list of objects, does not have."""
    head, body = inventory[:400].split(b"\n")[:4], inventory.split(b"\n", 4)[4]
    assert head[0].startswith(b"# Sphinx inventory version 2")
    shown = {line.split(" ")[0] for line in zlib.decompress(body).decode().splitlines()}
    for package in sorted(PACKAGES):
        for name in importlib.import_module(package).__all__:
            found = getattr(importlib.import_module(package), name)
            if inspect.isclass(found) or inspect.isfunction(found):
                home = f"{found.__module__}.{found.__qualname__}"
                if found.__module__.startswith("reticent.") and not {f"{package}.{name}", home} & shown:
                    yield f"{package}.{name}"


LOADED = re.compile(
    r'<(?:script|img|iframe|source)[^>]*\ssrc="(?:https?:)?//|<link[^>]*\shref="(?:https?:)?//'
)


def test_planted_what_is_loaded_from_elsewhere_is_found():
    assert LOADED.search('<script async src="https://example.org/x.js">')
    assert LOADED.search('<link rel="stylesheet" href="//example.org/x.css">')
    assert not LOADED.search('<a href="https://example.org"> <script src="assets/x.js">')


@pytest.mark.parametrize("broken_link", [False, True], ids=["as it is", "with a broken link"])
def test_the_site_is_made(tmp_path, broken_link):
    if not PYTHON.exists():
        pytest.skip(f"there is no mkdocs at {PYTHON}: `make docs` installs it")
    root = tmp_path / "clone"
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        if name.startswith(("docs/", "src/")) or "/" not in name:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes((ROOT / name).read_bytes())
    if broken_link:
        with (root / "docs" / "glossary.md").open("a") as file:
            file.write("\n[nowhere](guarantee.md#nowhere)\n")
        for page in (root / "docs" / "reference").glob("*.md"):  # made sooner without
            page.write_text(page.read_text().replace("::: ", ""))
    done = subprocess.run(
        [PYTHON, "-m", "mkdocs", "build", "--strict"],
        cwd=root, capture_output=True, text=True, timeout=500, env={"NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert (done.returncode == 1) == broken_link, done.stderr
    if not broken_link:
        made = sorted((root / "out" / "site").rglob("*.html"))
        assert len(made) > len(named(SITE["nav"]))  # and the page for what is not there
        assert list(missing((root / "out" / "site" / "objects.inv").read_bytes())) == []
        assert [page.name for page in made if LOADED.search(page.read_text(encoding="utf-8"))] == []
