"""Mutation score of one room: `make mutation ROOM=privacy`, on a copy in out/mutation.

mutmut changes one operator, number, text or argument at a time and runs those quick tests of the room that
reach the change. The score is the share of changes that some test notices; a test that hangs notices.
ARGS="merkle.py base.py" changes these files only; ARGS=--again tries once more what survived the last run,
for work on the tests; ARGS="--workers 1" leaves the machine to others. Where all changes take too long,
ARGS="--sample 300" tries so many, chosen by chance, and tells within which bounds the score of all lies. On a
busy machine a change may seem to hang: ARGS="--again --patience 4" tries those too, and waits longer.

ROOM=chain means every file about chains, those of the ledger and of the oracle too. They are tried by tests
that run a chain, and by no others. Each try has a chain of its own, which ends with it.
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEAST = 0.9
SEED = 20  # of the sample
FOLDERS = {"chain": ("chain", "ledger/ethereum", "query/chain")}  # of a room that is not one folder
TESTS = {  # of a room, beside the folders that have its name
    "chain": (
        "tests/contracts/test_artifacts.py",
        "tests/unit/ledger/test_anchor.py",
        "tests/unit/ledger/test_chain_file.py",
        "tests/unit/ledger/test_chain_log.py",
        "tests/unit/ledger/test_conformance.py",
        "tests/unit/ledger/test_ethereum.py",
        "tests/unit/ledger/test_ethereum_races.py",
        "tests/unit/ledger/test_ethereum_reading.py",
        "tests/unit/ledger/test_ethereum_trouble.py",
        "tests/unit/query/test_chain_finding.py",
        "tests/unit/query/test_oracle.py",
        "tests/unit/query/test_oracle_chain.py",
        "tests/unit/query/test_oracle_crashes.py",
        "tests/unit/query/test_oracle_lies.py",
        "tests/unit/query/test_oracle_reorganisations.py",
        "tests/unit/query/test_reuse_chain.py",
    )
}
KILLED, OUT_OF_TIME = {1, 3}, {24, 36, 152, 255, -24}  # exit codes, as mutmut records them


def sources(room: str, names: Sequence[str] = ()) -> list[str]:
    """The room's files of these names, or all of them; what belongs to another room is left to it."""
    code, found = ROOT / "src" / "reticent", set[Path]()
    elsewhere = [code / part for other, parts in FOLDERS.items() if other != room for part in parts]
    for name in names or ["*.py"]:
        paths = {path for part in FOLDERS.get(room, (room,)) for path in (code / part).rglob(name)}
        paths = {path for path in paths if not any(path.is_relative_to(other) for other in elsewhere)}
        if not paths:
            raise SystemExit(f"there is no {name} in the room {room}")
        found |= paths
    return sorted(str(path.relative_to(ROOT)) for path in found)


def tests_of(room: str) -> list[str]:
    """The folders and files with the room's tests."""
    folders = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob(room) if path.is_dir()]
    return sorted([*folders, *TESTS.get(room, ())])


def prepare(copy: Path, room: str, files: list[str], patience: float) -> None:
    """Copy what the tests need, and tell mutmut there which files and tests are meant."""
    for name in ("src", "tests", "docs"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, copy / name, dirs_exist_ok=True, ignore=ignore)
    text = (ROOT / "pyproject.toml").read_text()
    if room == "chain":
        text = text.replace(" and not ethereum", "")
    settings = {"only_mutate": files, "pytest_add_cli_args_test_selection": tests_of(room)}
    lines = "".join(f"{key} = {json.dumps(setting)}\n" for key, setting in settings.items())
    text = re.sub("(?<=timeout_multiplier = )(.*)", lambda found: str(patience * float(found[0])), text)
    (copy / "pyproject.toml").write_text(text.replace("[tool.mutmut]\n", "[tool.mutmut]\n" + lines))


def every_change(copy: Path, files: list[str]) -> list[str]:
    """The names of all changes to these files, as mutmut gives them."""
    from mutmut.mutation.file_mutation import mutate_file_contents
    from mutmut.utils.format_utils import get_mutant_name

    names = []
    with contextlib.chdir(copy):
        for path in map(Path, files):
            made = mutate_file_contents(str(path), path.read_text()).mutant_names
            names += [get_mutant_name(path, name) for name in made]
    return names


def outcomes(copy: Path) -> dict[str, dict[str, int | None]]:
    """The exit code of the tests on every change, by file; None where it was not tried."""
    folder = copy / "mutants" / "src" / "reticent"
    records = sorted(folder.rglob("*.py.meta"))
    found = {str(path.relative_to(folder))[:-5]: json.loads(path.read_text()) for path in records}
    return {name: record["exit_code_by_key"] for name, record in found.items() if record["exit_code_by_key"]}


