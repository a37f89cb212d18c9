"""A campaign whose every byte is known: a signer, enrolments, rounds, and rounds that lie."""

import base64
import hashlib
import json
import zlib

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.fleet import signing
from reticent.fleet.enrolment import Enrolment, device_key
from reticent.location import payload
from reticent.location.rounds import PlaceRound, signed
from reticent.mechanisms.location import ElasticChannel
from reticent.spaces import Box, Grid

from ..operating import intake

MASTER = bytes(range(32))
SIGNING = Ed25519PrivateKey.from_private_bytes(bytes(range(100, 132)))
SIGNER = SIGNING.public_key().public_bytes_raw()
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(50, 82)))
PARIS = Box(48.8286, 48.8798, 2.2855, 2.3909)
GRID = Grid.over(PARIS, 4, 5, (7, 19))


def enrolment(number):
    identity = hashlib.sha256(f"phone {number}".encode()).digest()[:8]
    return Enrolment(identity, device_key(MASTER, identity))


def asked(beta=0.5, number=0, grid=GRID, seed=0, **changes):
    """A round whose c is skewed."""
    c = np.where(grid.open, np.random.default_rng(seed).dirichlet(np.ones(grid.size)) + 1e-6, 0.0)
    fields = {"name": "paris", "purpose": "to test", "number": number, "rounds": 100} | changes
    return PlaceRound.made(ElasticChannel(grid, c, beta), **fields)


def file_of(found):
    return signed(found, SIGNING)


def sealed(text, key=SIGNING):
    """Any text, signed as a round."""
    return signing.sealed("round", b"reticent-places/v1\n", text, key)


def written(fields):
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def packed(masses, level=9, behind=b""):
    content = zlib.compress(np.asarray(masses, dtype=">u4").tobytes(), level)
    return base64.b64encode(content + behind).decode()


