"""Exact leakage of updates: records from gradients without a search, and bounds on any attack.

* `inversion`: the entry, for any sequence of linear layers with ReLU between them (`layers`).
* `records`, `clones`: one record, with or without the gradients of biases; the lengths that share an update.
* `batches`, `labels`: a batch of fewer records than classes, whose classes are told or found.
* `sensitivity`: the family that an update leaves, its condition number, the error under noise.
* `verdicts`: everything, one of n candidates, a family of dimension n, nothing.
* `bounds`: the greatest chance of success of any attack against a private update.

A verdict says what the update and the model determine together. It takes neither the limits of an attacker's
patience nor what else he may know into account, and a verdict of nothing is no guarantee of privacy.
"""

from reticent.audit.leakage.bounds import success_under_epsilon, success_under_exchange, success_under_mu
from reticent.audit.leakage.clones import clone, clones_of_the_other_label
from reticent.audit.leakage.inversion import family_dimension, invert
from reticent.audit.leakage.layers import Layers, Update
from reticent.audit.leakage.sensitivity import Sensitivity, sensitivity
from reticent.audit.leakage.verdicts import Candidate, Kind, Leak

__all__ = [
    "Candidate",
    "Kind",
    "Layers",
    "Leak",
    "Sensitivity",
    "Update",
    "clone",
    "clones_of_the_other_label",
    "family_dimension",
    "invert",
    "sensitivity",
    "success_under_epsilon",
    "success_under_exchange",
    "success_under_mu",
]
