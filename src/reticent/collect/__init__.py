"""Private reports from a fleet: surveys, devices, the report format, and the collector.

The code that runs on a device (`survey`, `instruments`, `wire`, `device`, `fleet`) loads numpy, cryptography
and the device ledger, and solves nothing.
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from reticent.collect.collector import Collector
    from reticent.collect.design import designed
    from reticent.collect.device import Device
    from reticent.collect.estimates import Estimate, estimates
    from reticent.collect.survey import Survey
    from reticent.fleet.enrolment import Enrolment, enrolled

__all__ = ["Collector", "Device", "Enrolment", "Estimate", "Survey", "designed", "enrolled", "estimates"]

_HOMES = {
    "Collector": "reticent.collect.collector",
    "Device": "reticent.collect.device",
    "Enrolment": "reticent.fleet.enrolment",
    "Estimate": "reticent.collect.estimates",
    "Survey": "reticent.collect.survey",
    "designed": "reticent.collect.design",
    "enrolled": "reticent.fleet.enrolment",
    "estimates": "reticent.collect.estimates",
}


def __getattr__(name: str) -> _typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'reticent.collect' has no attribute {name!r}")
    return getattr(_import_module(_HOMES[name]), name)
