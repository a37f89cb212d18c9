"""An answer to take along: code that asks for it again in Python, SQL or curl, and its numbers in a file.

The copied text asks for as much as was bought: asked again, it is free and the same. The key stays out: it is
read from the environment, so that nobody pastes it anywhere.
"""

from __future__ import annotations

import json
import math
import shlex
from urllib.parse import quote

from reticent.privacy.budget import UNITS_PER_ONE, cap_units
from reticent.query import Answer
from reticent.query.answers import Case
from reticent.query.language.sql_text import written
from reticent.query.language.tree import to_json
from reticent.service.showing import plain

KEY = "RETICENT_KEY"
FORMATS = {"csv": "text/csv; charset=utf-8", "json": "application/json"}
_ANY = 0.001  # information for a question that the declaration answers: it costs nothing


def of(answer: Answer, name: str, address: str) -> list[dict[str, str]]:
    """Return each form in which an answer can be asked for again, with its text.

    Args:
        answer: Answer to copy.
        name: Name of the data set.
        address: Address of the service, with a slash at its end.
    """
    sql = written(answer.query, name)
    asked = sql if sql is not None else to_json(answer.query)
    much = _ANY if answer.case is Case.PUBLIC else information(answer.information)
    python = (
        "import os\n\nimport reticent\n\n"
        f'with reticent.open({address + quote(name)!r}, key=os.environ["{KEY}"]) as session:\n'
        f"    print(session.ask({asked!r}, information={much!r}))\n"
    )
    body = shlex.quote(json.dumps({"query": asked, "information": much}))
    curl = (
        f'curl -sS -H "Authorization: Bearer ${KEY}" -H "Content-Type: application/json" \\\n'
        f"  -d {body} \\\n  {shlex.quote(f'{address}api/v1/datasets/{quote(name)}/ask')}\n"
    )
    found = [{"name": "Python", "text": python}, {"name": "curl", "text": curl}]
    return found if sql is None else [found[0], {"name": "SQL", "text": sql + "\n"}, found[1]]


def information(units: int) -> float:
    """Return the number that asks for so many units: read back, it rounds down, and not below them."""
    found = units / UNITS_PER_ONE
    while cap_units(found) < units:
        found = math.nextafter(found, math.inf)
    return found


def file(answer: Answer, form: str) -> str:
    """Return the text of a download, in one of `FORMATS`."""
    if form == "json":
        return json.dumps(plain(answer.to_json()), indent=1, allow_nan=False) + "\n"
    return answer.to_csv()
