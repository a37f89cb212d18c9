"""Devices: total functions of their data, one report for each survey and period, a lifetime that ends."""

import decimal
import itertools
import math
import os
import signal
import threading
import time
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from scipy.stats import chi2

from reticent.collect.device import ACCOUNT, Device, one_value
from reticent.collect.signing import signed
from reticent.collect.wire import HEAD_BYTES, TAG_BYTES, Layout
from reticent.errors import AccountConflict, BudgetExceeded, GuaranteeError, LedgerError, ParameterError
from reticent.fleet.enrolment import enrolled
from reticent.ledger.device.marks import Marks
from reticent.mechanisms.base import exp_below
from reticent.mechanisms.record import Category, Number
from reticent.randomness import SimulationStream

from . import fleet

ENROLLED = fleet.enrolment(7)


@pytest.fixture
def device(tmp_path):
    """Open the one device of a test; again after it was closed."""
    opened = []

    def open_device(enrolment=ENROLLED, *, lifetime=1000.0, most=10.0, rng=None):
        made = Device(tmp_path / "ledger", enrolment, fleet.SIGNER, lifetime=lifetime, most=most, rng=rng)
        opened.append(made)
        return made

    yield open_device
    for one in opened:
        one.close()


def file_of(survey):
    return signed(survey, fleet.SIGNING)


def body_of(report):
    return report[HEAD_BYTES:-TAG_BYTES]


class Raises:
    """Nothing can be made of it."""

    def _no(self, *_):
        raise RuntimeError("no")

    __float__ = __int__ = __index__ = __str__ = __repr__ = __hash__ = __eq__ = __bool__ = __iter__ = _no
    __len__ = __getitem__ = __array__ = __gt__ = __lt__ = __format__ = _no


class Classless:
    """Even its class is not told."""

    @property
    def __class__(self):
        raise RuntimeError("no")


ODD = [
    math.nan,
    math.inf,
    -math.inf,
    None,
    10**400,
    -(10**400),
    "fast",
    "9" * 5000,
    b"\xff",
    [],
    [1.0, 2.0],
    {"a": 1},
    np.array([1.0, 2.0]),
    np.array(3.0),
    np.ma.masked,
    np.datetime64("NaT"),
    1j,
    True,
    decimal.Decimal("sNaN"),
    Fraction(1, 3),
    object(),
    Raises(),
    Classless(),
    float,
    "\ud800",
]


@pytest.mark.parametrize("assigned", [False, True])
def test_every_value_is_reported(device, assigned):
    """The same attributes, so the same length, from the same randomness, whatever the values are."""
    survey = fleet.mixed(assigned=assigned, periods=100)
    with device(rng=SimulationStream(1)) as one:
        taken = one.take(file_of(survey))
        layout = Layout(survey)
        for period, value in enumerate([*ODD, 50.0]):
            values = {attribute.name: value for attribute in survey.attributes}
            report = one.report(taken, values, period=period)
            read = layout.read(np.frombuffer(body_of(report), dtype=np.uint8)[None])
            assert not (read.wrong | read.misfit | read.illegal).any()
        assert one.report(taken, {}, period=50)  # nothing measured


@pytest.mark.parametrize("kind", fleet.KINDS)
def test_lengths_and_attributes_do_not_depend_on_values(kind):
    """One survey of this kind and another mechanism: the same stream asks for the same, for all values."""
    of = fleet.SPEED if kind in fleet.NUMERIC else fleet.KIND
    survey = fleet.survey((of, kind), (Category("zone", 10), "OUE"), epsilon=1.0, sample_size=1)
    layout, seen = Layout(survey), set()
    for value in [*ODD, 0.0, 130.0, "car"]:
        stream = SimulationStream(5)
        bodies = [fleet.body(layout, ENROLLED, period, {of.name: value}, stream)[0] for period in range(12)]
        seen.add(tuple((body[0], len(body)) for body in bodies))
    assert len(seen) == 1


def test_odd_values_are_clamped_not_errors():
    """NaN and what is no number is the middle, infinities and huge numbers are bounds; else the fallback."""
    instrument = fleet.single("Duchi").instruments[0]

    def law(value):
        return instrument.probabilities(one_value(value, is_number=True))[0].tolist()

    middle, lower, upper = (law(value) for value in (65.0, 0.0, 130.0))
    for value in (math.nan, None, "fast", [], Raises(), Classless(), 1j):
        assert law(value) == middle
    for value in (math.inf, 10**400, 1e300, "9" * 5000):
        assert law(value) == upper
    assert law(-(10**400)) == lower
    krr = fleet.single("KRR").instruments[0]
    for value in (None, "ship", 7, [], Raises(), Classless(), math.nan):
        held = one_value(value, is_number=False)
        assert krr.categories.indices(krr.categories.array(held)).tolist() == [2]


