"""Models as `Layers`: those of `federated`, and modules of PyTorch, which is needed for these alone.

What can be inverted of a module is its tail: the linear layers, with ReLU between them, that follow the last
layer of another kind. Where there is such a layer (a convolution, say, or dropout in training mode, with a
mask that nobody knows), what enters the tail takes the place of the records, and a note says so.

Updates are arrays by name, as `state_dict` names parameters. Files of them are safetensors: reading one runs
nothing that is in it. Pickles are refused by name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.audit.leakage.layers import Layers, Update
from reticent.errors import MissingExtra, ParameterError
from reticent.federated.models import Model
from reticent.federated.networks import TwoLayers
from reticent.mechanisms.base import Floats

Arrays = Mapping[str, NDArray[Any]]

_LOSS_OF_MODEL = {"linear": "squares", "logistic": "logistic", "svm": "hinge"}
_LOSS_OF_TORCH = {"CrossEntropyLoss": "cross-entropy", "MSELoss": "squares"}
_THROUGH = ("Flatten", "Identity")  # layers that pass numbers on as they are
_RANDOM = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")
_LARGEST_NUMBER = 1e100
_LARGEST_FILE = 8 << 30
_PICKLE, _ZIP = b"\x80", b"PK"


@dataclass(frozen=True)
class FirstLayer:
    """The first linear layer of a model, where what follows it is not inverted.

    Attributes:
        weights: Name of its weights.
        biases: Name of its biases.
        inputs: Count of numbers that enter it.
        enters: Description of what enters it.
    """

    weights: str
    biases: str
    inputs: int
    enters: str


@dataclass(frozen=True)
class Subject:
    """A model whose updates are judged.

    Attributes:
        layers: Layers of the model that are inverted.
        names: Names of the weights and the biases of each layer; None for a bias that there is not.
        parameters: Shapes of all parameters, by name.
        enters: Description of what the layers take, in words.
        notes: Notes on what is not inverted, and why.
        measured: Function that takes a batch (records, targets) and returns the update, as arrays, and what
            entered the layers.
        unpacked: Function that makes the arrays of the layers from those that are sent, where these are
            others.
        first: Linear layer with biases below those that are inverted, which shows what enters it by itself.
    """

    layers: Layers
    names: tuple[tuple[str, str | None], ...]
    parameters: Mapping[str, tuple[int, ...]]
    enters: str
    notes: tuple[str, ...]
    measured: Callable[[Any, Any], tuple[dict[str, NDArray[Any]], Floats]] = field(repr=False)
    unpacked: Callable[[Mapping[str, Floats]], dict[str, Floats]] | None = field(default=None, repr=False)
    first: FirstLayer | None = None

    def update(self, arrays: Arrays, *, rate: float | None = None) -> Update:
        """Return the gradients of the layers; with a rate, arrays are steps of -rate times the gradient."""
        for name, array in arrays.items():
            if name not in self.parameters:
                raise ParameterError(f"update has {name!r:.80}, the model has not: is it of another model?")
            if tuple(np.shape(array)) != self.parameters[name]:
                raise ParameterError(
                    f"update: {name} has shape {tuple(np.shape(array))}, the model {self.parameters[name]}"
                )
        precision = max((_precision(array) for array in arrays.values()), default=1.0)
        scale = 1.0 if rate is None else -1.0 / rate
        given = {name: scale * np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
        _refuse_extremes(given)
        parts = given if self.unpacked is None else self.unpacked(given)
        lacking = [weights for weights, _ in self.names if weights not in parts]
        if lacking:
            raise ParameterError(f"update lacks {lacking[0]!r:.80}: is it of another model?")
        return Update(
            tuple(parts[weights] for weights, _ in self.names),
            tuple(None if bias is None else parts.get(bias) for _, bias in self.names),
            precision,
        )


def subject(model: Any, *, loss: Any = None) -> Subject:
    """Return the subject for a module of PyTorch, for `Layers`, or for a model of `federated` and its theta.

    Args:
        model: Model that is trained.
        loss: Loss of a module: "cross-entropy" (if nothing is said), "squares", "logistic", "hinge", or
            PyTorch's `CrossEntropyLoss()` or `MSELoss()`. Other models know their own.

    Raises:
        ParameterError: a model of which nothing can be inverted, in one line.
    """
    if isinstance(model, Layers):
        return _of_layers(model)
    if isinstance(model, tuple) and len(model) == 2 and isinstance(model[0], Model | TwoLayers):
        return _of_theta(model[0], np.asarray(model[1], dtype=np.float64))
    if hasattr(model, "named_modules") and hasattr(model, "state_dict"):
        return _of_module(model, _loss_name(loss))
    raise ParameterError(
        "model must be a module of PyTorch, Layers, or a pair of a reticent.federated model and its theta, "
        f"got {type(model).__name__}"
    )


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file in the form of safetensors."""
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load
    except ImportError as error:
        raise MissingExtra("an update from a file", "federated") from error
    try:
        if path.exists() and not path.is_file():
            raise ParameterError(f"update: {path.name} is no file")
        if path.stat().st_size > _LARGEST_FILE:
            raise ParameterError(f"update: {path.name} is larger than {_LARGEST_FILE >> 30} GiB")
        content = path.read_bytes()
    except OSError as error:
        raise ParameterError(f"update: {path.name} cannot be read: {error.strerror}") from error
    try:
        return dict(load(content))
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        # Only now: a header of 128 bytes begins like a pickle.
        if content.startswith((_PICKLE, _ZIP)):
            raise ParameterError(
                f"update: {path.name} is a pickle, which runs code when read: give safetensors"
            ) from error
        raise ParameterError(f"update: {path.name} must be a file in the form of safetensors") from error


