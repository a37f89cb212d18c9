"""The compiled contracts are those of the sources beside them; and the small one, HeadAnchor.vy."""

import json
import shutil
from hashlib import sha256

import pytest

from reticent.chain import compile as compiling

from .revm import FOLDER, OWNER, STRANGER, Contract, Refused, artifact, source


@pytest.fixture
def copy(tmp_path):
    for file in [*FOLDER.glob("*.vy"), *FOLDER.glob("*.json")]:
        shutil.copy(file, tmp_path)
    return tmp_path


def test_what_is_committed_is_what_the_compiler_makes(capsys):
    assert compiling.main([str(FOLDER), "--check"]) == 0
    assert capsys.readouterr().out == ""


def test_a_file_that_is_out_of_date_is_noticed_and_written_anew(copy, capsys):
    file = copy / "HeadAnchor.vy"
    (copy / "PrivacyLedger.vy").unlink()  # takes the compiler longer
    before = (copy / "HeadAnchor.json").read_text()
    file.write_text(source("HeadAnchor").replace("Signed heads", "The signed heads"))
    changed = file.read_text()
    assert changed != source("HeadAnchor")
    assert compiling.main([str(copy), "--check"]) == 1
    assert "HeadAnchor.json" in capsys.readouterr().out
    assert (copy / "HeadAnchor.json").read_text() == before
    assert compiling.main([str(copy)]) == 0
    assert compiling.main([str(copy), "--check"]) == 0
    old, new = json.loads(before), json.loads((copy / "HeadAnchor.json").read_text())
    assert new["source_sha256"] == sha256(changed.encode()).hexdigest() != old["source_sha256"]
    assert (new["runtime"], new["abi"]) == (old["runtime"], old["abi"])  # only a comment was changed
    (copy / "HeadAnchor.json").unlink()
    assert compiling.main([str(copy), "--check"]) == 1


def test_a_folder_without_contracts_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        compiling.main([str(tmp_path), "--check"])
    said = capsys.readouterr().err
    assert said.startswith("usage: python -m reticent.chain.compile [-h] [--check] folder\n")
    assert f"error: folder must hold contracts (*.vy), got {tmp_path}\n" in said


def test_another_compiler_is_refused(monkeypatch):
    import vyper

    monkeypatch.setattr(vyper, "__version__", "0.5.0")
    with pytest.raises(SystemExit, match=r"needs vyper 0\.4\.3, got 0\.5\.0"):
        compiling.compiled("HeadAnchor", source("HeadAnchor"))


@pytest.mark.parametrize("name", ["PrivacyLedger", "HeadAnchor"])
def test_an_artifact(name):
    found = json.loads((FOLDER / f"{name}.json").read_text())
    assert (found["name"], found["compiler"]) == (name, "vyper 0.4.3")
    assert found["source_sha256"] == sha256(source(name).encode()).hexdigest()
    assert source(name).startswith("# pragma version 0.4.3\n")
    assert found["selectors"] == {
        "0x" + call.selector.hex(): f"{function}({','.join(call.inputs)})"
        for function, call in artifact(name).calls.items()
    }
    assert artifact(name).runtime in artifact(name).creation
    assert len(artifact(name).runtime) <= 24_576  # what a contract may have, EIP-170


def test_an_anchor_tells_the_head_and_keeps_nothing():
    heads = Contract(artifact("HeadAnchor"))
    origin, root, totals, *signature = (sha256(text.encode()).digest() for text in "abcde")
    for writer, size in [(OWNER, 5), (STRANGER, 0), (OWNER, 2**64 - 1), (OWNER, 5)]:
        answer = heads.call(writer, "anchor", origin, size, root, totals, signature)
        fields = {
            "writer": writer, "origin": origin, "size": size, "root": root, "totals": totals,
            "signature": tuple(signature),
        }  # fmt: skip
        assert (answer.value, answer.events) == (None, [("Anchored", fields)])
    data = heads.data("anchor", origin, 5, root, totals, signature)
    for wrong in (data[:-1], data[:4], b"", data[:36] + b"\xff" * 32 + data[68:]):
        with pytest.raises(Refused):
            heads.raw(OWNER, wrong)
    with pytest.raises(Refused):
        heads.raw(OWNER, data, worth=1)
