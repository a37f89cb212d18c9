"""The owner's file: what it says, round trips, one-line refusals, and templates that know no rows."""

import dataclasses
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.errors import ParameterError, ParameterTypeError, SeveralErrors
from reticent.privacy import Budget, Neighbours
from reticent.query.declarations import dataset_file
from reticent.query.declarations.datasets import DataSet, Policy
from reticent.query.rows.columns import Column, Kind

UNHURRIED = settings(deadline=None, max_examples=30)
EXAMPLE = textwrap.dedent(dataset_file.__doc__.split("\n\n")[1])


def test_the_example_of_the_module():
    data = dataset_file.parse(EXAMPLE)
    assert (data.name, data.version, data.rows, data.person) == ("census", "1", 5000, None)
    assert (data.relation, data.policy) == (Neighbours.REPLACE_ONE, Policy.SHARE)
    assert data.budget == Budget(8, 1e-4)
    assert dict(data.source) == {"csv": "census.csv"}
    income, age, race, citizen = data.columns
    assert data.format == 2
    assert income == Column("income", Kind.NUMBER, -10_000, 1_000_000, 1, missing=0, format=2)
    assert age == Column("age", Kind.INTEGER, 0, 120, format=2)
    assert race == Column(
        "race", Kind.CATEGORY, values=("white", "black", "other"), missing="other", format=2
    )
    assert citizen == Column("citizen", Kind.BOOLEAN, format=2)


def changed(old, new):
    assert old in EXAMPLE
    return EXAMPLE.replace(old, new)


def test_persons():
    text = changed("unit: row", "unit: {person: who, rows: 3}").replace("rows: 5000", "")
    data = dataset_file.parse(text)
    assert (data.person, data.contribution, data.rows) == ("who", 3, None)


def test_scalars_are_what_was_typed():
    text = changed("version: 1", "version: 1.10").replace(
        "[white, black, other]", "[yes, no, 1.10, 2026-01-02, ~]"
    )
    data = dataset_file.parse(text.replace("missing: other", "missing: no"))
    assert data.version == "1.10"
    assert data.column("race").values == ("yes", "no", "1.10", "2026-01-02", "~", "other")
    assert data.column("race").missing == "no"


