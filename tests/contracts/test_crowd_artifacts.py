"""The compiled contracts of the crowd are those of the sources beside them, and fit onto a chain."""

import json
from hashlib import sha256

import pytest

from reticent.chain import compile as compiling

from .crowd import Crowd
from .revm import CROWD, OWNER, Refused, artifact, source


def test_what_is_committed_is_what_the_compiler_makes(capsys):
    assert compiling.main([str(CROWD), "--check"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["FederatedTask", "Lottery"])
def test_an_artifact(name):
    found = json.loads((CROWD / f"{name}.json").read_text())
    assert found["source_sha256"] == sha256(source(name).encode()).hexdigest()
    assert source(name).startswith("# pragma version 0.4.3\n")
    assert artifact(name).runtime in artifact(name).creation
    assert len(artifact(name).runtime) <= 24_576  # what a contract may have, EIP-170


def test_what_it_is_made_with():
    crowd = Crowd()
    assert crowd.read("lottery") == crowd.lottery.lower()
    evm = crowd._evm
    for lottery, unit in [(OWNER, 1), (crowd.lottery, 0), (crowd.lottery, 1 << 96)]:
        words = int(lottery, 16).to_bytes(32) + unit.to_bytes(32)
        with pytest.raises(RuntimeError, match="Revert"):
            evm.deploy(OWNER, artifact("FederatedTask").creation + words)


def test_coin_that_nobody_asked_for_is_refused():
    crowd = Crowd()
    for data in (b"", crowd.data("leave"), b"\1\2\3\4"):
        with pytest.raises(Refused):
            crowd.raw(OWNER, data, worth=1)
    assert crowd.balance() == 0
