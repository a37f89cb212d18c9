"""Keys: what a file may hold, who may read it, and that no message quotes it."""

import json
import os
import stat
import sys
import traceback

import pytest

from reticent.chain import keys
from reticent.chain.keys import Key, make_key, read_key
from reticent.errors import ChainError, ParameterError

SECRET = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
ADDRESS = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"  # as anvil prints it for this key
PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """A keystore; it would be slow, on purpose, but for the few iterations."""
    path = tmp_path_factory.mktemp("keys") / "locked.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Key, "encrypted", lambda key, password: key._account.encrypt(password, iterations=2))
        return path, make_key(path, PASSWORD)


@pytest.mark.parametrize("text", [SECRET, "0x" + SECRET, f"  0x{SECRET}\n", SECRET.upper()])
def test_a_key_in_a_file(tmp_path, text):
    path = tmp_path / "key"
    path.write_text(text)
    assert read_key(path).address == ADDRESS == Key(bytes.fromhex(SECRET)).address


def test_a_new_key(tmp_path):
    path = tmp_path / "key"
    old = os.umask(0)
    try:
        made = make_key(path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_key(path).address == made.address
    assert make_key(tmp_path / "other").address != made.address


def test_a_locked_key(locked):
    path, made = locked
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["version"] == 3
    assert bytes(made._account.key).hex() not in path.read_text()
    assert read_key(path, PASSWORD).address == made.address
    with pytest.raises(ChainError, match=r"is locked: give its password$"):
        read_key(path)
    with pytest.raises(ChainError, match=r"is locked: the password does not open it$") as caught:
        read_key(path, PASSWORD[::-1])
    assert PASSWORD[::-1] not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("password", [None, PASSWORD])
def test_an_existing_file_is_never_overwritten(tmp_path, password, monkeypatch):
    monkeypatch.setattr(Key, "encrypted", lambda self, password: {"version": 3})
    path = tmp_path / "key"
    path.write_text("mine")
    with pytest.raises(ChainError, match="the key file cannot be used: File exists"):
        make_key(path, password)
    assert path.read_text() == "mine"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ChainError):
        make_key(link, password)
    assert not (tmp_path / "nowhere").exists()


def test_overwriting_would_be_caught(tmp_path, monkeypatch):
    """Planted: the file is written whether there is one or not."""
    monkeypatch.setattr(keys, "write_new", lambda path, content, *, mode: path.write_text(content))
    path = tmp_path / "key"
    path.write_text("mine")
    make_key(path)
    assert path.read_text() != "mine"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0x",
        SECRET[:-1],  # eth_account pads this to another key
        "0x" + SECRET[:-1],
        SECRET + "0",
        SECRET[:-2],
        SECRET[:-1] + "g",
        SECRET[:32] + " " + SECRET[32:],
        "0x0x" + SECRET,
        "0" * 64,
        "f" * 64,
        "five",
        "\x00\x01",
        SECRET + "\n" + SECRET,
        "[" + SECRET + "]",
    ],
)
def test_garbage_is_refused_and_never_quoted(tmp_path, text):
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(
        ParameterError, match="a private key must be 32 bytes in hexadecimal digits"
    ) as caught:
        read_key(path, PASSWORD)
    assert_unquoted(caught.value)


def assert_unquoted(error):
    shown = "".join(traceback.format_exception(error)) + repr(error)
    assert SECRET[:16] not in shown
    assert SECRET[-16:] not in shown


def test_a_quoting_message_would_be_caught(monkeypatch):
    """Planted: what went wrong below is told in its own words."""
    text = SECRET[:-1] + "g"
    try:
        try:
            int(text, 16)
        except ValueError as error:
            raise ParameterError("no key") from error
    except ParameterError as error:
        with pytest.raises(AssertionError):
            assert_unquoted(error)


def test_deep_nesting_raises_and_does_not_end_the_process():
    """py_ecc, which eth_account imports, sets a limit of 100,000; then a node's answer could end us."""
    assert sys.getrecursionlimit() < 50_000
    with pytest.raises(RecursionError):
        json.loads("[" * 100_000)


@pytest.mark.parametrize("text", ["{", "{" + SECRET, "{" * 100_000, '{"a": ' * 9_000])
def test_no_keystore(tmp_path, text):
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(ParameterError, match=r"neither a key nor a keystore|too large for a key") as caught:
        read_key(path, PASSWORD)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("text", ["{}", '{"version": 9}', '{"version": 3, "crypto": {"kdf": "none"}}'])
def test_another_keystore(tmp_path, text):
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(ChainError, match="the password does not open it"):
        read_key(path, PASSWORD)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ChainError, match="No such file"):
        read_key(tmp_path / "none")
    with pytest.raises(ChainError, match="Is a directory"):
        read_key(tmp_path)
    with pytest.raises(ChainError, match="No such file"):
        make_key(tmp_path / "none" / "key")


def test_a_key_shows_its_address_only():
    key = Key(SECRET)
    assert repr(key) == str(key) == f"Key({ADDRESS})"


@pytest.mark.parametrize("secret", [5, None, b"", bytes(31), bytes(32), b"\xff" * 32, [1] * 32])
def test_no_key(secret):
    with pytest.raises(ParameterError):
        Key(secret)


def test_the_same_transaction_gives_the_same_bytes():
    call = {"chainId": 1, "nonce": 0, "gas": 21000, "gasPrice": 1, "value": 0, "to": ADDRESS, "data": b"x"}
    assert Key(SECRET).sign(call) == Key(SECRET).sign(dict(call))