@pytest.mark.parametrize(("word", "truth"), [("true", True), ("Yes", True), ("false", False), ("no", False)])
def test_a_missing_truth_value(word, truth):
    text = changed("{type: boolean}", f"{{type: boolean, missing: {word}}}")
    assert dataset_file.parse(text).column("citizen").missing is truth


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("a.parquet", {"parquet": "a.parquet"}),
        ("data/a.CSV", {"csv": "data/a.CSV"}),
        ("{csv: a.txt, delimiter: ;}", {"csv": "a.txt", "delimiter": ";"}),
        ("{duckdb: a.db, table: t, schema: s}", {"duckdb": "a.db", "table": "t", "schema": "s"}),
        ('{url: "postgresql://h/d", table: t}', {"url": "postgresql://h/d", "table": "t"}),
        ("", {}),
    ],
)
def test_sources(source, found):
    data = dataset_file.parse(changed("source: census.csv ", f"source: {source} "))
    assert dict(data.source) == found
    assert dict(dataset_file.parse(dataset_file.write(data)).source) == found


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("high: 120", "high: -3", "columns.age.high must be > low = 0, got -3"),
        (
            "high: 120",
            "high: ",
            "columns.age.high must be a number, got nothing: state it from public knowledge",
        ),
        ("high: 120", "high: x", "columns.age.high must be a number, got 'x'"),
        ("high: 120", "high: 1_000", "columns.age.high must be a number, got '1_000'"),
        ("high: 120", "high: .inf", "columns.age.high must be a number, got '.inf'"),
        ("high: 120", "high: 1e999", "columns.age.high must be finite, got inf"),
        (
            "high: 120",
            "hihg: 120",
            "columns.age.'hihg' must be one of type, low, high, step, values, missing",
        ),
        (
            "type: integer",
            "type: int",
            "columns.age.type must be one of number, integer, category, boolean, got 'int'",
        ),
        (
            "type: integer, ",
            "",
            "columns.age.type must be filled in: one of number, integer, category, boolean",
        ),
        ("{type: boolean}", "boolean", "columns.citizen must be made of named fields, got 'boolean'"),
        ("{type: boolean}", "", "columns.citizen must be made of named fields, got ''"),
        ("[white, black, other]", "white", "columns.race.values must be a list like .*, got 'white'"),
        ("[white, black, other]", "[a, [b]]", "columns.race.values must be a list like .*, got"),
        ("[white, black, other]", "", "columns.race.values must be 2 to 10000 categories, got 0"),
        (
            "{type: boolean}",
            "{type: boolean, missing: 7}",
            "columns.citizen.missing must be true or false, got '7'",
        ),
        ("unit: row", "unit: ", "unit must be filled in: row, or {person: COLUMN, rows: NUMBER}"),
        ("unit: row", "unit: person", "unit must be row or {person: COLUMN, rows: NUMBER}, got 'person'"),
        ("unit: row", "unit: {person: x}", "unit.rows must be filled in"),
        ("unit: row", "unit: {rows: 3}", "unit.person must be filled in"),
        ("unit: row", "unit: {person: x, rows: 3}", "rows must be left out for 'replace one' of a person"),
        (
            "relation: replace one",
            "relation: ",
            "relation must be filled in: one of 'replace one', 'add or remove",
        ),
        (
            "relation: replace one",
            "relation: none",
            "relation must be one of 'replace one', 'add or remove one', got",
        ),
        ("rows: 5000", "rows: ", "rows must be given when one row is replaced"),
        ("rows: 5000", "rows: -5", "rows must be a whole number, got '-5'"),
        ("rows: 5000", "rows: 0", "rows must be >= 1, got 0"),
        ("epsilon: 8", "epsilon: -1", r"budget.epsilon must be > 0, got -1.0"),
        ("epsilon: 8", "epsilon: ", "budget.epsilon must be filled in"),
        ("delta: 1e-4", "delta: 1", "budget.delta must be > 0 and < 1, got 1.0"),
        ("{epsilon: 8, delta: 1e-4}", "8", "budget must be made of named fields, got '8'"),
        ("{epsilon: 8, delta: 1e-4}", "", "budget must be filled in"),
        ("policy: share", "policy: give", "policy must be one of share, degrade, got 'give'"),
        ("name: census", "name: a b", "name must be 1 to 80 letters"),
        ("name: census", "name: ", "name must be filled in"),
        ("name: census", "name: [x]", r"name must be a text, got \['x'\]"),
        ("version: 1", "vresion: 1", "'vresion' must be one of name, version"),
        ("version: 1", "name: other", "line 2: 'name' is given twice"),
        ("version: 1", "<<: {version: 1}", "'<<' must be one of name, version"),
        ("version: 1", "? [x]\n: 1", "line 2: a name must be a text"),
        ("age: {", "income: {", "line 12: 'income' is given twice"),
        ("version: 1", "version: [", "line 4: "),
        ("census.csv ", "census.txt ", "source must end in .csv, .csv.gz, .parquet, .pq or be {duckdb: FILE"),
        (
            "census.csv ",
            "postgresql://me:SECRET@h/d ",
            "source must end in .csv, .csv.gz, .parquet, .pq or be .* got an address",
        ),
        (
            "census.csv ",
            "{csv: a.csv, parquet: b} ",
            "source must be exactly one of csv, .*, got csv, parquet",
        ),
        (
            "census.csv ",
            "{table: t} ",
            "source must be exactly one of csv, parquet, duckdb, url, spark, got none",
        ),
        ("census.csv ", "{csv: a.csv, table: t} ", "source.table must be left out for csv"),
        ("census.csv ", "{url: a} ", "source.table must be filled in for url"),
        ("census.csv ", "{csv: [a]} ", "source.csv must be a text"),
        *(
            (
                "census.csv ",
                f"{{url: '{scheme}://h/SECRET', table: t}} ",
                f"source.url must begin with postgresql://, got '{scheme}': of all engines, only DuckDB, "
                "PostgreSQL and Spark are known to fail on no cell$",
            )
            for scheme in (
                "spark",
                "pyspark",
                "mysql",
                "sqlite",
                "duckdb",
                "bigquery",
                "trino",
                "mongodb",
            )
        ),
        ("census.csv ", "{csv: a, delimiter: ab} ", "source.delimiter must be one ASCII character, got 'ab'"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, old, new, line):
    (tmp_path / "census.yaml").write_text(changed(old, new))
    with pytest.raises((ParameterError, ParameterTypeError), match=f"^dataset census.yaml: {line}") as raised:
        dataset_file.read(tmp_path / "census.yaml")
    assert "\n" not in str(raised.value)
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "the file must be a declaration: named fields"),
        (b"- 1", "the file must be a declaration: named fields"),
        (b"name: \xff", "must be text in UTF-8"),
        (b"name: \x00", "the file must be YAML in printable characters"),
        (b"[" * 1_000, "the file must not be nested so deeply"),
        (b"a: &a [*a]", "line 1: found unconstructable recursive node"),
        (b"#" * ((1 << 20) + 1), "the file must be at most 1,048,576 bytes"),
        (b"!!python/object/apply:os.system [x]", "the file must be a declaration: named fields"),
    ],
    ids=["empty", "list", "latin", "nul", "deep", "recursive", "huge", "tagged"],
)
def test_a_file_of_another_kind_is_one_line(tmp_path, content, line):
    (tmp_path / "d.yaml").write_bytes(content)
    with pytest.raises((ParameterError, ParameterTypeError), match=f"^dataset d.yaml: {line}"):
        dataset_file.read(tmp_path / "d.yaml")


