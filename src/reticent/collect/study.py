"""Surveys as studies in the operator's ledger."""

from __future__ import annotations

from reticent.collect.survey import Survey
from reticent.fleet.record import Study
from reticent.ledger.base import Unit
from reticent.privacy.neighbours import Neighbours


def of_survey(survey: Survey) -> Study:
    """Return a survey as a study whose parts are its periods."""
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
