"""`reticent demo`: a service on a synthetic census, and an analyst who asks it until a question is refused.

Everything is as in earnest: the service is the one of `reticent serve`, the analyst asks it over HTTP with a
key, the noise is secure, the ledger is a file, the budget is that of the documents. Only the persons are
invented, so the true values can be shown beside the answers.
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from reticent.apps.query import views
from reticent.apps.query.ask_work import refused_line
from reticent.cli import terminal
from reticent.errors import ParameterError, QuestionRefused
from reticent.ledger import SqlLedger
from reticent.ledger.lockfile import LockFile
from reticent.ledger.verify import verify
from reticent.privacy import spent_epsilon
from reticent.query import Answer, By, DataSet, census, histogram, median
from reticent.query import open as open_data_set
from reticent.query.answers import as_mu2
from reticent.query.declarations import dataset_file
from reticent.query.kinds.intervals import shown_half_width
from reticent.query.opening import folder as kept_in
from reticent.query.remote import RemoteSession

FOLDER = Path("out/demo")
FILES = ("census.csv", "census.yaml", "demo.png")
HOST, PORT = "127.0.0.1", 8000
PACE_S = 2.0  # between questions, so that they can be watched
DECADES = tuple(range(10, 100, 10))
PURPOSES = {"analyst": "asks", "owner": "declares, gives keys", "auditor": "checks, asks nothing"}

# The five questions of the documents, as somebody else would write them.
_OTHER_WORDS = {
    "average personal income": "select avg(income) from census where age >= 0",
    "average family income": "select avg(family_income) from census where not age < 0",
    "share of US citizens": "select avg(case when citizenship <> 'foreign' then 1 else 0 end) from census",
    "share of white race": (
        "select avg(case when not race in ('other', 'asian', 'black') then 1 else 0 end) from census"
    ),
    "share older than 60": "select avg(case when 61 <= age then 1 else 0 end) from census",
}
_ERRORS = {"average personal income": 1000.0, "average family income": 2000.0}
_SHARE_ERROR = 0.001
_FINER = 0.6
_SUBGROUP = "SELECT AVG(income) FROM census WHERE age >= 40"
_TOO_EXACT = 100.0

Request = tuple[str, Callable[[], Answer], float]  # a name, the asking, the truth


@dataclass(frozen=True)
class Asked:
    """One answer, and the total paid by then, with reuse and without."""

    name: str
    answer: Answer
    truth: float
    paid: int
    fresh: int


def run(*, folder: Path | None, port: int | None, once: bool) -> None:
    """Serve a census, ask it, print the savings by reuse, verify the ledger; then stay unless `once`.

    Args:
        folder: Folder for the census, the service's state and the plot; by default FOLDER, made anew.
        port: Port to listen at; by default PORT, or any if that is taken.
        once: True to end after the script, and to ask without pauses.
    """
    from reticent.apps.service.serving import serving
    from reticent.service.serve import address
    from reticent.service.settings import Settings

    terminal.need_plots()
    with demo_listener(port) as listener, _folder(folder) as place:
        declaration = census.write(place)
        keys = demo_keys(place)
        url = address(*listener.getsockname())
        with serving(Settings(place), listener):
            show = _Show(declaration, url, keys["analyst"], pace_s=0.0 if once else PACE_S)
            with closing(show.session):
                show.told(keys)
                _script(show, place)
            if not once:
                _stay(show)


def _script(show: _Show, place: Path) -> None:
    """Ask all questions of the analyst, and print the results."""
    people = census.persons()
    show.beginning()
    _five_questions(show, people)
    _subgroup(show, people)
    ages = _ages(show, people)
    _refusal(show)
    show.ending()
    _verify(show.screen, place)
    _draw(show, ages, people, place / "demo.png")
    show.screen.print(f"Plot: {place / 'demo.png'}", soft_wrap=True)


def _stay(show: _Show) -> None:
    show.say(f"The service stays up at {show.url} until Ctrl-C. Sign in and ask more, or ask from Python:")
    show.screen.print(f'reticent.open("{show.url}", key="rk_...").mean("hours", error=1)', soft_wrap=True)
    try:
        while True:
            time.sleep(1.0)
    except KeyboardInterrupt:
        show.say("Ended.")


def demo_listener(port: int | None) -> socket.socket:
    """Return a socket at the given port, or at PORT, or at any if PORT is taken."""
    from reticent.service.serve import listen

    if port is not None:
        return listen(HOST, port)
    try:
        return listen(HOST, PORT)
    except ParameterError:
        return listen(HOST, 0)


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    """Yield the given folder, or the demo's own, made anew.

    Declarations in the folder are served: so it may hold no other data.
    """
    from reticent.service.state import own_folder

    place = FOLDER if given is None else given
    with ExitStack() as held:
        if given is None:
            place.mkdir(parents=True, exist_ok=True)
            lock = held.enter_context(closing(LockFile(str(place / ".lock"))))
            if not lock.acquire(0.0):
                raise ParameterError(f"another demo runs in {place}: end it, or give --folder")
        own = {"census.yaml"} if given is None else set()
        is_used = given is not None and own_folder(place).exists()
        if is_used or {path.name for path in place.glob("*.yaml")} - own:
            raise ParameterError(
                f"folder must hold no other declaration (*.yaml) and no service, got {place}"
            )
        if given is None:
            _start_over(place)
        yield place


def _start_over(place: Path) -> None:
    """Remove an earlier run of the demo.

    The persons are invented; a real ledger is never removed.
    """
    from reticent.service.state import own_folder

    for name in FILES:
        (place / name).unlink(missing_ok=True)
    for kept in (kept_in(place / "census.yaml"), own_folder(place)):
        shutil.rmtree(kept, ignore_errors=True)


def demo_keys(place: Path) -> dict[str, str]:
    """Make a key for each role, and return the secrets by role."""
    from reticent.service.keys import Role
    from reticent.service.state import State

    with closing(State.of(place)) as state:
        return {role: state.make_key(role, Role(role))[1] for role in PURPOSES}


class _Show:
    """The screen, the analyst's session with the service, and all answers so far."""

    def __init__(self, declaration: Path, url: str, key: str, *, pace_s: float) -> None:
        self.screen, self.url, self._pace_s = terminal.console(), url, pace_s
        self.session: RemoteSession = open_data_set(url, key=key)
        self.data: DataSet = dataset_file.read(declaration)
        self.asked: list[Asked] = []

    def told(self, keys: Mapping[str, str]) -> None:
        """Print the address of the service, and the keys."""
        self.screen.print(f"Reticent serves a census at {self.url}. Sign in there with a key:")
        for role, key in keys.items():
            self.screen.print(f"  {role:<7}  {key}  {PURPOSES[role]}", soft_wrap=True)
        self.screen.print("Ctrl-C ends it. For programs: /api/v1, /openapi.json, /health, /metrics.\n")

    def say(self, text: str) -> None:
        """Print a paragraph."""
        self.screen.print(f"\n{text}")

    def ask(self, requests: Iterable[Request]) -> None:
        """Ask one question after the other; the table grows as answers come."""
        first = len(self.asked)
        with Live(_table([], self._cap), console=self.screen, auto_refresh=False) as live:
            for name, asking, truth in requests:
                self.pause()
                self.add(name, asking(), truth)
                live.update(_table(self.asked[first:], self._cap), refresh=self.screen.is_terminal)
        if not self.screen.is_terminal:
            self.screen.print()  # which Live leaves out there

    def pause(self) -> None:
        """Wait, so that people see the last answer."""
        time.sleep(self._pace_s)

    @property
    def _cap(self) -> int:
        return self.data.budget.mu2_cap

    def add(self, name: str, answer: Answer, truth: float) -> None:
        """Add an answer to those that the table shows."""
        paid, fresh = (self.asked[-1].paid, self.asked[-1].fresh) if self.asked else (0, 0)
        self.asked.append(Asked(name, answer, truth, paid + answer.cost, fresh + answer.without_reuse))

    def beginning(self) -> None:
        """Print an introduction to the census, the budget and the table."""
        budget, data = self.data.budget, self.data
        self.screen.print(f"A synthetic census of {data.rows:,} invented persons: so the truth can be shown.")
        self.screen.print(
            f"Budget: epsilon {budget.epsilon:g} at delta {budget.delta:g}, as in the documents (weak: for "
            "real people take 1 or less). Costs are shares of it, in per cent: these add up."
        )
        self.screen.print(
            "cost: charged for the answer. paid: in all. fresh: in all, with new noise each time."
        )

    def ending(self) -> None:
        """Print how much budget reuse saved."""
        budget, last = self.data.budget, self.asked[-1]
        paid, fresh = (
            f"{views.part(units, self.data)} (epsilon {terminal.up(spent_epsilon(units, budget.delta))})"
            for units in (last.paid, last.fresh)
        )
        saved = f"{100 * (1 - last.paid / last.fresh):.0f} % of that"
        self.say(
            f"{len(self.asked)} answers cost {paid}; with fresh noise each time {fresh}. Saved: {saved}."
        )
        over = next((i for i, one in enumerate(self.asked, 1) if one.fresh > budget.mu2_cap), None)
        if over is not None:
            self.screen.print(f"Without reuse the budget would have ended at answer {over}.")
        singles = [one for one in self.asked if one.answer.cost and len(one.answer.cells) == 1]
        held = sum(one.answer.interval[0] <= one.truth <= one.answer.interval[1] for one in singles)
        self.screen.print(
            f"{held} of {len(singles)} bought intervals hold the truth; one in twenty may miss it."
        )


