"""`chain.json` and addresses of nodes."""

import json

import pytest

from reticent.errors import ParameterError
from reticent.ledger.ethereum import chain_file
from reticent.ledger.ethereum.chain_file import ChainFile, node_address, shareable

CONTRACT = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
ANCHOR = "0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512"
GOOD = {
    "rpc": "http://127.0.0.1:8545",
    "chain_id": 31337,
    "contract": CONTRACT,
    "anchor": ANCHOR,
    "block": 1,
    "confirmations": 5,
}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    monkeypatch.delenv(chain_file.RPC, raising=False)


@pytest.fixture
def written(tmp_path):
    def write(**changes):
        path = tmp_path / "chain.json"
        path.write_text(json.dumps({**GOOD, **changes}))
        return path

    return write


# The file


def test_what_is_written_is_read(tmp_path):
    file = ChainFile(**GOOD)
    file.write(tmp_path / "chain.json")
    assert json.loads((tmp_path / "chain.json").read_text()) == GOOD
    assert ChainFile.read(tmp_path / "chain.json") == file


def test_a_file_is_never_overwritten(written):
    path = written()
    with pytest.raises(FileExistsError):
        ChainFile(**GOOD).write(path)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("rpc", 7, "rpc must be an address of a node, or null"),
        ("chain_id", "1", "chain_id must be a whole number"),
        ("chain_id", True, "chain_id must be a whole number"),
        ("chain_id", 0, "chain_id must be >= 1"),
        ("contract", None, "contract must be an address"),
        ("contract", CONTRACT[:-1], "contract must be an address"),
        ("contract", CONTRACT.replace("F", "f"), "contract must be an address"),
        ("anchor", 5, "anchor must be an address"),
        ("block", -1, "block must be >= 0"),
        ("block", 1.5, "block must be a whole number"),
        ("confirmations", 10_001, "confirmations must be <= 10000"),
    ],
)
def test_a_wrong_field_is_named(written, field, value, reason):
    path = written(**{field: value})
    with pytest.raises(ParameterError, match=f"chain.json: {reason}"):
        ChainFile.read(path)


@pytest.mark.parametrize("field", GOOD)
def test_a_missing_field_is_named(written, field):
    path = written()
    path.write_text(json.dumps({name: value for name, value in GOOD.items() if name != field}))
    with pytest.raises(ParameterError, match=f"field {field} is missing"):
        ChainFile.read(path)


def test_an_unknown_field_is_named(written):
    with pytest.raises(ParameterError, match="field 'gas' is not known"):
        ChainFile.read(written(gas=5))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is no JSON"),
        ("[" * 5000, "is no JSON"),
        ("[]", "must be a JSON object"),
        (" " * 70_000, "is too large"),
    ],
)
def test_what_is_no_chain_file(tmp_path, content, reason):
    path = tmp_path / "chain.json"
    path.write_text(content)
    with pytest.raises(ParameterError, match=reason):
        ChainFile.read(path)


def test_no_file_says_what_writes_one(tmp_path):
    with pytest.raises(ParameterError, match=r"there is no .*: `reticent chain deploy` writes it"):
        ChainFile.read(tmp_path / "chain.json")


# Nodes


def test_an_option_goes_before_the_environment_and_that_before_the_file(monkeypatch):
    assert node_address(None, "http://file") == "http://file"
    monkeypatch.setenv(chain_file.RPC, "http://environment")
    assert node_address(None, "http://file") == "http://environment"
    assert node_address("http://option", "http://file") == "http://option"


def test_without_any_node_the_ways_are_named():
    with pytest.raises(ParameterError, match="--rpc URL or RETICENT_RPC"):
        node_address(None, None)


@pytest.mark.parametrize(
    ("rpc", "is_shown"),
    [
        ("http://127.0.0.1:8545", True),
        ("https://node.example.org/rpc/v1", True),
        ("https://anna:secret@node.example.org", False),
        ("https://token@node.example.org", False),
        ("https://node.example.org/?key=secret", False),
        ("https://node.example.org/#secret", False),
        ("https://node.example.org/v3/0123456789abcdef0123456789abcdef", False),
    ],
)
def test_a_node_that_holds_a_secret_is_not_shared(rpc, is_shown):
    assert shareable(rpc) == (rpc if is_shown else None)
