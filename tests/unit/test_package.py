"""Rules that hold for the whole tree, whatever rooms it has."""

import ast
import importlib
import pkgutil
import re
import statistics
import subprocess
import sys
import tomllib
import types
from collections import Counter
from pathlib import Path

import pytest

import reticent

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = ["reticent"] + [
    found.name for found in pkgutil.walk_packages(reticent.__path__, "reticent.") if found.ispkg
]


def test_version_is_that_of_the_project():
    assert reticent.__version__ == PYPROJECT["project"]["version"]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_what_can_be_imported(name):
    # Its order is kept by ruff (RUF022).
    package = importlib.import_module(name)
    assert package.__doc__
    assert len(set(package.__all__)) == len(package.__all__)
    for exported in package.__all__:
        getattr(package, exported)
    public = {
        key
        for key, found in vars(package).items()
        if not key.startswith("_") and not isinstance(found, types.ModuleType) and key != "annotations"
    }
    assert public <= set(package.__all__)


def unwieldy(lines, folders):
    """What is too large for a reader, of the lines of each module and the modules of each folder."""
    sizes = sorted(lines.values())
    found = [f"{name} has {size} lines" for name, size in lines.items() if size > 600]
    found += [f"{name} has {size} modules" for name, size in folders.items() if size > 25]
    found += ["the median module has 160 lines or more"] * (statistics.median(sizes) >= 160)
    return found + ["one module in twenty has 450 lines or more"] * (
        statistics.quantiles(sizes, n=20)[-1] >= 450
    )


def test_modules_and_folders_are_small():
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    parents = [str(path.parent.relative_to(ROOT)) for path in SOURCES if path.name != "__init__.py"]
    assert unwieldy(lines, Counter(parents)) == []


@pytest.mark.parametrize(
    ("lines", "folders", "found"),
    [
        ([100] * 99 + [601], {}, ["99 has 601 lines"]),
        ([100] * 9, {"room": 26}, ["room has 26 modules"]),
        ([160] * 9, {}, ["the median module has 160 lines or more"]),
        ([100] * 90 + [450] * 10, {}, ["one module in twenty has 450 lines or more"]),
    ],
)
def test_planted_what_is_too_large_is_found(lines, folders, found):
    assert unwieldy({str(i): size for i, size in enumerate(lines)}, folders) == found


def test_all_extra_holds_every_extra():
    extras = dict(PYPROJECT["project"]["optional-dependencies"])
    (everything,) = extras.pop("all")
    del extras["torch"]  # gigabytes, if the installer chooses a build with CUDA
    del extras["traces"]  # for whoever runs a collector of OpenTelemetry
    del extras["spark"]  # 450 MB, and Java
    (demo,) = extras.pop("demo")
    assert set(demo.removeprefix("reticent[").rstrip("]").split(",")) <= set(extras)
    assert everything == f"reticent[{','.join(extras)}]"


def tree():
    """Every file that is, or is about to be, in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    if listed.returncode != 0:
        pytest.skip("not a git work tree")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


# Written in pieces so that this file does not match itself.
ADDRESSES = re.compile(
    "|".join(
        [
            "py" + r"pi\.(org|python)",
            "python" + "hosted",
            "npm" + r"js\.(org|com)",
            "deb" + r"ian\.org",
            r"(?<![\w.])/" + r"(work|root)/",
            r"(?<![\w.])/" + r"(tmp/dev|opt/pypi|opt/wheels)",
        ]
    )
)


def test_no_registry_and_no_path_of_a_machine_in_the_tree():
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tree()
        for number, line in enumerate(path.read_text(errors="ignore").splitlines(), 1)
        if ADDRESSES.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "planted",
    ["see https://py" + "pi.org/simple", "open('/" + "work/x')", "cd /" + "root/y", "/" + "tmp/dev/v"],
)
def test_the_scan_for_addresses_finds_planted_ones(planted):
    assert ADDRESSES.search(planted)


@pytest.mark.parametrize("path", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda path: path.stem)
def test_requirements_are_pinned_by_hash_and_name_no_index(path):
    lines = path.read_text().splitlines()
    assert not [line for line in lines if re.match(r"-|.*://", line)]
    packages = re.findall(r"^[a-z0-9].*?(?=^[a-z0-9]|\Z)", path.read_text(), re.M | re.S)
    assert packages
    assert not [package for package in packages if "==" not in package or "--hash=sha256:" not in package]


# Predictable generators, and formats that run code when they are read.
BANNED = {"random", "numpy.random", "pickle", "marshal", "shelve", "dill", "joblib"}


def banned_uses(source):
    """Lines of `source` that import or reach something banned."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                reached = {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), level=0, names=names):
                reached = {module} | {f"{module}.{alias.name}" for alias in names}
            case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"):
                reached = {"numpy.random"}
            case _:
                continue
        if any(name == ban or name.startswith(ban + ".") for name in reached for ban in BANNED):
            lines.append(node.lineno)
    return lines


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_source_uses_no_predictable_generator_and_no_pickle(path):
    assert banned_uses(path.read_text()) == []


@pytest.mark.parametrize(
    "planted",
    [
        "import random",
        "from random import Random",
        "import numpy.random as r",
        "from numpy import random",
        "from numpy.random import default_rng",
        "import numpy as np\nnp.random.default_rng()",
        "def f():\n    import pickle",
    ],
)
def test_the_scan_for_generators_finds_planted_ones(planted):
    assert banned_uses(planted)


def test_the_scan_for_generators_lets_our_own_through():
    assert banned_uses("from reticent.randomness import streams\nrng.random()") == []


def test_a_todo_carries_an_issue_number():
    bare = [str(path) for path in SOURCES if re.search(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))", path.read_text())]
    assert bare == []


def test_no_import_of_ours_raises_the_recursion_limit():
    """py_ecc, which eth-account brings, makes it 100,000: then a text of brackets ends the process."""
    modules = [f"reticent.chain.{name}" for name in ("keys", "sender", "anvil")] + [
        "reticent.ledger.ethereum.ledger"
    ]
    code = f"import {', '.join(modules)}, sys; sys.exit(sys.getrecursionlimit() > 1000)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_what_is_left_to_more_is_there():
    """A test that was renamed would come back into `make test` without a word."""
    gone = []
    for line in (ROOT / "tests" / "more.txt").read_text().splitlines():
        if not line.startswith("#"):
            place, _, name = line.partition("::")
            path = ROOT / place
            if not path.exists() or (name and f"def {name}(" not in path.read_text()):
                gone.append(line)
    assert gone == []


def impatient(sources):
    """Where SQLite is told to use its log by somebody who does not wait for others who do the same."""
    allowed = {"src/reticent/sqlite.py", "src/reticent/ledger/sql/sqlite_store.py"}  # the second has a lock
    return [name for name, text in sources.items() if "journal_mode=WAL" in text and name not in allowed]


def test_new_files_of_sqlite_are_opened_in_one_place():
    """Seen: two processes that opened a new outbox at once, of which one was told that it is locked."""
    assert impatient({str(path.relative_to(ROOT)): path.read_text() for path in SOURCES}) == []


def test_planted_another_place_is_found():
    assert impatient({"src/reticent/chain/outbox.py": 'execute("PRAGMA journal_mode=WAL")'}) != []
