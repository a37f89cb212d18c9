"""Reports of audits: all findings on one mechanism or data path that makes a claim."""

from __future__ import annotations

from dataclasses import dataclass

from reticent.audit.findings import BlackBoxFinding, ExactFinding, Finding, FitFinding


@dataclass(frozen=True)
class Report:
    """The outcome of all checks of one mechanism.

    Attributes:
        name: Name of the mechanism.
        claimed: Level that is claimed.
        notion: Unit of the level: "epsilon", "mu", "epsilon per km".
        exact: Largest loss of the distribution, without sampling; None for a callable.
        fit: Comparison of the sampler with the distribution; None for a callable.
        black_box: Lower bound on the loss from outputs alone.
        others: Findings on support, points, total and streams, as far as they apply.
        seconds: Processor time of the audit, in seconds.
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
        """Return whether no check found anything against the claim."""
        return all(found.passed for found in self.findings)

    @property
    def verdict(self) -> str:
        """Verdict in one line: nothing found, or the findings against the claim."""
        against = [found for found in self.findings if not found.passed]
        if not against:
            return "nothing found against the claim"
        return "; ".join(f"{found.check}: {found.detail}" for found in against)
