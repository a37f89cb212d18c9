"""What is built, installed into new environments far from the clone, and used there."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from .following import mistakes as mistakes_of_page
from .reading import ROOT, Reader, blocks
from .test_page_commands import FOLLOWED, NOT_RUN, is_run, skip_without_its_programs, typed_on
from .test_readme import README, failed
from .test_tutorial import TUTORIAL, mistakes

UV = Path(sys.prefix) / "bin" / "uv"
AWAY = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def uv(*arguments, cwd=None):
    """What uv says."""
    if not UV.exists():
        pytest.skip(f"there is no uv at {UV}: `make` installs it")
    command = [UV, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=AWAY, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, of the source distribution, as `python -m build` makes it, by the backend that is pinned."""
    clone, made = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("dist")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_bytes((ROOT / name).read_bytes())
    uv("build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", made, clone)
    (found,) = made.glob("*.whl")
    return found


def installed(wheel, folder, *packages):
    """A new environment with these packages and the wheel: its interpreter."""
    python = folder / "bin" / "python"
    uv("venv", "--quiet", "--python", sys.executable, folder)
    uv("pip", "install", "--quiet", "--python", python, *packages)
    uv("pip", "install", "--quiet", "--no-deps", "--python", python, wheel)
    return python


def pinned(name):
    """One of our lists."""
    return "--require-hashes", "-r", ROOT / "requirements" / f"{name}.txt"


def said(python, *arguments, cwd):
    """Exit code and output of a program of that environment."""
    command = [python.parent / arguments[0], *arguments[1:]]
    environment = {**AWAY, "ONCE": "1"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=500)
    return done.returncode, done.stdout + done.stderr


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"reticent", wheel.name.replace("-py3-none-any.whl", ".dist-info")}
    listed = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {f"src/{name}" for name in names if name.startswith("reticent/")} == set(listed.stdout.split())


def test_the_extra_demo_is_enough_for_the_demo(wheel, tmp_path):
    """By our list, which agrees with what the extra asks for; to its end, in an empty folder."""
    python = installed(wheel, tmp_path / "demo", *pinned("demo"))
    asked = uv("pip", "install", "--dry-run", "--offline", "--python", python, f"{wheel}[demo]")
    assert "Would make no changes" in asked
    away = tmp_path / "away"
    away.mkdir()
    code, output = said(python, "reticent", "demo", "--port", "0", cwd=away)
    assert code == 0, output
    assert "Ledger verified" in output
    assert "intervals hold the truth" in output


OPENED = """
import reticent
from reticent.query import census

reticent.open(census.write("census"))
"""


def test_a_light_install_says_what_is_missing(wheel, tmp_path):
    """numpy, cryptography and the wheel: a device reports, the rest names its extra."""
    constraint = ROOT / "requirements" / "demo.txt"
    python = installed(wheel, tmp_path / "light", "-c", constraint, "numpy", "cryptography")
    assert "All installed packages are compatible" in uv("pip", "check", "--python", python)
    code, output = said(python, "reticent", "--help", cwd=tmp_path)
    assert (code, output) == (2, "error: this command needs an optional part: pip install 'reticent[cli]'\n")
    code, output = said(python, "python", "-c", OPENED, cwd=tmp_path)
    assert code == 1
    assert "MissingExtra" in output
    assert "pip install 'reticent[query]'" in output
    (program,) = [text for _, text in blocks(README) if "Optimal(epsilon=1.0)" in text]
    assert said(python, "python", "-c", program, cwd=tmp_path)[0] == 0


@pytest.fixture(scope="module")
def everything(wheel, tmp_path_factory):
    """An environment with the wheel and its extra `all`, in the versions that are pinned: its interpreter."""
    constraint = ROOT / "requirements" / "dev.txt"
    return installed(wheel, tmp_path_factory.mktemp("all") / "env", "-c", constraint, f"{wheel}[all]")


@pytest.fixture
def away(everything, tmp_path):
    """Somebody in an empty folder who has the wheel and nothing of the clone."""
    (tmp_path / "folder").mkdir()
    reader = Reader(tmp_path / "folder", everything)
    _, output = reader.run("python", "import reticent; print(reticent.__file__)")
    assert output.startswith(str(everything.parents[1]))
    return reader


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_command_of_the_readme_runs_from_the_wheel(away):
    assert failed(away, README) is None


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tutorial_runs_from_the_wheel(away):
    assert list(mistakes(away, TUTORIAL)) == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "page", [page for page in FOLLOWED if any(map(is_run, typed_on(page)))], ids=lambda page: page.stem
)
def test_a_page_can_be_followed_from_the_wheel(away, page):
    """With NOT_RUN's exceptions. The `make` lines of other pages are about a clone."""
    skip_without_its_programs(page)
    assert list(mistakes_of_page(away, page.read_text(encoding="utf-8"), NOT_RUN)) == []


@pytest.mark.slow
def test_the_extra_all_is_what_the_tests_run_with(wheel):
    """Everything that it asks for is here already, but the wheel: the package is that of the clone."""
    asked = uv("pip", "install", "--dry-run", "--python", sys.executable, f"{wheel}[all]")
    changed = {
        line.split()[1].split("==")[0] for line in asked.splitlines() if line.startswith((" + ", " - "))
    }
    assert changed <= {"reticent"}
