"""The check that is meant for each planted bug, and the right mechanism that must pass the same check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.audit.black_box import black_box
from reticent.audit.exact import check_channel, check_matrix
from reticent.audit.findings import Finding
from reticent.audit.fit import fit
from reticent.audit.outputs import as_rows
from reticent.audit.paths.attribute_sampling import find_telling_choice, make_record
from reticent.audit.paths.senders import (
    Clients,
    Devices,
    Directions,
    Personal,
    Places,
    SamplingDevices,
    Sender,
)
from reticent.audit.places import check_places, check_points, rows_of
from reticent.audit.planted import (
    codebooks,
    messages,
    places,
    queries,
    records,
    samplers,
    tables,
    trainings,
)
from reticent.audit.structure import check_structure
from reticent.audit.subjects import MAP, subject_of
from reticent.audit.support import check_support, check_support_exact, check_support_rows
from reticent.audit.total import check_joint, check_memory, check_streams, check_total
from reticent.mechanisms.categorical import KRR, OLH, OUE, Subset
from reticent.mechanisms.gaussian import DiscreteGaussian
from reticent.mechanisms.location import ElasticChannel, TableChannel, exponential
from reticent.mechanisms.numeric import Duchi, Tailored, ThreeOutputs, Window
from reticent.mechanisms.numeric.laplace import Laplace
from reticent.mechanisms.vector import Codebook, VectorDuchi, VectorLaplace
from reticent.query.opening import open as opened

Check = Callable[[Any, bool], Finding]

_CORNERS = [(-1.0, -1.0), (1.0, 1.0)]
_GAUSSIAN = DiscreteGaussian(1025, 1.0)


@dataclass(frozen=True)
class Plant:
    """One planted bug.

    Attributes:
        check: the name of the check that is meant to catch it.
        bug: makes the wrong mechanism.
        sound: makes the right one.
        find: runs the check; the flag asks for fewer draws.
    """

    check: str
    bug: Callable[[], Any]
    sound: Callable[[], Any]
    find: Check

    @property
    def what(self) -> str:
        """The bug in one line."""
        bug = self.bug()
        kind = bug.kind if isinstance(bug, Sender) else type(bug)
        return (kind.__doc__ or "").splitlines()[0]


def _exact(channel: Any, quick: bool) -> Finding:
    return check_channel(channel)


def _structure(mechanism: Any, quick: bool) -> Finding:
    return check_structure(mechanism)


def _support_exact(channel: Any, quick: bool) -> Finding:
    return check_support_exact(channel)


def _places(channel: Any, quick: bool) -> Finding:
    return check_places(channel)


def _place_support(channel: Any, quick: bool) -> Finding:
    return check_support_rows(rows_of(channel))


def _points(grid: Any, quick: bool) -> Finding:
    """Here the planted thing is the map."""
    return check_points(exponential(grid, 2.0), pairs=20_000 if quick else 1_000_000)


def _metric_rows(law: Any, quick: bool) -> Finding:
    return check_matrix(law.rows(), law.claim, distances=law.distances)


def _fit(*inputs: Any) -> Check:
    return lambda mechanism, quick: fit(mechanism, inputs)  # 10^6 draws always: 1 % is not seen with fewer


def _gaussian_fit(noise: Any, quick: bool) -> Finding:
    """`noise` stands in for the sampler of a discrete Gaussian with the same claim."""
    return fit(_GAUSSIAN, [0], sampler=noise)


def _black_box(epsilon: float, *inputs: Any) -> Check:
    return lambda mechanism, quick: black_box(
        mechanism, inputs, epsilon=epsilon, samples=90_000 if quick else 1_000_000
    )


def _channel_box(channel: Any, quick: bool) -> Finding:
    """Outputs alone, of two categories."""
    return black_box(
        lambda value, size: channel.sample(np.full(size, value)),
        [0, 1],
        epsilon=channel.epsilon,
        samples=150_000 if quick else 1_000_000,
    )


def _support(*inputs: Any) -> Check:
    return lambda mechanism, quick: check_support(
        mechanism, inputs, epsilon=1.0, outputs=100_000 if quick else 1_000_000
    )


def _membership(*inputs: Any) -> Check:
    return lambda mechanism, quick: check_support(
        mechanism,
        inputs,
        epsilon=1.0,
        possible=mechanism.possible,
        outputs=50_000 if quick else 1_000_000,
    )


def _streams(make: Callable[[], Any], quick: bool) -> Finding:
    """Here the planted thing is the maker: instances are compared too."""
    return check_streams(make, 0.0)


def _joint(mechanism: Any, quick: bool) -> Finding:
    return check_joint(as_rows(mechanism((0.2, -0.1), 20_000)))


def _total(report: Any, quick: bool) -> Finding:
    return check_total(report, usual=0.3)


def _memory(make: Callable[[], Any], quick: bool) -> Finding:
    return check_memory(make, -1.0, 1.0, epsilon=1.0, devices=2_000 if quick else 20_000)


_along = trainings.audited(lambda training: training.along)
_apart = trainings.audited(lambda training: training.apart)


def _maker(kind: Callable[[], Any]) -> Callable[[], Any]:
    """A plant whose checks need fresh instances is the class itself."""
    return lambda: kind


def _few(kind: Any) -> Callable[[], Any]:
    return lambda: kind(epsilon=1.0, dimensions=3, bits=4)


def _seen(mechanism: Any, quick: bool) -> Finding:
    """Audit seeds and numbers by the black box, on two opposite vectors."""
    subject = subject_of(mechanism)
    samples = 60_000 if quick else 1_000_000
    return black_box(subject.sampler(None), subject.contrasts, epsilon=subject.level, samples=samples)


def _fresh_duchi() -> Any:
    mechanism = Duchi(epsilon=1.0)
    return lambda value, size: mechanism.perturb(np.full(size, value))


def _six(kind: Any) -> Callable[[], Any]:
    return lambda: kind(epsilon=1.0, categories=6)


def _tailored(kind: Any) -> Callable[[], Any]:
    return lambda: kind(epsilon=1.0, prior="small gradients", inputs=9)


def _right_places() -> ElasticChannel:
    return ElasticChannel(places.GRID, places.crowds(places.GRID), places.BETA)


def _right_table() -> TableChannel:
    return places.Claimed(places.GRID, exponential(places.GRID, 2.0 * places.BETA).matrix)


def _torn_map() -> Any:
    assert MAP.box is not None
    return places.TornGrid.over(MAP.box, MAP.rows, MAP.columns)


PLANTS: dict[str, Plant] = {
    "printed Eq. 3.3": Plant("exact", tables.PrintedMiddle, lambda: ThreeOutputs(epsilon=1.0), _exact),
    "printed Eq. 3.1": Plant("exact", tables.PrintedSign, lambda: ThreeOutputs(epsilon=1.0), _exact),
    "wrong coin in k-RR": Plant("exact", _six(tables.BinaryCoin), _six(KRR), _exact),
    "threshold rounded down": Plant("exact", _six(tables.RoundedDown), _six(KRR), _exact),
    "even-d Duchi": Plant(
        "exact",
        lambda: tables.EvenDuchi(epsilon=1.0, dimensions=4),
        lambda: VectorDuchi(epsilon=1.0, dimensions=4),
        _structure,
    ),
    "OUE with wrong q": Plant("exact", _six(tables.WrongQ), _six(OUE), _structure),
    "OLH counts categories": Plant(
        "exact",
        lambda: tables.CountedCategories(epsilon=2.0, categories=3),
        lambda: OLH(epsilon=2.0, categories=3),
        _structure,
    ),
    "Tailored with a wrong floor": Plant("exact", _tailored(tables.WrongFloor), _tailored(Tailored), _exact),
    "Tailored, one count too many": Plant(
        "exact", _tailored(tables.OneCountMore), _tailored(Tailored), _exact
    ),
    "Tailored without dither": Plant("fit", _tailored(tables.DroppedDither), _tailored(Tailored), _fit(0.3)),
    "Subset with one element fewer": Plant("exact", _six(tables.OneSet), _six(Subset), _structure),
    "Subset rounded up": Plant("exact", _six(tables.RoundedUp), _six(Subset), _structure),
    "codebook with a low floor": Plant("exact", _few(codebooks.LowFloor), _few(Codebook), _structure),
    "codebook scale off by 2 %": Plant(
        "fit",
        _few(codebooks.CodebookScaleOff),
        _few(Codebook),
        lambda mechanism, quick: fit(mechanism, [np.eye(3)[0]], draws=100_000 if quick else 1_000_000),
    ),
    "codebook of the client's choice": Plant("black box", _few(codebooks.OwnCodebook), _few(Codebook), _seen),
    "scale from the private norm": Plant(
        "exact",
        lambda: samplers.NormScaled(epsilon_per_unit=1.0, dimensions=3, distance_unit="km"),
        lambda: VectorLaplace(epsilon_per_unit=1.0, dimensions=3, distance_unit="km"),
        _structure,
    ),
    "classical Gaussian at epsilon 10": Plant(
        "exact",
        tables.LooseGaussian,
        lambda: tables.LooseGaussian(factor=1.2),
        lambda law, quick: check_matrix(law.rows(), law.epsilon, delta=law.delta),
    ),
    "metric channel at half its rate": Plant(
        "exact",
        tables.HalfTheRate,
        lambda: tables.HalfTheRate(claim=0.8),
        _metric_rows,
    ),
    "beta claimed for 2 beta": Plant("exact", places.HalfTheLevel, _right_places, _places),
    "printed Algorithm 2": Plant(
        "exact", places.PrintedNormaliser, lambda: places.PrintedNormaliser(printed=False), _metric_rows
    ),
    "one normaliser for all places": Plant("exact", places.OneNormaliser, _right_table, _places),
    "squared distances": Plant("exact", places.SquaredDistances, _right_table, _places),
    "cells taken for kilometres": Plant("exact", places.CellsForKilometres, _right_table, _places),
    "reports by another map of crowds": Plant("fit", places.OtherCrowds, _right_places, _fit(3)),
    "OUE draws another q": Plant("fit", _six(tables.DriftingQ), _six(OUE), _fit(0, 5)),
    "Subset with a telling seed": Plant(
        "fit",
        lambda: tables.TellingSeed(epsilon=1.0, categories=10),
        lambda: Subset(epsilon=1.0, categories=10),
        _fit(0, 5),
    ),
    "Laplace scale off by 1 %": Plant("fit", samplers.ScaleOff, lambda: Laplace(epsilon=1.0), _fit(0.3)),
    "Gaussian scale off by 1 %": Plant(
        "fit",
        lambda: samplers.GaussianScaleOff(_GAUSSIAN.sigma),
        lambda: samplers.GaussianScaleOff(_GAUSSIAN.sigma, 1.0),
        _gaussian_fit,
    ),
    "k-RR one category short": Plant("black box", _six(tables.OneCategoryShort), _six(KRR), _channel_box),
    "Laplace with sensitivity 1": Plant(
        "black box",
        samplers.NarrowLaplace,
        lambda: samplers.NarrowLaplace(sensitivity=2.0),
        _black_box(1.0, -1.0, 1.0),
    ),
    "epsilon not divided by k": Plant(
        "black box",
        samplers.WholeEpsilonEach,
        lambda: samplers.WholeEpsilonEach(divided=True),
        _black_box(1.0, *_CORNERS),
    ),
    "piecewise on doubles": Plant(
        "support", samplers.PiecewiseOnDoubles, samplers.GridOfSymbols, _membership(0.1, 0.1001)
    ),
    "clipped Laplace on doubles": Plant(
        "support", samplers.ClippedDoubles, samplers.ClippedSteps, _support(0.0, 0.9)
    ),
    "dropped symbol": Plant(
        "support", tables.DroppedSymbol, lambda: Window(epsilon=4.0, outputs=5), _support_exact
    ),
    "far places cut off": Plant("support", places.CutOff, _right_places, _place_support),
    "places beyond 64 bits": Plant("support", places.SixtyFourBits, _right_places, _place_support),
    "map torn at the date line": Plant("points", _torn_map, lambda: MAP, _points),
    "grid that moves with the input": Plant(
        "support", samplers.MovingGrid, samplers.FixedGrid, _support(0.1, 0.3)
    ),
    "coordinate chosen by magnitude": Plant(
        "support",
        samplers.LargestFirst,
        lambda: samplers.LargestFirst(largest=False),
        _support((0.9, 0.1, 0.0), (0.1, 0.9, 0.0)),
    ),
    "fixed seed": Plant("streams", _maker(samplers.FixedSeed), _maker(_fresh_duchi), _streams),
    "seed per instance": Plant("streams", _maker(samplers.SeedPerInstance), _maker(_fresh_duchi), _streams),
    "stream copied by fork": Plant("streams", _maker(samplers.CopiedStream), _maker(_fresh_duchi), _streams),
    "noise shared within a batch": Plant(
        "streams", _maker(samplers.SharedInBatch), _maker(_fresh_duchi), _streams
    ),
    "noise shared by two attributes": Plant(
        "streams", samplers.SharedNoise, lambda: samplers.SharedNoise(shared=False), _joint
    ),
    "refuses out of range": Plant("total", samplers.Refuses, samplers.Total, _total),
    "NaN leaks through": Plant("total", samplers.LetsNanThrough, samplers.Total, _total),
    "sends nothing for missing values": Plant("total", samplers.SkipsMissing, samplers.Total, _total),
    "memoised by value": Plant(
        "memory", _maker(samplers.MemoByValue), _maker(samplers.MemoByPeriod), _memory
    ),
    "noise reused between rounds": Plant(
        "streams", lambda: Clients(messages.NoiseReused), Clients, messages.audited("streams")
    ),
    "noise of the round before": Plant(
        "streams", lambda: Places(messages.PlaceNoiseReused), Places, messages.audited("streams", 100)
    ),
    "a second report under other noise": Plant(
        "repeat", lambda: Clients(messages.DrawnAgain), Clients, messages.audited("repeat")
    ),
    "clip skipped": Plant(
        "black box", lambda: Personal(messages.ClipSkipped), Personal, messages.audited("black box", 120)
    ),
    "far directions left out": Plant(
        "black box", lambda: Directions(messages.NearOnly), Directions, messages.audited("black box", 120)
    ),
    "ledger skipped": Plant(
        "ledger", lambda: Devices(messages.LedgerSkipped), Devices, messages.audited("ledger")
    ),
    "silence on overflow": Plant(
        "total", lambda: Clients(messages.SilentOnOverflow), Clients, messages.audited("total")
    ),
    "nonce of the value": Plant(
        "rest", lambda: Devices(messages.NonceOfTheValue), Devices, messages.audited("rest")
    ),
    "nonce of the record": Plant(
        "fresh", lambda: Devices(messages.NonceOfTheRecord), Devices, messages.audited("fresh")
    ),
    "attribute chosen by value": Plant(
        "black box",
        lambda: SamplingDevices(messages.AttributeByValue),
        SamplingDevices,
        messages.audited("black box"),
    ),
    "attribute of a record chosen by value": Plant(
        "black box", lambda: make_record(records.LargestAttribute), make_record, find_telling_choice
    ),
    "missing category without noise": Plant(
        "black box",
        lambda: Devices(messages.PlainMissingCategory),
        Devices,
        messages.audited("black box", 500),
    ),
    "unreadable number of a device always one symbol": Plant(
        "black box",
        lambda: Devices(messages.NanOneSymbolDevice),
        Devices,
        messages.audited("black box", 500),
    ),
    "NaN always one symbol": Plant(
        "black box", lambda: samplers.NanOneSymbol(epsilon=1.0), lambda: Duchi(epsilon=1.0), _seen
    ),
    "KRR without noise for what is no category": Plant(
        "black box", _six(samplers.PlainMissingCategory), _six(KRR), _seen
    ),
    "half the sensitivity of a question": Plant(
        "black box",
        queries.HalfTheSensitivity,
        lambda: opened,
        queries.audited("black box", "mean", "add or remove one"),
    ),
    "noise for four times the charge": Plant(
        "black box", queries.CheapNoise, lambda: opened, queries.audited("black box", "count", "replace one")
    ),
    "answers with a fixed seed": Plant(
        "streams",
        queries.SeedOfTheSession,
        lambda: opened,
        queries.audited("streams", "histogram", "add or remove one"),
    ),
    "questions that are forgotten": Plant(
        "repeat", queries.ForgetsQuestions, lambda: opened, queries.audited("repeat", "sum", "replace one")
    ),
    "DP-SGD without clipping": Plant(
        "run", lambda: trainings.ClipSkipped(1000), lambda: trainings.LargeRecords(1000), _along
    ),
    "DP-SGD with the noise of a mean": Plant(
        "run", lambda: trainings.NoiseOfTheMean(1000), lambda: trainings.DPSGD(1000), _along
    ),
    "DP-SGD that reuses its noise": Plant(
        "run", lambda: trainings.NoiseReused(1000), lambda: trainings.DPSGD(1000), _apart
    ),
}
"""Name of the bug -> how it is caught."""
