"""All that leaves of a Flower app: planted leaks are found, and behind the mod there is nothing to find.

False alarms: an app that tells nothing is accused with probability at most 1e-6, see `judging`.
"""

import logging
import re

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from reticent.audit.flower import audit_flower
from reticent.audit.leakage import Kind
from reticent.errors import ParameterError
from reticent.federated.flower import PrivateMod, mod
from reticent.federated.flower.records import REPORT

from ...federated.flower import nodes
from . import apps


@pytest.mark.parametrize("name", apps.QUIET)
def test_an_app_that_tells_nothing_is_not_accused(name):
    found = audit_flower(apps.app_of(apps.QUIET[name]), apps.neighbours(), model=(apps.MODEL, apps.THETA))
    assert found.passed, found.lines
    assert not any(update.found for update in found.updates)


@pytest.mark.parametrize("name", apps.LEAKY)
def test_planted_leaks_are_found(name):
    content, said = apps.LEAKY[name]
    found = audit_flower(
        apps.app_of(content), apps.neighbours(), model=(apps.MODEL, apps.THETA), rate=apps.RATE, runs=400
    )
    assert not found.passed
    against = "\n".join(line for line in found.lines if line.startswith("FAULT train: "))
    assert re.search(said, against), found.lines


@pytest.mark.parametrize(("ttl", "passed"), [({}, True), ({"ttl": 900.0}, True), (None, False)])
def test_a_time_to_live_of_its_own_is_looked_at(ttl, passed):
    def app(message, _context):
        own = {"ttl": 900.0 + apps.sign()} if ttl is None else ttl
        return Message(RecordDict(), reply_to=message, **own)

    found = audit_flower(app, apps.neighbours())
    assert found.passed is passed, found.lines


def test_a_record_is_rebuilt_from_a_plain_reply():
    app = apps.app_of(lambda message: {"arrays": apps.trained(message)})
    found = audit_flower(app, apps.single(), model=(apps.MODEL, apps.THETA), rate=apps.RATE)
    assert [update.leak.kind for update in found.updates] == [Kind.EVERYTHING] * 2
    for place, update in enumerate(found.updates):
        assert np.abs(update.leak.certain.records - apps.RECORDS[place]).max() < 1e-9
        assert update.error < 1e-9
    assert "Data set 0: From this update the server learns everything" in "\n".join(found.lines)


def test_behind_the_mod_nothing_is_found(tmp_path):
    found = audit_flower(
        apps.behind(),
        apps.neighbours(apps.private_node(tmp_path))[:2],
        model=(apps.MODEL, apps.THETA),
        epsilon=nodes.EPSILON,
        runs=100,
    )
    assert found.passed, found.lines
    assert not found.updates
    assert any(one.check == "train: report.payload" and one.claimed for one in found.findings)


@pytest.mark.slow
def test_behind_the_mod_nothing_is_found_in_full(tmp_path):
    found = audit_flower(
        apps.behind(),
        apps.neighbours(apps.private_node(tmp_path)),
        model=(apps.MODEL, apps.THETA),
        epsilon=nodes.EPSILON,
        runs=2000,
    )
    assert found.passed, found.lines


def reporting(report, beside=dict):
    """A mod of somebody's own: its report is what `report` makes of the data, and more may leave."""

    def mod(message, context, call_next):
        content = RecordDict({REPORT: ConfigRecord({"payload": report()}), **beside()})
        return Message(content, reply_to=message)

    return apps.app_of(apps.QUIET["empty"], [mod])


def answered(sign):
    """Randomised response of epsilon ln 3."""
    return bytes([int(sign) if apps.NOISE() < 0.75 else 1 - int(sign)])


def sign():
    return apps.HELD["x"][0, 0] > 0


def test_planted_mods_are_found():
    data = apps.neighbours()[:2]  # the first record is another one
    kept = audit_flower(reporting(lambda: answered(sign())), data, epsilon=1.1, runs=400)
    assert kept.passed, kept.lines
    planted = {
        "without noise": reporting(lambda: bytes([int(sign())])),
        "of another epsilon": reporting(
            lambda: bytes([int(sign()) if apps.NOISE() < 0.99 else int(not sign())])
        ),
        "of another length": reporting(lambda: answered(0) * (1 + int(sign()))),
        "with the number of examples": reporting(
            lambda: answered(sign()),
            lambda: apps.metrics(**{"num-examples": int(100 * apps.HELD["x"][0, 0])}),
        ),
    }
    for name, app in planted.items():
        assert not audit_flower(app, data, epsilon=1.1, runs=400).passed, name


