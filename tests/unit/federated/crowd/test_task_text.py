"""The text of a crowd's task: one form, strict, total."""

import json
from dataclasses import replace

import numpy as np
import pytest

from reticent.errors import ParameterError, ReticentError
from reticent.federated.crowd import modes, task_text
from reticent.federated.crowd.task_text import MOST_BYTES, CrowdTask, PublicTest, read
from reticent.federated.crowd.terms import Terms
from reticent.store import Directory, cid_of, tensors

from .round_of import GRID, TASK, TRAINING

TESTED = replace(TASK, test=PublicTest(cid_of(b"rows"), 6))


@pytest.mark.parametrize("task", [TASK, TESTED, replace(TASK, purpose="Wäsche \U0001f9fa", multiple=3)])
def test_a_task_comes_back_from_its_text(task):
    assert CrowdTask.from_json(task.to_json()) == task
    assert task.to_json().isascii()


def test_what_a_round_costs_is_what_a_home_pays():
    home = TRAINING.home_task("0" * 64, GRID, 3)
    assert TASK.mu2_units == home.units
    assert home.guarantee.mu == pytest.approx(TRAINING.mu)


def written(**changes):
    return json.dumps(json.loads(TASK.to_json()) | changes, sort_keys=True, separators=(",", ":")).encode()


def inside(part, **changes):
    return written(**{part: json.loads(TASK.to_json())[part] | changes})


def without(name):
    given = json.loads(TASK.to_json())
    del given[name]
    return json.dumps(given, sort_keys=True, separators=(",", ":")).encode()


REFUSED = {
    "unknown field": written(more=1),
    "missing": without("grid"),
    "no mode": written(mode="edge"),
    "a mode of a list": written(mode=[]),
    "a whole number for a float": inside("training", mu=1),
    "a float for a whole number": inside("training", steps=4.0),
    "true for a number": inside("training", steps=True),
    "huge": inside("grid", steps=10**4000),
    "huge and not to be printed": TASK.to_json().replace(b'"rounds":3', b'"rounds":' + b"9" * 5000),
    "infinite": TASK.to_json().replace(b'"mu":1.0', b'"mu":Infinity'),
    "infinite by its exponent": TASK.to_json().replace(b'"mu":1.0', b'"mu":1e999'),
    "another zero": TASK.to_json().replace(b'"l2":0.0', b'"l2":-0.0'),
    "another form of a number": TASK.to_json().replace(b'"mu":1.0', b'"mu":1.00'),
    "spaces": json.dumps(json.loads(TASK.to_json()), sort_keys=True).encode(),
    "unsorted": json.dumps(
        dict(sorted(json.loads(TASK.to_json()).items(), reverse=True)), separators=(",", ":")
    ).encode(),
    "a field twice": TASK.to_json().replace(b'"rounds":3', b'"rounds":2,"rounds":3'),
    "other dimensions": inside("grid", dimensions=16),
    "a longer floor than the norm": inside("grid", floor=1 << 16),
    "training of another shape": written(training=[1]),
    "training with another field": inside("training", epochs=1),
    "no purpose": written(purpose=""),
    "a purpose that steers a terminal": written(purpose="\x1b[2J"),
    "half a sign": written(purpose="\ud800"),
    "no rounds": written(rounds=0),
    "liars": written(liars=-1),
    "a test file by name": written(test="rows.csv"),
    "a test file of no CID": written(test={"cid": "x", "rows": 1}),
    "deep": b"[" * 5000,
    "long": b" " * (MOST_BYTES + 1),
    "another format": written(format=2),
    "a true format": written(format=True),
    "no object": b"[]",
    "no JSON": b"\xff",
    "no bytes": "text",
}


@pytest.mark.parametrize("what", REFUSED)
def test_any_other_text_is_refused_in_one_line(what):
    with pytest.raises(ParameterError) as error:
        CrowdTask.from_json(REFUSED[what])
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


