"""The text of a question, word by word: what each part must be."""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import json
import sys

import pytest

from reticent.errors import ParameterError
from reticent.query import Column, DataSet, Kind
from reticent.query.language import tree
from reticent.query.language.questions import LONGEST_TEXT, parse, resolve
from reticent.query.language.tree import MOST_PARTS, In

from .question_texts import check_asked, repaired, written
from .tables import BUDGET
from .test_questions import AGE, COLUMNS, OPEN, PERSONS, ROWS, changed
from .test_session_crashes import in_child

# ibis 12 calls what DuckDB 2 calls old.
pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")


HOW = r"^question must be "


AMONG = {"column": "age", "in": [[40, 120]]}


FEMALE = {"column": "sex", "in": [[0, 0]]}


ADULT = {"column": "age", "in": [[18, 120]]}


def edited(**changes):
    """The text of the count of all rows with some fields changed, and the columns that it then names."""
    said = {**json.loads(resolve(tree.count(), ROWS).text), **changes}
    if "columns" not in changes:
        said["columns"] = repaired(said, ROWS)
    return written(said, separators=(",", ":"))


def by(*given):
    return {"by": [dict(zip(("column", "cuts"), one, strict=True)) for one in given]}


DECLARED = r"must be as the data set has it, in normal form$"


SHARE = {"measured": "share", "where": AMONG}


OF_WHERE = r"of must be rows of where for a share, and true else$"


ALL_BUT = r"column must be given for all but counts and shares, got "


OBJECTS = r"must be made of objects with column and in, all, or any, got "


REFUSED = [
    ({"form": 2}, f"form {DECLARED}"),
    ({"form": True}, r"question must be canonical JSON$"),
    ({"data": "other"}, f"data {DECLARED}"),
    ({"version": "2"}, f"version {DECLARED}"),
    ({"relation": "add or remove one"}, f"relation {DECLARED}"),
    ({"unit": {"person": "id"}}, f"unit {DECLARED}"),
    ({"columns": [[]]}, f"columns {DECLARED}"),
    (
        {"more": 1},
        r"question must be an object with by, column, columns, data, form, measured, of, .*, where$",
    ),
    ({"measured": "mode"}, r"measured must be one of count, squares, sum here, got 'mode'$"),
    ({"measured": None}, r"measured must be one of count, squares, sum here, got None$"),
    ({"measured": "mean", "column": "age"}, r"measured must be one of count, squares, sum here, got 'mean'$"),
    (
        {"measured": "squares", "column": "age", "where": AMONG},
        r"measured must be one of count, mean, share, sum, variance here, got 'squares'$",
    ),
    ({"measured": "squares", "column": "age", **by(("sex", None))}, r"measured must be one of count, mean, "),
    ({"column": "age"}, f"{ALL_BUT}'age'$"),
    ({**SHARE, "of": False, "column": "age"}, f"{ALL_BUT}'age'$"),
    ({"measured": "sum"}, f"{ALL_BUT}None$"),
    ({"measured": "sum", "column": 7}, r"column must be a name, got 7$"),
    ({"measured": "sum", "column": ["age"]}, r"column must be a name, got a list$"),
    ({"measured": "sum", "column": "size"}, r"column must be one of age, income, .*, got 'size'$"),
    ({"measured": "sum", "column": "sex"}, r"column must be a number or boolean for a sum, got 'sex'"),
    ({"of": AMONG}, OF_WHERE),
    ({"of": False}, OF_WHERE),
    ({**SHARE, "of": FEMALE}, OF_WHERE),
    ({**SHARE, "of": True}, OF_WHERE),
    ({**SHARE, "of": {"all": [ADULT, FEMALE]}}, OF_WHERE),
    # Conditions
    ({"where": None}, f"where {OBJECTS}None$"),
    ({"where": 1}, f"where {OBJECTS}1$"),
    ({"where": {}}, f"where {OBJECTS}a dict$"),
    ({"where": {"not": True}}, f"where {OBJECTS}"),
    ({"where": {"column": "age"}}, f"where {OBJECTS}"),
    ({"where": {**AMONG, "x": 1}}, f"where {OBJECTS}"),
    ({"where": {"column": 3, "in": []}}, f"where {OBJECTS}"),
    ({"where": {"column": "age", "in": 3}}, f"where {OBJECTS}"),
    ({"where": {"all": [AMONG, FEMALE], "any": []}}, f"where {OBJECTS}"),
    ({"where": {"all": {"x": AMONG}}}, f"where {OBJECTS}"),
    ({"where": {"all": [AMONG, 3]}}, f"where {OBJECTS}3$"),
    ({"of": []}, f"of {OBJECTS}a list$"),
    ({"where": {"column": "size", "in": []}}, r"where.column must be one of age, .*, got 'size'$"),
    # Groupings
    ({"by": None}, r"by must be a list of at most 8, got None$"),
    ({"by": [{}] * 9}, r"by must be a list of at most 8, got a list$"),
    ({"by": ["sex"]}, r"by must be made of objects with column and cuts, got 'sex'$"),
    ({"by": [{"column": "sex"}]}, r"by must be made of objects with column and cuts, got a dict$"),
    ({"by": [{"column": "sex", "cuts": None, "x": 1}]}, r"by must be made of objects with column and cuts"),
    (by((None, None)), r"by.column must be a name, got None$"),
    (by(("size", None)), r"by.column must be one of age, .*, got 'size'$"),
    (by(("sex", [1])), r"by.cuts must be null for sex, which is category$"),
    (by(("citizen", [])), r"by.cuts must be null for citizen, which is boolean$"),
    (by(("sex", None), ("sex", None)), r"by must name each column once, got 'sex' twice$"),
    (by(("sex", None), ("citizen", None)), f"by {DECLARED}"),
    (
        by(("age", [2, 4, 6, 7, 8, 9]), ("code", None)),
        r"by must make at most 65536 cells for a count, got 70000$",
    ),
    (
        {"measured": "variance", "column": "age", **by(("code", None), ("sex", None))},
        r"by must make at most 21845 cells for a variance, got 30000$",
    ),
]


