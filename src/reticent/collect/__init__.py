"""Private reports from a fleet: surveys, devices, the bytes between, and the collector.

What runs on a device (`survey`, `instruments`, `lots`, `wire`, `device`) loads numpy, cryptography and the
device ledger, and solves nothing.
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from reticent.collect.collector import Collector
    from reticent.collect.design import designed
    from reticent.collect.device import Device
    from reticent.collect.enrolment import Enrolment, enrolled
    from reticent.collect.estimates import Estimate, estimates
    from reticent.collect.survey import Survey

__all__ = ["Collector", "Device", "Enrolment", "Estimate", "Survey", "designed", "enrolled", "estimates"]

_HOMES = {
    "Collector": "collector",
    "Device": "device",
    "Enrolment": "enrolment",
    "Estimate": "estimates",
    "Survey": "survey",
    "designed": "design",
    "enrolled": "enrolment",
    "estimates": "estimates",
}


def __getattr__(name: str) -> _typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'reticent.collect' has no attribute {name!r}")
    return getattr(_import_module(f"reticent.collect.{_HOMES[name]}"), name)
