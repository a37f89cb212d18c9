"""Exact inversion of an update of 784-128-64-10, against PyTorch's own backward pass that made it.

The peer is one call of `torch.autograd.grad` on one record, in double precision, on one thread, without the
forward pass; a batch is compared with the same pass of one record. Both sides are in one process, by CPU. The
verdict is checked before it is timed, labels and number of records are not told, and nothing is left out:
each inversion ends with its check against the whole update.
"""

from __future__ import annotations

import itertools

import numpy as np

from benchmarks.measure import Figure, cpu_ratio
from reticent.audit.leakage import Kind, Update, invert
from reticent.audit.leakage.sources import subject

SIZES = (784, 128, 64, 10)
CALLS = 50


def _made(records: int):
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    nn = torch.nn
    layers = [part for fan, units in itertools.pairwise(SIZES) for part in (nn.Linear(fan, units), nn.ReLU())]
    module = nn.Sequential(*layers[:-1]).double()
    inputs, labels = torch.rand(max(records, 1), 784, dtype=torch.float64), torch.arange(max(records, 1)) * 2
    judged = subject(module)
    sent, _ = judged.measured(inputs, labels)
    return torch, module, inputs, labels, judged.layers, judged.update(sent)


def _backward_seconds_of_one(torch, module, inputs, labels):
    loss = torch.nn.functional.cross_entropy(module(inputs[:1]), labels[:1])
    parameters = [*module.parameters()]

    def run() -> None:
        for _ in range(CALLS):
            torch.autograd.grad(loss, parameters, retain_graph=True)

    return run


def inversion(records: int, shared: bool) -> float:
    """CPU of one inversion / CPU of one backward pass of one record."""
    torch, module, inputs, labels, layers, update = _made(records)
    shown = update if shared else update.without_biases()
    leak = invert(layers, shown)
    assert leak.kind is Kind.EVERYTHING
    assert leak.records == records
    assert np.abs(np.sort(leak.certain.records, axis=0) - np.sort(inputs.numpy(), axis=0)).max() < 1e-9

    times = CALLS if records == 1 else 1

    def ours() -> None:
        for _ in range(times):
            invert(layers, Update(shown.weights, shown.biases))

    peer = _backward_seconds_of_one(torch, module, inputs, labels)
    return 1.0 / cpu_ratio(peer, ours, peer_work=CALLS, our_work=times)


FIGURES = [
    Figure("leakage, one record", "one backward pass", 1.0, lambda: inversion(1, True), at_most=True),
    Figure("leakage, no bias gradients", "one backward pass", 1.0, lambda: inversion(1, False), at_most=True),
    Figure("leakage, a batch of 4", "one backward pass", 200.0, lambda: inversion(4, True), at_most=True),
    Figure(
        "leakage, 4, no bias gradients", "one backward pass", 200.0, lambda: inversion(4, False), at_most=True
    ),
]
