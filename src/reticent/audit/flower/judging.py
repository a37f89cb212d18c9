"""Judgement of the parts of replies on neighbouring data sets, and of records rebuilt from their arrays.

Every part must be the same whatever the data are, but those that are named as private reports, which may
differ by epsilon. The app is run `FEW` times on each data set, in random order. If a part is always one thing
on one data set and always another thing on the other, it is found. If parts vary, the app is run `runs` times
more, and `black_box` looks at all that vary in any of these runs.

False alarms: a part that does not depend on the data is constant and different `FEW` times each with
probability at most 4^-(FEW - 1), below 1e-9; those of the black box share 1e-6.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from flwr.app import MessageType

from reticent.arguments import real, whole
from reticent.audit.black_box import FALSE_ALARM, black_box
from reticent.audit.findings import Finding
from reticent.audit.flower import replies
from reticent.audit.flower.numbers import as_table
from reticent.audit.flower.running import App, DataSet, Node, answered, failures_heard
from reticent.audit.leakage.gradients import GradientAudit, gradients
from reticent.audit.leakage.layers import Layers
from reticent.audit.leakage.sources import Arrays, subject
from reticent.errors import ParameterError
from reticent.federated.flower.mod import RETURNS
from reticent.randomness import SECURE

FEW, RUNS = 16, 1000
KINDS = (MessageType.TRAIN, MessageType.EVALUATE, MessageType.QUERY)
REPORT = "report.payload"  # what `private_mod` sends
_LONGEST = 60  # characters of a value that is shown


class _Missing(Enum):
    """A marker for a part that a reply does not have."""

    PART = "nothing"

    def __str__(self) -> str:
        return self.value


_ABSENT = _Missing.PART


@dataclass(frozen=True)
class Told(Finding):
    """A finding on one part of a reply; `check` is its name with the kind of message.

    Attributes:
        claimed: Epsilon that the part may tell: 0 but for private reports.
    """

    claimed: float = 0.0


@dataclass(frozen=True)
class FlowerAudit:
    """The result of an audit of everything that leaves an app.

    Attributes:
        findings: One `Told` for each part of each kind of reply, faults first.
        updates: Inversions of the arrays of each data set's reply, as far as they could be inverted.
        sent: Arrays that each inversion was made from, by name.
        notes: Parts that were not examined, and why.
        runs: Number of runs of the app on each data set.
        epsilon: Epsilon that private reports claim.
    """

    findings: tuple[Told, ...]
    updates: tuple[GradientAudit, ...]
    sent: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]
    runs: int
    epsilon: float | None

    @property
    def passed(self) -> bool:
        """Return whether nothing was found."""
        return all(one.passed for one in self.findings) and not any(one.found for one in self.updates)

    @property
    def claim(self) -> str:
        """Claim that the app is audited against, in words."""
        reports = "" if self.epsilon is None else f" but reports of epsilon {self.epsilon:g}"
        return f"nothing that leaves depends on the data{reports}"

    @property
    def lines(self) -> list[str]:
        """Lines that describe the audit."""
        said = [f"FAULT {one.check}: {one.detail}" for one in self.findings if not one.passed]
        for number, update in enumerate(self.updates):
            said += [f"Data set {number}: {line}" for line in update.lines]
        kept = [one for one in self.findings if one.passed]
        varied = [f"{one.check}: {one.detail}" for one in kept if one.claimed]
        said += varied
        said.append(f"{len(kept)} of {len(self.findings)} parts of replies tell nothing of the data.")
        return said + [f"{note}." for note in self.notes]


def audit_flower(
    app: App,
    data_sets: Sequence[DataSet],
    *,
    model: Any = None,
    loss: Any = None,
    rate: float | None = None,
    returns: str = "parameters",
    epsilon: float | None = None,
    private: Sequence[str] = (REPORT,),
    numbered: bool = False,
    runs: int = RUNS,
) -> FlowerAudit:
    """Run a ClientApp on neighbouring data sets, and judge everything that leaves.

    Args:
        app: App with its mods.
        data_sets: Functions, each of which puts a data set where the app reads it, afresh for every run, and
            returns its `Node`, if the app needs one. The first is compared with each of the others, which
            should differ from it in one record: one replaced, one that is missing. All invented.
        model: Model whose parameters are sent, and by which arrays are inverted: as for `audit.gradients`;
            its
            parameters have the names of `state_dict`. None, and arrays are only compared.
        loss: Loss of a PyTorch module.
        rate: Learning rate of the app's step; 1 by default.
        returns: Content of the arrays: "parameters" after a step, or the "gradient".
        epsilon: Epsilon that private reports claim.
        private: Parts, as record.key, that are private reports.
        numbered: True if arrays are called 0, 1, ... in messages, as by `ArrayRecord([first, second])`.
        runs: Number of runs on each data set, if parts of replies vary.

    Returns:
        The findings. Nothing found proves nothing about data sets that were not tried.
    """
    if not callable(app):
        raise ParameterError(f"app must be a ClientApp, got {type(app).__name__}")
    if len(data_sets) < 2 or not all(callable(one) for one in data_sets):
        raise ParameterError("give at least two data sets, as functions that put them where the app reads")
    if returns not in RETURNS:
        raise ParameterError(f"returns must be one of {', '.join(RETURNS)}, got {returns!r:.60}")
    claimed = None if epsilon is None else real("epsilon", epsilon, low=0.0, open_low=True)
    runs = whole("runs", runs, low=100)
    step = 1.0 if rate is None else real("rate", rate, low=0.0, open_low=True)
    trial = _Trial(app, data_sets, {} if model is None else parameters_of(model), numbered)
    few = {kind: trial.run(kind, FEW) for kind in KINDS}
    trial.refuse_reports_without_claim(few, claimed, private)
    measured = {
        kind: [name for name in _names(seen) if name in private or _varies(seen, name)]
        for kind, seen in few.items()
    }  # a private report may be constant for long, and is measured all the same
    many = {kind: trial.run(kind, runs) for kind in KINDS if measured[kind]}
    tested = sum(len(_names([*few[kind], *seen])) for kind, seen in many.items()) * (len(data_sets) - 1)
    found: list[Told] = []
    for kind in KINDS:
        found += _judged(kind, few[kind], many.get(kind), claimed, private, FALSE_ALARM / max(1, tested))
    if all(one.passed for one in found):
        _refuse_silence(few, "" if model is not None else " (needs the parameters of a model? give that)")
    updates, sent, notes = trial.inverted(model, loss, None if returns == "gradient" else step)
    ran = FEW + (runs if many else 0)
    ordered = tuple(sorted(found, key=lambda one: one.passed))
    return FlowerAudit(ordered, updates, sent, notes, ran, claimed)


def _refuse_silence(few: Mapping[str, Runs], hint: str) -> None:
    """Raise if the app sent nothing but errors: that tells nothing of its data and is no finding."""
    told = [one.get(replies.ERROR) for seen in few.values() for runs in seen for one in runs]
    if all(text is not None for text in told):
        raise ParameterError(f"the app answers nothing but errors: {_shown(told[0])}{hint}")


def parameters_of(model: Any) -> dict[str, Any]:
    """Return the parameters of a model by name, as the server sends them."""
    if isinstance(model, Layers):
        found = {f"{place}.weight": array for place, array in enumerate(model.weights)}
        return found | {f"{place}.bias": array for place, array in enumerate(model.biases)}
    if isinstance(model, tuple) and len(model) == 2:
        return {"theta": np.asarray(model[1], dtype=np.float64)}
    if hasattr(model, "state_dict"):
        return {name: held.detach().cpu().numpy() for name, held in model.state_dict().items()}
    raise ParameterError(f"model must be as for `audit gradients`, got {type(model).__name__}")


Runs = list[list[replies.Parts]]  # of each data set, of each run


class _Trial:
    """An app under audit, with the first replies that it gave."""

    def __init__(self, app: App, data_sets: Sequence[DataSet], arrays: Arrays, numbered: bool) -> None:
        self._app, self._data_sets, self._arrays = app, data_sets, arrays
        self._sent = {str(n): one for n, one in enumerate(arrays.values())} if numbered else arrays
        self._first: dict[int, tuple[Node, Any]] = {}

    def run(self, kind: str, times: int) -> Runs:
        """Collect replies on each data set, in random order, so that nothing that drifts looks like data."""
        order = np.repeat(np.arange(len(self._data_sets)), times)
        order = order[np.argsort(SECURE.units(order.size), kind="stable")]
        found: Runs = [[] for _ in self._data_sets]
        with failures_heard() as failures:
            for which in order.tolist():
                node = self._data_sets[which]() or Node()
                if not isinstance(node, Node):
                    raise ParameterError(f"a data set must return a Node or None, got {type(node).__name__}")
                reply, until = answered(self._app, node, self._sent, kind)
                if kind == MessageType.TRAIN:
                    self._first.setdefault(which, (node, reply))
                found[which].append(replies.parts(reply, until))
        if len(failures) == order.size:  # a mod that hides this also hides that nothing was judged
            raise ParameterError(f"behind the mod the app fails in every run: {_shown(failures[0])}")
        return found

    def refuse_reports_without_claim(
        self, few: Mapping[str, Runs], claimed: float | None, private: Sequence[str]
    ) -> None:
        """Raise if a private report comes without the epsilon that it claims."""
        if claimed is None:
            for name in private:
                if any(name in _names(seen) for seen in few.values()):
                    raise ParameterError(f"the app sends {name}: give epsilon, which that report claims")

    def inverted(
        self, model: Any, loss: Any, rate: float | None
    ) -> tuple[tuple[GradientAudit, ...], tuple[Arrays, ...], tuple[str, ...]]:
        """Invert the arrays of the first replies; return notes where they cannot be inverted.

        Without a rate they are gradients themselves.
        """
        found: list[GradientAudit] = []
        sent: list[Arrays] = []
        notes: list[str] = []
        for which, (node, reply) in sorted(self._first.items()):
            returned = replies.arrays_of(reply)
            if returned is None:
                continue
            arrays = self._named(returned)
            if model is None:
                return (), (), ("Arrays leave, and were not inverted: give the model",)
            try:
                moved = arrays if rate is None else _moved(self._arrays, arrays)
                learnt = subject(model, loss=loss).parameters  # a state holds buffers too
                moved = {n: array for n, array in moved.items() if n in learnt or n not in self._arrays}
                told = replies.examples_of(reply)
                found.append(
                    gradients(
                        model,
                        update=moved,
                        loss=loss,
                        rate=rate,
                        records=told,
                        truth=node.records,
                        noise=0.0 if rate is None else _rounding(self._arrays, arrays) / rate,
                    )
                )
                sent.append(arrays)
            except ParameterError as error:
                notes.append(f"Data set {which}: arrays were not inverted: {error}")
        return tuple(found), tuple(sent), tuple(notes)

    def _named(self, arrays: Arrays) -> Arrays:
        """Rename arrays that came back by number to the names of the model's parameters."""
        numbers = [str(place) for place in range(len(self._arrays))]
        if sorted(arrays) != sorted(numbers) or set(numbers) & set(self._arrays):
            return arrays
        return {name: arrays[number] for name, number in zip(self._arrays, numbers, strict=True)}


