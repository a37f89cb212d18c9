"""`reticent ask`, `price` and `answers` of a data set that a service has."""

import json

QUESTION = "SELECT COUNT(*) FROM census WHERE sex = 'male'"


def test_a_service_is_asked_like_a_file(listening, keys, command_line, tmp_path):
    _, url = listening()
    key = tmp_path / "alice.key"
    key.write_text(keys["alice"] + "\n")
    at = (f"{url}/census", "--key", str(key))
    nothing = command_line("answers", *at)
    assert (nothing.returncode, nothing.stdout) == (0, "census: nothing was bought yet\n")
    price = command_line("price", at[0], QUESTION, *at[1:], "--error", "40", "--format", "json")
    assert json.loads(price.stdout)["case"] == "1"
    bought = command_line("ask", at[0], QUESTION, *at[1:], "--error", "40")
    assert "case          │ 1:" in bought.stdout
    assert bought.returncode == 0
    again = command_line("ask", at[0], QUESTION, *at[1:], "--error", "40", "--format", "json")
    assert json.loads(again.stdout)["cost"] == "0"
    told = command_line("answers", *at).stdout
    assert told.startswith("number of rows where sex = 'male'\n")


def test_what_is_wrong_is_one_line(listening, keys, command_line, folder):
    _, url = listening()
    for args, line in (
        (("ask", f"{url}/census", QUESTION), "--key must be the API key of a service"),
        (("ask", f"{url}/census", QUESTION, "--key", "rk_" + "x" * 43, "--error", "9"), "key"),
        (("ask", f"{url}/census", QUESTION, "--ledger", "x"), "--ledger, --chain, --rpc"),
        (("ask", "http://198.51.100.1:9/census", QUESTION, "--key", keys["alice"]), "https://"),
        (("ask", str(folder / "census.yaml"), QUESTION, "--insecure"), "--insecure is for"),
    ):
        done = command_line(*args)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        assert line in done.stderr
        assert keys["alice"] not in done.stderr


def test_the_ledger_of_a_folder_or_a_declaration_is_found(folder, command_line):
    missing = command_line("ledger", "verify", str(folder))
    assert (missing.returncode, "have no ledgers" in missing.stderr) == (2, True)
    command_line("ask", str(folder / "census.yaml"), QUESTION, "--error", "40")
    for place in (folder, folder / "census.yaml"):
        done = command_line("ledger", "verify", str(place))
        assert (done.returncode, "verified" in done.stdout) == (0, True), done.stderr
