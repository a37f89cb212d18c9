"""The collector: reads reports, counts each once, and stores counts instead of reports.

It stores, in one SQLite file or a PostgreSQL database (`counts`), the surveys, the count of each symbol, and
which reporter was counted in which period, so that none is counted twice. A cell of the table that only one
reporter fills identifies this reporter to anybody who knows the ids, as dither level and group follow from an
id: epsilon is the protection of a report, not the counting. A report is acknowledged only when its count is
on the disk; several callers share a commit. Rejected reports change nothing but a number for each reason
(which a crash may set back a little).

Several processes may use one file, and collectors on several machines one database. Open it after forking.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import real
from reticent.collect.counts.base import AGAIN, REPORTS, Cell, opened
from reticent.collect.instruments import columns
from reticent.collect.judging import judged
from reticent.collect.signing import verified
from reticent.collect.survey import Survey
from reticent.collect.tally import Tally
from reticent.collect.wire import LONGEST, SHORTEST, VERSION, Layout, Outcome
from reticent.errors import (
    GuaranteeError,
    LedgerDamaged,
    LedgerError,
    ParameterError,
    ParameterTypeError,
)
from reticent.estimation.shapes import Shape
from reticent.fleet.counted import MOST, Counted
from reticent.fleet.database import again
from reticent.fleet.enrolment import KEY_BYTES, Use
from reticent.fleet.intake import Intake
from reticent.fleet.revocation import Revocations
from reticent.mechanisms.base import Channel

_ON_THE_WAY_S = 120.0  # longest duration of a commit
_FORGET_S = 3600.0  # interval of the search for closed periods
_FIRST = bytes([VERSION])


@dataclass
class _Held:
    """A survey, or a follow-up, that is collected.

    Attributes:
        number: Number of its counts in the store.
        reporters: Number under which its reporters are stored: for a follow-up, that of the survey that it
            follows.
    """

    number: int
    layout: Layout
    reporters: int

    @property
    def survey(self) -> Survey:
        return self.layout.survey


class _Forms:
    """The forms of reports to the surveys that are collected: version, survey, period, reporter."""

    use, outcomes, start_bytes, reporter = Use.SURVEY, Outcome, 9, slice(13, 21)

    def __init__(self, held: dict[bytes, _Held]) -> None:
        self._held = held

    def fault(self, length: int, start: bytes) -> Outcome | None:
        """Return the fault of all reports of a length and beginning.

        Reports to unknown surveys are refused here, before the costly checks: they may be many.
        """
        if start[:1] != _FIRST or not SHORTEST <= length <= LONGEST:
            return Outcome.VERSION if start and start[:1] != _FIRST else Outcome.LENGTH
        held = self._held.get(start[1:9])
        if held is None:
            return Outcome.SURVEY
        return None if length <= held.layout.longest else Outcome.LENGTH


@dataclass
class _Checked:
    """Reports of one survey and one length whose form is right, to be counted if they are new."""

    held: _Held
    places: NDArray[np.int64]  # indices into the caller's list
    who: NDArray[np.uint8]  # reporter and nonce, 16 bytes in each row
    periods: NDArray[np.int64]
    groups: NDArray[np.int64]
    symbols: dict[int, tuple[NDArray[np.int64], NDArray[Any]]]  # by attribute: rows of this object, symbols


@dataclass
class _Batch:
    """The reports of one call, and their outcomes."""

    outcomes: list[Outcome]
    checked: list[_Checked]
    is_done: bool = False
    error: LedgerError | None = None

    def refuse(self, places: NDArray[np.int64], reason: Outcome) -> None:
        for place in places.tolist():
            self.outcomes[place] = reason


class Collector:
    """A counter of the reports of surveys.

    Args:
        where: File, created if it is missing, readable by its owner alone; or a postgresql:// address of a
            database that several collectors share.
        master: Master key of the operator, 32 bytes, from which the devices' keys are derived.
        late_s: Seconds after its end for which a period still takes reports.
        early_s: Seconds before its beginning from which a period takes reports, for devices whose clocks are
            ahead.
        clock: Function that returns the seconds since 1970.
        revocations: List of revoked enrolments; by default a list beside the file, or in the database.

    Raises:
        LedgerError: the file cannot be opened, or a newer Reticent wrote it.
        LedgerDamaged: it holds something else than was written.
    """

    def __init__(
        self,
        where: str | os.PathLike[str],
        master: bytes,
        *,
        late_s: float = 86_400.0,
        early_s: float = 60.0,
        clock: Callable[[], float] = time.time,
        revocations: Revocations | None = None,
    ) -> None:
        if not isinstance(master, bytes) or len(master) != KEY_BYTES:
            raise ParameterError(f"master must be {KEY_BYTES} bytes")
        self._late_s, self._early_s = real("late_s", late_s, low=0.0), real("early_s", early_s, low=0.0)
        self._clock = clock
        self._forget_at = clock() + _FORGET_S
        self._guard, self._looking, self._queue = threading.Lock(), threading.Lock(), threading.Lock()
        self._waiting: list[_Batch] = []
        self._rejected: Counter[str] = Counter()
        self._held: dict[bytes, _Held] = {}
        self._forms = _Forms(self._held)
        self._newest = 0  # highest known number of a survey
        with ExitStack() as held:
            self._counts = opened(where, master)
            held.callback(self._counts.close)
            self._is_list_ours = revocations is None
            self.revocations = Revocations.beside(where) if revocations is None else revocations
            if self._is_list_ours:
                held.callback(self.revocations.close)
            self._adopt_revoked()
            self._intake = Intake(master, self.revocations)
            self._intake.look()
            self._refresh()
            held.pop_all()

    def close(self) -> None:
        """Close the file; what was acknowledged is on the disk."""
        with self._guard:
            try:
                if self._rejected:
                    with self._counts.writing():
                        self._write_rejects()
            finally:
                self._counts.close()
                if self._is_list_ours:
                    self.revocations.close()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refresh(self) -> None:
        """Load the surveys that any process has added since the last call."""
        with self._looking:
            for number, identity, text in self._counts.surveys(self._newest):
                survey, reporters = _unchanged(identity, text), number
                if survey.follows is not None:
                    reporters = self._held[survey.follows.survey].number
                self._held[identity] = _Held(number, Layout(survey), reporters)
                self._newest = number

    def _adopt_revoked(self) -> None:
        """Copy the revocations that earlier releases stored in this file to the list of revocations."""
        for one in self._counts.revoked():
            if one not in self.revocations.look():
                self.revocations.revoke(one)

    # Surveys and reporters

    def collect(self, file: bytes, signer: bytes) -> Survey:
        """Collect the reports of a signed survey, or of a follow-up of one, from now on.

        Raises:
            ParameterError: it follows what is not collected here, or a period that has another follow-up.
            GuaranteeError: it is not signed so, or is not the survey that it follows but for its mechanisms.
        """
        survey = verified(file, signer)
        with self._guard, self._counts.writing():
            self._counts.hold_surveys()
            self._refresh()
            self._check_follow_up(survey)
            self._counts.collect(survey.id, survey.text, file)
        self._refresh()
        return survey

    def _check_follow_up(self, survey: Survey) -> None:
        if survey.follows is None:
            return
        held = self._held.get(survey.follows.survey)
        if held is None:
            raise ParameterError(f"the survey that this text of {survey.name} follows is not collected here")
        survey.check_follows(held.survey)
        for _, mean, deviation in survey.follows.shapes:
            Shape(mean, deviation)  # on the public grid, as pages show it
        other = self._follow_ups(held.survey).get(survey.follows.period)
        if other is not None and other.id != survey.id:
            raise ParameterError(f"period {survey.follows.period} of {survey.name} has a follow-up already")

    def surveys(self) -> list[Survey]:
        """Return all surveys that are collected, in the order in which they came; without follow-ups."""
        self._refresh()
        with self._looking:
            return [held.survey for held in self._held.values() if held.survey.follows is None]

    def follow_ups(self, survey: Survey) -> dict[int, Survey]:
        """Return the follow-ups of a survey that learns, by their period."""
        self._refresh()
        with self._looking:
            return self._follow_ups(survey)

    def _follow_ups(self, survey: Survey) -> dict[int, Survey]:
        if survey.waves is None:
            return {}
        texts = [held.survey for held in self._held.values()]
        return {one.follows.period: one for one in texts if one.follows and one.follows.survey == survey.id}

    def file(self, survey: Survey) -> bytes:
        """Return the signed file of a survey, for devices."""
        return self._counts.file(self._number(survey))

    def _number(self, survey: Survey) -> int:
        held = self._held.get(survey.id)
        if held is None:
            raise ParameterError(f"survey {survey.name} is not collected here")
        return held.number

    def revoke(self, reporter: bytes) -> None:
        """Revoke an enrolment: reports that it sends from now on are not counted."""
        self.revocations.revoke(reporter)
        self._intake.look()

    def is_closed(self, survey: Survey, period: int) -> bool:
        """Return whether a period takes no reports any more and no commit for it is under way."""
        return period < survey.period_at(self._clock() - self._late_s - _ON_THE_WAY_S)

    def forget(self) -> int:
        """Forget who reported in periods that take no reports any more; return the number of rows deleted.

        Those periods stay closed, whatever the clock says later: a duplicate could not be recognised there.
        """
        self._refresh()
        now, gone = self._clock(), 0
        with self._guard, self._counts.writing():
            for held in sorted(self._held.values(), key=lambda held: held.number):
                if held.survey.follows is not None:
                    continue
                gone += self._counts.forget(held.number, held.survey.period_at(now - self._late_s))
        return gone

    # Receiving

    def receive(self, reports: Sequence[bytes]) -> list[Outcome]:
        """Count reports, each once, and return the outcome of each when it is on the disk.

        Raises:
            LedgerError: the counts could not be written. No report is acknowledged: send all of them again.
        """
        self._refresh()
        batch = self._examined(reports)
        if batch.checked:
            with self._queue:
                self._waiting.append(batch)
            with self._guard:
                if not batch.is_done:
                    with self._queue:
                        together, self._waiting = self._waiting, []
                    self._commit(together)
            if batch.error is not None:
                raise batch.error
        if batch.outcomes.count(Outcome.COUNTED) < len(reports):
            self.reject(one for one in batch.outcomes if not one.is_acknowledged)
        if not 0.0 < self._forget_at - self._clock() <= _FORGET_S:  # the clock may have been set back since
            self._forget_at = self._clock() + _FORGET_S
            self.forget()
        return batch.outcomes

    def knows(self, report: bytes) -> bool:
        """Return whether a report is from an enrolled device, for a survey that is collected here."""
        return self._intake.reporter(report, self._forms) is not None

    def reject(self, reasons: Iterable[Outcome]) -> None:
        """Count refused reports by reason."""
        counted = Counter(one.value for one in reasons)
        if counted:
            with self._queue:
                self._rejected += counted

    def _examined(self, reports: Sequence[bytes]) -> _Batch:
        """Check reports as far as possible without knowing which reports came before."""
        outcomes, admitted = self._intake.admitted(reports, self._forms)
        batch = _Batch(outcomes, [])
        for alike in admitted:
            self._examine(batch, self._held[alike.start[1:9]], alike.rows, alike.places)
        return batch

    def _examine(
        self, batch: _Batch, held: _Held, table: NDArray[np.uint8], places: NDArray[np.int64]
    ) -> None:
        """Check genuine reports of one survey and one length, and add them to the batch."""
        survey, now = held.survey, self._clock()
        first, last = survey.period_at(now - self._late_s), survey.period_at(now + self._early_s)
        found = judged(
            held.layout, table, lambda at: (at >= max(0, first)) & (at <= min(survey.periods - 1, last))
        )
        for reason, rows in found.refused:
            batch.refuse(places[rows], reason)
        if found.kept.size:
            who = table[found.kept, 13:29]
            batch.checked.append(
                _Checked(held, places[found.kept], who, found.periods, found.groups, found.symbols)
            )

    # Counting

    def _commit(self, batches: list[_Batch]) -> None:
        """Count the new reports of all batches in one transaction, or none of them."""
        try:
            told, written = again(lambda: self._counted(batches))
        except BaseException as error:
            known = error if isinstance(error, LedgerError) else LedgerError(AGAIN)
            for batch in batches:
                batch.is_done, batch.error = True, known
            if known is not error:
                raise
            return
        with self._queue:
            self._rejected -= written
        for batch, checked, outcomes in told:
            for place, outcome in zip(checked.places.tolist(), outcomes, strict=True):
                batch.outcomes[place] = outcome
        for batch in batches:
            batch.is_done = True

    def _counted(
        self, batches: list[_Batch]
    ) -> tuple[list[tuple[_Batch, _Checked, list[Outcome]]], Counter[str]]:
        """Run the transaction: note new reporters, count their reports, return the outcomes to announce."""
        told: list[tuple[_Batch, _Checked, list[Outcome]]] = []
        cells: Counter[Cell] = Counter()
        together = [(batch, checked) for batch in batches for checked in batch.checked]
        with self._counts.writing():
            for batch, checked in sorted(together, key=lambda one: one[1].held.reporters):
                outcomes = self._seen(checked)
                if outcomes is None:
                    self._count(checked, np.ones(len(checked.places), dtype=np.bool_), cells)
                else:
                    self._count(checked, np.array([one is Outcome.COUNTED for one in outcomes]), cells)
                    told.append((batch, checked, outcomes))
            self._counts.add(cells)
            return told, self._write_rejects()

    def _seen(self, checked: _Checked) -> list[Outcome] | None:
        """Note who reports; return the outcome of each report, or None if all of them are new."""
        return self._counts.see(checked.held.reporters, checked.periods, checked.who)

    def _count(self, checked: _Checked, is_new: NDArray[np.bool_], cells: Counter[Cell]) -> None:
        """Add new reports to the cells that are written."""
        survey, number = checked.held.survey, checked.held.number
        for attribute, (members, drawn) in checked.symbols.items():
            chosen = is_new[members]
            members, drawn = members[chosen], drawn[chosen]
            if not members.size:
                continue
            of = checked.periods[members] * survey.groups + checked.groups[members]
            found = [(cell, REPORTS, n) for cell, n in _distinct(of)]
            instrument = survey.instruments[attribute]
            if not isinstance(instrument, Channel):
                for cell, _, _ in found.copy():
                    supports = instrument.support_counts(drawn[of == cell])
                    found += [
                        (cell, int(symbol), int(supports[symbol])) for symbol in np.flatnonzero(supports)
                    ]
            else:
                size = columns(instrument)
                found += [(*divmod(key, size), n) for key, n in _distinct(of * size + drawn)]
            for cell, symbol, n in found:
                period, group = divmod(cell, survey.groups)
                cells[number, period, attribute, symbol, group] += n

    def _write_rejects(self) -> Counter[str]:
        """Write the numbers of refused reports that are not written yet, and return them."""
        with self._queue:
            written = self._rejected.copy()
        self._counts.refuse(written)
        return written

    # Reading

    def tallies(self, survey: Survey, periods: Sequence[int] | None = None) -> list[Tally]:
        """Return the counts of some or all periods of a survey: of its own text, then of its follow-ups."""
        found = [self.tally(survey, periods)]
        for period, text in sorted(self.follow_ups(survey).items()):
            if periods is None or period in periods:
                found.append(self.tally(text))
        return found

    def tally(self, survey: Survey, periods: Sequence[int] | None = None) -> Tally:
        """Return the counts of some or all periods of one text."""
        found, number = Tally.empty(survey), self._number(survey)
        for attribute, symbol, group, n in self._counts.tally(number, periods):
            if symbol == REPORTS:
                found.reports[attribute][group] += n
            else:
                found.counts[attribute][group, symbol] += n
        return found

    def periods(self, survey: Survey) -> dict[int, int]:
        """Return the number of reports counted in each period of a survey, follow-ups included."""
        found: Counter[int] = Counter()
        for text in (survey, *self.follow_ups(survey).values()):
            rows = self._counts.reports(self._number(text))
            found.update({int(period): int(n) // text.sample_size for period, n in rows})
        return dict(found)

    def counted(self, survey: Survey, reporter: bytes) -> Counted:
        """Return the receipt for the periods of an enrolment that were counted and still take reports."""
        number, now = self._number(survey), self._clock()
        closed = self._counts.closed(number)
        first = min(max(closed, survey.period_at(now - self._late_s), 0), survey.periods)
        last = min(survey.period_at(now + self._early_s), survey.periods - 1, first + MOST - 2)
        periods = self._counts.counted(number, first, last, reporter)
        return Counted(f"survey:{survey.id.hex()}", reporter, tuple(periods), int(first))

    def rejected(self) -> dict[str, int]:
        """Return the number of refused reports by reason."""
        with self._guard:  # nobody writes them down meanwhile
            found = Counter(self._counts.refused())
            with self._queue:
                return dict(found + self._rejected)


def _unchanged(identity: bytes, text: bytes) -> Survey:
    try:
        survey = Survey.parse(text)
    except (ParameterError, ParameterTypeError, GuaranteeError):
        survey = None
    if survey is None or survey.id != identity:
        raise LedgerDamaged("the collection holds a survey that was changed")
    return survey


def _distinct(numbers: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return each distinct number, and how often it occurs."""
    found, n = np.unique(numbers, return_counts=True)
    return list(zip(found.tolist(), n.tolist(), strict=True))
