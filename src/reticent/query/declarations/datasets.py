"""A data set as its owner declares it: the protected unit, the public facts and the budget.

`dataset_file` reads the file that people write; `source` finds the rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Any

from reticent.arguments import meant, whole
from reticent.errors import ParameterError, ParameterTypeError
from reticent.ledger import Terms, Unit
from reticent.privacy import Budget, Neighbours
from reticent.query.rows.columns import Column, Kind, ReadabilityColumn, readability_name

MOST_COLUMNS = 1000
MOST_ROWS = 1 << 36  # sums stay below 2^62 on the grid of the noise
LARGEST_CONTRIBUTION = 1000
FORMATS = (1, 2)  # of declarations; each says what cells and rows mean, and keeps saying it
_PURCHASES = 10**6  # a fresh measurement costs at least this part of the cap (mathematics 4.8)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


class Policy(Enum):
    """The answer to a request for less accuracy than was bought before."""

    SHARE = "share"  # the best recorded answer
    DEGRADE = "degrade"  # an answer made coarser: a price tier, no privacy feature (mathematics 4.9)


@dataclass(frozen=True)
class DataSet:
    """A data set as its owner declares it.

    Args:
        name: Name of the data set, and of its account in the ledger if it has one of its own.
        version: Version, raised by the owner alone; part of every question's key.
        columns: Columns that may be asked about.
        budget: Budget for ever, over all versions.
        relation: Neighbouring relation: REPLACE_ONE (the number of rows is public) or ADD_REMOVE_ONE (it is
            not).
        rows: Public number of rows, needed when one row is replaced.
        person: Column that says whose row it is; None protects single rows.
        contribution: Largest number of rows of one person that count; 1 when rows are protected.
        policy: Answer that a coarser request gets.
        identity: Random identity of these people, made when a declaration is first opened (`home`); part of
            the account's terms. Empty for data sets that no file declares.
        shares: Account that pays, if it is called after another declaration of the same source, or after
            people that other data sets are about, too.
        people: File of these people, as it is declared (`populations`); empty if the account is for this data
            set alone.
        format: Version of the declaration's rules: which cells and rows count, and as what. It is part of
            every question's key from 2 on, so that measurements of two meanings are never combined.
    """

    name: str
    version: str
    columns: tuple[Column, ...]
    budget: Budget
    relation: Neighbours = Neighbours.REPLACE_ONE
    rows: int | None = None
    person: str | None = None
    contribution: int = 1
    policy: Policy = Policy.SHARE
    source: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    identity: str = ""
    shares: str = ""
    people: str = ""
    format: int = FORMATS[0]

    def __post_init__(self) -> None:
        for part in ("name", "version"):
            checked_label(part, getattr(self, part))
        if not 0 < len(self.columns) <= MOST_COLUMNS:
            raise ParameterError(f"columns must be 1 to {MOST_COLUMNS}, got {len(self.columns)}")
        if len({column.name for column in self.columns}) != len(self.columns):
            raise ParameterError("columns must have different names")
        if not isinstance(self.budget, Budget):
            raise ParameterTypeError(f"budget must be a Budget, got {type(self.budget).__name__}")
        if self.relation not in (Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE_ONE):
            raise ParameterError("relation must be 'replace one' or 'add or remove one'")
        if not isinstance(self.policy, Policy):
            raise ParameterTypeError(f"policy must be a Policy, got {self.policy!r}")
        check_format(self.format)
        for column in self.columns:
            if column.stored is not None and self.format == FORMATS[0]:
                raise ParameterError(f"columns.{column.name}.stored must be left out in format 1")
        columns = tuple(column.in_format(self.format) for column in self.columns)
        object.__setattr__(self, "columns", columns)
        for name in self.readability:
            if name in self.named:
                raise ParameterError(f"columns.{name} must have another name: this one says which cells of "
                                     "another column cannot be read")  # fmt: skip
        check_rows(self.relation, self.person, self.contribution, self.rows)

    @property
    def unit(self) -> str:
        """The protected unit in words: row or person."""
        return "row" if self.person is None else "person"

    @property
    def subject(self) -> str:
        """The description of those whose data the account protects."""
        if self.people:
            return subject_of_people(self.account)
        bound = "" if self.person is None else f" with at most {self.contribution} rows"
        return f"one {self.unit} of {self.account}{bound}"

    @property
    def account(self) -> str:
        """The name of the account that pays for every answer."""
        return self.shares or self.name

    @cached_property
    def named(self) -> Mapping[str, Column]:
        """The declared columns by name."""
        return MappingProxyType({column.name: column for column in self.columns})

    @cached_property
    def readability(self) -> Mapping[str, Column]:
        """The columns, by name, that say which cells cannot be read; none in format 1."""
        if self.format == FORMATS[0]:
            return MappingProxyType({})
        checked = [column for column in self.columns if column.kind is not Kind.CATEGORY]
        return MappingProxyType({column.name: column for column in map(ReadabilityColumn.of, checked)})

    @cached_property
    def coded(self) -> Mapping[str, Column]:
        """All columns that rows are prepared as, by their names in the prepared table."""
        declared = {f"c{number}": column for number, column in enumerate(self.columns)}
        checks = {f"u{number}": self.readability.get(readability_name(column.name))
                  for number, column in enumerate(self.columns)}  # fmt: skip
        return MappingProxyType(declared | {name: column for name, column in checks.items() if column})

    def column(self, name: str) -> Column:
        """Return the column of a name, or raise an error that lists the columns."""
        try:
            return self.readability[name] if name in self.readability else self.named[name]
        except KeyError as error:
            known = ", ".join(list(self.named)[:20])
            raise ParameterError(
                f"column must be one of {known}, got {name!r:.60}{meant(name, self.named)}"
            ) from error

    @cached_property
    def terms(self) -> Terms:
        """The terms of the account that pays for every answer about this data set, whatever the version."""
        return account_terms(self.account, self.relation, self.subject, self.budget, self.identity)


def checked_label(part: str, given: object) -> str:
    """Return a name or a version if it is valid."""
    if not isinstance(given, str) or not _NAME.fullmatch(given):
        raise ParameterError(f"{part} must be 1 to 80 letters, digits or ._-, got {given!r:.60}")
    return given


def check_format(format_number: object) -> None:
    """Refuse a format of declarations that this release does not know."""
    if type(format_number) is not int or format_number not in FORMATS:
        known = " or ".join(map(str, FORMATS))
        raise ParameterError(
            f"format must be {known}, got {format_number!r:.40}: a later one needs a later release"
        )


def check_rows(relation: Neighbours, person: str | None, contribution: int, rows: int | None) -> None:
    """Refuse numbers of rows that do not fit what is protected."""
    whole("unit.rows", contribution, low=1, high=LARGEST_CONTRIBUTION if person is not None else 1)
    if relation is Neighbours.REPLACE_ONE and person is None:
        if rows is None:
            raise ParameterError("rows must be given when one row is replaced: their number is public then")
        whole("rows", rows, low=1, high=MOST_ROWS)
    elif rows is not None:
        unit = "row" if person is None else "person"
        raise ParameterError(
            f"rows must be left out for '{relation.value}' of a {unit}: their number is private"
        )


def account_terms(
    account: str, relation: Neighbours, subject: str, budget: Budget, identity: str = ""
) -> Terms:
    """Return the terms of an account with a declared budget."""
    cap = budget.mu2_cap
    minimum = max(1, cap // _PURCHASES)
    whose = f"{subject} [{identity}]" if identity else subject
    return Terms(account, Unit.MU2, relation, whose, cap, minimum)


def subject_of_people(account: str) -> str:
    """Return the description of those whose data an account of several data sets protects."""
    return f"one person of {account}, over all that is about them"
