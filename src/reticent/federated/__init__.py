"""Federated learning: models learnt from people who send nothing but private reports.

`tasks` says what is learnt and under which epsilon, `client` runs where the data are, `server` averages and
steps, `simulation` runs both in one process, `flower` inside Flower.
"""

from reticent.federated.client import Client
from reticent.federated.models import SVM, Linear, Logistic, Model
from reticent.federated.server import Round, Training
from reticent.federated.softmax import Softmax
from reticent.federated.steps import Steps
from reticent.federated.tasks import Task

__all__ = ["SVM", "Client", "Linear", "Logistic", "Model", "Round", "Softmax", "Steps", "Task", "Training"]
