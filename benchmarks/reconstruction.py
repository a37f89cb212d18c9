"""One step of cosine matching on the documents' network: time and memory.

What a step is compared with: the bare double backward, a gradient of the network and the gradient of its
inner product with a fixed vector by the picture. No matching step can do with less. The memory is what a
step adds to the process beyond the parameters and the update that is matched, in gradients of 32-bit numbers,
on a wide linear layer that makes everything else small.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.measure import Figure, cpu_ratio
from reticent.audit.reconstruction import Observed
from reticent.audit.reconstruction.matching import Matcher
from reticent.federated import torch_models

STEPS, REPETITIONS = 10, 15


def _matcher() -> Matcher:
    torch_models.torch_or_error().set_num_threads(1)
    network = torch_models.convolutional()
    theta, picture = network.start(1), np.random.default_rng(0).uniform(size=(1, 28, 28))
    update = network.mean_gradient(theta, picture, [3])
    return Matcher(Observed(network, theta, update, (28, 28), labels=[3]))


def matching_step() -> float:
    """A matching step's time / that of the bare double backward."""
    matcher = _matcher()
    torch, network, targets = matcher.torch, matcher.observed.network, matcher.targets()
    records = matcher.tensor(matcher.start(1, normal=False)).requires_grad_()

    def bare() -> None:
        for _ in range(STEPS):
            found = network.differentiable(matcher.tensors, records, targets)
            torch.autograd.grad(found, records, grad_outputs=matcher.seen)

    def ours() -> None:
        for _ in range(STEPS):
            matcher.slopes(records, targets, matcher.cosine, [records])

    return 1.0 / cpu_ratio(bare, ours, repetitions=REPETITIONS)


_MEMORY = """
import json
import numpy as np, torch
from reticent.audit.reconstruction import Observed
from reticent.audit.reconstruction.matching import Matcher
from reticent.federated.torch_models import Network
torch.set_num_threads(1)
nn = torch.nn
network = Network(nn.Sequential(nn.Linear(4000, 5000), nn.ReLU(), nn.Linear(5000, 10)))
size = 4 * network.dimensions
theta = np.zeros(network.dimensions, dtype=np.float64)
theta[:] = 1e-3
update = np.ones(network.dimensions)
matcher = Matcher(Observed(network, theta, update, (4000,), labels=[3]))
del theta, update
records = matcher.tensor(matcher.start(1, normal=False)).requires_grad_()
targets = matcher.targets()
with open("/proc/self/clear_refs", "w") as handle:
    handle.write("5")  # the peak starts again from here
def status(field):
    line = next(line for line in open("/proc/self/status") if line.startswith(field))
    return 1024 * int(line.split()[1])
before = status("VmRSS")
for _ in range(3):
    matcher.slopes(records, targets, matcher.cosine, [records])
print(json.dumps((status("VmHWM") - before) / size))
"""


def memory_of_a_step() -> float:
    """What a step adds to the process, in gradients."""
    done = subprocess.run([sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout))


def steps_beside_breaching() -> float:
    """Our steps of cosine matching a second / those of `breaching`, in the environment that holds it."""
    python = Path(sys.prefix) / "breaching/bin/python"
    command = [str(python), "-m", "benchmarks.beside_breaching"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


FIGURES = [
    Figure("matching steps a second", "breaching 0.1.2", 1.0, steps_beside_breaching),
    Figure("matching step, time", "bare double backward", 1.15, matching_step, at_most=True),
    Figure("matching step, memory", "one gradient", 4.0, memory_of_a_step, at_most=True),
]
