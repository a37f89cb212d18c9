"""The figures of personalised training in quick mode, and what their captions promise."""

import pytest

from reticent.experiments import find
from reticent.experiments.biswas_2023.chapter_5 import runs as personal_runs

from .test_registry import check_files


def test_the_people_of_the_fairness_experiment(quick):
    check_files("fig-5.8", *find("fig-5.8").run(quick))


def test_leakage_never_falls_and_is_far_above_the_claim(quick):
    outcome, files = find("fig-5.4").run(quick)
    check_files("fig-5.4", outcome, files)
    for way in (personal_runs.FIXED_SCALE, personal_runs.OURS):
        for cluster in (1, 2):
            mine = [row for row in outcome.rows if (row["way"], row["cluster"]) == (way.name, cluster)]
            for key in ("claimed", "charged", "epsilon"):
                assert [row[key] for row in mine] == sorted(row[key] for row in mine)
            if way is personal_runs.FIXED_SCALE:
                assert mine[-1]["charged"] > 50.0 * mine[-1]["claimed"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fig-5.3", "fig-5.9"])
def test_quick_run_of_the_longer_ones(name, quick):
    check_files(name, *find(name).run(quick))
