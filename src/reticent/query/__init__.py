"""Questions about a data set, answered under a budget: ask once, pay once, reuse for ever."""

from reticent.query.answers import Answer, Case, Price, Receipt
from reticent.query.columns import Column, Kind
from reticent.query.datasets import DataSet, Policy
from reticent.query.opening import open  # noqa: A004
from reticent.query.session import Session
from reticent.query.tree import (
    By,
    Query,
    count,
    histogram,
    mean,
    median,
    proportion,
    quantile,
    total,
    variance,
)

__all__ = [
    "Answer",
    "By",
    "Case",
    "Column",
    "DataSet",
    "Kind",
    "Policy",
    "Price",
    "Query",
    "Receipt",
    "Session",
    "count",
    "histogram",
    "mean",
    "median",
    "open",
    "proportion",
    "quantile",
    "total",
    "variance",
]
