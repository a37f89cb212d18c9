"""The signed text: what it takes, what it refuses, and that nothing changes on the way."""

import json

import numpy as np
import pytest

from reticent.errors import GuaranteeError, ParameterError, ReticentError
from reticent.federated.models import Axes, Linear
from reticent.federated.personalised.tasks import PersonalTask, signed, task_of, verified

from .parts import FIELDS, HYPOTHESES, SIGNER, SIGNING


@pytest.mark.parametrize("about", ["hypothesis", "centre", "slots"])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_a_task_survives_its_file(task, about, noise):
    made = task(about=about, noise=noise, epochs=3)
    for again in (verified(signed(made, SIGNING), SIGNER), task_of(signed(made, SIGNING))):
        assert again.text == made.text
        assert again.id == made.id
        assert again.model.described() == made.model.described()
        assert (again.about, again.noise, again.numbers) == (about, noise, made.numbers)


def test_a_report_of_slots_has_a_place_for_every_hypothesis(task):
    assert task().numbers == 6
    assert task(about="hypothesis").numbers == task(about="centre").numbers == 2
    assert task(hypotheses=1).numbers == 2


def test_a_task_of_another_signer_or_with_one_byte_changed_is_refused(task):
    file = signed(task(), SIGNING)
    with pytest.raises(GuaranteeError, match="somebody else"):
        verified(file, bytes(32))
    with pytest.raises(GuaranteeError, match="does not hold"):
        verified(file.replace(b"4.0", b"0.4"), SIGNER)


def test_a_task_of_the_other_kind_is_refused(task):
    """Planted: the head of the signature keeps a survey or a plain task from passing as this one."""
    file = signed(task(), SIGNING).replace(b"personal-task", b"task")
    with pytest.raises(ParameterError):
        verified(file, SIGNER)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"name": "a b"}, "name must be 1 to 80 letters"),
        ({"purpose": ""}, "purpose must be a printable text"),
        ({"about": "server"}, "about must be one of hypothesis, centre, slots"),
        ({"noise": "none"}, "noise must be one of gaussian, laplace"),
        ({"noise": ["none"]}, "noise must be one of"),
        ({"clip": 0.0}, "clip must be >= 1e-09"),
        ({"clip": float("nan")}, "clip must be finite"),
        ({"level": 0.0}, "level must be"),
        ({"reach": float("inf")}, "reach must be finite"),
        ({"hypotheses": 0}, "hypotheses must be >= 1"),
        ({"hypotheses": 65}, "hypotheses must be <= 64"),
        ({"dimensions": 3}, "dimensions must be 2 as of the model"),
        ({"participations": 6}, "participations must be <= 5"),
        ({"rounds": True}, "rounds must be a whole number"),
        ({"model": "linear"}, "model must be of"),
        ({"model": Linear(2, intercept=False, axes=Axes([0, 0], [[1, 0], [0, 1]]))}, "must have no axes"),
    ],
)
def test_refusals_name_field_and_rule(task, changes, part):
    with pytest.raises(ReticentError, match=part):
        task(**changes)


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.pop("clip"),
        lambda fields: fields.update(more=1),
        lambda fields: fields.update(format=2),
        lambda fields: fields.update(model={"kind": "linear"}),
        lambda fields: fields.update(clip="1"),
    ],
)
def test_a_text_with_other_fields_is_refused(task, change):
    fields = json.loads(task().text)
    change(fields)
    with pytest.raises(ReticentError):
        PersonalTask.parse(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode())


def test_a_text_with_spaces_is_another_text(task):
    with pytest.raises(ParameterError, match="no spaces"):
        PersonalTask.parse(json.dumps(json.loads(task().text), sort_keys=True).encode())


@pytest.mark.parametrize(
    "given",
    [HYPOTHESES[:1], HYPOTHESES * np.nan, HYPOTHESES * 2.0, [["a", "b"]] * 2, None, HYPOTHESES * 1e300],
)
def test_hypotheses_beyond_the_reach_are_refused(task, given):
    assert np.array_equal(task().checked_hypotheses(HYPOTHESES), HYPOTHESES)
    with pytest.raises(ParameterError, match="hypotheses must be"):
        task().checked_hypotheses(given)


def test_fields_of_the_tests_are_all_fields():
    assert set(json.loads(PersonalTask(**FIELDS).text)) - {"format"} == set(PersonalTask.__dataclass_fields__)
