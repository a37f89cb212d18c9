"""A crowd of programs on this machine: a chain of its own, a store, people with keys, and their processes."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import IO

from reticent.apps.chain.keys import new_key
from reticent.apps.crowd import task_work
from reticent.apps.crowd.demo_clock import Clock
from reticent.apps.crowd.opened import followed
from reticent.chain.anvil import Anvil
from reticent.chain.keys import Key
from reticent.chain.node import Node
from reticent.errors import SourceError
from reticent.federated.crowd.contract import task_id
from reticent.federated.crowd.crowd_file import CrowdFile
from reticent.federated.crowd.following import Follower, Seen
from reticent.federated.crowd.task_file import read
from reticent.processes import Companion
from reticent.store import Gateway

STAKE = 100  # units of each miner
POLL_S = 0.25
_ETHER = 10**18
_UNIT = 10**15
_READY_S = 120.0
_PROGRAM = "from reticent.apps import main; main()"
_POISONER = "from reticent.apps.crowd.demo_poisoner import main; main()"


@dataclass(frozen=True)
class Person:
    """Somebody with a key."""

    name: str
    file: Path
    key: Key

    @property
    def address(self) -> str:
        """On the chain."""
        return self.key.address


class World:
    """Chain, store, contract and a task; programs of people, which run until the `with` block ends.

    Args:
        folder: for everything.
        task: the file of the task.
        customers: how many.
        miners: how many.
        poisoners: how many of the customers, the last ones.
    """

    def __init__(self, folder: Path, task: Path, *, customers: int, miners: int, poisoners: int = 0) -> None:
        self.folder, self.file, self._held = folder, task, contextlib.ExitStack()
        self._running: dict[str, tuple[Companion, IO[bytes]]] = {}
        self._environment = dict(os.environ)
        self._environment |= {"XDG_STATE_HOME": str(folder / "state"), "OPENBLAS_NUM_THREADS": "1"}
        self.chain = folder / "crowd.json"
        try:
            self.anvil = self._held.enter_context(Anvil("--no-mining"))
            self.clock = Clock(self.anvil.url)
            self._held.callback(self.clock.close)
            self.node = Node(self.anvil.url)
            self._held.callback(self.node.close)
            self.maker = self._person("manufacturer")
            self.customers = [self._person(f"customer-{number}") for number in range(customers)]
            self.miners = [self._person(f"miner-{number}") for number in range(miners)]
            self.poisoners = self.customers[customers - poisoners :]
            self.store_url = self._store()
            self.identifier = self._posted()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> World:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End every program."""
        for name in list(self._running):
            self.kill(name)
        self._held.close()

    # Making it

    def _person(self, name: str) -> Person:
        file = self.folder / f"{name}.key"
        key = new_key(file, encrypt=False)
        self.node.rpc("anvil_setBalance", key.address, hex(1000 * _ETHER))
        return Person(name, file, key)

    def _store(self) -> str:
        """`reticent store serve` as a process; where."""
        self._start("store", "store", "serve", str(self.folder / "store"))
        end, log = time.monotonic() + _READY_S, self.folder / "store.log"
        while time.monotonic() < end and self.is_running("store"):
            words = log.read_text("utf-8", "replace").replace(",", " ").split()
            if found := [word for word in words if word.startswith("http://")]:
                return found[0]
            time.sleep(0.05)
        raise SourceError(f"the store must start, got {self.last_line('store')}")

    def _posted(self) -> bytes:
        """Deploy the contract and post the task, by what the commands do."""
        with redirect_stdout(StringIO()):
            task_work.deploy(
                self.anvil.url,
                self.maker.file,
                out=self.chain,
                stake_unit=_UNIT,
                confirmations=0,
                forget_rpc=False,
                fees=(None, None),
            )
            task_work.post(
                self.file,
                key=self.maker.file,
                chain=self.chain,
                rpc=None,
                store=self.store_url,
                token_file=None,
                fees=(None, None),
            )
        return task_id(self.maker.address, bytes(read(self.file).text.cid))

    def follower(self) -> Follower:
        """The contract, followed by somebody of their own."""
        found = followed(CrowdFile.read(self.chain), None)
        self._held.callback(found.node.close)
        return found

    def store(self) -> Gateway:
        """The store, for somebody of their own."""
        return self._held.enter_context(contextlib.closing(Gateway(self.store_url)))

    def follow(self, before: Callable[[Seen], None] = lambda seen: None) -> None:
        """Let the clock wait for all programs that run."""
        self.clock.follow(self.follower(), self.identifier, self.alive, before)

    def alive(self) -> tuple[set[str], set[str]]:
        """Addresses of customers and miners whose programs run."""
        found = (
            {one.address for one in part if self.is_running(one.name)}
            for part in (self.customers, self.miners)
        )
        return next(found), next(found)

    # Programs

    def start_customer(self, person: Person, files: Sequence[Path], *, lifetime: float) -> None:
        """`reticent crowd customer` as a process; a poisoner's if it is one."""
        program = _POISONER if person in self.poisoners else _PROGRAM
        told = (self.identifier.hex(), *map(str, files), "--lifetime", str(lifetime))
        self._start(person.name, "crowd", "customer", *told, *self._options(person), program=program)

    def start_miner(self, person: Person) -> None:
        """`reticent crowd miner` as a process."""
        self._start(person.name, "crowd", "miner", "--stake", str(STAKE), *self._options(person))

    def _options(self, person: Person) -> tuple[str, ...]:
        home = self.folder / f"{person.name}-home"
        told = {"--key": person.file, "--chain": self.chain, "--store": self.store_url, "--home": home}
        told["--poll"] = str(POLL_S)
        return tuple(str(one) for pair in told.items() for one in pair)

    def _start(self, name: str, *arguments: str, program: str = _PROGRAM) -> None:
        log = (self.folder / f"{name}.log").open("ab")
        try:
            process = Companion([sys.executable, "-c", program, *arguments], log, self._environment)
        except BaseException:
            log.close()
            raise
        self._running[name] = process, log

    def is_running(self, name: str) -> bool:
        """Whether a program has not ended."""
        return name in self._running and self._running[name][0].is_running()

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process, log = self._running.pop(name)
        process.close()
        log.close()

    def last_line(self, name: str) -> str:
        """What a program said last."""
        said = (self.folder / f"{name}.log").read_text("utf-8", "replace").strip().splitlines()
        return said[-1] if said else "silence"
