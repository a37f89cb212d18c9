"""Which rows of a person count: those that come first in a secret order that no value decides.

A declaration counts at most so many rows of each person. From format 2 on, a person's rows are ordered by a
keyed hash of the person, the codes of the row and its number among the person's rows with the same codes. So
every row of a person has the same chance to count, whatever it holds. In format 1 the rows with the least
codes count, and categories that are declared late lose nearly all of theirs.

Privacy: the rows that count are a function of the key and of that person's rows alone. One person who comes,
goes or changes moves at most `contribution` rows, and no row of anybody else. The key keeps a person from
choosing codes that come first, and others from knowing which rows count. It is made once for the rows of a
data set (`declarations.home`), stays secret and never changes: under two keys, other rows would be measured.

Every engine hashes the same text with SHA-256, so all of them keep the same rows. Rows of a person with the
same codes are interchangeable, so their numbers need no order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from reticent.errors import ParameterError
from reticent.query.declarations.datasets import DataSet
from reticent.query.rows.bins import POSTGRES, SPARK

FIRST_FORMAT = 2  # of declarations whose rows are chosen by the secret order
_KEY = re.compile(r"[0-9a-f]{64}")


def needs_order_key(data: DataSet) -> bool:
    """Return whether the rows of each person are chosen by a secret key."""
    return data.person is not None and data.format >= FIRST_FORMAT


def is_order_key(text: str) -> bool:
    """Return whether a text is a key: 64 hexadecimal digits."""
    return _KEY.fullmatch(text) is not None


def check_order_key(order_key: str | None) -> str:
    """Return the key, or refuse rows that nobody brought the key of."""
    if order_key is None or not is_order_key(order_key):
        raise ParameterError(
            "the key that orders the rows of each person is missing: open the data set by its declaration, "
            "beside which the folder .reticent holds it"
        )
    return order_key


def keep_rows(table: Any, codes: Sequence[str], contribution: int, engine: str, order_key: str | None) -> Any:
    """Return at most `contribution` rows of each person, and none of nobody's.

    Args:
        table: An ibis table with the codes and a column `person`, NULL where a row is nobody's.
        codes: Names of the columns with codes.
        contribution: Rows of one person that count.
        engine: Name of the ibis back end.
        order_key: The secret key, 64 hexadecimal digits.
    """
    import ibis

    key = check_order_key(order_key)
    table = table.filter(table.person.notnull())
    alike = ibis.window(group_by=[table.person, *(table[name] for name in codes)], order_by=[table[codes[0]]])
    table = table.mutate(number=ibis.row_number().over(alike))
    table = table.mutate(digest=_digest(_row_text(table, codes, key), engine))
    of_a_person = ibis.window(group_by=table.person, order_by=[table.digest])
    ranked = table.mutate(rank=ibis.row_number().over(of_a_person))  # from 0
    return ranked.filter(ranked["rank"] < contribution)


def _row_text(table: Any, codes: Sequence[str], key: str) -> Any:
    """Return what is hashed: the key, the codes, the number, and the person last, who may be any text."""
    import ibis

    person = table.person if table.person.type().is_string() else "x" + table.person.cast("string")
    text = ibis.literal(f"{key}:")
    for name in (*codes, "number"):
        text = text + table[name].cast("string") + ","
    return text + person


def _digest(text: Any, engine: str) -> Any:
    """Return the SHA-256 of a text: bytes on PostgreSQL, whose texts have collations, else lower-case hex."""
    sha256, to_bytes, sha2 = _functions()
    if engine == POSTGRES:
        return sha256[0](to_bytes(text, "UTF8"))
    return sha2(text, 256) if engine == SPARK else sha256[1](text)


@cache
def _functions() -> tuple[tuple[Any, Any], Any, Any]:
    """Return the engines' own functions."""
    import ibis

    @ibis.udf.scalar.builtin(name="sha256", signature=(("binary",), "binary"))
    def sha256_bytes(data): ...  # type: ignore[no-untyped-def]

    @ibis.udf.scalar.builtin(name="sha256", signature=(("string",), "string"))
    def sha256_text(text): ...  # type: ignore[no-untyped-def]

    @ibis.udf.scalar.builtin(name="convert_to", signature=(("string", "string"), "binary"))
    def convert_to(text, encoding): ...  # type: ignore[no-untyped-def]

    @ibis.udf.scalar.builtin(name="sha2", signature=(("string", "int32"), "string"))
    def sha2(text, bits): ...  # type: ignore[no-untyped-def]

    return (sha256_bytes, sha256_text), convert_to, sha2
