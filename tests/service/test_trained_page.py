"""The page of a training in a service: rounds and what they cost from the ledger, curves if published."""

import pytest

from reticent.federated.curves import Origin
from reticent.federated.models import Linear, Logistic
from reticent.federated.server import study
from reticent.federated.tasks import designed

from .gallery import publish
from .test_survey_pages import signed_in

__all__ = ["signed_in"]  # a fixture
POINTS = [(1, 0.66, 0.31), (2, 0.5217, 0.2468)]


def task_of(model=None):
    given = {"purpose": "To warn drivers.", "rounds": 5, "group": 100, "rate": 1.0, "participations": 2}
    return designed("braking", model or Logistic(2), epsilon=2.0, **given)


@pytest.fixture
def entered(service):
    """Two rounds of a training whose operator uses the ledger of the service; one more is not counted yet."""
    task = task_of()
    record = service.app.state.collecting.operator.record
    record.learn(study(task), {0: 100, 1: 97})
    record.learn(study(task), {2: None})
    return task


def test_rounds_are_told_with_what_they_cost(entered, signed_in):
    look = signed_in("alice")
    told = look(f"/trainings/{entered.id.hex()}")
    assert told.status_code == 200
    text = " ".join(told.text.split())
    for part in (
        "<h1>braking</h1>",
        '<div class="number">3</div>',
        '<div class="number">197</div>',
        '<div class="number">60 %</div>',
        "A round costs whoever reports in it epsilon 2",
        "One client may be in 2 rounds",
        "added to no account of people: nobody said whose people its clients are",
        "not counted yet",
        "Nothing was published",
    ):
        assert part in text, part
    assert text.count("20 %") >= 3
    assert f'href="/trainings/{entered.id.hex()}"' in look("/").text
    assert f'href="/trainings/{entered.id.hex()}"' in look("/ledger").text


@pytest.mark.parametrize(("origin", "is_shown"), [(Origin.HOLD_OUT, True), (Origin.SIMULATION, False)])
def test_only_curves_of_public_rows_are_shown(entered, service, signed_in, origin, is_shown):
    """A simulation draws some from clients' records: who knows all rows but one works that one out."""
    folder = service.desk.settings.folder / "trainings"
    publish(folder / "braking", entered, POINTS, origin)
    publish(folder / "other", task_of(Linear(2)), [(1, 7.0, 8.0)])
    text = signed_in("alice")(f"/trainings/{entered.id.hex()}").text
    assert ("Right answers, %" in text and "75.32" in text and "0.5217" in text) == is_shown
    assert "To warn drivers." in text
    assert "local differential privacy (epsilon-LDP)" in text
    assert "Mean squared error" not in text


def test_lines_that_are_no_curve_are_left_out(entered, service, signed_in):
    place = service.desk.settings.folder / "trainings" / "braking"
    publish(place, entered, POINTS)
    with (place / "rounds.jsonl").open("a") as file:
        file.write(
            '\nnonsense\n[]\n{"number": 3}\n'
            '{"number": 3, "loss": NaN, "error": 1, "origin": "public hold-out"}\n'
        )
    assert "After round 2: 75.32" in signed_in("alice")(f"/trainings/{entered.id.hex()}").text


def test_what_is_no_training_is_not_there(entered, signed_in):
    look = signed_in("alice")
    for path in ("0" * 32, "census", "training:zz"):
        assert look(f"/trainings/{path}").status_code in (404, 422)
    bert = signed_in("bert")  # a buyer, who comes from outside
    assert bert(f"/trainings/{entered.id.hex()}").status_code != 200


def test_people_who_pay_for_it_are_named(service, signed_in):
    from reticent.query.declarations import people_account

    from ..unit.query.population import declared, file_of_people

    folder = service.desk.settings.folder
    path = file_of_people(folder)
    declared(folder, "visits")
    service.desk.session("visits")
    task = designed("mild", Logistic(2), epsilon=0.1, purpose="To know.", rounds=5, group=100, rate=1.0)
    record = service.app.state.collecting.operator.record
    record.put_under(study(task), people_account.opened(path, service.desk.ledger))
    record.learn(study(task), {0: 100})
    text = signed_in("alice")(f"/trainings/{task.id.hex()}").text
    assert "Each round is paid for by people:patients as well" in text
