"""The audit as a page and as a plot, and the form that all reports have.

A page is one file without a script and without anything fetched from elsewhere: a table and bars drawn in
SVG, light or dark as the reader's system is, narrow enough for a phone. The plot needs matplotlib.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from pathlib import Path

from reticent.audit.findings import Finding
from reticent.audit.gate import Report
from reticent.errors import MissingExtra
from reticent.files import appearing
from reticent.ledger.audits import mark

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --dim: #5d6878; --paper: #fbfbfa;
  --line: #d9dde3; --bar: #c9d6ea; --exact: #2c5fa8; --lower: #0d7a5f; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --dim: #9aa5b4; --paper: #14181f;
  --line: #333b47; --bar: #2b3a52; --exact: #7fb0f5; --lower: #5cc9a7; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 0 auto; max-width: 66rem; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; }
p { margin: .4rem 0; }
.dim { color: var(--dim); font-size: .9rem; }
.bad { color: var(--bad); font-weight: 600; }
.verdict { font-size: 1.1rem; font-weight: 600; }
.row { border-top: 1px solid var(--line); padding: .55rem 0; display: grid; gap: .1rem 1rem;
  grid-template-columns: 11rem minmax(10rem, 1fr) 22rem; align-items: center; }
.figures { font-size: .88rem; font-variant-numeric: tabular-nums; }
.figures span { display: inline-block; min-width: 5.4rem; margin-right: .6rem; }
svg { width: 100%; height: 26px; display: block; }
details { grid-column: 1 / -1; font-size: .88rem; }
summary { cursor: pointer; color: var(--dim); }
ul { margin: .3rem 0; padding-left: 1.1rem; overflow-wrap: anywhere; }
.key span { display: inline-block; margin-right: 1.2rem; }
.key i { display: inline-block; width: .8rem; height: .8rem; margin-right: .35rem; vertical-align: -1px; }
@media (max-width: 46rem) { .row { grid-template-columns: 1fr; } .figures span { min-width: 0; } }
"""

_WORDS = """
<h2>What the figures mean</h2>
<p><b>Exact</b> is the largest log-ratio between any two of the inputs compared, in rational arithmetic:
it must not be above the claim. For vector noise and the discrete Gaussian it comes from a structural check.
<b>Measured</b> is a lower bound on the true loss from outputs alone, wrong with probability at most 1e-6:
above the claim it convicts, below it proves nothing. The bound <b>at 95 %</b> is above a true claim in up
to 5 % of audits, and convicts nobody. <b>p</b> compares the sampler with its exact law,
corrected for all tests made; an audit fails at 1e-6. Support, totality and streams are looked at as well.</p>
<p>A report on a right mechanism fails by chance with probability at most 4e-6. An audit sees neither inputs
that were not tried nor deviations smaller than its draws resolve; it does not replace a proof.</p>
"""


def page(reports: Sequence[Report], *, title: str = "Audit of every mechanism", made: str = "") -> str:
    """Return the page as text.

    Args:
        reports: Reports in the order in which they are shown.
        title: Title of the page.
        made: Line on when and how the audit was made.
    """
    failed = [report for report in reports if not report.passed]
    verdict = (
        f'<p class="verdict bad">{len(failed)} of {len(reports)} audits found a fault.</p>'
        if failed
        else f'<p class="verdict">{len(reports)} audits, nothing found against any claim.</p>'
    )
    rows = "\n".join(_row(report) for report in reports)
    body = f"""{verdict}
<p class="dim">{html.escape(made)}</p>
<p class="key dim"><span><i style="background:var(--bar)"></i>claimed</span>
<span><i style="background:var(--exact);width:3px"></i>exact</span>
<span><i style="background:var(--lower);border-radius:50%"></i>measured, at least</span></p>
{rows}
{_WORDS}"""
    return document(title, body)


def document(title: str, body: str, *, style: str = "") -> str:
    """Return a complete page around its content, with a fresh nonce by which a ledger can commit to it."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{mark()}
<title>{html.escape(title)}</title><style>{_STYLE}{style}</style></head><body>
<h1>{html.escape(title)}</h1>
{body}
</body></html>
"""


