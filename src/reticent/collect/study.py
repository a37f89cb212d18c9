"""A survey as the operator's ledger knows it."""

from __future__ import annotations

from reticent.collect.survey import Survey
from reticent.fleet.record import Study
from reticent.ledger.base import Unit
from reticent.privacy.neighbours import Neighbours


def of_survey(survey: Survey) -> Study:
    """A survey, period by period."""
    return Study(
        "survey",
        survey.id,
        f"one device that answers survey {survey.name}",
        Unit.EPSILON,
        Neighbours.ANY_TWO_VALUES,
        survey.units,
        survey.periods,
        part="period",
        old_name=f"survey-{survey.id.hex()}",
    )
