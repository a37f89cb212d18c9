"""`chain.json`, addresses of nodes, and key files."""

import json
import stat

import pytest

from reticent.chain.keys import read_key
from reticent.cli import chain_file
from reticent.cli.chain_file import ChainFile, new_key, node_address, opened_key, shareable
from reticent.errors import ChainError, ParameterError

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
    monkeypatch.delenv(chain_file.PASSWORD, raising=False)


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


# Keys


def test_a_key_is_its_owners_alone_and_never_overwritten(tmp_path):
    path = tmp_path / "a.key"
    key = new_key(path, encrypt=False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert opened_key(path).address == key.address
    with pytest.raises(ParameterError, match="never overwritten"):
        new_key(path, encrypt=False)
    assert read_key(path).address == key.address


@pytest.fixture
def locked(tmp_path, monkeypatch):
    """An encrypted key and its address."""
    monkeypatch.setenv(chain_file.PASSWORD, "open sesame")
    path = tmp_path / "locked.key"
    key = new_key(path, encrypt=True)
    return path, key.address


def test_a_locked_key_opens_with_its_password_alone(locked, monkeypatch):
    path, address = locked
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert opened_key(path).address == address
    monkeypatch.setenv(chain_file.PASSWORD, "wrong")
    with pytest.raises(ChainError, match="locked: the password does not open it"):
        opened_key(path)
    monkeypatch.delenv(chain_file.PASSWORD)
    monkeypatch.setattr(chain_file, "_somebody_is_there", lambda: False)
    with pytest.raises(ChainError, match="locked: give its password in RETICENT_KEY_PASSWORD"):
        opened_key(path)


def test_a_person_is_asked_for_the_password(locked, monkeypatch):
    path, address = locked
    monkeypatch.delenv(chain_file.PASSWORD)
    monkeypatch.setattr(chain_file, "_somebody_is_there", lambda: True)
    monkeypatch.setattr(chain_file, "_prompted", lambda text: "open sesame")
    assert opened_key(path).address == address


@pytest.mark.parametrize(
    ("typed", "reason"), [(["one", "two"], "the passwords differ"), (["", ""], "give a password")]
)
def test_a_mistyped_password_makes_no_key(tmp_path, monkeypatch, typed, reason):
    monkeypatch.setattr(chain_file, "_somebody_is_there", lambda: True)
    monkeypatch.setattr(chain_file, "_prompted", lambda text: typed.pop())
    with pytest.raises(ParameterError, match=reason):
        new_key(tmp_path / "a.key", encrypt=True)
    assert not (tmp_path / "a.key").exists()


def test_no_key_is_encrypted_without_a_password(tmp_path, monkeypatch):
    monkeypatch.setattr(chain_file, "_somebody_is_there", lambda: False)
    with pytest.raises(ParameterError, match="give a password in RETICENT_KEY_PASSWORD"):
        new_key(tmp_path / "a.key", encrypt=True)
