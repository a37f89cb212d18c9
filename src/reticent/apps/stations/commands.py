"""`reticent location stations`: options and help. What they do is imported when they run."""

from __future__ import annotations

from reticent.apps.stations.forecast_commands import forecast, simulate
from reticent.apps.stations.map_commands import check, cost, plan
from reticent.apps.stations.program_commands import ask, edge, provider
from reticent.cli.options import group_of_commands

group = group_of_commands("stations", "Find a free charging station without saying where one is.")
for _one in (check, plan, cost, simulate, forecast, provider, edge, ask):
    group.command()(_one)
