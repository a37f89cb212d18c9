"""The file in which an operator writes a training task; `reticent federated sign` makes what clients get.

name: braking
version: 1
purpose: To warn drivers, we learn when vehicles brake hard.
model: logistic          # linear, logistic or svm
features:                # as clients encode them; bounds and values from public knowledge
  speed: {low: 0, high: 130}
  kind: {values: [car, bus, truck], fallback: car}
target: {column: braked, values: [soft, hard]}  # or low and high, for linear
epsilon: 2               # of one report
rounds: 50
group: 2000              # clients in each round
participations: 1        # rounds in which one client may report; each costs epsilon
clip: 1                  # each coordinate of a gradient is clipped to [-1, 1]
length: 2                # longer gradients are made as short; a Codebook is used where it has less noise
rate: 4                  # of the first step
schedule: inverse-root   # how the rate falls: constant, inverse, inverse-root
momentum: 0
typical: 0.1             # how large coordinates usually are against the clip
prior: small gradients   # instead of typical: a guess of where coordinates lie, or weights of bins
sample: 1                # coordinates in one report
mechanism: OneBit
l2: 1e-4
intercept: true
axes: {count: 8, table: public.csv}  # learn on the directions in which these PUBLIC rows differ most
simulation:              # for `reticent federated run` and `plan` alone; clients never see it
  table: vehicles.parquet
  owner: driver          # whose rows are one client; without it each row is one
  holdout: public.csv    # public rows, for curves and plans
"""

from __future__ import annotations

import filecmp
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reticent.arguments import whole
from reticent.errors import ParameterError, ParameterTypeError
from reticent.federated import models
from reticent.federated.encoding import Encoding
from reticent.federated.tasks import Task, designed
from reticent.fleet import yaml_file
from reticent.mechanisms.attributes import Attribute
from reticent.randomness import SECURE

_FIELDS = ("name", "version", "purpose", "model", "features", "target", "epsilon", "rounds", "group", "rate")
_NUMBERS = ("clip", "length", "momentum", "typical", "l2")
_OPTIONAL = (
    *_NUMBERS,
    "prior",
    "participations",
    "schedule",
    "sample",
    "mechanism",
    "intercept",
    "axes",
    "simulation",
)
_SIMULATION = ("table", "owner", "holdout")

TEMPLATE = """\
# A training task: what is learnt, and under which privacy. `reticent federated check` explains it.
name: my-task
version: 1
purpose: Why you learn it, in words for the person behind a client.
model: logistic          # linear, logistic or svm
features:                # bounds and values come from public knowledge, never from data
  speed: {low: 0, high: 130}
  kind: {values: [car, bus, bicycle, other], fallback: other}
target: {column: braked, values: [soft, hard]}   # for linear: {column: force, low: 0, high: 10}
epsilon: 2               # of one report
rounds: 50
group: 2000              # clients in each round; `reticent federated plan` says how many it takes
participations: 1        # rounds in which one client may report; each costs epsilon
rate: 4                  # of the first step
# schedule: inverse-root # how the rate falls: constant, inverse, inverse-root
# momentum: 0            # in [0, 1)
# clip: 1                # each coordinate of a gradient is clipped to [-1, 1]
# length: 1.5            # how long a gradient may be: lets a Codebook be used where it has less noise
typical: 0.1             # how large coordinates usually are against the clip; a guess from public knowledge
# prior: small gradients # instead of typical: a mechanism made for a guess of where coordinates lie
# sample: 1              # coordinates in one report; the best number if left out
# mechanism: OneBit      # the best if left out
# l2: 0.0001
# intercept: true
# axes: {count: 8, table: public.csv}  # learn on the directions in which PUBLIC rows differ most
# simulation:            # for `reticent federated run` and `plan` alone; clients never see it
#   table: rows.csv      # CSV or Parquet, with the columns above
#   owner: driver        # the column that says whose rows are one client; without it each row is one
#   holdout: public.csv  # public rows, for curves and plans
"""


EXAMPLE_ROWS = (100_000, 5000)  # invented clients, as many as the template asks for, and public rows


def template(tables: dict[str, str] | None = None) -> str:
    """A task to be filled in; with the names of tables, one that can be simulated as it is."""
    if tables is None:
        return TEMPLATE
    head = TEMPLATE.partition("# simulation:")[0]
    return f"{head}simulation:\n" + "".join(f"  {name}: {file}\n" for name, file in tables.items())


def example_rows(count: int) -> Iterator[str]:
    """Lines of a CSV file with the template's columns: invented vehicles, of which fast ones brake hard."""
    yield "speed,kind,braked\n"
    kinds = ("car", "bus", "bicycle", "other")
    for speed, kind, chance in (SECURE.units(3 * count) - 1.0).reshape(count, 3):
        braked = "hard" if chance < 1 / (1 + math.exp(3.0 - 6.0 * speed)) else "soft"
        yield f"{130 * speed:.1f},{kinds[int(4 * kind)]},{braked}\n"


@dataclass(frozen=True)
class TaskFile:
    """A task, how rows become features and targets, and where a simulation finds them.

    Attributes:
        task: Task with a fresh key.
        encoding: Encoding of features and target.
        table: rows that play the clients; None if the file names none.
        owner: the column that says who holds a row; None if each row is a client.
        holdout: public rows; None if the file names none.
    """

    task: Task
    encoding: Encoding
    table: Path | None = None
    owner: str | None = None
    holdout: Path | None = None


