"""`parse`: a stranger's text becomes a question that some query asks, with exactly that text, or nothing.

What is accepted is put to two tests that share nothing with the parser: a query made from the question must
resolve to the same text, and neighbouring tables must not move the question's vector further than its plan
declares. Both catch parsers with a check left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import json
import random
import sys
from collections import Counter

import pytest

from reticent.errors import ParameterError
from reticent.query import By, Column, DataSet, Kind
from reticent.query.kinds.listed import Measured
from reticent.query.language import conditions, questions, tree
from reticent.query.language.conditions import All, Among, columns_of
from reticent.query.language.questions import LONGEST_TEXT, Question, parse, resolve
from reticent.query.language.tree import DEEPEST, MOST_PARTS, And, Comparison, In, Or, Query
from reticent.query.measure import plan

from .matching import near_absorbed, near_predicate, near_schema, predicate, query, random_schema
from .mutants import broken, places
from .tables import BUDGET, RELATIONS, Pairs
from .test_measure import QUERIES, furthest
from .test_questions import AGE, COLUMNS, OPEN, PERSONS, ROWS, changed
from .test_session import in_child

# ibis 12 calls what DuckDB 2 calls old.
pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")


# There and back


def share_of_like(rng, declared):
    """A share of rows that have much to do with those among which they are counted."""
    where = predicate(rng, declared, 3)
    of = rng.choice((
        lambda: rng.choice((And, Or))((predicate(rng, declared, 3), where)),
        lambda: near_predicate(rng, declared, where),
        lambda: near_absorbed(rng, declared, where),
    ))()  # fmt: skip
    return Query("proportion", None, where, of)


def random_questions(rng, count):
    """Questions of many data sets, with how they were asked."""
    for at in range(count):
        if at % 40 == 0:
            declared = random_schema(rng)
            declared = near_schema(rng, declared) if rng.random() < 0.6 else declared
            data = declared.data()
        asked = share_of_like(rng, declared) if rng.random() < 0.2 else query(rng, declared)
        yield resolve(asked, data)


def check_there_and_back(count, seed):
    seen = Counter()
    for question in random_questions(random.Random(seed), count):
        again = parse(question.text, question.data)
        assert again == question
        assert (again.text, again.key) == (question.text, question.key)
        seen[question.measured, question.data.unit] += 1
    return seen


def test_every_text_that_is_written_is_read():
    seen = check_there_and_back(4_000, 1)
    persons = {measured for measured, unit in seen if unit == "person"}
    assert {measured for measured, _ in seen} == set(Measured)
    assert persons == set(Measured) - {Measured.SQUARES}  # where the number of rows is never public


@pytest.mark.slow
def test_thirty_thousand_texts_are_read():
    check_there_and_back(30_000, 2)


def test_the_largest_predicates_are_read():
    """Whatever a query may be, what it resolves to is within the bounds of what is read."""
    wide = Column("wide", Kind.INTEGER, low=0, high=10**6)
    flags = tuple(Column(f"b{i}", Kind.BOOLEAN) for i in range(DEEPEST + 1))
    data = DataSet("large", "1", (wide, *flags), BUDGET, rows=10)

    def gaps(start):
        return And(tuple(Comparison("wide", "!=", 4 * i + start) for i in range(MOST_PARTS - 1)))

    def deep(part, levels):
        for level in range(levels):
            part = (And, Or)[level % 2]((Comparison(f"b{level}", "=", True), part))
        return part

    assert len(resolve(tree.count(where=gaps(5)), data).where.ranges) == MOST_PARTS
    listed = In("wide", tuple(range(0, 2 * MOST_PARTS - 2, 2)))
    for asked in (
        tree.proportion(gaps(5), where=gaps(7)),
        tree.proportion(deep(Comparison("wide", ">", 5), DEEPEST - 1), where=deep(gaps(5).parts[0], 30)),
        tree.proportion(listed, where=deep(Comparison("wide", ">", 7), DEEPEST - 1)),
        tree.count(where=listed, by=["b0", By("wide", bins=1000)]),
    ):
        question = resolve(asked, data)
        assert parse(question.text, data) == question


# What strangers write

PARTS = ("measured", "column", "of", "where", "by")
FORMS = ({"separators": (",", ":")}, {"separators": (", ", ": ")}, {"indent": 0})


def condition_like(rng, said):
    """A condition in the JSON of a text, most often out of normal form."""
    given = said[rng.choice(("where", "of"))]
    other = said[rng.choice(("where", "of"))]
    word = rng.choice(("all", "any"))
    match rng.randrange(6):
        case 0:
            return {word: [given, other]}
        case 1:
            return {word: sorted([given, other], key=json.dumps)}
        case 2:
            return {word: [given]}
        case 3 if isinstance(given, dict) and "column" not in given:
            return {word: list(*given.values())}
        case 4 if isinstance(given, dict) and "column" in given:
            inside = [*given["in"], *given["in"][:1]]
            rng.shuffle(inside)
            return {"column": given["column"], "in": inside[: rng.randint(1, 3)]}
        case _:
            return rng.choice((True, False, {word: []}, {word: [given, True]}, given))


def nudged(rng, said):
    """Some whole number moved, or turned into what is only equal to one."""
    spots = [(holder, key) for holder, key in places(stated(said)) if type(holder[key]) is int]
    if spots:
        holder, key = rng.choice(spots)
        code = holder[key]
        holder[key] = rng.choice((code + 1, code - 1, code + 7, code == 1))


def renamed(rng, said, data):
    """Another column in some place."""
    inner = [holder for holder, key in places([said["of"], said["where"], said["by"]]) if key == "column"]
    rng.choice([said, *inner])["column"] = rng.choice(list(data.named))


def regrouped(rng, said, other):
    """Groupings in another order, twice, or of two questions."""
    both = rng.choice((said["by"][::-1], [*said["by"], *other["by"]], [*other["by"], *said["by"]]))
    said["by"] = sorted(both, key=lambda one: one["column"]) if rng.random() < 0.5 else both


def stated(said):
    """What a text says about the question alone, all of it changeable."""
    return {part: said[part] for part in PARTS}


def repaired(said, data):
    """The declarations of all columns that are named, so that nothing else gives the text away."""
    named = {holder[key] for holder, key in places(stated(said))
             if key == "column" and isinstance(holder[key], str)}  # fmt: skip
    return [data.column(name).declaration() for name in sorted(named) if name in data.named]


def forged(rng, text, others, data):
    """A text made from good ones by somebody who knows how they are made."""
    if rng.random() < 0.15:
        letters = list(text)
        for _ in range(rng.choice((1, 1, 2, 6))):
            at = rng.randrange(len(letters))
            letters[at : at + rng.randint(0, 1)] = rng.choice(
                (chr(rng.randrange(32, 127)), rng.choice(text), "")
            )
        return "".join(letters)
    said = json.loads(text)
    if rng.random() < 0.15:
        part = rng.choice(list(said))
        said[part] = broken(rng, {part: said[part]}).get(part)
        return written(said, **FORMS[0])
    for _ in range(rng.choice((1, 1, 2, 3))):
        other = json.loads(rng.choice(others))
        match rng.randrange(6):
            case 0 | 1:
                part = rng.choice(PARTS)
                said[part] = other[part]
            case 2:
                said[rng.choice(("where", "of"))] = condition_like(rng, said)
            case 3:
                nudged(rng, said)
            case 4:
                renamed(rng, said, data)
            case 5:
                regrouped(rng, said, other)
    if rng.random() < 0.95:
        said["columns"] = repaired(said, data)
    return written(said, **FORMS[0 if rng.random() < 0.95 else rng.randrange(len(FORMS))])


def written(said, **form):
    try:
        return json.dumps(said, sort_keys=True, default=str, **form)
    except TypeError:  # keys of two types
        return json.dumps(said, default=str, **form)
    except RecursionError:
        return '{"where":' * 3000


def forgeries(rng, count, data=None, asked=()):
    """Forged texts and the data sets that they are about."""
    for at in range(count):
        if at % 100 == 0:
            if asked:
                texts = [resolve(one, data).text for one in rng.sample(asked, 15)]
            else:
                made = list(random_questions(rng, 15))
                data, texts = made[0].data, [one.text for one in made]
        yield data, forged(rng, rng.choice(texts), texts, data)


def accepted(given, found=None):
    """The questions that `parse` makes of texts; it may refuse the others in one way only."""
    for data, text in given:
        try:
            question = parse(text, data)
        except ParameterError as refusal:
            if found is not None:
                found[str(refusal)[:24]] += 1
        else:
            yield text, question


# What may be accepted


def predicate_of(condition, data):
    """The condition as somebody would ask for it."""
    if isinstance(condition, bool):
        return And(()) if condition else Or(())
    if not isinstance(condition, Among):
        parts = tuple(predicate_of(part, data) for part in condition.parts)
        return And(parts) if isinstance(condition, All) else Or(parts)
    column = data.column(condition.column)
    if column.kind in (Kind.CATEGORY, Kind.BOOLEAN):
        codes = [code for low, high in condition.ranges for code in range(low, high + 1)]
        return In(column.name, tuple(column.meaning(code) for code in codes))
    between = [(column.meaning(low), column.meaning(high)) for low, high in condition.ranges]
    name = column.name
    return Or(
        tuple(And((Comparison(name, ">=", low), Comparison(name, "<=", high))) for low, high in between)
    )


KIND = {"count": "count", "sum": "sum", "mean": "mean", "share": "proportion", "squares": "variance",
        "variance": "variance"}  # fmt: skip


def query_of(question):
    """A query that asks for a question."""
    data = question.data
    by = tuple(
        By(one.column, None if one.cuts is None else tuple(map(data.column(one.column).meaning, one.cuts)))
        for one in question.by
    )
    of = predicate_of(question.of, data) if question.measured is Measured.SHARE else None
    where = predicate_of(question.where, data)
    return Query(KIND[question.measured.value], question.column, where, of, by)


def check_asked(text, question):
    """The text is that of the question, and some query resolves to it."""
    assert question.text == text
    again = resolve(query_of(question), question.data)
    assert (again.text, again) == (text, question)


def check_forgeries(count, seed):
    rng, refused, taken = random.Random(seed), Counter(), 0
    for text, question in accepted(forgeries(rng, count), refused):
        check_asked(text, question)
        taken += 1
    return taken, refused


def test_a_forged_text_is_a_question_that_somebody_could_ask_or_nothing():
    taken, refused = check_forgeries(12_000, 3)
    assert taken > 1_000
    assert sum(refused.values()) > 5_000
    assert len(refused) > 15  # for many reasons


@pytest.mark.slow
def test_fifty_thousand_forged_texts_are_questions_or_nothing():
    check_forgeries(50_000, 4)


class Lenient(str):
    """Equal to everything: with it, `parse` compares no text."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __ne__(self, other):
        return False


