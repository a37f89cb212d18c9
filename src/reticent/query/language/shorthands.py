"""One method for each kind of question, for whatever can be asked: a session here or a service elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from reticent.query.answers import Answer
from reticent.query.language import tree


class Shorthands(ABC):
    """What `ask` answers, by name. Accuracy is given as for `ask`."""

    @abstractmethod
    def ask(self, *args: Any, **kwargs: Any) -> Answer:
        """Answer a query."""

    def count(self, *, where: Any = None, by: Any = (), **accuracy: Any) -> Answer:
        """How many rows. Accuracy as for `ask`."""
        return self.ask(tree.count(where=where, by=by), **accuracy)

    def sum(self, column: str, *, where: Any = None, by: Any = (), **accuracy: Any) -> Answer:
        """The sum of a column. Accuracy as for `ask`."""
        return self.ask(tree.total(column, where=where, by=by), **accuracy)

    def mean(self, column: str, *, where: Any = None, by: Any = (), **accuracy: Any) -> Answer:
        """The mean of a column. Accuracy as for `ask`."""
        return self.ask(tree.mean(column, where=where, by=by), **accuracy)

    def proportion(self, of: Any, *, where: Any = None, by: Any = (), **accuracy: Any) -> Answer:
        """The share of the rows `of` among the rows `where`. Accuracy as for `ask`."""
        return self.ask(tree.proportion(of, where=where, by=by), **accuracy)

    def variance(self, column: str, *, where: Any = None, by: Any = (), **accuracy: Any) -> Answer:
        """The variance of a column. Accuracy as for `ask`."""
        return self.ask(tree.variance(column, where=where, by=by), **accuracy)

    def histogram(self, by: Any, *, where: Any = None, **accuracy: Any) -> Answer:
        """How many rows in each category or bin. Accuracy as for `ask`."""
        return self.ask(tree.histogram(by, where=where), **accuracy)

    def quantile(
        self,
        column: str,
        levels: float | Sequence[float],
        *,
        where: Any = None,
        bins: Any = 256,
        **accuracy: Any,
    ) -> Answer:
        """Quantiles of a column, read off a histogram. Accuracy as for `ask`; `error` is of the rank."""
        return self.ask(tree.quantile(column, levels, where=where, bins=bins), **accuracy)

    def median(self, column: str, *, where: Any = None, bins: Any = 256, **accuracy: Any) -> Answer:
        """The median of a column, read off a histogram. Accuracy as for `ask`; `error` is of the rank."""
        return self.ask(tree.median(column, where=where, bins=bins), **accuracy)
