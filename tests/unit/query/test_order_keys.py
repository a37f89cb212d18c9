"""A lost order key is never replaced without a word: measurements with two keys would be combined."""

import contextlib
import json
import shutil

import pytest

import reticent
from reticent.apps.query import dataset_work
from reticent.apps.query.data_sets import DataSets
from reticent.errors import LedgerError
from reticent.ledger import SqlLedger
from reticent.query.declarations import dataset_file, order_keys
from reticent.query.declarations import home as homes
from reticent.service.settings import Settings

from ...support.crash_points import enumerate_crashes, preload_modules
from .homes import spend
from .population import declared, file_of_people

LOST = "has lost the key that orders each person's rows"


@pytest.fixture
def visits(tmp_path):
    return declare(tmp_path / "desk", "visits")


def declare(folder, name, *, people=""):
    """Write a declaration of format 2 whose rows have a person each."""
    path = declared(folder, name, people=people)
    path.write_text(path.read_text().replace("version: 1\n", "version: 1\nformat: 2\n"))
    return path


def edit(path, before, after):
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def measure(path, where="age >= 30"):
    with reticent.open(path) as session:
        return spend(session, 0.1, where).cost


def key_of(path):
    return homes.order_key(path, dataset_file.read(path))


def home_file(path):
    return homes.folder(path) / "home.json"


def lose_key(path, fields=("order_key", "lost_orders")):
    """Take the key out of home.json, as a release does that knows nothing of it."""
    told = json.loads(home_file(path).read_text())
    home_file(path).write_text(json.dumps({name: told[name] for name in told if name not in fields}))


def test_a_lost_key_is_refused(visits):
    measure(visits)
    whole, key = home_file(visits).read_text(), key_of(visits)
    lose_key(visits)
    for _ in range(2):
        with pytest.raises(LedgerError, match=rf"{LOST}, and visits was measured.*bring that file back"):
            measure(visits)
    assert "order_key" not in home_file(visits).read_text()
    home_file(visits).write_text(whole)
    assert measure(visits) == 0
    assert key_of(visits) == key


def test_control_another_key_is_made_where_the_ledger_is_not_asked(visits, monkeypatch):
    """Planted: what `home` did. The same question is answered from rows that other keys chose."""
    measure(visits)
    key = key_of(visits)
    lose_key(visits)
    monkeypatch.setattr(order_keys, "_measured_versions", lambda *_: set())
    assert measure(visits) == 0
    assert key_of(visits) != key


def test_a_new_version_has_a_new_key_for_ever(visits):
    measure(visits)
    first = visits.read_text()
    lose_key(visits)
    edit(visits, "version: 1", "version: 2")
    assert measure(visits) > 0
    key = key_of(visits)
    assert measure(visits) == 0
    assert key_of(visits) == key
    visits.write_text(first)
    with pytest.raises(LedgerError, match=r"version 1 was measured with another .* lost .*raise the"):
        measure(visits)
    lose_key(visits)
    edit(visits, "version: 1", "version: 2")
    with pytest.raises(LedgerError, match=LOST):
        measure(visits)
    edit(visits, "version: 2", "version: 3")
    assert measure(visits) > 0
    assert homes.of_rows(visits).lost_orders == "visits 1\nvisits 2\n"


def test_a_key_that_measured_nothing_may_be_made_anew(visits):
    with reticent.open(visits):
        pass
    lose_key(visits)
    assert measure(visits) > 0
    assert not homes.of_rows(visits).lost_orders


def test_measurements_without_a_key_do_not_count(visits):
    edit(visits, "format: 2\n", "")
    measure(visits)
    lose_key(visits)  # a file of an earlier release
    assert measure(visits) == 0
    edit(visits, "version: 1\n", "version: 1\nformat: 2\n")
    assert measure(visits) > 0
    assert not homes.of_rows(visits).lost_orders


def test_a_damaged_key_is_refused(visits):
    measure(visits)
    edit(home_file(visits), key_of(visits), "0" * 63)
    with pytest.raises(LedgerError, match="holds no order key of 64 digits: bring the file back"):
        measure(visits)


