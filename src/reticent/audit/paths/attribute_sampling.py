"""Records of which some attributes are reported: which ones, and what they say, audited together.

Every person reports k of d attributes, drawn independently of the data. A choice by the data (the attribute
that is largest, or that is not missing) gives it away although the report itself has the right noise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.audit.black_box import black_box
from reticent.audit.findings import Finding
from reticent.audit.outputs import Sampler
from reticent.mechanisms.record import Attribute, Category, Number, Record

RECORDS = ((-1.0, "car"), (1.0, "bus"), (math.nan, None))
"""Two records that are far apart, and a missing one."""


def make_record(kind: type[Record] = Record, *, epsilon: float = 1.0) -> Record:
    """Return a record of a number and a category, one of which is reported."""
    attributes: list[Attribute] = [Number("speed", (-1.0, 1.0)), Category("kind", ["car", "bus"], "bus")]
    return kind(attributes, epsilon, sample_size=1)


def record_sampler(record: Record) -> Sampler:
    """Return a function of a record and a count of people: rows of an attribute's number and its symbol."""

    def sample(value: Any, size: int) -> NDArray[np.int64]:
        table = {
            attribute.name: [part] * size for attribute, part in zip(record.attributes, value, strict=True)
        }
        reports = record.perturb(table)
        chosen = reports.sampled[:, 0]
        symbols = np.zeros(size, dtype=np.int64)
        for number, attribute in enumerate(record.attributes):
            symbols[chosen == number] = np.asarray(reports.reports[attribute.name], dtype=np.int64)
        return np.stack([chosen, symbols], axis=1)

    return sample


def find_telling_choice(record: Record, quick: bool) -> Finding:
    """Return whether attribute and symbol together keep the record's claim, by a black box."""
    samples = 20_000 if quick else 200_000
    return black_box(record_sampler(record), RECORDS, epsilon=record.epsilon, samples=samples)