def _table(asked: list[Asked], cap: int) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("question", no_wrap=True, width=23)
    table.add_column("case", no_wrap=True)
    for heading, width in (("answer", 16), ("truth", 7), ("cost", 5), ("paid", 5), ("fresh", 5)):
        table.add_column(heading, justify="right", no_wrap=True, width=width)
    for one in asked:
        value, truth = _pair(one.answer, one.truth)
        costs = [_per_cent(units, cap) for units in (one.answer.cost, one.paid, one.fresh)]
        style = "" if one.answer.cost else "green"
        table.add_row(one.name, one.answer.case.value, value, truth, *costs, style=style)
    return table


def _per_cent(units: int, cap: int) -> str:
    """Return units as a share of the budget in per cent, rounded up to a tenth."""
    return f"{-(-units * 1000 // cap) / 10:.1f}" if units else "0"


def _pair(answer: Answer, truth: float) -> tuple[str, str]:
    """Return the answer with its error, and the truth, shares in percent."""
    if len(answer.cells) > 1:
        return f"{len(answer.cells)} bins ± {terminal.error_text(answer.error)}", ""
    estimate = answer.cells[0].estimate
    scale, unit = (100.0, " %") if answer.query.kind == "proportion" else (1.0, "")
    error = scale * shown_half_width(estimate)
    value = f"{terminal.rounded(scale * estimate.value, error)} ± {terminal.error_text(error)}{unit}"
    return value, terminal.rounded(scale * truth, error)


