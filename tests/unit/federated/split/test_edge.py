"""The edge: phones get from it what they would compute, whatever strangers send."""

import http.client
import threading
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.federated.crowd.edge_learner import EdgeLearner
from reticent.federated.crowd.modes import DocumentedSplit
from reticent.federated.crowd.task_text import CrowdTask
from reticent.federated.on_device import ACCOUNT
from reticent.federated.split import sessions
from reticent.federated.split.documented import trained
from reticent.federated.split.edge import MOST_BODY, EdgeServer
from reticent.federated.split.front import Front
from reticent.federated.split.line import EdgeError, Line, documented_theta, noised_update
from reticent.federated.split.noised import NoisedHome
from reticent.ledger.device.marks import Marks
from reticent.randomness import SimulationStream
from reticent.store import Directory, tensors

from .tasks import DOCUMENTED, NOISED, noised_records, pictures, text

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
TASK = text(NOISED)
SOUND = NOISED.noised_task("bars", TASK.grid)
OLD = DOCUMENTED.documented
SESSION = "ab" * 32


@contextmanager
def running(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def edge(tmp_path):
    with running(EdgeServer({"sound": SOUND, "old": OLD}, tmp_path / "edge")) as server:
        yield server


def asked(edge, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection(*edge.server_address[:2], timeout=120)
    try:
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def test_a_noised_round_is_what_the_phone_would_compute(edge):
    vectors = SOUND.noised(*noised_records(), SimulationStream(1))
    theta = np.linspace(-1, 1, SOUND.dimensions)
    with Line(edge.url, "sound") as line:
        found = noised_update(SOUND, line, vectors, theta)
        assert np.array_equal(found, SOUND.update(SOUND.slopes(theta, vectors)))
        line.end()
        with pytest.raises(EdgeError, match=r"\(400\): the session must have vectors first"):
            line.noised_slopes(SOUND, theta)


def here(theta):
    half = OLD.edge(theta)
    stream = SimulationStream(3)
    phone = trained(OLD, theta, *pictures(), edge=half, rng=stream.spawn(0), order=stream.spawn(1))
    return np.concatenate([phone.theta, half.theta]).astype(np.float64)


def there(url, theta, **more):
    stream = SimulationStream(3)
    with Line(url, "old", **more) as line:
        return documented_theta(OLD, line, theta, *pictures(), rng=stream.spawn(0), order=stream.spawn(1))


def test_a_documented_round_is_the_same_to_the_last_bit(edge):
    theta = OLD.start(7)
    assert np.array_equal(there(edge.url, theta), here(theta))


@contextmanager
def begun(edge):
    """A session that has begun, and a batch for it."""
    images, labels = pictures(8)
    features = OLD.phone(OLD.start(7), SimulationStream(1)).sent(images)
    with Line(edge.url, "old", SESSION) as line:
        line.begin(OLD.start(7)[OLD.front_dimensions :])
        yield line, features, labels


def keep(edge, session, vectors):
    with Line(edge.url, "sound", session) as line:
        line.keep(vectors)


def test_a_step_that_is_asked_again_is_made_once(edge):
    with begun(edge) as (line, features, labels):
        first = line.slopes(features, labels)
        line._steps = 0  # the answer was lost on the way
        assert np.array_equal(line.slopes(features, labels), first)
        half = line.half(OLD)
        line._steps = 3
        with pytest.raises(EdgeError, match="the step must be 1, got 3"):
            line.slopes(features, labels)
        line._steps = 1
        assert np.array_equal(line.half(OLD), half)


def test_planted_an_edge_that_makes_it_twice_is_found(edge, monkeypatch):
    half = sessions.Sessions._half

    def forgetful(self, task, name):
        _, theta, speed = half(self, task, name)
        return 0, theta, speed

    with begun(edge) as (line, features, labels):
        monkeypatch.setattr(sessions.Sessions, "_half", forgetful)
        first = line.slopes(features, labels)
        line._steps = 0
        assert not np.array_equal(line.slopes(features, labels), first)


def bodies():
    """What strangers send: every page, and bodies that are cut, longer, flipped, huge or of another kind."""
    draw = np.random.default_rng(6)
    vectors = tensors.packed({"vectors": np.zeros((2, SOUND.dimensions), np.int32)})
    theta = tensors.packed({"theta": np.zeros(SOUND.dimensions)})
    half = tensors.packed({"theta": np.zeros(OLD.back_dimensions, np.float32)})
    batch = {"features": np.zeros((2, OLD.features), np.float32), "labels": np.zeros(2, np.int32)}
    step = tensors.packed(batch)
    good = [
        ("PUT", f"/v1/sound/{SESSION}/vectors?records=2", vectors),
        ("POST", f"/v1/sound/{SESSION}/slopes", theta),
        ("PUT", f"/v1/old/{SESSION}/half", half),
        ("POST", f"/v1/old/{SESSION}/steps/0?records=2", step),
    ]
    yield from good
    for method, path, body in good:
        for bad in (b"", b"{}", body[:-1], body + b"x", b"\x80\x04cos\nsystem\n", bytes(len(body))):
            yield method, path, bad
        for _ in range(12):
            flipped = bytearray(body)
            flipped[int(draw.integers(0, min(len(body), 200)))] ^= 1 << int(draw.integers(0, 8))
            yield method, path, bytes(flipped)
    nan = np.full(SOUND.dimensions, np.nan)
    yield "POST", f"/v1/sound/{SESSION}/slopes", tensors.packed({"theta": nan})
    yield "POST", f"/v1/sound/{SESSION}/slopes", tensors.packed({"theta": np.full(SOUND.dimensions, 1e300)})
    for features, labels in ((np.inf, 0), (3e38, 0), (0, 7), (0, -1), (9e5, 1)):
        odd = {"features": batch["features"] + np.float32(features), "labels": batch["labels"] + labels}
        yield (
            "POST", f"/v1/old/{SESSION}/steps/0?records=2",
            tensors.packed({name: part.astype(batch[name].dtype) for name, part in odd.items()}),
        )  # fmt: skip
    for path in (
        "/", "/v1", "/v1/none/x", f"/v1/sound/{'zz' * 32}/slopes", f"/v1/sound/../{SESSION}/half",
        f"/v1/old/{SESSION}/steps/{'9' * 30}?records=2", f"/v1/old/{SESSION}/steps/-1?records=2",
        f"/v1/sound/{SESSION}/vectors?records=-1", f"/v1/sound/{SESSION}/vectors?records=999999999",
        f"/v1/sound/{SESSION}/half", f"/v1/old/{SESSION}/slopes",
    ):  # fmt: skip
        for method in ("GET", "PUT", "POST", "HEAD", "DELETE", "PATCH", "BREW"):
            yield method, path, b"x"


def test_hostile_bodies_get_one_line_and_never_5xx(edge):
    tried = 0
    for method, path, body in bodies():
        status, said = asked(edge, method, path, body)
        assert status == 200 or 400 <= status < 500, (method, path, status, said)
        if status != 200:
            assert said.count(b"\n") <= 1
            assert len(said) < 500
        tried += 1
    assert tried > 150
    vectors = SOUND.noised(*noised_records(), SimulationStream(1))
    with Line(edge.url, "sound") as line:
        assert noised_update(SOUND, line, vectors, np.zeros(SOUND.dimensions)).shape == (SOUND.dimensions,)


def test_lengths_are_told_and_capped(edge):
    path = f"/v1/sound/{SESSION}/vectors?records=2"
    status, said = asked(edge, "PUT", path, None, {"Content-Length": str(MOST_BODY + 1)})
    assert (status, said) == (413, b"a body must have at most 67108864 bytes\n")
    assert asked(edge, "PUT", path, None, {"Content-Length": "much"})[0] == 411
    assert asked(edge, "PUT", path, None, {"Transfer-Encoding": "chunked"})[0] == 411


def test_a_full_edge_says_so_and_stale_sessions_give_way(tmp_path, monkeypatch):
    vectors = SOUND.noised(*noised_records(), SimulationStream(1))
    with running(EdgeServer({"sound": SOUND}, tmp_path / "edge", capacity=vectors.nbytes + 500)) as edge:
        keep(edge, "11" * 32, vectors)
        with pytest.raises(EdgeError, match=r"\(429\): the edge takes no more sessions now"):
            keep(edge, "22" * 32, vectors)
        keep(edge, "11" * 32, vectors)
        monkeypatch.setattr(sessions, "STALE_S", -1)
        keep(edge, "22" * 32, vectors)


def test_an_edge_that_is_away_is_named(tmp_path):
    with pytest.raises(EdgeError, match="the edge cannot be reached"):
        Line("http://127.0.0.1:9", "sound", patience_s=0.0).keep(np.zeros((1, 18), np.int32))
    with pytest.raises(EdgeError, match="the edge must be"):
        Line("ftp://x", "sound")


def test_a_home_of_a_crowd_learns_by_an_edge_and_pays_once(edge, tmp_path):
    """As `crowd customer --edge` does: the front from the store, pictures from the home's files."""
    store = Directory(tmp_path / "store")
    front = Front.made(14, 6)
    training = replace(NOISED, front=str(front.put(store)))
    task = text(training)
    asked = training.noised_task("ab", task.grid)
    edge.tasks[str(task.cid)] = asked
    draw = np.random.default_rng(8)
    pictures, labels = draw.random((9, 196)), draw.integers(0, 3, 9)
    home = NoisedHome(
        tmp_path / "ledger", tmp_path / "drawn", bytes(32),
        lifetime=4.5, rng=SimulationStream(1), marks=Marks(tmp_path / "marks"),
    )  # fmt: skip
    learner = EdgeLearner(home, lambda _: (pictures, labels), store, edge.url)
    model = np.zeros(task.grid.dimensions, dtype=np.int64)
    first = learner.update("ab", task, 0, model)
    drawn = home.vectors(asked, None, None)
    assert np.array_equal(first, asked.update(asked.slopes(np.zeros(asked.dimensions), drawn)))
    assert not np.array_equal(learner.update("ab", task, 1, model + 5000), first)
    assert home.ledger.balance(ACCOUNT).spent == asked.units == 4 * 10**12, "rounds after the first are free"
    with pytest.raises(ParameterError, match="mode must be device to train here, got documented"):
        learner.update("ab", text(DOCUMENTED), 0, model)
    with pytest.raises(ParameterError, match="edge must be given for a task of mode noised"):
        EdgeLearner(home, lambda _: (pictures, labels), store, None).update("ab", task, 0, model)
    learner.close()


# The texts


@pytest.mark.parametrize("training", [NOISED, DOCUMENTED])
def test_texts_come_back_and_models_can_be_judged(training):
    task = text(training)
    assert CrowdTask.from_json(task.to_json()) == task
    rows = np.zeros((5, training.inputs_of_test))
    assert training.predicted(np.zeros(training.dimensions), rows).shape == (5,)


def test_a_noised_text_costs_mu_squared_and_a_documented_one_is_no_epsilon():
    assert text(NOISED).mu2_units * 3 >= 4 * 10**12
    assert text(NOISED, rounds=1).mu2_units == 4 * 10**12
    assert text(DOCUMENTED).mu2_units is None


def test_a_documented_text_must_say_that_no_record_is_protected():
    fields = DOCUMENTED.words() | {"record": "protected"}
    with pytest.raises(ParameterError, match="record must be 'not protected': this mode protects none"):
        text(DocumentedSplit(**fields))
    assert b'"record":"not protected"' in text(DOCUMENTED).to_json()
    assert "NO PROTECTION OF A RECORD" in DOCUMENTED.warning(3)
    assert NOISED.warning(3) is None
