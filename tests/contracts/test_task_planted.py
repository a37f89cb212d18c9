"""Bugs that a careless hand might write into the contracts: the walk beside the model finds them."""

import pytest

from .revm import Halted, planted
from .test_task_walk import walk

# What the issue names is tried in every run, the others in the full one.
PLANTED = {
    "no deadline": ("block.number < start + ((terms >> 116) & WINDOW)", "True"),
    "double settle": ("    self.customers[task][customer] = held & SHORT\n", ""),
    "second vote": ('    self._check(seat & mark == 0, "crowd: voted already")\n', ""),
    "seat without proof": (
        "    output: bytes32 = self._verified(point, alpha, proof, roots)\n",
        "    output: bytes32 = keccak256(abi_encode(proof.gamma))\n",
    ),
    "caller's seed": ("blockhash(fixed)\n", "keccak256(abi_encode(msg.sender))\n"),
    "seed of the block of asking": ("blockhash(fixed)\n", "blockhash(block.number - 1)\n"),
    "stake after the seed": ("miner != 0 and (miner >> 64) & NUMBER < fixed", "miner != 0"),
    "stake that left": ("self._check(left == 0 or left >= fixed", "self._check(True"),
    "another's key": ('    self._check(self._address(point) == msg.sender, "crowd: another\'s key")\n', ""),
    "any change of stakes": ("change == self.changes or self.totals[change + 1] >> 64 >= fixed", "True"),
    "half is enough": ("if 3 * votes > 2 * taken", "if 2 * votes > taken"),
    "anybody leads": ("leader & (2**160 - 1) == convert(msg.sender, uint256)", "True"),
    "proposed twice": ("self.draws[draw].proposals[rank] == empty(bytes32)", "True"),
    "pay without acceptance": ("paid & ~accepted == 0", "True"),
    "most hashes lead": ("        if mine < first:", "        if mine > first:"),
    "rewarded twice": ('    self._check(seat & 2**34 == 0, "crowd: done already")\n', ""),
    "closed before disputes": ("block.number >= progress.since + ((terms >> 200) & WINDOW)", "True"),
    "deposit kept": ("    self.owed[empty(address)][disputer] += self.tasks[task].fees >> 160\n", ""),
    "reclaimed at once": ("block.number >= progress.since + (self.tasks[task].terms >> 228)", "True"),
    "pool not charged": ("        self.tasks[task].pool -= pay\n", ""),
    "released while locked": ("block.number > left and block.number > miner >> 192", "block.number > left"),
    "another update than committed": ("held != 0 and held >> 9 == bound >> 9", "held != 0"),
    "first commitment kept as zero": (") | ((counts & SHORT) + 1)", ") | (counts & SHORT)"),
    "low costs nothing": ("reputation = self._lowered(before, counts >> 32)", "pass"),
    "free point below the average": (
        "        return 0\n    return reputation\n",
        "        return 0\n    return reputation + 1\n",
    ),
    "larger committee forgotten": ("        expected *= LARGER\n    else:", "        pass\n    else:"),
    "withdrawn twice": ("    self.owed[token][msg.sender] = 0\n", ""),
}  # fmt: skip
NAMED = [*[*PLANTED][:5], "first commitment kept as zero"]


@pytest.mark.parametrize(
    "bug", [bug if bug in NAMED else pytest.param(bug, marks=pytest.mark.slow) for bug in PLANTED]
)
def test_planted_bugs_are_found(bug):
    what = lottery = None
    if bug == "seat without proof":
        lottery = planted(PLANTED[bug], name="Lottery")
    else:
        what = planted(PLANTED[bug], name="FederatedTask")
    with pytest.raises((AssertionError, Halted)):
        walk(what, lottery, calls=30_000, seed=14)
