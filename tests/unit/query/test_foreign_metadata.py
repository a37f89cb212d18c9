"""Declarations of other tools: what they say is taken over, what they do not say is asked for by name."""

import json
from dataclasses import replace

import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.privacy import Budget, Neighbours
from reticent.query.declarations.datasets import Policy
from reticent.query.declarations.foreign_metadata import Additions, read_csvw, read_yaml
from reticent.query.rows.columns import Column, Kind

GIVEN = Additions(Budget(1, 1e-6), categories={"sex": ("f", "m")}, source={"csv": "pums.csv"})
PUBLIC = replace(GIVEN, relation=Neighbours.REPLACE_ONE)

BY_ROW = """
"":
  PUMS:
    PUMS:
      row_privacy: True
      rows: 1000
      censor_dims: False
      age: {type: int, lower: 0, upper: 100, nullable: false}
      income: {type: float, lower: 0, upper: 500000, missing_value: 7}
      sex: {type: string, cardinality: 2}
      married: {type: boolean, missing_value: True}
"""
BY_PERSON = """
engine: postgres
Finance:
  Sales:
    '"Backlog-Orders"':
      max_ids: 5
      sample_max_ids: False
      CustomerID: {private_id: True, type: int}
      '`Sale-Amount`': {type: int, lower: 0, upper: 100000}
"""


def in_format_2(*columns):
    """Return columns as new declarations mean them."""
    return tuple(column.in_format(2) for column in columns)


def smartnoise(tmp_path, text, additions=GIVEN):
    (tmp_path / "m.yaml").write_text(text)
    return read_yaml(tmp_path / "m.yaml", additions)


def csvw(tmp_path, given, additions=GIVEN):
    (tmp_path / "m.json").write_text(given if isinstance(given, str) else json.dumps(given))
    return read_csvw(tmp_path / "m.json", additions)


