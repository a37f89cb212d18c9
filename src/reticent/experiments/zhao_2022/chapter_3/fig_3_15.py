"""Fig. 3.15 of the thesis: support vector machines over the number of outputs, epsilon 5.

Reference: Zhao 2022, Section 3.5.3 and Fig. 3.15. Departures: as in `fig_3_10`.
"""

from __future__ import annotations

from reticent.experiments.base import Options, Outcome
from reticent.experiments.zhao_2022.chapter_3.fed_discrete import sweep_levels

EPSILON = 5.0
PRINTED = '"PM-SUB outperforms Three-Outputs, when the number of output possibilities is large".'


def run(options: Options) -> Outcome:
    """Train with 3 to 2001 outputs."""
    title = "Fig. 3.15: support vector machines over the number of outputs, epsilon 5"
    return sweep_levels(("svm",), EPSILON, title, PRINTED, options)
