"""The market's figures in quick mode: files, the documents' numbers, and what is said of them."""

import pytest

from reticent.experiments import find
from reticent.experiments.biswas_2023.chapter_8 import collecting
from reticent.randomness import SimulationStream

from .test_registry import check_files

FIGURES = ("7.1", "7.2", "7.3", "7.4", "7.5", "split", "8.1", "8.2", "8.3", "8.4.1", "table-8.1")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Every one of them run once: its rows, after a look at its files."""
    from reticent.experiments.base import Options

    found = {}

    def run(name):
        if name not in found:
            options = Options(tmp_path_factory.mktemp("market"), quick=True, workers=1)
            outcome, files = find(f"market-{name}").run(options)
            check_files(f"market-{name}", outcome, files)
            found[name] = outcome.rows
        return found[name]

    return run


@pytest.mark.parametrize("name", FIGURES)
def test_quick_run(name, rows):
    assert rows(name)


def test_7_1_the_printed_pay_makes_every_seller_ask_for_more(rows):
    for name, price, epsilon, printed in (("u1", 10.0, 0.7, 7.0), ("u2", 20.0, 0.4, 8.0)):
        mine = [row for row in rows("7.1") if row["seller"] == name]
        honest = next(row for row in mine if row["asked"] == price)
        assert (honest["epsilon"], honest["printed pay"]) == pytest.approx((epsilon, printed))
        assert max(mine, key=lambda row: row["gain"])["asked"] == price
        assert max(mine, key=lambda row: row["printed gain"])["asked"] > price


def test_7_3_no_lie_gains(rows):
    assert min(row["loss"] for row in rows("7.3")) >= 0.0


def test_8_2_rounding_up_is_quicker_and_the_print_is_slower(rows):
    found = {(row["setting"], row["members"], row["way"]): row for row in rows("8.2")}
    for size in collecting.SIZES:
        ours, alone = (
            found["kept, goal 4 a member", size, way]["rounds"] for way in ("ours", "not catalysed")
        )
        assert ours <= alone
        assert found["as printed", size, "printed"]["reached"] == 0.0


def test_8_3_a_higher_tolerance_has_fewer_free_riders(rows):
    for setting, size, way in {(row["setting"], row["members"], row["way"]) for row in rows("8.3")}:
        counts = [
            row["free riders"]
            for row in rows("8.3")
            if (row["setting"], row["members"], row["way"]) == (setting, size, way)
        ]
        assert counts == sorted(counts, reverse=True)


def beyond_thresholds(way, kept):
    """Federations in which a member gave more than her threshold in a year."""
    years = [
        collecting.collected(SimulationStream(3, path=(one,)), 20, way, kept=kept, goal=4.5, years=1)
        for one in range(40)
    ]
    return sum(float(year.saved.min()) < -1e-9 for year in years)


def test_kept_thresholds_are_kept():
    assert beyond_thresholds(collecting.rounded_up, kept=True) == 0


def test_planted_as_printed_they_are_not():
    assert beyond_thresholds(collecting.rounded_up, kept=False) > 20
