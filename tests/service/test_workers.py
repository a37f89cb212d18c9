"""T13: no two workers draw the same noise, whether spawned to serve or forked with the sampler loaded.

Of n draws with standard deviation s, about n^2 / (4 sqrt(pi) s) pairs are alike by chance, a number that is
nearly Poisson's. Copied randomness makes at least as many more as two workers drew.
"""

import math
import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from scipy.stats import poisson

from reticent.mechanisms.gaussian import DiscreteGaussian
from reticent.query.declarations import dataset_file
from reticent.query.language.questions import resolve
from reticent.query.language.tree import from_json
from reticent.query.measure import plan
from reticent.randomness import SimulationStream

from .running import BASE, until

FALSE_ALARM = 1e-10  # of each test; 6.5 standard deviations are 8e-11
SIGMA = 1e6
HISTOGRAM = {"kind": "histogram", "by": [{"column": "income", "bins": 200}]}
SEEDED = """
import itertools
from reticent.query.measure import Plan
from reticent.randomness import SimulationStream
true, seeds = Plan.measure, itertools.count()
def measure(self, exact, information, rng=None):
    return true(self, exact, information, rng or SimulationStream(next(seeds)))
Plan.measure = measure
"""


def alike(draws):
    """Pairs of equal values."""
    counts = np.unique(draws, return_counts=True)[1].astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


def most_by_chance(count, sigma):
    """Return the pairs that independent draws have at most, but with probability `FALSE_ALARM`."""
    return int(poisson.isf(FALSE_ALARM, count**2 / (4 * math.sqrt(math.pi) * sigma)))


# Forked


def drawn_here(seed, count):
    rng = None if seed is None else SimulationStream(seed)
    return DiscreteGaussian(1000, (1000 / SIGMA) ** 2).perturb(np.zeros(count, dtype=np.int64), rng)


def forked(workers, count, seed=None):
    """What so many children draw, each from the sampler as it stood here."""
    drawn_here(None, 3)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    children = [context.Process(target=lambda: results.put(drawn_here(seed, count))) for _ in range(workers)]
    for child in children:
        child.start()
    drawn = [results.get() for _ in children]
    for child in children:
        child.join()
    return np.concatenate(drawn)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("workers", [4, pytest.param(64, marks=pytest.mark.slow)])
def test_forked_workers_draw_apart(workers):
    drawn = forked(workers, 1000)
    assert abs(drawn.std() / SIGMA - 1) < 6.5 / math.sqrt(2 * drawn.size)
    assert alike(drawn) <= most_by_chance(drawn.size, SIGMA)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_workers_with_one_seed_are_caught():
    drawn = forked(4, 1000, seed=1)
    assert alike(drawn) > most_by_chance(drawn.size, SIGMA)


# Serving


def noise_of_workers(service, workers, keys, folder, asks):
    """What each of the workers adds to the same histogram of nobody, so many times at least.

    Each ask has a connection of its own, and `metrics` tells which worker it met.
    """
    data = dataset_file.read(folder / "census.yaml")
    found, conditions = {}, iter(range(1, 100_000))
    head = {"Authorization": f"Bearer {keys['olga']}"}

    def ask(_):
        where = {"column": "income", "op": ">", "value": 900_000 + next(conditions)}
        query = {**HISTOGRAM, "where": where}
        with httpx.Client(base_url=service.url, timeout=60, headers=head) as client:
            worker = client.get("/metrics").text.split('worker="')[1].split('"')[0]
            if len(found.setdefault(worker, [])) < asks:
                reply = client.post(f"{BASE}/ask", json={"query": query, "information": 1e-4})
                assert reply.status_code == 200, reply.text
                scale = 1 << plan(resolve(from_json(query), data)).shift
                found[worker].append([round(cell["unbiased"] * scale) for cell in reply.json()["cells"]])

    def look():
        with ThreadPoolExecutor(4) as pool:  # so that no one worker is quick enough for all
            list(pool.map(ask, range(4)))
        return sum(len(one) >= asks for one in found.values()) >= workers

    until(look, 500)
    return np.array([drawn for one in found.values() for drawn in one])


@pytest.mark.parametrize(
    ("planted", "workers", "asks"),
    [("", 4, 2), (SEEDED, 2, 1), pytest.param("", 4, 20, marks=pytest.mark.slow)],
    ids=["quick", "planted", "full"],
)
def test_serving_workers_draw_apart(process, folder, keys, planted, workers, asks):
    """Nobody earns more than 900,000 there, so the answers are noise, of 2^24 x 141 grid units."""
    service = process(workers=workers, planted=planted)
    drawn = noise_of_workers(service, workers, keys, folder, asks).ravel()
    sigma = drawn.std()
    assert sigma > 1 << 28
    assert (alike(drawn) <= most_by_chance(drawn.size, sigma)) is (planted == "")
