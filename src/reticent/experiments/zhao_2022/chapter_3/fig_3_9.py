"""Fig. 3.9 of the thesis: linear regression under local privacy.

Reference: Zhao 2022, Section 3.5.2 and Fig. 3.9. Departures: as in `fig_3_8`.
"""

from __future__ import annotations

from reticent.experiments.base import Options, Outcome
from reticent.experiments.zhao_2022.chapter_3.fed_report import compare_methods

PRINTED = """\
"our proposed mechanisms (PM-SUB, Three-Outputs, and HM-TP) outperform existing approaches"; Laplace
is left out "because its MSE exceeds those of other mechanisms" (no numbers in the text)."""


def run(options: Options) -> Outcome:
    """Train every method on every data set."""
    return compare_methods("linear", "Fig. 3.9: linear regression", PRINTED, options)
