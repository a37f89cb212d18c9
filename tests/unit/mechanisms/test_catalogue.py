"""One list of mechanisms: what is not in it cannot be made, and what is in it is found everywhere."""

import inspect
import pkgutil
from importlib import import_module

import pytest

from reticent.audit.subjects import CATALOGUE
from reticent.federated.choice import KINDS
from reticent.mechanisms import base, catalogue, categorical, numeric
from reticent.mechanisms.categorical import FrequencyOracle
from reticent.mechanisms.numeric import NumericRandomiser

LISTED = {**catalogue.NUMERIC, **catalogue.CATEGORICAL}


def concrete(package, family):
    """The mechanisms that the modules of a package hold."""
    found = set()
    for module in pkgutil.iter_modules(package.__path__):
        for made in vars(import_module(f"{package.__name__}.{module.name}")).values():
            if inspect.isclass(made) and issubclass(made, family) and not inspect.isabstract(made):
                found.add(made.__name__)
    return found - {"Hybrid"}  # what seven of them have in common


def test_every_mechanism_is_listed():
    assert concrete(numeric, NumericRandomiser) == set(catalogue.NUMERIC)
    assert concrete(categorical, FrequencyOracle) == set(catalogue.CATEGORICAL)


@pytest.mark.parametrize("name", LISTED)
def test_what_is_listed_is_found_everywhere(name):
    made = catalogue.loaded(name)
    assert issubclass(made, base.Randomiser)
    assert name in CATALOGUE
    assert getattr(numeric if name in catalogue.NUMERIC else categorical, name) is made
    assert (name in KINDS) == (name in catalogue.NUMERIC and made.travels is not None)


@pytest.mark.parametrize("family", [NumericRandomiser, FrequencyOracle])
def test_a_mechanism_without_its_line_cannot_be_made(family):
    package = family.__module__.rpartition(".")[0]
    with pytest.raises(TypeError, match=r"^Toy must have its line in mechanisms\.catalogue: 'toy'"):
        type("Toy", (family,), {"__module__": f"{package}.toy", "name": "Toy", "travels": ()})


def test_a_mechanism_that_does_not_say_what_travels_cannot_be_made(monkeypatch):
    monkeypatch.setitem(catalogue.NUMERIC, "Toy", "toy")
    parts = {"__module__": "reticent.mechanisms.numeric.toy", "name": "Toy"}
    with pytest.raises(TypeError, match=r"^Toy must say which of its fields travel, or None"):
        type("Toy", (NumericRandomiser,), parts)
    with pytest.raises(TypeError, match=r"^Toy must have .*perturb"):
        type("Toy", (NumericRandomiser,), parts | {"travels": None})


def test_a_mechanism_of_somebody_else_is_their_own_affair():
    type("Toy", (NumericRandomiser,), {"__module__": "elsewhere.toy", "name": "Toy"})