def _refuse_extremes(arrays: Mapping[str, Floats]) -> None:
    """Numbers whose squares are no numbers, or nothing, cannot be inverted."""
    sizes = [np.abs(array[np.isfinite(array)]).max(initial=0.0) for array in arrays.values()]
    largest = float(max(sizes, default=0.0))
    if largest > _LARGEST_NUMBER or 0.0 < largest < 1.0 / _LARGEST_NUMBER:
        raise ParameterError(f"update: its largest number is {largest:.3g}: too far from 1 to be inverted")


def _precision(array: NDArray[Any]) -> float:
    kind = np.asarray(array).dtype
    if kind.kind != "f":
        raise ParameterError(f"update must hold floating point numbers, got {kind}")
    return float(np.finfo(kind).eps)


# Models in numpy


def _of_layers(layers: Layers) -> Subject:
    names = tuple((f"{place}.weight", f"{place}.bias") for place in range(len(layers)))
    shapes = {
        name: tuple(array.shape)
        for pair, arrays in zip(names, zip(layers.weights, layers.biases, strict=True), strict=True)
        for name, array in zip(pair, arrays, strict=True)
    }

    def measured(records: Any, targets: Any) -> tuple[dict[str, NDArray[Any]], Floats]:
        rows = _rows(records, layers.inputs)
        update = layers.update(rows, np.asarray(targets, dtype=np.float64))
        found: dict[str, NDArray[Any]] = {}
        for (weights, bias), w, b in zip(names, update.weights, update.biases, strict=True):
            assert b is not None
            found |= {weights: w, bias: b}
        return found, rows

    return Subject(layers, names, shapes, "the record", (), measured)


def _rows(records: Any, inputs: int) -> Floats:
    found = np.asarray(records, dtype=np.float64)
    if found.ndim < 2 or found.reshape(len(found), -1).shape[1] != inputs:
        raise ParameterError(f"batch must hold records of {inputs} numbers, got shape {found.shape}")
    return found.reshape(len(found), -1)


def _of_theta(model: Model | TwoLayers, theta: Floats) -> Subject:
    """One array, "theta", from which the gradient of the penalty is taken off: theta is public.

    Of a model with axes, what is told about is what features are along them.
    """
    prepared = model.prepared if isinstance(model, Model) else np.asarray
    inputs, model = model.inputs, model.plain if isinstance(model, Model) else model
    if theta.shape != (model.dimensions,):
        raise ParameterError(f"theta must be {model.dimensions} numbers, got shape {theta.shape}")
    penalty = model.l2 if isinstance(model, Model) else 0.0
    layers = layers_of(model, theta)
    inner = _of_layers(layers)

    def measured(records: Any, targets: Any) -> tuple[dict[str, NDArray[Any]], Floats]:
        rows, wanted = prepared(_rows(records, inputs)), np.asarray(targets, dtype=np.float64)
        return {"theta": model.mean_gradient(theta, rows, wanted)}, rows

    def unpacked(given: Mapping[str, Floats]) -> dict[str, Floats]:
        if "theta" not in given:
            raise ParameterError("update lacks 'theta': is it of another model?")
        weights, biases = pieces_of(model, given["theta"] - penalty * theta)
        found: dict[str, Floats] = {}
        for (name, bias), w, b in zip(inner.names, weights, biases, strict=True):
            found[name] = w
            if b is not None and bias is not None:
                found[bias] = b
        return found

    shapes = {"theta": (theta.size,)}
    return Subject(layers, inner.names, shapes, "the record", (), measured, unpacked)