NO_RANGES = [[3], [[3]], [[3, 4, 5]], [[4, 3]], [[-1, 3]], [[3, 121]], [[3, True]], [[False, 4]],
             [["3", "4"]], [[1, 2], None], [{"0": 1, "1": 2}], [[None, None]]]  # fmt: skip


NOT_NORMAL = [
    *(
        {"column": "age", "in": one}
        for one in ([], [[0, 120]], [[3, 4], [5, 6]], [[9, 9], [3, 4]], [[3, 4]] * 2)
    ),
    *({"all": one} for one in ([], [AMONG], [AMONG] * 2, [AMONG, True], [AMONG, False], [FEMALE, AMONG])),
    *({"any": one} for one in ([], [AMONG, False], [AMONG, {"column": "age", "in": [[0, 39]]}])),
    {"all": [AMONG, ADULT]},
    {"all": [AMONG, {"any": [ADULT, FEMALE]}]},
    {"all": [{"all": [AMONG, FEMALE]}, FEMALE]},
]


NO_CUTS = [None, [], 5, {"5": 5}, "5", [True], [5, None], [[5]]]


NOT_RISING = [[0], [121], [5, 5], [6, 5], [-7, 5], [5, 10**30]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *REFUSED,
        *(
            (
                {"where": {"column": "age", "in": one}},
                r"where.in must be ranges of codes of age, from 0 to 120$",
            )
            for one in NO_RANGES
        ),
        *(({"where": one}, r"where must be in normal form$") for one in NOT_NORMAL),
        *(
            (by(("age", one)), r"by.cuts must be 1 to 65535 codes for age, which is integer$")
            for one in NO_CUTS
        ),
        *((by(("age", one)), r"by.cuts must rise, > 0 and <= 120, the codes of age$") for one in NOT_RISING),
    ],
    ids=lambda given: json.dumps(given)[:50] if isinstance(given, dict) else "",
)
def test_refusals_name_the_field_and_the_rule(changes, message):
    with pytest.raises(ParameterError, match=f"^{message}"):
        parse(edited(**changes), ROWS)


def test_edits_that_are_questions_are_read():
    """So that the refusals above are for what they say."""
    for changes in (
        {},
        {"where": AMONG},
        {"where": False},
        {"where": {"all": [AMONG, FEMALE]}},
        {"where": {"any": [{"all": [AMONG, FEMALE]}, {"column": "citizen", "in": [[1, 1]]}]}},
        {"measured": "squares", "column": "age"},
        {"measured": "sum", "column": "citizen"},
        {**SHARE, "of": {"all": [AMONG, FEMALE]}},
        {**SHARE, "of": False},
        by(("age", [1, 120]), ("sex", None)),
        by(("income", [-9, 10])),
    ):
        text = edited(**changes)
        check_asked(text, parse(text, ROWS))


def test_the_count_of_all_rows_is_a_question_though_it_is_public():
    """Harmless: noise on a number that everybody knows. A proportion of all rows resolves to it."""
    question = resolve(tree.proportion("age >= 0"), ROWS)
    assert question == resolve(tree.count(), ROWS) == parse(question.text, ROWS)


def test_a_text_is_of_one_declaration():
    asked = tree.total("income", where=AGE, by="sex")
    datas = [ROWS, OPEN, PERSONS, changed(ROWS, 0, high=121), changed(ROWS, 1, missing=0.5),
             changed(PERSONS, 3, missing=True), dataclasses.replace(PERSONS, contribution=2),
             dataclasses.replace(PERSONS, columns=COLUMNS[::-1]),
             dataclasses.replace(ROWS, version="2")]  # fmt: skip
    for text_of in datas:
        for data in datas:
            text = resolve(asked, text_of).text
            if data is text_of:
                assert parse(text, data).text == text
            else:
                with pytest.raises(ParameterError):
                    parse(text, data)
    same = dataclasses.replace(ROWS, rows=7, source={"csv": "x"})  # no matter of the question
    assert parse(resolve(asked, ROWS).text, same).data == same


