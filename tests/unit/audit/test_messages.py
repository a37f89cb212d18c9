"""Messages of every kind of devices keep their claim as bytes; planted ones are in `test_planted`."""

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from reticent.audit.paths import messages
from reticent.audit.paths.messages import audit_messages, scratch
from reticent.audit.paths.senders import SENDERS, Clients, Devices, Directions, Personal, Places
from reticent.collect.device import Device
from reticent.federated.client import Client


@pytest.mark.parametrize("kind", SENDERS, ids=lambda kind: kind.__name__)
def test_right_devices_pass_every_check(kind):
    """A fixed seed, that of the test."""
    report = audit_messages(kind(), stories=120)
    assert report.passed, report.verdict
    expected = ["black box", "rest", "fresh", "repeat", "streams", "total", "ledger"]
    if not issubclass(kind, Devices):
        expected = [check for check in expected if check not in ("rest", "fresh")]
    assert [found.check for found in report.findings] == expected
    assert report.claimed == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("kind", SENDERS, ids=lambda kind: kind.__name__)
def test_what_a_message_says_is_read_from_its_bytes(kind):
    sender = kind()
    with scratch() as folder, sender.opened(folder / "one", 5) as device:
        first, second = (sender.said(device, number, sender.values[0]) for number in (0, 1))
        assert sender.said(device, 0, sender.values[1]) == first
        numbers = sender.numbers(first)
        assert numbers[:2] == [len(first), True]
        assert len(numbers) == len(sender.numbers(second)) == len(sender.numbers(None)) == 2 + sender.width
        assert sender.numbers(first[:-1] + bytes([first[-1] ^ 1]))[1] == 0
        assert sender.numbers(None)[0] == -1
        assert len(sender.rest(first)) == len(sender.rest(None))


def test_the_claim_of_a_story_grows_with_what_differs():
    for sender, one, both in [(Clients(), 1.0, 2.0), (Personal(), 1.0, 2.0**0.5), (Places(), 1.5637, 3.1274)]:
        a, b = sender.values
        assert sender.apart((a, b), (a, b)) == 0.0
        assert sender.apart((a, a), (a, b)) == pytest.approx(one, rel=1e-3)
        assert sender.apart((a, a), (b, b)) == pytest.approx(both, rel=1e-3)


def test_a_direction_is_read_with_the_directions_of_its_round():
    """Of two opposite gradients under a large epsilon: along one, and along the other."""
    sender = Directions(epsilon=12.0)
    with scratch() as folder, sender.opened(folder / "one", 41) as device:
        said = [sender.body(sender.said(device, n, sender.values[n % 2]))[0] for n in range(40)]
    assert np.mean(said[1::2]) > 6.0 > 2.0 > np.mean(said[::2])  # 8 and 0 but for a few; at 4 by chance
    assert sender.body(b"short") == [-1]


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(messages, "_SHARED_MEMORY", tmp_path)
    sender = Clients()
    with scratch() as folder, sender.opened(folder / "one", 5) as device:
        sender.said(device, 0, 1.0)
        assert {one.name for one in (folder / "one").iterdir()} == {"ledger", "marks"}
        assert folder.parent == tmp_path
    assert list(tmp_path.iterdir()) == []
    assert not Path(os.environ["XDG_STATE_HOME"]).exists()


class Shorter(Device):
    """Leaves out the last byte of the symbols for one of its values."""

    def report(self, survey, values, *, period=None):
        report = super().report(survey, values, period=period)
        return report if values.get("speed") else report[:-17] + report[-16:]


class Unpaid(Client):
    """Pays for every other report."""

    def _price(self, task):
        return task.units // 2


class Spendthrift(Client):
    """Draws without its ledger once that refuses."""

    def _paid(self, held, number, draw, **price):
        try:
            return super()._paid(held, number, draw, **price)
        except Exception:
            return draw()


@pytest.mark.parametrize(
    ("sender", "check", "words"),
    [
        (Devices(Shorter), "black box", "more than the claimed 1"),
        (Clients(Unpaid), "ledger", "reports that cost 400 were charged 200"),
        (Clients(Spendthrift), "ledger", "a report leaves although the budget is spent"),
    ],
    ids=["length", "half the price", "spent"],
)
def test_planted_other_faults_around_the_mechanism_are_found(sender, check, words):
    report = audit_messages(sender, stories=200)
    found = {found.check: found for found in report.findings}
    assert not found[check].passed
    assert words in found[check].detail


@pytest.mark.slow
@pytest.mark.parametrize("kind", SENDERS, ids=lambda kind: kind.__name__)
def test_full_counts(kind):
    report = audit_messages(kind())
    print(
        f"{report.name}: {report.black_box.lower:.3f} of {report.claimed:.3f} proved, {report.seconds:.0f} s"
    )
    assert report.passed, report.verdict
    assert report.black_box.lower > (0.02 if kind is Places else 0.2)  # on two by two cells little is lost


def test_few_outputs_are_sorted_into_few_bins():
    from reticent.audit import black_box

    rng = np.random.Generator(np.random.Philox(3))
    found = black_box(
        lambda value, size: value + rng.standard_normal(size),
        [0.0, 2.0],
        epsilon=2.0,
        gaussian=True,
        samples=1000,
    )
    assert found.passed
    assert found.lower > 1.0  # 0.6 with 256 bins
    assert all(one < other for one, other in pairwise([found.lower, found.likely, 2.0]))