def lies(rng):
    """Kinds of bad rounds, each (kind, file), all but the last few signed by the right key."""
    honest = asked(beta=float(rng.uniform(0.1, 1.5)), seed=int(rng.integers(1 << 30)))
    fields, masses = json.loads(honest.text), np.array(honest.marginal)
    is_open, some = np.flatnonzero(GRID.open), rng.uniform(0.01, 0.9)

    def changed(**changes):
        return sealed(written(fields | changes))

    def moved(place, by):
        """Mass that is put on one cell, and taken from another unless it is to be missing."""
        other = masses.copy()
        other[place] += by
        return other

    big, small = int(np.argmax(masses)), int(is_open[rng.integers(len(is_open))])
    south, north, west, east = fields["box"]
    emptied = moved(small, -masses[small])
    emptied[is_open[0] if small != is_open[0] else is_open[1]] += masses[small]
    wet = moved(7, 1000)
    wet[big] -= 1000
    shuffled = list(fields.items())
    rng.shuffle(shuffled)
    text = honest.text
    altered = bytearray(file_of(honest))
    altered[altered.index(b'"signature":"') + 13 + int(rng.integers(128))] ^= 1
    bomb = base64.b64encode(zlib.compress(bytes(1 << 22))).decode()
    half = [one * some for one in fields["cell_km"]]
    return [
        ("sum too large", changed(marginal=packed(moved(big, int(rng.integers(1, 10**6)))))),
        ("sum too small", changed(marginal=packed(moved(big, -int(rng.integers(1, 1000)))))),
        ("not normalised", changed(marginal=packed(masses * 2))),
        ("zero in an open cell", changed(marginal=packed(emptied))),
        ("mass in a closed cell", changed(marginal=packed(wet))),
        ("no marginal", changed(marginal=packed(np.zeros(20)))),
        ("short marginal", changed(marginal=packed(masses[:-1]))),
        ("long marginal", changed(marginal=packed([*masses, 0]))),
        ("bomb", changed(marginal=bomb)),
        ("cut bomb", changed(marginal=bomb[: len(bomb) // 8 * 4])),
        ("more behind the marginal", changed(marginal=packed(masses, behind=b"x"))),
        ("no base64", changed(marginal="@" + fields["marginal"][1:])),
        ("no text", changed(marginal=[1, 2, 3])),
        ("beta doubled", changed(beta=2.0 * fields["beta"])),
        ("beta raised", changed(beta=fields["beta"] * (1.0 + some))),
        ("level halved", changed(level=fields["level"] / 2.0)),
        ("level lowered", changed(level=fields["level"] * (1.0 - 1e-9))),
        ("level is two beta", changed(level=2.0 * fields["beta"])),
        ("cells too small", changed(cell_km=half)),
        ("cells in metres", changed(cell_km=[1000.0 * one for one in fields["cell_km"]])),
        ("cells turned", changed(cell_km=fields["cell_km"][::-1])),
        ("more rows", changed(rows=5, columns=4)),
        ("latitude for longitude", changed(box=[west, east, south, north])),
        ("upside down", changed(box=[north, south, west, east])),
        ("a smaller box", changed(box=[south, south + (north - south) * some, west, east])),
        ("three numbers", changed(box=[south, north, west])),
        ("a box of words", changed(box=["48", "49", "2", "3"])),
        ("another metric", changed(distance="squared")),
        ("distances given", changed(matrix=[[0, 1], [1, 0]])),
        ("another geometry", changed(geometry="kilometres per degree")),
        ("the old geometry", sealed(written({key: fields[key] for key in fields if key != "geometry"}))),
        ("a field missing", sealed(written({key: fields[key] for key in fields if key != "level"}))),
        ("another format", changed(format=2)),
        ("beta zero", changed(beta=0.0)),
        ("beta negative", changed(beta=-fields["beta"])),
        ("beta a word", changed(beta="0.5")),
        ("beta true", changed(beta=True)),
        ("beta huge", changed(beta=1e300)),
        ("beta infinite", sealed(text.replace(b'"beta":', b'"beta":1e999,"x":'))),
        ("rows huge", changed(rows=1 << 40)),
        ("cells huge", changed(rows=1 << 19, columns=1 << 19)),
        ("all closed", changed(closed=list(range(20)))),
        ("closed outside", changed(closed=[7, 20])),
        ("closed unsorted", changed(closed=[19, 7])),
        ("closed twice", changed(closed=[7, 7, 19])),
        ("closed deep", changed(closed=[[7], 19])),
        ("number outside", changed(number=100)),
        ("number negative", changed(number=-1)),
        ("rounds huge", changed(rounds=1 << 40)),
        ("a name of a folder", changed(name="../paris")),
        ("no purpose", changed(purpose="")),
        ("spaces", sealed(json.dumps(fields, sort_keys=True).encode())),
        (
            "unsorted",
            sealed(json.dumps(dict(sorted(shuffled, reverse=True)), separators=(",", ":")).encode()),
        ),
        ("said twice", sealed(text[:-1] + b',"beta":0.0001}')),
        ("a number otherwise", sealed(text.replace(b'"rounds":100', b'"rounds":1e2'))),
        ("no object", sealed(b"[1,2]")),
        ("deep", sealed(b"[" * 50_000)),
        ("long number", changed(rows=0).replace(b'\\"rows\\":0', b'\\"rows\\":' + b"9" * 5000)),
        ("above what is allowed", file_of(asked(beta=float(rng.uniform(2.1, 9.0))))),
        ("altered signature", bytes(altered)),
        ("another signer", signed(honest, OTHER)),
        ("another's text", file_of(honest).replace(b"to test", b"to spy!")),
        ("signed as something else", signing.sealed("round", b"reticent-survey/v1\n", text, SIGNING)),
        ("no signature", text),
        ("not a file", None),
        ("too long", b" " * (1 << 25)),
    ]


def read(asked, report, master):
    """What a report says: (outcome, reporter, cell); the last two hold if it counts."""
    form = payload.form(asked)
    outcomes, admitted = intake(master).admitted([report], form)
    if not admitted:
        return outcomes[0], b"", 0
    cell = payload.cell_of(asked, report)
    return (payload.Outcome.CELL, b"", 0) if cell is None else (outcomes[0], report[form.reporter], cell)
