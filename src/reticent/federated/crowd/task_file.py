"""The file in which a manufacturer writes a crowd's task; `reticent crowd post` makes its text and posts it.

purpose: Washing machines that know how full they are.
mode: device
training: {inputs: 196, classes: 10, l2: 1e-4, clip: 1, records: 100, rate: 2, steps: 5, mu: 1}
grid: {steps: 65536, norm: 655360, floor: 100}
multiple: 2              # of the median score, past which a rejected update is low; may be left out
test: public.npz         # public rows, `features` and `labels`, to tell the accuracy by; may be left out
terms: {rounds: 5, people: 20, f: 3}                                    # see `terms.Terms`
prices: {unit: 1000, bonus: 100, leader_fee: 5000, committee_fee: 20000, deposit: 1000000}
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from reticent.errors import ParameterError
from reticent.federated.crowd.modes import MODES, training_of
from reticent.federated.crowd.records import read as read_records
from reticent.federated.crowd.task_text import CrowdTask, PublicTest
from reticent.federated.crowd.terms import Prices, Terms
from reticent.federated.robust.grid import Grid
from reticent.federated.robust.reputation import MULTIPLE
from reticent.fleet import yaml_file
from reticent.store import cid_of, tensors

_FIELDS = ("purpose", "mode", "training", "grid", "terms", "prices")
_OPTIONAL = ("multiple", "test")


@dataclass(frozen=True)
class Posting:
    """A task with its terms and prices, ready to be posted.

    Attributes:
        text: Text of the task.
        terms: Terms of the contract.
        prices: Prices of the contract.
        test: the file of public test rows; None without.
    """

    text: CrowdTask
    terms: Terms
    prices: Prices
    test: bytes | None


def read(path: Path) -> Posting:
    """Read the task of a file.

    Raises:
        ParameterError: in one line, with the file, the field, the rule and the value.
    """
    if not path.is_file():
        raise ParameterError(f"there is no file {path}")
    return yaml_file.read("task", path, lambda text: parse(text, path.parent))


def parse(text: str, folder: Path) -> Posting:
    """Parse the task of a text; files that the text names lie in a folder."""
    given = yaml_file.fields("the file", yaml_file.loaded("task", text, "federated"), _FIELDS, _OPTIONAL)
    mode = yaml_file.text("mode", given["mode"])
    training = training_of(mode, _training(mode, given["training"]))
    grid = yaml_file.fields("grid", given["grid"], ("steps", "norm"), ("floor",))
    terms = Terms(**_numbers("terms", given["terms"], Terms))
    terms.check_windows()
    prices = Prices(**_numbers("prices", given["prices"], Prices))
    test, file = None, None
    if given.get("test") is not None:
        inputs = training.inputs_of_test
        features, labels = read_records([folder / yaml_file.text("test", given["test"])], inputs)
        file = tensors.packed({"features": features.astype("<f4"), "labels": labels.astype("<i4")})
        test = PublicTest(cid_of(file), len(labels))
    told = CrowdTask(
        purpose=yaml_file.text("purpose", given["purpose"]),
        training=training,
        grid=Grid(training.dimensions, **grid),
        rounds=terms.rounds,
        liars=terms.f,
        multiple=given.get("multiple", MULTIPLE),
        test=test,
    )
    return Posting(told, terms, prices, file)


def _training(mode: str, given: Any) -> Any:
    """Return the training fields with numbers where YAML reads a text such as 1e-4."""
    kind = MODES.get(mode)
    if kind is None or not isinstance(given, dict):
        return given
    floats = {field.name for field in fields(kind) if field.type == "float"}
    return {name: yaml_file.number(name, one) if name in floats else one for name, one in given.items()}


def _numbers(where: str, given: Any, kind: Any) -> dict[str, int]:
    names = [field.name for field in fields(kind) if field.default is MISSING]
    optional = [field.name for field in fields(kind) if field.default is not MISSING]
    return yaml_file.fields(where, given, tuple(names), tuple(optional))