def pieces_of(
    model: Model | TwoLayers, theta: Floats
) -> tuple[tuple[Floats, ...], tuple[Floats | None, ...]]:
    """Return a flat vector as weights and biases of layers; None for an intercept that there is not."""
    if isinstance(model, Model):
        return (theta[None, : model.inputs],), (theta[model.inputs :] if model.intercept else None,)
    cut = model.hidden * model.inputs
    first, b = theta[:cut].reshape(model.hidden, model.inputs), theta[cut : cut + model.hidden]
    return (first, theta[None, cut + model.hidden : -1]), (b, theta[-1:])


def layers_of(model: Model | TwoLayers, theta: Floats) -> Layers:
    """Return a model of `federated` with its parameters, as layers."""
    weights, biases = pieces_of(model, theta)
    loss = _LOSS_OF_MODEL[model.kind] if isinstance(model, Model) else "squares"
    return Layers(weights, tuple(np.zeros(1) if b is None else b for b in biases), loss)


# Modules of PyTorch


def _loss_name(loss: Any) -> str:
    if loss is None:
        return "cross-entropy"
    if isinstance(loss, str):
        return loss
    name = type(loss).__name__
    plain = getattr(loss, "weight", None) is None and not getattr(loss, "label_smoothing", 0.0)
    if name not in _LOSS_OF_TORCH or not plain or getattr(loss, "reduction", "mean") != "mean":
        raise ParameterError(
            "loss must be cross-entropy, squares, logistic, hinge, a plain CrossEntropyLoss() or MSELoss(), "
            f"got {name}"
        )
    return _LOSS_OF_TORCH[name]


def _of_module(module: Any, loss: str) -> Subject:
    linear, notes = _tail(module)
    layers = _linear_layers(linear, loss)
    try:
        is_checked = _agrees(module, layers, linear[0][0])
    except ParameterError as error:
        if len(linear) == 1:
            raise
        notes.append(str(error).removesuffix(": not inverted") + f": only {linear[-1][0]!r} is inverted")
        linear = linear[-1:]
        layers = _linear_layers(linear, loss)
        is_checked = _agrees(module, layers, linear[0][0])
        if not is_checked:
            raise
    first, parts = linear[0][0], [part for _, part in linear]
    prefix = [f"{name}." if name else "" for name, _ in linear]
    names = tuple(
        (f"{begin}weight", f"{begin}bias" if part.bias is not None else None)
        for begin, part in zip(prefix, parts, strict=True)
    )
    shapes = {name: tuple(held.shape) for name, held in module.named_parameters()}
    enters = f"what enters layer {first!r}" if notes else "the record"

    def measured(records: Any, targets: Any) -> tuple[dict[str, NDArray[Any]], Floats]:
        found, seen = _gradients(module, loss, first, records, targets)
        return found, _rows(seen, layers.inputs)

    if not is_checked:
        notes.append(f"whether {type(module).__name__} is its layers one after the other was not checked")
    below = _first_layer(module, first) if enters != "the record" else None
    return Subject(layers, names, shapes, enters, tuple(notes), measured, first=below)


def _linear_layers(linear: list[tuple[str, Any]], loss: str) -> Layers:
    parts = [part for _, part in linear]
    return Layers(
        tuple(np.asarray(part.weight.detach().double().cpu().numpy()) for part in parts),
        tuple(
            np.zeros(part.out_features) if part.bias is None else part.bias.detach().double().cpu().numpy()
            for part in parts
        ),
        loss,
    )


def _first_layer(module: Any, tail: str) -> FirstLayer | None:
    """Return the first layer of a module, if it is linear, has biases and is not that of the tail.

    In a `Sequential` it is the record that enters; in other modules, what enters may be made of it.
    """
    for name, part in module.named_modules():
        kind = type(part).__name__
        if [*part.children()] or _passes(kind, part, tail=True):
            continue
        if kind != "Linear" or part.bias is None or name == tail:
            return None
        enters = "the record" if _is_sequential(module) else f"what enters layer {name!r}"
        return FirstLayer(f"{name}.weight", f"{name}.bias", part.in_features, enters)
    return None


def _is_sequential(module: Any) -> bool:
    return all(
        type(part).__name__ == "Sequential" for _, part in module.named_modules() if [*part.children()]
    )