class TestSmartNoise:
    def test_rows(self, tmp_path):
        data = smartnoise(tmp_path, BY_ROW, PUBLIC)
        assert (data.name, data.version, data.rows, data.person) == ("PUMS", "1", 1000, None)
        assert (data.relation, data.budget, data.policy) == (
            Neighbours.REPLACE_ONE,
            Budget(1, 1e-6),
            Policy.SHARE,
        )
        assert dict(data.source) == {"csv": "pums.csv"}
        assert data.columns == in_format_2(
            Column("age", Kind.INTEGER, 0, 100),
            Column("income", Kind.NUMBER, 0, 500_000, missing=7),
            Column("sex", Kind.CATEGORY, values=("f", "m")),
            Column("married", Kind.BOOLEAN, missing=True),
        )

    def test_the_number_of_rows_stays_private_by_default(self, tmp_path):
        data = smartnoise(tmp_path, BY_ROW)
        assert (data.relation, data.rows) == (Neighbours.ADD_REMOVE_ONE, None)

    def test_persons(self, tmp_path):
        data = smartnoise(tmp_path, BY_PERSON, replace(GIVEN, categories={}))
        assert (data.name, data.person, data.contribution) == ("Backlog-Orders", "CustomerID", 5)
        assert [column.name for column in data.columns] == ["Sale-Amount"]

    def test_an_older_file_without_a_schema(self, tmp_path):
        text = "Db:\n  T:\n    max_ids: 2\n    id: {private_id: true, type: int}\n    b: {type: boolean}\n"
        data = smartnoise(tmp_path, text, replace(GIVEN, categories={}))
        assert (data.name, data.person, data.contribution) == ("T", "id", 2)

    def test_several_tables(self, tmp_path):
        text = BY_ROW + "    More:\n      row_privacy: true\n      b: {type: boolean}\n"
        with pytest.raises(
            ParameterError, match=r"^metadata m\.yaml: table must be one of PUMS, More, got None"
        ):
            smartnoise(tmp_path, text)
        data = smartnoise(tmp_path, text, replace(GIVEN, table="More", categories={}))
        assert data.name == "More"

    @pytest.mark.parametrize(
        ("old", "new", "line"),
        [
            (
                "row_privacy: True",
                "",
                "private_id must be true for one column, or row_privacy be true; if each row is somebody "
                "else, say so with --unit row$",
            ),
            ("row_privacy: True", "row_privacy: maybe", "row_privacy must be true or false, got 'maybe'"),
            (
                "row_privacy: True",
                "row_privacy: True\n      max_ids: 3",
                "max_ids must be 1 where each row is somebody else, got 3",
            ),
            (
                "row_privacy: True",
                "row_privcay: True",
                "PUMS.row_privcay must be known to Reticent, it is not; row_privacy is$",
            ),
            (
                "rows: 1000",
                "",
                "rows must be in the file when one row is replaced, or choose 'add or remove one'",
            ),
            ("rows: 1000", "rows: many", "rows must be a whole number, got 'many'"),
            (", upper: 100,", ",", "columns.age.high must be in the file, or age be left out"),
            ("lower: 0, upper: 100,", "", "columns.age.low must be in the file, or age be left out"),
            ("upper: 100,", "upper: -1,", "columns.age.high must be > low = 0, got -1"),
            ("upper: 100,", "upper: x,", "age.upper must be a number, got 'x'"),
            (
                "type: boolean",
                "type: datetime",
                "columns.married must be left out: type datetime has no place",
            ),
            ("type: boolean", "type: boolean, mask: x", "married.mask must be known to Reticent, it is not$"),
            ("row_privacy: True", "row_privacy:", "row_privacy must be true or false, got ''"),
            (
                "row_privacy: True",
                "row_privacy: False",
                "private_id must be true for one column, or row_privacy be true$",
            ),
            (
                "type: int,",
                "type: int, private_id: True,",
                "private_id must not be true with row_privacy, got age",
            ),
            (
                "type: int,",
                "type: int, max_ids: 7,",
                "age.max_ids must stand in a table: what it says would be",
            ),
            (
                "rows: 1000",
                "private_id: age",
                "PUMS.private_id must stand in a column: what it says would be",
            ),
            ("type: int,", "", "PUMS.age.type must be given: every column has one"),
            (
                "  PUMS:\n    PUMS:",
                "  PUMS:\n    max_ids: 4\n    PUMS:",
                "PUMS.max_ids must stand in a table: ",
            ),
            ('"":', 'max_ids: 4\n"":', "max_ids must stand in a table: what it says would be lost here"),
            ('"":', 'MAX_IDS: 4\n"":', "MAX_IDS must be known to Reticent, it is not"),
            ("age:", "'\"sex\"':", "PUMS.sex must be described once"),
            ("sex: {", "gender: {", "column must be one of age, income, gender, married, got 'sex'"),
            (
                "sex: {",
                "name: {type: string}\n      sex: {",
                "columns.name.values must be given: the file lists no",
            ),
            (
                "missing_value: True",
                "missing_value: 3",
                "married.missing_value must be true or false, got '3'",
            ),
            ("PUMS:\n    PUMS:", "PUMS:\n    PUMS: [", "line "),
        ],
    )
    def test_a_gap_is_named(self, tmp_path, old, new, line):
        assert old in BY_ROW
        with pytest.raises((ParameterError, ParameterTypeError), match=f"^metadata m.yaml: {line}") as raised:
            smartnoise(tmp_path, BY_ROW.replace(old, new, 1), PUBLIC)
        assert "\n" not in str(raised.value)

    def test_columns_may_be_left_out(self, tmp_path):
        text = BY_ROW.replace("type: boolean, missing_value: True", "type: datetime")
        data = smartnoise(tmp_path, text, replace(GIVEN, leave_out=("married", "sex")))
        assert [column.name for column in data.columns] == ["age", "income"]

    @pytest.mark.parametrize("text", ["", "[]", "a: {b: {c: {d: {e: {type: int}}}}}"])
    def test_a_file_without_a_table(self, tmp_path, text):
        with pytest.raises(ParameterError, match="must describe a table with typed columns"):
            smartnoise(tmp_path, text)


