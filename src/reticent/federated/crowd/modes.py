"""The modes in which a crowd's homes train: a class for each, with the parameters of a task's text.

How the family may evolve: a new mode is one subclass of `Training`, a frozen dataclass whose fields are whole
numbers, floats or texts, and one entry in `MODES`. The text of a task, its rules and its one form follow from
the fields.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from reticent.arguments import real, whole
from reticent.errors import ParameterError, ParameterTypeError
from reticent.federated.on_device import HomeTask
from reticent.federated.robust.grid import Grid
from reticent.federated.softmax import Labels, Softmax
from reticent.federated.split.documented import NOT_PROTECTED, Documented
from reticent.federated.split.front import CELLS, RAW
from reticent.federated.split.noised import NoisedTask, nearest
from reticent.fleet import texts
from reticent.mechanisms.base import Floats
from reticent.store import Cid

MOST_TEXT = 200  # characters of a field that is a text


@dataclass(frozen=True)
class Training(ABC):
    """The parameters of a mode.

    Attributes:
        mode: Name of the mode in the text of a task.
    """

    mode: ClassVar[str]

    @property
    @abstractmethod
    def dimensions(self) -> int:
        """Numbers of the model, and of an update."""

    @abstractmethod
    def predicted(self, theta: Floats, features: Floats) -> Labels:
        """Return the model's class of each row, by which public accuracy is measured."""

    @property
    @abstractmethod
    def inputs_of_test(self) -> int:
        """Numbers in a row of the public test file."""

    @abstractmethod
    def check(self, grid: Grid, rounds: int) -> None:
        """Refuse parameters that cannot be trained with on this grid, in so many rounds."""

    @abstractmethod
    def mu2_units(self, grid: Grid, rounds: int) -> int | None:
        """Return the cost of a round per record, in the ledger's units of mu^2; None where there is none."""

    def warning(self, rounds: int) -> str | None:
        """Return the warning for people who choose the mode; None where it protects records as stated."""
        return None

    def words(self) -> dict[str, Any]:
        """Return the fields of the mode in the text of a task."""
        return asdict(self)


@dataclass(frozen=True)
class OnDevice(Training):
    """Softmax regression on the device (`on_device`).

    Attributes:
        inputs: numbers of a record.
        classes: that are told apart.
        l2: weight of the penalty.
        clip: see `on_device.HomeTask`, also for those below.
        records: Number of records by which the sum is divided.
        rate: of a step.
        steps: of a round.
        mu: of all rounds together, for each record.

    Privacy: what `on_device.HomeTask` says.
    """

    mode = "device"

    inputs: int
    classes: int
    l2: float
    clip: float
    records: int
    rate: float
    steps: int
    mu: float

    @property
    def model(self) -> Softmax:
        """The model that is learnt."""
        return Softmax(self.inputs, self.classes, l2=self.l2)

    @property
    def dimensions(self) -> int:
        """See `Training`, as for those below."""
        return self.model.dimensions

    @property
    def inputs_of_test(self) -> int:
        """The numbers of a record."""
        return self.inputs

    def predicted(self, theta: Floats, features: Floats) -> Labels:
        """The class of each row."""
        return self.model.predict(theta, features)

    def check(self, grid: Grid, rounds: int) -> None:
        """Refuse parameters that no home could train with."""
        self.home_task("0", grid, rounds)

    def mu2_units(self, grid: Grid, rounds: int) -> int | None:
        """Return the cost of a round, as a home pays it."""
        return self.home_task("0", grid, rounds).units

    def home_task(self, identifier: str, grid: Grid, rounds: int) -> HomeTask:
        """Return the task of a home, under the crowd task's identifier: 1 to 64 letters and digits."""
        return HomeTask(
            identifier, self.model, grid, self.clip, self.records, self.rate, self.steps, rounds, self.mu
        )


