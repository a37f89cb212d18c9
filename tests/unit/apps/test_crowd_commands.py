"""`reticent crowd deploy`, `post`, `apply`, `status`, `claim`, and what `customer` and `miner` refuse."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from reticent.chain.keys import make_key, unlocked_key
from reticent.chain.node import Node
from reticent.chain.sender import Sender
from reticent.federated.crowd.commitments import OLD_VERSION
from reticent.federated.crowd.contract import TaskContract, creation
from reticent.federated.crowd.crowd_file import CrowdFile

TASK = """\
purpose: Tell washing programmes apart.
mode: device
training: {inputs: 4, classes: 3, l2: 1e-4, clip: 1, records: 20, rate: 0.5, steps: 2, mu: 1}
grid: {steps: 65536, norm: 655360, floor: 100}
terms: {rounds: 2, people: 5, f: 1, commit_blocks: 1000}
prices: {unit: 1000, bonus: 100, leader_fee: 5000, committee_fee: 20000, deposit: 1000000}
"""


@pytest.fixture
def crowd(anvil, command, tmp_path, monkeypatch):
    """A contract on a chain, and `reticent crowd ...` in a folder with keys."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    node = Node(anvil.url)
    for name in ("maker", "anna"):
        node.rpc("anvil_setBalance", make_key(f"{name}.key").address, hex(10**20))
    make_key("poor.key")
    node.close()
    (tmp_path / "task.yaml").write_text(TASK)
    (tmp_path / "rows.csv").write_text("1,2,3,4,0\n")
    code, out, err = command("crowd", "deploy", "--key", "maker.key", "--rpc", anvil.url)
    assert (code, err) == (0, ""), err
    assert "crowd.json is written" in out

    def run(*arguments):
        return command("crowd", *arguments)

    return run


def posted(crowd):
    code, out, err = crowd("post", "task.yaml", "--store", "files", "--key", "maker.key")
    assert (code, err) == (0, "")
    return out.split()[1]


def test_commands_go_on_with_a_contract_of_version_1(crowd, anvil):
    """Posting there says that there is a newer one."""
    file = CrowdFile.read(Path("crowd.json"))
    with closing(Node(anvil.url)) as node:
        code = creation(TaskContract(node, file.contract).lottery, 10**15, version=1)
        made = Sender(node, unlocked_key("maker.key")).transact(None, code)
    Path("crowd.json").unlink()
    replace(file, contract=made.contract, block=made.block).write(Path("crowd.json"))
    code, out, err = crowd("post", "task.yaml", "--store", "files", "--key", "maker.key")
    assert (code, err) == (0, "")
    assert out.startswith(f"The contract is of version 1: {OLD_VERSION}.\n")
    task = out.splitlines()[1].removeprefix("task ")
    code, out, _ = crowd("apply", task, "--key", "anna.key")
    assert (code, "is customer 0" in out) == (0, True)
    code, out, _ = crowd("status", task)
    assert (code, "1 of 5" in out) == (0, True)


def test_a_task_that_nobody_can_claim_from_is_not_posted(crowd):
    Path("task.yaml").write_text(TASK.replace("commit_blocks: 1000", "commit_blocks: 1000, claim_blocks: 1"))
    code, out, err = crowd("post", "task.yaml", "--store", "files", "--key", "maker.key")
    assert (code, out) == (2, "")
    assert "claim_blocks must be >= 2 to claim what is owed after 0 confirmations, got 1" in err
    assert not list(Path("files").rglob("*.*")), "nothing was put into the store"


def test_a_task_is_posted_applied_to_and_shown(crowd):
    task = posted(crowd)
    code, out, _ = crowd("apply", task, "--key", "anna.key")
    assert (code, "is customer 0" in out) == (0, True)
    code, out, _ = crowd("status")
    assert code == 0
    assert f"{task} round 0 of 2 collecting updates" in out.replace("\n", " ")
    code, out, _ = crowd("status", task)
    assert (code, "1 of 5" in out, "reputation 0, paid 0" in out) == (0, True, True)
    code, out, _ = crowd("claim", "--key", "anna.key")
    assert (code, "nothing is owed" in out) == (0, True)
    for given, said in (
        (
            ("post", "task.yaml", "--store", "files", "--key", "maker.key"),
            f"the task is posted already: {task}",
        ),
        (("apply", task, "--key", "anna.key"), "is a customer of the task already"),
    ):
        code, out, err = crowd(*given)
        assert (code, out, said in err, err.count("\n")) == (2, "", True, 1), err


def test_what_cannot_be_is_one_line_and_leaves_nothing(crowd, tmp_path):
    task = posted(crowd)
    home = ("--store", "files", "--home", "home")
    told = (*home, "--lifetime", "2")
    other = "ab" * 32
    (tmp_path / "wrong.json").write_text((tmp_path / "crowd.json").read_text().replace("31337", "1"))
    for given, said in (
        (("customer", task, "none.csv", *told, "--key", "anna.key"), "there is no file none.csv"),
        (("customer", "12", "rows.csv", *told, "--key", "anna.key"), "a task must be 64 hexadecimal digits"),
        (("customer", other, "rows.csv", *told, "--key", "anna.key"), f"there is no task {other}"),
        (("customer", task, "rows.csv", *told, "--key", "none.key"), "the key file cannot be used"),
        (("customer", task, "rows.csv", *told, "--key", "anna.key", "--chain", "wrong.json"), "chain"),
        (
            ("customer", task, "rows.csv", *told, "--key", "anna.key", "--chain", "no.json"),
            "there is no no.json",
        ),
        (("miner", *home, "--key", "anna.key"), "is no miner of this contract: give --stake"),
        (("miner", *home, "--key", "anna.key", "--stake", "-1"), "stake must be >= 0, got -1"),
        (("status", other), f"there is no task {other}"),
        (("apply", other, "--key", "anna.key"), f"there is no task {other}"),
        (("apply", task, "--key", "poor.key"), "has 0 wei of the chain's coin, and needs"),
        (
            ("customer", task, "rows.csv", *told, "--key", "poor.key"),
            "has 0 wei of the chain's coin, and needs",
        ),
        (("miner", *home, "--key", "poor.key", "--stake", "5"), "has 0 wei of the chain's coin, and needs"),
        (("post", "none.yaml", "--store", "files", "--key", "maker.key"), "there is no file none.yaml"),
        (("deploy", "--key", "maker.key"), "crowd.json exists already"),
    ):
        code, out, err = crowd(*given)
        assert (code != 0, said in err, err.count("\n")) == (True, True, 1), (given, out, err)
    assert "0 of 5" in crowd("status", task)[1]