def test_a_report_is_what_the_fleet_writes(device):
    """The helper of the other tests makes the reports of a device."""
    survey = fleet.mixed()
    values = {one.name: fleet.VALUES[one.name] for one in survey.attributes}
    with device(rng=SimulationStream(9)) as one:
        report = one.report(one.take(file_of(survey)), values, period=3)
    again = fleet.report(survey, ENROLLED, 3, values, stream=SimulationStream(9), nonce=report[21:29])
    assert report == again


# Memoisation, mathematics 4.2


def answers(report_twice):
    """Which pairs of answers are possible for inputs (a, a) and (a, b), over many devices."""
    return {
        inputs: {report_twice(number, inputs) for number in range(25)}
        for inputs in ((0.0, 0.0), (0.0, 130.0))
    }


def is_memoised(found):
    """Nothing can be told from two answers that one does not tell: they are always equal."""
    return all(first == second for pairs in found.values() for first, second in pairs)


def twice(tmp_path, make):
    survey = fleet.single("Duchi", epsilon=4.0)

    def report_twice(number, inputs):
        folder = tmp_path / f"{inputs[1]}-{number}"
        marks = Marks(tmp_path / f"marks-{inputs[1]}")  # as if the other value had never been
        with make(folder, fleet.enrolment(number), fleet.SIGNER, lifetime=10.0, marks=marks) as one:
            taken = one.take(file_of(survey))
            return tuple(body_of(one.report(taken, {"speed": value}, period=0)) for value in inputs)

    return answers(report_twice)


def test_a_report_is_the_same_whatever_the_value_becomes(tmp_path):
    assert is_memoised(twice(tmp_path, Device))


def test_planted_a_memory_by_value_is_found(tmp_path):
    class ByValue(Device):
        def report(self, survey, values, *, period=None):
            return super().report(survey, values, period=1 + int(values["speed"] > 65.0))

    assert not is_memoised(twice(tmp_path, ByValue))


def test_a_report_is_the_same_after_a_restart(device):
    survey = fleet.mixed()
    with device() as one:
        first = one.report(one.take(file_of(survey)), {"speed": 1.0}, period=2)
        assert one.report(survey, {"speed": 130.0}, period=2) == first
    with device() as one:
        with pytest.raises(ParameterError, match="survey must be one that this device took, got mixed"):
            one.report(survey, {}, period=2)
        assert one.report(one.take(file_of(survey)), {"speed": math.nan}, period=2) == first
        assert one.spent == 4.0
        assert one.report(survey, {}, period=3) != first
        assert one.spent == 8.0


def test_a_crash_between_charge_and_record_costs_once(tmp_path):
    """Killed while drawing, three times: drawn again, charged once, and one report leaves."""
    survey, path = fleet.single("Duchi", epsilon=4.0), tmp_path / "ledger"
    for _ in range(3):
        child = os.fork()
        if child == 0:
            try:

                class Dies(Device):
                    def _body(self, *_):
                        os.kill(os.getpid(), signal.SIGKILL)

                with Dies(path, ENROLLED, fleet.SIGNER, lifetime=4.0) as one:
                    one.report(one.take(file_of(survey)), {"speed": 1.0}, period=0)
            finally:
                os._exit(1)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    with Device(path, ENROLLED, fleet.SIGNER, lifetime=4.0) as one:
        assert one.spent == 4.0  # paid for before the first draw
        assert len(one.ledger.pending(ACCOUNT)) == 1
        first = one.report(one.take(file_of(survey)), {"speed": 1.0}, period=0)
        assert one.spent == 4.0
        assert one.ledger.pending(ACCOUNT) == []
        assert one.report(survey, {"speed": 130.0}, period=0) == first


def test_a_report_leaves_only_when_it_is_recorded(device, monkeypatch):
    """What cannot be recorded is not given out: two draws must not both be seen."""
    survey = fleet.single("Duchi")
    one = device()
    taken, real = one.take(file_of(survey)), one.ledger.fulfil

    def full(*_):
        raise LedgerError("the disk is full")

    monkeypatch.setattr(one.ledger, "fulfil", full)
    with pytest.raises(LedgerError, match="full"):
        one.report(taken, {"speed": 1.0}, period=0)
    monkeypatch.setattr(one.ledger, "fulfil", real)
    assert one.report(taken, {"speed": 1.0}, period=0) == one.report(taken, {}, period=0)
    assert one.spent == 1.0


