"""The recipes of docs/architecture.md, followed in a copy of the tree: what a new part takes.

The toys are real: they are asked, drawn or run in a fresh interpreter on the copy. Leaving any part out is an
error at import.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import reticent
from reticent.mechanisms import catalogue

SOURCE = Path(reticent.__file__).parent


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    place = tmp_path_factory.mktemp("copy") / "reticent"
    shutil.copytree(SOURCE, place, ignore=shutil.ignore_patterns("__pycache__", "vendor"))
    return place


@pytest.fixture
def tree(clean, tmp_path):
    """A copy of the package that may be changed."""
    place = tmp_path / "src" / "reticent"
    shutil.copytree(clean, place, copy_function=os.link)
    return place


def changed(tree, file, old, new):
    """One line of a file, replaced or added."""
    place = tree / file
    text = place.read_text()
    assert text.count(old) == 1, (file, old)
    place.unlink()  # a link of the clean copy
    place.write_text(text.replace(old, new))


def ran(tree, program):
    """What a fresh interpreter says of the copy."""
    environment = {**os.environ, "PYTHONPATH": str(tree.parent)}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300
    )


def said(tree, program):
    done = ran(tree, f"import reticent; assert reticent.__file__.startswith({str(tree)!r})\n{program}")
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


# A kind of question: one file and one line

TALLY = (
    (SOURCE / "query/kinds/histogram.py")
    .read_text()
    .replace('name="histogram"', 'name="tally"')
    .replace("needs_by=True", "needs_by=False")
    .replace("is_table=True", "is_table=False")
    .replace('line=lambda column, levels: "histogram"', 'line=lambda column, levels: "tally"')
)
TALLY = re.sub(r"forms=\(.*?\n    \),\n", 'forms=(Form("tally", ("by",), {}),),\n', TALLY, flags=re.S)
TALLY = re.sub(
    r"aggregates=\{\},[^\n]*", 'aggregates={"ApproxDistinct": lambda read, node: Asked("tally")},', TALLY
)
TALLY = TALLY.replace("sql=()", 'sql=("APPROX_DISTINCT",)').replace(
    "import Form, Kind", "import Asked, Form, Kind"
)

ASKED = """
from reticent.apps.query.builder import asked
from reticent.privacy import Budget
from reticent.query import Column, DataSet, Kind, Query
from reticent.query.estimates import estimates
from reticent.query.language import sql, words
from reticent.query.language.questions import resolve
from reticent.query.language.tree import from_json, to_json
from reticent.query.measure import plan

columns = [Column("age", Kind.INTEGER, low=0, high=100)]
data = DataSet("people", "1", tuple(columns), rows=100, budget=Budget(epsilon=1.0, delta=1e-6))
query = Query("tally")
assert from_json(to_json(query)) == query
assert asked(data, {"kind": ["tally"]}) == query
assert sql.read("SELECT APPROX_DISTINCT(age) FROM people", "people") == query
prepared = plan(resolve(query, data))
cell, = estimates(query, prepared, [5 << prepared.shift], 10**12, 0.95)
print(round(cell.estimate.value), words.line(to_json(query)), prepared.question.measured.name)
"""


def test_a_kind_of_question_is_one_file_and_one_line(tree):
    (tree / "query/kinds/tally.py").write_text(TALLY)
    changed(tree, "query/kinds/listed.py", '    "quantile",\n', '    "quantile",\n    "tally",\n')
    assert said(tree, ASKED) == ["5", "tally", "count"]


@pytest.mark.parametrize("part", re.findall(r"^    (\w+)=", TALLY, flags=re.M))
def test_a_kind_that_leaves_a_part_out_cannot_be_imported(part):
    made = compile(re.sub(rf"^    {part}=.*\n", "", TALLY, flags=re.M), "tally", "exec")
    with pytest.raises(TypeError, match=part):
        exec(made, {})


def test_a_kind_without_its_line_is_unknown(tree):
    (tree / "query/kinds/tally.py").write_text(TALLY)
    done = ran(tree, ASKED)
    assert done.returncode == 1
    assert "kind must be one of" in done.stderr


@pytest.mark.parametrize("twice", ['name="sum"', 'Form("sum"', '"Sum": lambda'])
def test_two_kinds_of_one_name_cannot_be_imported(tree, twice):
    replaced = {
        'name="sum"': 'name="tally"',
        'Form("sum"': 'Form("tally"',
        '"Sum": lambda': '"ApproxDistinct": lambda',
    }
    (tree / "query/kinds/tally.py").write_text(TALLY.replace(replaced[twice], twice))
    changed(tree, "query/kinds/listed.py", '    "quantile",\n', '    "quantile",\n    "tally",\n')
    done = ran(tree, "import reticent.query")
    assert done.returncode == 1
    assert "have one name" in done.stderr


# An experiment: one file and one line

EXPERIMENT = '''
"""A toy."""

from reticent.experiments.base import Options, Outcome


def run(options: Options) -> Outcome:
    """Two numbers."""
    return Outcome(rows=[{"x": 1, "y": 2.0}], caption="a toy", draw=lambda: None)
'''


def test_an_experiment_is_one_file_and_one_line(tree):
    (tree / "experiments/ours/toy.py").write_text(EXPERIMENT)
    line = '        Experiment("toy", "a toy", "ours.toy"),\n'
    place = '        Experiment("reuse-rules",'
    changed(tree, "experiments/registry.py", place, line + place)
    program = "from reticent.experiments import find\nprint(find('toy').title)"
    assert said(tree, program) == ["a", "toy"]


# A mechanism: one file and one line

STRIP = (
    (SOURCE / "mechanisms/numeric/window.py")
    .read_text()
    .replace("class Window(", "class Strip(")
    .replace('name = "Window"', 'name = "Strip"')
)
LISTED = '    "Laplace": "laplace",\n'

DRAWN = """
import numpy as np
from reticent.audit.exact import check_channel
from reticent.audit.subjects import CATALOGUE
from reticent.collect.instruments import described, made
from reticent.federated.choice import KINDS
from reticent.mechanisms import numeric
from reticent.mechanisms.catalogue import NUMERIC
from reticent.mechanisms.record import Number

