"""`reticent chain` and `reticent oracle`: options and help. What they do is imported when they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from reticent.cli.options import group_of_commands, with_options

group = group_of_commands("chain", "Keep the ledger in a contract on an Ethereum chain.")

CHAIN = Path("chain.json")

Declaration = Annotated[Path, typer.Argument(metavar="DATASET", help="The owner's YAML file.")]
MaybeDeclaration = Annotated[
    Path | None, typer.Argument(metavar="[DATASET]", help="The owner's YAML file; all data sets without.")
]
Chain = Annotated[Path, typer.Option("--chain", help="The file that `chain deploy` wrote.")]
Rpc = Annotated[str | None, typer.Option("--rpc", metavar="URL", help="A node; also by RETICENT_RPC.")]
Key = Annotated[
    Path, typer.Option("--key", help="File with the key that signs; RETICENT_KEY_PASSWORD unlocks it.")
]
MaxFee = Annotated[
    float | None,
    typer.Option(metavar="GWEI", help="Most for a unit of gas, whatever the node says; 100 without."),
]
MaxTip = Annotated[
    float | None, typer.Option(metavar="GWEI", help="Most of that for the tip; 10 without, or all of it.")
]
Owner = Annotated[
    str | None, typer.Option("--owner", metavar="ADDRESS", help="Who registered the data set, if in doubt.")
]


class SendingWords(TypedDict):
    """What `Sending` says, as arguments of a call."""

    key: Path
    rpc: str | None
    fees: tuple[float | None, float | None]


class Words(SendingWords):
    """What `Signing` says, as arguments of a call."""

    chain: Path
    owner: str | None


@dataclass(frozen=True)
class Sending:
    """Who signs a transaction, by which node it goes, and what it may cost: of every command that sends."""

    key: Key
    rpc: Rpc = None
    max_fee: MaxFee = None
    max_tip: MaxTip = None

    def sending(self) -> SendingWords:
        """The arguments of what does it."""
        return {"key": self.key, "rpc": self.rpc, "fees": (self.max_fee, self.max_tip)}


@dataclass(frozen=True)
class Deploying(Sending):
    """How contracts are put on a chain; where the file goes that says so, each command says by itself."""

    confirmations: Annotated[
        int | None,
        typer.Option(
            min=0, max=10_000, help="Blocks on top before anything counts; 5, or 0 on a development chain."
        ),
    ] = None
    forget_rpc: Annotated[
        bool, typer.Option("--forget-rpc", help="Do not write the node's address into the file.")
    ] = False


@dataclass(frozen=True)
class Signing(Sending):
    """Who signs a transaction about a data set, where, and what it may cost."""

    chain: Chain = CHAIN
    owner: Owner = None

    def words(self) -> Words:
        """The arguments of what does it."""
        return {**self.sending(), "chain": self.chain, "owner": self.owner}


@group.command()
def key(
    file: Annotated[Path, typer.Argument(help="File with the key; made if there is none.")],
    encrypt: Annotated[
        bool, typer.Option("--encrypt", help="Lock a new one with a password (RETICENT_KEY_PASSWORD).")
    ] = False,
) -> None:
    """Make a key, and print its address.

    Its owner alone can read the file. Whoever has it can sign. Send the address some of the chain's money:
    every transaction costs gas.
    """
    from reticent.apps.chain.work import key as run

    run(file, encrypt=encrypt)


@group.command()
@with_options
def deploy(
    deploying: Deploying,
    out: Annotated[Path, typer.Option(help="Where to write the chain file; must not exist.")] = CHAIN,
) -> None:
    """Put the contracts on a chain.

    PrivacyLedger holds budgets and answers, HeadAnchor the heads of ledgers that live elsewhere. Writes a
    file that everybody who uses them needs.
    """
    from reticent.apps.chain.work import deploy as run

    run(
        out=out,
        confirmations=deploying.confirmations,
        forget_rpc=deploying.forget_rpc,
        **deploying.sending(),
    )


@group.command()
@with_options
def register(
    dataset: Declaration,
    oracle: Annotated[str, typer.Option(metavar="ADDRESS", help="Whose key alone may record answers.")],
    sending: Sending,
    chain: Chain = CHAIN,
) -> None:
    """Open the budget of a data set on the chain, for ever.

    The key becomes the owner. Public: its name, unit, neighbours, cap, and a commitment to the declaration.
    No call raises a cap.
    """
    from reticent.apps.chain.work import register as run

    run(dataset, oracle=oracle, chain=chain, **sending.sending())


@group.command()
@with_options
def allow(
    dataset: Declaration,
    analyst: Annotated[str, typer.Argument(metavar="ANALYST", help="The address of the analyst's key.")],
    share: Annotated[
        float | None, typer.Option(help="The part of the cap that the analyst may be charged in all.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Instead: an epsilon, at the delta of the budget.")
    ] = None,
    *,
    signing: Signing,
) -> None:
    """Let an analyst ask, up to a part of the budget.

    0 takes it back. Quotas are fairness between analysts; the cap alone is the guarantee.
    """
    from reticent.apps.chain.work import allow as run

    run(dataset, analyst, share=share, epsilon=epsilon, **signing.words())


@group.command()
@with_options
def pause(
    dataset: Declaration,
    signing: Signing,
) -> None:
    """Stop all spending of a data set.

    What is bought stays free, and what is paid for is still measured.
    """
    from reticent.apps.chain.work import pause as run

    run(dataset, paused=True, **signing.words())


@group.command()
@with_options
def resume(
    dataset: Declaration,
    signing: Signing,
) -> None:
    """Go on after a pause."""
    from reticent.apps.chain.work import pause as run

    run(dataset, paused=False, **signing.words())


@group.command()
def status(
    dataset: MaybeDeclaration = None,
    delta: Annotated[
        float | None, typer.Option(help="At which epsilon is shown; that of DATASET's budget, or 1e-6.")
    ] = None,
    chain: Chain = CHAIN,
    rpc: Rpc = None,
    owner: Owner = None,
) -> None:
    """Show data sets, budgets, analysts and what is pending."""
    from reticent.apps.chain.watching import status as run

    run(dataset, delta=delta, chain=chain, rpc=rpc, owner=owner)


@group.command()
def watch(
    chain: Chain = CHAIN,
    rpc: Rpc = None,
    once: Annotated[bool, typer.Option("--once", help="Stop after what is there now.")] = False,
) -> None:
    """Show what happens in the contract, a line for each event.

    Begins with the first event and goes on until interrupted; waits while the node is away.
    """
    from reticent.apps.chain.watching import watch as run

    run(chain=chain, rpc=rpc, once=once)


@group.command()
def verify(
    dataset: MaybeDeclaration = None, chain: Chain = CHAIN, rpc: Rpc = None, owner: Owner = None
) -> None:
    """Replay every event and recompute every total and sum.

    Compares them with what the contract stores at one block, and its code with ours. With DATASET, the
    commitment to the declaration too, if its nonce is there. Exit code 1 if something does not hold.
    """
    from reticent.apps.chain.watching import verify as run

    run(dataset, chain=chain, rpc=rpc, owner=owner)


@with_options
def oracle(
    dataset: Declaration,
    signing: Signing,
    once: Annotated[bool, typer.Option("--once", help="Stop after what waits now.")] = False,
) -> None:
    """Measure what is paid for on a chain, and record it.

    Runs beside the data until interrupted, and waits while the node is away. What it has measured it keeps in
    DATASET's folder, for ever: guard it like the rows, and never bring back an old copy.
    """
    from reticent.apps.chain.oracle import run

    run(dataset, once=once, **signing.words())


def demo() -> None:
    """Watch two analysts share a budget in a contract.

    Starts a chain of its own on this machine (anvil), with an owner, an oracle and two analysts.
    """
    from reticent.apps.chain.demo import run

    run()