PENGUINS = {
    "@context": ["http://www.w3.org/ns/csvw", "csvw-eo-context.jsonld"],
    "@type": "Table",
    "url": "penguins.csv",
    "maxContributions": 1,
    "maxLength": 500,
    "publicLength": 344,
    "tableSchema": {
        "columns": [
            {
                "name": "mass",
                "datatype": "double",
                "minimum": 2000,
                "maximum": 7000,
                "nullableProportion": 0.1,
            },
            {"name": "year", "datatype": {"base": "integer", "minimum": "2000", "maximum": "2030"}},
            {
                "name": "species",
                "datatype": "string",
                "keyValues": ["Adelie", "Gentoo"],
                "exhaustiveKeys": True,
            },
            {
                "name": "island",
                "datatype": "string",
                "partitions": [
                    {"@type": "Partition", "predicate": {"partitionValue": "Biscoe"}, "maxLength": 200},
                    {"@type": "Partition", "predicate": {"partitionValue": "Dream"}, "maxLength": 200},
                ],
            },
            {"name": "wild", "titles": {"en": ["Wild?"]}, "datatype": "boolean"},
            {"name": "level", "datatype": "integer", "keyValues": [3, 2, True]},
            {"name": "derived", "virtual": True},
        ]
    },
}
BARE = replace(GIVEN, categories={}, source={})
ROWS = replace(BARE, unit="row")


def edited(**changes):
    """The penguins with other terms, or without those that are None."""
    return {name: value for name, value in {**PENGUINS, **changes}.items() if value is not None}


def with_column(**column):
    return edited(tableSchema={"columns": [*PENGUINS["tableSchema"]["columns"], column]})


PRIVATE = {
    "url": "people.csv",
    "privacyUnit": "pid",
    "maxContributions": 50,
    "tableSchema": {
        "columns": [
            {"name": "pid", "titles": "Person", "datatype": "integer", "minimum": 1, "maximum": 9999},
            {"name": "age", "datatype": "integer", "minimum": 0, "maximum": 120},
        ]
    },
}
EO = "https://w3id.org/csvw-eo#"


def without(*names, **changes):
    """The private file with other terms."""
    return {name: value for name, value in PRIVATE.items() if name not in names} | changes