strip = numeric.Strip(epsilon=1.0)
again = made(Number("age", (-1.0, 1.0)), described(strip))
assert type(again) is numeric.Strip and again.exact_probabilities(0.3) == strip.exact_probabilities(0.3)
assert set(np.unique(strip.perturb(np.zeros(1000)))) <= set(strip.alphabet)
assert check_channel(strip).loss <= 1.0
print("Strip" in CATALOGUE, "Strip" in KINDS, list(NUMERIC)[-1])
"""


def with_strip(tree, text=STRIP):
    (tree / "mechanisms/numeric/strip.py").write_text(text)
    changed(tree, "mechanisms/catalogue.py", LISTED, LISTED + '    "Strip": "strip",\n')


def test_a_mechanism_is_one_file_and_one_line(tree):
    """Drawn, audited, carried by surveys and trainings."""
    with_strip(tree)
    assert said(tree, DRAWN) == ["True", "True", "Strip"]


PARTS = {
    "name": "the name that the documents give it",
    "travels": "say which of its fields travel",
    **{name: name for name in ("_unit_alphabet", "_law", "_unit_probabilities", "_exact")},
}


@pytest.mark.parametrize("part", [*PARTS, "its line"])
def test_a_mechanism_that_leaves_a_part_out_cannot_be_imported(part, monkeypatch):
    text = re.sub(rf"^    (def )?{part}\b", r"    \1another", STRIP, flags=re.M)
    if part != "its line":
        assert text != STRIP
        monkeypatch.setitem(catalogue.NUMERIC, "Strip", "strip")
    with pytest.raises(TypeError, match=f"Strip must .*{PARTS.get(part, part)}"):
        exec(compile(text, "strip", "exec"), {"__name__": "reticent.mechanisms.numeric.strip"})


# A ledger back end: a folder and a line in the conformance suite

TOLD = '''"""A ledger that is a list of calls in a file: made again from it whenever it is opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reticent.ledger.base import Balance, Grant, Ledger, Measurement, Reading, Terms, Unit
from reticent.ledger.memory import MemoryLedger
from reticent.privacy.neighbours import Neighbours


