"""Averages of updates from people of whom some lie, the same to the last bit on every machine.

`grid` says which updates there are: whole numbers of a public step, no longer than a public norm. `krum` and
`averages` are exact sums over them, `judging` a whole round, `reputation` what follows for those who took
part, `attacks` what liars do. Nothing here protects anybody's records: updates are public when they are
judged, and noise is drawn before they are made.
"""

from reticent.federated.robust.averages import mean, median, trimmed_mean
from reticent.federated.robust.grid import Grid
from reticent.federated.robust.judging import Judgement, judge
from reticent.federated.robust.krum import multi_krum
from reticent.federated.robust.reputation import Evaluation

__all__ = ["Evaluation", "Grid", "Judgement", "judge", "mean", "median", "multi_krum", "trimmed_mean"]
