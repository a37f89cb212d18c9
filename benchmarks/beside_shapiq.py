"""Shapley values of threshold games, ours and those of `shapiq`, in one process.

Run by the environment that `make .venv/.shapiq` makes: `shapiq` beside what we use ourselves. Prints how many
times faster ours are for 16 members, and the largest difference in games of 2 to 16.
"""

from __future__ import annotations

import numpy as np
from shapiq.game_theory.exact import ExactComputer

from benchmarks.measure import cpu_ratio
from reticent.market import threshold_values


def theirs(weights, quota):
    """By every coalition."""
    held = np.array(weights)
    computer = ExactComputer(
        lambda coalitions: (coalitions @ held >= quota).astype(float), n_players=len(held)
    )
    return computer("SV", 1).get_n_order_values(1)


def main() -> None:
    """Print both figures."""
    drawn, apart = np.random.default_rng(3), 0.0
    for members in range(2, 17):
        weights = drawn.integers(0, 101, members).tolist()
        quota = int(drawn.integers(1, sum(weights) + 1))
        apart = max(apart, float(np.abs(theirs(weights, quota) - threshold_values(weights, quota)).max()))
    weights = drawn.integers(1, 101, 16).tolist()
    quota = sum(weights) // 2
    faster = cpu_ratio(
        lambda: theirs(weights, quota), lambda: threshold_values(weights, quota), repetitions=3
    )
    print(f"{faster:g} {apart:g}")


if __name__ == "__main__":
    main()
