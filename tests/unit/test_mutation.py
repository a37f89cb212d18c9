"""What `make mutation` runs: its rooms have the files, and the tests, that they had before modules moved."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def mutation():
    spec = importlib.util.spec_from_file_location("mutation_runner", ROOT / "tests" / "mutation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def on_a_chain(tests):
    """Tests of these files that start a chain, or are handed one."""
    return {
        str(path.relative_to(ROOT))
        for path in tests
        if any(word in path.read_text() for word in ("ethereum", "anvil", "query.chain", "stand_in"))
    }


def missing(module):
    """Listed names of which nothing is left."""
    code = ROOT / "src" / "reticent"
    folders = [code / part for parts in module.FOLDERS.values() for part in parts]
    empty = [str(path.relative_to(ROOT)) for path in folders if not list(path.glob("*.py"))]
    return [
        *empty,
        *(path for room in module.TESTS for path in module.tests_of(room) if not Path(path).exists()),
    ]


def test_every_listed_path_is_there(mutation, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert missing(mutation) == []


@pytest.mark.parametrize(
    "stale", [{"FOLDERS": {"chain": ("ledger/chain",)}}, {"TESTS": {"chain": ("tests/gone.py",)}}]
)
def test_planted_names_from_before_a_move_are_caught(mutation, monkeypatch, stale):
    monkeypatch.chdir(ROOT)
    for name, setting in stale.items():
        monkeypatch.setattr(mutation, name, setting)
    assert len(missing(mutation)) == 1


def test_the_files_about_chains_are_one_room(mutation):
    found = mutation.sources("chain")
    assert {str(Path(one).parent) for one in found} >= {
        "src/reticent/chain", "src/reticent/ledger/ethereum", "src/reticent/query/chain"
    }  # fmt: skip
    assert len(found) == len(set(found)) >= 22
    assert not set(found) & {*mutation.sources("ledger"), *mutation.sources("query")}
    assert mutation.sources("chain", ["anchor.py"]) == ["src/reticent/ledger/ethereum/anchor.py"]
    assert "src/reticent/ledger/sql/ledger.py" in mutation.sources("ledger")


def test_tests_of_the_ledger_and_the_oracle_that_run_a_chain_are_among_its_tests(mutation):
    rooms = [ROOT / "tests" / "unit" / room for room in ("ledger", "query")]
    wanted = on_a_chain(path for room in rooms for path in room.glob("test_*chain*.py"))
    wanted |= on_a_chain(path for room in rooms for path in room.glob("test_oracle*.py"))
    wanted |= {"tests/unit/ledger/test_ethereum.py", "tests/unit/ledger/test_anchor.py"}
    wanted -= {"tests/unit/query/test_home_chain.py"}  # of homes, which are no files about chains
    assert wanted <= set(mutation.tests_of("chain"))
    assert "tests/unit/chain" in mutation.tests_of("chain")


@pytest.mark.parametrize("names", [["chain_*.py"], ["budget.py", "no_such.py"]])
def test_a_name_that_nothing_has_is_refused(mutation, names):
    with pytest.raises(SystemExit, match="there is no"):
        mutation.sources("privacy", names)


def test_files_of_one_name_are_told_apart(mutation, tmp_path):
    for room, codes in (("chain", {"a": 1}), ("query/chain", {"b": 0})):
        folder = tmp_path / "mutants" / "src" / "reticent" / room
        folder.mkdir(parents=True)
        (folder / "view.py.meta").write_text(mutation.json.dumps({"exit_code_by_key": codes}))
    assert mutation.outcomes(tmp_path) == {"chain/view.py": {"a": 1}, "query/chain/view.py": {"b": 0}}