def read(path: Path) -> TaskFile:
    """Return the task of a file, with the best mechanism and a fresh key. Tables are sought beside the file.

    Raises:
        ParameterError: in one line, with the file, the field, the rule and the value.
    """
    return yaml_file.read("task", path, lambda text: parse(text, path.parent))


def parse(text: str, folder: Path = Path()) -> TaskFile:
    """Return the task that a text describes."""
    given = yaml_file.fields("the file", yaml_file.loaded("task", text, "federated"), _FIELDS, _OPTIONAL)
    given = {name: one for name, one in given.items() if one is not None}
    encoding = Encoding(_features(given["features"]), _target(given["target"]))
    numbers = {name: yaml_file.number(name, given[name]) for name in _NUMBERS if name in given}
    simulation = _simulation(given.get("simulation", {}), folder)
    _check_public("simulation.holdout", simulation.get("holdout"), simulation.get("table"))
    axes = None
    if "axes" in given:
        axes = _axes(given["axes"], encoding, folder, clients=simulation.get("table"))
    task = designed(
        yaml_file.text("name", given["name"]),
        _model(given, encoding, numbers, axes),
        epsilon=yaml_file.number("epsilon", given["epsilon"]),
        purpose=yaml_file.text("purpose", given["purpose"]),
        rounds=whole("rounds", given["rounds"], low=1),
        group=whole("group", given["group"], low=1),
        rate=yaml_file.number("rate", given["rate"]),
        bounds=numbers.get("clip", 1.0),
        kind=yaml_file.text("schedule", given.get("schedule", "inverse-root")),
        momentum=numbers.get("momentum", 0.0),
        participations=whole("participations", given.get("participations", 1), low=1),
        sample_size=None if "sample" not in given else whole("sample", given["sample"], low=1),
        mechanism=None if "mechanism" not in given else yaml_file.text("mechanism", given["mechanism"]),
        typical=numbers.get("typical"),
        prior=_prior(given.get("prior")),
        length=numbers.get("length"),
        version=yaml_file.text("version", given["version"]),
    )
    return TaskFile(task, encoding, **simulation)


def _model(
    given: dict[str, Any], encoding: Encoding, numbers: dict[str, float], axes: models.Axes | None
) -> models.Model:
    kind = yaml_file.text("model", given["model"])
    if kind not in models.MODELS:
        raise ParameterError(f"model must be one of {', '.join(models.MODELS)}, got {kind!r:.60}")
    intercept = given.get("intercept", True)
    if not isinstance(intercept, bool):
        raise ParameterTypeError(f"intercept must be true or false, got {intercept!r:.60}")
    if encoding.is_classifier != (kind != "linear"):
        rule = "low and high" if kind == "linear" else "two values"
        raise ParameterError(f"target of a {kind} model must have {rule}")
    return models.MODELS[kind](
        encoding.inputs,
        l2=numbers.get("l2", 1e-4),
        intercept=intercept,
        axes=axes,
    )


def _axes(given: Any, encoding: Encoding, folder: Path, *, clients: Path | None) -> models.Axes:
    """The axes of a table of public rows; clients get their numbers, never the table."""
    from reticent.federated import tables

    fields = yaml_file.fields("axes", given, ("count", "table"), ())
    public = folder / yaml_file.text("axes.table", fields["table"])
    _check_public("axes.table", public, clients)
    whole("features of axes", encoding.inputs, low=1, high=models.MOST_FITTED)
    rows = tables.read(public, encoding)
    return models.Axes.fitted(rows.features, whole("axes.count", fields["count"], low=1))


def _check_public(field: str, public: Path | None, clients: Path | None) -> None:
    """Refuse the clients' own table, a link to it or a copy of it, where public rows are asked for."""
    if public is None or clients is None:
        return
    try:
        is_theirs = public.samefile(clients) or filecmp.cmp(public, clients, shallow=False)
    except OSError:  # one of them is missing or shut, as its reader will report
        is_theirs = False
    if is_theirs:
        raise ParameterError(
            f"{field} must be public rows, got those of simulation.table: what is made of them is no "
            "client's report, and nobody would have paid for it"
        )


def _prior(given: Any) -> str | list[float] | None:
    """A name, or the weights of equal bins."""
    if given is None or isinstance(given, str):
        return given
    if not isinstance(given, list) or not given:
        raise ParameterTypeError("prior must be a name, or a list of weights")
    return [yaml_file.number(f"prior[{place}]", one) for place, one in enumerate(given)]


def _features(given: Any) -> list[Attribute]:
    if not isinstance(given, dict) or not given:
        raise ParameterError("features must be names with fields")
    return [
        yaml_file.attribute(f"features.{name!s:.60}", str(name), fields) for name, fields in given.items()
    ]


def _target(given: Any) -> Attribute:
    if not isinstance(given, dict) or given.get("column") is None:
        raise ParameterError("target must have fields: column; values, or low and high")
    fields = {name: one for name, one in given.items() if name != "column"}
    return yaml_file.attribute("target", yaml_file.text("target.column", given["column"]), fields)


def _simulation(given: Any, folder: Path) -> dict[str, Any]:
    fields = yaml_file.fields("simulation", given, (), _SIMULATION)
    found: dict[str, Any] = {
        name: folder / yaml_file.text(f"simulation.{name}", fields[name])
        for name in ("table", "holdout")
        if fields.get(name) is not None
    }
    if fields.get("owner") is not None:
        found["owner"] = yaml_file.text("simulation.owner", fields["owner"])
    return found
