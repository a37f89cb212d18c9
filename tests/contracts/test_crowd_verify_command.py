"""`reticent crowd verify` as somebody types it: what it says, and its errors in one line."""

import pytest
from typer.testing import CliRunner

from reticent.apps.crowd.commands import group
from reticent.errors import ParameterError, ReticentError
from reticent.federated.crowd.crowd_file import CrowdFile
from reticent.federated.crowd.verify import Contradiction

from .real_task import Real


@pytest.fixture
def played(anvil, tmp_path):
    """A task in its first round, and the file that says where it is."""
    found = Real(anvil.url, tmp_path / "store")
    found.begin()
    found.collect()
    found.draw()
    CrowdFile(anvil.url, found.node.chain_id, found.contract.address, 0, 0).write(tmp_path / "crowd.json")
    yield found
    found.close()


def run(folder, task, *more):
    words = ["verify", task, "--chain", str(folder / "crowd.json"), "--store", str(folder / "store"), *more]
    done = CliRunner().invoke(group, words)
    if isinstance(done.exception, ReticentError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_what_was_checked_is_told(played, tmp_path):
    played.judge()
    told = run(tmp_path, played.task.hex())
    assert "1 of 1" in told
    assert "decided, may be disputed" in told
    assert "Nothing contradicts itself." in told
    assert "public accuracy after round 0" in told


def test_a_contradiction_is_one_line(played, tmp_path):
    cid, words = played.result()
    told = cid, (*words[:3], words[3] & (words[3] - 1))
    played.result = lambda: told
    played.judge()
    with pytest.raises(Contradiction, match=r"^round 0: the set of those paid is \d+, and .* \d+$"):
        run(tmp_path, "0x" + played.task.hex())


def test_mistakes_are_told_in_one_line(played, tmp_path):
    with pytest.raises(ParameterError, match="64 hexadecimal digits"):
        run(tmp_path, "task")
    with pytest.raises(ParameterError, match="no folder"):
        run(tmp_path, played.task.hex(), "--store", str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()
    with pytest.raises(ParameterError, match="there is no task"):
        run(tmp_path, "00" * 32)
    with pytest.raises(ParameterError, match="crowd deploy"):
        run(tmp_path, played.task.hex(), "--chain", str(tmp_path / "none.json"))
