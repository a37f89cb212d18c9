"""The experiments of chapter 6, quickly: they say what the theorems say; no record is wrong for certain."""

import pytest

from reticent.experiments import Options, find

NAMES = ["fig-6.1", "fig-6.2", "table-6.1", "clones", "batch-diversity"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("leakage")
    return {name: find(name).run(Options(out=out, quick=True)) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_files_and_captions(runs, name):
    outcome, files = runs[name]
    assert files.csv.is_file()
    assert files.png.stat().st_size > 10_000
    assert "Printed" in outcome.caption
    assert "Found" in outcome.caption


def test_no_record_is_wrong_and_small_batches_come_back(runs):
    for name in ("fig-6.1", "fig-6.2", "batch-diversity"):
        assert all(row["wrong"] == 0 for row in runs[name][0].rows)
    for row in runs["fig-6.1"][0].rows:
        assert row["found" if row["records"] < 9 else "family"] == row["tried"]


def test_the_table_is_singular_and_smaller_batches_are_not(runs):
    first, *others = runs["table-6.1"][0].rows
    assert (first["rank"], first["family"], first["family_with_biases"]) == (2, 12, 10)
    assert {row["family"] for row in others if row["records"] < row["classes"]} == {0}
    assert {row["family"] for row in others if row["records"] == row["classes"]} == {12}


def test_no_verdict_on_clones_is_wrong(runs):
    assert "branches say 0 times" in " ".join(runs["clones"][0].caption.split())


def test_likeness_hides_records_of_one_class_and_not_their_mean(runs):
    alike, apart = (row for row in runs["batch-diversity"][0].rows if row["labels"] == "one class")
    assert alike["error"] > 1.3 * apart["error"]
    assert alike["error_of_mean"] < 2.0 * apart["error_of_mean"]
