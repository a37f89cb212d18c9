"""The experiments on a chain, in quick mode: what must hold to the last unit, and the gas that we promise."""

from dataclasses import replace

import pytest

from reticent.chain.anvil import find_anvil
from reticent.errors import ChainError
from reticent.experiments import find
from reticent.experiments.zhao_2022.chapter_4 import chain_cpu, chain_gas, chain_latency, chain_reuse, chains

from .test_registry import check_files

NAMES = ("chain-reuse", "chain-latency", "chain-cpu", "chain-gas")


@pytest.fixture
def _anvil():
    """Skip, and say why, where there is no chain to start."""
    if find_anvil() is None:
        pytest.skip("no anvil on this machine (npm installs it)")


@pytest.mark.parametrize("name", NAMES)
def test_without_anvil_it_is_said_in_one_line(name, quick, monkeypatch):
    monkeypatch.setattr("reticent.chain.anvil.find_anvil", lambda: None)
    with pytest.raises(ChainError, match="there is no anvil on this machine: npm install"):
        find(name).run(quick)


# Reuse


def totals(asked):
    """What the requests cost with reuse, without, and how many are not covered by those before."""
    largest: dict[int, int] = {}
    measured = 0
    for kind, units in asked:
        measured += units > largest.get(kind, 0)
        largest[kind] = max(largest.get(kind, 0), units)
    return sum(largest.values()), sum(units for _, units in asked), measured


@pytest.mark.usefixtures("_anvil")
def test_reuse_costs_the_largest_of_each_type_and_no_reuse_all(quick):
    outcome, files = find("chain-reuse").run(quick)
    check_files("chain-reuse", outcome, files)
    asked = chain_reuse.drawn(quick.seed, chain_reuse.QUICK_QUERIES)
    with_reuse, without, measured = totals(asked)
    fresh, read, written = (chain_reuse.last(outcome.rows)[way] for way in chain_reuse.WAYS)
    assert (fresh["spent, units"], fresh["measured"]) == (without, len(asked))
    assert read["spent, units"] == written["spent, units"] == with_reuse < without
    assert read["measured"] == written["measured"] == measured < len(asked)
    types = len({kind for kind, _ in asked})
    assert fresh["transactions"] == 3 * len(asked)  # declare, request, fulfil
    assert read["transactions"] == types + 2 * measured
    assert written["transactions"] == types + measured + len(asked)
    covered = [row for row in outcome.rows if row["way"] == chain_reuse.READ and not row["charged, mu2"]]
    assert len(covered) == len(asked) - measured
    assert {row["gas of this"] for row in covered} == {0}
    assert all(
        0 < row["gas of this"] <= 60_000
        for row in outcome.rows
        if row["way"] == chain_reuse.WRITTEN and not row["charged, mu2"]
    )


@pytest.mark.usefixtures("_anvil")
def test_a_key_that_is_not_shared_is_seen(quick, monkeypatch):
    """Planted: every request has a key of its own, and the experiment calls it reuse."""
    monkeypatch.setattr(chain_reuse, "FRESH", chain_reuse.READ)
    asked = chain_reuse.drawn(quick.seed, 8)
    assert totals(asked)[0] < totals(asked)[1]
    with chains.chain() as on:
        rows = chain_reuse._Side(on, chain_reuse.READ, quick.seed).rows(asked, lambda done: None)
    assert rows[-1]["spent, units"] != totals(asked)[0]


def test_the_requests_are_those_of_fig_4_5(quick):
    from reticent.experiments.zhao_2022.chapter_4 import fig_4_5, reuse
    from reticent.randomness import SimulationStream

    stream = SimulationStream(quick.seed, path=(0,))
    asked = reuse.requests(fig_4_5.RUNS, reuse.QUERIES, reuse.DELTAS["paper"], stream)
    drawn = chain_reuse.drawn(quick.seed, 150)
    assert [kind for kind, _ in drawn] == asked.kinds[0].tolist()
    assert sum(units for _, units in drawn) == pytest.approx(asked.costs[0].sum() * 1e12, abs=150)


