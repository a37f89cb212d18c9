"""T26: whom a foreign file protects is taken over as it stands, or the file is refused; never weakened.

Valid files in many spellings, and mutations of them: terms moved to other levels, misspelt, in other cases
and vocabularies, under full IRIs, renamed by a context, given twice, wrapped, emptied, deleted.
"""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.privacy import Budget
from reticent.query.declarations import csvw_terms, foreign_metadata
from reticent.query.declarations.foreign_metadata import Additions, read_csvw, read_yaml

GIVEN = Additions(Budget(1, 1e-6))
PERSON, COUNT, ROW = (
    ("privacyUnit", "privacyId", "private_id"),
    ("maxContributions", "max_ids"),
    "row_privacy",
)
EO, CSVW = "https://w3id.org/csvw-eo#", "http://www.w3.org/ns/csvw#"
NOTED = {
    "dc:title": "People",
    "http://purl.org/dc/terms/license": {"@id": "https://example.org/l"},
    "schema:keywords": ["a", {"@value": "b"}],
    "notes": [{"body": "of the census", "target": "#row=1"}],
}


@dataclass
class File:
    """A metadata file as an object, and the unit that it states: (person, rows), or (None, 1) for rows."""

    given: dict
    person: str | None
    rows: int
    is_csvw: bool
    stated: bool = True  # whether any statement of a person, or of row privacy, is left
    counted: bool = True  # and one of how many rows
    harmless: bool = True  # whether it must still be read
    contradicts: bool = (
        False  # itself: one of the two statements must not be taken away, it would be another's
    )


# Valid files


def spellings(rng):
    """How a file writes the terms of CSVW-EO, and its context."""
    way = rng.randrange(8)
    csvw = [
        "http://www.w3.org/ns/csvw",
        rng.choice(("csvw-eo-context.jsonld", "/x/csvw-safe-context.jsonld")),
    ]
    grouped = {"privacyUnit": "public", "privacyId": "public", "maxContributions": "bounds"}
    match way:
        case 0:
            return (lambda word: word), rng.choice((csvw, csvw[0], None))
        case 1:
            return (lambda word: f"csvw-eo:{word}"), rng.choice((csvw, None))
        case 2:
            return (lambda word: f"csvw-safe:{word}"), csvw
        case 3:
            return (lambda word: EO + word), csvw[0]
        case 4:
            return (lambda word: EO.replace("https", "http") + word), None
        case 5:
            return (lambda word: f"x:{word}"), [csvw[0], {"x": EO, "@language": "en"}]
        case 6:
            return (lambda word: f"csvw-eo:{grouped.get(word, 'public')}.{word}"), csvw
        case _:
            own = {"privacyUnit": "whose", "privacyId": "isKey", "maxContributions": "rowsOfOne"}
            context = {own[word]: {"@id": f"y:{word}"} for word in own} | {"y": EO}
            return (lambda word: own.get(word, word)), [csvw[0], context]


def csvw_file(rng):
    spelt, context = spellings(rng)
    of_web = rng.choice(
        (lambda word: word, lambda word: word, lambda word: f"csvw:{word}", lambda word: CSVW + word)
    )
    person, rows, by = rng.choice(("pid", "Person no.")), rng.randint(2, 900), rng.randrange(3)
    whose = {of_web("name"): "pid", of_web("titles"): person, of_web("datatype"): "integer"}
    whose |= {"minimum": 1, "maximum": 9999}  # it would do as a column like any other
    columns = [
        {
            of_web("name"): "age",
            of_web("datatype"): "integer",
            "minimum": 0,
            "maximum": 120,
            "required": True,
        },
        {of_web("name"): "sex", of_web("datatype"): "string", "keyValues": ["f", "m"], "dc:title": "Sex"},
        {"name": "wild", "datatype": {"base": "boolean", "dc:title": "x"}, spelt("privacyId"): False},
        {
            "name": "zone",
            "datatype": "string",
            "partitions": [
                {"@type": "Partition", "predicate": {"partitionValue": one}, "maxContributions": 1}
                for one in "ab"
            ],
        },
    ]
    table = {
        of_web("url"): "people.csv",
        of_web("tableSchema"): {of_web("columns"): columns},
        **copy.deepcopy(NOTED),
    }
    if by != 1:
        table[spelt("privacyUnit")] = rng.choice((person, "pid"))
    if by != 0:
        whose[spelt("privacyId")] = rng.choice((True, "true"))
    table[spelt("maxContributions")] = rows
    columns.insert(rng.randrange(5), whose)
    if rng.random() < 0.3:
        table["additionalInformation"] = [
            {
                "columnsInGroup": ["sex", "zone"],
                "maxContributions": 2,
                "keyValues": [{"sex": {"partitionValue": "f"}, "zone": {"partitionValue": "a"}}],
            }
        ]
    if rng.random() < 0.5:
        table = {of_web("tables"): [table], "dc:creator": "somebody", "notes": [{"for": "people"}]}
    given = {} if context is None else {"@context": context}
    return File(given | table, person, rows, is_csvw=True)


