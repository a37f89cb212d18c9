"""`reticent crowd plan`: what a task will cost and risk."""


def test_a_plan(command):
    code, out, _ = command(
        "crowd", "plan", "--people", "20", "--rounds", "5", "--unit", "1000", "--gas-price", "2"
    )
    assert code == 0
    for words in ("captured 2.6e-05, stalled 0.093", "1,000,000", "of the coin", "of 60, in a dispute"):
        assert words in out


def test_bad_input_is_one_line(command):
    for given, said in (
        (("--people", "4", "--rounds", "5"), "people must be >= 2 f + 3 = 5, got 4"),
        (("--people", "9", "--rounds", "0"), "rounds must be >= 1, got 0"),
        (("--people", "9", "--rounds", "1", "--hostile", "2"), "hostile must be >= 0 and <= 1, got 2.0"),
        (("--people", "9", "--rounds", "1", "--unit", "-1"), "unit must be >= 0, got -1"),
        (("--people", "9", "--rounds", "1", "--miners", "0"), "miners must be >= 1, got 0"),
        (("--people", "9", "--rounds", "1", "--gas-price", "-1"), "gas_price must be >= 0, got -1.0"),
    ):
        code, out, err = command("crowd", "plan", *given)
        assert (code, out, err.strip()) == (2, "", f"error: {said}")
