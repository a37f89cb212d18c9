"""Both leaders of a draw find the same, since both are honest, and the first finds no quorum in its turn."""

import pytest

from reticent.chain.anvil import find_anvil
from reticent.federated.crowd.deciding import Do
from reticent.federated.crowd.evidence import read
from reticent.federated.crowd.miner import Miner
from reticent.federated.crowd.verify import verify
from reticent.store import Directory

from .crowd_programs import ROUNDS, Crowd, is_done, miner

pytestmark = pytest.mark.skipif(find_anvil() is None, reason="no anvil on this machine (npm installs it)")


class Late(Miner):
    """Votes in the second leader's turn only; in the first one's, one of them does."""

    def _do(self, action, seen):
        first = min(self.follower.history.units)
        if action.do is not Do.VOTE or action.rank == 1 or self.me == first:
            super()._do(action, seen)


def test_what_the_second_leader_proposes_again_is_decided_and_everybody_reads_on(tmp_path):
    crowd = Crowd(tmp_path)
    try:
        for part in crowd.miners:
            part.kind = miner(Late)
        crowd.play()
        assert is_done(crowd)
        assert crowd.check() == []
        events = [one for one in crowd.follower._log.events() if one.name == "Proposed"]
        names = [one.fields["proposal"] for one in events]
        assert len(set(names)) < len(names), "none was proposed twice: this tests nothing"
        report = verify(read(crowd.contract), crowd.identifier, Directory(tmp_path / "store"))
        assert len(report.rounds) == ROUNDS
        assert report.unchecked == []
    finally:
        crowd.close()
