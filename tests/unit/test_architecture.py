"""The drawing of layers in docs/architecture.md shows the layers that `make lint` enforces."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
    "contracts"
]
LAYERS = next(contract["layers"] for contract in CONTRACTS if contract["type"] == "layers")


def read_drawing(page):
    """Return the layers of the drawing from top to bottom, without the remarks beside them."""
    drawing = re.search(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1]
    layers = [re.split(r"\s{2,}", line.strip())[0] for line in drawing.splitlines()]
    return [layer for layer in layers if layer != "|"]


def test_the_drawing_shows_the_enforced_layers():
    assert read_drawing(PAGE) == LAYERS


@pytest.mark.parametrize(("layer", "planted"), [("   audit ", "   query "), ("query | federated", "query")])
def test_a_planted_layer_is_noticed(layer, planted):
    assert PAGE.count(layer) == 1
    assert read_drawing(PAGE.replace(layer, planted)) != LAYERS


def test_lines_of_the_page_fit_a_screen():
    assert [line for line in PAGE.splitlines() if len(line) > 120] == []
