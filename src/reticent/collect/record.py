"""What a survey learnt, in the ledger: an entry for each period before anything of it is shown.

Devices paid for their reports already, each out of its own ledger. The collector's ledger says the same to an
auditor: an account for the survey in epsilon, for one device that answers in every period, a request for each
period that was looked at, and, once the period is closed, how many reports it counted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from reticent.collect.survey import Survey
from reticent.errors import AlreadyFulfilled
from reticent.ledger.base import Amount, Ledger, Terms, Unit
from reticent.privacy import Neighbours


def account(survey: Survey) -> Terms:
    """The account of a survey: all its periods, for one device."""
    return Terms(
        f"survey-{survey.id.hex()}",
        Unit.EPSILON,
        Neighbours.ANY_TWO_VALUES,
        f"one device that answers survey {survey.name}",
        survey.units * survey.periods,
    )


def learn(ledger: Ledger, survey: Survey, periods: Mapping[int, int | None]) -> None:
    """Enter that something of these periods is shown. Entering it again changes nothing.

    Args:
        ledger: of the collector.
        survey: whose reports were counted.
        periods: by number, how many reports were counted; None while a period is still open.
    """
    terms = account(survey)
    ledger.open(terms)
    for period, reports in sorted(periods.items()):
        amount = Amount(survey.units, Unit.EPSILON, Neighbours.ANY_TWO_VALUES)
        grant = ledger.request(terms.name, f"period {period}", amount)
        if reports is not None:
            for measurement in grant.pending:
                with contextlib.suppress(AlreadyFulfilled):  # another process was first
                    ledger.fulfil(measurement.number, [reports])
