"""The documents' figures and tables, redone with every mechanism, ours and the limit beside them."""

from reticent.experiments.base import Options, Outcome, Written
from reticent.experiments.data import DataMissing
from reticent.experiments.registry import EXPERIMENTS, Experiment, find

__all__ = ["EXPERIMENTS", "DataMissing", "Experiment", "Options", "Outcome", "Written", "find"]
