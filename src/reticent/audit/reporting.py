"""What an audit hands back: all findings on one thing that claims something."""

from __future__ import annotations

from dataclasses import dataclass

from reticent.audit.findings import BlackBoxFinding, ExactFinding, Finding, FitFinding


@dataclass(frozen=True)
class Report:
    """The outcome of all checks of one mechanism.

    Attributes:
        name: of the mechanism.
        claimed: the level that is claimed.
        notion: its unit: "epsilon", "mu", "epsilon per km".
        exact: the largest loss of the law, without sampling; None for a callable.
        fit: the sampler against the law; None for a callable.
        black_box: the lower bound on the loss from outputs alone.
        others: support, points, total, streams, as far as they apply.
        seconds: of processor time that it took.
    """

    name: str
    claimed: float
    notion: str
    exact: ExactFinding | None
    fit: FitFinding | None
    black_box: BlackBoxFinding | None
    others: tuple[Finding, ...]
    seconds: float

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings in the order of the checks."""
        return tuple(found for found in (self.exact, self.fit, self.black_box, *self.others) if found)

    @property
    def passed(self) -> bool:
        """Whether no check found anything against the claim."""
        return all(found.passed for found in self.findings)

    @property
    def verdict(self) -> str:
        """One line: kept, or the first finding against it."""
        against = [found for found in self.findings if not found.passed]
        if not against:
            return "nothing found against the claim"
        return "; ".join(f"{found.check}: {found.detail}" for found in against)
