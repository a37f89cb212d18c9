"""Two tables about the same people, for the tests of one account over both."""

import pytest

PEOPLE = "people: patients\nbudget: {epsilon: 2, delta: 1e-6}\nrelation: replace one\ndevices: 1\n"
DECLARATION = """\
name: %s
version: 1
source: %s.csv
unit: {person: id, rows: 2}
relation: replace one
budget: {epsilon: 2, delta: 1e-6}
%scolumns:
  age: {type: integer, low: 0, high: 1000}
"""


def declared(folder, name, *, people="people: patients\n"):
    """A table of 30 persons with two rows each, and its declaration."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.csv").write_text("id,age\n" + "".join(f"p{i // 2},{i}\n" for i in range(60)))
    path = folder / f"{name}.yaml"
    path.write_text(DECLARATION % (name, name, people))
    return path


def file_of_people(folder, text=PEOPLE):
    """The file that says who they are."""
    folder.mkdir(exist_ok=True)
    path = folder / "patients.people"
    path.write_text(text)
    return path


@pytest.fixture
def tables(tmp_path):
    """The declarations of two tables beside the file of their people."""
    place = tmp_path / "desk"
    file_of_people(place)
    return declared(place, "visits"), declared(place, "drugs")