# The questions


def _five_questions(show: _Show, people: Mapping[str, Any]) -> None:
    session, truths = show.session, five_truths(people)

    def requests(texts: Mapping[str, str], part: float) -> list[Request]:
        return [
            (name, partial(session.ask, text, error=part * _ERRORS.get(name, _SHARE_ERROR)), truths[name])
            for name, text in texts.items()
        ]

    show.say("1. The documents' five questions, within 1,000 and 2,000 dollars and 0.1 %.")
    show.ask(requests(census.FIVE, 1.0))
    show.say("2. Somebody else asks the same in other words. It is recognised, and free.")
    show.ask(requests(_OTHER_WORDS, 1.0))
    show.say("3. More exactly. Only the missing part is paid; the old answers are combined in.")
    show.ask(requests(census.FIVE, _FINER))
    show.say("4. Less exactly, for epsilon 0.1. The better answer is there already, and free.")
    name, text = next(iter(census.FIVE.items()))
    show.ask([(name, partial(session.ask, text, epsilon=0.1), truths[name])])


def five_truths(people: Mapping[str, Any]) -> dict[str, float]:
    """Return the answers to the five questions without noise."""
    exact = (
        np.nan_to_num(people["income"]),
        people["family_income"],
        people["citizenship"] != "foreign",
        people["race"] == "white",
        people["age"] > 60,
    )
    return {name: float(np.mean(column)) for name, column in zip(census.FIVE, exact, strict=True)}


def _subgroup(show: _Show, people: Mapping[str, Any]) -> None:
    show.say(
        "5. A subgroup. How many people it has is private too: they are counted in the same purchase, "
        "and 2,000 is a guess for the price."
    )
    truth = float(np.nan_to_num(people["income"])[people["age"] >= 40].mean())
    name = "income of 40 and older"
    asking = partial(show.session.ask, _SUBGROUP, error=2500.0, rows=2000)
    show.ask([(name, asking, truth), (name, asking, truth)])


