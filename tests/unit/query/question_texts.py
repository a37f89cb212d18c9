"""Texts of questions and the data sets that they are about."""

from __future__ import annotations

import json

from reticent.errors import ParameterError
from reticent.query import By, Kind
from reticent.query.kinds.listed import Measured
from reticent.query.language.conditions import All, Among
from reticent.query.language.questions import parse, resolve
from reticent.query.language.tree import And, Comparison, In, Or, Query

from .matching import near_absorbed, near_predicate
from .mutants import broken, places
from .random_queries import near_schema, predicate, query, random_schema


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
