"""Fig. 3.13 of the thesis: logistic regression with mechanisms of 2001 outputs, epsilon 4.

Reference: Zhao 2022, Section 3.5.3 and Fig. 3.13. Departures: as in `fig_3_8`.
"""

from __future__ import annotations

from reticent.experiments.base import Options, Outcome
from reticent.experiments.zhao_2022.chapter_3.fed_discrete import compare_discretised

EPSILON = 4.0


def run(options: Options) -> Outcome:
    """Train every method in doubles and as really sent."""
    return compare_discretised(
        "logistic", EPSILON, "Fig. 3.13: logistic regression, 2001 outputs, epsilon 4", options
    )
