"""The gate: every check that applies to a mechanism, and the verdict over all of them.

`audit` takes one mechanism of Reticent, `audit_callable` anybody's function, `audit_all` the whole library on
all cores: every mechanism, and the paths from a value to what leaves. A mechanism is released only if its
report passes.

False alarms: fit, black box, support and streams have at most 1e-6 each, so a report on a right mechanism
fails by chance with probability at most 4e-6; exact checks never do.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from typing import Any

from reticent.arguments import whole
from reticent.audit.black_box import FULL_SAMPLES, QUICK_SAMPLES, black_box
from reticent.audit.findings import Finding
from reticent.audit.fit import FULL_DRAWS, QUICK_DRAWS, fit
from reticent.audit.outputs import Sampler, as_sampler
from reticent.audit.paths import attribute_sampling
from reticent.audit.paths.messages import audit_messages
from reticent.audit.paths.queries import RELATIONS, audit_queries, name_of
from reticent.audit.paths.senders import SENDERS, Sender
from reticent.audit.reporting import Report as Report
from reticent.audit.runs import CANARIES, audit_training
from reticent.audit.subjects import CATALOGUE, Subject, made, subject_of
from reticent.audit.support import check_support
from reticent.audit.total import check_streams, check_total
from reticent.federated.models import Logistic
from reticent.federated.tasks import designed
from reticent.processes import end_with_parent
from reticent.query.kinds.listed import KIND
from reticent.randomness import Stream

EPSILONS = (0.5, 1.0, 4.0)
STREAM_DRAWS = 20_000
ONE_LEVEL = frozenset({"DiscreteGaussian"})  # OpenDP draws 30,000 a second, and the level only scales sigma


def _messages(kind: Callable[[], Sender], quick: bool) -> Report:
    return audit_messages(kind(), quick=quick)


def _queries(kind: str, relation: str, quick: bool) -> Report:
    return audit_queries(kind, relation, quick=quick)


def _training(quick: bool) -> Report:
    task = designed(
        "LDP-FedSGD", Logistic(8), epsilon=1.0, purpose="to be audited", rounds=1, group=1, rate=0.1
    )
    return audit_training(task, CANARIES if quick else 10 * CANARIES)


def _sampled_attributes(quick: bool) -> Report:
    record = attribute_sampling.make_record()
    return audit_callable(
        attribute_sampling.record_sampler(record),
        attribute_sampling.RECORDS,
        epsilon=record.epsilon,
        samples=20_000 if quick else 200_000,
        name="Record (sampled attributes)",
    )


PATHS: dict[str, Callable[[bool], Report]] = {
    "training LDP-FedSGD": _training,
    "Record (sampled attributes)": _sampled_attributes,
    **{kind.name: partial(_messages, kind) for kind in SENDERS},
    **{name_of(kind, relation): partial(_queries, kind, relation) for kind in KIND for relation in RELATIONS},
}
"""Whole paths, see `paths`: name -> (whether quickly) -> report."""

Progress = Callable[[Report, int, int], None]


def audit(mechanism: Any, *, quick: bool = False, rng: Stream | None = None) -> Report:
    """Run every check that applies to one mechanism of Reticent.

    Args:
        mechanism: an instance; any finite `Channel` over [-1, 1] or over categories will do.
        quick: fewer draws (100,000 instead of 10^6): finds what is clearly wrong, not a scale 1 % off.
        rng: None, the stream of production; a SimulationStream where an audit must be repeatable.
    """
    return _audited(subject_of(mechanism), quick, rng)


def _audited(subject: Subject, quick: bool, rng: Stream | None) -> Report:
    start = time.process_time()
    mechanism = subject.mechanism
    share = subject.cost if rng is None else 1
    draws = QUICK_DRAWS // share if quick else FULL_DRAWS
    samples = (QUICK_SAMPLES if quick else FULL_SAMPLES) // share
    exact = subject.exact()
    fitted = fit(mechanism, subject.inputs, draws=draws, rng=rng)
    sampler = subject.sampler(rng)
    measured = black_box(
        sampler,
        subject.contrasts,
        epsilon=subject.level,
        delta=subject.delta,
        gaussian=subject.notion == "mu",
        distances=subject.distances,
        samples=samples,
    )
    others = [found for found in (subject.support(sampler, samples // 2), subject.points()) if found]
    others.append(check_total(subject.report, 0, subject.odd))
    few = STREAM_DRAWS // share
    others.append(check_streams(lambda: sampler, subject.inputs[0], draws=few, fork=rng is None))
    seconds = time.process_time() - start
    name = str(getattr(mechanism, "name", type(mechanism).__name__))
    return Report(name, subject.level, subject.notion, exact, fitted, measured, tuple(others), seconds)


def audit_callable(
    function: Any,
    inputs: Sequence[Any],
    *,
    epsilon: float,
    delta: float = 0.0,
    samples: int = FULL_SAMPLES,
    name: str | None = None,
    rng: Stream | None = None,
) -> Report:
    """Audit any function f(value), f(value, size) or f(value, size, rng): black box, support, total, streams.

    Without a law there is nothing exact to check: the report says what was *not* found. f(value) is
    called once per sample, so ask for fewer samples there.

    Args:
        function: the mechanism.
        inputs: at least two private values, the extremes first of all.
        epsilon: the claim.
        delta: Delta of an (epsilon, delta) claim.
        samples: outputs per input for the black box.
        name: Name for the report.
        rng: handed on to a function that takes it.
    """
    start = time.process_time()
    samples = whole("samples", samples, low=1000)
    sampler = as_sampler(function, rng)
    others: list[Finding] = [check_total(lambda value: sampler(value, 3), inputs[0], inputs[1:])]
    measured = None
    if others[0].passed:
        measured = black_box(sampler, inputs, epsilon=epsilon, delta=delta, samples=samples)
        if delta == 0.0:
            others.insert(0, check_support(sampler, inputs, epsilon=epsilon, outputs=samples))
        others.append(_streams_of(sampler, inputs[0], samples, fork=rng is None))
    shown = name or str(getattr(function, "__name__", type(function).__name__))
    notion = "epsilon" if delta == 0.0 else f"epsilon at delta {delta:g}"
    return Report(shown, epsilon, notion, None, None, measured, tuple(others), time.process_time() - start)


def _streams_of(sampler: Sampler, value: Any, samples: int, *, fork: bool) -> Finding:
    return check_streams(lambda: sampler, value, draws=min(samples, STREAM_DRAWS), fork=fork)


def audit_all(
    epsilons: Sequence[float] = EPSILONS,
    *,
    quick: bool = False,
    names: Sequence[str] | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Report]:
    """Audit the whole library, one process per core; reports come in the order of names, then levels.

    Args:
        epsilons: the levels to make each mechanism at; the middle one alone for `ONE_LEVEL`. Paths have
            levels of their own.
        quick: Quick mode, see `audit`.
        names: Names in the catalogue or in `PATHS`; all by default.
        workers: processes; one per core by default, 0 to stay in this one.
        progress: called with each report, how many are done, and how many there are.
    """
    chosen = [*sorted(CATALOGUE), *PATHS] if names is None else list(names)
    middle = [sorted(epsilons)[len(epsilons) // 2]]
    jobs = [
        (name, float(e))
        for name in chosen
        for e in (middle if name in ONE_LEVEL or name in PATHS else epsilons)
    ]
    done: dict[int, Report] = {}

    def take(index: int, report: Report) -> None:
        done[index] = report
        if progress is not None:
            progress(report, len(done), len(jobs))

    if workers == 0:
        for index, (name, epsilon) in enumerate(jobs):
            take(index, audit_named(name, epsilon, quick=quick))
    else:
        # "spawn": workers share nothing with this process, neither threads nor streams.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers or os.cpu_count() or 1, context, end_with_parent) as pool:
            waiting = {
                pool.submit(audit_named, name, epsilon, quick=quick): index
                for index, (name, epsilon) in enumerate(jobs)
            }
            for future in as_completed(waiting):
                take(waiting[future], future.result())
    return [done[index] for index in range(len(jobs))]


def audit_named(name: str, epsilon: float, *, quick: bool = False) -> Report:
    """Audit a mechanism of the catalogue, or a path at its own level, with the randomness of production."""
    if name in PATHS:
        return PATHS[name](quick)
    mechanism = made(name, epsilon)
    report = audit(mechanism, quick=quick)
    chosen = name.lower() != type(mechanism).__name__.lower()  # Optimal is one of the others
    return replace(report, name=f"{name} ({report.name})") if chosen else report