# Latency and CPU: no number of seconds is asserted


@pytest.mark.usefixtures("_anvil")
def test_latency_of_every_crowd(quick):
    outcome, files = find("chain-latency").run(quick)
    check_files("chain-latency", outcome, files)
    instant = {(row["way"], row["analysts"]) for row in outcome.rows if row["blocks"] == "instant"}
    assert instant == {(way, size) for way in chain_latency.WAYS for size in chain_latency.QUICK_CROWDS}
    assert all(0 < row["median, s"] <= row["95 %, s"] <= row["most, s"] for row in outcome.rows)
    slow = {(row["way"], row["analysts"]) for row in outcome.rows if row["blocks"] == "every 1 s"}
    assert slow == {(way, chain_latency.QUICK_CROWDS[-1]) for way in chain_latency.WAYS}
    assert "a block every 1 s stands for one every 15 s" in outcome.caption


@pytest.mark.usefixtures("_anvil")
def test_cpu_of_both_sides(quick):
    outcome, files = find("chain-cpu").run(replace(quick, repetitions=2))
    check_files("chain-cpu", outcome, files)
    for side in chain_cpu.SIDES:
        for way in chain_cpu.WAYS:
            chosen = [row for row in outcome.rows if (row["ledger"], row["way"]) == (side, way)]
            assert [row["queries"] for row in chosen] == list(range(1, chain_cpu.QUICK_QUERIES + 1))
            ours, node = ([row[column] for row in chosen] for column in ("ours, s", "node, s"))
            assert ours == sorted(ours)
            assert node == sorted(node)
            assert ours[0] > 0


# Gas


@pytest.fixture(scope="module")
def gas(tmp_path_factory):
    """The receipts of a quick run."""
    from reticent.experiments import Options

    if find_anvil() is None:
        pytest.skip("no anvil on this machine (npm installs it)")
    outcome, files = find("chain-gas").run(Options(out=tmp_path_factory.mktemp("gas"), quick=True))
    check_files("chain-gas", outcome, files)
    return outcome.rows


def of(rows):
    return {row["operation"]: row["gas"] for row in rows}


def test_gas_that_we_promise(gas):
    assert of(gas)["request, reused"] <= 60_000
    assert of(gas)["request, reused, with idempotency key"] <= 60_000
    together = chain_gas.sums(gas)
    assert together["same key"] <= 190_000
    assert together["same key, with idempotency key"] <= 190_000
    assert together["fresh key"] <= 190_000
    assert of(gas)["anchor a head"] <= 35_000


def test_gas_of_later_ones_is_less(gas):
    found = of(gas)
    assert found["request, charged: later, same key"] < found["request, charged: first of all"]
    for size in chain_gas.QUICK_SIZES:
        assert found[f"record {size} values, same key"] < found[f"record {size} values, fresh key"]


def test_every_function_of_the_contract_has_its_gas(gas):
    from reticent.ledger.ethereum.contract import artifact

    changing = {
        part["name"]
        for part in artifact().abi
        if part["type"] == "function" and part["stateMutability"] not in ("view", "pure")
    }
    assert {row["function"] for row in gas} == changing | {"deploy", "anchor"}


def test_ether_is_gas_times_price(gas):
    for row in gas:
        assert row["ether at 10 gwei"] == pytest.approx(row["gas"] * 10e9 / 1e18)


@pytest.mark.usefixtures("_anvil")
def test_a_refused_transaction_is_no_figure():
    """Planted: a transaction that its contract refused must not be counted as an operation."""
    with chains.chain() as on:
        from reticent.chain.sender import Sender
        from reticent.ledger.ethereum.contract import artifact

        sender = Sender(on.node, on.keys[chains.OWNER])
        call = artifact().encode("pause", bytes(32), True)
        sent = sender.send(on.contract, call, gas=100_000)
        with pytest.raises(ChainError, match="not the owner"):
            sender.wait(sent)
        with pytest.raises(ChainError, match="was refused"):
            on.used()
