"""`reticent market federation`: options and help. What they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reticent.cli.options import group_of_commands

group = group_of_commands(
    "federation", "Sell together: a folder of signed acts, whose sums everybody who has it redoes."
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the federation's acts.")]
Key = Annotated[Path, typer.Option("--key", help="The key that signs; made if there is none.")]
Points = Annotated[int, typer.Option(help="Reports.")]
Text = Annotated[Path, typer.Argument(metavar="FILE", help="A text that the buyer signed.")]
Out = Annotated[Path, typer.Option("--out", help="Where the signed text goes; must not exist.")]
Member = Annotated[str, typer.Argument(metavar="MEMBER", help="A public key, or the start of it.")]
Others = Annotated[
    list[Path] | None,
    typer.Option("--read", metavar="FOLDER", help="Another federation, whose demerits are read."),
]
Name = Annotated[str, typer.Option(help="Letters, digits, dots, dashes.")]
Look = Annotated[bool, typer.Option("--look", help="Only say what it would come to; nothing is kept.")]


@group.command()
def key(file: Annotated[Path, typer.Argument(help="File with the key; made if there is none.")]) -> None:
    """Make a key, and print the public one, by which others know you."""
    from reticent.apps.market.federation_work import key as run

    run(file)


@group.command()
def found(
    folder: Folder,
    key: Key,
    name: Name,
    purpose: Annotated[str, typer.Option(help="Why, in words for members.")],
    tolerated: Annotated[
        str,
        typer.Option(metavar="EPSILON", help="Who keeps back as much of what she is asked for is excluded."),
    ],
    period: Annotated[int, typer.Option(help="Deals over which savings are summed.")] = 3,
    rounds: Annotated[int, typer.Option(help="Of collecting, in one deal.")] = 5,
) -> None:
    """Found a federation. You act for it until its members elect somebody."""
    from reticent.apps.market.federation_work import found as run

    run(folder, key, name=name, purpose=purpose, tolerated=tolerated, period=period, rounds=rounds)


@group.command()
def join(
    folder: Folder,
    key: Key,
    points: Points,
    threshold: Annotated[str, typer.Option(metavar="EPSILON", help="The most that one report may cost.")],
) -> None:
    """Ask to be a member; of a member, have other limits from the next deal on."""
    from reticent.apps.market.federation_work import join as run

    run(folder, key, points=points, threshold=threshold)


@group.command()
def admit(folder: Folder, member: Member, key: Key, read: Others = None) -> None:
    """Take somebody who asked, unless a federation that is read excluded her; by the representative."""
    from reticent.apps.market.federation_work import admit as run

    run(folder, member, key, read=read or [])


@group.command()
def vote(folder: Folder, member: Member, key: Key) -> None:
    """Vote for a member as representative. Whom more than half voted for last acts for the federation."""
    from reticent.apps.market.federation_work import vote as run

    run(folder, member, key)


@group.command()
def leave(folder: Folder, key: Key) -> None:
    """Be no member any more. What was saved is remembered."""
    from reticent.apps.market.federation_work import leave as run

    run(folder, key)


@group.command()
def bid(folder: Folder, file: Text, key: Key, look: Look = False) -> None:
    """Bid for what a buyer wants; by the representative."""
    from reticent.apps.market.federation_work import answer as run

    run(folder, file, key, "bid", look=look)


@group.command()
def seal(folder: Folder, file: Text, key: Key, look: Look = False) -> None:
    """Agree to a buyer's award, after redoing it; by the representative. Says for whom Theorem 8.1 fails."""
    from reticent.apps.market.federation_work import answer as run

    run(folder, file, key, "seal", look=look)


@group.command()
def ask(folder: Folder, key: Key) -> None:
    """Begin a round: say what each member is asked for; by the representative."""
    from reticent.apps.market.federation_work import ask as run

    run(folder, key)


@group.command()
def give(
    folder: Folder,
    key: Key,
    points: Points,
    epsilon: Annotated[str, typer.Option(help="What each of them cost your own ledger.")],
) -> None:
    """Say what you gave in this round. The reports themselves are sent, and paid for, by your device."""
    from reticent.apps.market.federation_work import give as run

    run(folder, key, points=points, epsilon=epsilon)


@group.command()
def settle(folder: Folder, file: Text, key: Key, look: Look = False) -> None:
    """End a deal by what the buyer says that arrived: who earned what, who is excluded."""
    from reticent.apps.market.federation_work import answer as run

    run(folder, file, key, "settle", look=look)


@group.command()
def withdraw(folder: Folder, key: Key) -> None:
    """Give up a bid or a deal that the buyer does not go on with; by the representative. Nobody is paid."""
    from reticent.apps.market.federation_work import withdraw as run

    run(folder, key)


@group.command()
def receive(
    folder: Folder, file: Annotated[Path, typer.Argument(metavar="FILE", help="An act that came.")]
) -> None:
    """Keep an act that somebody else signed, if its signer may do it and its sums are right."""
    from reticent.apps.market.federation_work import receive as run

    run(folder, file)


@group.command()
def show(folder: Folder) -> None:
    """What the federation is today, and what became of its deals."""
    from reticent.apps.market.federation_work import show as run

    run(folder)


@group.command()
def account(
    folder: Folder,
    member: Member,
    deal: Annotated[int | None, typer.Option(help="The number of the deal; the last without.")] = None,
) -> None:
    """Redo the sums of one member: what she gave, spent, earned and saved, and why. This is how to appeal."""
    from reticent.apps.market.federation_work import account as run

    run(folder, member, deal=deal)


@group.command()
def verify(
    folder: Folder,
    read: Others = None,
    head: Annotated[
        str | None, typer.Option(help="The last act that you know of; it must be in the folder.")
    ] = None,
) -> None:
    """Go through all acts: signatures, rights, and every sum redone."""
    from reticent.apps.market.federation_work import verify as run

    run(folder, read=read or [], head=head)


# The buyer's


@group.command()
def want(
    out: Out,
    key: Key,
    name: Name,
    purpose: Annotated[str, typer.Option(help="Why, in words for members.")],
    budget: Annotated[int, typer.Option(metavar="CENTS", help="For all federations together.")],
    k: Annotated[int, typer.Option("-k", "--values", help="How many values the question has.")],
    k1: Annotated[float, typer.Option(help="Of f(M) = k1 (e^(k2 M) - 1): the level for M cents.")],
    k2: Annotated[float, typer.Option(help="See k1.")],
) -> None:
    """As a buyer: ask federations for reports, and say what a level is worth to you."""
    from reticent.apps.market.federation_work import want as run

    run(out, key, name=name, purpose=purpose, budget=budget, k=k, worth=(k1, k2))


@group.command()
def award(
    file: Annotated[Path, typer.Argument(metavar="WANTED", help="What was wanted, signed.")],
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Federations that bid.")],
    out: Out,
    key: Key,
) -> None:
    """As a buyer: the share of every bid that the budget buys (Eq. 8.2), what is promised, what is paid."""
    from reticent.apps.market.federation_work import award as run

    run(file, folders, out, key)


@group.command()
def deliver(
    folder: Folder,
    out: Out,
    key: Key,
    missing: Annotated[
        list[str] | None, typer.Option(metavar="MEMBER", help="Whose reports did not arrive.")
    ] = None,
) -> None:
    """As a buyer: say which reports arrived of those that members gave."""
    from reticent.apps.market.federation_work import deliver as run

    run(folder, out, key, missing=missing or [])