def _tail(module: Any) -> tuple[list[tuple[str, Any]], list[str]]:
    """Return the linear layers at the end, by name, and why there are no more of them."""
    linear: list[tuple[str, Any]] = []
    notes: list[str] = []
    relu = True  # whether a ReLU, or the end, follows the layers that are looked at next
    leaves = [(name, part) for name, part in module.named_modules() if not [*part.children()]]
    functional = not any(type(part).__name__ == "ReLU" for _, part in leaves)
    for name, part in reversed(leaves):
        kind = type(part).__name__
        if kind == "Linear" and (relu or functional):
            linear.append((name, part))
            relu = False
        elif kind == "ReLU" and linear:
            relu = True
        elif not _passes(kind, part, bool(linear)):
            notes.append(_why(name, kind, part, bool(linear)))
            break
    if not linear:
        raise ParameterError(notes[0] if notes else "model must have linear layers")
    return linear[::-1], notes


def _passes(kind: str, part: Any, tail: bool) -> bool:
    """Whether a layer passes numbers on as they are; softmax of its own logarithm is itself."""
    if kind in _RANDOM:
        return not part.training or part.p == 0.0
    return kind in _THROUGH or (kind == "LogSoftmax" and not tail)


def _why(name: str, kind: str, part: Any, tail: bool) -> str:
    shown = f"layer {name!r} ({kind})" if name else kind
    if kind in _RANDOM or (kind.startswith("BatchNorm") and part.training):
        return f"{shown} is in training mode: what is below cannot be inverted; call model.eval() first"
    if not tail:
        return f"{shown} is the last layer: only linear layers with ReLU between them can be inverted"
    return f"{shown} is neither linear nor ReLU between linear layers: what is below it is not inverted"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]


def _gradients(
    module: Any, loss: str, first: str, records: Any, targets: Any
) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """The gradient of the mean loss, by PyTorch itself, in its own precision; and what entered a layer."""
    import torch

    seen: list[Any] = []
    parameters = dict(module.named_parameters())
    given = torch.as_tensor(np.asarray(records), dtype=next(module.parameters()).dtype)
    hook = module.get_submodule(first).register_forward_pre_hook(lambda _, entered: seen.append(entered[0]))
    try:
        mean = _mean_loss(loss, module(given), targets)
    except (RuntimeError, IndexError, ValueError) as error:
        raise ParameterError(f"batch does not fit the model: {_line(error)}") from error
    finally:
        hook.remove()
    found = torch.autograd.grad(mean, [*parameters.values()], allow_unused=True)
    arrays = {
        name: slope.detach().cpu().numpy()
        for name, slope in zip(parameters, found, strict=True)
        if slope is not None
    }
    return arrays, seen[0].detach().cpu().numpy()


def _mean_loss(loss: str, scores: Any, targets: Any) -> Any:
    import torch

    functional = torch.nn.functional
    if loss == "cross-entropy":
        return functional.cross_entropy(scores, torch.as_tensor(np.asarray(targets), dtype=torch.int64))
    wanted = torch.as_tensor(np.asarray(targets), dtype=scores.dtype).reshape(scores.shape)
    if loss == "squares":
        return functional.mse_loss(scores, wanted)
    if loss == "hinge":
        return functional.relu(1.0 - wanted * scores).mean()
    return functional.softplus(-wanted * scores).mean()


def _agrees(module: Any, layers: Layers, first: str) -> bool:
    """Refuse a module that is more than its layers one after the other; False if that cannot be seen.

    What enters the first of them is replaced, and the module's own input is something else: what goes past
    the layers then shows.
    """
    import torch

    if _is_sequential(module):
        return True
    seen: list[Any] = []
    part = module.get_submodule(first)
    probe = torch.linspace(-1.0, 1.0, 3 * layers.inputs, dtype=part.weight.dtype).reshape(3, -1).sin()
    swap = part.register_forward_pre_hook(lambda _, given: (probe,))
    keep = module.register_forward_hook(lambda _, given, said: seen.append(said))
    widths = [other.in_features for _, other in module.named_modules() if type(other).__name__ == "Linear"]
    try:
        for width in dict.fromkeys([layers.inputs, *widths]):
            with torch.no_grad(), contextlib.suppress(RuntimeError):  # it takes records of another shape
                module(torch.linspace(-1.0, 1.0, 3 * width, dtype=probe.dtype).reshape(3, -1).sin().cos())
                break
    finally:
        swap.remove()
        keep.remove()
    if not seen:
        return False
    said = np.asarray(seen[0].double().cpu().numpy())
    ours = layers.forward(probe.double().cpu().numpy())[1]
    if said.shape != ours.shape or np.abs(said - ours).max() > 1e-4 * (1.0 + np.abs(ours).max()):
        raise ParameterError(
            f"{type(module).__name__} does more than its linear layers with ReLU between them: not inverted"
        )
    return True
