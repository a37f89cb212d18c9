"""Draw README's picture, docs/images/budget.svg: questions, and what each leaves of the budget.

Run as `make picture`. The costs are those of a run on the synthetic census. They are arithmetic on the
declaration and the questions, so that the picture is the same each time, whatever noise was drawn; a test
draws it again and compares.
"""

import sys
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

import reticent
from reticent.errors import QuestionRefused
from reticent.numerals import up
from reticent.query import census

PICTURE = Path(__file__).parents[1] / "images" / "budget.svg"
AVERAGE = "SELECT AVG(income) FROM census WHERE age >= 40"
AGAIN = "SELECT AVG(income) FROM census WHERE NOT age < 40"
BY_RACE = "SELECT race, AVG(hours) FROM census GROUP BY race"
# who asks, what, and how exactly
ASKED = [
    ("Alice", AVERAGE, 2500, 2000),
    ("Bob", AGAIN, 2500, 2000),
    ("Bob", AVERAGE, 2000, 2000),
    ("Carol", BY_RACE, 2, 200),
    ("Carol", AVERAGE, 200, 2000),
]
HEAD, ROW, BAR, LEFT, WIDTH = 70, 52, 416, 520, 960
INK, QUIET, SPENT, NOW, ROOM = "#1f2430", "#5b6270", "#9aa5c4", "#3949ab", "#e8eaf3"


def charges():
    """(who, question, error, share charged now or None if refused, share spent before) of each question."""
    with tempfile.TemporaryDirectory() as folder, reticent.open(census.write(folder)) as session:
        cap = session.balance().terms.cap
        for who, question, error, rows in ASKED:
            before = session.balance().spent
            try:
                now = session.ask(question, error=error, rows=rows).cost
            except QuestionRefused:
                yield who, question, error, None, before / cap
            else:
                yield who, question, error, now / cap, before / cap


def words(share, earlier):
    """What is said of a charge."""
    if share is None:
        return "refused: more than is left, nothing is charged"
    if share == 0:
        return "free: the same question in other words"
    return f"{up(100 * share, 3)} %{', the difference to the first' if earlier else ''}"


def text(x, y, said, *, size=14, colour=INK, family="sans-serif", weight="normal"):
    """One line of text."""
    style = f'font-family="{family}" font-size="{size}" font-weight="{weight}" fill="{colour}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(said)}</text>'


def drawn(rows):
    """The picture."""
    height = HEAD + ROW * len(rows) + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="Five questions and what each leaves of the privacy budget">',
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#ffffff" stroke="#d5d8e3"/>',
        text(24, 40, "Who asks, and what", size=16, weight="bold"),
        text(LEFT, 40, "The budget, for ever", size=16, weight="bold"),
    ]
    bought = set()
    for number, (who, question, error, share, before) in enumerate(rows):
        y = HEAD + ROW * number
        refused = share is None
        parts += [
            text(24, y + 14, f"{who}, ± {error:,}", weight="bold"),
            text(24, y + 32, question, size=13, colour=QUIET, family="monospace"),
            f'<rect x="{LEFT}" y="{y}" width="{BAR}" height="14" rx="3" fill="{ROOM}"/>',
            f'<rect x="{LEFT}" y="{y}" width="{BAR * before:.1f}" height="14" rx="3" fill="{SPENT}"/>',
        ]
        if share:
            place, wide = LEFT + BAR * before, BAR * share
            parts.append(
                f'<rect x="{place:.1f}" y="{y}" width="{wide:.1f}" height="14" rx="3" fill="{NOW}"/>'
            )
        colour = "#b3261e" if refused else NOW
        parts.append(text(LEFT, y + 32, words(share, question in bought), size=13, colour=colour))
        bought.add(question)
    note = (
        "Each charge is in a signed log that anybody can verify; a witness elsewhere refuses an older copy."
    )
    parts += [text(24, height - 20, note, size=13, colour=QUIET), "</svg>"]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(drawn(list(charges())), encoding="utf-8")
    sys.stdout.write(f"{PICTURE.name}: {PICTURE.stat().st_size} bytes\n")
