"""Fig. 3.14 of the thesis: linear and logistic regression over the number of outputs, epsilon 4.

Reference: Zhao 2022, Section 3.5.3 and Fig. 3.14. Departures: as in `fig_3_8`.
"""

from __future__ import annotations

from reticent.experiments.base import Options, Outcome
from reticent.experiments.zhao_2022.chapter_3.fed_discrete import sweep_levels

EPSILON = 4.0
PRINTED = """\
"the misclassification rate and MSE decrease as the number of output possibilities increases"; with
2000 segments "satisfactory and similar to a continuous range"."""


def run(options: Options) -> Outcome:
    """Train with 3 to 2001 outputs."""
    title = "Fig. 3.14: linear and logistic regression over the number of outputs, epsilon 4"
    return sweep_levels(("linear", "logistic"), EPSILON, title, PRINTED, options)