def _ages(show: _Show, people: Mapping[str, Any]) -> Answer:
    session = show.session
    show.say("6. A histogram, within 25 persons in every bin, and the median that it holds, free.")
    asking = partial(session.ask, histogram(By("age", edges=DECADES)), error=25.0)
    show.ask([("histogram of age", asking, 0.0)])
    ages = show.asked[-1].answer
    show.screen.print(views.groups(ages))
    asking = partial(session.ask, median("age", bins=DECADES), information=as_mu2(ages.cost))
    show.ask([("median age", asking, float(np.median(people["age"])))])
    return ages


def _refusal(show: _Show) -> None:
    name, text = next(iter(census.FIVE.items()))
    show.say(f"7. One question too many: the {name} within {_TOO_EXACT:g} dollars.")
    show.pause()
    try:
        show.session.ask(text, error=_TOO_EXACT)
    except QuestionRefused as refusal:
        show.screen.print(f"refused: {refused_line(refusal, show.data)}", style="red")


def _verify(screen: Console, place: Path) -> None:
    from reticent.service.state import own_folder

    path = own_folder(place) / "ledger.sqlite"
    with SqlLedger(path) as ledger:
        report = verify(ledger)
    screen.print(
        f"Ledger verified: {report.size} entries, {report.keys} questions, {report.fulfilled} measurements, "
        f"every hash and charge. {path}",
        soft_wrap=True,
    )


# The plot


def _draw(show: _Show, ages: Answer, people: Mapping[str, Any], plot: Path) -> None:
    """Draw the costs, the tightening of the answers, and the histogram beside the truth."""
    import matplotlib.pyplot as plt

    figure, (costs, answers, shape) = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    _draw_costs(costs, show)
    _draw_answers(answers, show.asked)
    views.bars(shape, ages)
    true_counts = np.histogram(people["age"], [0, *DECADES, 121])[0]
    shape.plot(range(true_counts.size), true_counts, "x", color="tab:red", label="truth (simulated)")
    shape.set(title="persons by age, 95 % intervals", xlabel="age")
    shape.legend(fontsize=8)
    figure.savefig(plot, dpi=110)
    plt.close(figure)


def _draw_costs(axes: Any, show: _Show) -> None:
    places = range(1, len(show.asked) + 1)
    for label, colour, units in (
        ("fresh noise each time", "tab:red", [one.fresh for one in show.asked]),
        ("with reuse", "tab:blue", [one.paid for one in show.asked]),
    ):
        shares = [100 * one / show.data.budget.mu2_cap for one in units]
        axes.step(places, shares, where="mid", color=colour, label=label)
    axes.axhline(100.0, color="black", linewidth=1, linestyle="--", label="budget")
    axes.set_xticks(places[::3])
    axes.set(title="cost of all answers so far", xlabel="answer", ylabel="% of the budget", ylim=(0, None))
    axes.legend(fontsize=8)


def _draw_answers(axes: Any, asked: list[Asked]) -> None:
    """Draw the bought answers to the five questions, less the truth, in units of the first error."""
    names = list(census.FIVE)
    bought = [one for one in reversed(asked) if one.answer.cost]
    unit = {one.name: shown_half_width(one.answer.cells[0].estimate) for one in bought}
    for one in asked:
        if one.name not in names or not one.answer.cost:
            continue
        refined = one.answer.reused > 0
        estimate, scale = one.answer.cells[0].estimate, unit[one.name]
        row = len(names) - 1 - names.index(one.name) - (0.2 if refined else -0.2)
        ends = [(end - one.truth) / scale for end in (estimate.low, estimate.high)]
        colour = "tab:blue" if refined else "tab:gray"
        label = None if one.name != names[0] else "refined" if refined else "first"
        axes.plot(ends, [row, row], color=colour, linewidth=3, alpha=0.5, label=label)
        axes.plot((estimate.value - one.truth) / scale, row, "o", color=colour)
    axes.axvline(0, color="black", linewidth=1, linestyle="--")
    axes.set_yticks(range(len(names)), list(reversed(names)), fontsize=8)
    axes.set(title="95 % intervals around the truth (dashed)", xlabel="in units of the error first asked")
    axes.legend(fontsize=8)
