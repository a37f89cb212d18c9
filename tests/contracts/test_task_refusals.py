"""What FederatedTask refuses before anything happens, and tokens and wallets that misbehave."""

from dataclasses import replace

import pytest
from eth_abi import encode

from reticent.chain.compile import compiled
from reticent.errors import ParameterError
from reticent.federated.crowd.terms import MAX_JUDGING_BLOCKS, MAX_WINDOW_BLOCKS, pool

from .crowd import CUSTOMERS, MAKER, MINERS, MODEL, PRICES, TERMS, UNIT, Crowd, post, text_of
from .revm import NOBODY, OWNER, Artifact, Refused, planted


@pytest.fixture
def crowd():
    return Crowd()


TEXT = text_of("t")
LONGEST = dict.fromkeys(("commit", "reveal", "claim"), MAX_WINDOW_BLOCKS) | dict.fromkeys(
    ("seat", "turn", "dispute"), MAX_JUDGING_BLOCKS
)


def words(*, terms=None, prices=None, text=TEXT, model=MODEL):
    ours = list(TERMS.words()), list(PRICES.words())
    for given, held in zip((terms, prices), ours, strict=True):
        for place, number in (given or {}).items():
            held[place] = number
    return text, model, tuple(ours[0]), tuple(ours[1]), NOBODY, NOBODY


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"text": b""}, "text or model is empty"),
        ({"model": b""}, "text or model is empty"),
        ({"terms": {0: 0}}, "rounds out of range"),
        ({"terms": {0: 1 << 16}}, "rounds out of range"),
        ({"terms": {1: 257}}, "people out of range"),
        ({"terms": {2: 256}}, "people out of range"),
        ({"terms": {1: 6, 2: 2}}, "too few people"),
        ({"terms": {3: 0}}, "seats out of range"),
        ({"terms": {3: 256}}, "seats out of range"),
        ({"terms": {4: 0}}, "seats out of range"),
        ({"terms": {4: 5}}, "seats out of range"),
        ({"terms": {5: 0}}, "draws out of range"),
        ({"terms": {5: 256}}, "draws out of range"),
        *[({"terms": {place: 0}}, "window out of range") for place in range(6, 12)],
        *[({"terms": {place: 1 << 20}}, "window out of range") for place in (6, 7, 11)],
        *[({"terms": {place: 1 << 16}}, "window out of range") for place in (8, 9, 10)],
        *[({"prices": {place: 1 << 96}}, "price out of range") for place in (0, 1, 4)],
        *[({"prices": {place: 1 << 80}}, "fee out of range") for place in (2, 3)],
    ],
)
def test_a_task_that_cannot_be_played_is_refused(crowd, given, said):
    with pytest.raises(Refused, match=f"crowd: {said}"):
        crowd.call(MAKER, "post", *words(**given), worth=pool(TERMS, PRICES))
    assert crowd.balance() == 0


def test_python_refuses_the_same_terms():
    """Where the contract would: the largest and the smallest that both take."""
    ends = replace(TERMS, rounds=(1 << 16) - 1, people=256, f=126, expected=255, least=255, draws=255)
    longest = replace(TERMS, **{f"{window}_blocks": most for window, most in LONGEST.items()})
    crowd = Crowd()
    limits = crowd.read("LONGEST_WINDOW"), crowd.read("LONGEST_JUDGING_WINDOW")
    assert limits == (MAX_WINDOW_BLOCKS, MAX_JUDGING_BLOCKS)
    for name, terms in (("ends", ends), ("longest", longest)):
        terms.check_windows()
        assert post(crowd, name=name, terms=terms)


@pytest.mark.parametrize("window", LONGEST)
def test_python_refuses_the_same_windows(window):
    """The contract refuses one block more (above), and so does a task's file. What is on a chain is read."""
    longer = replace(TERMS, **{f"{window}_blocks": LONGEST[window] + 1})
    with pytest.raises(ParameterError, match=f"^{window}_blocks must be <= {LONGEST[window]}, got "):
        longer.check_windows()


def test_no_task_locks_a_stake_for_years():
    """The longest lock is 64 days of blocks of 12 s; planted, windows of version 1 make it 700 years."""
    day = 86_400 // 12
    windows = [f"{window}_blocks" for window in ("seat", "turn", "dispute")]
    assert replace(TERMS, **dict.fromkeys(windows, MAX_JUDGING_BLOCKS)).lock_blocks < 64 * day
    assert replace(TERMS, **dict.fromkeys(windows, (1 << 28) - 1)).lock_blocks > 700 * 365 * day


