"""Options and help of `reticent ledger`; the work of the commands is in `work`, imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reticent.apps.chain.commands import MaxFee, MaxTip
from reticent.cli.options import group_of_commands

group = group_of_commands("ledger", "Show, verify, prove, witness and recover a ledger.")
witness = group_of_commands("witness", "Run a witness, ask one, or allow a recovery.")
group.add_typer(witness)

Where = Annotated[str, typer.Argument(metavar="LEDGER", help="A path, or a postgresql:// address.")]
MaybeWhere = Annotated[
    str | None, typer.Argument(metavar="[LEDGER]", help="A path, or a postgresql:// address.")
]
Key = Annotated[Path | None, typer.Option("--key", help="File with the ledger's signing key.")]
PublicKey = Annotated[
    str | None, typer.Option("--public-key", help="Key that must have signed: NAME+ID+BASE64.")
]
Rpc = Annotated[str | None, typer.Option(help="A node; else RETICENT_RPC, or that of chain.json.")]
Url = Annotated[str, typer.Option("--url", help="Address of the witness: http://HOST:PORT.")]
MaybeWitness = Annotated[str | None, typer.Option("--witness", help="Address of a witness to ask.")]
WitnessKey = Annotated[
    str | None, typer.Option("--witness-key", help="The witness's key, as it prints it at start.")
]


@group.command()
def show(
    ledger: Where,
    delta: Annotated[float, typer.Option(help="Delta at which epsilon is shown for mu2 accounts.")] = 1e-6,
    key: Key = None,
) -> None:
    """Show the accounts: caps, what is spent and what remains."""
    from reticent.apps.ledger.work import show as run

    run(ledger, delta=delta, key=key)


@group.command()
def verify(
    ledger: MaybeWhere = None,
    export: Annotated[
        Path | None, typer.Option("--export", help="Verify an exported file instead of a ledger.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File with a checkpoint kept elsewhere; the log must pass through it.")
    ] = None,
    public_key: PublicKey = None,
    witness: MaybeWitness = None,
    witness_key: WitnessKey = None,
    chain: Annotated[
        Path | None, typer.Option(help="chain.json of a chain with anchored heads; needs --public-key.")
    ] = None,
    rpc: Rpc = None,
    answer: Annotated[
        Path | None, typer.Option(help="JSON of a combined answer, to be done again; with --declaration.")
    ] = None,
    declaration: Annotated[
        Path | None, typer.Option(help="The YAML file of the data set that the answer is about.")
    ] = None,
) -> None:
    """Check every entry, hash, charge and row; with --answer, what a combined answer is made of too.

    Exit code 1 if the ledger or the answer does not verify.
    """
    from reticent.apps.ledger.work import verify as run

    run(
        ledger,
        export=export,
        checkpoint=checkpoint,
        public_key=public_key,
        witness=witness,
        witness_key=witness_key,
        chain=chain,
        rpc=rpc,
        answer=answer,
        declaration=declaration,
    )


@group.command()
def anchor(
    ledger: Where,
    key: Annotated[Path, typer.Option("--key", help="File with the ledger's signing key.")],
    chain_key: Annotated[Path, typer.Option(help="File with the key that pays for the transaction.")],
    chain: Annotated[Path, typer.Option(help="chain.json, as `reticent chain deploy` wrote it.")] = Path(
        "chain.json"
    ),
    rpc: Rpc = None,
    max_fee: MaxFee = None,
    max_tip: MaxTip = None,
) -> None:
    """Write the signed head to a chain, where nobody can take it back.

    `reticent ledger verify LEDGER --chain chain.json --public-key KEY` holds the ledger against every head
    that was ever anchored.
    """
    from reticent.apps.ledger.anchor import anchor as run

    run(ledger, key=key, chain_key=chain_key, chain=chain, rpc=rpc, fees=(max_fee, max_tip))


@group.command()
def prove(
    ledger: MaybeWhere = None,
    entry: Annotated[int | None, typer.Argument(help="Number of the entry to prove.")] = None,
    consistency: Annotated[
        tuple[int, int] | None,
        typer.Option("--consistency", metavar="A B", help="Prove that A entries are a prefix of B."),
    ] = None,
    verify: Annotated[Path | None, typer.Option("--verify", help="Check a proof file, offline.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the proof here.")] = None,
    key: Key = None,
    public_key: PublicKey = None,
) -> None:
    """Prove that an entry is in the log, or that the log only grew."""
    from reticent.apps.ledger.work import prove as run

    run(ledger, entry, consistency=consistency, check=verify, out=out, key=key, public_key=public_key)


@group.command()
def export(
    ledger: Where,
    file: Annotated[Path, typer.Argument(help="Where to write; must not exist.")],
    with_openings: Annotated[
        bool, typer.Option("--with-openings", help="Add nonces, names, keys and values, for an auditor.")
    ] = False,
    key: Key = None,
) -> None:
    """Write all entries and the head as JSON lines."""
    from reticent.apps.ledger.work import export as run

    run(ledger, file, openings=with_openings, key=key)


@group.command()
def recover(
    ledger: Where,
    witness: Annotated[str, typer.Option("--witness", help="Address of the witness.")],
    key: Annotated[Path, typer.Option("--key", help="File with the ledger's signing key.")],
    witness_key: WitnessKey = None,
    lost: Annotated[
        Path | None, typer.Option(help="JSON file with the terms of lost accounts, by number.")
    ] = None,
    seal_lost: Annotated[
        bool, typer.Option("--seal-lost", help="Seal lost accounts whose terms are not known.")
    ] = False,
    accept_fork: Annotated[
        bool, typer.Option("--accept-fork", help="Go on although the ledger took another way.")
    ] = False,
    unused_backup: Annotated[
        bool, typer.Option("--unused-backup", help="State that nobody used this copy since it was made.")
    ] = False,
) -> None:
    """Go on after restoring an old backup.

    Every account is charged up to what the witness saw, and what it never saw of this copy on top. Pending
    measurements are closed. The operator of the witness allows it first, with
    `reticent ledger witness allow`.
    """
    from reticent.apps.ledger.work import recover as run

    run(
        ledger,
        witness=witness,
        key=key,
        witness_key=witness_key,
        lost=lost,
        seal_lost=seal_lost,
        accept_fork=accept_fork,
        unused_backup=unused_backup,
    )


@group.command("key")
def public_key(
    file: Annotated[Path, typer.Argument(help="File with the signing key; made if there is none.")],
    origin: Annotated[str, typer.Option(help="The name of the log.")] = "reticent/ledger",
) -> None:
    """Print the public key of a ledger, as witnesses and auditors want it."""
    from reticent.apps.ledger.work import public_key as run

    run(file, origin=origin)


Directory = Annotated[Path, typer.Option("--dir", help="Where the witness keeps its state.")]


@witness.command()
def serve(
    directory: Directory,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    name: Annotated[str, typer.Option(help="The witness's name in its signatures.")] = "reticent/witness",
    log_key: Annotated[
        list[str] | None, typer.Option(help="Serve only logs with these keys; repeat for several.")
    ] = None,
    to_all: Annotated[bool, typer.Option("--open", help="Serve any log, beyond this machine too.")] = False,
) -> None:
    """Run a witness until interrupted.

    Beyond this machine it serves the logs named by --log-key.
    """
    from reticent.apps.ledger.work import serve as run

    run(directory, host=host, port=port, name=name, log_keys=log_key or [], to_all=to_all)


@witness.command()
def use(
    ledger: Where,
    url: Url,
    key: Annotated[Path, typer.Option("--key", help="File with the ledger's signing key.")],
    witness_key: WitnessKey = None,
) -> None:
    """Give a ledger a witness: whoever opens it from now on asks it first.

    A note beside the ledger says which. Of a service, `reticent serve --witness` does the same.
    """
    from reticent.apps.ledger.work import use as run

    run(ledger, url=url, key=key, witness_key=witness_key)


@witness.command()
def status(url: Url, witness_key: WitnessKey = None) -> None:
    """Show what a witness remembers."""
    from reticent.apps.ledger.work import status as run

    run(url, witness_key=witness_key)


@witness.command()
def allow(
    directory: Directory,
    origin: Annotated[str, typer.Option(help="The log that may be recovered, once.")],
) -> None:
    """Allow one recovery of a log: run this where the witness runs."""
    from reticent.apps.ledger.work import allow as run

    run(directory, origin=origin)
