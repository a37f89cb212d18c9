"""What `reticent serve` says at its start: nothing that is not served is passed over in silence."""

from reticent.apps.service.work import what_is_served
from reticent.query import census


def test_an_empty_folder_says_how_to_begin(tmp_path):
    (line,) = what_is_served(tmp_path)
    assert "`reticent dataset new FILE` begins a declaration" in line


def test_what_is_served_and_what_is_not(tmp_path):
    path = census.write(tmp_path)
    gone = path.read_text().replace("name: census", "name: gone").replace("census.csv", "gone.csv")
    (tmp_path / "gone.yaml").write_text(gone)
    (tmp_path / "half.yaml").write_text("name: half\n")
    first, second, third = what_is_served(tmp_path)
    assert first == "  data sets: census"
    assert second.startswith("  gone.yaml is not served: source.csv must be a file, there is none at ")
    assert third.startswith(
        "  half.yaml is not served: version must be filled in; unit must be filled in: row"
    )


def test_on_a_chain_the_rows_are_elsewhere(tmp_path):
    census.write(tmp_path, rows=5)
    (tmp_path / "census.csv").unlink()
    assert "is not served" in what_is_served(tmp_path)[0]
    assert what_is_served(tmp_path, with_rows=False) == ["  data sets: census"]
