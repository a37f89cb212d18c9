"""The nearest free charging station, without saying where one is.

`cost` says exactly what a channel costs those who ask: how often the answer is as good as with the true
place, and how much longer the way is otherwise. `planning` turns that round: from what is wanted to level,
number of sites in an answer, and radius. `sites` reads stations from files. `companions` are the journeys
that are sent beside the true one, made of a public `library`, or of invented `traffic`. `demand` is where
people asked, as far as their reports tell, `arrivals` what is to come at the stations.
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
