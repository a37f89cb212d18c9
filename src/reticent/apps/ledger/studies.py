"""Surveys, campaigns and trainings of a service, with the accounts that hold what devices disclosed.

A training runs elsewhere. It is known here once its operator entered a round into this service's ledger.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import FastAPI

from reticent.apps.federated.trainings import training_of
from reticent.collect.study import of_survey
from reticent.errors import LedgerError
from reticent.ledger import Balance
from reticent.ledger.base import Terms


@dataclass(frozen=True)
class Studied:
    """A survey, a campaign or a training.

    Attributes:
        kind: Kind of the study: survey, campaign or training.
        name: Name of the study.
        address: Address of its page; empty if it has none here.
        said: Progress of the study, in words.
        account: Name of its account.
        cap: Terms of what one device spends in the whole study.
        spent: Part of the cap that was shown, from 0 to 1.
    """

    kind: str
    name: str
    address: str
    said: str
    account: str
    cap: Terms
    spent: float


def studies(app: FastAPI, balances: Mapping[str, Balance]) -> list[Studied]:
    """Return every study of a service.

    Args:
        app: Application of the service.
        balances: All accounts of the data sets' ledger, by name; on a chain those of devices may be in
            another ledger.
    """
    held = dict(balances)
    desk = app.state.desk
    if desk.chain is not None and (app.state.collecting.is_used or app.state.places.names()):
        with contextlib.suppress(LedgerError):  # of a service that was begun with another one
            held |= {one.terms.name: one for one in desk.book.accounts()}
    return [*_surveys(app, held), *_campaigns(app, held), *_trainings(held)]


def _surveys(app: FastAPI, balances: Mapping[str, Balance]) -> list[Studied]:
    collecting = app.state.collecting
    if not collecting.is_used:
        return []
    found = []
    for survey in collecting.collector.surveys()[::-1]:
        study = of_survey(survey)
        name = study.old_name if study.old_name in balances else study.terms.name
        reports = sum(collecting.collector.periods(survey).values())
        said = f"{_reports(reports)}, {survey.periods} periods in all"
        address = f"/surveys/{survey.id.hex()}"
        found.append(_studied("survey", survey.name, address, said, str(name), study.terms, balances))
    return found


def _campaigns(app: FastAPI, balances: Mapping[str, Balance]) -> list[Studied]:
    places, found = app.state.places, []
    for name, campaign in places.all() if places.names() else ():
        asked = campaign.current
        reports = sum(campaign.store.reports(number) for number in range(asked.number + 1))
        said = f"{_reports(reports)}, round {asked.number + 1} of {asked.rounds}"
        terms = campaign.study.terms
        found.append(_studied("campaign", name, f"/places/{name}", said, terms.name, terms, balances))
    return found


def _trainings(balances: Mapping[str, Balance]) -> list[Studied]:
    found = []
    for name, one in balances.items():
        told = training_of(one)
        if told is not None:
            said = "trained elsewhere, its rounds entered here"
            address = f"/trainings/{told.identifier}"
            found.append(_studied("training", told.name, address, said, name, one.terms, balances))
    return found


def _studied(
    kind: str,
    name: str,
    address: str,
    said: str,
    account: str,
    terms: Terms,
    balances: Mapping[str, Balance],
) -> Studied:
    held = balances.get(account)
    spent = held.spent / held.terms.cap if held is not None else 0.0
    return Studied(kind, name, address, said, account, terms, spent)


def _reports(number: int) -> str:
    return f"{number:,} report{'' if number == 1 else 's'}"
