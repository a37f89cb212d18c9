"""Combined answers redone from the ledger's log, without data; whatever was altered does not pass."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest

from reticent.errors import LedgerDamaged, ParameterError, ParameterTypeError
from reticent.ledger import SqlLedger
from reticent.ledger.export import export, verify_export
from reticent.ledger.measured import measured
from reticent.query import Answer
from reticent.query.kinds.intervals import half_width_factor
from reticent.query.receipts import check_answer

from .reusing import Town, asked_among
from .test_reuse import COUNTS


def exported(ledger, **given):
    file = io.StringIO(newline="\n")
    export(ledger, file, **{"openings": True, **given})
    return file.getvalue().splitlines(keepends=True)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """An answer from three purchases, one of them its own; the declaration; the exported ledger."""
    with SqlLedger(tmp_path_factory.mktemp("ledger") / "l.sqlite") as ledger:
        town = Town(COUNTS, seed=4, ledger=ledger)
        town.by_region(information=0.2)
        town.by_both(information=0.3)
        answer = town.among([0, 2], information=0.5)
        town.by_region(information=0.6)  # later purchases change nothing about it
        assert len(answer.combined.parts) == 3
        assert answer.cost
        yield answer, town.data, exported(ledger), exported(ledger, openings=False)


def check(answer, data, lines):
    verify_export(lines)
    check_answer(answer, data, lambda numbers, size: measured(lines, numbers, size))


def test_an_answer_is_redone_from_the_log(asked):
    answer, data, lines, _ = asked
    check(answer, data, lines)
    check(Answer.from_json(json.loads(json.dumps(answer.to_json()))), data, lines)


def _weight(said):
    said["combined"]["certificate"]["coordinates"][0]["weights"][0][2] = "1/3"


def _value(said):
    said["combined"]["certificate"]["coordinates"][0]["value"] += "1"


def _variance(said):
    said["combined"]["certificate"]["coordinates"][0]["inverse"] = "1/1000000"


def _shown(said):
    said["cells"][0]["value"] += 1.0


def _narrower(said):
    said["cells"][0]["high"] -= 1.0


def _worth(said):
    said["information"] = str(2 * int(said["information"]))


def _key(said):
    parts = said["combined"]["parts"]
    parts[0]["key"], parts[1]["key"] = parts[1]["key"], parts[0]["key"]


def _text(said):
    parts = said["combined"]["parts"]
    parts[0]["question"], parts[1]["question"] = parts[1]["question"], parts[0]["question"]


def _twice(said):
    """The own key counted twice: its noise as that of two."""
    purchases = said["combined"]["certificate"]["purchases"]
    purchases.append(dict(purchases[-1]))


def _numbers(said):
    said["combined"]["certificate"]["purchases"][0]["measurements"] = [1]


def _unrecorded(said):
    said["combined"]["parts"][0]["measurements"] = [99]
    said["combined"]["certificate"]["purchases"][0]["measurements"] = [99]


def _root(said):
    said["receipt"]["log_root"] = said["combined"]["certificate"]["log_root"] = "00" * 32


def _earlier(said):
    """A head from before the purchases were recorded."""
    said["receipt"]["log_size"] = said["combined"]["certificate"]["log_size"] = 3


def _query(said):
    said["query"]["where"] = {"column": "region", "op": "=", "value": "r1"}


def _factor(said):
    said["combined"]["factor"] /= 2


def _ends(said):
    said["combined"]["ends"][0][0] += 2.0


def _fewer(said):
    said["combined"]["values"] = said["combined"]["parts"][0]["values"] = 1


def _unbiased(said):
    """The value before it was cut, which people add up."""
    said["cells"][0]["unbiased"] += 1.0


def _noise(said):
    said["combined"]["parts"][0]["noise"] /= 2


def _least(said):
    said["combined"]["parts"][0]["least"] = said["combined"]["parts"][0]["most"] = 0.01


def _values(said):
    said["combined"]["parts"][1]["values"] += 1


def _paid(said):
    said["receipt"]["measurements"] = [0]


def _account(said):
    said["receipt"]["account"] = "another"


def _case(said):
    said["case"] = "2A"


ALTERED = [_unbiased, _noise, _least, _values, _paid, _account, _case,
           _weight, _value, _variance, _shown, _narrower, _worth, _key, _text, _twice, _numbers, _unrecorded,
           _root, _earlier, _query, _factor, _ends, _fewer]  # fmt: skip


@pytest.mark.parametrize("alter", ALTERED, ids=lambda one: one.__name__)
def test_what_was_altered_does_not_pass(asked, alter):
    answer, data, lines, _ = asked
    said = json.loads(json.dumps(answer.to_json()))
    alter(said)
    with pytest.raises(LedgerDamaged):
        check(Answer.from_json(said), data, lines)


ODD = [None, True, 10**400, float("nan"), float("inf"), "1", [], {}, [[]]]
PLACES = [("cells", 0, "value"), ("cells", 0, "high"), ("cells", 0, "unbiased"), ("confidence",),
          ("receipt", "key"), ("receipt", "log_size"), ("receipt", "measurements", 0),
          ("combined", "certificate")]  # fmt: skip


@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_what_is_no_answer_is_refused_and_ends_in_no_other_error(asked, place):
    answer, data, lines, _ = asked
    for odd in ODD:
        said = json.loads(json.dumps(answer.to_json()))
        inner = said
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = odd
        with pytest.raises((LedgerDamaged, ParameterError, ParameterTypeError)):
            check_answer(Answer.from_json(said), data, lambda numbers, size: measured(lines, numbers, size))


def test_a_measurement_that_counts_twice_does_not_pass(tmp_path):
    """Whoever forges an answer makes all of it fit: twice the information, from the same values twice."""
    with SqlLedger(tmp_path / "l.sqlite") as ledger:
        town = Town(COUNTS, seed=4, ledger=ledger)
        town.by_region(information=0.2)
        honest = town.session.known(asked_among([0, 2]))
        check(honest, town.data, exported(ledger))
        purchases = town.session._purchases
        ((key, plan),) = purchases._published.plans.items()
        held = ledger.reading(town.data.account, key)
        twice = tuple(2 * one for one in held.sums)
        purchases._published.joint.record(plan, replace(held, information=2 * held.information, sums=twice))
        purchases._published.numbers[key] *= 2
        forged = town.session.known(asked_among([0, 2]))
        assert forged.information == 2 * honest.information
        with pytest.raises(LedgerDamaged, match="name each measurement once"):
            check(forged, town.data, exported(ledger))


class Overtaken(SqlLedger):
    """A ledger in which others buy just when somebody looks at its head."""

    meanwhile = None

    def head(self):
        seen, self.meanwhile, called = super().head(), None, self.meanwhile
        if called is not None:
            called()
        return seen


def test_what_others_buy_meanwhile_is_in_all_of_an_answer_or_in_none(tmp_path):
    with Overtaken(tmp_path / "l.sqlite") as ledger, SqlLedger(tmp_path / "l.sqlite") as same:
        town, other = Town(COUNTS, seed=4, ledger=ledger), Town(COUNTS, seed=5, ledger=same)
        town.by_region(information=0.2)

        def meanwhile():
            other.by_region(information=0.6)
            assert town.session.known(asked_among([1])).information > 5 * 10**11

        ledger.meanwhile = meanwhile
        answer = town.session.known(asked_among([0, 2]))
        assert answer.information == 10**11
        assert answer.combined.parts[0].measurements == (0,)
        check(answer, town.data, exported(ledger))


def test_a_closed_export_says_what_is_missing(asked):
    answer, data, _, closed = asked
    with pytest.raises(LedgerDamaged, match="exported with --with-openings"):
        check(answer, data, closed)


def test_an_answer_of_its_own_question_bears_nothing_to_redo(tmp_path):
    with SqlLedger(tmp_path / "l.sqlite") as ledger:
        town = Town(COUNTS, seed=4, ledger=ledger)
        with pytest.raises(ParameterError, match="answer must be a combined one"):
            check(town.among([0], information=0.2), town.data, exported(ledger))


@pytest.fixture(scope="module")
def empty_regions(tmp_path_factory):
    """Combined counts of empty regions, of which some were measured far below zero."""
    with SqlLedger(tmp_path_factory.mktemp("ledger") / "l.sqlite") as ledger:
        town = Town(np.zeros((40, 2), dtype=int), seed=4, ledger=ledger)
        town.by_region(information=0.2)
        town.by_both(information=0.3)
        answers = [town.among([region], information=0.22) for region in range(40)]
        yield answers, town.data, exported(ledger)


def cut_only(answer):
    """The answer as an earlier release gave it: its intervals are only cut, and may be points."""
    (cell,), how = answer.cells, answer.combined
    known = cell.estimate

    def cut(factor):
        width = factor * known.standard_error
        return max(0.0, known.unbiased - width), max(0.0, known.unbiased + width)

    low, high = cut(half_width_factor(answer.confidence))
    cells = (replace(cell, estimate=replace(known, low=low, high=high)),)
    return replace(answer, cells=cells, combined=replace(how, ends=(cut(how.factor),)))


def test_answers_of_earlier_releases_still_pass_and_forged_ones_do_not(empty_regions):
    answers, data, lines = empty_regions
    points = 0
    for answer in answers:
        check(answer, data, lines)
        before = cut_only(answer)
        check(before, data, lines)
        (cell,) = before.cells
        points += cell.estimate.low == cell.estimate.high
        if cell.estimate.high > 1e-6:
            narrower = replace(cell, estimate=replace(cell.estimate, low=0.0, high=cell.estimate.high / 2))
            if narrower.estimate.value <= narrower.estimate.high:
                with pytest.raises(LedgerDamaged, match="high of the answer is not what its weights make"):
                    check(replace(before, cells=(narrower,)), data, lines)
    assert points
