"""What `reticent crowd deploy`, `post`, `apply`, `status` and `claim` do."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from reticent.apps.chain.keys import opened_key
from reticent.apps.crowd.opened import GweiFees, Opened, followed, opened, say, task_of
from reticent.apps.store.work import read_token
from reticent.arguments import whole
from reticent.chain.fees import Ceiling
from reticent.chain.node import Node, Receipt
from reticent.chain.sender import Sender
from reticent.cli.terminal import console, facts
from reticent.errors import ChainError, ParameterError, TransactionRefused
from reticent.federated.crowd.commitments import NEWEST, OLD_VERSION
from reticent.federated.crowd.contract import Progress, Status, artifact, cause, creation, post_call, task_id
from reticent.federated.crowd.crowd_file import CrowdFile
from reticent.federated.crowd.customer import result_of
from reticent.federated.crowd.deciding import due_rewards, unsettled_round
from reticent.federated.crowd.following import Follower, Seen
from reticent.federated.crowd.task_file import read as read_task
from reticent.federated.crowd.terms import pool
from reticent.ledger.ethereum.chain_file import node_address, shareable
from reticent.store import at

_CONFIRMATIONS = 5
_DEVELOPMENT = (1337, 31337)  # chains of anvil, hardhat and ganache, where a block comes when it is needed
_MOST_UNIT = (1 << 96) - 1

_WHERE = {
    Status.COLLECTING: "collecting updates",
    Status.WAITING: "waiting for the seed of another draw",
    Status.JUDGING: "being judged",
    Status.DECIDED: "decided, open to disputes",
    Status.DISPUTED: "disputed",
    Status.APPEALING: "judged again by the larger committee",
    Status.DONE: "done",
    Status.CANCELLED: "cancelled",
}


def deploy(
    rpc: str | None,
    key: Path,
    *,
    out: Path,
    stake_unit: int,
    confirmations: int | None,
    forget_rpc: bool,
    fees: GweiFees,
) -> None:
    """Make the contracts, and the file that says where they are."""
    if out.exists():
        raise ParameterError(f"{out} exists already; name another with --out")
    if not out.absolute().parent.is_dir():
        raise ParameterError(f"there is no folder {out.absolute().parent}")
    whole("stake_unit", stake_unit, low=1, high=_MOST_UNIT)
    ceiling, signer, where = Ceiling.of(*fees), opened_key(key), node_address(rpc)
    with closing(Node(where)) as node:
        if confirmations is None:
            confirmations = 0 if node.chain_id in _DEVELOPMENT else _CONFIRMATIONS
        sender = Sender(node, signer, confirmations=confirmations, ceiling=ceiling)
        lottery = _made(sender, artifact("Lottery").creation)
        contract = _made(sender, creation(str(lottery.contract), stake_unit))
        artifact().check(node, str(contract.contract))
        kept = None if forget_rpc else shareable(where)
        CrowdFile(kept, node.chain_id, str(contract.contract), contract.block, confirmations).write(out)
    screen = console()
    screen.print(f"FederatedTask {contract.contract}\nLottery       {lottery.contract}", soft_wrap=True)
    screen.print(
        f"{out} is written: give it to everybody. Gas {lottery.gas + contract.gas:,}.", soft_wrap=True
    )


def _made(sender: Sender, code: bytes) -> Receipt:
    receipt = sender.transact(None, code)
    if receipt.contract is None:
        raise ChainError("the node says of no contract that it was made")
    return receipt


def post(
    file: Path,
    *,
    key: Path,
    chain: Path,
    rpc: str | None,
    store: str,
    token_file: Path | None,
    fees: GweiFees,
) -> None:
    """Put a task's text and first model into the store, and post it with its pool."""
    posting = read_task(file)
    warning = posting.text.training.warning(posting.terms.rounds)
    if warning is not None:
        console().print(warning, soft_wrap=True)
    with opened(chain, key, rpc, fees, None, say) as held, at(store, token=read_token(token_file)) as files:
        if (version := held.follower.contract.version) < NEWEST:
            console().print(f"The contract is of version {version}: {OLD_VERSION}.", soft_wrap=True)
        posting.terms.check_claims(held.follower.confirmations)
        text, worth = posting.text, pool(posting.terms, posting.prices)
        cid = bytes(text.cid)
        identifier = task_id(held.key.address, cid)
        if held.follower.contract.progress(identifier) is not None:
            raise ParameterError(f"the task is posted already: {identifier.hex()}")
        held.calls.check_purse("post", value_wei=worth)
        if posting.test is not None:
            files.put(posting.test)
        model = files.put(text.start())
        files.put(text.to_json())
        data = post_call(cid, bytes(model), posting.terms, posting.prices)
        receipt = held.calls.sender.transact(held.follower.contract.address, data, value_wei=worth)
    console().print(f"task {identifier.hex()}\npool {worth} wei, gas {receipt.gas:,}", soft_wrap=True)


def apply(task: str, *, key: Path, chain: Path, rpc: str | None, fees: GweiFees) -> None:
    """Become a customer of a task."""
    identifier = task_of(task)
    with opened(chain, key, rpc, fees, None, say) as held:
        seen = _seen(held.follower, identifier)
        if held.key.address in seen.task.customers:
            raise ParameterError(f"{held.key.address} is a customer of the task already")
        held.calls.check_purse("apply")
        _transact(held, "apply", identifier, 0, 0, 0)
        index = _seen(held.follower, identifier).task.customers.index(held.key.address)
    console().print(f"{held.key.address} is customer {index} of the task", soft_wrap=True)


