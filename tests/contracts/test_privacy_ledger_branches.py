"""Every branch of PrivacyLedger.vy is reached by the tests of its functions."""

from itertools import product

from vyper.compiler import compile_code

from . import test_privacy_ledger as functions
from . import test_privacy_ledger_refusals as refusals
from .privacy_ledger import SCENARIOS
from .revm import (
    Artifact,
    Contract,
    Halted,
    artifact,
    source,
)

__all__ = ["refusals"]  # whose tests are among the scenarios


class Branches:
    """Traps in the code: a branch is reached if some scenario falls into the trap at its end.

    The compiler writes each branch as PUSH2 target, JUMPI. That it is taken shows when the target is replaced
    with a trap; that it is not, when the instruction behind is.
    """

    def __init__(self, what):
        self.what, self.code = what, what.runtime
        self.places = []
        place, pushed = 0, None
        end = len(self.code)
        while place < end:
            operation = self.code[place]
            width = operation - 0x5F if 0x60 <= operation <= 0x7F else 0
            if operation == 0x57:
                assert pushed == 0x61, "a branch whose target is not pushed beside it"
                self.places.append(place)
            pushed, place = operation, place + 1 + width

    def trapped(self, place, taken):
        code = bytearray(self.code)
        if taken:
            code[place - 2 : place] = len(code).to_bytes(2)
            code += b"\x5b\xfe"
        else:
            code[place + 1] = 0xFE
        setup = b"\x61" + len(code).to_bytes(2) + b"\x80\x60\x0a\x5f\x39\x5f\xf3"
        found = Artifact.__new__(Artifact)
        found.__dict__ |= self.what.__dict__ | {"runtime": bytes(code), "creation": setup + bytes(code)}
        return found

    def unreached(self, scenarios):
        left, order = [], list(scenarios)
        for place, taken in product(self.places, (True, False)):
            trapped = self.trapped(place, taken)
            for one in order:
                try:
                    one(Contract(trapped))
                except Halted:
                    order.remove(one)
                    order.insert(0, one)  # its neighbours are likely reached by the same
                    break
            else:
                left.append((place, taken))
        return left


# What the compiler adds and no call can fail: amounts are below 2**62 and values fit int64, so sums stay
# below 2**125; loops and lists end at the 512 that calls are cut to; copying memory needs a few gas.
CANNOT_FAIL = {
    "DynArray[int256, 512] bounds check",
    "DynArray[int64, 512] bounds check",
    "range() bounds check",
    "safeadd",
    "safemul",
    "uint255 bounds check",
    "uint64 bounds check",
}
COPY_FAILED = b"\xfa\x15\x61"  # STATICCALL, ISZERO, PUSH2: copies go through the identity precompile
TOO_LONG = b"\x61\x02\x00\x81\x11\x61"  # of a list that was found to have at most 512 values before


def test_every_branch_is_reached():
    branches = Branches(artifact())
    labels = compile_code(source(), output_formats=["source_map_runtime"])["source_map_runtime"]["error_map"]
    left = branches.unreached(SCENARIOS)
    assert [(place, taken) for place, taken in left if not taken] == []
    other = [place for place, _ in left if not branches.code[: place - 2].endswith((COPY_FAILED, TOO_LONG))]
    assert {labels.get(place) for place in other} <= CANNOT_FAIL
    assert len(branches.places) > 120
    assert len(left) < 40


def test_the_search_for_branches_finds_one_that_is_not_reached():
    left = Branches(artifact()).unreached([functions.test_register])
    assert len(left) > 150
