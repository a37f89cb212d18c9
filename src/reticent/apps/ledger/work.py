"""The work behind the commands of `reticent ledger`, which show amounts in decimals, exactly."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from decimal import ROUND_CEILING, Context
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, TextIO, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from reticent import privacy
from reticent.errors import LedgerDamaged, LedgerError, ParameterError
from reticent.files import appearing, new_file
from reticent.fleet.people import not_added
from reticent.ledger import SqlLedger, Terms, Unit
from reticent.ledger.checkpoint import PublicKey, checked_name, load_key, parse, read_key
from reticent.ledger.export import export as write_export
from reticent.ledger.export import verify_export
from reticent.ledger.merkle import leaf_hash, verify_consistency, verify_inclusion
from reticent.ledger.replay import Report
from reticent.ledger.sql.recovery import recover as recover_ledger
from reticent.ledger.verify import signed_head
from reticent.ledger.verify import verify as verify_ledger
from reticent.ledger.witness.client import WitnessClient
from reticent.ledger.witness.opening import opened as open_witnessed
from reticent.ledger.witness.server import serve as serve_witness
from reticent.ledger.witness.state import WitnessState
from reticent.numerals import up
from reticent.privacy import Neighbours

if TYPE_CHECKING:
    from reticent.ledger.measured import Measured

_LONGEST_PROOF = 1 << 20
_LONGEST_ANSWER = 1 << 26
_IN_MEMORY = 1 << 26  # bytes of an export that need no disk


def _console() -> Console:
    return Console(highlight=False, markup=False, emoji=False)


def opened(where: str, key: Path | None = None, *, change: bool = False) -> SqlLedger:
    """Open an existing ledger; without `change` the ledger is neither made nor migrated."""
    if Path(where).is_dir() or where.endswith((".yaml", ".yml", ".people")):
        where = _of_declarations(Path(where))
    if not where.startswith(("postgresql://", "postgres://")) and not Path(where).is_file():
        raise ParameterError(f"there is no ledger at {where}")
    return SqlLedger(where, key=read_key(key) if key else None, create=False, migrate=change)


def _of_declarations(place: Path) -> str:
    """Return the ledger of a declaration or of people, or the only ledger of a folder's declarations."""
    from reticent.query.declarations import home

    listed = sorted(place.glob("*.yaml")) if place.is_dir() else [place]
    if (place / home.FILE).is_file():
        listed = [home.declared_at(place.resolve())]
    found = {one.paying_address for path in listed if (one := home.known(path)) is not None}
    if len(found) != 1:
        many = "no" if not found else f"{len(found)} different"
        raise ParameterError(f"{place} must lead to one ledger: its declarations have {many} ledgers")
    return found.pop()


@contextmanager
def _progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on standard error, if that is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _decimal(units: int, unit: Unit) -> str:
    if unit is Unit.MONEY:
        return f"{units // 100:,}.{units % 100:02d}"
    whole, part = divmod(units, privacy.UNITS_PER_ONE)
    return f"{whole:,}.{part:012d}".rstrip("0").rstrip(".")


