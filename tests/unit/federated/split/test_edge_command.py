"""`reticent crowd edge`, a real process: what it says, and that it goes on where it was killed."""

import subprocess
import sys
import threading

import numpy as np
import pytest

from reticent.federated.split.line import Line, documented_theta, noised_update
from reticent.processes import free_port
from reticent.randomness import SimulationStream

from .tasks import DOCUMENTED, NOISED, noised_records, pictures, text

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
OLD = DOCUMENTED.documented


class Edge:
    """A process that can be killed and started again at the same place."""

    def __init__(self, folder, files):
        self._folder, self._files, self.port = folder, files, free_port()
        self.started = 0
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        tasks = [part for file in self._files for part in ("--task", str(file))]
        command = ["crowd", "edge", str(self._folder), *tasks, "--port", str(self.port)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "reticent", *command], stdout=subprocess.PIPE, text=True
        )
        self.said = []
        for line in self.process.stdout:
            self.said.append(line)
            if line.startswith("edge "):
                break
        self.started += 1

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def edge(tmp_path):
    files = []
    for training in (NOISED, DOCUMENTED):
        file = tmp_path / f"{training.mode}.json"
        file.write_bytes(text(training).to_json())
        files.append(file)
    found = Edge(tmp_path / "edge", files)
    yield found
    found.kill()


class Killing(Line):
    """A line that kills the edge now and then, before a request and after one whose answer is lost."""

    def __init__(self, edge, *given, **more):
        super().__init__(edge.url, *given, **more)
        self.edge, self.count = edge, 0

    def _asked(self, *given):
        self.count += 1
        if self.count in (3, 6):
            if self.count == 6:
                super()._asked(*given)  # it was made; the answer is lost
            self.edge.kill()
            again = threading.Thread(target=self.edge.start)
            again.start()
            found = super()._asked(*given)
            again.join()
            return found
        return super()._asked(*given)


def test_killed_it_goes_on_and_says_what_it_protects(edge):
    said = "".join(edge.said)
    assert "mode noised, 2-GDP for one record, before it comes here" in said
    assert "mode documented. NO PROTECTION OF A RECORD" in said

    theta = OLD.start(7)
    found = []
    for kind in (Killing, Line):
        stream = SimulationStream(3)
        at = edge if kind is Killing else edge.url
        with kind(at, str(text(DOCUMENTED).cid), patience_s=300.0) as line:
            found.append(
                documented_theta(OLD, line, theta, *pictures(), rng=stream.spawn(0), order=stream.spawn(1))
            )
    assert edge.started == 3
    assert np.array_equal(*found)

    task = NOISED.noised_task("bars", text(NOISED).grid)
    vectors = task.noised(*noised_records(), SimulationStream(1))
    with Line(edge.url, str(text(NOISED).cid), patience_s=300.0) as line:
        first = noised_update(task, line, vectors, np.zeros(task.dimensions))
        edge.kill()
        edge.start()
        assert np.array_equal(task.update(line.noised_slopes(task, np.zeros(task.dimensions))), first)


def test_bad_input_is_one_line(command, tmp_path):
    file = tmp_path / "task.json"
    file.write_bytes(text(NOISED).to_json())
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    for given, words in (
        ((tmp_path / "edge", "--task", tmp_path / "none"), "there is no file"),
        ((tmp_path / "edge", "--task", bad), "the task"),
        ((tmp_path / "edge", "--task", file, "--host", "203.0.113.7"), "must be free to listen at"),
    ):
        code, _, err = command("crowd", "edge", *map(str, given))
        assert code == 2
        assert words in err
        assert err.count("\n") == 1
