"""Tasks: one text for all, signed; what does not keep its epsilon is no task."""

import copy
import json
import math
import random
from collections import Counter

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.errors import GuaranteeError, ParameterError, ParameterTypeError
from reticent.federated.models import Logistic
from reticent.federated.steps import Steps
from reticent.federated.tasks import MOST_SAMPLED, Task, designed, signed, task_of, verified
from reticent.mechanisms.numeric import Duchi, Laplace, OneBit, Window

from . import people

WRONG = (ParameterError, ParameterTypeError, GuaranteeError)


def altered(of, **changes):
    """The text of a task with other fields."""
    fields = json.loads(of.text) | changes
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


# The text


@pytest.mark.parametrize("kind", people.NUMERIC)
def test_a_task_is_read_as_it_was_written(kind):
    for k, bounds in ((1, 2.5), (3, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0))):
        task = people.task(kind, sample_size=k, bounds=bounds, participations=4)
        again = Task.parse(task.text)
        assert again.text == task.text
        assert again.id == task.id
        assert again.units == task.units == 10**12
        assert np.array_equal(again.mechanism.alphabet, task.mechanism.alphabet)
        assert np.array_equal(again.scale, task.scale)
    with_model = people.task(model=Logistic(5, l2=0.5))
    assert Task.parse(with_model.text).model.described() == with_model.model.described()


def test_the_text_does_not_change_between_releases():
    """Clients of yesterday must name the tasks of today."""
    task = people.task("OneBit", 4, 2, model=Logistic(3), bounds=(1.0, 2.0, 1.0, 0.5), epsilon=2.0)
    assert task.text.decode() == (
        '{"bounds":[1.0,2.0,1.0,0.5],"dimensions":4,"epsilon":2.0,"format":1,"group":100,'
        f'"key":"{people.KEY.hex()}",'
        '"mechanism":{"dither_levels":16,"epsilon":1.0,"kind":"OneBit","rho":0.5},'
        '"model":{"inputs":3,"intercept":true,"kind":"logistic","l2":0.0001},"name":"OneBit",'
        '"participations":1,"purpose":"to test","rounds":10,"sample_size":2,'
        '"steps":{"kind":"inverse-root","momentum":0.0,"rate":0.5},"version":"1"}'
    )
    assert task.id.hex() == "6e8664484cdf644b"


def test_whole_numbers_of_numpy_are_numbers():
    task = people.task(dimensions=np.int64(6), rounds=np.int32(10), epsilon=np.float64(1.0))
    assert task.text == people.task().text


# Signatures


def test_a_signed_task_is_verified():
    task = people.task("Window", sample_size=2)
    assert verified(people.file_of(task), people.SIGNER).text == task.text
    assert task_of(people.file_of(task)).text == task.text


def test_what_the_signer_did_not_sign_is_refused():
    task, stranger = people.task(), Ed25519PrivateKey.generate()
    with pytest.raises(GuaranteeError, match="signed by somebody else"):
        verified(signed(task, stranger), people.SIGNER)
    file = json.loads(people.file_of(task))
    forged = file | {"task": people.task(epsilon=2.0).text.decode()}
    renamed = json.loads(signed(task, stranger)) | {"signer": people.SIGNER.hex()}
    for one in (forged, renamed):
        with pytest.raises(GuaranteeError, match="the signature of the task does not hold"):
            verified(json.dumps(one).encode(), people.SIGNER)
    for broken in (people.file_of(task)[:-3], b"", task.text, None, b"\xff" * 40):
        with pytest.raises(WRONG):
            verified(broken, people.SIGNER)


def test_a_signed_survey_is_no_task():
    """The line before the text keeps them apart, whatever the text."""
    survey = people.SIGNING.sign(b"reticent-survey/v1\n" + people.task().text)
    file = json.loads(people.file_of(people.task())) | {"signature": survey.hex()}
    with pytest.raises(GuaranteeError, match="does not hold"):
        verified(json.dumps(file).encode(), people.SIGNER)


# What is refused although it is signed


