"""Records rebuilt from updates by search: what a server can do that looks for the data behind what it gets.

* `observed`: an update, what is known beside it, and what an attack made of it; labels from the last layer.
* `matching`: DLG, cosine matching, the most likely records under a prior; gradients and local steps (torch).
* `imprint`: a server that chooses the model (torch).
* `linear`: the most likely record of a linear model. `prior`: a normal law of public records.
* `candidates`: the best attacker among N, exact for LDP-FedSGD reports from their bytes.
* `updates`: what is attacked: raw, clipped, Gaussian, Laplace, the documents' rule.
* `measures`: squared error, PSNR, SSIM, attributes told rightly, batches matched.

Importing this loads no torch. Exact inversion, without a search, and the bounds on any attack are in
`leakage`. An attack that fails is no proof of privacy; a bound is.
"""

from reticent.audit.reconstruction.candidates import (
    best_success_of_reports,
    expected_record,
    posterior_of_gaussian,
    posterior_of_reports,
)
from reticent.audit.reconstruction.imprint import imprinted, read_imprint
from reticent.audit.reconstruction.linear import LinearGuess, most_likely_linear
from reticent.audit.reconstruction.matching import cosine, dlg, most_likely
from reticent.audit.reconstruction.observed import LocalSteps, Observed, Rebuilt, likely_labels
from reticent.audit.reconstruction.prior import GaussianPrior

__all__ = [
    "GaussianPrior",
    "LinearGuess",
    "LocalSteps",
    "Observed",
    "Rebuilt",
    "best_success_of_reports",
    "cosine",
    "dlg",
    "expected_record",
    "imprinted",
    "likely_labels",
    "most_likely",
    "most_likely_linear",
    "posterior_of_gaussian",
    "posterior_of_reports",
    "read_imprint",
]
