"""A chain of one's own: found, started, stopped, and what is said if it does not start."""

import os
import sys
from pathlib import Path

import pytest

from reticent.chain.anvil import Anvil, find_anvil
from reticent.chain.node import Node
from reticent.errors import ChainError, NodeUnavailable
from reticent.processes import Companion


def test_it_runs_and_stops(own_anvil):
    with own_anvil("--chain-id", "77") as running:
        node = Node(running.url, chain_id=77)
        assert int(node.rpc("eth_getBalance", running.keys[0].address, "latest"), 16) > 10**20
        folder = Path(running._folder.name)
        assert folder.exists()
    with pytest.raises(NodeUnavailable):
        node.number()
    node.close()
    assert not folder.exists()


def test_blocks_in_intervals(own_anvil):
    node = Node(own_anvil(block_time_s=1).url)
    assert node.rpc("anvil_getAutomine") is False
    node.close()


def test_a_wrong_argument(own_anvil):
    with pytest.raises(ChainError, match="anvil does not start: error: unexpected argument '--nonsense'"):
        own_anvil("--nonsense")


def test_no_anvil(monkeypatch, tmp_path):
    monkeypatch.delenv("RETICENT_ANVIL", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_anvil() is None
    with pytest.raises(ChainError, match="there is no anvil on this machine"):
        Anvil()
    monkeypatch.setenv("RETICENT_ANVIL", str(tmp_path / "none"))
    with pytest.raises(ChainError, match=r"anvil does not start: .*No such file"):
        Anvil()


def test_where_it_is_looked_for(monkeypatch, tmp_path):
    monkeypatch.delenv("RETICENT_ANVIL", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    on_path = tmp_path / "bin" / "anvil"
    beside = tmp_path / "node_modules" / "@foundry-rs" / "anvil-linux-amd64" / "bin" / "anvil"
    for one in (on_path, beside):
        one.parent.mkdir(parents=True)
        one.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_anvil() == str(beside)
    beside.unlink()
    assert find_anvil() == str(on_path)
    monkeypatch.setenv("RETICENT_ANVIL", "mine")
    assert find_anvil() == "mine"


def test_a_program_that_ends_at_once_while_another_answers_at_its_port(monkeypatch, tmp_path, anvil):
    """The port may be taken between asking for it and starting: another's chain is not ours."""
    program = tmp_path / "anvil"
    program.write_text("#!/bin/sh\necho Address already in use >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("RETICENT_ANVIL", str(program))

    started = []

    def start(*given):
        started.append(Companion(*given))
        return started[-1]

    def answered(url):
        os.waitid(os.P_PID, started[-1].pid, os.WEXITED | os.WNOWAIT)  # it has ended
        return Node(anvil.url)

    monkeypatch.setattr("reticent.chain.anvil.Companion", start)
    monkeypatch.setattr("reticent.chain.anvil.Node", answered)
    with pytest.raises(ChainError, match="anvil does not start: Address already in use"):
        Anvil()
