"""A model in a file, and the promise beside it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from reticent.errors import GuaranteeError, ParameterError
from reticent.federated import saved
from reticent.federated.models import Axes, Logistic
from reticent.federated.personalised import PersonalTask, Sanitiser
from reticent.federated.saved import How, Statement
from reticent.federated.tasks import designed

safetensors = pytest.importorskip("safetensors.numpy", reason="no safetensors in this environment")
THETA = np.array([0.5, -1.0, 2.0, 1e-9])


@pytest.fixture
def statement():
    task = designed(
        "braking", Logistic(3), epsilon=1.25, purpose="x", rounds=9, group=50, rate=1.0, participations=4
    )
    return Statement(task, 9, How.CLIENTS, {"target": "braked"})


@pytest.fixture
def path(statement, tmp_path):
    found = tmp_path / "m.safetensors"
    saved.save(found, THETA, statement)
    return found


def rewritten(path, **changes):
    """The same file with other metadata."""
    with saved_file(path) as file:
        told, theta = file.metadata(), file.get_tensor("theta")
    for name, words in changes.items():
        if words is None:
            del told[name]
        else:
            told[name] = words
    path.write_bytes(safetensors.save({"theta": theta}, told))


def saved_file(path):
    from safetensors import safe_open

    return safe_open(path, framework="np")


def test_there_and_back(path, statement):
    found = saved.load(path)
    assert np.array_equal(found.theta, THETA)
    assert found.statement.metadata() == statement.metadata()
    assert [one.name for one in path.parent.iterdir()] == [path.name], "nothing is left beside it"


def test_axes_come_back_with_the_model(tmp_path):
    axes = Axes.fitted(np.random.default_rng(1).normal(size=(30, 5)), 3)
    model = Logistic(5, axes=axes)
    task = designed("braking", model, epsilon=1.0, purpose="x", rounds=9, group=50, rate=1.0)
    saved.save(tmp_path / "m", THETA, Statement(task, 9, How.CLIENTS))
    found = saved.load(tmp_path / "m")
    rows = np.random.default_rng(2).normal(size=(20, 5))
    theirs = found.statement.task.model
    assert np.array_equal(theirs.scores(found.theta, rows), model.scores(THETA, rows))
    assert theirs.described() == model.described()
    assert "rows that its axes were fitted on" in found.statement.words()["not_protected"]
    plain = replace(task, model=model.plain)
    assert "axes" not in Statement(plain, 9, How.CLIENTS).words()["not_protected"]


def test_other_programs_read_the_promise(path, statement):
    with saved_file(path) as file:
        told = file.metadata()
    assert told["epsilon_per_report"] == "1.25"
    assert told["epsilon_in_all"] == "5"
    assert told["neighbours"] == "any two values"
    assert json.loads(told["task"])["name"] == "braking"
    assert "took part" in told["not_protected"]
    assert all(told[name] for name in ("unit", "adversary", "guarantee", "task_id", "rounds"))


def test_fewer_rounds_than_participations_cost_less(statement):
    words = Statement(statement.task, 3, How.CLIENTS).words()
    assert (words["participations"], words["epsilon_in_all"]) == ("3", "3.75")
    assert Statement(statement.task, 0, How.CLIENTS).words()["epsilon_in_all"] == "0"


def test_a_simulation_does_not_promise_what_clients_do(statement):
    of_clients, simulated, seeded = (Statement(statement.task, 9, how).words() for how in How)
    assert "who ran the simulation" in simulated["not_protected"]
    assert seeded["guarantee"] == "none"
    assert of_clients["adversary"] != simulated["adversary"]


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon_in_all": "0.1"},
        {"epsilon_per_report": "0.1"},
        {"participations": "1"},
        {"unit": "everything"},
        {"adversary": "everybody"},
        {"not_protected": "nothing"},
        {"guarantee": "perfect"},
        {"task_id": "00" * 8},
        {"rounds": "1"},
        {"how": How.SEEDED.value},
        {"neighbours": None},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_false_promise_is_refused(path, changes, monkeypatch):
    """Planted: the same files pass where the words are not derived again."""
    rewritten(path, **changes)
    with pytest.raises(GuaranteeError, match="says something else than its task keeps"):
        saved.load(path)
    with monkeypatch.context() as planted:
        planted.setattr(Statement, "metadata", lambda self: {})
        saved.load(path)


def test_a_task_that_does_not_keep_its_epsilon_is_refused(path, statement):
    text = statement.task.text.decode().replace('"epsilon":1.25,"format"', '"epsilon":0.3,"format"')
    assert text != statement.task.text.decode()
    rewritten(path, task=text)
    with pytest.raises(GuaranteeError):
        saved.load(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "format of a model must be"),
        ({"task": None}, "field task is missing"),
        ({"task": "{}"}, "is missing"),
        ({"task": "é"}, "must be JSON in ASCII"),
        ({"how": "magic"}, "how must be one that is known"),
        ({"rounds": "-1"}, "rounds must be a whole number"),
        ({"rounds": "9" * 30}, "rounds must be a whole number"),
        ({"rounds": "10"}, "rounds must be <= 9"),
        ({"inputs": "[]"}, "inputs of a model must be an object"),
        ({"inputs": "["}, "inputs of a model must be an object"),
    ],
)
def test_a_broken_statement_is_named(path, changes, message):
    rewritten(path, **changes)
    with pytest.raises(ParameterError, match=message):
        saved.load(path)


def test_what_is_no_model_is_refused(path, statement, tmp_path):
    told = statement.metadata()
    for tensors in (
        {"theta": THETA.astype(np.float32)},
        {"theta": THETA[:3]},
        {"theta": THETA, "other": THETA},
        {"other": THETA},
        {},
    ):
        path.write_bytes(safetensors.save(tensors, told))
        with pytest.raises(ParameterError, match="must hold theta alone, 4 doubles"):
            saved.load(path)
    for content in (b"", b"\x80\x04K\x01.", b"\xff" * 64, path.read_bytes()[:-1]):
        path.write_bytes(content)
        with pytest.raises(ParameterError, match="form of safetensors"):
            saved.load(path)
    with pytest.raises(ParameterError, match="there is no model"):
        saved.load(tmp_path / "nothing")
    with pytest.raises(ParameterError, match=r"theta must have shape \(4,\)"):
        saved.save(path, THETA[:2], statement)


def test_what_is_said_to_be_spent_is_what_ledgers_charge(statement):
    """A double 1.3 is a little more than 1.3, and costs are rounded up."""
    task = designed("braking", Logistic(3), epsilon=1.3, purpose="x", rounds=2, group=5, rate=1.0)
    assert Statement(task, 2, How.CLIENTS).words()["epsilon_in_all"] == "1.300000000001"


# Personalised models

HYPOTHESES = np.arange(8.0).reshape(2, 4) / 8.0


def personal(rounds=9, **changes):
    given = {"hypotheses": 2, "clip": 0.5, "reach": 3.0, "level": 4.0, "group": 50, "rate": 1.0}
    given |= {"rounds": 9, "participations": 4}
    task = PersonalTask("trips", "1", "x", Logistic(3), 4, **given | changes)
    return Statement(task, rounds, How.CLIENTS)


@pytest.mark.parametrize(
    ("noise", "unit", "kept"), [("gaussian", "mu2", "mu-GDP"), ("laplace", "epsilon", "epsilon-LDP")]
)
@pytest.mark.parametrize("about", ["slots", "centre", "hypothesis"])
def test_personalised_models_there_and_back(tmp_path, noise, unit, kept, about):
    path, given = tmp_path / "m.safetensors", personal(noise=noise, about=about)
    saved.save(path, HYPOTHESES, given)
    found = saved.load(path)
    assert np.array_equal(found.theta, HYPOTHESES)
    told = found.statement.metadata()
    assert told == given.metadata()
    assert kept in told["guarantee"]
    assert told["neighbours"] == "any two values"
    in_all, worst = float(told[f"{unit}_in_all"]), Sanitiser(given.task)
    assert in_all == pytest.approx(4 * worst.units / 1e12, rel=1e-12)
    assert worst.units >= Sanitiser(given.task, HYPOTHESES).units, "of no round more than is said"


def test_a_false_promise_of_personalised_models_is_refused(tmp_path, monkeypatch):
    path, given = tmp_path / "m.safetensors", personal()
    told = given.metadata()
    for name in ("mu2_per_report", "mu2_in_all", "participations", "guarantee", "task_id"):
        path.write_bytes(safetensors.save({"hypotheses": HYPOTHESES}, told | {name: "0"}))
        with pytest.raises(GuaranteeError, match=f"says something else than its task keeps: {name}"):
            saved.load(path)
        with monkeypatch.context() as planted:
            planted.setattr(Statement, "metadata", lambda self: {})
            saved.load(path)


def test_personalised_models_of_another_shape_are_refused(tmp_path, statement):
    path, given = tmp_path / "m.safetensors", personal()
    with pytest.raises(ParameterError, match=r"hypotheses must have shape \(2, 4\), got \(4,\)"):
        saved.save(path, THETA, given)
    assert not path.exists()
    path.write_bytes(safetensors.save({"hypotheses": HYPOTHESES.T.copy()}, given.metadata()))
    with pytest.raises(ParameterError, match="must hold hypotheses alone, 2 x 4 doubles"):
        saved.load(path)
    other = given.metadata() | {"format": statement.metadata()["format"]}
    path.write_bytes(safetensors.save({"hypotheses": HYPOTHESES}, other))
    with pytest.raises(ParameterError, match="field 'about' is not known"):
        saved.load(path)
