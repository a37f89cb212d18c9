"""The gate: reports on single mechanisms, on callables, on the whole library; and no false alarms."""

import dataclasses
import time

import numpy as np
import pytest

from reticent.audit import audit, audit_all, audit_callable
from reticent.audit.gate import EPSILONS, PATHS
from reticent.audit.planted.tables import BinaryCoin, DriftingQ, PrintedMiddle
from reticent.audit.subjects import CATALOGUE, made
from reticent.errors import ParameterError
from reticent.mechanisms import categorical, numeric
from reticent.mechanisms.base import Randomiser
from reticent.mechanisms.numeric import Duchi
from reticent.randomness import SimulationStream


def test_a_report_says_everything(rng):
    report = audit(Duchi(epsilon=1.0), quick=True, rng=rng)
    assert report.passed
    assert report.verdict == "nothing found against the claim"
    assert [found.check for found in report.findings] == [
        "exact", "fit", "black box", "support", "total", "streams",
    ]  # fmt: skip
    assert report.exact.loss == pytest.approx(1.0)
    assert 0.9 < report.black_box.lower < 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.name = "other"


@pytest.mark.parametrize(
    ("mechanism", "check"),
    [
        (PrintedMiddle(), "exact"),
        (BinaryCoin(epsilon=1.0, categories=6), "black box"),
        (DriftingQ(epsilon=1.0, categories=6), "fit"),
    ],
    ids=["printed", "coin", "drift"],
)
def test_a_wrong_mechanism_fails_with_the_reason(mechanism, check):
    report = audit(mechanism, quick=True)
    assert not report.passed
    assert f"{check}: " in report.verdict


def test_the_catalogue_holds_the_library():
    public = {
        name
        for module in (numeric, categorical)
        for name in module.__all__
        if isinstance(getattr(module, name), type)
        and issubclass(getattr(module, name), Randomiser)
        and not getattr(module, name).__abstractmethods__
    }
    assert public <= set(CATALOGUE)


def test_names_are_taken_in_any_case_and_a_wrong_one_lists_all():
    assert type(made("pmopt", 1.0)).__name__ == "PMOpt"
    with pytest.raises(
        ParameterError,
        match=r"must be one of BlahutArimoto, Codebook, DiscreteGaussian.*\(did you mean PMSub",
    ):
        made("pmsbu", 1.0)


def test_what_is_not_ours_is_refused():
    with pytest.raises(ParameterError, match="one of Reticent's"):
        audit(object())


def test_a_callable(rng):
    def leaky(value, size):
        return np.where(rng.units(size) - 1.0 < 0.9, value, -value)

    report = audit_callable(leaky, [-1, 1], epsilon=1.0, samples=20_000, rng=rng)
    assert not report.passed
    assert report.name == "leaky"
    assert "black box" in report.verdict
    assert audit_callable(leaky, [-1, 1], epsilon=2.3, samples=20_000, rng=rng).passed


def test_a_callable_that_refuses_an_input_is_reported_and_not_run():
    def picky(value, size):
        if value > 1:
            raise ValueError(value)
        return [0] * size

    report = audit_callable(picky, [0, 2], epsilon=1.0, samples=1000)
    assert not report.passed
    assert report.black_box is None
    assert "raises ValueError" in report.verdict


def test_an_approximate_claim_leaves_supports_alone(rng):
    report = audit_callable(
        lambda value, size: np.where(rng.units(size) - 1.0 < 0.01, value, 0),
        [1, 2], epsilon=1.0, delta=0.02, samples=20_000, rng=rng,
    )  # fmt: skip
    assert report.passed, report.verdict
    assert "support" not in [found.check for found in report.findings]
    assert report.notion == "epsilon at delta 0.02"


def test_several_processes_audit_in_order():
    """What they find is not looked at: they draw without a seed."""
    seen, names = [], sorted(CATALOGUE)[:2]
    reports = audit_all(
        quick=True, names=names, workers=2, progress=lambda report, done, total: seen.append((done, total))
    )
    assert [(report.name, report.claimed) for report in reports] == [
        (report.name, report.claimed) for report in audit_all(quick=True, names=names, workers=0)
    ]
    assert seen == [(number, len(reports)) for number in range(1, len(reports) + 1)]


@pytest.mark.usefixtures("seeded_noise")
def test_the_whole_library_quickly():
    """A fixed seed, that of the test."""
    reports = audit_all(quick=True, workers=0)
    assert [report.verdict for report in reports if not report.passed] == []
    mechanisms = (len(CATALOGUE) - 1) * len(EPSILONS) + 1
    assert len(reports) == mechanisms + len(PATHS)
    for report in reports[:mechanisms]:
        assert report.exact.loss <= report.claimed * (1 + 1e-12)
    assert all(report.black_box.lower <= report.claimed for report in reports)
    assert {report.name for report in reports} >= set(PATHS)


def audits(count):
    """Audit right mechanisms with seeds 0, 1, ...; return those that raise an alarm, or have a bound of 95 %
    above their claim."""
    alarms, above = [], 0
    held = {}
    names = sorted(CATALOGUE)
    for seed in range(count):
        name = names[seed % len(names)]
        epsilon = EPSILONS[seed // len(names) % len(EPSILONS)]
        mechanism = held.setdefault((name, epsilon), made(name, epsilon))
        report = audit(mechanism, quick=True, rng=SimulationStream(seed))
        if not report.passed:
            alarms.append((seed, name, epsilon, report.verdict))
        above += report.black_box.likely > report.claimed
    return alarms, above


def test_sixty_audits_of_right_mechanisms_without_an_alarm():
    alarms, above = audits(60)
    assert alarms == []
    assert above <= 8  # 5 % of 60, and three standard errors


@pytest.mark.slow
def test_a_thousand_audits_of_right_mechanisms_without_an_alarm():
    alarms, above = audits(1000)
    print(f"1,000 right mechanisms: {len(alarms)} accused, {above} bounds of 95 % above the claim")
    assert alarms == []
    assert above <= 70  # 5 % of 1,000, and three standard errors


@pytest.mark.slow
def test_the_whole_library_in_full():
    start = time.perf_counter()
    reports = audit_all()
    seconds = time.perf_counter() - start
    print(f"{len(reports)} full audits: {seconds:.0f} s")
    assert [report.verdict for report in reports if not report.passed] == []
