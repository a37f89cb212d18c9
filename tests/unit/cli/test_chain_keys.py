"""Key files on the command line."""

import stat

import pytest

from reticent.apps.chain import keys as chain_keys
from reticent.apps.chain.keys import new_key, opened_key
from reticent.chain.keys import PASSWORD, read_key
from reticent.errors import ChainError, ParameterError


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    monkeypatch.delenv(PASSWORD, raising=False)


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
    monkeypatch.setenv(PASSWORD, "open sesame")
    path = tmp_path / "locked.key"
    key = new_key(path, encrypt=True)
    return path, key.address


def test_a_locked_key_opens_with_its_password_alone(locked, monkeypatch):
    path, address = locked
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert opened_key(path).address == address
    monkeypatch.setenv(PASSWORD, "wrong")
    with pytest.raises(ChainError, match="locked: the password does not open it"):
        opened_key(path)
    monkeypatch.delenv(PASSWORD)
    monkeypatch.setattr(chain_keys, "_somebody_is_there", lambda: False)
    with pytest.raises(ChainError, match="locked: give its password in RETICENT_KEY_PASSWORD"):
        opened_key(path)


def test_a_person_is_asked_for_the_password(locked, monkeypatch):
    path, address = locked
    monkeypatch.delenv(PASSWORD)
    monkeypatch.setattr(chain_keys, "_somebody_is_there", lambda: True)
    monkeypatch.setattr(chain_keys, "_prompted", lambda text: "open sesame")
    assert opened_key(path).address == address


@pytest.mark.parametrize(
    ("typed", "reason"), [(["one", "two"], "the passwords differ"), (["", ""], "give a password")]
)
def test_a_mistyped_password_makes_no_key(tmp_path, monkeypatch, typed, reason):
    monkeypatch.setattr(chain_keys, "_somebody_is_there", lambda: True)
    monkeypatch.setattr(chain_keys, "_prompted", lambda text: typed.pop())
    with pytest.raises(ParameterError, match=reason):
        new_key(tmp_path / "a.key", encrypt=True)
    assert not (tmp_path / "a.key").exists()


def test_no_key_is_encrypted_without_a_password(tmp_path, monkeypatch):
    monkeypatch.setattr(chain_keys, "_somebody_is_there", lambda: False)
    with pytest.raises(ParameterError, match="give a password in RETICENT_KEY_PASSWORD"):
        new_key(tmp_path / "a.key", encrypt=True)
