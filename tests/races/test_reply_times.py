"""Statistics of real reply times (T12): whether they tell which data set was asked, or the noise.

Which of two data sets is asked is drawn for every request, and so is its noise: without a leak every order of
the times is as likely as any other, whatever the machine does meanwhile. So the area under the curve (AUC) of
the times has a standard deviation of sqrt((n + m + 1) / 12nm), and Spearman's correlation with the noise
1 / sqrt(n + m - 1).
"""

import math
import random
import time
from dataclasses import dataclass
from functools import partialmethod

import numpy as np
import pytest
from scipy.stats import rankdata

from reticent.ledger.memory import MemoryLedger
from reticent.query.measure import Plan

from ..service.test_timing import time_replies

SDS = 6.5  # false alarms: 8e-11 for each figure


class LongLedger(MemoryLedger):
    """A ledger for one thread that fulfils at once; its parent looks at every measurement for each."""

    def _pending(self, account, key=None):
        latest = self._measurements[-1:]
        return [one for one in latest if (one.account, one.key, one.fulfilled) == (account, key, False)]


@dataclass
class ReplyTimes:
    """What an observer has of many replies, and what they must not tell: the data set, and the noise."""

    times: np.ndarray
    is_twin: np.ndarray
    noise: np.ndarray

    @property
    def auc(self):
        """The chance that a reply about the twin left later than one about the other, less 1/2."""
        m = int(self.is_twin.sum())
        n = self.times.size - m
        return (rankdata(self.times)[self.is_twin].sum() - m * (m + 1) / 2) / (n * m) - 0.5

    @property
    def auc_sd(self):
        m = int(self.is_twin.sum())
        n = self.times.size - m
        return math.sqrt((n + m + 1) / (12 * n * m))

    @property
    def rho(self):
        return float(np.corrcoef(rankdata(self.times), rankdata(np.abs(self.noise)))[0, 1])

    @property
    def rho_sd(self):
        return 1 / math.sqrt(self.times.size - 1)

    def __str__(self):
        spread = " ".join(f"{ms:.1f}" for ms in np.quantile(self.times * 1e3, [0.05, 0.5, 0.95, 0.99]))
        return f"{self.times.size} replies, AUC - 1/2 {self.auc:+.4f}, rho {self.rho:+.4f}, ms {spread}"


def measure_times(folder, count, **options):
    names = (random.choice(("left", "twin")) for _ in range(count))
    return ReplyTimes(*time_replies(folder, names, clock=time.perf_counter, **options))


@pytest.fixture
def slow_row(monkeypatch):
    """Planted: the row that counts takes so much more."""
    true = Plan.vector

    def vector(self, rows, seconds):
        exact = true(self, rows)
        if exact != [0]:
            time.sleep(seconds)
        return exact

    return lambda seconds: monkeypatch.setattr(Plan, "vector", partialmethod(vector, seconds=seconds))


def test_the_grid_hides_a_row_that_takes_longer(tmp_path, slow_row, race_counter):
    """A machine so busy that replies miss the first point of a grid is given a wider one."""
    slow_row(0.02)
    for grid_s in (0.1, 0.3, 1.0, 3.0):
        seen = measure_times(tmp_path / f"desk {grid_s}", 120, grid_s=grid_s, at_once=2)
        if (seen.times < 1.5 * grid_s).mean() > 0.95:
            break
    race_counter.report(f"grid of {grid_s} s: {seen}")
    assert abs(seen.auc) < SDS * seen.auc_sd, seen
    assert abs(seen.rho) < SDS * seen.rho_sd, seen


def test_planted_no_grid_is_caught(tmp_path, slow_row, race_counter):
    def attempt(number):
        slow_row(0.02 * 2**number)
        seen = measure_times(tmp_path / f"desk {number}", 120, grid_s=0.0)
        return seen.auc > SDS * seen.auc_sd

    race_counter.repeat_until_caught(attempt, max_attempts=6, name="a slow row without the grid")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_100_000_reply_times_tell_nothing(tmp_path, race_counter):
    """The ledger is one in memory, to be done in time: of the data it is told nothing but noisy values."""
    seen = measure_times(tmp_path / "desk", 100_000, grid_s=0.02, at_once=3, ledger=LongLedger())
    race_counter.report(str(seen))
    assert abs(seen.auc) < SDS * seen.auc_sd, seen
    assert abs(seen.rho) < SDS * seen.rho_sd, seen


# A sampler whose loops count, as a control


def is_kept(x):
    """Return True with probability exp(-x), by counting. Canonne, Kamath and Steinke 2020, Algorithm 1."""
    while x > 1:
        if not is_kept(1):
            return False
        x -= 1
    k = 1
    while random.random() < x / k:
        k += 1
    return k % 2 == 1


def sample_gaussian(sigma):
    """Draw a discrete Gaussian as one would write it in Python. Algorithms 2 and 3 there."""
    t = math.floor(sigma) + 1
    while True:
        u, v = random.randrange(t), 0
        if not is_kept(u / t):
            continue
        while is_kept(1):
            v += 1
        y = u + t * v
        if is_kept((y - sigma**2 / t) ** 2 / (2 * sigma**2)):
            return y if random.random() < 0.5 else -y


def test_a_raw_sampler_is_seen(race_counter):
    """The statistic can tell: time and noise of that sampler, without a grid."""

    def attempt(_):
        times, noise = [], []
        for _ in range(5000):
            start = time.thread_time()  # others use this machine too
            noise.append(sample_gaussian(1000.0))
            times.append(time.thread_time() - start)
        seen = ReplyTimes(np.array(times), np.arange(5000) % 2 == 0, np.array(noise))
        return seen.rho > SDS * seen.rho_sd

    race_counter.repeat_until_caught(attempt, max_attempts=5, name="a sampler whose loops count")
