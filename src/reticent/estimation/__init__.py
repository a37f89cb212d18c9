"""Estimators from noisy reports: means, frequencies, distributions, and shifts that liars can cause.

Everything here works on public data (reports, or counts of them, which merge by addition) and
costs no privacy. Intervals hold for every number of reports, one report included.
"""

from reticent.estimation.combining import combined_frequencies, combined_mean
from reticent.estimation.distributions import (
    DistributionEstimate,
    bin_matrix,
    generalised_ibu,
    ibu,
    numeric_distribution,
)
from reticent.estimation.frequencies import (
    FrequencyEstimate,
    Inversion,
    frequency_estimate,
    invert,
    project_to_simplex,
)
from reticent.estimation.intervals import deviation_bound, proportion_interval
from reticent.estimation.means import MeanEstimate, mean_estimate, report_counts, symbol_counts
from reticent.estimation.poisoning import Shift, frequency_shift, mean_shift

__all__ = [
    "DistributionEstimate",
    "FrequencyEstimate",
    "Inversion",
    "MeanEstimate",
    "Shift",
    "bin_matrix",
    "combined_frequencies",
    "combined_mean",
    "deviation_bound",
    "frequency_estimate",
    "frequency_shift",
    "generalised_ibu",
    "ibu",
    "invert",
    "mean_estimate",
    "mean_shift",
    "numeric_distribution",
    "project_to_simplex",
    "proportion_interval",
    "report_counts",
    "symbol_counts",
]
