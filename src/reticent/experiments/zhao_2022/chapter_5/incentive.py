"""Reputation and reward of one customer among ten, over global epochs: for Figs. 5.10 and 5.11.

Reference: Zhao 2022, Section 5.3.4: everybody starts with 5, at most 100, and is paid her reputation for an
accepted update, nothing for a poisoned one; without the mechanism 5 in every epoch. Arithmetic only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from reticent.experiments import plots
from reticent.experiments.base import Row
from reticent.federated.robust.reputation import Evaluation, average, changed

CUSTOMERS, EPOCHS, START, MOST = 10, 12, 5, 100
NONE, ALWAYS = "no mechanism", "always malicious"
CASES: dict[str, Collection[int]] = {
    NONE: (),
    "honest": (),
    "malicious at 1": (1,),
    "malicious at 4": (4,),
    ALWAYS: range(1, EPOCHS + 1),
}
HELD, TRUE, PRINTED = "average held at 5", "true average", "Eq. 5.2, average held at 5"
RULES = (HELD, TRUE, PRINTED)


def printed(reputation: int, evaluation: Evaluation, *, average: int, most: int) -> int:
    """Eq. 5.2 as it stands, for whole averages: below the average everything gains."""
    if reputation < average:
        return reputation + 1
    if evaluation is Evaluation.HIGH:
        return min(most, reputation + 1)
    return 0 if reputation == average else reputation - 1


def history(case: str, rule: str) -> list[tuple[int, int]]:
    """Reputation after each epoch and reward in it, of the first of ten customers; the others are honest."""
    poisoned, people = CASES[case], [START] * CUSTOMERS
    step: Callable[..., int] = printed if rule == PRINTED else changed
    found = []
    for epoch in range(1, EPOCHS + 1):
        if case == NONE:
            found.append((0, START))
            continue
        said = [Evaluation.LOW if epoch in poisoned else Evaluation.HIGH]
        said += [Evaluation.HIGH] * (CUSTOMERS - 1)
        held = average(people) if rule == TRUE else START
        reward = people[0] if said[0] is Evaluation.HIGH else 0
        people = [
            step(one, evaluation, average=held, most=MOST)
            for one, evaluation in zip(people, said, strict=True)
        ]
        found.append((people[0], reward))
    return found


def rows() -> list[Row]:
    """A row for each case, rule and epoch."""
    return [
        {"case": case, "rule": rule, "global epoch": at + 1, "reputation": reputation, "reward": reward}
        for case in CASES
        for rule in RULES
        for at, (reputation, reward) in enumerate(history(case, rule))
    ]


def drawn(given: list[Row], what: str) -> Any:
    """A panel for each rule, a line for each case."""
    figure, axes = plots.panels(1, len(RULES), size=(13.0, 4.0))
    for axis, rule in zip(axes[0], RULES, strict=True):
        for case in CASES:
            mine = [row for row in given if (row["case"], row["rule"]) == (case, rule)]
            axis.plot(
                [row["global epoch"] for row in mine], [row[what] for row in mine],
                marker="o", markersize=3.5, label=case,
            )  # fmt: skip
        axis.set_title(rule, loc="left", fontsize=11)
        axis.set_xlabel("global epoch")
        axis.set_ylabel(what)
    plots.legend_right(figure, axes[0, 0])
    return figure


def at(case: str, rule: str, epoch: int) -> tuple[int, int]:
    """Reputation after an epoch, and the reward in it."""
    return history(case, rule)[epoch - 1]