def survivors(codes: dict[str, int | None]) -> list[str]:
    return [name for name, code in codes.items() if code not in KILLED | OUT_OF_TIME | {None}]


def hung(codes: dict[str, int | None]) -> list[str]:
    return [name for name, code in codes.items() if code in OUT_OF_TIME]


def bounds(noticed: int, tried: int, changes: int) -> tuple[float, float]:
    """95 % bounds of the score of all changes: exact, for a sample without replacement."""
    import numpy as np
    from scipy.stats import hypergeom

    in_all = np.arange(changes + 1)
    below = hypergeom.cdf(noticed, changes, in_all, tried)
    above = hypergeom.sf(noticed - 1, changes, in_all, tried)
    likely = in_all[np.minimum(below, above) > 0.025] / changes
    return likely[0], likely[-1]


def report(by_file: dict[str, dict[str, int | None]]) -> float:
    """Print what survived or hung, and a table; return the score."""
    everything = {name: code for codes in by_file.values() for name, code in codes.items()}
    print("", *survivors(everything), *(f"{name} (hung)" for name in hung(everything)), sep="\n")
    print(f"\n{'':34}{'changes':>9}{'tried':>9}{'killed':>9}{'hung':>9}{'survived':>10}{'score':>9}")
    for name, codes in [*by_file.items(), ("all", everything)]:
        killed = sum(code in KILLED for code in codes.values())
        slow, left = len(hung(codes)), len(survivors(codes))
        tried = killed + slow + left
        score = (killed + slow) / tried if tried else 1.0
        print(f"{name:34}{len(codes):9}{tried:9}{killed:9}{slow:9}{left:10}{100 * score:7.1f} %")
    if tried < len(everything):
        low, high = bounds(tried - left, tried, len(everything))
        print(f"\nscore of all changes, at 95 %: {100 * low:.1f} % to {100 * high:.1f} %")
    return score


def pytest_configure() -> None:
    """As a plugin of the runs: mutmut notes who calls whom, which crashes Python 3.11 among threads."""
    from mutmut.core import MutmutCallStack as Calls

    Calls.get, Calls.set, Calls.reset = lambda: (None, 0), lambda call: None, lambda token: None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """As a plugin of the runs: the quickest tests first, so that most changes fall at once."""
    if (stats := Path("mutmut-stats.json")).exists():
        took = json.loads(stats.read_text())["duration_by_test"]
        items.sort(key=lambda item: took.get(item.nodeid, 0.0))


def pytest_sessionfinish(exitstatus: int) -> None:
    """As a plugin of the runs: a test that is not found is no kill, which mutmut would take it for."""
    if exitstatus == pytest.ExitCode.USAGE_ERROR:
        os._exit(exitstatus)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("room", help="a folder of src/reticent, or 'chain' for all that is about chains")
    parser.add_argument("files", nargs="*", help="files of it; all without")
    parser.add_argument("--again", action="store_true", help="only what survived the last run")
    parser.add_argument("--patience", type=float, default=1.0, help="wait so many times longer")
    parser.add_argument("--sample", type=int, help="only so many changes, chosen by chance")
    parser.add_argument("--seed", type=int, default=SEED, help="of the choice")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    asked = parser.parse_intermixed_args()
    copy = ROOT / "out" / "mutation" / asked.room
    names: list[str] = []
    if asked.again:
        for codes in outcomes(copy).values():
            names += survivors(codes) + (hung(codes) if asked.patience > 1 else [])
        if not names:
            return int(report(outcomes(copy)) < LEAST)
    else:
        shutil.rmtree(copy, ignore_errors=True)
    files = sources(asked.room, asked.files)
    prepare(copy, asked.room, files, asked.patience)
    if asked.sample and not asked.again:
        every = every_change(copy, files)
        names = random.Random(asked.seed).sample(every, min(asked.sample, len(every)))
    mutmut = Path(sys.executable).with_name("mutmut")
    command = [mutmut, "run", "--max-children", str(asked.workers), *names]
    changed = copy / "mutants" / "src"
    changed.mkdir(parents=True, exist_ok=True)  # before Python looks for it
    environment = {**os.environ, "PYTHONPATH": str(changed)}  # processes that tests start run it too
    with subprocess.Popen(command, cwd=copy, env=environment, start_new_session=True) as running:
        try:
            code = running.wait()
        finally:  # chains and other programs of tests that were cut off are of its group
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    if code:
        raise subprocess.CalledProcessError(code, command)
    return int(report(outcomes(copy)) < LEAST)


if __name__ == "__main__":
    sys.exit(main())
