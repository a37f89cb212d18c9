"""Many questions in one text: SQL statements, with how exact they shall be beside them.

    -- error 60
    SELECT sex, COUNT(*) FROM census GROUP BY sex;
    SELECT COUNT(*) FROM census WHERE age >= 40;
    -- error 30000 rows 2000
    SELECT AVG(income) FROM census WHERE age >= 40;

A line that begins with `-- error` holds for what follows it; other comments say nothing.
"""

from __future__ import annotations

import re
from dataclasses import replace

from reticent.errors import ParameterError
from reticent.query.accuracy import Accuracy
from reticent.query.language.tree import shown

LONGEST = 1 << 18  # characters of a text
_EXACTNESS = re.compile(r"--\s*error\s+(\S+)(?:\s+rows\s+(\S+))?\s*")
_STATEMENT = re.compile(r"""(?:[^;'"]|'[^']*'|"[^"]*"|['"])+""")


def questions(text: str, accuracy: Accuracy | None = None) -> list[tuple[str, Accuracy]]:
    """The statements of a text, each with how exact its answer shall be.

    Args:
        text: SQL statements, each but the last ended by a semicolon.
        accuracy: of those that no line says it for.
    """
    if len(text) > LONGEST:
        raise ParameterError(f"workload must be at most {LONGEST} characters, got {len(text)}")
    found: list[tuple[str, Accuracy]] = []
    for said, own in _parts(text, accuracy):
        for statement in map(str.strip, _STATEMENT.findall(said)):
            if not statement:
                continue
            if own is None:
                raise ParameterError("workload must say how exact: a line -- error 60 before the first "
                                     "question, or one error for all")  # fmt: skip
            found.append((statement, own))
    if not found:
        raise ParameterError("workload must have at least one question, got none")
    return found


def _parts(text: str, accuracy: Accuracy | None) -> list[tuple[str, Accuracy | None]]:
    """Text between the lines that say how exact, without other comments."""
    parts: list[tuple[list[str], Accuracy | None]] = [([], accuracy)]
    for line in text.splitlines():
        if not line.lstrip().startswith("--"):
            parts[-1][0].append(line)
        elif (exact := _EXACTNESS.fullmatch(line.strip())) is not None:
            parts.append(([], _accuracy(exact, accuracy)))
    return [("\n".join(lines), own) for lines, own in parts]


def _accuracy(exact: re.Match[str], otherwise: Accuracy | None) -> Accuracy:
    error, rows = exact.groups()
    try:
        half, many = float(error), None if rows is None else int(rows)
    except ValueError as err:
        raise ParameterError(f"workload: error and rows must be numbers, got {shown(exact[0])}") from err
    wanted = Accuracy(error=half, rows=many)
    return wanted if otherwise is None else replace(wanted, confidence=otherwise.confidence)
