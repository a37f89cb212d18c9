"""Fig. 3.8 of the thesis: logistic regression under local privacy.

Reference: Zhao 2022, Section 3.5.2 and Fig. 3.8. Departures: the data sets are those that can be had
(`fed_data`); one grid of settings for all methods (`fed_training`), where the documents name none.
"""

from __future__ import annotations

from reticent.experiments.base import Options, Outcome
from reticent.experiments.zhao_2022.chapter_3.fed_report import compare_methods

PRINTED = """\
"the proposed mechanisms (PM-SUB, Three-Outputs, and HM-TP) have lower misclassification rates than
other mechanisms" (no numbers in the text; the data were 4 million census records of Brazil and Mexico)."""


def run(options: Options) -> Outcome:
    """Train every method on every data set."""
    return compare_methods("logistic", "Fig. 3.8: logistic regression", PRINTED, options)
