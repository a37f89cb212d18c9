"""Hospitals as clients: four services each, where they are, and what they were paid; a small network for all.

Reference: Biswas 2023, Appendix E, "Hospital charge data". Not printed, and read here as: the services are
DRG 194, 690, 292 and 392; hospitals have at least three of them and lie in the contiguous states. That gives
the 2,947 clients of the text exactly, and 2,062 of them to train. "In the range of the units": index / 4,
degrees / 100, dollars / 10,000. Hospitals whose ZIP code has no position, four, get the mean of their region.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reticent.experiments.data import DataMissing, directory
from reticent.federated.networks import TwoLayers
from reticent.federated.personalised.learners import Indices
from reticent.mechanisms.base import Floats

CHARGES, PROVIDERS = "hospital_charges_fy2011.csv.gz", "hospital_providers.csv.gz"
SERVICES = (194, 690, 292, 392)  # pneumonia, urinary tract infection, heart failure, digestive disorder
LEAST_SERVICES = 3
OUTSIDE = ("AK", "HI")
DOLLARS = 10_000.0


@dataclass(frozen=True)
class Hospitals:
    """Clients of one network; a `Population` of personalised training.

    Attributes:
        features: shape (clients, 4, 3): service, longitude, latitude.
        targets: average total payments, shape (clients, 4).
        weights: of the records of a client, in sum 1; 0 for a service that it does not offer.
    """

    features: Floats
    targets: Floats
    weights: Floats
    network: TwoLayers

    def __len__(self) -> int:
        return len(self.features)

    def some(self, who: Indices) -> Hospitals:
        """Some of them."""
        return Hospitals(self.features[who], self.targets[who], self.weights[who], self.network)

    def losses(self, hypotheses: Floats, who: Indices) -> Floats:
        """The RMSE of each hypothesis on the data of each client, shape (clients, k)."""
        x, y, w = self.features[who], self.targets[who], self.weights[who]
        squares = [(self.network.losses(theta, x, y) * w).sum(axis=1) for theta in hypotheses]
        return np.asarray(np.sqrt(np.stack(squares, axis=1)))

    def updated(self, starts: Floats, who: Indices, *, rate: float, epochs: int) -> Floats:
        """Steps down the RMSE of each client."""
        thetas, x, y, w = np.array(starts), self.features[who], self.targets[who], self.weights[who]
        for _ in range(epochs):
            rmse = np.sqrt((self.network.losses(thetas, x, y) * w).sum(axis=1))[:, None]
            slopes = (self.network.gradients(thetas, x, y) * w[:, :, None]).sum(axis=1)
            thetas -= rate * slopes / (2.0 * np.maximum(rmse, 1e-9))
        return thetas

    def rmse(self, hypotheses: Floats, who: Indices | None = None) -> float:
        """The mean RMSE of clients, each with the hypothesis that fits it best. Simulation only."""
        everyone = np.arange(len(self)) if who is None else who
        return float(self.losses(hypotheses, everyone).min(axis=1).mean())


def load(given: Path | None = None) -> Hospitals:
    """Read the hospitals.

    Raises:
        DataMissing: a file is not there.
    """
    where = _positions(directory(given) / PROVIDERS)
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for row in _rows(directory(given) / CHARGES):
        if int(row["drg_code"]) in SERVICES and row["provider_id"] in where:
            found[row["provider_id"]][SERVICES.index(int(row["drg_code"]))] = float(row["avg_total_payments"])
    kept = [(where[name], paid) for name, paid in sorted(found.items()) if len(paid) >= LEAST_SERVICES]
    features = np.zeros((len(kept), 4, 3))
    targets, weights = np.zeros((2, len(kept), 4))
    for client, ((longitude, latitude), paid) in enumerate(kept):
        for service, dollars in paid.items():
            features[client, service] = (service + 1) / 4.0, longitude / 100.0, latitude / 100.0
            targets[client, service] = dollars / DOLLARS
            weights[client, service] = 1.0 / len(paid)
    return Hospitals(features, targets, weights, TwoLayers(3, 2))


def _positions(path: Path) -> dict[str, tuple[float, float]]:
    """Longitude and latitude of each hospital in the contiguous states."""
    rows = [row for row in _rows(path) if row["state"] not in OUTSIDE]
    by_region: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        if row["lat"]:
            by_region[row["hrr"]].append((float(row["lon"]), float(row["lat"])))
    means = {region: np.mean(places, axis=0) for region, places in by_region.items()}
    return {
        row["provider_id"]: (float(row["lon"]), float(row["lat"]))
        if row["lat"]
        else (float(means[row["hrr"]][0]), float(means[row["hrr"]][1]))
        for row in rows
        if row["lat"] or row["hrr"] in means
    }


def _rows(path: Path) -> Iterator[dict[str, str]]:
    if not path.is_file():
        raise DataMissing(f"the hospitals need {path.name} in the directory of --data or RETICENT_DATA")
    with gzip.open(path, "rt", encoding="utf-8", newline="") as handle:
        yield from csv.DictReader(handle)