class DiaryLedger(Ledger):
    """Calls as lines of JSON."""

    def __init__(self, path: Path) -> None:
        self._held, self._path = MemoryLedger(), path
        path.touch()
        for line in path.read_text().splitlines():
            self._repeated(*json.loads(line))

    def _repeated(self, verb: str, given: list[Any]) -> Any:
        if verb == "_open":
            name, unit, neighbours, *rest = given
            return self._held._open(Terms(name, Unit(unit), Neighbours(neighbours), *rest))
        if verb == "_fulfil":
            return self._held._fulfil(given[0], tuple(given[1]))
        return getattr(self._held, verb)(self._held.balance(given[0]).terms, *given[1:])

    def _kept(self, verb: str, *given: Any) -> Any:
        """Do it, and write it down if it was done."""
        found = self._repeated(verb, list(given))
        with self._path.open("a") as file:
            file.write(json.dumps([verb, given]) + "\\n")
        return found

    def _open(self, terms: Terms) -> Balance:
        rest = (terms.subject, terms.cap, terms.minimum)
        found: Balance = self._kept("_open", terms.name, terms.unit.value, terms.neighbours.value, *rest)
        return found

    def _request(self, terms: Terms, key: str, information: int, idempotency: str | None) -> Grant:
        found: Grant = self._kept("_request", terms.name, key, information, idempotency)
        return found

    def _pay(self, terms: Terms, key: str, units: int, idempotency: str | None) -> Grant:
        found: Grant = self._kept("_pay", terms.name, key, units, idempotency)
        return found

    def _fulfil(self, number: int, values: tuple[int, ...]) -> Reading:
        found: Reading = self._kept("_fulfil", number, values)
        return found

    def balance(self, account: str) -> Balance:
        """The account's terms and what is spent."""
        return self._held.balance(account)

    def accounts(self) -> list[Balance]:
        """Every account."""
        return self._held.accounts()

    def reading(self, account: str, key: str) -> Reading:
        """What is recorded under a key."""
        return self._held.reading(account, key)

    def pending(self, account: str) -> list[Measurement]:
        """Measurements that are paid for and not recorded."""
        return self._held.pending(account)

    def close(self) -> None:
        """Everything is written already."""
'''
SUITE = Path(__file__).parent / "ledger" / "test_conformance.py"
BEFORE = '    "ethereum": (lambda fresh: fresh(), 8, 100),\n'
TRIED = '    "diary": (lambda fresh: DiaryLedger(fresh()), 5, 5),\n'


def with_diary(tree, text=TOLD):
    (tree / "ledger/diary").mkdir()
    (tree / "ledger/diary/__init__.py").write_text('"""A toy."""\n')
    (tree / "ledger/diary/ledger.py").write_text(text)


def suite(tree, line):
    """The conformance suite beside the copy, with a line for the toy or without."""
    text = SUITE.read_text()
    assert text.count(BEFORE) == 1
    place = tree.parent / "test_conformance.py"
    made = "from reticent.ledger.diary.ledger import DiaryLedger\n"
    place.write_text(made * bool(line) + text.replace(BEFORE, BEFORE + line))
    return place


def tried(tree, line):
    """What the suite says of the copy."""
    options = ["-q", "-p", "no:cacheprovider", "-k", "diary", str(suite(tree, line))]
    program = f"import pytest; exit(pytest.main({options!r}))"
    return ran(tree, f"import reticent; assert reticent.__file__.startswith({str(tree)!r})\n{program}")


def test_a_ledger_back_end_is_a_folder_and_a_line_in_the_suite(tree):
    with_diary(tree)
    done = tried(tree, TRIED)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert re.search(r"^[1-9]\d* passed", done.stdout, re.M), done.stdout[-500:]


def test_planted_a_back_end_that_charges_again_is_found(tree):
    """The suite really runs on the toy."""
    planted = "key, information, idempotency)\n        return found\n\n    def _pay"
    assert TOLD.count(planted) == 1
    with_diary(tree, TOLD.replace(planted, planted.replace("information", "information + 1")))
    suite(tree, TRIED)  # importable from the copy
    done = ran(
        tree,
        """
import itertools, pathlib, tempfile
from hypothesis import Phase
import test_conformance
numbers = itertools.count()
with tempfile.TemporaryDirectory() as folder:
    make = lambda: test_conformance.DiaryLedger(pathlib.Path(folder) / str(next(numbers)))
    test_conformance.run(make, examples=80, phases=[Phase.generate])
""",
    )
    assert done.returncode == 1
    assert "AssertionError" in done.stderr


def test_a_back_end_without_its_line_stops_the_suite(tree):
    with_diary(tree)
    done = tried(tree, "")
    assert done.returncode == 2, done.stdout[-500:]
    assert "diary must have a line in BACK_ENDS" in done.stdout


@pytest.mark.parametrize(
    "part", ["_open", "_request", "_pay", "_fulfil", "balance", "accounts", "reading", "pending", "close"]
)
def test_a_back_end_that_leaves_a_verb_out_cannot_be_imported(part):
    text = TOLD.replace(f"    def {part}(self", "    def another(self")
    assert text != TOLD
    with pytest.raises(TypeError, match=f"DiaryLedger must have {part}$"):
        exec(compile(text, "diary", "exec"), {"__name__": "diary"})
