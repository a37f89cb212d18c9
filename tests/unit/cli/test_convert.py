"""`reticent convert` against the golden numbers, and its refusals."""

import pytest


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--epsilon", "1", "--delta", "1e-5"], ["0.26805112321", "71,851,404,654"]),
        (["--epsilon", "8", "--delta", "1e-4"], ["1.8413662729"]),
        (["--epsilon", "1"], ["1.232035", "0.5"]),
        (["--mu", "1"], ["4.37717809568", "4.88655411746", "1,000,000,000,000"]),
        (["--mu", "0.5", "--delta", "1e-5"], ["1.99309140442"]),
        (["--mu", "1", "--epsilon", "4.377178095681225"], ["delta at epsilon 4.37718"]),
        (["--rho", "0.5"], ["epsilon at delta 1e-06", "refused"]),
    ],
)
def test_golden_numbers(command, args, parts):
    code, out, err = command("convert", *args)
    assert (code, err) == (0, "")
    for part in parts:
        # The last digit is rounded to the safe side, so it may be one more than printed in the table.
        more = part[:-1] + str(int(part[-1]) + 1) if part[-1].isdigit() else part
        assert part in out or more in out


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ([], "give --epsilon"),
        (["--delta", "1e-5"], "give --epsilon"),
        (["--mu", "1", "--rho", "1"], "give --epsilon"),
        (["--epsilon", "-1"], "epsilon must be"),
        (["--epsilon", "nan"], "epsilon must be finite"),
        (["--epsilon", "1e309"], "epsilon must be finite"),
        (["--epsilon", "1", "--delta", "2"], "delta must be"),
        (["--epsilon", "0", "--delta", "1e-5"], "epsilon must be"),
        (["--mu", "-1"], "mu must be"),
        (["--rho", "-1"], "rho must be"),
    ],
)
def test_refusals_are_one_line(command, is_one_error_line, args, part):
    code, out, err = command("convert", *args)
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert part in err