class TestUnits:
    """Whom a CSVW file protects: taken over, or refused."""

    @pytest.mark.parametrize(
        "given",
        [
            PRIVATE,
            {"tables": [PRIVATE]},
            {"tables": [without("tableSchema")], "tableSchema": PRIVATE["tableSchema"]},
            without("privacyUnit", **{f"{EO}privacyUnit": "Person"}),
            without("privacyUnit", **{"csvw-eo:public.privacyUnit": "pid"}),
            without("privacyUnit", **{"x:privacyUnit": "pid", "@context": {"x": EO}}),
            without("privacyUnit", who="pid", **{"@context": {"who": {"@id": "x:privacyUnit"}, "x": EO}}),
            without("privacyUnit", privacyUnit={"@value": "pid"}),
            without("url", **{"http://www.w3.org/ns/csvw#url": "people.csv", "dc:title": "People"}),
            without(**{"@context": {"type": "@type", "@vocab": EO}, "type": "Table"}),
        ],
        ids=range(10),
    )
    def test_persons_however_they_are_written(self, tmp_path, given):
        data = csvw(tmp_path, given, BARE)
        assert (data.person, data.contribution) == ("Person", 50)
        assert list(data.named) == ["age"]
        with pytest.raises(ParameterError, match="unit must be left out: the file protects persons"):
            csvw(tmp_path, given, ROWS)

    @pytest.mark.parametrize(
        ("given", "line"),
        [
            (
                without("privacyUnit"),
                "privacyUnit must name a column, or privacyId be true for one; if each row "
                "is somebody else, say so with --unit row$",
            ),
            (
                {"tables": [without("privacyUnit")], "privacyUnit": "pid"},
                "privacyUnit must stand on a table, not on a table group: what it says would be lost",
            ),
            (
                {"tables": [without("maxContributions", "privacyUnit")], f"{EO}maxContributions": 50},
                f"{EO}maxContributions must stand on a table, not on a table group",
            ),
            (
                without("privacyUnit", privacyUnti="pid"),
                "privacyUnti must be known to Reticent, it is not; privacyUnit is$",
            ),
            (without("privacyUnit", PrivacyUnit="pid"), "PrivacyUnit must be known to Reticent, it is not"),
            (without("privacyUnit", **{f"{EO}privacyunit": "pid"}), f"{EO}privacyunit must be known"),
            (
                without("privacyUnit", **{"ex:privacyUnit": "pid"}),
                "ex:privacyUnit must not be about privacy in a",
            ),
            (
                without("privacyUnit", **{"dc:privcyUnit": "pid"}),
                "dc:privcyUnit must not be about privacy in a",
            ),
            (
                without("privacyUnit", notes=[{"a": [{"privacyUnit": "pid"}]}]),
                r"notes\[0\].a\[0\].privacyUnit must not be about privacy",
            ),
            (
                without("privacyUnit", who="pid", **{"@context": {"who": "http://example.org/privacy-unit"}}),
                "who must not be about privacy",
            ),
            (
                without(**{"csvw-eo:privacyUnit": "age"}),
                "privacyUnit must be given once, it is given as csvw-eo:",
            ),
            (without("privacyUnit", privacyUnit="name"), "privacyUnit must name one column, got 'name'"),
            (without("privacyUnit", privacyUnit=["pid"]), r"privacyUnit must name one column, got \['pid'\]"),
            (without("privacyUnit", privacyUnit=""), "privacyUnit must name one column, got ''"),
            (
                without(**{"@context": {"privacyUnit": "http://example.org/x"}}),
                "@context.privacyUnit must not give privacyUnit another meaning",
            ),
            (without(**{"@context": {"privacyUnit": None}}), "@context.privacyUnit must be an IRI, got None"),
            (without(**{"@context": {"csvw-eo": "http://example.org/"}}), "@context.csvw-eo must not give"),
            (
                without(**{"@context": "http://example.org/c.jsonld"}),
                "@context must be that of CSV on the Web",
            ),
            (
                without(**{"@context": {"@vocab": "http://example.org/"}}),
                "@context.@vocab must be that of CSV",
            ),
            (without(**{"@context": {"a": "b", "b": "a"}}), "@context.[ab] must not stand for itself"),
            (without(**{"@context": {"a": "privacyUnit"}}), "@context.a must be an IRI, got 'privacyUnit'"),
            (without(**{"@context": {"@import": "x"}}), "@context.@import must be known to Reticent"),
            (
                without(**{"@context": {"a": {"@id": EO, "@context": {}}}}),
                "@context.a must be an IRI, or an object",
            ),
            (without(**{"@context": [{"a": EO}, {"a": "http://x/"}]}), "@context.a must be given once"),
            (without(**{"@graph": []}), "@graph must be known to Reticent"),
            ({"tables": [PRIVATE, PRIVATE]}, "tables must have different urls"),
        ],
        ids=range(26),
    )
    def test_what_would_be_lost_is_refused(self, tmp_path, given, line):
        for additions in (BARE, ROWS) if "--unit" not in line else (BARE,):
            with pytest.raises((ParameterError, ParameterTypeError), match=f"^metadata m.json: {line}"):
                csvw(tmp_path, given, additions)

    def test_columns_are_told_apart(self, tmp_path):
        columns = PRIVATE["tableSchema"]["columns"]
        twice = {"columns": [{**columns[0], "privacyId": True}, *columns]}
        with pytest.raises(ParameterError, match=r"tableSchema.columns\[1\] must have a name of its own"):
            csvw(tmp_path, without("privacyUnit", tableSchema=twice), ROWS)
        virtual = {"columns": [{**columns[0], "virtual": True}, columns[1]]}
        with pytest.raises(
            ParameterError, match=r"Person\.virtual must not be true for the column of privacyUnit"
        ):
            csvw(tmp_path, without(tableSchema=virtual), BARE)

    def test_rows_are_said_and_nobody_has_several(self, tmp_path):
        given = without("privacyUnit", "maxContributions")
        assert csvw(tmp_path, given, ROWS).person is None
        several = {"partitions": [{"predicate": {"lowerBound": 0, "upperBound": 9}, "maxContributions": 3}]}
        age = PRIVATE["tableSchema"]["columns"][1]
        given |= {"tableSchema": {"columns": [age | several]}}
        with pytest.raises(
            ParameterError,
            match=r"tableSchema.columns\[0\].partitions\[0\].maxContributions must be 1 where each row",
        ):
            csvw(tmp_path, given, ROWS)
        with pytest.raises(ParameterError, match="unit must be row, or left out, got 'person'"):
            csvw(tmp_path, without("privacyUnit", "maxContributions"), replace(BARE, unit="person"))


