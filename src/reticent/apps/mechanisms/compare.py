"""The work behind `reticent mechanisms`: the mechanisms for one number side by side, at one epsilon."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.table import Table

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.mechanisms import numeric
from reticent.mechanisms.catalogue import NUMERIC


def _installed() -> list[str]:
    """Return the names of the mechanisms that can be made here: `Tailored` needs scipy."""
    names = [*NUMERIC, "Optimal"]
    return names if find_spec("scipy") is not None else [name for name in names if name != "Tailored"]


def run(*, epsilon: float, bits: int | None) -> None:
    """Print the mechanisms in a table, least variance first, and the choice of `best`."""
    if bits is not None:
        bits = whole("bits", bits, low=1)
    made = {name: getattr(numeric, name)(epsilon=epsilon) for name in _installed()}
    fitting = {name: one for name, one in made.items() if bits is None or one.bits <= bits}
    if not fitting:
        raise ParameterError(f"bits must be >= {min(one.bits for one in made.values())}, got {bits}")
    least = min(one.worst_case_variance for one in fitting.values())

    table = Table(title=f"One number in [-1, 1], epsilon = {epsilon:g}", title_justify="left")
    table.add_column("mechanism", no_wrap=True)
    for heading in ("outputs", "bits", "variance, wire", "variance, ideal", "times the best"):
        table.add_column(heading, justify="right")
    for name, one in sorted(fitting.items(), key=lambda item: float(item[1].worst_case_variance)):
        table.add_row(
            name,
            _outputs(one),
            str(one.bits),
            f"{one.worst_case_variance:.6g}",
            f"{one.ideal_worst_case_variance:.6g}",
            f"{one.worst_case_variance / least:.4f}",
        )
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print(
        f"best(epsilon={epsilon:g}, bits={bits}): {type(numeric.best(epsilon, bits=bits)).__name__}"
    )


def _outputs(mechanism: Any) -> str:
    size = getattr(mechanism, "size", None)
    return "unbounded" if size is None else f"{size:,}"
