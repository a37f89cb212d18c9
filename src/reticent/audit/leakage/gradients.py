"""Your own model: what one update of it tells the server, in words, and against the truth if it is given."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reticent.arguments import real
from reticent.audit.leakage.batches import Effort
from reticent.audit.leakage.first_layer import judge_first_layer, read_target
from reticent.audit.leakage.inversion import invert
from reticent.audit.leakage.layers import Layers, Update, rounding_share
from reticent.audit.leakage.sensitivity import MOST_NUMBERS, Sensitivity, sensitivity
from reticent.audit.leakage.sources import Arrays, FirstLayer, Subject, subject
from reticent.audit.leakage.verdicts import Candidate, Kind, Leak
from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats


@dataclass(frozen=True)
class GradientAudit:
    """The knowledge that the server gains from one update.

    Attributes:
        leak: Verdict, with the records that were rebuilt.
        enters: Description of the rebuilt records: "the record", or what enters a layer, where those below
            were not inverted.
        notes: Notes on what was not inverted, and why.
        sensitivity: Sensitivity at what was rebuilt (or at the truth); None where nothing was, or it is too
            large.
        truth: Batch as it really was, if it was given.
        error: Largest error of what was rebuilt, in proportion to the largest number; None without truth.
    """

    leak: Leak
    enters: str
    notes: tuple[str, ...]
    sensitivity: Sensitivity | None
    truth: Floats | None
    error: float | None

    @property
    def found(self) -> bool:
        """Whether some record was rebuilt."""
        return bool(self.leak.candidates)

    @property
    def lines(self) -> list[str]:
        """The audit in words."""
        leak = self.leak
        what = "" if self.enters == "the record" else f" of {self.enters}"
        if leak.kind is Kind.UNDECIDED:
            said = [f"What the server learns{what} from this update is undecided: {leak.reason}."]
        else:
            said = [f"From this update the server learns {_words(leak)}{what}: {leak.reason}."]
        if leak.labels:
            certainty = "if the update carries no noise" if leak.assumes_no_noise else "for certain"
            said.append(f"Classes that are in the batch {certainty}: {', '.join(map(str, leak.labels))}.")
        if self.error is not None:
            said.append(f"What was rebuilt is the truth up to {self.error:.2g} of its largest number.")
        if self.sensitivity is not None and math.isfinite(self.sensitivity.condition):
            least = self.sensitivity.error(1.0)
            said.append(
                f"Condition number {self.sensitivity.condition:.3g}: noise of standard deviation s on each "
                f"number sent leaves an error of at least {least:.3g} s in each number of a record."
            )
        return said + [f"{note}." for note in self.notes]

    def __str__(self) -> str:
        return "\n".join(self.lines)


def gradients(
    model: Any,
    batch: tuple[Any, Any] | None = None,
    *,
    update: Arrays | None = None,
    loss: Any = None,
    send: Callable[[Arrays], Arrays] | None = None,
    rate: float | None = None,
    records: int | None = None,
    labels: ArrayLike | None = None,
    truth: ArrayLike | None = None,
    non_negative: bool = False,
    noise: float = 0.0,
    effort: Effort | None = None,
) -> GradientAudit:
    """Audit what one update of a model reveals to its receiver.

    Args:
        model: Model: a module of PyTorch; `Layers`; or a pair of a model of `reticent.federated` and its
            theta.
        batch: Records and targets whose update is taken, by PyTorch itself for its modules. The attacker is
            not shown them: they say how good he was.
        update: Arrays by name, as they were sent, instead of a batch.
        loss: Loss of the model, see `sources.subject`.
        send: Function that your code applies to the arrays before they leave (clipping, noise, leaving some
            out).
        rate: Learning rate, if what is sent are steps of -rate times the gradient.
        records: Number of records that the server knows of; often a reply tells.
        labels: Classes of the records, if the server knows them.
        truth: Records behind an update, to compare with; the attacker is not shown them.
        non_negative: True if records are known to have no negative numbers.
        noise: Standard deviation of the noise on each number that is sent, if the server knows of any.
        effort: Effort of the search for batches.

    Returns:
        The verdict. A batch is called known only if its own update is the one that was sent.

    Privacy: the audit computes on the batch itself and hands back what it rebuilds; it is for the holder of
        the data, and nothing of it is private.
    """
    if (batch is None) == (update is None):
        raise ParameterError("give a batch or an update")
    judged = subject(model, loss=loss)
    sent, known = (
        (update, _known(judged.enters, judged.layers.inputs, truth))
        if batch is None
        else judged.measured(*batch)
    )
    assert sent is not None
    if send is not None:
        sent = send(sent)
    scale = None if rate is None else real("rate", rate, low=0.0, open_low=True)
    level = real("noise", noise, low=0.0) / (1.0 if scale is None else scale)
    read, layers, enters, notes = _finite(judged, judged.update(sent, rate=scale))
    # The records' sign is that of what enters the layers only if records do. Layers that were cut are entered
    # by a ReLU; anything else below them (tanh) may make numbers negative.
    is_sign_known = non_negative and (enters == "the record" or enters != judged.enters)
    leak = invert(
        layers, read, records=records, labels=labels, non_negative=is_sign_known, noise=level, effort=effort
    )
    if judged.first is not None:
        count = 1 if leak.certain is not None and leak.records == 1 else records  # the layers above show it
        by_first = _first_layer_leak(judged, judged.first, sent, read, scale, count, level, non_negative)
        if by_first is not None:
            by_first = replace(by_first, labels=leak.labels)
            first, shown = judged.first, truth if batch is None else _as_array(batch[0])
            known = _known(first.enters, first.inputs, shown)
            return GradientAudit(by_first, first.enters, notes, None, known, _error(by_first, known))
    if enters != judged.enters:
        known = None
    return GradientAudit(leak, enters, notes, _sensitivity(layers, read, leak), known, _error(leak, known))


def _first_layer_leak(
    judged: Subject,
    first: FirstLayer,
    sent: Arrays,
    update: Update,
    rate: float | None,
    records: int | None,
    noise: float,
    non_negative: bool,
) -> Leak | None:
    """Return what the first layer of a model shows of one record; None where it shows none."""
    if first.weights not in sent or first.biases not in sent:
        return None
    scale = 1.0 if rate is None else -1.0 / rate
    weights, biases = (
        scale * np.asarray(sent[name], dtype=np.float64) for name in (first.weights, first.biases)
    )
    if not (np.isfinite(weights).all() and np.isfinite(biases).all()):
        return None
    loss = judged.layers.loss
    return judge_first_layer(
        weights, biases, rounding_share(update),
        records=records, noise=noise, non_negative=non_negative,
        has_parallel_slopes=judged.layers.outputs < (3 if loss == "cross-entropy" else 2),
        targets=read_target(loss, update.biases[-1]),
    )  # fmt: skip


def _as_array(records: Any) -> ArrayLike:
    return np.asarray(records.detach().cpu() if hasattr(records, "detach") else records)


def _known(enters: str, inputs: int, truth: ArrayLike | None) -> Floats | None:
    """Return the records to compare with, where it is records that enter the layers."""
    if truth is None or enters != "the record":
        return None
    rows = np.asarray(truth, dtype=np.float64)
    if rows.ndim < 2 or not len(rows) or rows[0].size != inputs:
        raise ParameterError(f"truth must hold records of {inputs} numbers, got {rows.shape}")
    if not np.isfinite(rows).all():
        raise ParameterError("truth must be finite")
    return rows.reshape(len(rows), -1)


def _words(leak: Leak) -> str:
    return str(Leak(leak.kind, leak.number, leak.records))


def _finite(judged: Subject, update: Update) -> tuple[Update, Layers, str, tuple[str, ...]]:
    """Return the layers whose gradients are all finite: those above the last that is not."""
    first = update.finite_from()
    layers = judged.layers
    if first == 0:
        return update, layers, judged.enters, judged.notes
    name = judged.names[first - 1][0]
    if first == len(layers):
        raise ParameterError(f"update: {name} holds numbers that are not finite, and nothing is above it")
    above = Layers(layers.weights[first:], layers.biases[first:], layers.loss)
    part = Update(update.weights[first:], update.biases[first:], update.precision)
    enters = f"what enters the layer of {judged.names[first][0]}"
    return (
        part,
        above,
        enters,
        (f"{name} holds numbers that are not finite: only what is above was inverted",),
    )


def _sensitivity(layers: Layers, update: Update, leak: Leak) -> Sensitivity | None:
    if leak.certain is None or leak.is_first_layer:
        return None
    free = layers.outputs if layers.loss == "squares" else 0
    if leak.certain.records.shape[0] * (layers.inputs + free) > MOST_NUMBERS // 4:
        return None
    shared = tuple(bias is not None for bias in update.biases)
    return sensitivity(layers, leak.certain.records, leak.certain.targets, biases=shared)


def _error(leak: Leak, truth: Floats | None) -> float | None:
    if truth is None or not leak.candidates:
        return None
    return min(_distance(candidate, truth) for candidate in leak.candidates)


def _distance(candidate: Candidate, truth: Floats) -> float:
    """From each rebuilt record to the nearest true one; the largest."""
    gaps = np.abs(candidate.records[:, None, :] - truth[None, :, :]).max(axis=2)
    return float(gaps.min(axis=1).max() / max(float(np.abs(truth).max()), 1e-300))