LOMAS = """
max_ids: 7
rows: 344
row_privacy: false
censor_dims: False
columns:
  species: {type: string, nullable_proportion: 0.0, cardinality: 2, categories: [Adelie, Gentoo]}
  mass: {type: float, precision: 64, lower: 2000, upper: 7000, int_with_nulls: true}
  year: {type: int, precision: 32, cardinality: 2, categories: [2008, 2009]}
  seen: {type: datetime, lower: 2020-01-01, upper: 2021-01-01}
  tag: {type: int, private_id: true, max_influenced_partitions: 3}
"""


class TestLomas:
    def test_persons(self, tmp_path):
        data = smartnoise(tmp_path, LOMAS, replace(BARE, leave_out=("seen",)))
        assert (data.name, data.person, data.contribution) == ("m", "tag", 7)
        assert data.columns == in_format_2(
            Column("species", Kind.CATEGORY, values=("Adelie", "Gentoo")),
            Column("mass", Kind.NUMBER, 2000, 7000),
            Column("year", Kind.CATEGORY, values=("2008", "2009")),
        )

    def test_rows(self, tmp_path):
        text = LOMAS.replace("max_ids: 7", "max_ids: 1").replace("row_privacy: false", "row_privacy: true")
        text = "\n".join(line for line in text.splitlines() if "tag" not in line)
        data = smartnoise(tmp_path, text, replace(BARE, leave_out=("seen",), relation=Neighbours.REPLACE_ONE))
        assert (data.person, data.rows) == (None, 344)

    @pytest.mark.parametrize(
        ("old", "new", "line"),
        [
            (
                "row_privacy: false",
                "row_privacy: true",
                "private_id must not be true with row_privacy, got tag",
            ),
            ("private_id: true, ", "", "private_id must be true for one column, or row_privacy be true$"),
            ("max_ids: 7", "max_id: 7", "m.max_id must be known to Reticent, it is not; max_ids is"),
            ("max_ids: 7", "private_id: tag", "m.private_id must stand in a column"),
            (
                "type: int, private_id",
                "max_ids: 7, type: int, private_id",
                "tag.max_ids must stand in a table",
            ),
            (
                "categories: [Adelie, Gentoo]",
                "categories: Adelie",
                "species.categories must be a list, got 'Adel",
            ),
            (
                "columns:",
                "datasets: [a]\nmore:",
                "datasets must not be listed: this is the collection of a Lomas",
            ),
            (
                "row_privacy: false\n",
                "row_privacy: false\n<<: {max_ids: 3}\n",
                "m.<< must be known to Reticent",
            ),
        ],
    )
    def test_what_would_be_lost_is_refused(self, tmp_path, old, new, line):
        assert old in LOMAS
        with pytest.raises((ParameterError, ParameterTypeError), match=f"^metadata m.yaml: {line}"):
            smartnoise(tmp_path, LOMAS.replace(old, new, 1), replace(BARE, leave_out=("seen",)))

    def test_several_parts_of_one_person_are_no_rows(self, tmp_path):
        text = "columns:\n  a: {type: boolean, max_influenced_partitions: 3}\n"
        with pytest.raises(ParameterError, match=r"a\.max_influenced_partitions must be 1 where each row is"):
            smartnoise(tmp_path, text, ROWS)
        data = smartnoise(tmp_path, text.replace("3", "1"), ROWS)
        assert data.person is None


def test_tables_of_one_name_are_refused(tmp_path):
    text = "a: {T: {row_privacy: true, b: {type: boolean}}}\nc: {T: {id: {type: int, private_id: true}}}\n"
    with pytest.raises(ParameterError, match=r"tables must have different names, got a\.T, c\.T"):
        smartnoise(tmp_path, text)