def test_threads_get_one_report(device):
    one = device()
    taken, found = one.take(file_of(fleet.mixed())), []
    work = [threading.Thread(target=lambda: found.append(one.report(taken, {}, period=0))) for _ in range(8)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert one.spent == 4.0


# Budgets, and what is refused


def test_a_lifetime_ends(device):
    survey = fleet.single("Duchi", epsilon=0.1, name="tenth")
    units = 100_000_000_001  # the double 0.1 is a little more than a tenth
    assert survey.units == units
    one = device(lifetime=0.35)
    taken = one.take(file_of(survey))
    for period in range(3):
        one.report(taken, {}, period=period)
        assert one.ledger.balance(ACCOUNT).spent == (period + 1) * units
    with pytest.raises(BudgetExceeded):
        one.report(taken, {"speed": 1.0}, period=3)
    assert one.ledger.balance(ACCOUNT).spent == 3 * units
    assert one.report(taken, {}, period=0)  # what was given out is given again
    one.close()
    one = device(lifetime=0.35)
    with pytest.raises(BudgetExceeded):
        one.report(one.take(file_of(survey)), {}, period=4)


def test_surveys_share_one_account(device):
    one = device(lifetime=3.0)
    first, second = (one.take(file_of(fleet.single(kind, epsilon=1.5))) for kind in ("Duchi", "KRR"))
    one.report(first, {}, period=0)
    one.report(second, {}, period=0)
    assert one.spent == 3.0
    for survey in (first, second):
        with pytest.raises(BudgetExceeded):
            one.report(survey, {}, period=1)


def test_a_lifetime_is_fixed_with_the_ledger(device):
    device(lifetime=3.0).close()
    with pytest.raises(AccountConflict):
        device(lifetime=4.0)
    device(lifetime=3.0)  # the refusal left the file free


def test_a_survey_that_asks_too_much_is_refused(device):
    one = device(most=1.0)
    assert one.take(file_of(fleet.single("Duchi", epsilon=1.0)))
    survey = fleet.single("Duchi", epsilon=1.25)
    with pytest.raises(GuaranteeError, match=r"asks for epsilon 1\.25 a report, this device allows 1"):
        one.take(file_of(survey))
    with pytest.raises(ParameterError, match="survey must be one that this device took"):
        one.report(survey, {}, period=0)
    assert one.spent == 0.0


def test_an_unsigned_survey_is_refused(device):
    one, survey = device(), fleet.single("Duchi")
    for file in (survey.text, signed(survey, Ed25519PrivateKey.generate()), file_of(survey)[:-3]):
        with pytest.raises((GuaranteeError, ParameterError)):
            one.take(file)
    with pytest.raises(ParameterError, match="survey must be one that this device took"):
        one.report(survey, {}, period=0)
    assert one.spent == 0.0


def test_a_period_outside_is_refused(device):
    one = device()
    now = int(time.time())
    over = one.take(file_of(fleet.single("Duchi")))  # in 2023
    coming = one.take(file_of(fleet.single("Duchi", start=now + 10**6)))
    current = one.take(file_of(fleet.single("Duchi", start=now - 3 * fleet.PERIOD_S - 60)))
    for survey, period in ((over, None), (coming, None), (over, -1), (over, 24)):
        with pytest.raises(ParameterError, match="period must be"):
            one.report(survey, {}, period=period)
    assert one.spent == 0.0
    assert int.from_bytes(one.report(current, {})[9:13], "big") == 3


def test_an_unknown_name_is_passed_over(device):
    """Which names an application has at hand may depend on its data."""
    one = device()
    taken = one.take(file_of(fleet.single("Duchi")))
    report = one.report(taken, {"sped": 123456.75, 3: None}, period=0)
    assert one.report(taken, {}, period=0) == report


def test_what_cannot_draw_is_not_taken(device, monkeypatch):
    """A mechanism that fails would fail after the charge, in every period."""
    one = device()

    def broken(*_, **__):
        raise ZeroDivisionError

    with monkeypatch.context() as planted:
        planted.setattr("reticent.mechanisms.numeric.hybrid.Duchi.sample", broken)
        with pytest.raises(GuaranteeError, match="a mechanism of the survey cannot draw"):
            one.take(file_of(fleet.single("Duchi")))
    assert one.spent == 0.0
    with pytest.raises(ParameterError, match="rho must be"):
        fleet.instrument(fleet.SPEED, "OneBit", 1.0).__class__(epsilon=1.0, rho=5e-324)


def test_two_enrolments_are_two_reporters(device):
    """Under one ledger each pays for its own report, and draws it."""
    one = device()
    taken = one.take(file_of(fleet.single("OneBit")))
    first = one.report(taken, {"speed": 1.0}, period=0)
    spent = one.spent
    one._enrolment = enrolled(fleet.MASTER)
    assert one.report(taken, {"speed": 1.0}, period=0)[21:29] != first[21:29]
    assert one.spent == 2 * spent


def test_the_ledger_holds_no_value(device, tmp_path):
    one = device()
    one.report(one.take(file_of(fleet.mixed())), {"speed": 77.125, "kind": "tram"}, period=0)
    stored = (tmp_path / "ledger").read_bytes()
    assert b"77.125" not in stored
    assert b"tram" not in stored


# The law of a report


def small(sample_size, **changes):
    """Two attributes whose reports can be told one by one."""
    asked = ((Number("x"), "ThreeOutputs"), (Category("c", 3), "KRR"))
    return fleet.survey(*asked, epsilon=2.0, sample_size=sample_size, **changes)


def law(survey, values):
    """The exact probability of every body, from those of the mechanisms; attributes are equally likely."""
    layout, found = Layout(survey), Counter()
    choices = list(itertools.combinations(range(len(survey.attributes)), survey.sample_size))
    for asked in choices:
        rows = [
            survey.instruments[place].exact_probabilities(values[survey.attributes[place].name])
            for place in asked
        ]
        for symbols in itertools.product(*(range(len(row)) for row in rows)):
            share = Fraction(1, len(choices))
            for row, symbol in zip(rows, symbols, strict=True):
                share *= row[symbol]
            found[layout.body(asked, [np.array([symbol]) for symbol in symbols])] += share
    return found


INPUTS = [{"x": x, "c": c} for x in (-1.0, -0.3, 0.0, 0.7, 1.0) for c in (0, 1, 2)]


def worst_ratio(survey):
    laws = [law(survey, values) for values in INPUTS]
    assert all(sum(one.values()) == 1 for one in laws)
    return max(one[body] / other[body] for one in laws for other in laws for body in one)


@pytest.mark.parametrize("sample_size", [1, 2])
def test_a_report_keeps_its_epsilon_exactly(sample_size):
    survey = small(sample_size)
    worst = worst_ratio(survey)
    assert worst <= exp_below(survey.epsilon)
    assert worst > exp_below(survey.epsilon) * Fraction(9, 10)  # and spends it


def test_planted_a_report_that_spends_twice_is_found():
    survey = small(2)
    object.__setattr__(survey, "instruments", small(1).instruments)  # each under the whole epsilon
    assert worst_ratio(survey) > exp_below(survey.epsilon)


@pytest.mark.parametrize("level", [0, 100, 1023])
def test_one_bit_keeps_its_epsilon_at_its_level(level):
    instrument = fleet.single("OneBit", epsilon=2.0).instruments[0]
    bits = []
    for x in (0.0, 20.0, 65.0, 110.0, 130.0):
        both = instrument.exact_probabilities(x)[2 * level : 2 * level + 2]
        bits.append([share / sum(both) for share in both])
    assert max(a[bit] / b[bit] for a in bits for b in bits for bit in (0, 1)) <= exp_below(2.0)


def fits(survey, values, bodies):
    """Chi-square of bodies against the exact law at a false-alarm rate of 1e-6."""
    exact = law(survey, values)
    expected = np.array([float(share) * len(bodies) for share in exact.values()])
    counts = Counter(bodies)
    if set(counts) - set(exact):
        return False
    seen = np.array([counts[body] for body in exact])
    return float(chi2.sf(((seen - expected) ** 2 / expected).sum(), len(exact) - 1)) > 1e-6


def drawn_bodies(survey, values, count, seed):
    layout, stream = Layout(survey), SimulationStream(seed)
    return [fleet.body(layout, ENROLLED, 0, values, stream)[0] for _ in range(count)]


@pytest.mark.parametrize("sample_size", [1, 2])
def test_reports_have_that_law(sample_size):
    survey, values = small(sample_size), {"x": 0.7, "c": 1}
    bodies = drawn_bodies(survey, values, 2000, seed=3)
    assert fits(survey, values, bodies)
    assert not fits(survey, {"x": -0.7, "c": 1}, bodies)  # planted: another input
    assert not fits(survey, {"x": 0.7, "c": 2}, bodies)


def test_reports_of_devices_have_that_law(tmp_path):
    """Through the ledger of a real device: 300 periods of one survey."""
    survey, values = small(1, periods=300), {"x": 0.7, "c": 1}
    with Device(tmp_path / "l", ENROLLED, fleet.SIGNER, lifetime=1e5, rng=SimulationStream(11)) as one:
        taken = one.take(file_of(survey))
        bodies = [body_of(one.report(taken, values, period=period)) for period in range(300)]
    assert fits(survey, values, bodies)
    assert not fits(survey, {"x": -1.0, "c": 2}, bodies)


def test_secure_randomness_is_the_default():
    """Two devices with the same data and no stream of their own differ."""
    layout = Layout(fleet.mixed())
    bodies = {fleet.body(layout, ENROLLED, 0, fleet.VALUES, None)[0] for _ in range(50)}
    assert len(bodies) > 25