def shared(columns, values):
    """A short declaration of many columns that share a list of categories."""
    fields = {"name": "d", "version": "1", "unit": "row", "relation": "add or remove one"}
    lines = [f"{name}: {value}" for name, value in fields.items()]
    lines += ["budget: {epsilon: 1, delta: 1e-6}", "columns:"]
    lines += [f"  c: &c {{type: category, values: [{', '.join(f'v{i}' for i in range(values))}]}}"]
    return "\n".join(lines + [f"  c{number}: *c" for number in range(columns)])


ROWS = "income,age\n31415,26\n"


@pytest.mark.parametrize("name", ["rows.csv", "rows.CSV", "rows.csv.gz", "rows.parquet", "rows.duckdb"])
def test_a_file_of_rows_leads_to_the_command_that_declares_it(tmp_path, name):
    (tmp_path / name).write_text(ROWS)
    with pytest.raises(ParameterError, match=f"`reticent dataset new {name}` writes one for it"):
        dataset_file.read(tmp_path / name)


@pytest.mark.parametrize("name", ["rows.csv", "rows.yaml", "rows"])
def test_no_row_is_in_the_error(tmp_path, name):
    (tmp_path / name).write_text(ROWS)
    with pytest.raises((ParameterError, ParameterTypeError)) as refused:
        dataset_file.read(tmp_path / name)
    assert "31415" not in str(refused.value)


def test_planted_an_error_that_quotes_the_file_is_caught(tmp_path, monkeypatch):
    def quoting(field, given, known, faults=None):
        raise ParameterTypeError(f"{field} must be made of named fields, got {given!r}")

    monkeypatch.setattr(dataset_file, "mapping", quoting)
    with pytest.raises(AssertionError):
        test_no_row_is_in_the_error(tmp_path, "rows.yaml")


def test_a_misspelt_field_is_recognised():
    with pytest.raises(SeveralErrors) as caught:
        dataset_file.parse("name: a\ncolumms: {}\n")
    assert caught.value.each[0].endswith(": did you mean columns?")


def test_aliases_do_not_make_millions_of_a_few_lines(monkeypatch):
    """Over the network, 32 kB kept a service busy for 16 s, and everybody who asked about it."""
    assert len(dataset_file.parse(shared(20, 100)).columns) == 21
    bomb = shared(900, 2500)
    assert len(bomb) < 1 << 15
    with pytest.raises(ParameterError, match=r"^line \d+: aliases must not repeat more than 50,000 names"):
        dataset_file.parse(bomb)
    monkeypatch.setattr(dataset_file, "_MOST_REPEATED", 10**9)  # planted
    assert len(dataset_file.parse(shared(90, 600)).columns) == 91


@UNHURRIED
@given(st.text(max_size=200) | st.binary(max_size=50).map(lambda some: some.decode("latin-1")))
def test_any_text_is_read_or_refused(text):
    with pytest.raises((ParameterError, ParameterTypeError)):
        dataset_file.parse(text)


