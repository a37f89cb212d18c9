"""Jobs: queued, answered in their turn, seen by their owner alone, taken up after a crash."""

import contextlib
import json
import threading
import time

from reticent.apps.query.desk import Desk
from reticent.apps.query.jobs import Jobs
from reticent.apps.query.schemas import Priced
from reticent.query import Answer
from reticent.service.settings import Settings

from .running import BASE, MEAN, refused, until

JOBS = f"{BASE}/jobs"


def finished(service, who, job):
    def look():
        told = service.get(who, f"/api/v1/jobs/{job}").json()
        return told if told["state"] in ("done", "refused") else None

    return until(look)


def test_a_job_is_answered(service):
    made = service.ask("alice", path=JOBS)
    assert made.status_code == 202
    assert made.headers["location"] == f"/api/v1/jobs/{made.json()['job']}"
    told = finished(service, "alice", made.json()["job"])
    assert (told["state"], told["progress"], told["dataset"]) == ("done", 1.0, "census")
    answer = Answer.from_json(told["result"])
    assert answer.cost == service.spent() == service.used("alice") > 0
    refused(service.get("bob", f"/api/v1/jobs/{told['job']}"), 404, "not_found")


def test_a_refused_job_says_why(service):
    job = service.ask("alice", {**MEAN, "error": 100.0}, path=JOBS).json()["job"]
    told = finished(service, "alice", job)
    assert told["state"] == "refused"
    assert told["result"]["error"]["type"] == "budget_exceeded"
    assert service.spent() == 0


def test_the_same_key_is_the_same_job(service):
    first = service.ask("alice", key="one", path=JOBS).json()
    told = finished(service, "alice", first["job"])
    again = service.ask("alice", key="one", path=JOBS).json()
    assert again == told
    assert service.ask("alice", key="one").json() == told["result"]
    assert service.spent() == service.used("alice") == int(told["result"]["cost"])


def test_a_person_has_so_many(serving, monkeypatch):
    held = threading.Event()
    monkeypatch.setattr(Desk, "ask", lambda *_, **__: held.wait(60) and None)
    service = serving(most_jobs=2, job_threads=1)
    try:
        assert [service.ask("alice", path=JOBS).status_code for _ in range(2)] == [202, 202]
        reply = service.ask("alice", path=JOBS)
        refused(reply, 429, "too_many_jobs")
        assert int(reply.headers["retry-after"]) > 0
        assert service.ask("bob", path=JOBS).status_code == 202
        until(lambda: 'reticent_jobs{state="queued"} 2' in service.get("vera", "/metrics").text)  # one began
    finally:
        held.set()


def test_what_takes_long_goes_on_as_a_job(serving, monkeypatch):
    true, held = Desk.ask, threading.Event()

    def slow(self, *args, **options):
        held.wait(60)
        return true(self, *args, **options)

    monkeypatch.setattr(Desk, "ask", slow)
    service = serving(longest_s=0.05)
    reply = service.ask("alice", key="one")
    assert (reply.status_code, reply.json()["state"]) == (202, "running")
    assert reply.json()["progress"] < 1
    again = service.ask("alice", key="one")
    assert again.json()["job"] == reply.json()["job"]
    held.set()
    told = finished(service, "alice", reply.json()["job"])
    assert told["state"] == "done"
    assert service.spent() == service.used("alice") == int(told["result"]["cost"]) > 0


def test_a_fault_in_a_job_says_nothing(serving, monkeypatch, caplog):
    def broken(*_, **__):
        raise RuntimeError("holds a private 0.73")

    monkeypatch.setattr(Desk, "ask", broken)
    service = serving()
    told = finished(service, "alice", service.ask("alice", path=JOBS).json()["job"])
    assert told["result"] == {"error": {"type": "fault", "message": "internal fault"}}
    assert "0.73" not in caplog.text


def test_a_job_of_a_key_that_was_taken_back(serving, monkeypatch):
    true, held = Desk.ask, threading.Event()
    monkeypatch.setattr(Desk, "ask", lambda *args, **options: held.wait(60) and true(*args, **options))
    service = serving(job_threads=1)
    first = service.ask("bob", path=JOBS).json()["job"]
    service.ask("alice", {**MEAN, "error": 3000.0}, path=JOBS)
    assert service.call("olga", "DELETE", "/api/v1/keys/alice").status_code == 204
    held.set()
    paid = int(finished(service, "bob", first)["result"]["cost"])
    until(lambda: service.desk.state.job_counts().get("refused") == 1)
    assert service.spent() == paid


# The time grid


def test_a_result_is_seen_on_the_grid(folder, keys, monkeypatch):
    """A result that is there is shown as running until the next point of the grid."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    desk = Desk(Settings(folder, grid_s=2.0))
    jobs = Jobs(desk)
    try:
        alice = desk.state.named("alice")
        job = jobs.queue(alice, "census", Priced(**MEAN), None)
        until(lambda: desk.state.job(job.id, alice).result)
        held = desk.state.job(job.id, alice)
        assert held.shown == held.made + 2.0
        told = jobs.told(held)
        assert (told["state"], told["result"]) == ("running", None)
        assert told["progress"] < 1
    finally:
        jobs.close()
        desk.close()


# Crashes


def orphan(desk, alice):
    """A job that a process was working on when it died."""
    body = Priced(**MEAN)
    attempt = desk.attempt(alice, "census", body.query, body.accuracy(), "one")
    job = desk.state.queue(
        attempt.id, alice, "census", "one", body.model_dump_json(),
        made=time.time(), is_running=True, most=9,
    )  # fmt: skip
    desk.state._keeper._connection.execute("UPDATE job SET beat = beat - 100")
    return job


def test_a_job_of_a_dead_process_is_taken_up(desk):
    alice = desk.state.named("alice")
    job = orphan(desk, alice)
    with contextlib.closing(Jobs(desk)):
        result = until(lambda: desk.state.job(job.id, alice).result)
    assert json.loads(result)["cost"] == str(desk.balance("census").spent)


def test_planted_looking_for_new_jobs_only_is_caught(desk, monkeypatch):
    """What the job's threads look for, `test_a_job_of_a_dead_process_is_taken_up` waits for."""
    job = orphan(desk, desk.state.named("alice"))
    with monkeypatch.context() as planted:
        planted.setattr(
            "reticent.service.state.jobs._NEXT_JOB",
            "SELECT number FROM job WHERE state = 'queued' AND ? > ? ORDER BY number LIMIT 1",
        )
        assert desk.state.claim(10.0) is None
    assert desk.state.claim(10.0).id == job.id


def test_a_job_that_is_worked_on_is_left_alone(desk):
    alice = desk.state.named("alice")
    job = orphan(desk, alice)
    desk.state.beat([job.id])
    assert desk.state.claim(60.0) is None
    assert desk.state.claim(0.0).id == job.id
