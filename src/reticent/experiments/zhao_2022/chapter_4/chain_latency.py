"""Seconds from the question to the recorded answer, against the number of analysts who ask at once.

Every analyst has a key, a connection and a question of their own. `fresh` is the longest way: the question is
declared and charged in a block, the oracle measures it and records it in another. `again, written down` is
covered by what was bought and leaves a transaction; that is what the documents time. `again` is only read.

Reference: Zhao et al. 2021, Fig. 7 (Ganache, a block every 15 s).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from reticent.experiments import plots
from reticent.experiments.base import Options, Outcome, Row
from reticent.experiments.zhao_2022.chapter_4 import chains
from reticent.experiments.zhao_2022.chapter_4.chains import ANALYST, OWNER, Chain
from reticent.ledger import Amount, Unit
from reticent.privacy import MAX_UNITS
from reticent.query import DataSet, Query, Session
from reticent.query import count as how_many
from reticent.query.language.tree import Comparison

CROWDS, QUICK_CROWDS = (1, 2, 5, 10, 20, 50), (1, 4)
BLOCK_S, QUICK_BLOCK_S = 15, 1
LEAST = 20  # analysts in all at each point with instant blocks
INFORMATION = 1e-3
FRESH, WRITTEN, READ = WAYS = ("fresh", "again, written down", "again")
WAIT_S = 240.0


def run(options: Options) -> Outcome:
    """Let crowds of analysts ask at once, with instant blocks and with slow ones."""
    crowds = QUICK_CROWDS if options.quick else CROWDS
    block_s = QUICK_BLOCK_S if options.quick else BLOCK_S
    rows: list[Row] = []
    with chains.chain(accounts=ANALYST + max(crowds)) as on, TemporaryDirectory() as folder:
        data = chains.declared("census")
        crowd = _Crowd(on, data, max(crowds))
        table = chains.made_up(data, options.seed)
        with chains.opened_oracle(on, data, table, Path(folder)) as oracle, chains.running(oracle):
            crowd.rows(1, None, 1)  # to warm up
            for size in crowds:
                rows += crowd.rows(size, None, 1 if options.quick else -(-LEAST // size))
                options.progress(len(rows), 2 * len(WAYS) * len(crowds))
            on.every(block_s)
            crowd.await_block()
            for size in crowds[-1:] if options.quick else crowds:
                rows += crowd.rows(size, block_s, 1)
                options.progress(len(rows), 2 * len(WAYS) * len(crowds))
        crowd.close()
    return Outcome(rows, _caption(rows, block_s), lambda: _draw(rows, block_s))


class _Crowd:
    """Analysts who may ask."""

    def __init__(self, on: Chain, data: DataSet, size: int) -> None:
        self.on, self.data = on, data
        owner = on.ledger(OWNER)
        owner.open(data.terms)
        self.ledgers = [on.ledger(ANALYST + place) for place in range(size)]
        for ledger in self.ledgers:
            owner.allow(data.name, ledger.address, MAX_UNITS)
        self.sessions = [Session(data, None, ledger, wait_s=WAIT_S) for ledger in self.ledgers]
        self.numbers = count(1)

    def close(self) -> None:
        """Close their notebooks."""
        for session in self.sessions:
            session.close(ledger=False)

    def rows(self, size: int, block_s: int | None, times: int) -> list[Row]:
        """The seconds of so many analysts at once, the whole so many times."""
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(times):
            asked = [how_many(where=Comparison("income", ">", next(self.numbers))) for _ in range(size)]
            doing = {FRESH: self._fresh, WRITTEN: self._written, READ: self._fresh}
            for way in WAYS:
                found[way] += self._together(doing[way], asked)
        return [
            {
                "blocks": f"every {block_s} s" if block_s else "instant",
                "way": way,
                "analysts": size,
                "samples": len(seconds),
                "median, s": float(np.median(seconds)),
                "95 %, s": float(np.quantile(seconds, 0.95)),
                "most, s": max(seconds),
            }
            for way, seconds in found.items()
        ]

    def await_block(self) -> None:
        """Begin when a block has just come: the longest wait for the next. Whatever ends, ends after one."""
        before = self.on.node.number()
        while self.on.node.number() == before:
            time.sleep(0.01)

    def _together(self, ask: Callable[[int, Query], None], asked: list[Query]) -> list[float]:
        """The seconds of each, from the moment at which all begin."""
        gate = threading.Barrier(len(asked))

        def one(place: int) -> float:
            gate.wait()
            start = time.perf_counter()
            ask(place, asked[place])
            return time.perf_counter() - start

        with ThreadPoolExecutor(len(asked)) as pool:
            return list(pool.map(one, range(len(asked))))

    def _fresh(self, place: int, query: Query) -> None:
        self.sessions[place].ask(query, information=INFORMATION)

    def _written(self, place: int, query: Query) -> None:
        """What was bought is asked for once more under an idempotency key, and read."""
        key, name = self.sessions[place]._plans.of(query).question.key, self.data.name
        amount = Amount(int(INFORMATION * 10**12), Unit.MU2, self.data.relation)
        grant = self.ledgers[place].request(name, key, amount, idempotency=f"again-{next(self.numbers)}")
        assert grant.charged == 0
        self.ledgers[place].reading(name, key)


def _caption(rows: list[Row], block_s: int) -> str:
    lines = [
        "Seconds from the question to the recorded answer, against analysts who ask at once.",
        "",
        "Printed (Fig. 7, a picture without numbers; Ganache with 15 s blocks, answers that are saved",
        'already): latency rises with the number of queries, and "increases significantly" at 60, which is',
        "put down to the 20 to 60 transactions a second of Ethereum, to MetaMask and to the device.",
        "Found (median, and 95 % of the analysts):",
    ]
    for blocks in dict.fromkeys(row["blocks"] for row in rows):
        for way in WAYS:
            chosen = [row for row in rows if (row["blocks"], row["way"]) == (blocks, way)]
            parts = ", ".join(
                f"{row['analysts']}: {row['median, s']:.3g} ({row['95 %, s']:.3g})" for row in chosen
            )
            lines.append(f"  blocks {blocks}, {way}: {parts}.")
    lines += [
        "Fresh: declared, charged, measured, recorded. Written down: covered, and yet a transaction.",
        f"With blocks every {block_s} s all begin soon after one: an answer that needs two blocks takes",
        f"about {2 * block_s} s, whoever else asks; what is covered is read at once. Analysts, oracle",
        "and chain share this machine.",
    ]
    if block_s != BLOCK_S:
        lines.append(f"Quick: a block every {block_s} s stands for one every {BLOCK_S} s.")
    return "\n".join(lines)


def _draw(rows: list[Row], block_s: int) -> Any:
    figure, axes = plots.panels(1, 2, size=(13.0, 5.0))
    looks = dict(zip(WAYS, ((plots.ACCENT, "-"), ("#0072B2", "--"), ("#009E73", ":")), strict=True))
    for axis, blocks in zip(axes[0], ("instant", f"every {block_s} s"), strict=True):
        for way, (color, line) in looks.items():
            chosen = [row for row in rows if (row["blocks"], row["way"]) == (blocks, way)]
            sizes = [row["analysts"] for row in chosen]
            middle, high = ([row[column] for row in chosen] for column in ("median, s", "95 %, s"))
            axis.plot(sizes, middle, color=color, linestyle=line, marker="o", label=way)
            axis.fill_between(sizes, middle, high, color=color, alpha=0.15)
        axis.set_xlabel("analysts who ask at once")
        axis.set_ylabel("seconds (band: to 95 %)")
        axis.set_ylim(bottom=0)
        axis.set_title(f"blocks {blocks}", loc="left", fontsize=11)
    axes[0][0].legend(frameon=False)
    return figure
