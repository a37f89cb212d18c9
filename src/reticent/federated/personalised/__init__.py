"""Personalised training: several hypotheses, each learnt by the clients that it fits best.

`tasks` says what is learnt and under which noise, `noise` what a report costs, `client` runs where the data
are, `server` clusters and averages, `simulation` runs both in one process.
"""

from reticent.federated.personalised.client import PersonalClient
from reticent.federated.personalised.learners import Population, Records
from reticent.federated.personalised.noise import Sanitiser
from reticent.federated.personalised.server import PersonalRound, PersonalTraining, best
from reticent.federated.personalised.tasks import PersonalTask

__all__ = [
    "PersonalClient",
    "PersonalRound",
    "PersonalTask",
    "PersonalTraining",
    "Population",
    "Records",
    "Sanitiser",
    "best",
]
