"""Fig. 5.10: what an honest and a malicious customer are paid, by global epochs."""

from __future__ import annotations

from reticent.experiments.base import Options, Outcome, wrapped
from reticent.experiments.zhao_2022.chapter_5.incentive import (
    ALWAYS,
    CASES,
    EPOCHS,
    HELD,
    NONE,
    START,
    TRUE,
    drawn,
    history,
    rows,
)


def run(options: Options) -> Outcome:
    """Work out the rewards: nothing is drawn."""
    found = rows()
    totals = {
        rule: "; ".join(f"{case} {sum(paid for _, paid in history(case, rule))}" for case in CASES)
        for rule in (HELD, TRUE)
    }
    caption = wrapped(
        f"Fig 5.10: rewards of one customer among ten in {EPOCHS} global epochs, by our rule of reputation.",
        f"Printed: {START} in every epoch without the mechanism; an honest customer earns more and more; a "
        "poisoned update earns nothing, and less afterwards.",
        f"Found, in all epochs, with the average held at 5: {totals[HELD]}. With the true average: "
        f"{totals[TRUE]}.",
        f"{NONE.capitalize()} pays a poisoner as well; by ours, {ALWAYS} earns nothing at all.",
    )
    return Outcome(found, caption, lambda: drawn(found, "reward"))