def test_nobody_but_the_people_of_a_task(crowd):
    task = post(crowd)
    for person, function, given, said in [
        (MAKER, "commit", (task, b"\1" * 32), "not a customer"),
        (MAKER, "propose", (task, MODEL, 1, 1, 0, 1), "no draw"),
        (MINERS[0], "leave", (), "not a miner"),
        (MAKER, "commit", (b"\7" * 32, b"\1" * 32), "no such task"),
        (MAKER, "settle", (b"\7" * 32, 0, MAKER.address, (0, b"\0" * 32, 0, 0, 0, 0)), "nothing to settle"),
    ]:
        with pytest.raises(Refused, match=f"crowd: {said}"):
            crowd.call(person, function, *given)


THIEF = """
# pragma version 0.4.3
interface Crowd:
    def withdraw(token: address) -> uint256: nonpayable
    def enrol(): payable
    def leave(): nonpayable
    def release(): nonpayable

crowd: address
depth: uint256

@external
@payable
def start(crowd: address):
    self.crowd = crowd
    extcall Crowd(crowd).enrol(value=msg.value)

@external
def stop():
    extcall Crowd(self.crowd).leave()

@external
def steal():
    extcall Crowd(self.crowd).release()
    extcall Crowd(self.crowd).withdraw(empty(address))

@external
@payable
def __default__():
    if self.depth < 3:
        self.depth += 1
        data: Bytes[36] = abi_encode(empty(address), method_id=method_id("withdraw(address)"))
        done: bool = raw_call(self.crowd, data, revert_on_failure=False)
"""


def robbed(crowd):
    """What a wallet that calls back has in the end, of a stake of 7 units, and what is left of 57."""
    crowd.call(MINERS[0], "enrol", worth=50 * UNIT)
    thief = Artifact(compiled("Thief", THIEF))
    where = crowd._evm.deploy(OWNER, thief.creation)

    def told(function, *given, worth=0):
        call = thief.calls[function]
        crowd._evm.message_call(OWNER, where, call.selector + encode(call.inputs, given), value=worth)

    told("start", crowd.address, worth=7 * UNIT)
    told("stop")
    crowd.block += 5
    crowd._machine()
    told("steal")
    return crowd._evm.get_balance(where) // UNIT, crowd.balance() // UNIT


def test_a_wallet_that_calls_back_gets_its_own_and_no_more(crowd):
    assert robbed(crowd) == (7, 50)


def test_planted_a_contract_that_pays_before_it_writes_is_robbed():
    careless = planted(
        ("@external\n@nonreentrant\ndef withdraw(", "@external\ndef withdraw("),
        ("    self.owed[token][msg.sender] = 0\n    log Withdrawn", "    log Withdrawn"),
        (
            "    return amount\n\n\n@external\n@view\ndef progress(",
            "    self.owed[token][msg.sender] = 0\n    return amount\n\n\n@external\n@view\ndef progress(",
        ),
        name="FederatedTask",
    )
    assert robbed(Crowd(careless)) == (28, 29)


SHORT = """
# pragma version 0.4.3
@external
@view
def balanceOf(who: address) -> uint256:
    return 0

@external
def transferFrom(source: address, to: address, amount: uint256) -> bool:
    return True
"""


def test_a_token_that_moves_less_than_the_pool_is_refused(crowd):
    token = crowd._evm.deploy(OWNER, Artifact(compiled("Short", SHORT)).creation)
    with pytest.raises(Refused, match="crowd: not the pool"):
        crowd.call(MAKER, "post", *words()[:4], token, NOBODY)
    with pytest.raises(Refused, match="crowd: coin for a pool of tokens"):
        crowd.call(MAKER, "post", *words()[:4], token, NOBODY, worth=1)
    assert crowd.balance() == 0


def test_new_customers_start_lowest_and_once(crowd):
    first, second = post(crowd, name="one"), post(crowd, name="two")
    for task in (first, second):
        crowd.call(CUSTOMERS[0], "apply", task, 0, 0, 0)
    assert crowd.read("reputations", MAKER.address, CUSTOMERS[0].address) == 256
    assert crowd.read("standings", MAKER.address) == 1
