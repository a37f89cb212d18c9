"""Steps of cosine matching a second, ours and those of `breaching`, in one process; prints the ratio.

Run by the environment that `make .venv/.breaching` makes: `breaching` beside what we use ourselves. Both
rebuild one picture from the same update of the documents' network: cosine distance, signs through Adam, a
box, the label known. Its settings are its own `invertinggradients`, but for the number of steps and the total
variation, which it has for pictures of three colours only.
"""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import torch

from benchmarks.measure import cpu_ratio
from reticent.audit.reconstruction import Observed, cosine
from reticent.federated import torch_models

STEPS, REPETITIONS = 40, 7


def _breaching():
    """The package. It imports torchvision, whose compiled half is not made for this build of torch.

    Nothing that is measured uses that half; what its import looks for is declared.
    """
    declared = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import breaching

    return breaching


def steps() -> float:
    """Our steps a second / theirs."""
    torch.set_num_threads(1)
    breaching = _breaching()
    logging.disable(logging.INFO)
    network = torch_models.convolutional()
    theta, picture = network.start(1), np.random.default_rng(0).uniform(size=(1, 28, 28))
    observed = Observed(network, theta, network.mean_gradient(theta, picture, [3]), (28, 28), labels=[3])
    parameters, gradients = network.split(theta), [*network.split(observed.update).values()]

    settings = breaching.get_attack_config("invertinggradients")
    settings.optim.max_iterations = STEPS
    settings.regularization = {}  # its total variation is of three colours
    module = torch.nn.Sequential(torch.nn.Flatten(1, 2), *network.module)
    attacker = breaching.attacks.prepare_attack(module, torch.nn.CrossEntropyLoss(), settings)
    payload = [
        {
            "parameters": [*parameters.values()],
            "buffers": [],
            "metadata": SimpleNamespace(shape=(1, 28, 28), modality="vision", mean=[0.0], std=[1.0]),
        }
    ]
    told = {"num_data_points": 1, "labels": torch.tensor([3]), "local_hyperparams": None}
    sent = [{"gradients": gradients, "buffers": None, "metadata": told}]

    def theirs() -> None:
        attacker.reconstruct(payload, sent, {})

    def ours() -> None:
        cosine(observed, steps=STEPS, rate=0.2, variation=0.0)

    return cpu_ratio(theirs, ours, repetitions=REPETITIONS)


if __name__ == "__main__":
    print(steps())