def _transact(held: Opened, function: str, *arguments: Any) -> Receipt:
    """Send a call and wait for it; what the contract refuses is one line."""
    data = artifact().encode(function, *arguments)
    try:
        return held.calls.sender.transact(held.follower.contract.address, data)
    except TransactionRefused as refusal:
        raise ChainError(f"{function} is refused: {cause(refusal)}") from refusal


def _seen(follower: Follower, identifier: bytes) -> Seen:
    follower.look()
    seen = follower.seen(identifier)
    if seen is None:
        raise ParameterError(f"there is no task {identifier.hex()} in the contract")
    return seen


# What is shown


def status(task: str | None, *, chain: Path, rpc: str | None) -> None:
    """Show all tasks, or one with its rounds and people."""
    follower = followed(CrowdFile.read(chain), rpc)
    with closing(follower.node):
        screen = console()
        if task is not None:
            seen = _seen(follower, task_of(task))
            screen.print(facts([*_task_rows(seen), *_round_rows(follower, seen)]))
            return
        follower.look()
        found = [follower.seen(identifier) for identifier in follower.history.tasks]
        for seen in filter(None, found):
            screen.print(f"{seen.identifier.hex()} {_line(seen.progress, seen)}", soft_wrap=True)
        units = sum(follower.history.units.values())
        screen.print(f"{len(found)} tasks, {len(follower.history.units)} miners with {units} units of stake")


def _line(progress: Progress, seen: Seen) -> str:
    round_ = "" if seen.is_over else f"round {progress.round} of {seen.task.terms.rounds} "
    return f"{round_}{_WHERE[progress.status]}"


def _task_rows(seen: Seen) -> list[tuple[str, str]]:
    task = seen.task
    return [
        ("manufacturer", task.manufacturer),
        ("state", _line(seen.progress, seen)),
        ("block", f"{seen.block}, in this state since {seen.progress.since}"),
        ("customers", f"{len(task.customers)} of {task.terms.people}"),
        ("left of the pool", str(task.pool)),
    ]


def _round_rows(follower: Follower, seen: Seen) -> list[tuple[str, str]]:
    rows, maker = [], seen.task.manufacturer
    for number, which in enumerate(seen.task.rounds):
        told = f"{len(which.commits)} committed, {len(which.revealed)} revealed"
        if which.result in which.proposals:
            assert which.result is not None
            found = which.proposals[which.result][2]
            told += f", {found.accepted.bit_count()} accepted, {found.low.bit_count()} low"
        elif which.is_closed:
            told += ", void"
        if which.is_closed or which.commits:
            rows.append((f"round {number}", told))
    for customer in seen.task.customers:
        reputation = follower.history.reputations[maker, customer]
        paid = sum(one.settled[customer][1] for one in seen.task.rounds if customer in one.settled)
        rows.append((customer, f"reputation {reputation}, paid {paid}"))
    return rows


# What is owed


def claim(*, key: Path, chain: Path, rpc: str | None, leave: bool, fees: GweiFees) -> None:
    """Be settled and rewarded, get pools back that are over, and withdraw all that is owed."""
    with opened(chain, key, rpc, fees, None, say) as held:
        held.follower.look()
        me, done = held.key.address, 0
        tokens = set()
        for identifier in list(held.follower.history.tasks):
            seen = _seen(held.follower, identifier)
            tokens.add(seen.task.token)
            done += _claimed(held, seen, me)
        done += _stake(held, leave=leave)
        held.follower.look()
        taken = []
        for token in sorted(tokens | {"0x" + "00" * 20}):
            if amount := held.follower.contract.owed(me, token):
                _transact(held, "withdraw", token)
                taken.append(f"{amount} {'wei' if int(token, 16) == 0 else f'of {token}'}")
    screen = console()
    if not taken and not done:
        screen.print(f"nothing is owed to {me}")
    for line in taken:
        screen.print(f"withdrawn: {line}", soft_wrap=True)


def _claimed(held: Opened, seen: Seen, me: str) -> int:
    """What one task owes the key; how many calls it took."""
    done, task = 0, seen.identifier
    if (number := unsettled_round(seen, me)) is not None:
        _transact(held, "settle", task, number, me, result_of(seen, number).words())
        done += 1
    for reward in due_rewards(seen, held.follower.history, me):
        _transact(held, "reward", task, reward.round, me)
        done += 1
    is_time = seen.is_over and seen.next >= seen.progress.since + seen.task.terms.claim_blocks
    if is_time and seen.task.manufacturer == me and seen.task.pool:
        _transact(held, "reclaim", task)
        done += 1
    return done


def _stake(held: Opened, *, leave: bool) -> int:
    """Leave, or get the stake back, once it is free."""
    miner = held.follower.contract.miner(held.key.address)
    if miner is None:
        return 0
    if leave and not miner.left:
        _transact(held, "leave")
        say("left: draws of later blocks go on without this key; claim again to get the stake")
        return 1
    if miner.left and held.follower.node.number() + 1 > max(miner.left, miner.locked):
        _transact(held, "release")
        return 1
    return 0
