"""Mutation score of one room (THREATS.md, T20): `make mutation ROOM=privacy`, on a copy in out/mutation.

mutmut changes one operator, number, text or argument at a time and runs those quick tests of the room that
reach the change. The score is the share of changes that some test notices; a test that hangs notices.
ARGS="merkle.py base.py" changes these files only; ARGS=--again tries once more what survived the last run,
for work on the tests; ARGS="--workers 1" leaves the machine to others.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEAST = 0.9
KILLED, OUT_OF_TIME = {1, 3}, {24, 36, 152, 255, -24}  # exit codes, as mutmut records them


def prepare(copy: Path, room: str, files: list[str]) -> None:
    """Copy what the tests need, and tell mutmut there which files and tests are meant."""
    for name in ("src", "tests", "docs"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, copy / name, dirs_exist_ok=True, ignore=ignore)
    tests = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob(room) if path.is_dir()]
    settings = {
        "only_mutate": [f"src/reticent/{room}/{name}" for name in files or ["*.py"]],
        "pytest_add_cli_args_test_selection": sorted(tests),
    }
    lines = "".join(f"{key} = {json.dumps(setting)}\n" for key, setting in settings.items())
    text = (ROOT / "pyproject.toml").read_text()
    (copy / "pyproject.toml").write_text(text.replace("[tool.mutmut]\n", "[tool.mutmut]\n" + lines))


def outcomes(copy: Path) -> dict[str, dict[str, int | None]]:
    """The exit code of the tests on every change, by file."""
    records = sorted(copy.glob("mutants/src/**/*.py.meta"))
    found = {path.name.removesuffix(".meta"): json.loads(path.read_text()) for path in records}
    return {name: record["exit_code_by_key"] for name, record in found.items() if record["exit_code_by_key"]}


def survivors(codes: dict[str, int | None]) -> list[str]:
    return [name for name, code in codes.items() if code not in KILLED | OUT_OF_TIME]


def report(by_file: dict[str, dict[str, int | None]]) -> float:
    """Print the survivors and a table; return the score."""
    everything = {name: code for codes in by_file.values() for name, code in codes.items()}
    print("", *survivors(everything), sep="\n")
    print(f"\n{'':24}{'changes':>9}{'killed':>9}{'hung':>9}{'survived':>10}{'score':>9}")
    for name, codes in [*by_file.items(), ("all", everything)]:
        killed = sum(code in KILLED for code in codes.values())
        hung = sum(code in OUT_OF_TIME for code in codes.values())
        score = (killed + hung) / len(codes)
        left = len(survivors(codes))
        print(f"{name:24}{len(codes):9}{killed:9}{hung:9}{left:10}{100 * score:7.1f} %")
    return score


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """As a plugin of the runs: the quickest tests first, so that most changes fall at once."""
    if (stats := Path("mutmut-stats.json")).exists():
        took = json.loads(stats.read_text())["duration_by_test"]
        items.sort(key=lambda item: took.get(item.nodeid, 0.0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("room", help="a folder of src/reticent")
    parser.add_argument("files", nargs="*", help="files of it; all without")
    parser.add_argument("--again", action="store_true", help="only what survived the last run")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    copy = ROOT / "out" / "mutation" / asked.room
    names: list[str] = []
    if asked.again:
        names = [name for codes in outcomes(copy).values() for name in survivors(codes)]
    else:
        shutil.rmtree(copy, ignore_errors=True)
    prepare(copy, asked.room, asked.files)
    mutmut = Path(sys.executable).with_name("mutmut")
    subprocess.run([mutmut, "run", "--max-children", str(asked.workers), *names], cwd=copy, check=True)
    return int(report(outcomes(copy)) < LEAST)


if __name__ == "__main__":
    sys.exit(main())