def test_other_declarations_of_the_rows_are_refused_too(visits):
    """They would make a key with which the first one's measurements were not made."""
    measure(visits)
    lose_key(visits)
    other = visits.with_name("others.yaml")
    other.write_text(visits.read_text().replace("name: visits", "name: others"))
    with pytest.raises(LedgerError, match=rf"{LOST}, and visits was measured.*in the declaration of visits"):
        measure(other)
    edit(visits, "version: 1", "version: 2")
    measure(visits)
    assert measure(other) > 0
    assert key_of(other) == key_of(visits)


def link_rows(path, first):
    """Let a declaration read the rows of another one, whose account it joins when it is opened next."""
    rows = path.with_suffix(".csv")
    rows.unlink()
    rows.with_name(f".{rows.name}.reticent").unlink()
    rows.symlink_to(first.with_suffix(".csv"))


@pytest.mark.parametrize("has_first_key", [True, False])
def test_a_declaration_that_joins_another_keeps_its_key(tmp_path, has_first_key):
    """It measured before it was known that its rows are the first one's."""
    first, second = (declare(tmp_path / place, place) for place in ("first", "second"))
    if not has_first_key:
        edit(first, "format: 2\n", "")
    measure(first)
    assert measure(second) > 0
    key = key_of(second)
    link_rows(second, first)
    assert measure(second) == 0
    assert homes.of_rows(second).folder == homes.folder(first)
    assert key_of(second) == key
    if has_first_key:
        assert key_of(first) != key
    else:
        edit(first, "version: 1\n", "version: 1\nformat: 2\n")
        assert measure(first) > 0
        assert key_of(first) == key


def test_a_declaration_that_joined_and_lost_its_key_is_refused(tmp_path):
    """It is not given the first one's key for what it measured with its own, before and since it joined."""
    first, second = (declare(tmp_path / place, place) for place in ("first", "second"))
    measure(first)
    measure(second)
    link_rows(second, first)
    assert measure(second) == 0
    edit(second, "version: 1", "version: 2")
    assert measure(second) > 0
    lose_key(second)
    for version in ("2", "1"):
        edit(second, "version: 2", f"version: {version}")
        with pytest.raises(LedgerError, match=rf"version {version} was measured with another order key"):
            measure(second)
    edit(second, "version: 1", "version: 3")
    assert measure(second) > 0
    assert key_of(second) == key_of(first)
    assert measure(first) == 0


@pytest.mark.parametrize("has_lost_key", [False, True])
def test_two_keys_of_one_name_are_not_combined(tmp_path, has_lost_key):
    """Two declarations of one name turn out to be of the same rows, and both have measured version 1."""
    first, second = (declare(tmp_path / place, "visits") for place in ("first", "second"))
    measure(first)
    measure(second)
    if has_lost_key:
        lose_key(first)
    link_rows(second, first)
    with pytest.raises(LedgerError, match="version 1 was measured with another order key"):
        measure(second)
    with pytest.raises(LedgerError, match=LOST if has_lost_key else "measured with another order key"):
        measure(first)
    edit(second, "version: 1", "version: 2")
    assert measure(second) > 0
    edit(first, "version: 1", "version: 2")
    with pytest.raises(LedgerError, match=LOST if has_lost_key else "measured with another order key"):
        measure(first)
    edit(first, "version: 2", "version: 3")
    assert measure(first) > 0
    edit(second, "version: 2", "version: 3")
    with pytest.raises(LedgerError, match="version 3 was measured by a declaration of the same rows"):
        measure(second)
    assert key_of(first) != key_of(second)


def test_control_two_keys_of_one_name_are_combined_where_nobody_keeps_them_apart(tmp_path, monkeypatch):
    """Planted: what joining did."""
    monkeypatch.setattr(order_keys, "keep_apart", lambda *_: None)
    monkeypatch.setattr(order_keys, "_reserve_version", lambda *_: None)
    first, second = (declare(tmp_path / place, "visits") for place in ("first", "second"))
    measure(first)
    measure(second)
    link_rows(second, first)
    assert measure(second) == measure(first) == 0
    assert key_of(first) != key_of(second)


