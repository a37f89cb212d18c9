"""The objects that the calls and pages of this process share: the desk, and the threads that answer."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from reticent.apps.query.desk import Desk
from reticent.apps.query.jobs import Jobs


def desk_of(request: Request) -> Desk:
    """Return the desk of this process."""
    desk: Desk = request.app.state.desk
    return desk


async def _the_desk(request: Request) -> Desk:  # awaited, since a plain function would be given a thread
    return desk_of(request)


def jobs_of(request: Request) -> Jobs:
    """Return the threads of this process that answer."""
    jobs: Jobs = request.app.state.jobs
    return jobs


async def _the_jobs(request: Request) -> Jobs:
    return jobs_of(request)


TheDesk = Annotated[Desk, Depends(_the_desk)]
TheJobs = Annotated[Jobs, Depends(_the_jobs)]