def yaml_file(rng):
    """SmartNoise SQL or Lomas, by person or by row."""
    is_lomas, by_row = rng.random() < 0.4, rng.random() < 0.25
    rows = 1 if by_row else rng.randint(2, 900)
    columns = {
        "age": {"type": "int", "lower": 0, "upper": 120, "nullable": "false"},
        "wild": {"type": "boolean"},
    }
    if is_lomas:
        columns |= {
            "sex": {"type": "string", "cardinality": 2, "categories": ["f", "m"], "max_partition_length": 5}
        }
    fields = {"rows": 1000, "censor_dims": "False"}
    if by_row:
        fields[ROW] = rng.choice(("True", "true"))
    else:
        columns["pid"] = {
            "type": "int",
            "lower": 1,
            "upper": 9999,
            "private_id": rng.choice(("True", "true")),
        }
        fields["max_ids"] = rows
    if is_lomas:
        given = fields | {"columns": columns}
    else:
        given = {"PUMS": fields | columns | {"sample_max_ids": "False"}}
        given = {"people": given} if rng.random() < 0.6 else given
        given = given | {"engine": "postgres"} if rng.random() < 0.3 else given
    return File(given, None if by_row else "pid", rows, is_csvw=False)


# Mutations


def objects(given):
    """Every object in a tree."""
    if isinstance(given, dict):
        yield given
    for one in given.values() if isinstance(given, dict) else given if isinstance(given, list) else ():
        yield from objects(one)


def word_of(key):
    own = {"whose": "privacyUnit", "isKey": "privacyId", "rowsOfOne": "maxContributions"}
    return own.get(key, key.replace("#", ":").replace(".", ":").split(":")[-1])


def statements(file):
    """Where the unit is stated: (object, key)."""
    found = []
    for one in objects({key: value for key, value in file.given.items() if key != "@context"}):
        for key, value in one.items():
            word = word_of(key)
            is_bound = word in COUNT and value == file.rows and file.person is not None
            if is_bound or (word in (*PERSON, ROW) and value is not False):
                found.append((one, key))
    return found


def misspelt(rng, text):
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(1, len(text) - 1)
        text = rng.choice(
            (
                text[:at] + text[at + 1 :],
                text[:at] + rng.choice("aeinotux") + text[at:],
                text[:at] + text[at + 1] + text[at] + text[at + 2 :],
                text[:at] + "x" + text[at + 1 :],
            )
        )
    return text