class TestCsvw:
    def test_rows(self, tmp_path):
        data = csvw(tmp_path, PENGUINS, replace(ROWS, relation=Neighbours.REPLACE_ONE))
        assert (data.name, data.rows, data.person) == ("penguins", 344, None)
        assert dict(data.source) == {"csv": "penguins.csv"}
        assert data.columns == in_format_2(
            Column("mass", Kind.NUMBER, 2000, 7000),
            Column("year", Kind.INTEGER, 2000, 2030),
            Column("species", Kind.CATEGORY, values=("Adelie", "Gentoo")),
            Column("island", Kind.CATEGORY, values=("Biscoe", "Dream")),
            Column("Wild?", Kind.BOOLEAN),
            Column("level", Kind.CATEGORY, values=("3", "2", "true")),
        )

    def test_another_source_may_be_given(self, tmp_path):
        data = csvw(tmp_path, PENGUINS, replace(ROWS, source={"parquet": "p.parquet"}))
        assert dict(data.source) == {"parquet": "p.parquet"}

    @pytest.mark.parametrize("prefix", ["", "csvw-eo:", "csvw-safe:"])
    def test_persons(self, tmp_path, prefix):
        given = with_column(name="tag", datatype="string", **{f"{prefix}privacyId": True})
        given |= {f"{prefix}privacyUnit": "tag"}
        given.pop("maxContributions")
        given[f"{prefix}maxContributions"] = 4
        data = csvw(tmp_path, given, BARE)
        assert (data.person, data.contribution, data.rows) == ("tag", 4, None)
        assert "tag" not in data.named

    def test_the_privacy_id_alone_names_the_person(self, tmp_path):
        data = csvw(tmp_path, with_column(name="tag", datatype="string", privacyId=True), BARE)
        assert (data.person, data.contribution) == ("tag", 1)

    def test_plain_csv_on_the_web(self, tmp_path):
        """Without CSVW-EO terms: bounds of datatypes only, and single rows are protected."""
        column = {"titles": "Age", "datatype": {"base": "xsd:int", "minInclusive": 0, "maxInclusive": 120}}
        given = {"tables": [{"url": "a/people.csv", "tableSchema": {"columns": [column]}}]}
        data = csvw(tmp_path, given, ROWS)
        assert data.columns == in_format_2(Column("Age", Kind.INTEGER, 0, 120))
        assert data.format == 2
        assert (data.name, data.person) == ("people", None)

    @pytest.mark.parametrize(
        ("given", "line"),
        [
            (edited(publicLength=None), "rows must be in the file when one row is replaced"),
            (edited(publicLength=-3), "publicLength must be a whole number, got -3"),
            (edited(maxContributions=2), "maxContributions must be 1 where each row is somebody else, got 2"),
            (
                edited(maxContributions=None, privacyUnit="mass"),
                "maxContributions must be given for a privacyUnit",
            ),
            (edited(tableSchema=None), "tableSchema.columns must be a list of columns"),
            (edited(tableSchema={"columns": [5]}), "tableSchema.columns must be a list of objects"),
            (with_column(datatype="string"), r"tableSchema.columns\[7\].name must be a text"),
            (
                with_column(name="day", datatype="date"),
                "columns.day must be left out: type date has no place",
            ),
            (
                with_column(name="word"),
                "columns.word.values must be given: the file lists no categories of it",
            ),
            (
                with_column(name="x", datatype="double", maximum=3),
                "columns.x.low must be in the file, or x be left",
            ),
            (with_column(name="x", datatype="double", minimum="y"), "x.minimum must be a number, got 'y'"),
            (with_column(name="x", privacyId="maybe"), "x.privacyId must be true or false, got 'maybe'"),
            (
                edited(privacyUnit="mass")
                | {"tableSchema": with_column(name="x", privacyId=True)["tableSchema"]},
                "privacyId must be true for the column of privacyUnit alone",
            ),
            ([], "the file must hold an object, got list"),
            ({"tables": 5}, "tables must be a list of objects"),
            ({"tables": []}, "the file must describe a table with typed columns"),
            ('{"a": 1, "a": 2}', "the file must name every field once"),
            ("{", "line 1: "),
            ("[" * 100_000, "the file must be JSON that is not nested so deeply"),
        ],
        ids=range(19),
    )
    def test_a_gap_is_named(self, tmp_path, given, line):
        additions = BARE if "privacyUnit" in given else ROWS
        with pytest.raises((ParameterError, ParameterTypeError), match=f"^metadata m.json: {line}") as raised:
            csvw(tmp_path, given, replace(additions, relation=Neighbours.REPLACE_ONE))
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"\xff", "must be text in UTF-8"), (b" " * ((1 << 20) + 1), "must be at most 1,048,576")],
)
def test_a_file_of_another_kind(tmp_path, content, line):
    (tmp_path / "m").write_bytes(content)
    for read in (read_yaml, read_csvw):
        with pytest.raises(ParameterError, match=f"^metadata m: the file {line}"):
            read(tmp_path / "m", GIVEN)
