"""Fig. 3.8 and Table B.1 of the thesis: PRIVIC in Paris.

Reference: Biswas 2023, Fig. 3.8 and Table B.1. Departures: as in `location_cycles`.
"""

from __future__ import annotations

from reticent.experiments.base import Options, Outcome
from reticent.experiments.biswas_2023.chapter_3.cycles import compare
from reticent.experiments.biswas_2023.chapter_3.data import PARIS


def run(options: Options) -> Outcome:
    """Compare with the table."""
    return compare(PARIS, "Fig. 3.8", "Table B.1", options)
