"""The one ledger beside a file: whatever the file is called, its ledger is the first."""

from __future__ import annotations

import gzip
import os

import pytest

from reticent.apps.federated import work as federated
from reticent.errors import LedgerError
from reticent.query.declarations import claims
from reticent.query.declarations.claims import claim_ledger


def folder_beside(path):
    return path.with_name(f"{path.name}.reticent")


def claim(path):
    """Claim the ledger of a file and make its folder, as a command does."""
    folder = claim_ledger(path, folder_beside)
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def rows(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    file = folder / "rows.csv"
    file.write_text("speed\n50\n")
    return file


def link_softly(rows):
    other = rows.with_name("soft.csv")
    other.symlink_to(rows)
    return other


def link_from_elsewhere(rows):
    other = rows.parent.parent / "elsewhere.csv"
    other.symlink_to(rows)
    return other


def link_firmly(rows):
    other = rows.with_name("hard.csv")
    os.link(rows, other)
    return other


def rename(rows):
    return rows.rename(rows.with_name("renamed.csv"))


def compress(rows):
    other = rows.with_name(f"{rows.name}.gz")
    other.write_bytes(gzip.compress(rows.read_bytes()))
    return other


def link_folder(rows):
    other = rows.parent.parent / "other"
    other.symlink_to(rows.parent)
    return other / rows.name


def link_with_the_same_name(rows):
    other = rows.parent.parent / "links" / rows.name
    other.parent.mkdir()
    other.symlink_to(rows)
    return other


WAYS = [link_softly, link_from_elsewhere, link_firmly, rename, compress, link_folder, link_with_the_same_name]


@pytest.mark.parametrize("way", WAYS)
def test_another_name_leads_to_the_same_ledger(rows, way):
    first = claim(rows)
    assert first == rows.with_name("rows.csv.reticent")
    assert claim(way(rows)) == first


@pytest.mark.parametrize("way", WAYS)
def test_the_first_name_leads_to_the_ledger_of_another(rows, way):
    other = way(rows)
    first = claim(other)
    assert claim(other) == first
    if rows.exists():
        assert claim(rows) == first


@pytest.mark.parametrize(
    "way", [link_softly, link_from_elsewhere, link_firmly, link_folder, link_with_the_same_name]
)
def test_a_ledger_of_an_earlier_release_is_taken_over(rows, way):
    """Earlier releases put the ledger beside the name that was typed, and wrote no note."""
    other = way(rows)
    old = folder_beside(other)
    old.mkdir()
    assert claim(other) == old.resolve()
    assert claim(rows) == old.resolve()


def test_two_ledgers_of_an_earlier_release_are_refused(rows):
    other = link_firmly(rows)
    for path in (rows, other):
        folder_beside(path).mkdir()
    for path in (rows, other):
        with pytest.raises(LedgerError, match=r"several ledgers.*hard\.csv\.reticent.*rows\.csv\.reticent"):
            claim_ledger(path, folder_beside)


def test_a_file_that_is_moved_with_its_ledger_keeps_it(rows):
    claim(rows).rename(rows.with_name("renamed.csv.reticent"))
    assert claim(rename(rows)) == rows.with_name("renamed.csv.reticent")


def test_other_rows_have_another_ledger(rows):
    other = rows.with_name("other.csv")
    other.write_text("speed\n60\n")
    assert claim(rows) != claim(other)


@pytest.mark.parametrize("way", [link_softly, link_from_elsewhere, link_firmly])
def test_control_a_ledger_beside_the_name_that_was_typed_is_a_fresh_one(rows, way):
    """Planted: what `perturb` did."""
    other = way(rows)
    assert folder_beside(rows) != folder_beside(other)


def test_control_without_the_rule_of_hard_links_it_is_too(rows, monkeypatch):
    monkeypatch.setattr(claims, "_same_rows", lambda file, identity: ([file], {file.name}))
    monkeypatch.setattr(claims.files, "identity", lambda file: file.name)
    first = claim(rows)
    assert claim(link_firmly(rows)) != first


def test_control_a_ledger_known_by_its_bare_name_is_not_told_from_its_namesake(rows, monkeypatch):
    """Planted: a note that names the ledger without its folder, so that a namesake takes its place."""
    monkeypatch.setattr(claims, "_claimed", _claim_by_bare_name(claims._claimed))
    other = link_with_the_same_name(rows)
    folder_beside(other).mkdir()
    assert claim(other) == folder_beside(other)
    assert claim(rows) == folder_beside(rows)


def _claim_by_bare_name(claim_source):
    def claim_by_name(file, itself, table, identity, folder):
        return claim_source(file, itself, table, folder.name, folder)

    return claim_by_name


@pytest.mark.parametrize("way", [link_softly, link_firmly])
def test_a_training_has_one_ledger_under_every_name_of_its_task(rows, way, monkeypatch):
    """The ledger of `federated run` lies beside the task's file: a relative of `perturb`."""
    opened = []

    class Stop(Exception):
        """Raised once it is known which ledger would be opened."""

    def note(path, **options):
        opened.append(path)
        raise Stop

    monkeypatch.setattr(federated, "opened", note)
    task = rows.rename(rows.with_name("task.yaml"))
    for path in (task, way(task)):
        with pytest.raises(Stop), federated._paid(path, None, None):
            pass
    assert opened == [task.with_name("task.reticent") / "ledger.sqlite"] * 2
