"""The command `reticent location stations forecast`: from a provider's counts to expected arrivals."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from reticent.arguments import real, whole
from reticent.cli import terminal
from reticent.errors import ParameterError
from reticent.files import appearing
from reticent.location.stations.arrivals import Forecast, NewSite, new_sites
from reticent.location.stations.arrivals import forecast as worked_out
from reticent.location.stations.other_points import fitted_law
from reticent.location.stations.provider import Provider
from reticent.location.stations.tally import Tally
from reticent.location.stations.vehicle import QUERIES
from reticent.spaces.roads import Stations

FILE = "forecast.json"  # in the folder of the provider, for its page
_LEAST = 50  # points without which nothing is told
_SHOWN = 20


def forecast(
    folder: Path,
    *,
    count: bool,
    hours: int,
    queries: int | None,
    stay: float,
    new: int,
    repetitions: int,
) -> None:
    """Forecast, or begin to count."""
    hours = whole("hours", hours, low=1, high=24 * 366)
    stay, new = real("stay", stay, low=0.0, open_low=True), whole("new", new, low=0, high=10)
    screen = terminal.console()
    with closing(Provider(folder)) as provider:
        if count:
            Tally(folder).close()
            screen.print(f"{folder.name} counts what is reported. A service that runs must be started again.")
            return
        told = _told(
            provider, folder, hours=hours, queries=queries, stay=stay, new=new, repetitions=repetitions
        )
    with appearing(folder / FILE, mode=0o600) as file:
        file.write(json.dumps(told).encode())
    _show(screen, told)


def _told(
    provider: Provider,
    folder: Path,
    *,
    hours: int,
    queries: int | None,
    stay: float,
    new: int,
    repetitions: int,
) -> dict[str, Any]:
    """Compute the forecast as the page stores it."""
    tally = Tally.kept(folder)
    if tally is None:
        raise ParameterError(f"{folder} counts no reports yet: --count begins")
    area, m = provider.area, provider.service.m
    with closing(tally):
        counts, minutes = tally.counts(area.roads.size, hours), tally.minutes(hours)
    points = int(counts.sum())
    if points < _LEAST:
        raise ParameterError(f"there must be at least {_LEAST} points to forecast from, got fewer")
    if queries is not None:
        m = round(points / whole("queries", queries, low=1, high=points // m))
    law = None
    if m > 1:
        if provider.library_file is None:
            raise ParameterError("queries must be as many as points for a provider without a library")
        companions = area.companions(provider.library_file, provider.signer)
        law = fitted_law(area.channel, companions, counts, m=m, queries=QUERIES)
    where = np.array([(one.latitude, one.longitude) for one in provider.stations])
    sites = Stations.at(area.roads, *where.T)
    found = worked_out(sites, area.channel, counts, law=law, m=m, repetitions=repetitions)
    missing = new_sites(sites, found.demand.distribution, new) if new else []
    return {
        "made": int(time.time()),
        "minutes": round(minutes),
        "points": points,
        "queries": round(found.demand.queries),
        "confidence": found.confidence,
        "stay_minutes": stay,
        "sites": _sites(provider, sites, found, minutes, stay),
        "missing": [_missing(sites, one) for one in missing],
    }


def _sites(
    provider: Provider, sites: Stations, found: Forecast, minutes: float, stay: float
) -> list[dict[str, Any]]:
    """Describe the forecast of each site; stations at one place are one site."""
    at = sites.roads.cells(
        np.array([one.latitude for one in provider.stations]),
        np.array([one.longitude for one in provider.stations]),
    )
    members = [np.flatnonzero(at == place).tolist() for place in sites.places.tolist()]
    connectors = [sum(provider.stations[one].connectors for one in each) for each in members]
    free = found.free(connectors, period_minutes=minutes, stay_minutes=stay)
    return [
        {
            "name": ", ".join(provider.stations[one].name for one in each[:2])
            + (f" and {len(each) - 2} more" if len(each) > 2 else ""),
            "at": [provider.stations[each[0]].latitude, provider.stations[each[0]].longitude],
            "connectors": connectors[number],
            "arrivals": _short(found.arrivals[number]),
            "low": float(found.low[number]),
            "high": float(found.high[number]),
            "free": [_short(one) for one in free[:, number]],
        }
        for number, each in enumerate(members)
    ]


def _missing(sites: Stations, one: NewSite) -> dict[str, Any]:
    return {
        "at": [round(each, 6) for each in sites.roads.points[one.place].tolist()],
        "saved_m": _short(1000.0 * one.saved),
        "share": _short(one.share),
    }


def _short(number: Any) -> float:
    return float(f"{float(number):.4g}")


def _show(screen: Any, told: dict[str, Any]) -> None:
    screen.print(
        f"{told['points']:,} points in {told['minutes']:,} minutes, of about {told['queries']:,} queries. If "
        "as much time to come is like it:",
        soft_wrap=True,
    )
    table = Table(
        "station", "arrivals", f"{told['confidence']:.0%} interval", "connectors", "free on arrival"
    )
    most = sorted(told["sites"], key=lambda one: -one["arrivals"])
    for one in most[:_SHOWN]:
        table.add_row(
            one["name"], f"{one['arrivals']:.1f}", f"{one['low']:g} to {one['high']:g}",
            str(one["connectors"]), f"{one['free'][0]:.0%} ({one['free'][1]:.0%} to {one['free'][2]:.0%})",
        )  # fmt: skip
    screen.print(table)
    if len(most) > _SHOWN:
        screen.print(f"And {len(most) - _SHOWN} with fewer.")
    for one in told["missing"]:
        north, east = one["at"]
        screen.print(
            f"A station at {north:.5f},{east:.5f} would shorten ways by {one['saved_m']:.3g} m on average, "
            f"for {one['share']:.0%} of those who ask.",
            soft_wrap=True,
        )
