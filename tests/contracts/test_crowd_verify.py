"""`verify` is silent about what happened, and finds what is altered by a node, a store or a committee."""

import random
from dataclasses import replace

import numpy as np
import pytest

from reticent.chain.transactions import Transaction
from reticent.errors import ParameterError, ReticentError
from reticent.federated.crowd import verify as verifying
from reticent.federated.crowd.contract import TaskContract, artifact
from reticent.federated.crowd.evidence import read
from reticent.federated.crowd.verify import Contradiction, verify
from reticent.store import Cid, Directory

from .real_task import Real, Recording, Spoilt, Tape, altered, altered_answer, really_play


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def played(anvil, folder):
    found = really_play(anvil.url, folder)
    yield found
    found.close()


@pytest.fixture(scope="module")
def tape(anvil, played, folder):
    node = Recording(anvil.url)
    checked(node, played, played.store)
    node.close()
    return node.tape


def checked(node, played, store):
    return verify(read(TaskContract(node, played.contract.address)), played.task, store)


def said_of(tape, played, store):
    """What is found; None for nothing."""
    try:
        checked(Tape(tape), played, store)
    except ReticentError as error:
        return None if "\n" in str(error) else str(error)
    return None


def test_it_is_silent_about_what_happened(tape, played):
    report = checked(Tape(tape), played, played.store)
    assert sorted(report.rounds) == [0, 1]
    assert report.unchecked == []
    assert report.remarks == []
    assert report.rounds[1].missing == ()
    assert report.rounds[0].low == 0b10, "who was far out"
    assert not report.rounds[1].counted & 0b1000, "who withheld a file"
    with pytest.raises(ParameterError, match="no task"):
        verify(read(TaskContract(Tape(tape), played.contract.address)), bytes(32), played.store)


def find_all(tape, played, folder, *, times, seed):
    chance, silent, contradictions = random.Random(seed), [], 0
    blocks = used(folder, played)
    for number in range(times):
        store, other = played.store, tape
        if number % 6 == 5:
            what = chance.choice(blocks)
            store = Spoilt(folder, what, chance)
        else:
            what, other = altered(tape, chance)
        found = said_of(other, played, store)
        silent += [what] if found is None else []
        contradictions += found is not None
    return silent, contradictions


def used(folder, played):
    """Blocks that a judgement rests on: all but the public test rows."""
    names = sorted(path.name for path in folder.glob("??/b*"))
    return [name for name in names if name != str(played.crowd_task.test.cid)]