def _moved(sent: Arrays, returned: Arrays) -> dict[str, Any]:
    for name, array in returned.items():
        if name not in sent or np.shape(array) != np.shape(sent[name]):
            raise ParameterError(f"{name!r:.80} is no parameter of the model, or of another shape")
    return {
        name: np.asarray(array) - np.asarray(sent[name])
        for name, array in returned.items()
        if np.asarray(array).dtype.kind == "f"
    }


def _rounding(sent: Arrays, returned: Arrays) -> float:
    """Bound the effect of rounding parameters on their difference, and on a record.

    A record comes from a quotient by one unit's slope, which is often small: ten times are allowed.
    """
    steps = [
        np.finfo(array.dtype).eps * float(np.abs(sent[name]).max(initial=0.0))
        for name, array in returned.items()
        if array.dtype.kind == "f"
    ]
    return 10.0 * 0.3 * max(steps, default=0.0)


# Judging parts


def _names(seen: Runs) -> list[str]:
    return list(dict.fromkeys(name for runs in seen for one in runs for name in one))


def _same(value: Any) -> Any:
    """Return a value that can be compared and hashed, to the last bit: NaNs have many forms."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, tuple):
        return tuple(_same(one) for one in value)
    return ("float", struct.pack("<d", value)) if isinstance(value, float) else value


def _values(runs: Sequence[replies.Parts], name: str) -> list[Any]:
    return [one.get(name, _ABSENT) for one in runs]


def _varies(seen: Runs, name: str) -> bool:
    return any(len({_same(value) for value in _values(runs, name)}) > 1 for runs in seen)


def _judged(
    kind: str, few: Runs, many: Runs | None, claimed: float | None, private: Sequence[str], error: float
) -> list[Told]:
    found = []
    forms = [{one[replies.FORM] for one in runs} for runs in few]
    # If data sets always have replies of another form, parts are missing, and the form tells it all.
    is_torn = all(len(form) == 1 for form in forms) and any(form != forms[0] for form in forms)
    seen = few if many is None else [[*first, *more] for first, more in zip(few, many, strict=True)]
    for name in _names(seen):
        level = claimed if claimed is not None and name in private else 0.0
        absent = any(value is _ABSENT for runs in few for value in _values(runs, name))
        if is_torn and absent and name != replies.ERROR:
            continue
        check = f"{kind}: {name}"
        if many is not None and (name in private or _varies(seen, name)):
            found.append(_measured(check, name, few, many, level, error))
        else:
            found.append(_compared(check, name, few))
    return found


def _compared(check: str, name: str, few: Runs) -> Told:
    """Judge a part that is the same in every run on a data set."""
    first = few[0][0].get(name, _ABSENT)
    for which, runs in enumerate(few[1:], 1):
        other = runs[0].get(name, _ABSENT)
        if _same(first) != _same(other):
            shown = f"{_shown(first)} on data set 0, {_shown(other)} on data set {which}"
            return Told(check, False, f"the server learns {_meaning(name)}: {shown}")
    return Told(check, True, "the same on all data sets")


def _measured(check: str, name: str, few: Runs, many: Runs, level: float, error: float) -> Told:
    """Judge a part that varies, by the black box on the outputs of each data set."""
    samples = len(many[0])
    for which in range(1, len(many)):
        outputs = _outputs(name, few, [many[0], many[which]])
        seen = black_box(
            lambda place, size, outputs=outputs: outputs[place][:size],
            [0, 1],
            epsilon=level,
            samples=samples,
            false_alarm=error,
        )
        if not seen.passed:
            detail = f"the server learns {_meaning(name)}: {seen.detail}"
            return Told(check, False, detail, level)
    held = f"epsilon of at most {level:g} claimed" if level else "no dependence on the data claimed"
    return Told(check, True, f"{held}, none above found in {samples} runs on each data set", level)


def _outputs(name: str, few: Runs, pair: Runs) -> list[Any]:
    """Return a part of every run as outputs of two data sets.

    Of rows of numbers, the places that varied in the first runs or in the half by which an event is chosen:
    the other half must not be looked at before.
    """
    before = [value for runs in few for value in _values(runs, name)]
    values = [_values(runs, name) for runs in pair]
    table = as_table([*before, *values[0], *values[1]], _ABSENT)
    if table is None:
        return [[str(_same(value)) for value in one] for one in values]
    size, start = len(values[0]), len(before)
    chosen = np.concatenate([table[: start + size // 2], table[start + size : start + size + size // 2]])
    places = (chosen != chosen[0]).any(axis=0)
    kept = table[:, places if places.any() else slice(0, 1)]
    if kept.shape[1] == 1:
        kept = kept[:, 0]
    return [kept[start : start + size], kept[start + size :]]


def _meaning(name: str) -> str:
    """Describe in words what the server reads in a part."""
    key = name.rpartition(".")[2].lower()
    if name == replies.ERROR:
        return "what the app writes of its data in an error"
    if name == replies.FORM:
        return "of which form the reply is, by the data"
    if name == replies.SIZE or name.startswith("size of "):
        return f"a length that depends on the data ({name})"
    if "example" in key or key in ("n", "count", "num_samples", "num-samples"):
        return "how many examples there are"
    if "loss" in key or "accuracy" in key:
        return "how well the model fits these records"
    return f"{name}, which depends on the data"


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        few = ", ".join(f"{number:.4g}" for number in np.ravel(value)[:3].tolist())
        return f"[{few}{', ...' if value.size > 3 else ''}]"
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
