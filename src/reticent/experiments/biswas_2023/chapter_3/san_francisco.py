"""Fig. 3.9 and Table B.2 of the thesis: PRIVIC in San Francisco.

Reference: Biswas 2023, Fig. 3.9 and Table B.2. Departures: as in `location_cycles`.
"""

from __future__ import annotations

from reticent.experiments.base import Options, Outcome
from reticent.experiments.biswas_2023.chapter_3.cycles import compare
from reticent.experiments.biswas_2023.chapter_3.data import SAN_FRANCISCO


def run(options: Options) -> Outcome:
    """Compare with the table."""
    return compare(SAN_FRANCISCO, "Fig. 3.9", "Table B.2", options)