GOOD = resolve(tree.count(where=AGE), ROWS).text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"a text of at most 1048576 ASCII characters$"),
        (GOOD.encode(), r"a text of"),
        (GOOD + " " * LONGEST_TEXT, r"a text of"),
        (GOOD.replace("census", "cénsus"), r"a text of"),
        (GOOD.replace("census", "\ud800"), r"a text of"),
        ("", r"JSON$"),
        (GOOD[:-1], r"JSON$"),
        (GOOD + "x", r"JSON$"),
        (GOOD.replace("120", "1" * 5000), r"JSON$"),
        ("[" * 100, r"JSON$"),
        ("[" * 101, r"JSON of at most 100 levels$"),
        ("[]" * 50_000, r"JSON$"),
        ('{"' * 50_000, r"JSON of at most 100 levels$"),
        ('"' + "[" * 50_000, r"JSON$"),
        ("\\" * 50_000, r"JSON$"),
        (r'["\"[[[[[",' * 101, r"JSON of at most 100 levels$"),
        (r'["\\\\",' * 101, r"JSON of at most 100 levels$"),
        ("3", r"an object with"),
        ("null", r"an object with"),
        ("[]", r"an object with"),
        ("{}", r"an object with"),
        (" " + GOOD, r"canonical JSON$"),
        (GOOD.replace(":", ": "), r"canonical JSON$"),
        (GOOD.replace("census", "c\\u0065nsus"), r"canonical JSON$"),
        (json.dumps(dict(reversed(json.loads(GOOD).items())), separators=(",", ":")), r"canonical JSON$"),
    ],
    ids=lambda given: repr(given)[:30],
)
def test_what_is_no_canonical_json_is_refused(text, message):
    with pytest.raises(ParameterError, match=f"{HOW}{message}"):
        parse(text, ROWS)


BOMBS = ("[" * 500_000, '{"all":[' * 100_000, "[" * 500_000 + "]" * 500_000)


def exploding(read):
    """The exit code of a process that reads deep texts where somebody lifted the interpreter's limit."""

    def child():
        faulthandler.disable()
        sys.setrecursionlimit(10**6)
        for bomb in BOMBS:
            with contextlib.suppress(ParameterError):
                read(bomb)

    return in_child(child)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_no_depth_ends_the_process():
    assert exploding(lambda bomb: parse(bomb, ROWS)) == 0
    assert exploding(json.loads) != 0  # planted: the interpreter's limit alone


def test_brackets_in_names_are_no_levels():
    names = ("[" * 99, '"' + "{" * 90, "\\" * 7 + '"[' * 40)
    columns = (*(Column(name, Kind.BOOLEAN) for name in names), Column("c", Kind.CATEGORY, values=names))
    data = DataSet("odd", "1", columns, BUDGET, rows=5)
    question = resolve(tree.count(by=[*names, "c"], where=In("c", names[:2])), data)
    assert parse(question.text, data) == question


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "40.0", "4e1", "1e999"])
def test_only_whole_numbers_are_read(number):
    with pytest.raises(ParameterError, match=r"^question must hold no numbers but whole ones$"):
        parse(GOOD.replace("[40,", f"[{number},"), ROWS)


def test_a_field_that_is_named_twice_is_refused():
    for twice in (
        GOOD.replace('"version":', '"version":"2","version":'),
        GOOD.replace('"in":', '"in":[],"in":'),
    ):
        with pytest.raises(ParameterError, match=r"^question must name each field once$"):
            parse(twice, ROWS)


def nested(levels):
    given = AMONG
    for level in range(levels):
        column = ("sex", "citizen", "income")[level % 3]
        given = {("all", "any")[level % 2]: [{"column": column, "in": [[0, 0]]}, given]}
    return given


def test_conditions_are_bounded():
    with pytest.raises(ParameterError, match=r"^where must be nested at most 33 deep$"):
        parse(edited(where=nested(33)), ROWS)
    with pytest.raises(ParameterError, match=r"^where must be (in normal form|nested)"):
        parse(edited(where=nested(32)), ROWS)  # no such condition is in normal form
    room = 6 * MOST_PARTS + 1
    for where in (
        {"column": "age", "in": [[0, 0]] * room},
        {"all": [True] * room},
        {"all": [AMONG, *[{"column": "sex", "in": [[0, 0]] * 3}] * (room // 4)]},
    ):
        with pytest.raises(ParameterError, match=rf"^where must have at most {room} parts and ranges$"):
            parse(edited(where=where), ROWS)
    for where in ({"column": "age", "in": [[0, 0]] * (room - 1)}, {"all": [True] * (room - 1)}):
        with pytest.raises(ParameterError, match=r"^where must be in normal form$"):
            parse(edited(where=where), ROWS)


def test_a_deep_value_where_none_is_looked_at_is_refused():
    deep = "[" * 90 + "]" * 90
    for name in json.loads(GOOD):
        text = GOOD.replace(f'"{name}":', f'"{name}":{deep},"x{name}":', 1)
        with pytest.raises(ParameterError):
            parse(text, ROWS)
        said = {**json.loads(GOOD), name: json.loads(deep)}
        with pytest.raises(ParameterError):
            parse(json.dumps(said, sort_keys=True, separators=(",", ":")), ROWS)
