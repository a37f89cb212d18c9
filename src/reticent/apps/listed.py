"""The one list of capabilities: what is named here is in the command, in the service, in `make demo-NAME`."""

from __future__ import annotations

from importlib import import_module

from reticent.apps.base import App

NAMES = (
    "audit",
    "chain",
    "collect",
    "crowd",
    "device",
    "experiments",
    "federated",
    "ledger",
    "location",
    "market",
    "mechanisms",
    "query",
    "service",
    "stations",
    "store",
)


def _loaded(name: str) -> App:
    found: App = import_module(f"reticent.apps.{name}.app").APP
    if found.name != name:
        raise ValueError(f"the capability in the folder {name} must have its name, got {found.name!r}")
    return found


APPS = tuple(map(_loaded, NAMES))
