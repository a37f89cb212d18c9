"""The kinds of questions: one line each. Checked here, at import: nothing may be there twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module

from reticent.query.kinds.base import Form, Kind, Measure

LISTED = (  # modules of this package, each with its KIND
    "count",
    "total",
    "mean",
    "proportion",
    "variance",
    "histogram",
    "quantile",
)
KINDS: tuple[Kind, ...] = tuple(import_module(f"reticent.query.kinds.{name}").KIND for name in LISTED)


class Measures:
    """What can be measured: by its name, or in the order in which the kinds bring them."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        listed = [measure for kind in kinds for measure in kind.measures]
        self._named = {measure.name: measure for measure in listed}
        if len(self._named) != len(listed):
            raise TypeError("two measures have one name")

    def __call__(self, name: str) -> Measure:
        """The one of a name."""
        if name not in self._named:
            raise ValueError(f"{name!r} is no measure")
        return self._named[name]

    def __getattr__(self, name: str) -> Measure:
        if name.startswith("_") or name.lower() not in self._named:
            raise AttributeError(name)
        return self._named[name.lower()]

    def __iter__(self) -> Iterator[Measure]:
        return iter(self._named.values())


def _named(kinds: Iterable[Kind]) -> dict[str, Kind]:
    listed = tuple(kinds)
    named = {kind.name: kind for kind in listed}
    forms = [form.name for kind in listed for form in kind.forms]
    nodes = [node for kind in listed for node in kind.aggregates]
    for what, names in (("kinds", [kind.name for kind in listed]), ("forms", forms), ("aggregates", nodes)):
        if len(set(names)) != len(names):
            raise TypeError(f"two {what} have one name")
    return named


KIND = _named(KINDS)
Measured = Measures(KINDS)
FORMS: dict[str, tuple[Kind, Form]] = {form.name: (kind, form) for kind in KINDS for form in kind.forms}
AGGREGATES = {node: read for kind in KINDS for node, read in kind.aggregates.items()}