@dataclass(frozen=True)
class NoisedSplit(Training):
    """A public front on the phone, one noisy vector for each record, the rest at an edge (`split.noised`).

    Attributes:
        side: pixels of a picture each way.
        inputs: numbers of a picture that the front keeps.
        classes: that are told apart.
        front: CID of the front's file (`split.front`), public and fixed.
        rate: of the one step of a round.
        mu: of the vectors of a record, once for all rounds.

    Privacy: what `split.noised.NoisedTask` says.
    """

    mode = "noised"

    side: int
    inputs: int
    classes: int
    front: str
    rate: float
    mu: float

    @property
    def dimensions(self) -> int:
        """A block for each class."""
        return self.classes * self.inputs

    @property
    def inputs_of_test(self) -> int:
        """The numbers that the front computes: a test file holds features."""
        return self.inputs

    def predicted(self, theta: Floats, features: Floats) -> Labels:
        """The class of the nearest mean."""
        return nearest(theta, features, self.classes)

    def check(self, grid: Grid, rounds: int) -> None:
        """Refuse parameters that no home could train with."""
        whole("side", self.side, low=CELLS, high=128)
        whole("inputs", self.inputs, low=1, high=RAW)
        Cid.parse(self.front)
        self.noised_task("0", grid)

    def mu2_units(self, grid: Grid, rounds: int) -> int | None:
        """Return the round's share of the cost that a home pays once, rounded up."""
        return -(-self.noised_task("0", grid).units // rounds)

    def noised_task(self, identifier: str, grid: Grid) -> NoisedTask:
        """Return the task of a home, under the crowd task's identifier: 1 to 64 letters and digits."""
        return NoisedTask(identifier, self.inputs, self.classes, grid, self.rate, self.mu)


@dataclass(frozen=True)
class DocumentedSplit(Training):
    """The documents' split (`split.documented`). NO PROTECTION OF A RECORD, whatever epsilon is chosen.

    Attributes:
        record: Text that must be "not protected", so that everybody who writes or reads the task sees it.
        side: pixels of a picture each way.
        classes: that are told apart.
        hidden: units between features and classes.
        normalisation: one of `split.documented.NORMALISATIONS`.
        epsilon: of one value of one feature in one pass: no protection of a record.
        batch: pictures of a step.
        epochs: of a round.
        rate: of a step.
        seed: of the public start, which the model is counted from.

    Privacy: none. `split.documented.Spent` says what can be derived; nothing is charged to a ledger.
    """

    mode = "documented"

    record: str
    side: int
    classes: int
    hidden: int
    normalisation: str
    epsilon: float
    batch: int
    epochs: int
    rate: float
    seed: int

    @property
    def documented(self) -> Documented:
        """The split and its parameters."""
        return Documented(
            self.side, self.classes, self.hidden, self.normalisation, self.epsilon, self.batch, self.epochs,
            self.rate,
        )  # fmt: skip

    @property
    def dimensions(self) -> int:
        """The numbers of both halves."""
        return self.documented.dimensions

    @property
    def inputs_of_test(self) -> int:
        """The pixels of a picture."""
        return self.side * self.side

    def theta(self, model: Floats) -> Floats:
        """The layers of a model: a model of zeros is the public start."""
        return self.documented.start(self.seed) + model

    def predicted(self, theta: Floats, features: Floats) -> Labels:
        """The class of each picture."""
        return self.documented.predicted(self.theta(theta), features)

    def check(self, grid: Grid, rounds: int) -> None:
        """Refuse parameters that cannot be, and a text that hides what it does."""
        if self.record != NOT_PROTECTED:
            raise ParameterError(f"record must be {NOT_PROTECTED!r}: this mode protects none")
        whole("seed", self.seed, low=0, high=1 << 32)
        self.documented.spent(rounds)

    def warning(self, rounds: int) -> str | None:
        """Return the warning that no record is protected, with the amount that a record gives away."""
        spent = self.documented.spent(rounds)
        return None if spent is None else spent.words

    def mu2_units(self, grid: Grid, rounds: int) -> int | None:
        """Return None: no cost of this mode is an epsilon of a record."""
        return None


MODES: Mapping[str, type[Training]] = {kind.mode: kind for kind in (OnDevice, NoisedSplit, DocumentedSplit)}


def training_of(mode: Any, given: Any) -> Training:
    """The parameters of a mode, from the fields of a text.

    Raises:
        ParameterError: no such mode, unknown or missing fields, or a value that breaks its rule.
    """
    kind = MODES.get(mode) if isinstance(mode, str) else None
    if kind is None:
        raise ParameterError(f"mode must be one of {', '.join(MODES)}, got {mode!r:.60}")
    names = [field.name for field in fields(kind)]
    found = texts.checked_fields("training", given, names)
    return kind(**{field.name: _value(field.name, field.type, found[field.name]) for field in fields(kind)})


def _value(name: str, kind: Any, given: Any) -> Any:
    """A value of the type of its field."""
    match kind:
        case "int":
            return whole(name, given)
        case "float":
            return real(name, given) + 0.0  # without the other zero
        case "str":
            if not isinstance(given, str) or not 0 < len(given) <= MOST_TEXT or not given.isprintable():
                raise ParameterError(f"{name} must be a printable text of 1 to {MOST_TEXT} characters")
            return given
    raise ParameterTypeError(f"{name} must be declared int, float or str, got {kind}")
