"""Everything in the span of what was bought is free: any linear question from all recorded purchases.

`Joint.record` takes in what is recorded under each question; `Joint.fresh` says how many units more must be
recorded under a question for an answer worth so many, so `ledger.request` is asked for those and the recorded
ones together; `Joint.estimates` combines, once they are recorded and taken in; `combined_cells` shows it,
and `certify` what it is made of, for `check_certificate`.
"""

from reticent.query.span.answering import combined_cells, is_combined
from reticent.query.span.certificate import certify, check_certificate
from reticent.query.span.joint import Joint
from reticent.query.span.weights import Estimate

__all__ = ["Estimate", "Joint", "certify", "check_certificate", "combined_cells", "is_combined"]
