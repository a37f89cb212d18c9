"""Whoever lost a key gets another, and no fresh quota with it."""

import contextlib
import sys

import pytest

from reticent.apps import main
from reticent.service.keys import Person, Role, digest, new_secret
from reticent.service.state import State

from .running import BASE, refused

ASK = {"query": "SELECT COUNT(*) FROM census WHERE age > 30", "information": 1e-3}
MORE = {"query": "SELECT COUNT(*) FROM census WHERE age > 40", "information": 1e-3}


def limited(service):
    """Let alice use up what she may be charged."""
    assert service.ask("alice", ASK).status_code == 200
    used = service.used("alice")
    person = service.desk.state.named("alice")
    service.desk.state.set_quota("census", person, used)
    refused(service.ask("alice", MORE), 409, "quota_exceeded")
    return used


def by_api(service):
    found = service.call("olga", "POST", "/api/v1/keys/alice/replace", json={})
    assert found.status_code == 200
    return found.json()["key"]


def by_command(service, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["reticent", "key", "replace", str(service.folder), "alice"])
    with pytest.raises(SystemExit, match="0"):
        main()
    return capsys.readouterr().out.strip()


def by_revoking(service):
    """As one did it before there was a way to replace a key."""
    service.call("olga", "DELETE", "/api/v1/keys/alice")
    found = service.call("olga", "POST", "/api/v1/keys", json={"name": "alice", "role": "analyst"})
    return found.json()["key"]


@pytest.mark.parametrize("way", ["api", "command", "revoking"])
def test_no_new_key_brings_a_fresh_quota(service, way, capsys, monkeypatch):
    used, old = limited(service), service.keys["alice"]
    if way == "command":
        service.keys["alice"] = by_command(service, capsys, monkeypatch)
    else:
        service.keys["alice"] = {"api": by_api, "revoking": by_revoking}[way](service)
    assert service.keys["alice"] != old
    refused(service.ask("alice", MORE), 409, "quota_exceeded")
    assert service.used("alice") == used
    told = service.get("olga", f"{BASE}/quotas").json()
    assert next(one for one in told["quotas"] if one["analyst"] == "alice")["used"] == str(used)
    service.keys["alice"] = old
    refused(service.ask("alice", ASK), 401, "not_signed_in")


def test_a_second_return_brings_none_either(service):
    limited(service)
    for _ in range(2):
        service.keys["alice"] = by_revoking(service)
    refused(service.ask("alice", MORE), 409, "quota_exceeded")


def test_planted_a_key_made_anew_brings_a_fresh_quota(service, monkeypatch):
    """How keys were made before: with a number, and nothing of whoever had the name."""

    def forgetful(self, name, role):
        secret = new_secret()
        with self._writing() as connection:
            made = connection.execute(
                "INSERT INTO person (name, role, digest, made) VALUES (?, ?, ?, 0) RETURNING number",
                (name, role.value, digest(secret)),
            ).fetchone()
        return Person(made[0], name, role), secret

    limited(service)
    monkeypatch.setattr(State, "make_key", forgetful)
    service.keys["alice"] = by_revoking(service)
    assert service.ask("alice", MORE).status_code == 200


def test_replacing_keeps_what_is_theirs_and_ends_visits(folder, keys):
    with contextlib.closing(State.of(folder)) as state:
        olga = state.named("olga")
        cookie, _ = state.enter(olga)
        again, secret = state.replace_key("olga")
        assert again == olga
        assert (state.person(secret), state.person(keys["olga"])) == (olga, None)
        assert state.visit(cookie) is None
        assert {one.file for one in state.sources() if one.owner == olga} == {"town.csv", "fresh.csv"}
        assert state.replace_key("rita") is None  # taken back
        assert state.replace_key("nobody") is None


def test_rights_do_not_come_with_a_name(folder, keys):
    with contextlib.closing(State.of(folder)) as state:
        before = state.named("olga")
        state.revoke("olga")
        after, _ = state.make_key("olga", Role.OWNER)
        assert after != before
        assert not [one for one in state.sources() if one.owner == after]


def test_owners_do_not_replace_each_others_keys(service):
    refused(service.call("olga", "POST", "/api/v1/keys/otto/replace", json={}), 404, "not_found")
    refused(service.call("olga", "POST", "/api/v1/keys/nobody/replace", json={}), 404, "not_found")
    assert service.call("otto", "POST", "/api/v1/keys/otto/replace", json={}).status_code == 200


def test_the_page_replaces_keys_of_others(service):
    csrf = service.client.get("/signin").text.split('name="csrf" value="')[1].split('"')[0]
    service.client.post("/signin", data={"key": service.keys["olga"], "csrf": csrf})
    text = service.client.get("/owner/keys").text
    csrf = text.split('name="csrf" value="')[1].split('"')[0]
    assert "Replace<span" in text
    found = service.client.post("/owner/keys/replace", data={"csrf": csrf, "name": "bob"})
    secret = found.text.split('<pre id="secret">')[1].split("<")[0]
    assert service.desk.state.person(secret).name == "bob"
    gone = service.client.post("/owner/keys/replace", data={"csrf": csrf, "name": "olga"})
    assert gone.status_code == 404
