"""Whoever lost a key gets another, and no fresh quota with it, whatever is on its way meanwhile."""

import contextlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from reticent.apps import main
from reticent.errors import ParameterError
from reticent.service.keys import Person, Role, digest, new_secret
from reticent.service.state import Asked, State, people, quotas

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
        cookie, _ = state.enter(keys["olga"])
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


# What is on its way while a key is replaced


def in_between(monkeypatch, owner, name, happens):
    """Let something happen once, right before the next call of something: as another worker would."""
    method, waiting = getattr(owner, name), [happens]

    def later(*given, **options):
        if waiting:
            waiting.pop()()
        return method(*given, **options)

    monkeypatch.setattr(owner, name, later)


def charged_past_the_quota(service, monkeypatch, renew):
    """Whether a question on its way, and one with the key made meanwhile, are paid from one quota twice."""
    assert service.ask("alice", ASK).status_code == 200
    cost = service.used("alice")
    state = service.desk.state
    state.set_quota("census", state.named("alice"), 2 * cost)  # one more
    made = {}
    in_between(monkeypatch, State, "reserve", lambda: made.update(alice=renew(service)))
    told = [service.ask("alice", MORE).status_code]
    service.keys |= made
    other = {**MORE, "query": MORE["query"].replace("40", "50")}
    told.append(service.ask("alice", other).status_code)
    assert made
    assert told[0] == 200
    assert service.spent() == (1 + told.count(200)) * cost
    return told == [200, 200]


@pytest.mark.parametrize("renew", [by_api, by_revoking])
def test_a_question_on_its_way_counts_for_the_key_made_meanwhile(service, monkeypatch, renew):
    assert not charged_past_the_quota(service, monkeypatch, renew)


def test_planted_counting_under_the_number_of_the_old_key_is_caught(service, monkeypatch):
    monkeypatch.setattr(quotas, "_bearer", lambda connection, person: person.number)
    assert charged_past_the_quota(service, monkeypatch, by_revoking)


def counted_in_all(folder, threads):
    """What many requests are counted with, each begun with another key of alice's, while keys are made."""
    with contextlib.ExitStack() as held:
        states = [held.enter_context(contextlib.closing(State.of(folder))) for _ in range(4)]
        first = states[0].named("alice")
        states[0].set_quota("census", first, 1000)

        def work(number):
            state = states[number % 4]
            person = state.named("alice") or first  # who began with a key that was taken back since
            if number % 3 == 0 and state.revoke("alice"):
                with contextlib.suppress(ParameterError):
                    state.make_key("alice", Role.ANALYST)
            return 70 if state.reserve(f"attempt {number}", person, "census", 70)[1] is None else 0

        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(work, range(60))), states[0].quota("census", states[0].named("alice"))


def test_keys_made_at_once_and_their_requests_share_one_limit(folder, keys):
    counted, told = counted_in_all(folder, threads=4)
    assert counted == 14 * 70
    assert told == (1000, counted)


def test_planted_limits_of_their_own_are_caught_at_once(folder, keys, monkeypatch):
    """One after the other, so that each key is used before the next is made."""
    monkeypatch.setattr(quotas, "_bearer", lambda connection, person: person.number)
    assert counted_in_all(folder, threads=1)[0] > 1000


@pytest.mark.parametrize("ends", ["settle", "release"])
def test_what_an_attempt_is_counted_with_in_the_end_is_counted_once(folder, keys, ends):
    """Reserved under one key, ended under the next: the next one has what was charged, no more or less."""
    with contextlib.closing(State.of(folder)) as state:
        alice = state.named("alice")
        assert state.reserve("a", alice, "census", 70) == (True, None)
        state.revoke("alice")
        between = state.quota("census", alice)
        after, _ = state.make_key("alice", Role.ANALYST)
        assert (between, state.quota("census", after)) == ((None, 70), (None, 70))
        if ends == "release":
            state.release("a", alice, "census")
        else:
            state.settle("a", alice, asked("census", 30), "", is_first=True)
        used = {"release": 0, "settle": 30}[ends]
        assert state.quota("census", after) == state.quota("census", alice) == (None, used)
        assert next(one for one in state.quotas("census") if one[0] == "alice") == ("alice", None, used)


def asked(dataset, cost):
    return Asked(0, dataset, "alice", "SELECT 1", "SELECT 1", cost, cost, cost)


def test_a_limit_set_for_the_old_key_holds_for_the_next(folder, keys):
    with contextlib.closing(State.of(folder)) as state:
        alice = state.named("alice")  # as an owner's request found her
        state.revoke("alice")
        after, _ = state.make_key("alice", Role.ANALYST)
        state.set_quota("census", alice, 50)
        assert state.reserve("a", after, "census", 60) == (False, 50)
        bob = state.named("bob")
        assert state.reserve("b", bob, "census", 60) == (True, None)  # another name, another limit