PRINTABLE = st.characters(codec="utf-8", categories=("L", "M", "N", "P", "S"), include_characters=" ")
NAMES = st.text(PRINTABLE, min_size=1, max_size=20)
NUMBERS = st.builds(
    lambda name, low, width, step: Column(name, Kind.NUMBER, low, low + width, step),
    NAMES,
    st.floats(-1e6, 1e6),
    st.floats(1, 1e6),
    st.none() | st.floats(0.01, 0.1),
)
INTEGERS = st.builds(
    lambda name, low, width: Column(name, Kind.INTEGER, low, low + width),
    NAMES,
    st.integers(-1000, 1000),
    st.integers(1, 1000),
)
CATEGORIES = st.builds(
    lambda name, values: Column(name, Kind.CATEGORY, values=tuple(values), missing=values[0]),
    NAMES,
    st.lists(NAMES, min_size=2, max_size=5, unique=True),
)
BOOLEANS = st.builds(lambda name, missing: Column(name, Kind.BOOLEAN, missing=missing), NAMES, st.booleans())
COLUMNS = st.lists(
    NUMBERS | INTEGERS | CATEGORIES | BOOLEANS, min_size=1, max_size=6, unique_by=lambda c: c.name
)
BUDGETS = st.builds(Budget, st.floats(0.01, 20), st.floats(1e-12, 0.1))


@UNHURRIED
@given(COLUMNS, BUDGETS, st.none() | NAMES, st.sampled_from(Policy))
def test_what_is_written_is_read_back(columns, budget, person, policy):
    rest = {"rows": 7} if person is None else {"person": person, "contribution": 4}
    data = DataSet("d", "1.0", tuple(columns), budget, policy=policy, source={"csv": "a: b.csv"}, **rest)
    again = dataset_file.parse(dataset_file.write(data))
    assert again == data
    assert dict(again.source) == dict(data.source)


class TestTemplate:
    def test_csv_says_names_only(self, tmp_path):
        (tmp_path / "my census.csv").write_text("income,a: b,no\n5,SECRET,yes\n")
        text = dataset_file.template(tmp_path / "my census.csv")
        assert "SECRET" not in text
        given = dataset_file.load(text)
        assert (given["name"], given["version"], given["source"]) == ("my-census", "1", "my census.csv")
        blank = {"type": "", "low": "", "high": "", "values": "", "missing": ""}
        assert given["columns"] == {"income": blank, "a: b": blank, "no": blank}

    def test_the_rows_do_not_matter(self, tmp_path):
        texts = []
        for rows in ("", "1,2\n", "x,\xff\n" * 9):
            (tmp_path / "d.csv").write_bytes(b"a,b\n" + rows.encode("latin-1"))
            texts.append(dataset_file.template(tmp_path / "d.csv"))
        assert len(set(texts)) == 1

    def test_parquet_says_types_but_no_bounds(self, tmp_path):
        import pyarrow as pa
        import pyarrow.parquet

        held = {
            "whole": pa.array([7, 8], pa.int16()),
            "real": pa.array([7.5, 8.5], pa.float32()),
            "money": pa.array([7, 8], pa.decimal128(9, 2)),
            "word": pa.array(["SECRET", "x"]),
            "coded": pa.array(["SECRET", "x"]).dictionary_encode(),
            "truth": pa.array([True, False]),
            "day": pa.array([1, 2], pa.date32()),
        }
        pyarrow.parquet.write_table(pa.table(held), tmp_path / "d.parquet")
        text = dataset_file.template(tmp_path / "d.parquet")
        assert "SECRET" not in text
        columns = dataset_file.load(text)["columns"]
        kinds = {name: fields["type"] for name, fields in columns.items()}
        assert kinds == {
            **{"whole": "integer", "real": "number", "money": "number", "word": "category"},
            **{"coded": "category", "truth": "boolean", "day": ""},
        }
        assert columns["whole"] == {"type": "integer", "low": "", "high": "", "missing": ""}
        assert columns["word"] == {"type": "category", "values": "", "missing": ""}

    def test_a_template_is_refused_until_it_is_filled_in(self, tmp_path):
        (tmp_path / "d.csv").write_text("age\n5\n")
        text = dataset_file.template(tmp_path / "d.csv")
        fills = [
            ("unit must be filled in", "unit: ", "unit: row "),
            (r"columns\.age\.type must be filled in", "type: ", "type: integer "),
            (r"columns\.age\.low must be a number, got nothing", "low: ", "low: 0 "),
            (r"columns\.age\.high must be a number, got nothing", "high:", "high: 120"),
            (r"columns\.age\.missing must be filled in: what an empty", "missing: ", "missing: 40 "),
            (r"budget\.epsilon must be filled in", "epsilon: ", "epsilon: 1"),
            (r"budget\.delta must be filled in", "delta: ", "delta: 1e-6"),
            ("relation must be filled in", "relation: ", "relation: replace one "),
            ("rows must be given", "\nrows: ", "\nrows: 1 "),
        ]
        for line, blank, filled in fills:
            with pytest.raises(ParameterError, match=f"(^|; ){line}"):
                dataset_file.parse(text)
            assert blank in text
            text = text.replace(blank, filled, 1)
        age = dataset_file.parse(text).column("age")
        assert (age.last, age.missing, age.says_missing) == (120, 40, True)

    def test_refusals(self, tmp_path):
        (tmp_path / "d.txt").write_text("a\n")
        (tmp_path / "d.csv").write_text("")
        for name, line in [
            ("d.txt", r"source must end in \.csv, \.csv\.gz, \.parquet, \.pq, got 'd\.txt'"),
            ("no.csv", "source.csv must be a file, there is none at"),
            ("d.csv", r"source\.csv must start with a line of column names"),
        ]:
            with pytest.raises(ParameterError, match=f"^{line}"):
                dataset_file.template(tmp_path / name)


