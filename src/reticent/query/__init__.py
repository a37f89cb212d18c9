"""Questions about a data set, answered under a budget: ask once, pay once, reuse for ever."""

from reticent.query.accuracy import Accuracy
from reticent.query.answers import Answer, Case, Price, Receipt
from reticent.query.declarations.datasets import DataSet, Policy
from reticent.query.language.tree import (
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
from reticent.query.opening import open  # noqa: A004
from reticent.query.rows.columns import Column, Kind
from reticent.query.session import Session

__all__ = [
    "Accuracy",
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
