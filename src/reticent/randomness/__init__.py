"""Random bits: secure by default; seeded only where a test or a simulation asks for it by name.

`streams` turns AES-256-CTR into blocks of words, `draws` turns words into exact discrete draws.
Every function of Reticent that needs noise takes `rng`; None means the secure stream.
"""

from reticent.randomness.draws import LATTICE, bernoulli, categorical, uniform_below
from reticent.randomness.streams import SECURE, SecureStream, SimulationStream, Stream, secure_or

__all__ = [
    "LATTICE",
    "SECURE",
    "SecureStream",
    "SimulationStream",
    "Stream",
    "bernoulli",
    "categorical",
    "secure_or",
    "uniform_below",
]