class TestAllAtOnce:
    def test_every_fault_is_told(self):
        text = """
name: my data
version: 1
source: census.txt
unit: {person: who, rows: many}
relation: replace
budget: {epsilon: x, delta: 1e-6}
colour: red
columns:
  age: {type: integer, low: 9, high: 3, missing: }
  sex: {type: category, values: f}
"""
        with pytest.raises(SeveralErrors) as caught:
            dataset_file.parse(text)
        fields = [line.partition(" must ")[0] for line in caught.value.each]
        assert fields == [
            *("'colour'", "name", "unit.rows", "relation", "budget.epsilon", "source"),
            *("columns.age.missing", "columns.age.high", "columns.sex.values"),
        ]

    def test_one_alone_is_told_as_it_is(self):
        with pytest.raises(ParameterError) as caught:
            dataset_file.parse(EXAMPLE.replace("unit: row", "unit: "))
        assert type(caught.value) is ParameterError

    def test_not_without_end(self):
        columns = "".join(f"  c{n}: {{type: x}}\n" for n in range(500))
        with pytest.raises(SeveralErrors) as caught:
            dataset_file.parse(f"name: a\ncolumns:\n{columns}")
        assert len(caught.value.each) == 21
        assert caught.value.each[-1] == "and 484 more like these"

    def test_numbers_of_rows_are_held_against_what_is_protected(self):
        with pytest.raises(
            SeveralErrors, match=r"rows must be left out .*; columns\.age\.high must be > low"
        ):
            dataset_file.parse(
                EXAMPLE.replace("unit: row", "unit: {person: who, rows: 3}").replace("high: 120", "high: -1")
            )


def test_what_is_missing_is_declared_or_said_to_be_the_middle():
    blank, left_out = (
        "age: {type: integer, low: 0, high: 120, missing: }",
        "age: {type: integer, low: 0, high: 120}",
    )
    assert left_out in EXAMPLE
    with pytest.raises(ParameterError, match=r"^columns\.age\.missing must be filled in"):
        dataset_file.parse(EXAMPLE.replace(left_out, blank))
    age = dataset_file.parse(EXAMPLE).column("age")
    assert (age.missing, age.says_missing) == (60, False)
    assert (
        "missing" not in dataset_file.load(dataset_file.write(dataset_file.parse(EXAMPLE)))["columns"]["age"]
    )


def test_equal_data_sets_may_lie_in_different_places():
    data = dataset_file.parse(EXAMPLE)
    assert dataclasses.replace(data, source={"csv": "other.csv"}) == data
