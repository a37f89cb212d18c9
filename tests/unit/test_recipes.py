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
