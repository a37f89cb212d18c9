"""Vectors of docs/codebook-vectors.json: directions and tables, as a stranger reads docs/report-format.md.

`python tests/unit/mechanisms/test_vectors.py` writes the file.
"""

import hashlib
import json
import math
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

FILE = Path(__file__).parents[3] / "docs" / "codebook-vectors.json"


def encrypted(key, block):
    return Cipher(AES(key), ECB()).encryptor().update(block)


def seed_of(key, client, number):
    block = client + number.to_bytes(4, "big") + bytes([4, 0, 0, 0])
    return encrypted(key, block)[:8]


def direction(seed, number, n):
    """Unit length, in doubles: the code has single precision."""
    key = hashlib.sha256(b"reticent codebook, version 1").digest()
    cosines, sines = [], []
    for place in range(-(-n // 4)):
        block = encrypted(key, seed + number.to_bytes(4, "big") + place.to_bytes(4, "big"))
        words = [int.from_bytes(block[at : at + 4], "little") for at in range(0, 16, 4)]
        for first, second in (words[:2], words[2:]):
            radius = math.sqrt(-2.0 * math.log((first + 0.5) * (1 - 2**-24) * 2**-32))
            angle = second * math.pi / 2**31
            cosines.append(radius * math.cos(angle))
            sines.append(radius * math.sin(angle))
    numbers = (cosines + sines)[:n]
    length = math.sqrt(sum(one * one for one in numbers))
    return [one / length for one in numbers]


def ranked(seed, size, gradient, length):
    """The numbers of directions, most along first."""
    g = [one / length for one in gradient]
    own = math.sqrt(sum(one * one for one in g))
    x = [one / max(1.0, own) for one in g] + [math.sqrt(max(0.0, 1.0 - min(1.0, own) ** 2))]
    along = [sum(map(float.__mul__, direction(seed, number, len(x)), x)) for number in range(size)]
    return sorted(range(size), key=lambda number: -along[number])


def rows_of(mechanism):
    """Places of each output at each knot."""
    c = Fraction(Context(prec=50).exp(Decimal(mechanism["epsilon"])))
    columns = [(output, weight, int(pattern, 16)) for output, weight, pattern in mechanism["columns"]]
    knots = max(bits.bit_length() for _, _, bits in columns)
    rows = []
    for knot in range(knots):
        row = [0] * len(mechanism["y"])
        for output, weight, bits in columns:
            row[output] += math.floor(c * (weight - 4)) - 4 if bits >> knot & 1 else weight
        heaviest = max((one for one in columns if not one[2] >> knot & 1), key=lambda one: one[1])
        row[heaviest[0]] += 2**50 - sum(row)
        rows.append(row)
    return rows


GIVEN = json.loads(FILE.read_text()) if FILE.exists() else {"directions": [], "tables": []}


@pytest.mark.parametrize("given", GIVEN["directions"], ids=lambda given: f"{given['bits']} bits")
def test_a_stranger_finds_the_same_directions(given):
    seed = seed_of(bytes.fromhex(given["key"]), bytes.fromhex(given["client"]), given["round"])
    assert seed.hex() == given["seed"]
    for number, numbers in given["numbers"].items():
        assert direction(seed, int(number), len(numbers)) == pytest.approx(numbers, abs=2e-6)
    order = ranked(seed, 1 << given["bits"], given["gradient"], given["length"])
    assert sorted(order[: given["top"]]) == given["near"]


@pytest.mark.parametrize("given", GIVEN["tables"], ids=lambda given: f"epsilon {given['epsilon']}")
def test_a_stranger_finds_the_same_tables(given):
    rows = rows_of(given)
    assert rows == given["rows"]
    means = [sum(map(float.__mul__, (p / 2**50 for p in row), given["y"])) for row in rows]
    wide = (means[-1] - means[0]) / 2.0
    assert [(one - means[0]) / wide - 1.0 for one in means] == pytest.approx(given["knots"], abs=1e-9)
    assert [(one - means[0]) / wide - 1.0 for one in given["y"]] == pytest.approx(given["outputs"], abs=1e-9)
    for column in zip(*rows, strict=True):
        assert math.log(max(column)) <= math.log(min(column)) + given["epsilon"] + 1e-15


def test_planted_other_readings_are_found():
    """Sines before cosines, another byte order of the seed, one place more."""
    given = GIVEN["directions"][0]
    seed = bytes.fromhex(given["seed"])
    numbers = given["numbers"]["1"]
    assert direction(seed[::-1], 1, len(numbers)) != pytest.approx(numbers, abs=2e-6)
    assert direction(seed, 2, len(numbers)) != pytest.approx(numbers, abs=2e-6)
    table = GIVEN["tables"][0]
    changed = [[output, weight + (place == 0), pattern] for place, (output, weight, pattern) in
               enumerate(table["columns"])]  # fmt: skip
    assert rows_of(table | {"columns": changed}) != table["rows"]


# From here on Reticent is imported, to compare.

import numpy as np  # noqa: E402

from reticent.fleet.lots import Lots  # noqa: E402
from reticent.mechanisms.numeric import Tailored  # noqa: E402
from reticent.mechanisms.vector import Codebook, directions  # noqa: E402
from reticent.mechanisms.vector.codebook import lifted  # noqa: E402

STEPS = {  # tables that need no solver: two outputs, and three of which one is rare
    1.0: ([-1.0, 1.0], [(0, 100_000_000_000_000, "3"), (0, 180_000_000_000_000, "1"),
                        (1, 100_000_000_000_000, "4"), (1, 180_000_000_000_000, "6")]),
    4.0: ([-1.5, 0.25, 1.0], [(0, 9_000_000_000_000, "1"), (1, 900_000_000_000, "2"),
                              (2, 9_000_000_000_000, "6"), (0, 6_000_000_000_000, "3"),
                              (2, 6_000_000_000_000, "4")]),
}  # fmt: skip


def _direction_vector(bits, d, number):
    key, client = bytes(range(32)), bytes.fromhex("0123456789abcdef")
    ids = np.array([int.from_bytes(client, "big")], dtype=np.uint64)
    seeds = Lots(key).codebook(ids, number)
    codebook = Codebook(epsilon=2.0, dimensions=d, bits=bits)
    gradient = [round(math.cos(place**1.5), 3) for place in range(d)]
    row = np.array([gradient]) / 3.0
    near = codebook._ranked(lifted(row), seeds)[0, : codebook.top]
    numbers = {
        str(one): directions.unit(directions.normals(seeds, np.array([one]), d + 1), d + 1)[0].tolist()
        for one in (0, 1, codebook.size - 1)
    }
    return {
        "key": key.hex(), "client": client.hex(), "round": number, "seed": f"{int(seeds[0]):016x}",
        "bits": bits, "top": codebook.top, "length": 3.0, "gradient": gradient,
        "near": sorted(near.tolist()), "numbers": numbers,
    }  # fmt: skip


def _table_vector(epsilon):
    y, columns = STEPS[epsilon]
    mechanism = Tailored(epsilon=epsilon, y=y, columns=columns)
    return {
        "epsilon": epsilon, "y": y, "columns": columns,
        "rows": mechanism._counts.tolist(), "knots": mechanism.knots.tolist(),
        "outputs": mechanism.alphabet.tolist(),
    }  # fmt: skip


def vectors():
    """What the file holds."""
    return {
        "directions": [
            _direction_vector(4, 3, 0),
            _direction_vector(6, 9, 7),
            _direction_vector(8, 30, 1 << 19),
        ],
        "tables": [_table_vector(epsilon) for epsilon in STEPS],
    }


def test_the_code_makes_the_file():
    """To the last digits of single precision, which differ between machines."""
    made = json.loads(json.dumps(vectors()))
    for kind in ("directions", "tables"):
        for mine, given in zip(made[kind], GIVEN[kind], strict=True):
            loose = {"numbers", "knots", "outputs"}
            assert {k: v for k, v in mine.items() if k not in loose} == {
                k: v for k, v in given.items() if k not in loose
            }
            for name in loose & set(mine):
                both = (mine[name], given[name])
                if name == "numbers":
                    assert mine[name].keys() == given[name].keys()
                    both = tuple([one for part in of.values() for one in part] for of in both)
                assert both[0] == pytest.approx(both[1], abs=1e-6)


if __name__ == "__main__":
    FILE.write_text(json.dumps(vectors(), indent=1) + "\n")
