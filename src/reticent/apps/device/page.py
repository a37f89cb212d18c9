"""The statement of a device's ledger as one HTML page in words, which loads nothing from elsewhere."""

from __future__ import annotations

from html import escape

from reticent.ledger.device import statement
from reticent.ledger.device.statement import Room, Series, Statement

_KINDS = {"survey": "Survey", "task": "Training", "round": "Places"}

_STYLE = """
:root { color-scheme: light dark; --ink: #16191d; --paper: #fff; --soft: #5b6470; --line: #d5dae0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eef1f4; --paper: #14171b; --soft: #a8b1bd; --line: #3a424d; }
}
html { background: var(--paper); color: var(--ink); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .3rem; }
.soft { color: var(--soft); } .wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; min-width: 34rem; }
th, td { text-align: left; vertical-align: top; padding: .45rem .8rem .45rem 0; }
th, td { border-bottom: 1px solid var(--line); }
th.right, td.right { text-align: right; white-space: nowrap; }
meter { width: 100%; height: 1.2rem; }
""".strip()


def made(found: Statement) -> str:
    """Build the HTML page of a statement."""
    parts = [
        "<h1>What this device has told</h1>",
        "<p>Whatever left this device was made noisy first, and is written down in its ledger. Here is whom "
        "it told something, why they asked, and how much it can reveal about you.</p>",
        *_total(found),
        *(part for room in found.rooms for part in _room(room, found)),
    ]
    if not found.rooms:
        parts.append("<p>Nobody was told anything.</p>")
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>What this device has told</title><style>{_STYLE}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def _total(found: Statement) -> list[str]:
    parts = ['<h2 id="all">In all</h2>']
    if found.total is not None:
        share = found.total.spent / found.total.terms.cap
        parts.append(
            f'<meter min="0" max="1" value="{share:.4f}" aria-labelledby="all">{100 * share:.3g} %</meter>'
        )
    return parts + [f"<p>{escape(one)}</p>" for one in statement.sentences(found)]


def _room(room: Room, found: Statement) -> list[str]:
    name = escape(statement.kind(room.balance.terms))
    head = "".join(
        f'<th scope="col"{" class=right" if right else ""}>{title}</th>'
        for title, right in (("Who", 0), ("Why", 0), ("When", 0), ("Reports", 1), ("Cost", 1), ("Share", 1))
    )
    rows = "".join(_row(one, room, found) for one in room.series)
    return [
        f"<h2>{name}</h2>",
        f'<p class="soft">{escape(left(room))}</p>',
        f'<div class="wide" role="region" aria-label="{name}" tabindex="0"><table><thead><tr>{head}'
        f"</tr></thead><tbody>{rows or _nobody()}</tbody></table></div>",
    ]


def _nobody() -> str:
    return '<tr><td colspan="6" class="soft">Nobody yet.</td></tr>'


def _row(one: Series, room: Room, found: Statement) -> str:
    cells = [("", who(one)), ("", why(one)), ("", when(one)), ("right", f"{one.reports}")]
    cells += [("right", statement.amount(room.balance.terms.unit, one.units)), ("right", share(one, found))]
    first, *others = cells
    return (
        f'<tr><th scope="row">{escape(first[1])}</th>'
        + "".join(f"<td{' class=' + style if style else ''}>{escape(text)}</td>" for style, text in others)
        + "</tr>"
    )


def left(room: Room) -> str:
    """Return in words how much of an account is spent and how much is left."""
    unit, balance = room.balance.terms.unit, room.balance
    return (
        f"{statement.amount(unit, balance.spent)} of {statement.amount(unit, balance.terms.cap)} spent, "
        f"{1000 * balance.remaining // balance.terms.cap / 10:g} % left"
    )


def who(one: Series) -> str:
    """Return in words who received a series of reports."""
    if one.told is None:
        return f"{one.head.partition('/')[0]} (an earlier release noted no name)"
    return f"{_KINDS.get(one.told.what, one.told.what)} {one.told.name}, key {one.told.signer[:8]}"


def why(one: Series) -> str:
    """Return the purpose that a recipient gave for a series of reports; empty if none was noted."""
    return "" if one.told is None else one.told.purpose


def when(one: Series) -> str:
    """Return the first and the last day of a series of reports."""
    if one.told is None:
        return "not noted"
    return one.told.first if one.told.first == one.told.last else f"{one.told.first} to {one.told.last}"


def share(one: Series, found: Statement) -> str:
    """Return the share of the lifetime that a series of reports has spent."""
    if found.total is None:
        return "none is set"
    return f"{100 * one.of_lifetime / found.total.terms.cap:.3g} %"
