"""The file of a task, as a manufacturer writes it."""

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.federated.crowd.task_file import read
from reticent.federated.crowd.task_text import CrowdTask
from reticent.federated.crowd.terms import Prices
from reticent.store import Directory

TEXT = """\
purpose: Tell washing programmes apart.
mode: device
training: {inputs: 4, classes: 3, l2: 1e-4, clip: 1, records: 20, rate: 0.5, steps: 2, mu: 1}
grid: {steps: 65536, norm: 655360, floor: 100}
terms: {rounds: 2, people: 9, f: 1}
prices: {unit: 1000, bonus: 100, leader_fee: 5000, committee_fee: 20000, deposit: 1000000}
"""


def test_a_file_becomes_a_text_terms_and_prices(tmp_path):
    np.savez(tmp_path / "test.npz", features=np.eye(4)[:3], labels=np.arange(3))
    (tmp_path / "task.yaml").write_text(TEXT + "test: test.npz\nmultiple: 3\n")
    found = read(tmp_path / "task.yaml")
    assert CrowdTask.from_json(found.text.to_json()) == found.text
    assert (found.text.training.l2, found.text.multiple, found.text.grid.dimensions) == (1e-4, 3, 15)
    assert (found.terms.rounds, found.terms.people, found.terms.f, found.text.liars) == (2, 9, 1, 1)
    assert found.prices == Prices(1000, 100, 5000, 20000, 1000000)
    store = Directory(tmp_path / "store")
    store.put(found.test)
    assert found.text.accuracy(store, np.zeros(15, dtype=np.int64)) == pytest.approx(1 / 3)


def test_what_is_wrong_is_one_line(tmp_path):
    for before, after, said in (
        ("mode: device", "mode: cloud", "mode must be one of device"),
        ("clip: 1, ", "", "clip"),
        ("people: 9", "people: 4", "people must be >= 2 f"),
        ("f: 1}", "f: 1, dispute_blocks: 65536}", "dispute_blocks must be <= 65535, got 65536"),
        ("unit: 1000", "unit: -1", "unit must be >= 0, got -1"),
        ("floor: 100", "bottom: 100", "field 'bottom' is not known"),
        ("purpose: Tell", "why: Tell", "field 'why' is not known"),
    ):
        (tmp_path / "task.yaml").write_text(TEXT.replace(before, after))
        with pytest.raises(ParameterError, match=said) as error:
            read(tmp_path / "task.yaml")
        assert "\n" not in str(error.value)
    with pytest.raises(ParameterError, match="there is no file"):
        read(tmp_path / "none.yaml")