def duchi(epsilon):
    return {"kind": "Duchi", "epsilon": epsilon}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mechanism": duchi(2.0)}, "1 coordinates under epsilon 2 each may spend more than epsilon 1"),
        ({"sample_size": 2}, "2 coordinates under epsilon 1 each may spend more than epsilon 1"),
        ({"mechanism": duchi(math.nextafter(1.0, 2.0))}, "may spend more"),
        ({"mechanism": {"kind": "KRR", "epsilon": 1.0}}, "kind must be one of OneBit"),
        ({"mechanism": {"kind": "Laplace", "epsilon": 1.0}}, "kind must be one of OneBit"),
        ({"mechanism": duchi(1.0) | {"bounds": [-9, 9]}}, "fields must be kind, epsilon"),
        ({"mechanism": None}, "must be an object"),
        ({"format": 2}, "format must be 1, got 2"),
        ({"format": True}, "sorted fields"),
        ({"epsilon": 1}, "sorted fields"),  # a whole number where a double is written
        ({"surprise": 1}, "field 'surprise' is not known"),
        ({"key": "00"}, "key must be 32 bytes"),
        ({"key": 7}, "key must be hexadecimal"),
        ({"key": "GG" * 32}, "key must be hexadecimal"),
        ({"key": people.KEY.hex().upper()}, "key must be hexadecimal"),
        ({"bounds": [1.0]}, "bounds must be one or 6 numbers, got 1"),
        ({"bounds": {}}, "bounds must be a number"),
        ({"model": {}}, "model must have the fields"),
        ({"steps": None}, "steps must have the fields"),
    ],
)
def test_altered_tasks_are_refused(changes, words):
    with pytest.raises(WRONG, match=words):
        Task.parse(altered(people.task(), **changes))


@pytest.mark.parametrize(
    "text",
    [
        people.task().text + b" ",
        people.task().text.replace(b":", b": "),
        json.dumps(dict(reversed(json.loads(people.task().text).items())), separators=(",", ":")).encode(),
        people.task().text.replace(b'"group":100', b'"group":100,"group":100'),
        people.task().text.replace(b'"group":100', b'"group":1e2'),
        people.task().text.replace(b'"group":100,', b""),
        people.task().text.replace(b"0.5", b"NaN"),
        people.task().text.replace(b"100", b"9" * 5000),
        b"[" * 100_000,
        b"[]",
        b"\xff",
        b"",
        None,
        b" " * (1 << 21),
    ],
    ids=range(14),
)
def test_another_writing_is_refused(text):
    with pytest.raises(WRONG):
        Task.parse(text)


ODD = [None, True, 0, -1, 2**70, 1e308, 5e-324, math.nan, math.inf, "", "\u00e9", [], {}, [[]], ["x"]]


def mutated(rng):
    """The text of a task with something odd in up to three places."""
    kind, model = rng.choice([*people.NUMERIC]), rng.choice([None, Logistic(5)])
    fields = json.loads(people.task(kind, sample_size=2, model=model, bounds=(1.0,) * 6).text)
    for _ in range(rng.choice((1, 1, 3))):
        inside = [one for one in fields.values() if isinstance(one, (dict, list)) and one]
        held = rng.choice([fields, *inside])
        place = rng.choice([*held]) if isinstance(held, dict) else rng.randrange(len(held))
        held[place] = copy.deepcopy(rng.choice(ODD))
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def crashes(count, seed=5):
    """Errors other than refusals, of tasks that a signer might send."""
    rng, found = random.Random(seed), Counter()
    for _ in range(count):
        text = mutated(rng)
        try:
            assert Task.parse(text).text == text
        except WRONG:
            continue
        except Exception as error:
            found[type(error).__name__] += 1
    return found


def test_no_task_crashes_a_client():
    assert crashes(1_500) == {}


@pytest.mark.slow
def test_none_of_many_tasks_crashes_a_client():
    assert crashes(100_000) == {}


