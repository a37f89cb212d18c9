"""A server that chooses the model: a layer that sorts records into rows of its gradient.

All rows of the first layer measure the same thing, a record's brightness, and have thresholds at its
quantiles over public records. A row's gradient sums the records above its threshold; two neighbours differ by
those between them. Where that is one record, the quotient of weights and bias is the record itself, whatever
the network behind and however large the batch.

A defence that looks at the update alone does not see it; the model has to be looked at. Noise with a
guarantee stops it, as it stops all others.

Needs the part `torch`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reticent.arguments import real, whole
from reticent.errors import ParameterError
from reticent.federated.torch_models import Network, torch_or_error
from reticent.mechanisms.base import Floats


def imprinted(
    module: Any, public: Any, rows: int = 512, *, loss: str = "cross-entropy"
) -> tuple[Network, Floats]:
    """Build a network with an imprint layer ahead of `module`, and the theta that a malicious server sends.

    Args:
        module: Module that is pretended to be learnt; takes records of the shape of the public ones.
        public: Records, from which quantiles of brightness are taken.
        rows: Number of rows of the imprint layer.
        loss: Loss, see `Network`.

    Reference: Fowl et al. 2022, Section 3.1 and Eq. 3.
    """
    torch, rows = torch_or_error(), whole("rows", rows, low=2)
    seen = np.asarray(public, dtype=np.float64)
    if seen.ndim < 2 or len(seen) < 2 or not np.isfinite(seen).all():
        raise ParameterError(f"public must be two or more records of finite numbers, got {seen.shape}")
    shape, width, nn = seen.shape[1:], math.prod(seen.shape[1:]), torch.nn
    kind = next(module.parameters()).dtype
    layers = nn.Sequential(
        nn.Flatten(),
        nn.Linear(width, rows),
        nn.ReLU(),
        nn.Linear(rows, width),
        nn.Unflatten(1, shape),
        module,
    ).to(kind)
    brightness = seen.reshape(len(seen), width).mean(axis=1)
    thresholds = np.quantile(brightness, np.arange(rows) / rows)
    spread = max(float(brightness.std()), 1e-12)
    with torch.no_grad():
        first, second = layers[1], layers[3]
        first.weight.fill_(1.0 / (width * spread))
        first.bias.copy_(torch.as_tensor(-thresholds / spread))
        column = torch.as_tensor(np.cos(np.arange(width)))  # the same for all rows, so their slopes are equal
        second.weight.copy_((column / rows)[:, None].expand(width, rows))
        second.bias.fill_(0.5)
    network = Network(layers, loss=loss)
    return network, network.flat(dict(layers.named_parameters()))


def read_imprint(
    network: Network, update: Any, shape: tuple[int, ...], rows: int = 512, *, least: float = 1e-6
) -> Floats:
    """Return the records that an imprint layer's rows hold: shape (found, *shape), bounded by 0 and 1.

    Args:
        network: Network that `imprinted` built.
        update: Mean gradient of a batch.
        shape: Shape of one record.
        rows: Number of rows of the imprint layer.
        least: a difference of bias gradients below this share of the largest holds no record.
    """
    width, given = math.prod(shape), np.asarray(update, dtype=np.float64)
    if given.shape != (network.dimensions,) or not np.isfinite(given).all():
        raise ParameterError(f"update must be {network.dimensions} finite numbers, as the network has")
    if network.dimensions < rows * (width + 1):
        raise ParameterError(f"network must have an imprint layer of {rows} rows before {width} features")
    weights = given[: rows * width].reshape(rows, width)
    bias = given[rows * width : rows * (width + 1)]
    apart = np.append(bias[:-1] - bias[1:], bias[-1])
    held = np.vstack([weights[:-1] - weights[1:], weights[-1:]])
    kept = np.abs(apart) > real("least", least, low=0.0) * max(float(np.abs(apart).max()), 1e-300)
    found = held[kept] / apart[kept][:, None]
    return np.asarray(np.clip(found, 0.0, 1.0).reshape(-1, *shape))
