"""The observers' page of a crowd's task, on a real chain, in a real chromium and without."""

import contextlib
import os
import re
import signal
import subprocess
import sys

import httpx
import pytest

from reticent.apps.crowd.observing_work import Observed
from reticent.apps.crowd.page import create_app, watched
from reticent.errors import NodeUnavailable
from reticent.federated.crowd.crowd_file import CrowdFile
from reticent.service.serve import listen

from ..contracts.real_task import Real, really_play
from .looking import Seen, faults, visited
from .running import until


@pytest.fixture(scope="module")
def played(anvil, tmp_path_factory):
    one = really_play(anvil.url, tmp_path_factory.mktemp("store"))
    yield one
    one.close()


def looking(played):
    return Observed(played.contract, played.task, played.store).observer()


@contextlib.contextmanager
def served(played, look=None):
    title = f"{played.task.hex()} in {played.contract.address}"
    with listen("127.0.0.1", 0) as place, watched(look or looking(played), title, place) as url:
        yield url


def test_all_of_a_task_is_there(played):
    with served(played) as url:
        page = httpx.get(url, timeout=60)
    text = page.text
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    assert "2 of 2 results were made again" in text
    assert played.crowd_task.purpose in text
    assert "round 0: 5 accepted, 0 rejected, 1 low, 0 not counted, accuracy" in text
    assert "30 public rows" in text
    for person in played.customers:
        assert person.address in text
    assert text.count('<td class="bad">low</td>') == 2, "who was far out, in both rounds"
    assert "<td>not counted</td>" in text
    assert 'hx-get="/live' not in text, "it is over: nothing to fetch any more"


def test_a_running_task_grows(anvil, tmp_path):
    played = Real(anvil.url, tmp_path)
    not_kept = httpx.Limits(max_keepalive_connections=0)  # a round may take longer than a line is kept
    with (
        contextlib.closing(played),
        served(played) as url,
        httpx.Client(timeout=60, base_url=url, limits=not_kept) as client,
    ):
        assert "there is no task" in client.get("/").text
        played.begin()
        page = client.get("/live?seen=1")
        assert "collecting updates" in page.text
        assert "Nobody took a seat yet" in page.text
        seen = page.text.split("/live?seen=")[1].split('"')[0]
        assert client.get(f"/live?seen={seen}").status_code == 204, "nothing is new"
        played.collect()
        played.draw()
        assert "judging" in client.get(f"/live?seen={seen}").text


def test_a_contradiction_is_shown_and_nothing_else(anvil, tmp_path):
    played = Real(anvil.url, tmp_path)
    with contextlib.closing(played), served(played) as url:
        played.begin()
        played.collect()
        played.draw()
        cid, (counted, accepted, low, paid) = played.result()
        told = cid, (counted, accepted, low, paid & (paid - 1))
        played.result = lambda: told
        played.judge()
        text = httpx.get(url, timeout=60).text
    assert "contradicts itself" in text
    assert "round 0: the set of those paid" in text
    assert "<table>" not in text


def test_a_node_that_is_gone_leaves_what_was_found(played):
    look, said = looking(played), []
    look.now()

    def gone():
        said.append("asked")
        raise NodeUnavailable("the node at <b>x</b> does not answer")

    look._head = gone
    with served(played, look) as url:
        text = httpx.get(url, timeout=60).text
    assert "It cannot be looked at now: the node at &lt;b&gt;" in text
    assert "Below is what was found before" in text
    assert "2 of 2 results" in text


def test_other_paths_are_not_there(played):
    with served(played) as url:
        for path in ("/docs", "/openapi.json", "/api/v1/keys"):
            assert httpx.get(url + path, timeout=60).status_code == 404, path


def test_in_a_browser(browser, played):
    """The chart is drawn with axes and legend, nothing is said on the console, it can be read."""
    said, app = [], create_app(looking(played), "a task")
    seen = Seen(app)
    with visited(browser, app) as (page, url):
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        looked = seen.follow(page)
        page.goto(url)
        until(lambda: page.locator(".chart canvas").count() == 1)
        drawn = page.evaluate(
            "(() => { const o = echarts.getInstanceByDom(document.querySelector('.chart')).getOption();"
            "return [o.xAxis[0].name, o.yAxis.map((one) => one.name), o.series.length]; })()"
        )
        assert drawn == ["round", ["updates", "right answers"], 5]
        assert page.locator(".legend li").count() == 5
        assert faults(page) == []
        looked()
        assert said == []
    assert seen.missing() == {("GET", "/live")}, "a part that the page holds"


def test_the_command_serves_it_until_interrupted(anvil, played, tmp_path):
    chain = tmp_path / "crowd.json"
    CrowdFile(anvil.url, played.node.chain_id, played.contract.address, 0, 0).write(chain)
    words = ["crowd", "show", played.task.hex(), "--chain", str(chain), "--store", str(played.store._folder)]
    with subprocess.Popen(
        [sys.executable, "-m", "reticent", *words],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as program:
        line = program.stdout.readline()
        text = httpx.get(re.search(r"http://\S+", line)[0], timeout=60).text
        program.send_signal(signal.SIGINT)
        said = program.stdout.read()
    assert "2 of 2 results" in text
    assert said.strip() == "Ended."
    assert program.returncode == 0
