"""The model of a deployment: its queue against other methods, and what it says of what was measured."""

import dataclasses

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.experiments.base import Options
from reticent.experiments.ours import deployment
from reticent.experiments.ours.capacity import Part, Report, throughput
from reticent.experiments.ours.deployment import Load, first_full, parts, predicted

REPORT = Report(100e-6, 50e-6, 0.0, waiting_s=80e-6)


def by_balance(report, processes, cores):
    """The same chain of births and deaths, solved as linear equations."""
    busy = report.collector_s + report.database_s
    rates = np.zeros((processes + 1, processes + 1))
    for j in range(processes):
        rates[j, j + 1] = (processes - j) / report.waiting_s
        rates[j + 1, j] = min(j + 1, cores) / busy
    flow = rates.T - np.diag(rates.sum(axis=1))
    flow[-1] = 1.0
    shares = np.linalg.solve(flow, np.append(np.zeros(processes), 1.0))
    return sum(share * min(j, cores) / busy for j, share in enumerate(shares))


@pytest.mark.parametrize("processes", [1, 2, 4, 9])
@pytest.mark.parametrize("cores", [1.0, 1.5, 2.0, 8.0])
def test_the_queue_is_that_of_its_balance_equations(processes, cores):
    assert throughput(REPORT, processes, cores=cores) == pytest.approx(by_balance(REPORT, processes, cores))


def test_edges():
    assert throughput(REPORT, 1, cores=2.0) == pytest.approx(1 / 230e-6)  # nobody to wait for
    assert throughput(REPORT, 500, cores=2.0) == pytest.approx(2 / 150e-6, rel=1e-3)  # the cores are full
    still = dataclasses.replace(REPORT, waiting_s=0.0)
    assert throughput(still, 3, cores=2.0) == pytest.approx(2 / 150e-6)
    shared = dataclasses.replace(still, broker_s=50e-6)
    assert throughput(shared, 8, cores=2.0) == pytest.approx(2 / 200e-6)  # the broker takes its part
    assert throughput(shared, 1000, cores=64.0) == pytest.approx(1 / 50e-6)  # and is one thread
    with pytest.raises(ParameterError, match="processes must be >= 1"):
        throughput(REPORT, 0, cores=2.0)


def test_calibration_finds_the_wait_back():
    rate = throughput(REPORT, 1, cores=2.0)
    found = dataclasses.replace(REPORT, waiting_s=0.0).calibrated(rate, cores=2.0)
    assert found.waiting_s == pytest.approx(80e-6)
    assert REPORT.calibrated(1e9, cores=2.0).waiting_s == 0.0  # faster than its CPU allows: no wait


def off(found):
    """How far predictions are from what was measured, at most."""
    return max(abs(rate / one.rate - 1) for one, rate in found)


def test_two_and_four_processes_are_predicted_within_a_quarter():
    found = predicted()
    assert {one.processes for one, _ in found} == {2, 4}
    assert off(found) <= 0.25


def test_planted_a_model_without_cores_is_caught():
    """Planted: twice the processes, twice the reports."""
    alone = {one.together: one.rate for one in deployment.RUNS if one.processes == 1}
    assert off([(one, one.processes * alone[one.together]) for one, _ in predicted()]) > 0.25


def test_a_part_that_is_one_says_when_it_is_full():
    load = Load(10**8, 24.0)
    worst, times = first_full(load)
    again, _ = first_full(dataclasses.replace(load, devices=int(load.devices * times)))
    assert worst.is_one
    assert again.load == pytest.approx(1.0, rel=1e-6)
    assert Part("x", 100.0, 0.02).needed(0.5) == 4
    assert [one.rate for one in parts(load)][:3] == [pytest.approx(10**8 * 24 / 86_400 * 4)] * 3


def test_it_runs(tmp_path):
    outcome = deployment.run(Options(tmp_path, quick=True))
    assert len(outcome.rows) == len(deployment.SCENARIOS) * len(deployment.DEVICES)
    machines = [row["machines"] for row in outcome.rows if row["scenario"] == "a report an hour, single"]
    assert machines == sorted(machines)
