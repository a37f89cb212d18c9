"""A page that shows what a server learns from updates: the truth, what was sent, and what was rebuilt."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.audit.findings import Finding
from reticent.audit.leakage.gradients import GradientAudit
from reticent.audit.page import document, findings_list
from reticent.mechanisms.base import Floats

_MOST_RECORDS, _MOST_NUMBERS, _LEAST_SIDE = 8, 24, 8
_STYLE = """
.exhibit { border-top: 1px solid var(--line); padding: .8rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; margin: .5rem 0; }
th, td { text-align: right; padding: .2rem .7rem .2rem 0; border-bottom: 1px solid var(--line); }
th:first-child { text-align: left; }
.pictures { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: .5rem 0; } figcaption { font-size: .88rem; color: var(--dim); }
svg.picture { width: 9rem; height: 9rem; background: #000; border: 1px solid var(--line); }
"""
_WORDS = """
<h2>What this means</h2>
<p>A server that receives an update can compute the records behind it wherever the update determines them.
Nothing rebuilt is no guarantee: an attack that fails proves nothing, noise with a guarantee does.</p>
"""


@dataclass(frozen=True)
class Exhibit:
    """An update or a reply as shown on the page: its source, what left, and what was rebuilt.

    Attributes:
        title: Title of the exhibit.
        found: True if a record was rebuilt, or something else was found.
        lines: Lines that say what the server learns, in words.
        truth: Records, shape (records, numbers); None where nobody knows them.
        sent: Description of what left, a line for each part.
        rebuilt: Records as the server has them; None for none.
        columns: Names of the numbers of a record.
        shape: Shape of records that are pictures; None for those that look like none.
        label: Name under which `rebuilt` is shown.
    """

    title: str
    found: bool
    lines: Sequence[str]
    truth: Floats | None
    sent: Sequence[str]
    rebuilt: Floats | None
    columns: Sequence[str] = ()
    shape: tuple[int, int] | None = None
    label: str = "rebuilt by the server"


def of_update(
    audit: GradientAudit,
    sent: Mapping[str, Any],
    *,
    title: str,
    columns: Sequence[str] = (),
    shape: tuple[int, int] | None = None,
) -> Exhibit:
    """Return an audit of one update; `sent` are the arrays that left, by name."""
    rebuilt = audit.leak.candidates[0].records if audit.found else None
    return Exhibit(title, audit.found, audit.lines, audit.truth, sent_lines(sent), rebuilt, columns, shape)


def sent_lines(arrays: Mapping[str, Any]) -> list[str]:
    """Arrays in words: name, shape, the first numbers."""
    said = []
    for name, given in arrays.items():
        array = np.asarray(given)
        few = ", ".join(f"{number:.4g}" for number in array.reshape(-1)[:6].tolist())
        shape = " x ".join(map(str, array.shape)) or "1"
        said.append(f"{name} ({shape}): {few}{', ...' if array.size > 6 else ''}")
    return said


def leak_page(
    exhibits: Sequence[Exhibit],
    *,
    title: str,
    made: str = "",
    findings: Sequence[Finding] = (),
    notes: Sequence[str] = (),
) -> str:
    """Return the page as text.

    Args:
        exhibits: Exhibits in the order in which they are shown.
        title: Title of the page.
        made: Line on when and how the page was made.
        findings: Findings about everything else that left.
        notes: Notes on what was not looked at, and why.
    """
    bad = sum(one.found for one in exhibits) + sum(not one.passed for one in findings)
    verdict = (
        '<p class="verdict bad">The server learns what it should not.</p>'
        if bad
        else '<p class="verdict">Nothing was found that the server should not learn.</p>'
    )
    parts = [verdict, f'<p class="dim">{html.escape(made)}</p>']
    if findings:
        parts += ["<h2>Everything that leaves</h2>", findings_list(findings)]
    parts += [_exhibit(one) for one in exhibits]
    parts += [f"<p>{html.escape(note)}.</p>" for note in notes]
    return document(title, "\n".join([*parts, _WORDS]), style=_STYLE)


def _exhibit(one: Exhibit) -> str:
    words = "".join(
        f"<p{_bad(one.found and not n)}>{html.escape(line)}</p>" for n, line in enumerate(one.lines)
    )
    sent = "".join(f"<li>{html.escape(line)}</li>" for line in one.sent)
    return f"""<div class="exhibit"><h2>{html.escape(one.title)}</h2>
{words}
{_records(one)}
<details><summary>what was sent</summary><ul>{sent or "<li>nothing</li>"}</ul></details></div>"""


def _bad(is_bad: bool) -> str:
    return ' class="bad"' if is_bad else ""


def _records(one: Exhibit) -> str:
    """Truth and what was rebuilt beside each other; records that were rebuilt are put to the nearest true."""
    known = one.rebuilt if one.truth is None else one.truth
    if known is None:
        return ""
    pairs = _paired(one.truth, one.rebuilt)[:_MOST_RECORDS]
    shape = one.shape or _square(known.shape[1])
    drawn = [
        _pictures(pair, shape, one.label) if shape else _table(pair, one.columns, one.label) for pair in pairs
    ]
    more = len(known) - len(pairs)
    note = f'<p class="dim">{more} more are not shown.</p>' if more > 0 else ""
    return "".join(drawn) + note


def _paired(truth: Floats | None, rebuilt: Floats | None) -> list[tuple[Floats | None, Floats | None]]:
    if truth is None:
        return [(None, one) for one in ([] if rebuilt is None else rebuilt)]
    if rebuilt is None or rebuilt.shape[1] != truth.shape[1]:
        return [(one, None) for one in truth]
    gaps = np.abs(truth[:, None, :] - rebuilt[None, :, :]).max(axis=2)
    return [(one, rebuilt[int(gaps[place].argmin())]) for place, one in enumerate(truth)]


def _square(numbers: int) -> tuple[int, int] | None:
    side = math.isqrt(numbers)
    return (side, side) if side * side == numbers and side >= _LEAST_SIDE else None


def _table(pair: tuple[Floats | None, Floats | None], columns: Sequence[str], label: str) -> str:
    rows = {"truth": pair[0], label: pair[1]}
    known = pair[1] if pair[0] is None else pair[0]
    assert known is not None
    names = list(columns) or [f"x{place}" for place in range(known.size)]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names[:_MOST_NUMBERS])
    body = ""
    for name, row in rows.items():
        if row is None and pair[0] is None:
            continue
        cells = (
            f'<td colspan="{min(known.size, _MOST_NUMBERS)}">nothing</td>'
            if row is None
            else "".join(f"<td>{number:.6g}</td>" for number in row[:_MOST_NUMBERS].tolist())
        )
        body += f"<tr><th>{html.escape(name)}</th>{cells}</tr>"
    cut = "" if known.size <= _MOST_NUMBERS else f'<p class="dim">The first {_MOST_NUMBERS} numbers.</p>'
    return f'<div class="wide"><table><tr><th></th>{head}</tr>{body}</table></div>{cut}'


def _pictures(pair: tuple[Floats | None, Floats | None], shape: tuple[int, int], label: str) -> str:
    truth, rebuilt = pair
    known = rebuilt if truth is None else truth
    assert known is not None
    low, high = float(known.min()), float(known.max())
    found = []
    if truth is not None:
        found.append(_picture(truth, shape, low, high, "truth"))
    words = label if rebuilt is not None else f"{label}: nothing"
    found.append(_picture(rebuilt, shape, low, high, words))
    return f'<div class="pictures">{"".join(found)}</div>'


def _picture(pixels: Floats | None, shape: tuple[int, int], low: float, high: float, words: str) -> str:
    rows, columns = shape
    cells = ""
    if pixels is not None:
        spread = high - low or 1.0
        shades = np.clip(np.nan_to_num((pixels - low) / spread), 0.0, 1.0).reshape(rows, columns)
        cells = "".join(
            f'<rect x="{x}" y="{y}" width="1.02" height="1.02" fill="rgb({s},{s},{s})"/>'
            for y, line in enumerate(np.round(255 * shades).astype(int).tolist())
            for x, s in enumerate(line)
            if s
        )
    return (
        '<figure><svg class="picture" shape-rendering="crispEdges" role="img" '
        f'aria-label="{html.escape(words)}" viewBox="0 0 {columns} {rows}">{cells}</svg>'
        f"<figcaption>{html.escape(words)}</figcaption></figure>"
    )
