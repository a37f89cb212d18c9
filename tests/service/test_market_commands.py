"""`reticent market`: from a plan to a refund, against a service; what is wrong is one line."""

import json
import re
import time

import pytest

from reticent.fleet.enrolment import enrolled
from reticent.fleet.secret_file import kept_secret

OFFER = """
name: speeds
purpose: to plan roads
attributes:
  speed: {{low: 0, high: 130}}
  kind: {{values: [car, bus], fallback: car}}
deposit: 300
closes: {closes}
"""
LEVELS = """
levels:
  - {epsilon: 0.5, cents: 60}
  - {epsilon: 1, cents: 100}
"""


def offer_file(folder, levels=LEVELS):
    path = folder / "offer.yaml"
    closes = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 7200))
    path.write_text(OFFER.format(closes=closes) + levels)
    return path


def test_from_an_offer_to_a_refund(listening, keys, command_line, folder, tmp_path):
    _, url = listening()
    offer = offer_file(tmp_path)
    told = command_line("market", "offer", url, str(offer), "--key", keys["bert"])
    assert told.returncode == 0, told.stderr
    bill = told.stdout.split("is bill ")[1][:16]
    assert "waits for its deposit of 3.00" in told.stdout
    funded = command_line("market", "fund", url, bill, "--key", keys["olga"])
    assert "speeds is open: of 3.00, 0.00 are paid" in funded.stdout
    quoted = command_line("market", "quote", url, "--price", "50", "--budget", "1")
    assert "1.00 for epsilon 1 of 1: 0.50 more than it is worth to you" in quoted.stdout
    own = folder / ".service"
    signer = _signer(own)
    (tmp_path / "record.json").write_text(json.dumps({"speed": 88, "kind": "bus"}))
    for number in range(2):
        enrolment = tmp_path / f"{number}.json"
        enrolment.write_text(enrolled(kept_secret(own / "enrolment.key")).to_json())
        at = ("market", "sell", url, str(tmp_path / "record.json"), "--enrolment", str(enrolment))
        how = ("--ledger", str(tmp_path / f"{number}.ledger"), "--signer", signer, "--lifetime", "2")
        for outcome in ("paid", "duplicate"):
            sold = command_line(*at, *how, "--price", "50")
            assert sold.returncode == 0, sold.stderr
            assert f"speeds: epsilon 1, {outcome}, 1.00" in sold.stdout
        mine = command_line("market", "sales", url, "--enrolment", str(enrolment))
        assert "1.00 in all" in mine.stdout
    found = command_line(
        "market", "results", url, bill, "--key", keys["bert"], "--out", str(tmp_path / "got")
    )
    assert "2.00 are paid for 2 reports" in found.stdout
    shown = [
        [float(part) for part in line.replace("│", " ").split()[-3:]]
        for line in found.stdout.splitlines()
        if re.match(r"│ (speed|kind) ", line)
    ]
    assert shown  # of the attributes that the lots of two devices have drawn
    for estimate, low, high in shown:
        top = 130.0 if high > 1.0 else 1.0
        assert 0.0 <= low <= estimate <= high <= top, found.stdout
    assert sorted(one.name for one in (tmp_path / "got").iterdir()) == ["level-0.parquet", "level-1.parquet"]
    closed = command_line("market", "close", url, bill, "--key", keys["bert"])
    assert (
        "speeds is closed: of 3.00, 2.00 are paid for 2 reports, 0.00 are held, 1.00 went back"
        in closed.stdout
    )
    books = command_line("market", "verify", str(folder))
    assert books.returncode == 0, books.stderr
    assert "verified: 1 bills, 2 sales for 2.00, 1.00 back to buyers, 0 waiting" in books.stdout


def _signer(own):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(kept_secret(own / "survey.key"))
    return key.public_key().public_bytes_raw().hex()


def test_a_plan_says_what_a_deposit_buys(command_line, tmp_path):
    guess = ("--sellers", "1000", "--median", "50")
    given = command_line("market", "plan", str(offer_file(tmp_path)), *guess)
    assert given.returncode == 0, given.stderr
    assert "at 95 %" in given.stdout
    found = command_line("market", "plan", str(offer_file(tmp_path, "")), *guess, "--levels", "4")
    assert found.returncode == 0, found.stderr
    assert "- {epsilon: " in found.stdout


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("quote", "{url}", "--price", "nan"), "price must be a number of cents"),
        (("quote", "{url}", "--price", "-1"), "price must be a number of cents"),
        (("quote", "{url}", "--price", "1e309"), "price must be a number of cents"),
        (("quote", "{url}", "--price", "1e999999999"), "price must be a number of cents"),
        (("quote", "{url}", "--price", "1", "--budget", "nan"), "must be"),
        (("offer", "{url}", "{offer}"), "--key must be the API key"),
        (("close", "{url}", "nothing", "--key", "{bert}"), "bill must be 16 hexadecimal digits"),
        (("close", "{url}", "0" * 16, "--key", "{bert}"), "there is no such bill"),
        (("fund", "{url}", "0" * 16, "--key", "{bert}"), "the role buyer may not do this"),
        (("plan", "{offer}", "--sellers", "0", "--median", "5"), "sellers must be"),
        (("plan", "{offer}", "--sellers", "5", "--median", "nan"), "median must be"),
        (("verify", "{tmp}"), "folder must be that of a service with a market"),
    ],
)
def test_what_is_wrong_is_one_line(listening, keys, command_line, tmp_path, words, line):
    _, url = listening()
    named = {"url": url, "offer": str(offer_file(tmp_path)), "bert": keys["bert"], "tmp": str(tmp_path)}
    done = command_line("market", *(one.format(**named) for one in words))
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert line in done.stderr
