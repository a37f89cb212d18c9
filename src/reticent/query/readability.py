"""Unreadable cells of a column: questions about their share, and the notes on them in answers.

A word in a column of numbers counts as missing. If the source stores text, the number of such cells is
private, so their share is bought like every other answer: promised, paid for and released with noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reticent.query.declarations.datasets import DataSet
from reticent.query.language.questions import Question, columns_read
from reticent.query.language.tree import Comparison, Query, proportion
from reticent.query.rows.columns import Column, readability_name
from reticent.query.rows.stored_types import is_stored_as_text

_MAX_NAMED = 5  # columns in a note
_NEGLIGIBLE_SHARE = 0.01  # of cells: so few unreadable ones need no note, if the interval shows it
Share = tuple[float, float, float]  # of cells: the estimate, and the ends of its interval


def checked_columns(data: DataSet) -> tuple[Column, ...]:
    """Return the columns whose share of unreadable cells can be bought: numbers and booleans in text."""
    return tuple(column for column in data.columns if is_stored_as_text(data, column))


def unreadable_share(column: Column) -> Query:
    """Return the query for the share of a column's cells that cannot be read."""
    return proportion(Comparison(readability_name(column.name), "=", True))


def readability_notes(question: Question, bought_share: Callable[[Column], Share | None]) -> tuple[str, ...]:
    """Return the notes of an answer on the unreadable cells of the columns that its question reads.

    Args:
        question: Question that is answered.
        bought_share: Function from a column to its bought share of unreadable cells; None if not bought.
    """
    names = columns_read(question)
    columns = [column for column in checked_columns(question.data) if column.name in names]
    shares = {column.name: bought_share(column) for column in columns}
    unknown = [name for name, share in shares.items() if share is None]
    notes = []
    if unknown:  # first: it is not cut off
        notes.append(
            f"how many cells of {_listed(unknown)} cannot be read is not known: such cells count as missing. "
            "`reticent dataset check YAML --spend 0.1%` tells it"
        )
    for name, share in shares.items():
        if share is not None and not _is_negligible(share):
            notes.append(_share_note(name, share))
    return tuple(notes[:_MAX_NAMED])


def _is_negligible(share: Share) -> bool:
    """Return True if a share is known to be small. A wide interval that begins at 0 says nothing."""
    _, low, high = share
    return low <= 0 and high <= _NEGLIGIBLE_SHARE


def _share_note(name: str, share: Share) -> str:
    value, low, high = (f"{100 * part:.3g}" for part in share)
    if share[1] <= 0:
        return (
            f"up to {high} % of the cells of {name} cannot be read, as far as is known, and count as missing"
        )
    return f"about {value} % ({low} to {high} %) of the cells of {name} cannot be read, and count as missing"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more columns" if more > 0 else "")
