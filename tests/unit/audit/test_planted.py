"""Every planted bug is caught by the check meant for it; the right mechanism passes the same check."""

import time

import pytest

from reticent.audit.planted import PLANTS

# Named in the issue; each must have its plant.
ASKED = {
    "printed Eq. 3.3", "printed Eq. 3.1", "piecewise on doubles", "even-d Duchi", "OUE with wrong q",
    "Laplace scale off by 1 %", "seed per instance", "refuses out of range", "memoised by value",
    "dropped symbol", "threshold rounded down",
    "noise reused between rounds", "a second report under other noise", "clip skipped", "ledger skipped",
    "silence on overflow",
    "beta claimed for 2 beta", "printed Algorithm 2", "one normaliser for all places",
    "attribute chosen by value", "nonce of the record", "missing category without noise",
    "NaN always one symbol",
}  # fmt: skip


def test_there_are_enough_of_them_and_each_says_what_it_is():
    assert len(PLANTS) >= 20
    assert set(PLANTS) >= ASKED
    assert {plant.check for plant in PLANTS.values()} == {
        "exact", "fit", "black box", "support", "points", "streams", "total", "memory", "run",
        "repeat", "ledger", "rest", "fresh",
    }  # fmt: skip


@pytest.mark.parametrize("name", PLANTS)
def test_caught_and_not_confused_with_the_right_one(name):
    plant = PLANTS[name]
    caught = plant.find(plant.bug(), True)
    assert not caught.passed, f"{name} was not caught: {caught.detail}"
    assert caught.check == plant.check
    sound = plant.find(plant.sound(), True)
    assert sound.passed, f"the right mechanism is accused: {sound.detail}"


@pytest.mark.slow
def test_all_with_full_counts():
    start = time.perf_counter()
    missed = [name for name, plant in PLANTS.items() if plant.find(plant.bug(), False).passed]
    seconds = time.perf_counter() - start
    print(f"{len(PLANTS)} planted bugs with full counts: {seconds:.1f} s")
    accused = [name for name, plant in PLANTS.items() if not plant.find(plant.sound(), False).passed]
    assert (missed, accused) == ([], [])
