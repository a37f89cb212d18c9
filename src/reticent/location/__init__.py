"""Location: learning where people are without learning where anyone is.

`rounds` is what a service publishes and signs, `device` what answers it, `store` what keeps the answers,
`privic` what learns from them and makes the next round. `stations` is about finding one: `Vehicle` asks.
"""

from reticent.location.device import LocationDevice
from reticent.location.privic import Defence, Privic
from reticent.location.rounds import PlaceRound
from reticent.location.stations.vehicle import Vehicle
from reticent.location.store import ReportStore

__all__ = ["Defence", "LocationDevice", "PlaceRound", "Privic", "ReportStore", "Vehicle"]
