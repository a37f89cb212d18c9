"""`reticent demo collect`: vehicles report over a real broker, and the truth stands beside the estimates."""

import re
import sys

import pytest

from reticent.collect.local_broker import NoBroker, find_broker, running


@pytest.mark.skipif(find_broker() is None, reason="there is no MQTT broker: `make test` installs it")
def test_vehicles_report(command):
    code, out, err = command("demo", "collect", "--devices", "30", "--once", "--port", "0")
    assert code == 0, err
    assert "30 vehicles report over MQTT" in out
    assert re.search(r"http://127\.0\.0\.1:\d+/surveys/traffic", out)
    assert "The truth in this period: mean speed" in out
    rows = re.findall(r"│ (speed|kind) +│ \w+ +│ +(\d+) │", out)
    assert sum(int(reports) for reports in dict(rows).values()) == 30


def test_what_cannot_be_is_named(command):
    for arguments, part in (
        (["--devices", "1"], "devices must be >= 10"),
        (["--broker", "nonsense"], "broker must read HOST:PORT"),
    ):
        code, _, err = command("demo", "collect", "--once", "--port", "0", *arguments)
        assert code == 2
        assert part in err


def test_a_broker_on_the_path_is_found_and_none_is_explained(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoBroker, match="name one with --broker, or install amqtt"), running():
        pass
    program = tmp_path / "amqtt"
    program.touch(mode=0o755)
    assert find_broker() == program
    monkeypatch.setenv("RETICENT_BROKER", str(tmp_path / "none"))
    assert find_broker() is None