def visits_with_the_old_key(folder, keys, monkeypatch, renew):
    """Whether a visit that begins while its key is replaced outlives the key."""
    with contextlib.closing(State.of(folder)) as state:
        in_between(monkeypatch, people, "new_secret", lambda: renew(state))
        entered = state.enter(keys["alice"])
        return entered is not None and state.visit(entered[0]) is not None


@pytest.mark.parametrize(
    "renew", [lambda state: state.replace_key("alice"), lambda state: state.revoke("alice")]
)
def test_no_visit_outlives_the_key_it_began_with(folder, keys, monkeypatch, renew):
    assert not visits_with_the_old_key(folder, keys, monkeypatch, renew)


def test_planted_a_visit_begun_for_a_person_instead_of_a_key_is_caught(folder, keys, monkeypatch):
    """How it was: the key was looked up, and a moment later whoever had it entered."""
    whole = State._writing

    def entered(self, key):
        person = self.person(key)
        secret, csrf = people.new_secret(""), new_secret("")
        with whole(self) as connection:
            connection.execute(
                "INSERT INTO visit VALUES (?, ?, ?, ?)",
                (digest(secret), person.number, csrf, time.time() + 60),
            )
        return secret, csrf

    monkeypatch.setattr(State, "enter", entered)
    assert visits_with_the_old_key(folder, keys, monkeypatch, lambda state: state.replace_key("alice"))


def by_name_alone(monkeypatch):
    """How keys were replaced and taken back: whoever has the name by then."""
    replace_key, revoke = State.replace_key, State.revoke
    monkeypatch.setattr(State, "replace_key", lambda self, name, **_: replace_key(self, name))
    monkeypatch.setattr(State, "revoke", lambda self, name, **_: revoke(self, name))


def takes_an_owners_key(service, monkeypatch, method, path):
    """Whether an owner gets at the key of another who takes an analyst's name a moment before."""
    state, made, revoke = service.desk.state, {}, State.revoke

    def another():
        revoke(state, "alice")
        made["alice"] = state.make_key("alice", Role.OWNER)[1]

    in_between(monkeypatch, State, "replace_key" if method == "POST" else "revoke", another)
    found = service.call("olga", method, path)
    is_gone = state.person(made["alice"]) is None
    assert found.status_code == (404 if not is_gone else 200 if method == "POST" else 204)
    return is_gone


BOTH = [("POST", "/api/v1/keys/alice/replace"), ("DELETE", "/api/v1/keys/alice")]


@pytest.mark.parametrize(("method", "path"), BOTH)
def test_the_key_of_an_owner_who_takes_the_name_is_left_alone(service, monkeypatch, method, path):
    assert not takes_an_owners_key(service, monkeypatch, method, path)


@pytest.mark.parametrize(("method", "path"), BOTH)
def test_planted_going_by_the_name_alone_is_caught(service, monkeypatch, method, path):
    by_name_alone(monkeypatch)
    assert takes_an_owners_key(service, monkeypatch, method, path)


def outlives_its_replacement(service, monkeypatch):
    """Whether somebody with olga's old key, who asks for another while the operator replaces it, gets one."""
    real, given = State.replace_key, []
    in_between(monkeypatch, State, "replace_key", lambda: given.append(real(service.desk.state, "olga")[1]))
    found = service.call("olga", "POST", "/api/v1/keys/olga/replace", json={})
    is_taken = service.desk.state.person(given[0]) is None
    assert found.status_code == (200 if is_taken else 404)
    return is_taken


def test_a_stolen_key_does_not_outlive_its_replacement(service, monkeypatch):
    assert not outlives_its_replacement(service, monkeypatch)


def test_planted_a_key_that_may_replace_itself_after_its_end_is_caught(service, monkeypatch):
    by_name_alone(monkeypatch)
    assert outlives_its_replacement(service, monkeypatch)


def test_keys_replaced_at_once_leave_one_that_is_valid(folder, keys):
    """Many workers replace one key: each is told another secret, and the last one counts."""
    with contextlib.ExitStack() as held:
        states = [held.enter_context(contextlib.closing(State.of(folder))) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            told = list(pool.map(lambda n: states[n % 4].replace_key("alice")[1], range(40)))
        valid = [secret for secret in told if states[0].person(secret) is not None]
        assert len(set(told)) == 40
        assert len(valid) == 1
        assert states[0].person(keys["alice"]) is None
