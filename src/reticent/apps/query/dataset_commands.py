"""Options and help of `reticent dataset`; the work is in `dataset_work`, imported when commands run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reticent.cli.options import group_of_commands

group = group_of_commands("dataset", "Declare a data set, check it, make its snapshot.")

Declaration = Annotated[Path, typer.Argument(metavar="YAML", help="The declaration.")]
Out = Annotated[Path | None, typer.Option("--out", help="Where to write; must not exist.")]


@group.command()
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A CSV (gzipped or not) or Parquet file.")],
    out: Out = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing, and leave blanks to fill in by hand.")
    ] = False,
) -> None:
    """Write a declaration: asks for what only you know.

    Only the names of the columns are read and, from Parquet, their types. Say bounds and categories from
    public knowledge, never from the rows. With --yes, or where nobody sits at a terminal, blanks are left
    instead, and `reticent dataset check` says which are not filled in.
    """
    from reticent.apps.query.dataset_work import is_terminal
    from reticent.apps.query.dataset_work import new as run

    run(file, out=out, asks=not yes and is_terminal())


@group.command()
def example(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="Where to; made if missing, must hold no census.")
    ] = Path(),
) -> None:
    """Write an invented census and its declaration, to try things on.

    5,000 persons that nobody is. Its epsilon of 8 is that of the documents, and weak: for real people take 1
    or less.
    """
    from reticent.apps.query.dataset_work import example as run

    run(folder)


@group.command()
def check(
    declaration: Declaration,
    spend: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT", help="Part of the budget that may buy the share of unreadable cells, as 0.1%."
        ),
    ] = None,
) -> None:
    """Say in words what a declaration promises.

    Also looks whether the source is there and fits. Exit code 2 if something does not hold. With --spend it
    buys, for each column of numbers or booleans that is stored as text, which share of the cells cannot be
    read: charged to the budget once, and free when it is asked again.
    """
    from reticent.apps.query.dataset_work import check as run

    run(declaration, spend=spend)


@group.command()
def snapshot(declaration: Declaration) -> None:
    """Keep the rows of this version in one fast file.

    It lies in a folder beside the declaration and is used from then on, whatever becomes of the source. It
    holds the data: guard it as well. The rows of a version never change: to take new ones, raise the version.
    """
    from reticent.apps.query.dataset_work import snapshot as run

    run(declaration)


@group.command()
def home(declaration: Declaration) -> None:
    """Say where the one ledger of a declaration is."""
    from reticent.apps.query.dataset_work import home as run

    run(declaration)


@group.command()
def move(
    declaration: Declaration,
    ledger: Annotated[str, typer.Option(help="Where to: a path or a postgresql:// address.")],
) -> None:
    """Move the account of a declaration to another ledger.

    All that it bought comes along, and nothing is left to spend where it was.
    """
    from reticent.apps.query.dataset_work import move as run

    run(declaration, ledger)


@group.command()
def moved(declaration: Declaration) -> None:
    """Say that a copy is the one from now on.

    A folder that was copied or restored is refused until you say so: the other one must be gone.
    """
    from reticent.apps.query.dataset_work import moved as run

    run(declaration)


@group.command("import")
def import_(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="SmartNoise SQL or Lomas metadata (YAML), or CSV on the Web (JSON)."
        ),
    ],
    epsilon: Annotated[float, typer.Option(help="Epsilon of the budget.")],
    delta: Annotated[float, typer.Option(help="Delta of the budget.")],
    source: Annotated[str | None, typer.Option(help="The CSV or Parquet file with the rows.")] = None,
    public_rows: Annotated[
        bool, typer.Option("--public-rows", help="The number of rows is public: one row is replaced.")
    ] = False,
    values: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=A,B,C", help="Categories the file does not list.")
    ] = None,
    leave_out: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column that nobody may ask about.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="Which table, if there are several.")] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="row", help="Each row is somebody else, where the file says nothing of persons."
        ),
    ] = None,
    out: Out = None,
) -> None:
    """Take over a declaration made for another tool.

    Reads SmartNoise SQL and Lomas metadata, and CSV on the Web with CSVW-EO terms. What the file does not
    say is refused by name, and given by options; whom it protects is never weakened.
    """
    from reticent.apps.query.dataset_work import import_ as run

    run(
        file,
        epsilon=epsilon,
        delta=delta,
        source=source,
        public_rows=public_rows,
        values=values or [],
        leave_out=leave_out or [],
        table=table,
        unit=unit,
        out=out,
    )