def show(where: str, *, delta: float, key: Path | None) -> None:
    """Print the accounts and the head of a ledger."""
    with closing(opened(where, key)) as ledger:
        balances, head = ledger.accounts(), ledger.head()
        text = ledger.checkpoint() if key else head.text()
    table = Table(title=f"{head.origin}: {head.size:,} entries", title_justify="left", show_lines=True)
    table.add_column("account", overflow="fold")
    table.add_column("unit", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("amount", justify="right", no_wrap=True)
    for balance in balances:
        terms = balance.terms
        amounts = {"cap": terms.cap, "spent": balance.spent, "remaining": balance.remaining}
        rows = [(name, _decimal(units, terms.unit)) for name, units in amounts.items()]
        if terms.unit is not Unit.MONEY and terms.cap:
            rows.append(
                ("of the cap", f"{up(100 * balance.spent / terms.cap)} %" if balance.spent else "0 %")
            )
        if terms.unit is Unit.MU2:
            rows.append((f"epsilon at {delta:g}", _epsilon(balance.spent, delta)))
        names, shown = zip(*rows, strict=True)
        table.add_row(
            f"{terms.name}\n{terms.subject}",
            f"{terms.unit.value}\n{terms.neighbours.value}",
            "\n".join(names),
            "\n".join(shown),
        )
    _console().print(table)
    for sentence in not_added(balances):
        _console().print(sentence, soft_wrap=True)
    print(text, end="")  # as it is: a wrapped checkpoint could not be checked


def _epsilon(spent: int, delta: float) -> str:
    """Return the epsilon at `delta` of the amount spent in a mu2 account, rounded up."""
    if not spent:
        return "0"
    epsilon = privacy.spent_epsilon(spent, delta)
    return str(Context(prec=6, rounding=ROUND_CEILING).create_decimal(epsilon))


def verify(
    where: str | None,
    *,
    export: Path | None,
    checkpoint: Path | None,
    public_key: str | None,
    witness: str | None,
    witness_key: str | None,
    chain: Path | None = None,
    rpc: str | None = None,
    answer: Path | None = None,
    declaration: Path | None = None,
) -> None:
    """Verify a ledger or an exported file, and an answer from it; exit with 1 if something does not hold."""
    if (where is None) == (export is None):
        raise ParameterError("give a ledger, or --export FILE")
    if chain is not None and (where is None or public_key is None):
        raise ParameterError("--chain needs a ledger, and --public-key: anybody may write to a chain")
    if export is not None and witness is not None:
        raise ParameterError("an exported file is held against --checkpoint, not against a witness")
    if (answer is None) != (declaration is None):
        raise ParameterError("--answer and --declaration, the data set that it is about, go together")
    kept = checkpoint.read_text() if checkpoint else None
    signer = PublicKey.parse(public_key) if public_key else None
    client = WitnessClient(witness, key=witness_key) if witness else None
    anchored = redone = ""
    try:
        with _progress("verifying") as progress:
            if export is not None:
                with export.open(encoding="utf-8", newline="\n") as lines:
                    report = verify_export(lines, public_key=signer, checkpoint=kept, progress=progress)
                    redone = _redone(answer, declaration, lines)
            else:
                assert where is not None
                with closing(opened(where)) as ledger:
                    report = verify_ledger(
                        ledger, progress=progress, public_key=signer, checkpoint=kept, witness=client
                    )
                    if chain is not None and signer is not None:
                        from reticent.apps.ledger.anchor import held_against

                        anchored = held_against(ledger, signer, chain, rpc)
                    redone = _redone_in(ledger, answer, declaration)
    except (LedgerDamaged, UnicodeDecodeError) as error:
        reason = str(error) if isinstance(error, LedgerDamaged) else "the file is not text"
        print(f"error: does not verify: {' '.join(reason.split())}", file=sys.stderr)
        raise typer.Exit(1) from error
    _print_report(report)
    if anchored:
        _console().print(anchored, soft_wrap=True)
    if redone:
        _console().print(redone, soft_wrap=True)


def _redone_in(ledger: SqlLedger, answer: Path | None, declaration: Path | None) -> str:
    """Redo a combined answer from a ledger.

    The export with openings stays in memory or in a file that has no name: it holds what the log keeps
    closed.
    """
    if answer is None:
        return ""
    with SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8", newline="\n") as spooled:
        file = cast("TextIO", spooled)
        write_export(ledger, file, openings=True)
        return _redone(answer, declaration, file)


def _redone(answer: Path | None, declaration: Path | None, lines: TextIO) -> str:
    """Redo a combined answer from an exported ledger, and say so in words."""
    if answer is None or declaration is None:
        return ""
    from reticent.ledger.measured import measured
    from reticent.query.answers import Answer
    from reticent.query.declarations import dataset_file
    from reticent.query.receipts import check_answer

    if answer.stat().st_size > _LONGEST_ANSWER:
        raise ParameterError(f"{answer} is too large for an answer")
    try:
        given = Answer.from_json(json.loads(answer.read_text(encoding="utf-8")))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise LedgerDamaged("the file of the answer is not the JSON of one") from error
    if given.combined is None:
        raise ParameterError(f"{answer} must be a combined answer: this one rests on its own question alone")

    def lookup(numbers: frozenset[int], size: int) -> tuple[dict[int, Measured], str]:
        lines.seek(0)
        return measured(lines, numbers, size)

    data = dataset_file.read(declaration)
    check_answer(given, replace(data, shares=given.receipt.account), lookup)
    return f"answer: {given.combined.title}; redone: identity, variance, value and intervals hold"


def _print_report(report: Report) -> None:
    table = Table(title=f"{report.origin}: verified", title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", overflow="fold")
    rows: list[tuple[str, Any]] = [
        ("entries", f"{report.size:,}"),
        ("accounts", f"{report.accounts:,}"),
        ("keys", f"{report.keys:,}"),
        ("measurements", f"{report.measurements:,}"),
        ("recorded", f"{report.fulfilled:,}"),
        ("closed in recoveries", f"{report.void:,}"),
        ("entries of recoveries", f"{report.recoveries:,}"),
        ("audits", f"{report.audits:,}"),
    ]
    if report.questions is not None:
        rows.append(("texts of questions", f"{report.texts:,} of {report.questions:,}"))
    for label, size in (("checkpoint", report.checked), ("witness", report.witnessed)):
        rows.append((f"entries seen by the {label}", "not asked" if size is None else f"{size:,}"))
    for name, text in rows:
        table.add_row(name, text)
    _console().print(table)
    if report.missing_texts:
        _console().print(_describe_missing_texts(report.missing_texts), soft_wrap=True)
    print(f"root   {report.root.hex()}\ntotals {report.totals.hex()}")


def _describe_missing_texts(count: int) -> str:
    """Say what it means that questions have no text: no hash is broken, and something may be gone."""
    subject = "1 question has" if count == 1 else f"{count:,} questions have"
    return (
        f"{subject} no text: bought by an earlier release or without one, or the text was deleted. What was "
        "paid for stands, and cannot be combined with other answers any more."
    )


def prove(
    where: str | None,
    entry: int | None,
    *,
    consistency: tuple[int, int] | None,
    check: Path | None,
    out: Path | None,
    key: Path | None,
    public_key: str | None,
) -> None:
    """Make a proof from a ledger, or check a proof without the ledger."""
    if check is not None:
        if where is not None or consistency is not None:
            raise ParameterError("--verify checks a proof file without the ledger")
        _check_proof(check, PublicKey.parse(public_key) if public_key else None)
        return
    if where is None or (entry is None) == (consistency is None):
        raise ParameterError("give a ledger and an entry, a ledger and --consistency A B, or --verify FILE")
    with closing(opened(where, key)) as ledger:
        proof = (
            _inclusion(ledger, entry) if entry is not None else _consistency(ledger, *(consistency or (0, 0)))
        )
    text = json.dumps(proof, indent=1) + "\n"
    if out is None:
        print(text, end="")
    else:
        with appearing(out) as target:
            target.write(text.encode())
        _console().print(f"proof: {out}")


def _inclusion(ledger: SqlLedger, entry: int) -> dict[str, Any]:
    head = ledger.head()
    if not 0 <= entry < head.size:
        raise ParameterError(f"the log has {head.size} entries, got {entry}")
    return {
        "type": "inclusion",
        "origin": head.origin,
        "entry": entry,
        "leaf": ledger.leaf(entry),
        "size": head.size,
        "root": head.root.hex(),
        "proof": [node.hex() for node in ledger.inclusion_proof(entry, head.size)],
        "checkpoint": ledger.checkpoint() if ledger._key else None,
    }


def _consistency(ledger: SqlLedger, old: int, size: int) -> dict[str, Any]:
    return {
        "type": "consistency",
        "origin": ledger.origin,
        "old_size": old,
        "old_root": ledger.root(old).hex(),
        "size": size,
        "root": ledger.root(size).hex(),
        "proof": [node.hex() for node in ledger.consistency_proof(old, size)],
    }


def _check_proof(path: Path, signer: PublicKey | None) -> None:
    if path.stat().st_size > _LONGEST_PROOF:
        raise ParameterError(f"{path} is too large for a proof")
    try:
        told = json.loads(path.read_text())
        proof, root = [bytes.fromhex(node) for node in told["proof"]], bytes.fromhex(told["root"])
        if told["type"] == "inclusion":
            leaf, entry, size = leaf_hash(told["leaf"].encode()), int(told["entry"]), int(told["size"])
            holds = verify_inclusion(leaf, entry, size, proof, root)
            says = f"entry {entry} is in the log {told['origin']} of {size} entries"
        else:
            old, size = int(told["old_size"]), int(told["size"])
            holds = verify_consistency(old, size, proof, bytes.fromhex(told["old_root"]), root)
            says = f"the log {told['origin']} of {old} entries is the beginning of that of {size}"
        checkpoint = told.get("checkpoint")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ParameterError(f"{path} is no proof") from error
    try:
        if not holds:
            raise LedgerDamaged("the proof does not hold")
        if signer is not None or checkpoint is not None:
            head = signed_head(str(checkpoint), told["origin"], signer)
            if (head.size, head.root) != (size, root):
                raise LedgerDamaged("the checkpoint is of another head")
    except LedgerDamaged as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    console = _console()
    console.print(says, soft_wrap=True)
    console.print(f"root {root.hex()}{f', signed by {signer.name}' if signer else ''}", soft_wrap=True)


def export(where: str, file: Path, *, openings: bool, key: Path | None) -> None:
    """Write an export of a ledger, readable by its owner alone if it opens anything."""
    with closing(opened(where, key)) as ledger, _progress("exporting") as progress:
        mode = 0o600 if openings else 0o644
        with new_file(file, mode=mode) as target:
            stream = io.TextIOWrapper(target, encoding="utf-8", newline="\n")
            head = write_export(ledger, stream, openings=openings, progress=progress)
            stream.flush()
            stream.detach()
    console = _console()
    console.print(f"{head.size:,} entries: {file}", soft_wrap=True)
    if openings:
        console.print("The file holds names, keys and values: give it to the auditor alone.")


def recover(
    where: str,
    *,
    witness: str,
    key: Path,
    witness_key: str | None,
    lost: Path | None,
    seal_lost: bool,
    accept_fork: bool,
    unused_backup: bool,
) -> None:
    """Charge a restored ledger up to the amounts that the witness saw."""
    terms = _lost_terms(lost) if lost else {}
    with closing(opened(where, key, change=True)) as ledger:
        client = WitnessClient(witness, key=witness_key)
        done = recover_ledger(
            ledger,
            client,
            lost=terms,
            seal_lost=seal_lost,
            accept_fork=accept_fork,
            unused_backup=unused_backup,
        )
        kept = {number: Unit(unit) for number, unit in ledger.rows("SELECT id, unit FROM account")}
    table = Table(title="charged to come up to the witness", title_justify="left")
    table.add_column("account", justify="right")
    table.add_column("charged", justify="right")
    table.add_column("")
    for number, units in done.charged.items():
        kind = "sealed" if number in done.sealed else "reopened" if number in done.reopened else ""
        table.add_row(str(number), _decimal(units, kept.get(number, Unit.EPSILON)), kind)
    console = _console()
    console.print(table)
    console.print(
        f"The witness abandoned {done.abandoned.size:,} entries and goes on from {done.size:,}; "
        f"the first {done.common:,} are the same.",
        soft_wrap=True,
    )
    if done.closed:
        console.print(
            f"Measurements that were pending may have been released and are closed: {len(done.closed):,}. "
            "Ask for them again.",
            soft_wrap=True,
        )
    if done.sealed:
        console.print("Sealed accounts had a name that the backup does not know: do not open them again.")


def _lost_terms(path: Path) -> dict[int, Terms]:
    try:
        told = json.loads(path.read_text())
        return {
            int(number): Terms(
                one["name"],
                Unit(one["unit"]),
                Neighbours[one["neighbours"]],
                one["subject"],
                int(one["cap"]),
                int(one.get("minimum", 1)),
            )
            for number, one in told.items()
        }
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ParameterError(
            f"{path} must map account numbers to name, unit, neighbours, subject, cap and minimum"
        ) from error


def public_key(file: Path, *, origin: str) -> None:
    """Print the public key of a ledger's signing key, which is made if there is none."""
    print(PublicKey(checked_name("origin", origin), load_key(file).public_key()))


def serve(directory: Path, *, host: str, port: int, name: str, log_keys: list[str], to_all: bool) -> None:
    """Run a witness server."""
    trusted = [PublicKey.parse(text) for text in log_keys]
    serve_witness(directory, host=host, port=port, name=name, trusted=trusted, to_all=to_all)


def use(where: str, *, url: str, key: Path, witness_key: str | None) -> None:
    """Note a witness beside a ledger, once the witness has signed the head of the ledger."""
    opened(where, None).close()  # there is one
    with open_witnessed(where, signer=key, witness=url, witness_key=witness_key) as ledger:
        size = ledger.head().size
    _console().print(
        f"The witness at {url} signed {size:,} entries, and is asked from now on.", soft_wrap=True
    )


def status(url: str, *, witness_key: str | None) -> None:
    """Print the logs that a witness remembers."""
    client = WitnessClient(url, key=witness_key)
    told = client.logs()
    if str(client.key) != told.get("key"):
        raise LedgerError("the witness shows another key than the one given")
    table = Table(title=f"witness {client.key.name}", title_justify="left")
    table.add_column("log", overflow="fold")
    for heading in ("entries", "abandoned heads"):
        table.add_column(heading, justify="right")
    table.add_column("root", overflow="fold")
    abandoned: list[tuple[str, int, str]] = []
    for one in told.get("logs", []):
        record = client.record(one["origin"])
        if record is None:
            continue
        head = parse(record["checkpoint"])[0]
        lost = [parse(text)[0] for text in record["abandoned"]]
        abandoned += [(gone.origin, gone.size, gone.root.hex()) for gone in lost]
        table.add_row(head.origin, f"{head.size:,}", str(len(lost)), head.root.hex())
    console = _console()
    console.print(table)
    console.print(f"key {client.key}", soft_wrap=True)
    for origin, size, root in abandoned:
        console.print(f"abandoned: {origin}, {size:,} entries, root {root}", soft_wrap=True)


def allow(directory: Path, *, origin: str) -> None:
    """Allow one recovery of a log from its present head."""
    if not (directory / "witness.db").is_file():
        raise ParameterError(f"there is no witness in {directory}")
    state = WitnessState(directory)
    try:
        state.allow_recovery(origin)
    finally:
        state.close()
    _console().print(f"One recovery of {origin} from its present head is allowed.", soft_wrap=True)
