"""The auditor that gates every claim: exact checks, fit, black box, support, totality, planted bugs.

* `exact`, `structure`: the law itself, in rationals, without a draw (T1).
* `fit`: the sampler against the law (T2).
* `black_box`: a lower bound on the loss of any callable, from outputs alone (T3).
* `support`: nothing possible under one input and impossible under another (T12b).
* `total`: data-dependent refusals, reused streams, answers memoised by value.
* `runs`: a lower bound on the loss of a whole training, from one run of it with canaries.
* `gate`: all of these for one mechanism, for a user's function, for the whole library.
* `leakage`: what an update of a model tells of its records (`gradients`), and how much any attack can learn.
* `flower`: all that leaves of a Flower app, on invented data (needs Flower).
* `page`, `leak_page`: reports as pages, and a plot. `planted`: the bugs that every check is shown to catch.

An audit that passes is not a proof; each module says what its check shows and what it does not.
"""

from reticent.audit.black_box import black_box
from reticent.audit.exact import check_channel, check_matrix
from reticent.audit.findings import (
    BlackBoxFinding,
    ExactFinding,
    Finding,
    FitFinding,
    RunFinding,
    SupportFinding,
)
from reticent.audit.fit import fit
from reticent.audit.gate import Report, audit, audit_all, audit_callable
from reticent.audit.leakage.gradients import GradientAudit, gradients
from reticent.audit.runs import audit_run, audit_training
from reticent.audit.structure import check_structure
from reticent.audit.support import check_support, check_support_exact
from reticent.audit.total import check_memory, check_streams, check_total

__all__ = [
    "BlackBoxFinding",
    "ExactFinding",
    "Finding",
    "FitFinding",
    "GradientAudit",
    "Report",
    "RunFinding",
    "SupportFinding",
    "audit",
    "audit_all",
    "audit_callable",
    "audit_run",
    "audit_training",
    "black_box",
    "check_channel",
    "check_matrix",
    "check_memory",
    "check_streams",
    "check_structure",
    "check_support",
    "check_support_exact",
    "check_total",
    "fit",
    "gradients",
]
