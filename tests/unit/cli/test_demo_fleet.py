"""`reticent demo fleet`: a small fleet, its table and its plot."""

import re

import pytest


@pytest.mark.parametrize("epsilon", ["0.5", "4"])
def test_a_small_fleet_reports(command, tmp_path, monkeypatch, epsilon):
    monkeypatch.setenv("COLUMNS", "100")
    plot = tmp_path / "new" / "fleet.png"
    code, out, err = command("demo", "fleet", "--devices", "3000", "--epsilon", epsilon, "--plot", str(plot))
    assert (code, err) == (0, "")
    assert f"3,000 vehicles report their speed once, each under epsilon = {epsilon} (local)." in out
    rows = re.findall(r"^│ (\S.*?) +│ +([\d.-]+) │ +[\d.-]+ \.\. [\d.-]+ │ +[+-][\d.]+ │", out, re.M)
    assert {"Duchi", "PM", "HM-TP", "OneBit (ours)"} <= {name for name, _ in rows}
    assert "Least worst-case variance: " in out
    assert out.endswith(f"Plot: {plot}\n") or f"Plot: {plot}" in out.replace("\n", "")
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["--devices", "10"], "devices must be >= 1000, got 10"),
        (["--epsilon", "0"], "epsilon must be"),
        (["--epsilon", "nan"], "epsilon must be finite"),
        (["--nope"], "--nope"),
    ],
)
def test_refusals_are_one_line(command, is_one_error_line, args, part):
    code, out, err = command("demo", "fleet", *args)
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert part in err