def test_planted_a_task_that_crashes_is_found(monkeypatch):
    monkeypatch.setattr("reticent.federated.models.made", lambda given: Logistic(**given))
    assert crashes(300)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "a b"}, "name must be 1 to 80 letters, digits, dots, dashes, got 'a b'"),
        ({"name": None}, "name must be"),
        ({"version": ""}, "version must be a printable text"),
        ({"purpose": "a\nb"}, "purpose must be a printable text"),
        ({"dimensions": 0}, "dimensions must be >= 1, got 0"),
        ({"dimensions": 1 << 23}, "dimensions must be <= 4194304, got 8388608"),
        ({"dimensions": 6.0}, "dimensions must be a whole number, got 6.0"),
        ({"model": Logistic(9)}, "dimensions must be 10 as of the model, got 6"),
        ({"model": "logistic"}, "model must be of `reticent.federated`, got str"),
        ({"steps": 0.5}, "steps must be of `reticent.federated`, got float"),
        ({"bounds": 0.0}, "bounds must be >= 1e-150"),
        ({"bounds": math.inf}, "bounds must be finite"),
        ({"bounds": math.nan}, "bounds must be finite"),
        ({"bounds": (1.0,) * 5 + (-1.0,)}, r"bounds\[5\] must be >= 1e-150"),
        ({"bounds": (1.0, 2.0)}, "bounds must be one or 6 numbers, got 2"),
        ({"bounds": "1"}, "bounds must be a number, got '1'"),
        ({"sample_size": 0, "mechanism": Duchi(epsilon=1.0)}, "sample_size must be >= 1, got 0"),
        ({"sample_size": 7}, "sample_size must be <= 6, got 7"),
        ({"sample_size": True}, "sample_size must be a whole number, got True"),
        ({"mechanism": Duchi(epsilon=1.0, bounds=(0.0, 1.0))}, "mechanism must be a numeric channel"),
        ({"mechanism": Laplace(epsilon=1.0)}, "mechanism must be a numeric channel"),
        ({"mechanism": "Duchi"}, "mechanism must be a numeric channel"),
        ({"rounds": 0}, "rounds must be >= 1, got 0"),
        ({"rounds": "3"}, "rounds must be a whole number, got '3'"),
        ({"rounds": None}, "rounds must be a whole number, got None"),
        ({"rounds": 1 << 21}, "rounds must be <= 1048576"),
        ({"group": 0}, "group must be >= 1, got 0"),
        ({"participations": 0}, "participations must be >= 1, got 0"),
        ({"participations": 11}, "participations must be <= 10, got 11"),
        ({"participations": 5000, "rounds": 9999}, "participations must be <= 4096, got 5000"),
        ({"key": b"short"}, "key must be 32 bytes"),
        ({"key": "k" * 32}, "key must be 32 bytes"),
        ({"dimensions": 60_000, "bounds": (1 / 3,) * 60_000}, "the task must be at most 1048576 bytes"),
    ],
)
def test_bad_parameters_are_refused_by_name(changes, words):
    with pytest.raises(WRONG, match=words):
        people.task(**changes)


@pytest.mark.parametrize(("epsilon", "words"), [(0.0, "> 0"), (25.0, "<= 20"), (math.nan, "finite")])
def test_epsilons_that_nobody_keeps_are_refused(epsilon, words):
    with pytest.raises(ParameterError, match=f"epsilon must be .*{words}"):
        people.task(mechanism=Duchi(epsilon=1.0), epsilon=epsilon)


def test_a_report_fits_a_ledger():
    """More coordinates would be charged, and then be too many values to record."""
    level = 20.0 / (MOST_SAMPLED + 1)
    with pytest.raises(ParameterError, match="sample_size must be <= 4096, got 4097"):
        people.task("OneBit", 10_000, MOST_SAMPLED + 1, mechanism=OneBit(epsilon=level), epsilon=20.0)
    assert people.task("OneBit", 10_000, MOST_SAMPLED, epsilon=20.0).sample_size == MOST_SAMPLED


# What it means


def test_gradients_are_clipped_whatever_they_are():
    task = people.task(bounds=(1.0, 2.0, 0.5, 1e-150, 1e150, 1.0))
    given = [0.5, -3.0, math.inf, 1e300, 1e300, math.nan]
    assert task.clipped(given).tolist() == [0.5, -1.0, 1.0, 1.0, 1.0, 0.0]
    many = task.clipped(np.stack([given, np.negative(given)]))
    assert np.array_equal(many, [task.clipped(given), -task.clipped(given)])


