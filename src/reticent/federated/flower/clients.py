"""The source of a Flower node's client: its ledger, its enrolment, the signer that it trusts.

On a SuperNode all of it is in the node's own configuration, which the server cannot change:

    flower-supernode ... --node-config 'reticent-ledger="client.ledger" reticent-enrolment="client.json"
        reticent-signer="<64 hexadecimal digits>" reticent-lifetime=8.0 reticent-most=1.0'

`reticent-most` is what one report may cost; the lifetime budget if it is not given. For personalised training
`reticent-unit` says what both are in: "mu2", if it is not given, or "epsilon". `reticent-marks` is a folder
for marks of ledgers (`ledger.device.marks`), if it is not the usual one; not where the ledger is.

In a simulation nodes have no configuration of their own, and one machine holds everybody's data anyway:
there it is in the run's configuration, with a folder `reticent-clients` of N.ledger, N.json and marks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context

from reticent.errors import ParameterError
from reticent.federated.client import Client
from reticent.federated.personalised.client import PersonalClient
from reticent.fleet.enrolment import Enrolment
from reticent.ledger.base import Unit
from reticent.ledger.device.marks import Marks

LEDGER, ENROLMENT, CLIENTS = "reticent-ledger", "reticent-enrolment", "reticent-clients"
MARKS = "reticent-marks"
SIGNER, LIFETIME, MOST, UNIT = "reticent-signer", "reticent-lifetime", "reticent-most", "reticent-unit"


def of_node(context: Context) -> Client:
    """The client of a SuperNode, by its node's configuration alone."""
    return Client(**_of_node(context))


def of_simulation(context: Context) -> Client:
    """The client of a simulated node, by its number and the run's configuration."""
    return Client(**_of_simulation(context))


def personal_of_node(context: Context) -> PersonalClient:
    """Return the client of a node, like `of_node`, for personalised training."""
    return PersonalClient(**_of_node(context), unit=_unit(context.node_config))


def personal_of_simulation(context: Context) -> PersonalClient:
    """Return the client of a simulated node, like `of_simulation`, for personalised training."""
    return PersonalClient(**_of_simulation(context), unit=_unit(context.run_config))


def _of_node(context: Context) -> dict[str, Any]:
    given = context.node_config
    options = _options(_text(given, LEDGER), _text(given, ENROLMENT), given)
    return options | ({"marks": Marks(_text(given, MARKS))} if MARKS in given else {})


def _of_simulation(context: Context) -> dict[str, Any]:
    number = context.node_config.get("partition-id")
    if not isinstance(number, int):
        raise ParameterError("partition-id must be a whole number")
    folder = Path(_text(context.run_config, CLIENTS))
    options = _options(str(folder / f"{number}.ledger"), str(folder / f"{number}.json"), context.run_config)
    return options | {"marks": Marks(folder / "marks")}


def _options(ledger: str, enrolment: str, given: Mapping[str, Any]) -> dict[str, Any]:
    signer = _text(given, SIGNER)
    if not re.fullmatch(r"[0-9a-f]{64}", signer, re.ASCII):
        raise ParameterError(f"{SIGNER} must be 64 hexadecimal digits")
    if LIFETIME not in given:
        raise ParameterError(f"{LIFETIME} is missing")
    return {
        "path": ledger,
        "enrolment": Enrolment.from_json(Path(enrolment).read_text(encoding="ascii")),
        "signer": bytes.fromhex(signer),
        "lifetime": given[LIFETIME],
        "most": given.get(MOST, given[LIFETIME]),
    }


def _unit(given: Mapping[str, Any]) -> Unit:
    name = given.get(UNIT, Unit.MU2.value)
    if name not in (Unit.MU2.value, Unit.EPSILON.value):
        raise ParameterError(f"{UNIT} must be {Unit.MU2.value} or {Unit.EPSILON.value}")
    return Unit(name)


def _text(given: Mapping[str, Any], name: str) -> str:
    found = given.get(name)
    if not isinstance(found, str) or not found:
        raise ParameterError(f"{name} is missing")
    return found
