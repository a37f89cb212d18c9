"""`reticent dataset` as an owner meets it."""

import json

import pytest

from reticent.query.declarations import dataset_file

CENSUS = """\
name: census
version: 1
source: census.csv
unit: row
relation: replace one
rows: 3
budget: {epsilon: 1, delta: 1e-6}
columns:
  age: {type: integer, low: 0, high: 120}
  race: {type: category, values: [white, black, other]}
"""


@pytest.fixture
def census(tmp_path, monkeypatch):
    """A folder with rows and their declaration, as the working directory."""
    (tmp_path / "census.csv").write_text("age,race\n5,white\n7,black\nSECRET,SECRET\n")
    (tmp_path / "census.yaml").write_text(CENSUS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    return tmp_path


def refused(found, line):
    code, out, err = found
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {line}")
    assert err.count("\n") == 1
    return True


class TestNew:
    def test_a_template_beside_the_file(self, command, census):
        (census / "census.yaml").unlink()
        code, out, err = command("dataset", "new", "census.csv")
        assert (code, err) == (0, "")
        assert "census.yaml is written" in out
        text = (census / "census.yaml").read_text()
        assert "SECRET" not in text
        assert list(dataset_file.load(text)["columns"]) == ["age", "race"]
        code, out, err = command("dataset", "check", "census.yaml")
        assert (code, out) == (2, "")
        lines = err.splitlines()
        assert all(line.startswith("error: dataset census.yaml: ") for line in lines)
        assert [line.split(": ")[2].split(" must")[0] for line in lines] == [
            *("unit", "relation", "budget.epsilon", "budget.delta"),
            *("columns.age.type", "columns.age.missing", "columns.race.type", "columns.race.missing"),
        ]

    def test_elsewhere(self, command, census):
        (census / "there").mkdir()
        assert command("dataset", "new", "census.csv", "--out", "there/c.yaml")[0] == 0
        assert dataset_file.load((census / "there" / "c.yaml").read_text())["source"] == "../census.csv"

    def test_nothing_is_overwritten(self, command, census):
        assert refused(command("dataset", "new", "census.csv"), "census.yaml: File exists")
        assert (census / "census.yaml").read_text() == CENSUS

    def test_no_file(self, command, census):
        assert refused(
            command("dataset", "new", "no.csv"), "source.csv must be a file, there is none at no.csv"
        )


class TestCheck:
    def test_what_it_promises(self, command, census):
        code, out, err = command("dataset", "check", "census.yaml")
        assert (code, err) == (0, "")
        assert out.startswith("census, version 1\n- Protected: each single row.")
        assert "- age: 0 to 120 in whole numbers" in out
        assert out.endswith("- Source: as declared, every column is there.\n")
        assert "SECRET" not in out

    def test_without_a_source(self, command, census):
        (census / "census.yaml").write_text(CENSUS.replace("source: census.csv\n", ""))
        assert command("dataset", "check", "census.yaml")[1].endswith("- Source: none is named.\n")

    @pytest.mark.parametrize(
        ("old", "new", "line"),
        [
            ("high: 120", "high: -3", "dataset census.yaml: columns.age.high must be > low = 0, got -3"),
            ("age:", "years:", "columns.years: the source has no such column, it has age, race"),
            ("rows: 3", "rows: 4", "rows must be the public number of rows in the source, 3, got 4"),
            ("census.csv", "gone.csv", "source.csv must be a file, there is none at gone.csv"),
        ],
    )
    def test_what_does_not_hold(self, command, census, old, new, line):
        (census / "census.yaml").write_text(CENSUS.replace(old, new))
        code, _, err = command("dataset", "check", "census.yaml")
        assert code == 2
        assert err == f"error: {line}\n"

    def test_no_file(self, command, census):
        assert refused(command("dataset", "check", "no.yaml"), "no.yaml: No such file or directory")


class TestSnapshot:
    def test_it_fixes_the_version(self, command, census):
        code, out, err = command("dataset", "snapshot", "census.yaml")
        assert (code, err) == (0, "")
        path = census / "census.reticent" / "snapshot-1.duckdb"
        assert "census.reticent/snapshot-1.duckdb is written" in out
        assert path.is_file()
        assert path.parent.stat().st_mode & 0o077 == 0
        (census / "census.csv").unlink()
        assert command("dataset", "check", "census.yaml")[1].endswith(
            "the snapshot of this version, every column is there.\n"
        )
        line = "version must be raised in census.yaml: version 1 has its snapshot"
        assert refused(command("dataset", "snapshot", "census.yaml"), line)

    def test_a_new_version_has_its_own(self, command, census):
        assert command("dataset", "snapshot", "census.yaml")[0] == 0
        (census / "census.yaml").write_text(CENSUS.replace("version: 1", "version: 2"))
        assert command("dataset", "snapshot", "census.yaml")[0] == 0
        names = sorted(path.name for path in (census / "census.reticent").glob("snap*"))
        assert names == ["snapshot-1.duckdb", "snapshot-2.duckdb"]

    def test_changed_bounds_need_a_new_version(self, command, census):
        assert command("dataset", "snapshot", "census.yaml")[0] == 0
        (census / "census.yaml").write_text(CENSUS.replace("high: 120", "high: 100"))
        code, _, err = command("dataset", "check", "census.yaml")
        assert code == 2
        assert "snapshot-1.duckdb has another columns" in err


SMARTNOISE = """\
"":
  public:
    people:
      row_privacy: True
      rows: 3
      age: {type: int, lower: 0, upper: 120}
      race: {type: string}
      day: {type: datetime}
"""


class TestImport:
    def test_smartnoise(self, command, census):
        (census / "m.yaml").write_text(SMARTNOISE)
        options = [
            "--epsilon",
            "1",
            "--delta",
            "1e-6",
            "--values",
            "race=white,black,other",
            "--leave-out",
            "day",
        ]
        options += ["--source", "census.csv", "--public-rows", "--out", "people.yaml"]
        code, out, err = command("dataset", "import", "m.yaml", *options)
        assert (code, err) == (0, "")
        assert "people.yaml is written" in out
        data = dataset_file.read(census / "people.yaml")
        assert (data.name, data.rows, [column.name for column in data.columns]) == (
            "people",
            3,
            ["age", "race"],
        )
        assert command("dataset", "check", "people.yaml")[0] == 0

    def test_csv_on_the_web(self, command, census):
        column = {"name": "age", "datatype": {"base": "integer", "minimum": 0, "maximum": 120}}
        (census / "m.json").write_text(
            json.dumps({"url": "census.csv", "tableSchema": {"columns": [column]}})
        )
        options = ["dataset", "import", "m.json", "--epsilon", "1", "--delta", "1e-6"]
        assert refused(command(*options), "metadata m.json: privacyUnit must name a column, or privacyId be")
        line = "metadata m.json: unit must be row, or left out, got 'person'"
        assert refused(command(*options, "--unit", "person"), line)
        options += ["--unit", "row"]
        assert refused(command(*options), "census.yaml: File exists")
        (census / "census.yaml").unlink()
        assert command(*options)[0] == 0
        assert dataset_file.read(census / "census.yaml").column("age").last == 120

    def test_json_by_any_name(self, command, census):
        column = {"name": "wild", "datatype": "boolean"}
        for name in ("m.jsonld", "m.json-ld"):
            (census / name).write_text(json.dumps({"url": "m.csv", "tableSchema": {"columns": [column]}}))
            options = ["--epsilon", "1", "--delta", "1e-6", "--unit", "row", "--out", f"{name}.yaml"]
            assert command("dataset", "import", name, *options)[0] == 0
            assert dataset_file.read(census / f"{name}.yaml").person is None

    def test_lomas(self, command, census):
        (census / "penguins.yaml").write_text(
            "max_ids: 3\nrow_privacy: false\ncolumns:\n  tag: {type: int, private_id: true}\n"
            "  sex: {type: string, categories: [f, m]}\n"
        )
        options = ["--epsilon", "1", "--delta", "1e-6", "--source", "p.csv", "--out", "p.yaml"]
        assert command("dataset", "import", "penguins.yaml", *options)[0] == 0
        data = dataset_file.read(census / "p.yaml")
        assert (data.person, data.contribution) == ("tag", 3)
        assert refused(
            command("dataset", "import", "penguins.yaml", *options, "--unit", "row"),
            "metadata penguins.yaml: unit must be left out: the file protects persons, told apart by tag",
        )

    @pytest.mark.parametrize(
        ("options", "line"),
        [
            ([], "metadata m.yaml: columns.race.values must be given"),
            (["--values", "race"], "values must be COLUMN=A,B,C, got 'race'"),
            (["--values", "race=a,b"], "metadata m.yaml: columns.day must be left out"),
            (["--leave-out", "sex"], "metadata m.yaml: column must be one of age, race, day, got 'sex'"),
            (["--table", "x"], "metadata m.yaml: table must be one of people, got 'x'"),
            (["--source", "rows.txt"], "source must end in .csv, .csv.gz, .parquet, .pq"),
        ],
    )
    def test_a_gap_is_one_line(self, command, census, options, line):
        (census / "m.yaml").write_text(SMARTNOISE)
        assert refused(
            command("dataset", "import", "m.yaml", "--epsilon", "1", "--delta", "1e-6", *options), line
        )

    def test_the_budget_is_not_guessed(self, command, census):
        (census / "m.yaml").write_text(SMARTNOISE)
        assert refused(command("dataset", "import", "m.yaml", "--epsilon", "1"), "Missing option '--delta'")


def test_the_query_part_may_be_missing(command, census, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    found = command("dataset", "check", "census.yaml")
    assert refused(found, "this command needs an optional part: pip install 'reticent[query]'")
