"""Populations that several data sets are about: one small file names them, and one account pays.

`patients.people`, beside the declarations or anywhere else:

    people: patients
    budget: {epsilon: 2, delta: 1e-6}   # for ever, over all data sets of these people
    relation: replace one               # or: add or remove one
    devices: 1                          # the most devices of one person; needed for surveys and trainings

A declaration joins by `people: patients` (the file beside it) or `people: ../shared/patients.people`. The
account and its home belong to that file, at its resolved path (`patients.people.reticent`): all declarations
that name it find the same one, wherever they lie, and there is no list of them that could be forgotten.

Privacy: a person of the account is at most one id in each data set, with the rows that this one bounds, and
at most `devices` enrolled devices. A release about one data set that is mu-GDP for its persons is mu-GDP for
such a person, whatever her rows elsewhere are; so the mu^2 of all releases add up (mathematics 4.4), where
each is chosen after seeing those before. That needs the same relation everywhere, and persons as units: how
many rows of a table with `unit: row` are one person's, nobody declares.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from reticent.errors import AccountConflict, ParameterError, ParameterTypeError
from reticent.privacy import Budget, Neighbours
from reticent.query.declarations.datasets import DataSet

SUFFIX = ".people"
MOST_DEVICES = 1000
_FIELDS = ("people", "budget", "relation", "devices")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True)
class Population:
    """A population as its file declares it.

    Attributes:
        path: Resolved path of the file.
        name: Name of the people.
        budget: Budget for ever, over all that is under their account.
        relation: Neighbouring relation: two populations that must look alike differ in one person.
        devices: Largest number of devices of one person that surveys and trainings enrol; None if not
            declared.
    """

    path: Path
    name: str
    budget: Budget
    relation: Neighbours
    devices: int | None = None

    @property
    def account(self) -> str:
        """The name of their account: no data set's, since those have no colon."""
        return f"people:{self.name}"


def path_of(declaration: Path, people: str) -> Path:
    """Return the resolved path of the file of people that a declaration names: a name, or a relative path."""
    name = people if people.endswith(SUFFIX) else f"{people}{SUFFIX}"
    return (Path(declaration).resolve().parent / name).resolve()


def checked_name(people: str) -> str:
    """Return the people of a declaration if valid: a name, or the path of a file that ends in .people."""
    if _NAME.fullmatch(people) or (people.endswith(SUFFIX) and people.isprintable() and len(people) <= 500):
        return people
    raise ParameterError(f"people must be a name, or a path that ends in {SUFFIX}, got {people!r:.60}")


def read(path: Path) -> Population:
    """Read the population that a file declares.

    Raises:
        ParameterError: The file is invalid; the message names file, field, rule and value in one line.
    """
    from reticent.query.declarations import dataset_file

    try:
        with path.open("rb") as file:
            text = file.read(dataset_file.LARGEST_FILE + 1).decode()
        given = dataset_file.mapping("the file", dataset_file.load(text), _FIELDS)
        name = given.get("people")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ParameterError(f"people must be 1 to 80 letters, digits or ._-, got {name!r:.60}")
        devices = dataset_file.whole_number("devices", given["devices"]) if "devices" in given else None
        if devices is not None and not 0 < devices <= MOST_DEVICES:
            raise ParameterError(f"devices must be 1 to {MOST_DEVICES}, got {devices}")
        return Population(
            path.resolve(),
            name,
            dataset_file.budget_of(given.get("budget")),
            dataset_file.relation_of(given.get("relation")),
            devices,
        )
    except FileNotFoundError as error:
        raise ParameterError(f"people must name a file with their budget, there is none at {path}") from error
    except UnicodeDecodeError as error:
        raise ParameterError(f"{path.name}: must be text in UTF-8") from error
    except OSError as error:
        raise ParameterError(f"{path.name} cannot be read: {error.strerror}") from error
    except (ParameterError, ParameterTypeError) as error:
        raise type(error)(f"{path.name}: {error}") from error


def of(declaration: Path, data: DataSet) -> Population | None:
    """Return the population of a declaration that shares an account with others; it must agree with the file.

    Raises:
        AccountConflict: Unit, relation or budget are not those of the people.
    """
    if not data.people:
        return None
    found = read(path_of(declaration, data.people))
    at, whose = Path(declaration).name, f"those of {found.path.name}"
    if data.person is None:
        raise AccountConflict(
            f"{at}: unit must be {{person: COLUMN, rows: NUMBER}} with people: {found.name}, got row: how "
            "many rows one of them has must be declared"
        )
    if data.relation is not found.relation:
        raise AccountConflict(
            f"{at}: relation must be {found.relation.value!r}, {whose}, got {data.relation.value!r}"
        )
    for part in ("epsilon", "delta"):
        due, given = getattr(found.budget, part), getattr(data.budget, part)
        if due != given:
            raise AccountConflict(f"{at}: budget.{part} must be {due:g}, {whose}, got {given:g}")
    return found