def respelt(rng, word):
    """A term in another form, right or wrong."""
    snake = "".join(f"_{one.lower()}" if one.isupper() else one for one in word)
    return rng.choice(
        (
            misspelt(rng, word),
            misspelt(rng, word),
            word.upper(),
            word.lower(),
            word.swapcase(),
            snake,
            f"{word} ",
            f"csvw-eo:{word}",
            f"csvw:{word}",
            f"csvw-dp:{word}",
            f"ex:{word}",
            f"CSVW-EO:{word}",
            f":{word}",
            f"dc:{misspelt(rng, word)}",
            f"rdf:{word}",
            EO + word,
            EO.upper() + word,
            f"{EO}{misspelt(rng, word)}",
            f"http://www.w3.org/ns/csvw#{word}",
            f"https://w3id.org/csvw-eoo#{word}",
            f"http://example.org/{word}",
            f"urn:x:{word}",
            f"http://example.org/{misspelt(rng, word)}",
            f"csvw-eo:rec.{word}",
            f"@{word}",
        )
    )


def odd(rng, value):
    """A value that says the same, or nothing that can be read."""
    same = [value, str(value), {"@value": value}]
    return rng.choice(
        (
            *same,
            [value],
            {"@id": value},
            {"@list": [value]},
            f" {value}",
            f"{value}x",
            "",
            "yes",
            1.5,
            -1,
            {"a": value},
            [],
            {},
            "no",
        )
    )


def mutate(rng, file):
    """One mutation, in place."""
    where = statements(file)
    if not where or file.contradicts:
        return
    one, key = rng.choice(where)
    word, value = word_of(key), copy.deepcopy(one[key])
    kind = rng.choice(
        ("move", "copy", "respell", "respell", "value", "delete", "again", "context", "note", "column")
    )
    if kind == "context" and not file.is_csvw:
        kind = "move"
    file.harmless &= kind == "note"
    match kind:
        case "move" | "copy":
            others = [other for other in objects(file.given) if other is not one]
            if word in ("privacyId", "private_id"):  # on another column it states another person
                others = [other for other in others if not {"name", "type"} & {word_of(key) for key in other}]
            rng.choice(others)[key if rng.random() < 0.5 else respelt(rng, word)] = value
            if kind == "move":
                del one[key]
        case "respell":
            del one[key]
            one[respelt(rng, word)] = value
        case "value":
            one[key] = odd(rng, value)
        case "delete":
            _deleted(rng, file, one, key, word)
        case "again":
            weaker = {"privacyUnit": "age", "privacyId": False, "private_id": "false", ROW: "false"}
            one.setdefault(respelt(rng, word), weaker.get(word, 1))
            file.contradicts = True
        case "context":
            lies = (
                {word: "http://example.org/other"},
                {word: None},
                {"csvw-eo": "http://example.org/"},
                "http://example.org/context.jsonld",
                {"@vocab": "http://example.org/"},
                {"name": EO + word},
                {"a": "b", "b": "a"},
                {key: word},
                {"@import": "x"},
                7,
            )
            held = file.given.get("@context")
            file.given["@context"] = [*(held if isinstance(held, list) else [held]), rng.choice(lies)]
        case "note" if file.is_csvw:
            rng.choice([file.given, one]).setdefault("dc:description", {"en": "many people"})
        case "column":
            _doubled(rng, file)


def _deleted(rng, file, one, key, word):
    """Take a statement away, the last of its kind or not."""
    if rng.random() < 0.3 and file.is_csvw:
        one[key] = None
    else:
        del one[key]
    left = [word_of(other) for _, other in statements(file) if _[other] is not None]
    file.stated &= any(one in (*PERSON, ROW) for one in left)
    file.counted &= any(one in COUNT for one in left)


def _doubled(rng, file):
    """The same column once more, without its mark."""
    for one in list(objects(file.given)):
        for key, value in list(one.items()):
            if isinstance(value, list) and value and word_of(key) in ("columns", "tables"):
                again = copy.deepcopy(rng.choice(value))
                for name in [name for name in again if word_of(name) in (*PERSON, *COUNT)]:
                    del again[name]
                value.insert(rng.randrange(len(value) + 1), again)
                return
            if isinstance(value, dict) and "private_id" in value:
                one[f'"{key}"'] = {"type": "int", "lower": 0, "upper": 9}
                return


# The verdict


