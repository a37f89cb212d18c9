"""How the figures look: one accent colour for ours, colour-blind safe ones for the documents'.

Colours are those of Okabe and Ito; line style and marker tell mechanisms apart without colour.
"""

from __future__ import annotations

from typing import Any

ACCENT = "#D55E00"
LIMIT = "black"

STYLES: dict[str, dict[str, Any]] = {
    "Laplace": {"color": "#999999", "linestyle": ":", "marker": "x"},
    "Duchi": {"color": "#0072B2", "linestyle": "-", "marker": "s"},
    "Duchi (vector)": {"color": "#0072B2", "linestyle": ":", "marker": "s"},
    "PM": {"color": "#56B4E9", "linestyle": "--", "marker": "^"},
    "HM": {"color": "#009E73", "linestyle": "-", "marker": "D"},
    "Three-Outputs": {"color": "#CC79A7", "linestyle": "-", "marker": "v"},
    "PM-SUB": {"color": "#B8860B", "linestyle": "-", "marker": "P"},
    "PM-OPT": {"color": "#7A5C00", "linestyle": "--", "marker": "*"},
    "HM-TP": {"color": "#5D3A9B", "linestyle": "-.", "marker": "o"},
    "OneBit": {"color": ACCENT, "linestyle": ":", "marker": "s"},
    "Optimal": {"color": ACCENT, "linestyle": "-", "marker": "o", "linewidth": 2.4},
    "two waves": {"color": ACCENT, "linestyle": "--", "marker": "D", "linewidth": 1.8},
    "default": {"color": ACCENT, "linestyle": "--", "marker": "D", "linewidth": 1.8},
    "typical": {"color": ACCENT, "linestyle": "-", "marker": "o", "linewidth": 2.4},
    "tailored": {"color": ACCENT, "linestyle": "-.", "marker": "^", "linewidth": 1.8},
    "codebook": {"color": ACCENT, "linestyle": "-", "marker": "*", "linewidth": 2.4, "markersize": 9.0},
    "not private": {"color": "black", "linestyle": ":", "marker": "."},
}


def style(name: str, *, marker: bool = True) -> dict[str, Any]:
    """Keyword arguments of `plot` for one mechanism."""
    chosen = {"linewidth": 1.3, "markersize": 4.5, **STYLES[name]}
    if not marker:
        chosen.pop("marker")
        chosen.pop("markersize")
    return chosen


def label(name: str) -> str:
    """The name as the legend shows it."""
    ours = STYLES[name]["color"] == ACCENT
    return f"{name} (ours)" if ours else name


def panels(rows: int, columns: int, *, size: tuple[float, float], legend: bool = True) -> tuple[Any, Any]:
    """A figure with `rows` x `columns` axes (always a 2-d array)."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for axis in axes.flat:
        axis.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def legend_right(figure: Any, axis: Any, title: str | None = None) -> None:
    """One legend for all panels, to the right of them."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize=9, frameon=False, title=title)


def epsilon_axis(axis: Any, epsilons: list[float], text: str = "epsilon") -> None:
    """A logarithmic axis with plain numbers at the epsilons given."""
    axis.set_xscale("log")
    axis.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axis.set_xticks([], minor=True)
    axis.set_xlabel(text)
