"""Search for the nearest free charging station without revealing one's location.

`cost` computes exactly what a channel costs its users: how often the answer is as good as with the true
location, and how much longer the drive is otherwise. `planning` inverts that: it finds level, number of sites
in an answer and radius for a target. `sites` reads stations from files. `companions` generates the dummy
journeys that are sent beside the true one, from a public `library` or from invented `traffic`. `demand`
estimates from reports where people asked, and `arrivals` forecasts arrivals at the stations.
"""

from reticent.location.stations.arrivals import Forecast, NewSite, forecast, free_on_arrival, new_sites
from reticent.location.stations.companions import Companions
from reticent.location.stations.cost import PrivacyCost, Queries
from reticent.location.stations.demand import Accompanied, Demand, demand_of
from reticent.location.stations.library import JourneyLibrary
from reticent.location.stations.planning import StationPlan, level_for, plans, radius_for
from reticent.location.stations.sites import Station, read_stations

__all__ = [
    "Accompanied",
    "Companions",
    "Demand",
    "Forecast",
    "JourneyLibrary",
    "NewSite",
    "PrivacyCost",
    "Queries",
    "Station",
    "StationPlan",
    "demand_of",
    "forecast",
    "free_on_arrival",
    "level_for",
    "new_sites",
    "plans",
    "radius_for",
    "read_stations",
]