def test_coordinates_are_drawn_by_the_task_alone():
    """Distinct, increasing, the same on both sides, another draw in each round."""
    task, ids = people.task(sample_size=3), np.arange(500, dtype=np.uint64)
    asked = task.asked(ids, 0)
    assert asked.shape == (500, 3)
    assert (np.diff(asked, axis=1) > 0).all()
    assert np.array_equal(asked, Task.parse(task.text).asked(ids, 0))
    assert not np.array_equal(asked, task.asked(ids, 1))
    assert set(asked.reshape(-1).tolist()) == set(range(6))


def test_noise_is_that_of_the_formula():
    """Duchi: E[Y^2] = C^2 for every x, so d/k C^2 - g^2, over n, in units of the bound."""
    task, c = people.task(bounds=2.0), 1.0 / math.tanh(0.5)
    assert task.noise(10) == pytest.approx(np.full(6, 4.0 * 6.0 * c * c / 10.0))
    found = task.noise(10, [0.0, 1.0, 2.0, 7.0, -2.0, math.nan])
    units = np.array([0.0, 0.5, 1.0, 1.0, 1.0, 0.0])
    assert found == pytest.approx(4.0 * (6.0 * c * c - units**2) / 10.0)
    with pytest.raises(ParameterError, match="clients must be >= 1, got 0"):
        task.noise(0)


def test_parameters_are_checked_since_they_are_public():
    task = people.task(dimensions=2)
    assert task.checked_theta([1, 2]).tolist() == [1.0, 2.0]
    for theta in ([1.0], [[1.0, 2.0]], [1.0, math.nan], [math.inf, 0.0], "12", None, [10**400, 0], [1j, 0]):
        with pytest.raises(ParameterError, match="theta must be 2 finite numbers"):
            task.checked_theta(theta)


# Designs


def design(model=9, **changes):
    fields = {"epsilon": 1.0, "purpose": "to test", "rounds": 3, "group": 10, "rate": 0.5}
    return designed("made", model, **fields | changes)


def test_a_design_is_a_task_that_travels():
    for task in (design(), design(Logistic(9), bounds=[1.0] * 10), design(2), design(1, epsilon=0.5)):
        assert Task.parse(task.text).text == task.text
    assert design().key != design().key


def test_a_design_without_knowledge_is_of_least_worst_case_variance():
    """mathematics 1.2."""
    task = design(10, epsilon=4.0)
    assert (task.sample_size, type(task.mechanism), task.mechanism.rho) == (2, OneBit, 0.2)
    assert task.noise(1)[0] == pytest.approx(7.6869, rel=1e-4)
    assert isinstance(design(1, epsilon=2.0).mechanism, Window)


@pytest.mark.parametrize("kind", people.NUMERIC)
def test_a_design_takes_the_mechanism_that_is_asked_for(kind):
    task = design(mechanism=kind, sample_size=2, epsilon=2.0)
    assert (type(task.mechanism).__name__, task.sample_size) == (kind, 2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": 0}, "model must be >= 1, got 0"),
        ({"model": "logistic"}, "model must be a whole number, got 'logistic'"),
        ({"sample_size": 10}, "sample_size must be <= 9, got 10"),
        ({"sample_size": 0}, "sample_size must be >= 1, got 0"),
        ({"mechanism": "Laplace"}, "mechanism must be one of OneBit, .*, got 'Laplace'"),
        ({"mechanism": ["PM"]}, "mechanism must be one of"),
        ({"typical": 0.0}, "typical must be > 0 and <= 1, got 0.0"),
        ({"typical": 1.5}, "typical must be > 0 and <= 1, got 1.5"),
        ({"typical": "small"}, "typical must be a number, got 'small'"),
        ({"epsilon": -1.0}, "epsilon must be > 0, got -1.0"),
        ({"rate": 0.0}, "rate must be > 0"),
        ({"kind": "cosine"}, "kind of steps must be one of"),
    ],
)
def test_a_design_of_bad_parameters_is_refused(changes, words):
    with pytest.raises(WRONG, match=words):
        design(**changes)


def test_steps_travel():
    assert Task.parse(design(momentum=0.5, kind="inverse").text).steps == Steps(0.5, "inverse", 0.5)
