"""The text of a crowd's task: what is learnt, how, on which grid, and how updates are judged.

The contract keeps its CID, so every byte of it is signed by the poster. A task has one text only: JSON
with sorted fields and no spaces. What is paid and how long windows are stands in the contract itself.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from reticent.arguments import whole
from reticent.errors import ParameterError, ParameterTypeError
from reticent.federated.crowd.modes import Training, training_of
from reticent.federated.crowd.terms import MOST_ROUNDS, Terms
from reticent.federated.robust.averages import Integers
from reticent.federated.robust.grid import Grid
from reticent.federated.robust.reputation import MULTIPLE
from reticent.fleet import texts
from reticent.peers import read_json
from reticent.store import Cid, Store, tensors, unixfs

FORMAT = 1
MOST_BYTES = 1 << 14  # of a text
MOST_PURPOSE = 1000
MOST_MULTIPLE = 1000
MOST_TEST = 1 << 20  # rows of a test file
MOST_TEST_NUMBERS = 1 << 26  # features in it: files that repeat themselves cost a store nothing
MOST_TEST_WORK = 1 << 36  # rows times numbers of the model
_TOGETHER = 1 << 20  # features or classes of rows that are classified at once
MOST_MODEL = 1 << 52  # of a number of a model, in grid steps: doubles hold it
MOST_LIARS = 255
_NAMES = ("format", "purpose", "mode", "training", "grid", "rounds", "liars", "multiple", "test")
_GRID = ("dimensions", "steps", "norm", "floor")


@dataclass(frozen=True)
class PublicTest:
    """Rows that everybody may have, on which a model's accuracy is told.

    Attributes:
        cid: CID of a safetensors file with `features` (F32, rows by inputs) and `labels` (I32).
        rows: Number of rows in the file.
    """

    cid: Cid
    rows: int

    def __post_init__(self) -> None:
        if not isinstance(self.cid, Cid):
            raise ParameterTypeError(f"cid must be a CID, got {type(self.cid).__name__}")
        whole("rows", self.rows, low=1, high=MOST_TEST)


@dataclass(frozen=True)
class CrowdTask:
    """A task that a crowd learns. The same task has the same text on every machine.

    Attributes:
        purpose: in words, for those who train.
        training: a mode with its parameters.
        grid: of updates, with norm limit and floor.
        rounds: of the task: over all of them its privacy is counted. The contract must have as many.
        liars: Number f of Multi-Krum. The contract must have the same.
        multiple: of the median score, which a rejected score must pass to be called low.
        test: a public test file, if there is one.
    """

    purpose: str
    training: Training
    grid: Grid
    rounds: int
    liars: int
    multiple: int = MULTIPLE
    test: PublicTest | None = None

    def __post_init__(self) -> None:
        purpose = self.purpose
        if not isinstance(purpose, str) or not 0 < len(purpose) <= MOST_PURPOSE or not purpose.isprintable():
            raise ParameterError(f"purpose must be a printable text of 1 to {MOST_PURPOSE} characters")
        if not isinstance(self.training, Training) or not isinstance(self.grid, Grid):
            raise ParameterTypeError("training must be of `modes`, and grid a Grid")
        whole("rounds", self.rounds, low=1, high=MOST_ROUNDS)
        whole("liars", self.liars, low=0, high=MOST_LIARS)
        whole("multiple", self.multiple, low=1, high=MOST_MULTIPLE)
        if self.grid.dimensions != self.training.dimensions:
            raise ParameterError(
                f"grid must have the {self.training.dimensions} dimensions of the model, "
                f"got {self.grid.dimensions}"
            )
        self.training.check(self.grid, self.rounds)
        self._check_test()

    def _check_test(self) -> None:
        """Refuse test rows that would take an observer's memory, or hours."""
        if self.test is None:
            return
        if not isinstance(self.test, PublicTest):
            raise ParameterTypeError(f"test must be a PublicTest or None, got {type(self.test).__name__}")
        rows = self.test.rows
        for what, each, most in (
            ("inputs", self.training.inputs_of_test, MOST_TEST_NUMBERS),
            ("dimensions", self.grid.dimensions, MOST_TEST_WORK),
        ):
            if rows * each > most:
                raise ParameterError(
                    f"rows of the test times {what} must be at most {most}, got {rows * each}"
                )

    def to_json(self) -> bytes:
        """Return the text of the task."""
        test = None if self.test is None else {"cid": str(self.test.cid), "rows": self.test.rows}
        return texts.written(
            {
                "format": FORMAT,
                "purpose": self.purpose,
                "mode": self.training.mode,
                "training": self.training.words(),
                "grid": asdict(self.grid),
                "rounds": self.rounds,
                "liars": self.liars,
                "multiple": self.multiple,
                "test": test,
            }
        )

    @classmethod
    def from_json(cls, text: Any) -> CrowdTask:
        """Return the task of a text.

        Raises:
            ParameterError: it is none, or not written as `to_json` writes it; in one line.
        """
        try:
            found = cls._of(_fields(text))
        except ParameterTypeError as error:
            raise ParameterError(f"the task: {error}") from error
        if found.to_json() != text:
            raise ParameterError(
                "the task must be JSON with sorted fields, no spaces and one form of numbers"
            )
        return found

    @classmethod
    def _of(cls, given: dict[str, Any]) -> CrowdTask:
        if given["format"] != FORMAT or isinstance(given["format"], bool):
            raise ParameterError(f"format must be {FORMAT}, got {given['format']!r:.60}")
        grid = texts.checked_fields("grid", given["grid"], _GRID)
        test = given["test"]
        if test is not None:
            fields = texts.checked_fields("test", test, ("cid", "rows"))
            test = PublicTest(Cid.parse(fields["cid"]), fields["rows"])
        return cls(
            given["purpose"],
            training_of(given["mode"], given["training"]),
            Grid(**grid),
            given["rounds"],
            given["liars"],
            given["multiple"],
            test,
        )

    @property
    def cid(self) -> Cid:
        """The identifier of the text, which the contract keeps."""
        return unixfs.cid_of(self.to_json())

    @property
    def mu2_units(self) -> int | None:
        """The cost of a round for each record of a home, in the ledger's units of mu^2."""
        return self.training.mu2_units(self.grid, self.rounds)

    def check_terms(self, terms: Terms) -> None:
        """Refuse a contract's terms that are another task's.

        Raises:
            ParameterError: other rounds or liars than the text says.
        """
        if (terms.rounds, terms.f) != (self.rounds, self.liars):
            raise ParameterError(
                f"the contract has {terms.rounds} rounds and f = {terms.f}, "
                f"the text {self.rounds} and {self.liars}"
            )

    @property
    def model_looks(self) -> tensors.Looks:
        """The tensors in the file of a model: whole numbers of grid steps."""
        return {"model": ("I64", (self.grid.dimensions,))}

    def model(self, store: Store, cid: Cid) -> Integers:
        """Return a model that is fetched from a store.

        Raises:
            StoreError: it cannot be fetched.
            ParameterError: it is no model of this task.
        """
        found: Integers = tensors.get(store, cid, self.model_looks)["model"]
        if int(found.max()) > MOST_MODEL or int(found.min()) < -MOST_MODEL:
            raise ParameterError(f"the numbers of a model must be at most {MOST_MODEL} grid steps")
        return found

    def model_file(self, model: Integers) -> bytes:
        """The file of a model."""
        return tensors.packed({"model": np.ascontiguousarray(model, dtype="<i8")})

    def start(self) -> bytes:
        """The file of a model of zeros, which is public."""
        return self.model_file(np.zeros(self.grid.dimensions, dtype=np.int64))

    def accuracy(self, store: Store, model: Integers) -> float | None:
        """Return the share of the public test rows that a model classifies right; None where there are none.

        Raises:
            StoreError: the test file cannot be fetched.
            ParameterError: it is another file.
        """
        if self.test is None:
            return None
        shape = (self.test.rows, self.training.inputs_of_test)
        looks = {"features": ("F32", shape), "labels": ("I32", (self.test.rows,))}
        found = tensors.get(store, self.test.cid, looks)
        theta, right = self.grid.values(model), 0
        size = max(1, _TOGETHER // max(shape[1], self.grid.dimensions // shape[1]))
        for at in range(0, self.test.rows, size):
            rows = slice(at, at + size)
            told = self.training.predicted(theta, found["features"][rows].astype(np.float64))
            right += int(np.count_nonzero(told == found["labels"][rows]))
        return right / self.test.rows


def read(store: Store, cid: bytes) -> CrowdTask:
    """Read the task that a contract names.

    Raises:
        StoreError: its text cannot be fetched.
        ParameterError: it is no task.
    """
    return CrowdTask.from_json(store.get(Cid.of_bytes(cid, "what the contract keeps"), most=MOST_BYTES))


def _fields(text: Any) -> dict[str, Any]:
    """Return the fields of a text, which must all be there and no other."""
    if not isinstance(text, bytes) or len(text) > MOST_BYTES:
        raise ParameterError(f"the task must be at most {MOST_BYTES} bytes")
    try:
        given = read_json(text, deepest=4)
    except ValueError as error:
        raise ParameterError("the task must be JSON") from error
    return texts.checked_fields("the task", given, _NAMES)