def test_what_cannot_be_judged_is_refused_in_a_line():
    app, data = apps.app_of(apps.QUIET["constant"]), apps.neighbours()
    with pytest.raises(ParameterError, match="at least two data sets"):
        audit_flower(app, data[:1])
    with pytest.raises(ParameterError, match="app must be a ClientApp, got int"):
        audit_flower(3, data)
    with pytest.raises(ParameterError, match="must return a Node or None, got int"):
        audit_flower(app, [lambda: 3, lambda: 3])
    with pytest.raises(ParameterError, match="returns must be one of parameters, gradient"):
        audit_flower(app, data, returns="weights")
    with pytest.raises(ParameterError, match=r"sends report\.payload: give epsilon"):
        audit_flower(reporting(lambda: answered(True)), data)
    with pytest.raises(ParameterError, match=r"the app answers nothing but errors: .*no data"):
        audit_flower(apps.app_of(apps.lost), data)
    with pytest.raises(ParameterError, match="model must be as for `audit gradients`, got int"):
        audit_flower(app, data, model=3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda theta: np.full_like(theta, np.nan), "numbers that are not finite"),
        (lambda theta: theta[:-1], "is no parameter of the model, or of another shape"),
    ],
)
def test_arrays_that_cannot_be_inverted_leave_the_rest_judged(change, said):
    def content(message):
        (arrays,) = message.content.array_records.values()
        moved = change(arrays["theta"].numpy())
        return {"arrays": ArrayRecord({"theta": Array(moved)})} | apps.metrics(count=len(apps.HELD["x"]))

    found = audit_flower(apps.app_of(content), apps.neighbours(), model=(apps.MODEL, apps.THETA))
    assert not found.passed
    assert said in "\n".join(found.notes)
    assert "how many examples there are" in "\n".join(found.lines)


def test_nothing_is_unpickled():
    """A reply whose array is a pickle is taken by its bytes, and never read."""

    def content(_message):
        bomb = b"cos\nsystem\n(S'false'\ntR."
        return {"arrays": ArrayRecord({"a": Array("object", (1,), "numpy.ndarray", bomb)})}

    found = audit_flower(apps.app_of(content), apps.neighbours(), model=(apps.MODEL, apps.THETA))
    assert found.passed
    assert found.updates == ()


@pytest.mark.slow
def test_a_hundred_audits_of_a_quiet_app_without_an_alarm():
    """Parts that vary and do not depend on the data: an alarm in 100 audits has probability below 1e-4."""
    app = apps.app_of(lambda _: apps.metrics(noise=apps.NOISE(), coin=int(apps.NOISE() < 0.5)))
    assert all(audit_flower(app, apps.neighbours(), runs=100).passed for _ in range(100))


@pytest.mark.parametrize("numbered", [False, True])
def test_arrays_that_have_numbers_for_names_are_inverted_too(numbered):
    found = audit_flower(
        apps.app_of(apps.numbering),
        apps.single(),
        model=(apps.MODEL, apps.THETA),
        rate=apps.RATE,
        numbered=numbered,
    )
    assert [update.leak.kind for update in found.updates] == [Kind.EVERYTHING] * 2


def test_an_app_that_fails_behind_the_mod_is_not_called_private(tmp_path, caplog):
    """The mod wants the names that it sent back, and reports no change otherwise: nothing would be judged."""
    given = {"model": (apps.MODEL, apps.THETA), "epsilon": nodes.EPSILON, "runs": 100}
    app = apps.app_of(apps.numbering, [PrivateMod(local_rate=apps.RATE)])
    data = apps.neighbours(apps.private_node(tmp_path))[:2]
    with pytest.raises(ParameterError, match="behind the mod the app fails in every run: ParameterError"):
        audit_flower(app, data, **given)
    assert "the app failed" not in caplog.text
    assert logging.getLogger(mod.__name__).propagate, "as it was"