@pytest.mark.parametrize("times", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_altered_history_is_found(tape, played, folder, times):
    silent, found = find_all(tape, played, folder, times=times, seed=times + 1)
    assert silent == []
    assert found == times


def test_files_that_are_gone_are_said_to_be(tape, played, tmp_path):
    report = checked(Tape(tape), played, Directory(tmp_path))
    assert "text is gone" in report.unchecked[0]
    some = Directory(tmp_path / "some")
    for name in used(played.store._folder, played):
        block = played.store.block(Cid.parse(name))
        some.put_block(Cid.parse(name).codec, block)
    cid = Cid.of_bytes(report.history.rounds[0].revealed[played.customers[0].address][0])
    some._path(cid).unlink()
    report = checked(Tape(tape), played, some)
    assert report.unchecked == [
        f"round 0: updates are gone, so sets and model were not made again: {played.customers[0].address}"
    ]
    assert sorted(report.rounds) == [1]
    model = report.history.rounds[1].proposals[report.history.rounds[1].result][1]
    some._path(Cid.of_bytes(model)).unlink()
    assert "made again" in checked(Tape(tape), played, some).remarks[0]


def indirect(evidence):
    """As if everybody had called by way of another contract."""
    calls = tuple(
        replace(one, transaction=replace(one.transaction, to="0x" + "ab" * 20, signed=None))
        for one in evidence.calls
    )
    return replace(evidence, calls=calls)


def test_calls_by_way_of_other_contracts_are_done_again_from_their_events(tape, played):
    evidence = indirect(read(TaskContract(Tape(tape), played.contract.address)))
    report = verify(evidence, played.task, played.store)
    assert len(report.unchecked) == 2
    assert "by way of other contracts" in report.unchecked[1]
    without = replace(evidence, calls=evidence.calls[:-1])
    with pytest.raises(Contradiction, match="not what its calls add up to"):
        verify(without, played.task, played.store)


def lies(played):
    """What a captured committee may decide, each wrong in one thing."""
    cid, (counted, accepted, low, paid) = played.result()
    model = played.crowd_task.model(played.store, Cid.of_bytes(cid))
    bent = model + (np.arange(15) == 3)
    other = bytes(played.store.put(played.crowd_task.model_file(bent)))
    friend = accepted & -accepted
    return {
        "model": (other, (counted, accepted, low, paid)),
        "no model": (b"none", (counted, accepted, low, paid)),
        "accepted": (cid, (counted, accepted ^ friend, low, paid & ~friend)),
        "low": (cid, (counted, accepted, low ^ (counted & ~accepted), paid)),
        "paid": (cid, (counted, accepted, low, paid ^ friend)),
        "model of fewer": (cid, (counted ^ friend, accepted ^ friend, low, paid & ~friend)),
    }


@pytest.fixture
def captured(anvil, tmp_path):
    """Plays a task whose committee decides a lie."""
    opened = []

    def made(what):
        found = Real(anvil.url, tmp_path / what)
        opened.append(found)
        found.begin()
        found.collect()
        found.draw()
        told = lies(found)[what]
        found.result = lambda: told
        found.judge()
        return found

    yield made
    for one in opened:
        one.close()


LIES = {
    "model": "round 0: the model is not the last one and the average of the accepted updates",
    "no model": "round 0: the model is not the last one and the average of the accepted updates",
    "accepted": "round 0: the set of those accepted is",
    "low": "round 0: the set of those low is",
    "paid": "round 0: the set of those paid is",
    "model of fewer": "round 0: the",
}


@pytest.mark.parametrize("what", LIES)
def test_what_a_captured_committee_decides_is_found(captured, what):
    played = captured(what)
    with pytest.raises(Contradiction, match=LIES[what]):
        checked(played.node, played, played.store)


def test_planted_a_check_without_signatures_still_finds_every_bit_of_a_proof(tape, played, monkeypatch):
    monkeypatch.setattr(Transaction, "is_signed", lambda self, chain_id: True)
    chance, seats = random.Random(4), artifact().encode("seat", bytes(32), (0, 0), PROOF, ())[:4]
    found = []
    while len(found) < 12:
        key = chance.choice([one for one in tape if "eth_getTransactionByHash" in one])
        told = tape[key]["result"]
        if not told["input"].startswith("0x" + seats.hex()):
            continue
        at = chance.randrange(10, len(told["input"]) - 1)
        digit = format(int(told["input"][at], 16) ^ 1 << chance.randrange(4), "x")
        other = told | {"input": told["input"][:at] + digit + told["input"][at + 1 :]}
        found.append(said_of(tape | {key: {"result": other}}, played, played.store))
    assert None not in found


PROOF = ((0, 0), 0, 0, *[(0, 0)] * 4)


def test_planted_a_check_that_believes_events_is_found(tape, played, monkeypatch):
    monkeypatch.setattr(verifying, "_agree", lambda holds, called, otherwise: None)
    monkeypatch.setattr(verifying.History, "apply", lambda self, event: None)
    chance = random.Random(2)
    tried = [altered_answer(tape, "eth_getLogs", chance)[1] for _ in range(20)]
    evidences = [evidence_of(one, played) for one in tried]
    found = [done_again(one) for one in evidences if one is not None]
    assert None in found


def evidence_of(tape, played):
    try:
        return read(TaskContract(Tape(tape), played.contract.address))
    except ReticentError:
        return None


def done_again(evidence):
    try:
        verifying._done_again(evidence, [])
    except ReticentError as error:
        return str(error)
    return None


def test_planted_a_check_that_believes_results_is_found(captured, monkeypatch):
    monkeypatch.setattr(verifying, "_compare", lambda *given: None)
    played = captured("model")
    checked(played.node, played, played.store)
