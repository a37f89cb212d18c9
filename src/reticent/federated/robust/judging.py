"""The judgement of a round: refused and accepted updates, their average, and an evaluation of each.

Everybody who judges the same updates in the same order gets the same judgement, to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.federated.robust.averages import Integers, mean
from reticent.federated.robust.grid import Grid, Update
from reticent.federated.robust.krum import multi_krum
from reticent.federated.robust.reputation import MULTIPLE, Evaluation, evaluations


@dataclass(frozen=True)
class Judgement:
    """The judgement of a round.

    Attributes:
        accepted: places of the updates that were averaged, in order.
        update: their average, in grid steps.
        evaluations: Evaluation of every place.
        scores: Scores of the places that were not refused.
        refused: Reason of each refusal, by place.
        slight: places of updates that are shorter than the grid's floor, and earn nothing.
    """

    accepted: tuple[int, ...]
    update: Integers
    evaluations: tuple[Evaluation, ...]
    scores: Mapping[int, int]
    refused: Mapping[int, str]
    slight: frozenset[int]

    @property
    def bits(self) -> int:
        """The accepted set as bits, place by place: what a contract keeps."""
        return sum(1 << place for place in self.accepted)


def judge(grid: Grid, updates: Sequence[Any], liars: int, *, multiple: int = MULTIPLE) -> Judgement:
    """Judge a round by Multi-Krum.

    Args:
        grid: Grid of the task.
        updates: Updates that came, in the order of those who sent them; of any kind.
        liars: f, how many of them may lie; there must be at least 2f + 3. Those that are refused are among
            the f, so that nobody stops a round by sending what is refused.
        multiple: see `reputation.evaluations`.

    Raises:
        ParameterError: there are too few updates to judge.
    """
    good: dict[int, Update] = {}
    refused: dict[int, str] = {}
    for place, update in enumerate(updates):
        try:
            good[place] = grid.checked(update, name=f"update {place}")
        except ParameterError as error:
            refused[place] = str(error)
    places = list(good)
    left = max(0, whole("liars", liars, low=0) - len(refused))
    chosen = multi_krum([good[place] for place in places], left)
    said = dict(zip(places, evaluations(chosen.scores, chosen.accepted, multiple=multiple), strict=True))
    accepted = tuple(places[at] for at in chosen.accepted)
    return Judgement(
        accepted=accepted,
        update=mean([good[place] for place in accepted]),
        evaluations=tuple(said.get(place, Evaluation.LOW) for place in range(len(updates))),
        scores=dict(zip(places, chosen.scores, strict=True)),
        refused=refused,
        slight=frozenset(place for place in places if grid.is_slight(good[place])),
    )