def test_rows_of_the_same_people_are_told_apart(tmp_path):
    folder = tmp_path / "desk"
    file_of_people(folder)
    visits, drugs = (declare(folder, name, people="people: patients\n") for name in ("visits", "drugs"))
    measure(visits)
    with reticent.open(drugs):
        pass
    lose_key(drugs)
    assert measure(drugs) > 0, "only the rows of visits were measured"
    lose_key(drugs)
    with pytest.raises(LedgerError, match=rf"drugs.reticent.*{LOST}, and drugs was"):
        measure(drugs)
    assert measure(visits) == 0


def test_a_lost_key_is_refused_when_the_rows_join_people(tmp_path):
    """At the opening that joins them, too."""
    folder = tmp_path / "desk"
    visits = declare(folder, "visits")
    measure(visits)
    lose_key(visits)
    file_of_people(folder)
    edit(visits, "columns:", "people: patients\ncolumns:")
    with pytest.raises(LedgerError, match=rf"{LOST}, and visits was measured"):
        measure(visits)


def test_a_lost_key_is_refused_by_a_name_before_the_people(tmp_path):
    folder = tmp_path / "desk"
    visits = declare(folder, "visits")
    measure(visits)
    file_of_people(folder)
    edit(visits, "columns:", "people: patients\ncolumns:")
    edit(visits, "name: visits", "name: calls")
    with reticent.open(visits):
        pass
    lose_key(visits)
    with pytest.raises(LedgerError, match=rf"{LOST}, and visits was measured"):
        measure(visits)


def test_a_service_and_a_snapshot_refuse_too(visits):
    measure(visits)
    lose_key(visits)
    with pytest.raises(LedgerError, match=LOST):
        dataset_work.snapshot(visits)
    with (
        contextlib.closing(DataSets(Settings(visits.parent))) as data_sets,
        pytest.raises(LedgerError, match=LOST),
    ):
        data_sets.at_home("visits")
    assert not homes.of_rows(visits).order_key


def test_a_snapshot_makes_the_first_key(visits):
    dataset_work.snapshot(visits)
    key = key_of(visits)
    measure(visits)
    assert key_of(visits) == key


# Crashes


def texts_bought(path):
    ledger = homes.folder(path) / "ledger.sqlite"
    if not ledger.exists():
        return 0
    with SqlLedger(ledger) as opened:
        accounts = {one.terms.name for one in opened.accounts()}
        return len(opened.worded("visits").texts) if "visits" in accounts else 0


def keys_after_crashes(path):
    """Crash the first opening and measurement anywhere; yield the key that was left, and that of later."""
    empty = path.parent.with_name("empty")
    shutil.copytree(path.parent, empty)
    preload_modules(lambda: measure(path))
    restore(empty, path.parent)
    for point in enumerate_crashes(
        lambda: measure(path), calls={"posix.replace", "write", "SqlLedger.request"}
    ):
        bought, home = texts_bought(path), homes.of_rows(path)
        before = "" if home is None else home.order_key
        yield point, bought, before
        restore(empty, path.parent)


def restore(source, target):
    for place in target.iterdir():
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    shutil.copytree(source, target, dirs_exist_ok=True)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_crash_before_the_first_measurement_loses_no_key(visits):
    seen = set()
    for point, bought, key in keys_after_crashes(visits):
        assert key or not bought, point
        seen.add((bool(bought), bool(key)))
        measure(visits)
        assert not key or key_of(visits) == key, point
        with reticent.open(visits) as session:
            once = session.balance().spent
            assert spend(session, 0.1).cost == 0
            assert session.balance().spent == once == pytest.approx(0.1 * session.data.terms.cap, rel=1e-6)
    assert seen == {(False, False), (False, True), (True, True)}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_control_a_key_that_is_noted_after_the_measurement_is_lost(visits, monkeypatch):
    """Planted: the key is in memory alone until the session is closed."""
    kept = {}
    write = homes.write

    def write_later(home):
        if home.order_key:
            kept["home"] = home
        write(homes.replace(home, order_key=""))

    monkeypatch.setattr(homes, "write", write_later)
    monkeypatch.setattr(homes, "order_key", lambda path, data: kept["home"].order_key)
    assert any(bought and not key for _, bought, key in keys_after_crashes(visits))