def findings_list(findings: Sequence[Finding]) -> str:
    """Format findings as a list, those against a claim in the colour of faults."""
    items = "".join(
        f"<li{'' if found.passed else ' class=bad'}><b>{html.escape(found.check)}</b>: "
        f"{html.escape(found.detail)}</li>"
        for found in findings
    )
    return f"<ul>{items}</ul>"


def write_page(reports: Sequence[Report], path: Path, *, made: str = "") -> None:
    """Write the page, and create missing folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with appearing(path) as file:
        file.write(page(reports, made=made).encode())


def _row(report: Report) -> str:
    figures = "".join(f"<span>{html.escape(part)}</span>" for part in figures_of(report))
    state = "" if report.passed else ' <span class="bad">fails</span>'
    is_open = "" if report.passed else " open"
    return f"""<div class="row"><div><b>{html.escape(report.name)}</b>{state}<br>
<span class="dim">{html.escape(report.notion)} {report.claimed:g}</span></div>
{_bar(report)}
<div class="figures">{figures}</div>
<details{is_open}><summary>all checks</summary>{findings_list(report.findings)}</details></div>"""


def figures_of(report: Report) -> list[str]:
    """Return the figures of a report in words: exact, measured, at 95 %, p."""
    parts = []
    if report.exact is not None:
        lost = "no law" if math.isnan(report.exact.loss) else f"{report.exact.loss:.6g}"
        parts.append(f"exact {lost}")
    if report.black_box is not None:
        parts.append(f"measured {report.black_box.lower:.4g}")
        parts.append(f"at 95 % {report.black_box.likely:.4g}")
    if report.fit is not None:
        parts.append(f"p {report.fit.p_value:.2g}")
    return parts


def _bar(report: Report) -> str:
    """Draw the claim as a bar to 80 % of the width, and the findings on the same scale, cut at the right."""

    def place(level: float) -> float:
        share = level / report.claimed if report.claimed else 0.0
        return min(98.0, 80.0 * share) if math.isfinite(share) else 98.0

    parts = ['<rect x="0" y="7" width="80%" height="12" rx="2" style="fill:var(--bar)"/>']
    if report.exact is not None and not math.isnan(report.exact.loss):
        colour = "--exact" if report.exact.passed else "--bad"
        x = place(report.exact.loss)
        parts.append(f'<rect x="{x:.2f}%" y="3" width="3" height="20" style="fill:var({colour})"/>')
    if report.black_box is not None:
        colour = "--lower" if report.black_box.passed else "--bad"
        x = max(2.0, place(report.black_box.lower))
        parts.append(f'<circle cx="{x:.2f}%" cy="13" r="5" style="fill:var({colour})"/>')
    label = html.escape(", ".join([f"claimed {report.claimed:g}", *figures_of(report)]))
    return f'<svg role="img" aria-label="{label}">{"".join(parts)}</svg>'


def plot(reports: Sequence[Report], path: Path) -> None:
    """Draw claimed against measured: one line per report, as shares of the claim."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtra("the plot", "plot") from error
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.0, 1.5 + 0.27 * len(reports)), layout="constrained")
    for row, report in enumerate(reversed(list(reports))):
        colour = "tab:green" if report.passed else "tab:red"
        axes.barh(row, report.claimed, color="0.85", height=0.55)
        if report.black_box is not None:
            lower = report.black_box.lower
            axes.plot([lower, max(lower, report.claimed)], [row, row], color=colour, linewidth=1)
            axes.plot(lower, row, "o", color=colour)
        if report.exact is not None and math.isfinite(report.exact.loss):
            axes.plot(report.exact.loss, row, "|", color="tab:blue", markersize=13, markeredgewidth=2)
    names = [f"{report.name}, {report.notion} {report.claimed:g}" for report in reversed(list(reports))]
    axes.set_yticks(range(len(reports)), names)
    axes.plot([], [], "s", color="0.85", label="claimed")
    axes.plot([], [], "|", color="tab:blue", markersize=12, markeredgewidth=2, label="exact, of the law")
    axes.plot([], [], "o", color="tab:green", label="measured: at least (false alarm 1e-6)")
    axes.set_xlabel("loss")
    axes.set_xlim(left=0.0)
    axes.set_ylim(-0.7, len(reports) - 0.3)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
