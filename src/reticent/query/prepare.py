"""The rows as whole numbers: one expression per declared column, total whatever the source holds.

`Column` says what a value becomes; here it is said to the engine, as an ibis expression that is compiled once
per table. No cell may make a statement fail, drop a row or leave the declared range:

- a number is a text of the grammar below, or what an engine stores as a number. It is clamped as a double
  before it is divided by the step and rounded half to even, and the code is clamped once more unless the
  bounds show that it cannot be outside. NULL, NaN and every other text become the declared value;
- a category is an exact match of the text, a boolean one of a few words; all else is the declared value.

ibis gives the same meaning to DuckDB and PostgreSQL with one exception that matters: `try_cast` compiles to
a plain CAST on PostgreSQL, which fails on bad text. There, a text is cast to NUMERIC once the grammar has let
it pass, and clamped before it becomes a double.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from reticent.errors import ParameterError
from reticent.query.columns import Column, Kind
from reticent.query.datasets import DataSet

LONGEST_NUMBER = 200  # characters; a longer text is not a number
NUMBER = (
    r"^ *[+-]?(([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]{1,3})?|[iI][nN][fF]([iI][nN][iI][tT][yY])?) *$"
)
_ABOVE = r"^ *[+]?[iI]"  # among the numbers
_BELOW = r"^ *-[iI]"
TRUE_WORDS = ("true", "t", "yes", "1")
FALSE_WORDS = ("false", "f", "no", "0")
_MOST_BRANCHES = 64  # categories in one CASE; more of them are joined
_DOUBLE_DIGITS = 15  # a decimal of so few digits becomes the nearest double by one division
_TINY = Decimal("1e-300")  # smaller ones are zero: PostgreSQL refuses to make a double of 1e-400


def prepared(engine: Any, source: Any, data: DataSet) -> Any:
    """The table of codes `c0`, `c1`, ... in declared order.

    Args:
        engine: the ibis back end.
        source: its table with the owner's columns.
        data: what is declared.

    Raises:
        ParameterError: a column is not there, or of a type that cannot be read as declared. Names and types
            of the source's columns are public.
    """
    read = {
        f"v{number}": _read(_field(source, column.name), column, engine.name)
        for number, column in enumerate(data.columns)
    }
    person = {} if data.person is None else {"person": _field(source, data.person)}
    table = _written(engine, source.select(**read, **person))
    decimals = {
        f"v{number}": _clamped(table[f"v{number}"], column)
        for number, column in enumerate(data.columns)
        if table[f"v{number}"].type().is_decimal()
    }
    table = _written(engine, table.mutate(**decimals)) if decimals else table
    names = [f"c{number}" for number in range(len(data.columns))]
    long = [number for number, column in enumerate(data.columns) if len(column.values) > _MOST_BRANCHES]
    codes = {
        name: _code(table[f"v{number}"], data.columns[number]).cast("int64")
        for number, name in enumerate(names)
        if number not in long
    }
    table = table.mutate(**codes)
    for number in long:
        table = _joined(table, data.columns[number], f"v{number}", f"c{number}")
    if data.person is not None:
        table = _bounded(table, names, data.contribution)
    return table.select(*names)


def _written(engine: Any, table: Any) -> Any:
    """The same table, through text: ibis would repeat the reading of a value wherever the value is used."""
    return engine.sql(engine.compile(table), schema=table.schema())


def _bounded(table: Any, names: list[str], contribution: int) -> Any:
    """At most so many rows of each person, chosen by these rows alone.

    Rows with the same codes are interchangeable, so the choice does not depend on the order of the source.
    Rows without a person count together as one person.
    """
    import ibis

    of_a_person = ibis.window(group_by=table.person, order_by=[table[name] for name in names])
    ranked = table.mutate(rank=ibis.row_number().over(of_a_person))  # from 0
    return ranked.filter(ranked["rank"] < contribution)


def _field(source: Any, name: str) -> Any:
    if name not in source.columns:
        known = ", ".join(source.columns[:20])
        raise ParameterError(f"columns.{name}: the source has no such column, it has {known}")
    return source[name]


def _read(field: Any, column: Column, engine: str) -> Any:
    """What a cell says: a number, a truth value or a text; NULL or NaN if nothing that fits."""
    kind = field.type()
    is_text = kind.is_string() or kind.is_unknown()
    is_number = kind.is_numeric() or kind.is_boolean()
    text = field.cast("string") + ""  # makes a text of an enumeration, which ibis believes to be one
    if column.kind is Kind.CATEGORY:
        if is_text or is_number or kind.is_temporal() or kind.is_uuid():
            return text
    elif column.kind is Kind.BOOLEAN:
        if is_text or is_number:
            return _truth(text.lower() if is_text else field)
    elif is_text:
        return _number_in(text, column, engine)
    elif is_number:
        return field if kind.is_signed_integer() and _in_whole_steps(column) else _stored(field, engine)
    raise ParameterError(
        f"columns.{column.name}.type must fit the source, which holds {kind}, got {column.kind.value}"
    )


def _truth(cell: Any) -> Any:
    import ibis

    kind = cell.type()
    if kind.is_boolean():
        return cell
    if kind.is_numeric():
        return ibis.cases((cell == 1, True), (cell == 0, False))
    return ibis.cases((cell.isin(TRUE_WORDS), True), (cell.isin(FALSE_WORDS), False))


def _number_in(text: Any, column: Column, engine: str) -> Any:
    """The number that a text says, or NULL."""
    import ibis

    is_number = (text.length() <= LONGEST_NUMBER) & text.re_search(NUMBER)
    if engine == "duckdb":  # reads 1e400 and inf as infinity, 1e-400 as zero
        return ibis.cases((is_number, text.try_cast("float64")))
    return ibis.cases(
        (is_number & text.re_search(_BELOW), _decimal(column.low)),
        (is_number & text.re_search(_ABOVE), _decimal(column.high)),
        (is_number, text.cast("decimal")),
    )


def _stored(number: Any, engine: str) -> Any:
    """A stored number as a double, or as a decimal that is yet to be clamped."""
    import ibis

    kind = number.type()
    if kind.is_boolean():
        return ibis.cases((number, _literal(1.0)), (~number, _literal(0.0)))
    if not kind.is_decimal():
        return number.cast("float64")
    if engine != "duckdb":
        return number
    short = kind.precision is not None and kind.precision <= _DOUBLE_DIGITS
    return (number if short else number.cast("string")).cast("float64")


def _clamped(numeric: Any, column: Column) -> Any:
    """A NUMERIC of any size as a double within the bounds, NULL for NaN."""
    import ibis

    within = ibis.greatest(ibis.least(numeric, _decimal(column.high)), _decimal(column.low))
    return ibis.cases(
        (numeric.isnull() | (numeric.cast("string") == "NaN"), ibis.null("float64")),
        ((within < ibis.literal(_TINY)) & (within > ibis.literal(-_TINY)), _literal(0.0)),
        else_=within.cast("float64"),
    )


def _code(cell: Any, column: Column) -> Any:
    import ibis

    match column.kind:
        case Kind.CATEGORY:
            return _category_code(cell, column)
        case Kind.BOOLEAN:
            return ibis.cases((cell, 1), (~cell, 0), else_=column.missing_code)
        case _:
            return _number_code(cell, column)


def _number_code(number: Any, column: Column) -> Any:
    """In steps, rounded half to even, within [first, last]. DuckDB and PostgreSQL cast half to even."""
    import ibis

    if number.type().is_integer():  # only where a step is 1: no double is needed
        return ibis.greatest(ibis.least(number.coalesce(column.missing_code), column.last), column.first)
    clamped = ibis.greatest(ibis.least(number, _literal(column.high)), _literal(column.low))
    steps = clamped if column.step == 1.0 else clamped / _literal(column.step)
    within = steps.cast("int64")
    if not _ends_are_codes(column):
        within = ibis.greatest(ibis.least(within, column.last), column.first)
    return ibis.ifelse(number.isnull() | number.isnan(), column.missing_code, within)


def _in_whole_steps(column: Column) -> bool:
    """Whether a whole number is its own code once it is clamped to [first, last]."""
    return column.step == 1.0 and _ends_are_codes(column)


def _ends_are_codes(column: Column) -> bool:
    """Whether the bounds become the first and last code.

    Dividing and rounding change no order, so then everything between the bounds lies between the two.
    """
    assert column.low is not None
    assert column.high is not None
    assert column.step is not None
    ends = round(column.low / column.step), round(column.high / column.step)
    return ends == (column.first, column.last)


def _category_code(text: Any, column: Column) -> Any:
    import ibis

    return ibis.cases(
        *((text == one, code) for code, one in enumerate(column.values)), else_=column.missing_code
    )


def _joined(table: Any, column: Column, value: str, code: str) -> Any:
    """The codes of a long list of categories, looked up in a table of them."""
    import ibis

    values = ibis.literal(list(column.values), "array<string>").unnest()
    codes = ibis.literal(list(range(len(column.values))), "array<int64>").unnest()
    listed = ibis.literal(1).as_table().select(value=values, code=codes)
    both = table.left_join(listed, table[value] == listed.value)
    kept = [both[name] for name in table.columns]
    return both.select(*kept, both.code.coalesce(column.missing_code).name(code))


def _literal(number: float | None) -> Any:
    """A double, exactly: a bare 0.01 would be a decimal to the engine."""
    import ibis

    assert number is not None
    return ibis.literal(repr(number)).cast("float64")


def _decimal(number: float | None) -> Any:
    import ibis

    assert number is not None
    return ibis.literal(Decimal(repr(number)))