def test_every_byte_of_a_text_counts():
    """Bytes changed at random: refused, or another task with a text of its own, never an odd error."""
    draw, text = np.random.default_rng(3), TESTED.to_json()
    for _ in range(500):
        other = bytearray(text)
        other[draw.integers(len(text))] = draw.integers(256)
        try:
            found = CrowdTask.from_json(bytes(other))
        except ParameterError:
            continue
        assert found.to_json() == bytes(other)


def test_planted_a_parser_that_takes_any_form_is_found(monkeypatch):
    monkeypatch.setattr(CrowdTask, "to_json", lambda self: Same())
    taken = [what for what, text in REFUSED.items() if not is_refused(text)]
    assert {"spaces", "unsorted", "a field twice", "another zero"} <= set(taken)


class Same(bytes):
    """Equal to every text."""

    def __ne__(self, other):
        return False

    __hash__ = bytes.__hash__


def is_refused(text):
    try:
        CrowdTask.from_json(text)
    except ReticentError:
        return True
    return False


def test_a_mode_joins_by_one_entry(monkeypatch):
    class Other(modes.OnDevice):
        mode = "other"

    monkeypatch.setattr(modes, "MODES", dict(modes.MODES) | {"other": Other})
    task = replace(TASK, training=Other(**TRAINING.words()))
    assert isinstance(CrowdTask.from_json(task.to_json()).training, Other)
    assert task.to_json() != TASK.to_json()


def test_terms_of_another_task_are_refused():
    TASK.check_terms(Terms(rounds=3, people=9, f=1))
    with pytest.raises(ParameterError, match="f = 2"):
        TASK.check_terms(Terms(rounds=3, people=9, f=2))


def test_models_and_public_accuracy(tmp_path):
    store, draw = Directory(tmp_path), np.random.default_rng(1)
    features, labels = draw.normal(size=(6, 4)).astype("<f4"), np.array([0, 1, 2, 0, 1, 2], dtype="<i4")
    cid = tensors.put(store, {"features": features, "labels": labels})
    task = replace(TASK, test=PublicTest(cid, 6))
    model = task.model(store, store.put(task.start()))
    assert task.accuracy(store, model) == 2 / 6, "zeros say the first class"
    assert TASK.accuracy(store, model) is None
    assert read(store, bytes(store.put(task.to_json()))) == task
    too_far = store.put(task.model_file(np.full(15, 1 << 60)))
    with pytest.raises(ParameterError, match="grid steps"):
        task.model(store, too_far)


def test_test_rows_that_would_fill_an_observers_memory_are_refused(tmp_path):
    """A file of zeros of any size is a few blocks in a store."""
    cid = cid_of(b"")
    wide = modes.OnDevice(inputs=1 << 10, classes=2, l2=0.0, clip=1.0, records=20, rate=0.5, steps=1, mu=1.0)
    many = modes.OnDevice(inputs=1, classes=1 << 16, l2=0.0, clip=1.0, records=20, rate=0.5, steps=1, mu=1.0)
    for training, rows, said in ((wide, 1 << 17, "times inputs"), (many, 1 << 20, "times dimensions")):
        grid = replace(TASK.grid, dimensions=training.dimensions)
        replace(TASK, training=training, grid=grid, test=PublicTest(cid, rows >> 4))
        with pytest.raises(ParameterError, match=said):
            replace(TASK, training=training, grid=grid, test=PublicTest(cid, rows))


def test_accuracy_is_the_same_however_many_rows_are_classified_together(tmp_path, monkeypatch):
    store, draw = Directory(tmp_path), np.random.default_rng(1)
    features, labels = draw.normal(size=(50, 4)).astype("<f4"), draw.integers(0, 3, 50).astype("<i4")
    task = replace(TASK, test=PublicTest(tensors.put(store, {"features": features, "labels": labels}), 50))
    model = draw.integers(-4096, 4096, 15)
    whole = task.accuracy(store, model)
    assert whole == np.mean(TRAINING.predicted(task.grid.values(model), features.astype(float)) == labels)
    monkeypatch.setattr(task_text, "_TOGETHER", 35)  # rows of 5 numbers: 7 together
    assert task.accuracy(store, model) == whole