def unjoined(kind, given, data):
    """Parts taken as they come."""
    parts = tuple(given)
    return kind(parts) if len(parts) > 1 and not any(isinstance(one, bool) for one in parts) else parts[0]


def cuts_as_they_come(given, data):
    column, cuts = data.column(given["column"]), given["cuts"]
    cells = column.last - column.first + 1 if cuts is None else len(cuts) + 1
    return questions.Grouping(column.name, None if cuts is None else tuple(cuts), cells)


def any_kind(kind, *, whole):
    """Each of KINDS measures another thing, so that all are among them."""
    return dict(zip(tree.KINDS, [*Measured, Measured.COUNT], strict=True))[kind]


def codes_as_they_come(column, given, name):
    return tuple((low, high) for low, high in given)


FAULTS = {
    "no text is compared": None,
    "of is not looked at": (questions, "both", lambda of, where, data: of),
    "conditions as they come": (conditions, "_join", unjoined),
    "codes as they come": (conditions, "_checked_ranges", codes_as_they_come),
    "cuts as they come": (questions, "_stated_grouping", cuts_as_they_come),
    "groupings as they come": (questions, "_in_order", tuple),
    "anything measured": (questions, "_measured", any_kind),
    "any column summed": (questions, "_summed", lambda kind, column: column),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_parser_without_a_check_is_caught(fault, monkeypatch):
    given = list(forgeries(random.Random(5), 4_000))
    if FAULTS[fault] is None:
        given = [(data, Lenient(text)) for data, text in given]
    taken = []
    with monkeypatch.context() as patch:
        if FAULTS[fault] is not None:
            patch.setattr(*FAULTS[fault])
        for data, text in given:
            try:
                taken.append((str(text), parse(text, data)))
            except Exception:  # without the check, anything may come
                continue

    def is_caught(text, question):
        try:
            check_asked(text, question)
        except Exception:  # no query says it, or one that says it says something else
            return True
        return False

    caught = [text for text, question in taken if is_caught(text, question)]
    assert caught
    for data, text in given:
        if str(text) in caught:
            with pytest.raises(ParameterError):
                parse(str(text), data)


# How far neighbours move what is accepted

PAIRS = 100


def accepted_of(data, count, most, seed):
    """Questions that somebody forged, other than those that were asked."""
    rng, found = random.Random(seed), {}
    asked = {resolve(one, data).key for one in QUERIES.values()}
    for _, question in accepted(forgeries(rng, count, data, list(QUERIES.values()))):
        read = {question.column, *columns_of(question.where), *columns_of(question.of)}
        read |= {one.column for one in question.by}
        if question.key not in asked and "table" not in read and question.cells <= 40:
            found[question.key] = question
    return rng.sample(list(found.values()), min(most, len(found)))


def check_sensitivity(relation, count, most, seed):
    data = RELATIONS[relation].data()
    chosen = accepted_of(data, count, most, seed)
    coded = Pairs(RELATIONS[relation], PAIRS, seed).coded(data)
    for question in chosen:
        measured = plan(question)
        assert furthest(coded, measured, PAIRS) <= measured.sensitivity**2, question.text
    return Counter(question.measured for question in chosen)


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_neighbour_moves_a_forged_question_further_than_declared(relation):
    seen = check_sensitivity(relation, 4_000, 60, 6)
    assert seen.total() == 60
    assert set(seen) >= set(Measured) - {Measured.SQUARES}


@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_no_neighbour_moves_any_forged_question_further_than_declared(relation):
    assert check_sensitivity(relation, 12_000, 250, 7).total() == 250


def test_a_planted_share_of_a_column_is_caught():
    """A parser that lets a share have a column: its plan takes x for a code, and the bound is too small."""
    relation = RELATIONS["replace a row"]
    right = resolve(QUERIES["share where"], relation.data())
    wrong = Question(right.measured, "far", right.of, right.where, right.by, right.data)
    coded = Pairs(relation, PAIRS, 8).coded(right.data)
    assert furthest(coded, plan(wrong), PAIRS) > plan(wrong).sensitivity ** 2
    assert furthest(coded, plan(right), PAIRS) <= plan(right).sensitivity ** 2
    with pytest.raises(
        ParameterError, match=r"^column must be given for all but counts and shares, got 'far'$"
    ):
        parse(wrong.text, right.data)


# Word by word

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