def fault(file, tmp_path):
    """What is wrong with what was read, if anything; counts what became of it."""
    path = tmp_path / ("m.json" if file.is_csvw else "m.yaml")
    path.write_text(json.dumps(file.given))
    read = foreign_metadata.read_csvw if file.is_csvw else foreign_metadata.read_yaml
    for unit in (None, "row"):
        try:
            data = read(path, replace(GIVEN, unit=unit))
        except (ParameterError, ParameterTypeError) as error:
            if "\n" in str(error) or not str(error).startswith("metadata m."):
                return "an error that is not one line"
            if file.harmless and unit is None:
                return f"refused: {error}"
            continue
        except Exception as error:  # whatever it is, it is not a refusal
            return f"{type(error).__name__}: {error}"
        if file.stated and data.person != file.person:
            return f"protects {data.person or 'rows'} instead of {file.person or 'rows'}"
        if not file.stated and unit is None:
            return "protects rows, and nobody said so"
        if file.counted and data.contribution != file.rows:
            return f"counts {data.contribution} rows of a person instead of {file.rows}"
    return None


def fuzz(rng, count, tmp_path, until=None):
    """What was wrong, by kind, and how many files were still read (`read`)."""
    found = Counter()
    for _ in range(count):
        file = rng.choice((csvw_file, csvw_file, yaml_file))(rng)
        for _ in range(rng.randint(0, 3)):
            mutate(rng, file)
        wrong = fault(file, tmp_path)
        found["harmless"] += file.harmless
        if wrong is not None:
            found[f"{wrong} in {json.dumps(file.given)}"] += 1
            if until is not None:
                return found
    return found


def wrong(found):
    return [line for line in found if line != "harmless"]


def test_no_unit_is_weakened_silently(tmp_path):
    found = fuzz(random.Random(1), 200, tmp_path)
    assert not wrong(found)
    assert found["harmless"] > 30


@pytest.mark.slow
def test_no_unit_is_weakened_silently_in_two_thousand_files(tmp_path):
    found = fuzz(random.Random(2), 2000, tmp_path)
    assert not wrong(found)
    assert found["harmless"] > 300


# Planted


def dropping(level, given, names, at=""):
    """As it was: what is not known there is passed over."""
    known = csvw_terms._LEVELS[level]
    return true_normal(
        level, {key: one for key, one in given.items() if names.plain(key) in known}, names, at
    )


true_normal = csvw_terms.normal


def tables_as_they_were(given, place, depth):
    """Without a look at what stands beside a schema or a table."""
    if foreign_metadata._is_table(given):
        yield place, given
    elif isinstance(given, dict) and depth:
        for key, inner in given.items():
            yield from tables_as_they_were(inner, key, depth - 1)


def two_prefixes(self, name):
    bare = name.removeprefix("csvw-eo:").removeprefix("csvw-safe:")
    return None if ":" in bare else bare


def rows_by_default(path, additions, read):
    """Nothing said means rows."""
    try:
        return read(path, additions)
    except ParameterError as error:
        if "--unit row" not in str(error):
            raise
        return read(path, replace(additions, unit="row"))


def silence(*given, **options):
    return None


PLANTED = {
    "what is not known is dropped": [
        (csvw_terms, "normal", dropping),
        (foreign_metadata, "normal", dropping),
    ],
    "annotations are not looked at": [(csvw_terms, "check_silent", silence)],
    "names are not written out": [
        (csvw_terms.Names, "plain", two_prefixes),
        (csvw_terms, "check_silent", silence),
    ],
    "what stands above a table is dropped": [(foreign_metadata, "_tables", tables_as_they_were)],
    "rows are the default": [
        (foreign_metadata, "read_csvw", lambda path, given: rows_by_default(path, given, read_csvw)),
        (foreign_metadata, "read_yaml", lambda path, given: rows_by_default(path, given, read_yaml)),
    ],
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_reader_that_drops_is_caught(name, tmp_path, monkeypatch):
    for place, what, planted in PLANTED[name]:
        monkeypatch.setattr(place, what, planted)
    assert wrong(fuzz(random.Random(3), 2000, tmp_path, until=1))
