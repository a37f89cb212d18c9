"""The work behind `reticent ask`, `price` and `answers`, for a data set here or of a service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.apps.query import views
from reticent.cli import terminal
from reticent.errors import LedgerError, ParameterError, QuestionRefused
from reticent.privacy import spent_epsilon
from reticent.query import Answer, Policy, Session
from reticent.query import open as open_data_set
from reticent.query.accuracy import Words
from reticent.query.declarations import dataset_file
from reticent.query.kinds.intervals import shown_half_width
from reticent.query.kinds.listed import KIND
from reticent.query.remote import RemoteSession

if TYPE_CHECKING:
    from reticent.chain.node import Node
    from reticent.ledger.ethereum.chain_file import ChainFile

_LARGEST_FILE = 1 << 20
_CLOSE = 1.05  # times the error that was asked for: the effect of a count's noise

Where = str | dict[str, Any] | None  # a ledger's path or address, or the options that find one on a chain


def ask(
    dataset: str,
    text: str | None,
    *,
    file: Path | None,
    accuracy: Words,
    where: Where,
    rehearse: bool,
    form: str,
    plot: Path | None,
    mu2: bool,
) -> None:
    """Ask a question and print the answer; without an accuracy, print the best answer that is free."""
    question = _question(text, file)
    if plot is not None:
        terminal.need_plots()
        plot.parent.mkdir(parents=True, exist_ok=True)
    buys = not rehearse and not _says_nothing(accuracy)
    with opened(dataset, where, buys=buys) as (session, data, place):
        if rehearse:
            answer = session.rehearse(question, **accuracy)
        elif not buys:
            answer = _free(session, data, question, accuracy["confidence"], accuracy["reuse"])
        else:
            with place.waiting() if place is not None else nullcontext():
                answer = _bought(session, data, question, accuracy)
        if form == "json":
            print(json.dumps(answer.to_json(), indent=1))
        elif form == "csv":
            print(answer.to_csv(), end="")
        else:
            views.show_answer(answer, data, rehearsed=rehearse, mu2=mu2)
            if buys and isinstance(session, Session) and (line := wider(session, answer, accuracy["error"])):
                print(line)
            if place is not None and not rehearse:
                place.show(answer)
    if plot is not None:
        views.draw(answer, plot)
        if form == "table":
            terminal.console().print(f"plot: {plot}", soft_wrap=True)


def price(
    dataset: str,
    text: str | None,
    *,
    file: Path | None,
    accuracy: Words,
    where: Where,
    form: str,
    mu2: bool,
) -> None:
    """Print the price that `ask` would charge."""
    question = _question(text, file)
    if form == "csv":
        raise ParameterError("format must be table or json for a price, got csv")
    with opened(dataset, where, buys=False) as (session, data, _):
        found = session.price(question, **accuracy)
        if form == "json":
            print(json.dumps(found.to_json(), indent=1))
        else:
            views.show_price(found, data, accuracy["confidence"], mu2=mu2)


def answers(dataset: str, *, where: Where, form: str) -> None:
    """Print the answers that were bought, each as exactly as it is known."""
    if form == "csv":
        raise ParameterError("format must be table or json for answers, got csv")
    with opened(dataset, where, buys=False) as (session, data, _):
        if data.policy is Policy.DEGRADE:
            raise ParameterError("under the policy degrade nothing is shown without --error: ask for it")
        known = [session.known(query) for query in session.questions().values()]
    found = [one for one in known if one is not None]
    if form == "json":
        print(json.dumps([one.to_json() for one in found], indent=1))
    elif found:
        print("\n\n".join(map(str, found)))
    else:
        print(f"{data.name}: nothing was bought yet")


@contextmanager
def opened(
    dataset: str, where: Where, *, buys: bool
) -> Iterator[tuple[Session | RemoteSession, views.Described, _OnChain | None]]:
    """Open the data set; yield its session, its description, and its place on a chain if it has one.

    On a chain, buying needs a key.
    """
    if isinstance(where, dict) and "api_key" in where:
        if where["api_key"] is None:
            raise ParameterError("--key must be the API key of a service; also by RETICENT_KEY")
        with open_data_set(dataset, key=api_key(where["api_key"]), insecure=where["insecure"]) as remote:
            yield remote, views.Facts(remote.name, remote.declared_budget, remote.policy), None
        return
    declaration, ledger = Path(dataset), where
    if not isinstance(ledger, dict):
        with open_data_set(declaration, ledger=ledger) as session:
            yield session, session.data, None
        return
    from reticent.apps.chain.keys import opened_key
    from reticent.chain.fees import Ceiling
    from reticent.ledger.ethereum.chain_file import ChainFile
    from reticent.query.chain.finding import connected

    if buys and ledger["key"] is None:
        raise ParameterError(
            "--key FILE must name the key that signs and pays; `reticent chain key` makes one"
        )
    file, data = ChainFile.read(ledger["chain"]), dataset_file.read(declaration)
    ceiling = Ceiling.of(*ledger["fees"])
    key = opened_key(ledger["key"]) if ledger["key"] is not None else None
    node = file.connect(ledger["rpc"])
    told = {"key": key, "owner": ledger["owner"], "ceiling": ceiling, "guess": False}
    held = connected(declaration, data, file, node, **told)
    with open_data_set(declaration, ledger=held) as session:
        yield session, session.data, _OnChain(file, node)


def api_key(given: str) -> str:
    """Return the given key, or the key in the given file: others on the machine see what is typed."""
    path = Path(given)
    if given.startswith("rk_") or not path.is_file():
        return given
    return path.read_text(encoding="ascii", errors="replace")[:200].strip()


class _OnChain:
    """A data set on a chain, with the output that is shown during and after a question."""

    def __init__(self, file: ChainFile, node: Node) -> None:
        self._file, self._node, self._since = file, node, node.number()

    def waiting(self) -> AbstractContextManager[None]:
        """Show a sign of life while the oracle measures."""
        from reticent.apps.chain.work import waiting

        return waiting("asking: paid for on the chain, measured by the oracle")

    def show(self, answer: Answer) -> None:
        """Print the blocks and transactions of the measurements that were bought just now."""
        from reticent.apps.chain.work import written

        for number in answer.receipt.measurements:
            for word, event in (("paid for", "MeasurementRequested"), ("recorded", "Fulfilled")):
                found = written(self._node, self._file, self._since, event, number.to_bytes(32))
                if found is not None:
                    print(f"measurement {number} {word} in block {found.block}: {found.transaction}")


def _question(text: str | None, file: Path | None) -> str | dict[str, Any]:
    """Return the question: SQL as it is, or the object of a JSON text or file."""
    if (text is None) == (file is None):
        raise ParameterError("give one question: SQL, a JSON object, or --json FILE")
    if file is not None:
        if file.stat().st_size > _LARGEST_FILE:
            raise ParameterError(f"{file} is too large for a question")
        text = file.read_text(encoding="utf-8", errors="replace")
    assert text is not None
    if file is None and not text.lstrip().startswith("{"):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = (
            f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        )
        raise ParameterError(f"the question is no JSON{where}") from error
    if not isinstance(found, dict):
        raise ParameterError("the question must be a JSON object")
    return found


def _says_nothing(accuracy: Words) -> bool:
    asked = (accuracy["error"], accuracy["epsilon"], accuracy["delta"], accuracy["information"])
    return asked == (None, None, None, None)


def _free(
    session: Session | RemoteSession, data: views.Described, question: Any, confidence: float, reuse: str
) -> Answer:
    found = session.known(question, confidence=confidence, reuse=reuse)
    if found is not None:
        return found
    if data.policy is Policy.DEGRADE:
        raise ParameterError("say how exact with --error: under the policy degrade nothing is shown without")
    raise LedgerError(
        f"{data.name}: nothing is recorded that answers this; buy it with --error E "
        "(also --epsilon or --information), or see its price first with `reticent price`"
    )


def _bought(
    session: Session | RemoteSession, data: views.Described, question: Any, accuracy: Words
) -> Answer:
    try:
        return session.ask(question, **accuracy)
    except QuestionRefused as refusal:
        raise LedgerError(refused_line(refusal, data)) from refusal


def wider(session: Session, answer: Answer, error: float | None) -> str:
    """Return advice on an interval that is wider than asked; empty if it is not.

    Asking the same again buys nothing.
    """
    if error is None or KIND[answer.query.kind].is_rank or answer.error <= _CLOSE * error:
        return ""
    least = session.recorded_rows(answer.query, confidence=answer.confidence)
    if least == 0:
        return "wider than asked: as far as is recorded, a group may be empty; asking the same again is free"
    more = f"--rows {least}" if least else "a smaller --error"
    return f"wider than asked, since the price rests on a guess; {more} buys more, the same again is free"


def refused_line(refusal: QuestionRefused, data: views.Described) -> str:
    """Return the amount asked, the amount left, and the best answer that is free, in one line."""
    asked = views.amount(refusal.asked, data)
    left = "nothing"
    if refusal.left:
        share = 100 * refusal.left / data.budget.mu2_cap
        epsilon = spent_epsilon(refusal.left, data.budget.delta)
        left = f"{terminal.down(share)} %, epsilon {terminal.down(epsilon)} alone"
    line = f"{data.name}: asked for {asked}; left is {left}; {_offer(refusal)}"
    if refusal.reachable_error is not None:
        line += f"; all that is left buys ± {terminal.error_text(refusal.reachable_error)}{refusal.if_rows}"
    return line


def _offer(refusal: QuestionRefused) -> str:
    best = refusal.best
    if not isinstance(best, Answer):
        return "nothing is recorded that is free"
    if len(best.cells) > 1:
        return f"free now: {len(best.cells)} groups within {terminal.error_text(best.error)}"
    estimate = best.cells[0].estimate
    error = shown_half_width(estimate, best.confidence)
    return f"free now: {terminal.rounded(estimate.value, error)} ± {terminal.error_text(error)}"
