"""The work behind `reticent convert`: one privacy guarantee in the other units.

Printed numbers are rounded like the numbers that they were computed from: costs up, allowances down.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from rich.console import Console
from rich.table import Table

from reticent import privacy
from reticent.errors import ParameterError

Rows = list[tuple[str, str]]

_DELTAS = (1e-5, 1e-6, 1e-9)
_DIGITS = 12


def run(*, epsilon: float | None, delta: float | None, mu: float | None, rho: float | None) -> None:
    """Print the equivalents of the given guarantee in the other units."""
    deltas = _DELTAS if delta is None else (delta,)
    match (epsilon, delta, mu, rho):
        case (float(), float(), None, None):
            title, rows = f"budget ({epsilon:g}, {delta:g})-DP", _budget(epsilon, delta)
        case (float(), None, None, None):
            title, rows = f"release of pure {epsilon:g}-DP", _pure(epsilon)
        case (float(), None, float(), None):
            title, rows = f"release of {mu:g}-GDP", _gaussian_at(mu, epsilon)
        case (None, _, float(), None):
            title, rows = f"release of {mu:g}-GDP", _gaussian(mu, deltas)
        case (None, _, None, float()):
            title, rows = f"release of {rho:g}-zCDP", _concentrated(rho, deltas)
        case _:
            raise ParameterError(
                "give --epsilon (with --delta for a budget), --mu (with --delta or --epsilon), "
                "or --rho (with --delta)"
            )
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


def _budget(epsilon: float, delta: float) -> Rows:
    cap = privacy.Budget(epsilon, delta).mu2_cap
    mu = privacy.mu_of(epsilon, delta)
    return [
        ("mu (Gaussian DP)", _down(mu)),
        ("cap of the ledger in mu2, units of 1e-12", f"{cap:,}"),
        ("Gaussian noise, sigma per unit of sensitivity", _up(privacy.sigma_of_mu(1.0, mu))),
        ("rho (zCDP of any mechanism)", _down(privacy.zcdp_rho(epsilon, delta))),
    ]


def _pure(epsilon: float) -> Rows:
    mu = privacy.pure_to_mu(epsilon)
    rho = Fraction(epsilon) ** 2 / 2  # Bun and Steinke 2016, Proposition 1.4
    return [("mu (Gaussian DP)", _up(mu)), _cost(mu), ("rho (zCDP)", _up(rho))]


def _gaussian(mu: float, deltas: tuple[float, ...]) -> Rows:
    rows = [(f"epsilon at delta {delta:g}", _up(privacy.epsilon_of(mu, delta))) for delta in deltas]
    return [*rows, _cost(mu)]


def _gaussian_at(mu: float, epsilon: float) -> Rows:
    return [(f"delta at epsilon {epsilon:g}", _up(privacy.delta_of(mu, epsilon))), _cost(mu)]


def _concentrated(rho: float, deltas: tuple[float, ...]) -> Rows:
    rows = [(f"epsilon at delta {delta:g}", _up(privacy.zcdp_epsilon(rho, delta))) for delta in deltas]
    return [*rows, ("cost to the ledger in mu2", "refused: zCDP is not GDP")]


def _cost(mu: float) -> tuple[str, str]:
    return "cost to the ledger in mu2, units of 1e-12", f"{privacy.cost_units(Fraction(mu) ** 2):,}"


def _up(number: float | Fraction) -> str:
    return _rounded(number, ROUND_CEILING)


def _down(number: float | Fraction) -> str:
    return _rounded(number, ROUND_FLOOR)


def _rounded(number: float | Fraction, rounding: str) -> str:
    context = Context(prec=_DIGITS, rounding=rounding)
    if isinstance(number, Fraction):
        return str(context.divide(Decimal(number.numerator), Decimal(number.denominator)))
    return str(context.create_decimal(number))
