"""Fig. 5.11: the reputation of an honest and a malicious customer, by global epochs."""

from __future__ import annotations

from reticent.experiments.base import Options, Outcome, wrapped
from reticent.experiments.zhao_2022.chapter_5.incentive import (
    ALWAYS,
    EPOCHS,
    HELD,
    PRINTED,
    TRUE,
    at,
    drawn,
    history,
    rows,
)


def run(options: Options) -> Outcome:
    """Work out the reputations: nothing is drawn."""
    found = rows()
    before, after = at("malicious at 4", HELD, 3)[0], at("malicious at 4", HELD, 4)[0]
    ours = [reputation for reputation, _ in history(ALWAYS, TRUE)]
    theirs = [reputation for reputation, _ in history(ALWAYS, PRINTED)]
    caption = wrapped(
        f"Fig 5.11: reputation of one customer among ten in {EPOCHS} global epochs.",
        "Printed: it rises for the honest, falls to 0 for a poisoned update at the average, and drops by 1 "
        "for one at epoch 4.",
        f"Found: at epoch 1 it falls to {at('malicious at 1', TRUE, 1)[0]}. At epoch 4 it drops from "
        f"{before} to {after} only if the average is held at 5; the true one is {before} by then, and it "
        f"falls to {at('malicious at 4', TRUE, 4)[0]}.",
        f"Always malicious: by our rule {', '.join(map(str, ours))}: it falls and stays down. By Eq. 5.2 as "
        f"printed, with the average held at 5, {', '.join(map(str, theirs))}: whoever is below the average "
        "gains, whatever is sent, and so on for ever.",
    )
    return Outcome(found, caption, lambda: drawn(found, "reputation"))
