"""A data set on a chain from the command line, for the tests of `reticent chain`."""

import shutil
from contextlib import closing, redirect_stdout
from io import StringIO
from types import SimpleNamespace

import pytest

from reticent.apps.chain import work
from reticent.chain.keys import make_key
from reticent.chain.node import Node
from reticent.errors import ChainError
from reticent.ledger.ethereum.chain_file import ChainFile
from reticent.ledger.ethereum.contract import Contract, dataset_id
from reticent.query import census
from reticent.query.declarations.home import moved

MEAN = census.FIVE["average personal income"]


ON_CHAIN = ["--ledger", "ethereum"]


DEAD = "http://127.0.0.1:9"


def funded(url, path):
    """A new key with money, and its address."""
    key = make_key(path)
    with closing(Node(url)) as node:
        node.rpc("anvil_setBalance", key.address, hex(10**19))
    return key.address


@pytest.fixture(scope="module")
def deployed(anvil, tmp_path_factory):
    """A chain file of contracts that the tests share, each with an owner of its own."""
    folder = tmp_path_factory.mktemp("deployed")
    funded(anvil.url, folder / "operator.key")
    with redirect_stdout(StringIO()):
        work.deploy(
            anvil.url,
            folder / "operator.key",
            out=folder / "chain.json",
            confirmations=None,
            forget_rpc=False,
        )
    return folder / "chain.json"


PEOPLE = ("owner", "oracle", "anna", "bruno")


def furnished(folder, url, chain):
    """A folder with a census, four keys with money, and the chain file."""
    census.write(folder, rows=300)
    shutil.copy(chain, folder / "chain.json")
    people = {name: funded(url, folder / f"{name}.key") for name in PEOPLE}
    return SimpleNamespace(folder=folder, url=url, declaration=folder / "census.yaml", **people)


def entered(place, folder, monkeypatch):
    """The same place in another folder, which becomes the current one."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("RETICENT_RPC", "RETICENT_KEY_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    return SimpleNamespace(**{**vars(place), "folder": folder, "declaration": folder / "census.yaml"})


@pytest.fixture
def place(anvil, deployed, tmp_path, monkeypatch):
    """A furnished folder: nothing is registered."""
    return entered(furnished(tmp_path, anvil.url, deployed), tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def template(anvil, deployed, tmp_path_factory):
    """A census that is on the chain once for all tests that spend nothing; Anna may be charged half."""
    found = furnished(tmp_path_factory.mktemp("template"), anvil.url, deployed)
    told = {"key": found.folder / "owner.key", "chain": found.folder / "chain.json", "rpc": None}
    with redirect_stdout(StringIO()):
        work.register(found.declaration, oracle=found.oracle, **told)
        work.allow(found.declaration, found.anna, share=0.5, epsilon=None, owner=None, **told)
    return found


@pytest.fixture
def nothing_charged(template, tmp_path, monkeypatch):
    """A copy of its folder. Nothing may have been spent afterwards."""
    shutil.copytree(template.folder, tmp_path, dirs_exist_ok=True)
    moved(tmp_path / "census.yaml")
    yield entered(template, tmp_path, monkeypatch)
    assert held(template).spent == 0


@pytest.fixture
def done(command):
    """Run a command that must succeed; return what it prints."""

    def run(*args):
        code, out, err = command(*args)
        assert (code, err) == (0, "")
        return out

    return run


@pytest.fixture
def refused(command, is_one_error_line):
    """Run a command that must fail with exit code 2 in one line; return that line."""

    def run(*args):
        code, out, err = command(*args)
        assert (code, out) == (2, "")
        assert is_one_error_line(err)
        return err

    return run


@pytest.fixture
def registered(place, done):
    """The census on the chain; Anna may be charged half of it."""
    done("chain", "register", "census.yaml", "--oracle", place.oracle, "--key", "owner.key")
    done("chain", "allow", "census.yaml", place.anna, "--share", "0.5", "--key", "owner.key")
    return place


def held(place, owner=None):
    """The data set as the contract stores it."""
    file = ChainFile.read(place.folder / "chain.json")
    with closing(file.connect(place.url)) as node:
        return Contract(node, file.contract).held(dataset_id(owner or place.owner, "census"))


def too_cheap(self, signed):
    """A node that finds every fee too low."""
    return [ChainError("the node at 127.0.0.1:9 refused: transaction underpriced") for _ in signed]
