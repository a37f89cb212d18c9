"""Declarations of other tools: what they say is taken over, what they do not say is asked for by name."""

import json
from dataclasses import replace

import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.privacy import Budget, Neighbours
from reticent.query.columns import Column, Kind
from reticent.query.datasets import Policy
from reticent.query.foreign_metadata import Additions, read_csvw, read_smartnoise

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


def smartnoise(tmp_path, text, additions=GIVEN):
    (tmp_path / "m.yaml").write_text(text)
    return read_smartnoise(tmp_path / "m.yaml", additions)


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
        assert data.columns == (
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
                "private_id must be true for one column, or row_privacy be true, got 0",
            ),
            ("row_privacy: True", "row_privacy: maybe", "row_privacy must be true or false, got 'maybe'"),
            (
                "row_privacy: True",
                "row_privacy: True\n      max_ids: 3",
                "max_ids must be 1 with row_privacy, got 3",
            ),
            (
                "row_privacy: True",
                "row_privcay: True",
                "PUMS.row_privcay must be known to Reticent, it is not",
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
            ("type: boolean", "type: boolean, mask: x", "married.mask must be one of type, private_id"),
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

    @pytest.mark.parametrize("text", ["", "[]", "a: 1", "a: {b: {c: {d: {e: {type: int}}}}}"])
    def test_a_file_without_a_table(self, tmp_path, text):
        with pytest.raises(ParameterError, match="the file must describe a table with typed columns"):
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
            {"name": "level", "datatype": "integer", "keyValues": [1, 2, True]},
            {"name": "derived", "virtual": True},
        ]
    },
}
BARE = replace(GIVEN, categories={}, source={})


def edited(**changes):
    """The penguins with other terms, or without those that are None."""
    return {name: value for name, value in {**PENGUINS, **changes}.items() if value is not None}


def with_column(**column):
    return edited(tableSchema={"columns": [*PENGUINS["tableSchema"]["columns"], column]})


class TestCsvw:
    def test_rows(self, tmp_path):
        data = csvw(tmp_path, PENGUINS, replace(BARE, relation=Neighbours.REPLACE_ONE))
        assert (data.name, data.rows, data.person) == ("penguins", 344, None)
        assert dict(data.source) == {"csv": "penguins.csv"}
        assert data.columns == (
            Column("mass", Kind.NUMBER, 2000, 7000),
            Column("year", Kind.INTEGER, 2000, 2030),
            Column("species", Kind.CATEGORY, values=("Adelie", "Gentoo")),
            Column("island", Kind.CATEGORY, values=("Biscoe", "Dream")),
            Column("Wild?", Kind.BOOLEAN),
            Column("level", Kind.CATEGORY, values=("1", "2", "true")),
        )

    def test_another_source_may_be_given(self, tmp_path):
        data = csvw(tmp_path, PENGUINS, replace(BARE, source={"parquet": "p.parquet"}))
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
        data = csvw(tmp_path, given, BARE)
        assert data.columns == (Column("Age", Kind.INTEGER, 0, 120),)
        assert (data.name, data.person) == ("people", None)

    @pytest.mark.parametrize(
        ("given", "line"),
        [
            (edited(publicLength=None), "rows must be in the file when one row is replaced"),
            (edited(publicLength=-3), "publicLength must be a whole number, got -3"),
            (edited(maxContributions=2), "maxContributions must be 1 without a privacyUnit, got 2"),
            (
                edited(maxContributions=None, privacyUnit="mass"),
                "maxContributions must be given for a privacyUnit",
            ),
            (edited(tableSchema=None), "tableSchema.columns must be a list of columns"),
            (edited(tableSchema={"columns": [5]}), "tableSchema.columns must be a list of columns"),
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
        with pytest.raises((ParameterError, ParameterTypeError), match=f"^metadata m.json: {line}") as raised:
            csvw(tmp_path, given, replace(BARE, relation=Neighbours.REPLACE_ONE))
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"\xff", "must be text in UTF-8"), (b" " * ((1 << 20) + 1), "must be at most 1,048,576")],
)
def test_a_file_of_another_kind(tmp_path, content, line):
    (tmp_path / "m").write_bytes(content)
    for read in (read_smartnoise, read_csvw):
        with pytest.raises(ParameterError, match=f"^metadata m: the file {line}"):
            read(tmp_path / "m", GIVEN)
