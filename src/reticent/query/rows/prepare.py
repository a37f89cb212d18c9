"""The rows as whole numbers: one expression per declared column, total whatever the source holds.

`Column` says what a value becomes and `tables.cells` what a cell says; here both are said to the engine, as
an ibis expression that is compiled once per table. No cell may make a statement fail, drop a row or leave the
declared range, and no type of a column may change what its cells say, since one odd row can change the type:

- a number is what an engine stores as a number or a truth value, or a text that says one. It is clamped as a
  double before it is divided by the step and rounded half to even, and the code is clamped once more unless
  the bounds show that it cannot be outside. NULL, NaN and all else become the declared value;
- a category is a cell that says the same as one that is declared, a boolean one that says 1 or 0; all else is
  the declared value;
- from format 2 of declarations on, a day is a number, too (`day_numbers`); a category that says something
  else is `other`; and beside the codes stands which cells of numbers and booleans say something that cannot
  be read (`u0`, `u1`, ...);
- a person is all cells that say the same whole number below 2^53, or the same text that says no number and no
  moment. All other rows are nobody's, and do not count: see `_person`.

ibis gives the same meaning to DuckDB, PostgreSQL and Spark with exceptions that matter. `try_cast` compiles
to a plain CAST on PostgreSQL, which fails on bad text. There, a text is cast to NUMERIC once the grammar has
let it pass, and becomes a double only where one exists. Spark cuts off where it casts to whole numbers, so
that it rounds before; the end of a pattern is to it also before a last line break; and it takes one generator
of rows in a SELECT. And of a text these two are shown the beginning alone: PostgreSQL fails on a pattern, or
on small letters, in one of 256 MB.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

from reticent.errors import ParameterError
from reticent.query.declarations.datasets import DataSet
from reticent.query.rows.bins import DUCKDB, POSTGRES, SPARK
from reticent.query.rows.columns import Column, Kind, ReadabilityColumn
from reticent.query.rows.day_numbers import add_day_numbers, engine_pattern
from reticent.query.rows.row_order import keep_rows, needs_order_key
from reticent.tables import cells

_MOST_BRANCHES = 64  # categories in one CASE; more of them are joined
_LONGEST = 1000  # characters that count of a text in PostgreSQL and Spark; no declared one has so many
_DOUBLE_DIGITS = 15  # a decimal of so few digits becomes the nearest double by one division
_LARGEST = Decimal((1 << 1024) - (1 << 971))  # of doubles
_NO_ID = 2.0**53  # from here on, whole numbers share doubles
_TINY = Decimal("2.5e-324")  # smaller ones are zero: PostgreSQL refuses to make doubles of them


def prepared(engine: Any, source: Any, data: DataSet, order_key: str | None = None) -> Any:
    """Return the table of codes, whose columns are those of `data.coded`.

    Args:
        engine: The ibis back end.
        source: Its table with the owner's columns.
        data: The declaration.
        order_key: The secret that orders the rows of each person; needed from format 2 on.

    Raises:
        ParameterError: a column is not there. Names of the source's columns are public.
    """
    needed(data, source.columns)
    read: dict[str, Any] = {}
    for number, column in enumerate(data.columns):
        read |= _read(source[column.name], column, number, engine.name)
    if data.person is not None:
        read |= _person(source[data.person], engine.name)
    table = _written(engine, source.select(**read))
    exact = {name: _double(table[name]) for name in read if table[name].type().is_decimal()}
    if exact:
        table = _written(engine, table.mutate(**exact))
    table = add_day_numbers(engine, table, data)
    if data.person is not None:
        table = table.mutate(person=_key(table))
    names = list(data.coded)
    long = [number for number, column in enumerate(data.columns) if len(column.values) > _MOST_BRANCHES]
    codes = {
        f"c{number}": _code(table, column, number, engine.name).cast("int64")
        for number, column in enumerate(data.columns)
        if number not in long
    }
    codes |= {
        name: _unreadable(table, int(name[1:]), column, engine.name).cast("int64")
        for name, column in data.coded.items()
        if isinstance(column, ReadabilityColumn)
    }
    table = table.mutate(**codes)
    for number in long:
        table = _joined(engine, table, data.columns[number], number)
    if data.person is not None:
        if needs_order_key(data):
            table = keep_rows(table, names, data.contribution, engine.name, order_key)
        else:
            table = _bounded(table, names, data.contribution)
    return table.select(*names)


def _written(engine: Any, table: Any) -> Any:
    """The same table, through text: ibis would repeat the reading of a value wherever the value is used."""
    return engine.sql(engine.compile(table), schema=table.schema())


def _bounded(table: Any, names: list[str], contribution: int) -> Any:
    """Return at most so many rows of each person, those with the least codes: the rule of format 1.

    Rows with the same codes are interchangeable, so the choice does not depend on the order of the source.
    """
    import ibis

    table = table.filter(table.person.notnull())
    of_a_person = ibis.window(group_by=table.person, order_by=[table[name] for name in names])
    ranked = table.mutate(rank=ibis.row_number().over(of_a_person))  # from 0
    return ranked.filter(ranked["rank"] < contribution)


def needed(data: DataSet, names: Sequence[str]) -> list[str]:
    """The columns that a data set needs of a source with columns of these names.

    Raises:
        ParameterError: one is not there. Names of the source's columns are public.
    """
    wanted = [column.name for column in data.columns] + ([] if data.person is None else [data.person])
    for name in wanted:
        if name not in names:
            known = ", ".join(names[:20])
            raise ParameterError(f"columns.{name}: the source has no such column, it has {known}")
    return list(dict.fromkeys(wanted))


def _read(field: Any, column: Column, number: int, engine: str) -> dict[str, Any]:
    """What a cell says, as columns: `x` a number, `t` a text, `m` a moment, as far as they are needed."""
    x, t, m = f"x{number}", f"t{number}", f"m{number}"
    if _is_number(field):
        return {x: field if _is_code(field, column) else _stored(field, engine)}
    text = _text(field, engine)
    if column.format > 1:
        text = _without_objects(text, field)
    if column.kind is not Kind.CATEGORY:
        said = _said_number(text, engine, words_first=column.kind is Kind.BOOLEAN)
        return {x: said} if column.format == 1 else {x: said, t: text}
    numbers, moments = _meanings(column)
    others = ~text.isin(column.values)  # what matches to the letter need not be read
    found = {t: text}
    if numbers:
        found[x] = _where(others, _said_number(text, engine, words_first=True))
    if moments:
        found[m] = _where(others, _said_moment(text, engine))
    return found


def _person(field: Any, engine: str) -> dict[str, Any]:
    """What the cell of a person says, as columns: `person_x` a number, `person_t` a text.

    Privacy: keys must be such that no storage of the column joins or parts two of them, and such that two
    persons hardly share one: of two who do, one who comes or goes exchanges rows of the other, which moves
    a sum by twice what is declared. Doubles hold whole numbers below 2^53, and texts hold texts. All else
    (greater numbers, fractions, moments, of which the day counts, bytes that are no UTF-8) may be what
    storage left of several persons' cells.
    """
    if _is_number(field):
        return {"person_x": _stored(field, engine)}
    text = _text(field, engine)
    unsure = text.re_search(engine_pattern(cells.NAN, engine)) | text.contains(cells.NO_CHARACTER)
    for moment in cells.MOMENTS:
        unsure = unsure | text.re_search(engine_pattern(moment, engine))
    if engine != DUCKDB:  # the rest of a long text was not read
        unsure = unsure | (text.length() >= _LONGEST)
    return {
        "person_t": _where((text != "") & ~unsure, text),
        "person_x": _said_number(text, engine, words_first=False),
    }


def _key(table: Any) -> Any:
    """A value that two cells share if, and only if, they are the same person's; NULL if they are nobody's."""
    import ibis

    number = table.person_x
    near = ibis.greatest(
        ibis.least(number, _literal(_NO_ID)), _literal(-_NO_ID)
    )  # of NULL and NaN: the first
    whole = near.cast("int64")
    is_id = (near.abs() < _literal(_NO_ID)) & (whole.cast("float64") == near)
    if "person_t" not in table.columns:
        return _where(is_id, whole)
    is_word = number.isnull() | number.isnan()
    return ibis.cases((is_word, "t" + table.person_t), (is_id, "x" + whole.cast("string")))


def _is_number(field: Any) -> bool:
    kind = field.type()
    return bool(kind.is_numeric() or kind.is_boolean())


def _text(field: Any, engine: str) -> Any:
    """The text of a cell that is not stored as a number; NULL if its type has none."""
    import ibis

    kind = field.type()
    if kind.is_binary() and engine == DUCKDB:  # one cell of bytes makes Arrow store all texts so
        return _attempts()[0](field)
    if kind.is_json() and engine == DUCKDB:
        text = field.cast("string")
        return ibis.cases((text.startswith('"'), _attempts()[1](text)), else_=text)
    if kind.is_nested() or kind.is_binary() or kind.is_interval() or kind.is_null():
        return ibis.null("string")
    text = field.cast("string") + ""  # makes a text of an enumeration, which ibis believes to be one
    return text if engine == DUCKDB else text.left(_LONGEST)


def _without_objects(text: Any, field: Any) -> Any:
    """Return the text of a cell of JSON, NULL where it is an object, a list or null: these say nothing."""
    if not field.type().is_json():
        return text
    is_text = (text != "null") & ~text.startswith("{") & ~text.startswith("[")
    return _where(is_text, text)


def _unreadable(table: Any, number: int, column: ReadabilityColumn, engine: str) -> Any:
    """Return 1 where a cell says something that its column does not hold, 0 elsewhere."""
    import ibis

    said = table[f"x{number}"]
    is_number = ~_is_nothing(said)
    is_read = is_number if column.checked is not Kind.BOOLEAN else said.isin((0, 1)).fill_null(False)
    if f"t{number}" not in table.columns:
        is_nothing = ~is_number
    else:
        is_nothing = _says_nothing(table[f"t{number}"], engine)
    return ibis.cases((is_read, 0), (is_nothing, 0), else_=1)


def _is_nothing(number: Any) -> Any:
    """Return whether a stored number is NULL or NaN; whole numbers are never the latter."""
    return number.isnull() | number.isnan() if number.type().is_floating() else number.isnull()


def _says_nothing(text: Any, engine: str) -> Any:
    """Return whether a text says nothing; as `cells.says_nothing`, and of NULL too."""
    return text.isnull() | (text == "") | text.re_search(engine_pattern(cells.NAN, engine)).fill_null(False)


def _said_number(text: Any, engine: str, *, words_first: bool) -> Any:
    """The number that a text says, or NULL: on PostgreSQL as NUMERIC, which is yet to become a double."""
    import ibis

    is_short = text.length() <= cells.LONGEST_NUMBER
    number, complex_one = engine_pattern(cells.NUMBER, engine), engine_pattern(cells.COMPLEX, engine)
    is_number, is_complex = is_short & text.re_search(number), is_short & text.re_search(complex_one)
    real = text.re_extract(complex_one, 1)
    word = text.lower()
    if engine != POSTGRES:  # the others read 1e400 and inf as infinity, 1e-400 as zero
        one, zero = _literal(1.0), _literal(0.0)
        numbers = [(is_number, text.try_cast("float64")), (is_complex, real.try_cast("float64"))]
    else:
        one, zero = _decimal(1.0), _decimal(0.0)
        numbers = [
            (is_number & text.re_search(cells.BELOW), ibis.literal(-2 * _LARGEST)),
            (is_number & text.re_search(cells.ABOVE), ibis.literal(2 * _LARGEST)),
            (is_number, text.cast("decimal")),
            (is_complex, real.cast("decimal")),
        ]
    words = [(word.isin(cells.TRUE_WORDS), one), (word.isin(cells.FALSE_WORDS), zero)]
    return ibis.cases(*(words + numbers if words_first else numbers + words))


def _said_moment(text: Any, engine: str) -> Any:
    import ibis

    moments = [engine_pattern(one, engine) for one in cells.MOMENTS]
    return ibis.cases(*((text.re_search(one), text.re_extract(one, 1)) for one in moments))


def _stored(number: Any, engine: str) -> Any:
    """A stored number as a double, or as a decimal that is yet to become one."""
    import ibis

    kind = number.type()
    if kind.is_boolean():
        return ibis.cases((number, _literal(1.0)), (~number, _literal(0.0)))
    if not kind.is_decimal():
        return number.cast("float64")
    if engine == POSTGRES:
        return number
    if engine == SPARK:  # whose decimals have 38 digits, and become the nearest double
        return number.cast("float64")
    short = kind.precision is not None and kind.precision <= _DOUBLE_DIGITS
    return (number if short else number.cast("string")).cast("float64")


def _double(numeric: Any) -> Any:
    """A NUMERIC of any size as the nearest double, NULL for NaN."""
    import ibis

    return ibis.cases(
        (numeric.isnull() | (numeric.cast("string") == "NaN"), ibis.null("float64")),
        (numeric > ibis.literal(_LARGEST), _literal(math.inf)),
        (numeric < ibis.literal(-_LARGEST), _literal(-math.inf)),
        ((numeric < ibis.literal(_TINY)) & (numeric > ibis.literal(-_TINY)), _literal(0.0)),
        else_=numeric.cast("float64"),
    )


def _code(table: Any, column: Column, number: int, engine: str) -> Any:
    import ibis

    match column.kind:
        case Kind.CATEGORY:
            return _category_code(table, column, number, engine)
        case Kind.BOOLEAN:
            said = table[f"x{number}"]
            return ibis.cases((said == 1, 1), (said == 0, 0), else_=column.missing_code)
        case _:
            return _number_code(table[f"x{number}"], column, engine)


def _number_code(number: Any, column: Column, engine: str) -> Any:
    """In steps, rounded half to even, within [first, last]. PostgreSQL casts half to even."""
    import ibis

    first, last, missing = column.first, column.last, column.missing_code
    if number.type().is_integer():  # only where a step is 1: no double is needed
        within = number.between(first, last)
        return ibis.cases((within, number), (number > last, last), (number < first, first), else_=missing)
    if engine != POSTGRES:
        return _compared_code(number, column, engine)
    low, high = _literal(column.low), _literal(column.high)
    clamped = ibis.greatest(ibis.least(number, high), low)
    code = _in_steps(clamped, column, engine).cast("int64")
    if not _ends_are_codes(column):
        code = ibis.greatest(ibis.least(code, last), first)
    return ibis.ifelse(number.isnull() | number.isnan(), missing, code)


def _compared_code(number: Any, column: Column, engine: str) -> Any:
    """The same on DuckDB and Spark, to which NaN is more than infinity: comparing takes half the time.

    Nothing fails whichever part is evaluated for a row: a number that has no code becomes NULL, and is not
    the one that counts.
    """
    import ibis

    low, high = _literal(column.low), _literal(column.high)
    steps = _in_steps(number, column, engine)
    code = _half_to_even()(steps).cast("int64") if engine == SPARK else steps.try_cast("int64")
    if not _ends_are_codes(column):
        code = ibis.greatest(ibis.least(code, column.last), column.first)
    lowest, highest = (min(max(end, column.first), column.last) for end in _ends(column))
    return ibis.cases(
        (number.between(low, high), code),
        (number < low, lowest),
        (number <= _literal(math.inf), highest),
        else_=column.missing_code,
    )


def _in_steps(number: Any, column: Column, engine: str) -> Any:
    return number if column.step == 1.0 else _divided(number, column.step, engine)


def _divided(number: Any, step: float | None, engine: str) -> Any:
    """A quotient. PostgreSQL fails where it underflows, so that what is near zero is zero before."""
    import ibis

    assert step is not None
    quotient = number / _literal(step)
    if engine != POSTGRES:
        return quotient
    return ibis.ifelse(number.abs() < _literal(step / 4), _literal(0.0), quotient)


def _is_code(field: Any, column: Column) -> bool:
    """Whether a stored whole number is its own code once it is clamped to [first, last]."""
    return bool(field.type().is_signed_integer()) and column.step == 1.0 and _ends_are_codes(column)


def _ends_are_codes(column: Column) -> bool:
    """Whether the bounds become the first and last code.

    Dividing and rounding change no order, so then everything between the bounds lies between the two.
    """
    return _ends(column) == (column.first, column.last)


def _ends(column: Column) -> tuple[int, int]:
    """The bounds in steps, rounded as engines do."""
    assert column.low is not None
    assert column.high is not None
    assert column.step is not None
    return round(column.low / column.step), round(column.high / column.step)


def _meanings(column: Column) -> tuple[dict[float, int], dict[str, int]]:
    """The codes of the declared numbers, and of the declared moments."""
    numbers = {cells.number(one): code for code, one in enumerate(column.values)}
    moments = {cells.moment(one): code for code, one in enumerate(column.values)}
    return (
        {said: code for said, code in numbers.items() if said is not None},
        {said: code for said, code in moments.items() if said is not None},
    )


def _category_code(table: Any, column: Column, number: int, engine: str) -> Any:
    import ibis

    branches = []
    for name, said in _keys(column, number).items():
        if name in table.columns:
            branches += [(table[name] == key, code) for key, code in said]
    else_code = _code_of_others(table, column, number, engine)
    return ibis.cases(*branches, else_=else_code) if branches else else_code


def _code_of_others(table: Any, column: Column, number: int, engine: str) -> Any:
    """Return the code of a cell that says no declared category."""
    import ibis

    missing = ibis.literal(column.missing_code)
    if not column.has_other:
        return missing
    is_text = f"t{number}" in table.columns
    nothing = _says_nothing(table[f"t{number}"], engine) if is_text else _is_nothing(table[f"x{number}"])
    return ibis.ifelse(nothing, missing, column.undeclared_code)


def _keys(column: Column, number: int) -> dict[str, list[tuple[Any, int]]]:
    """What the columns of `_read` are compared with, and the codes."""
    numbers, moments = _meanings(column)
    return {
        f"t{number}": [(one, code) for code, one in enumerate(column.values)],
        f"x{number}": [(_literal(said), code) for said, code in numbers.items()],
        f"m{number}": list(moments.items()),
    }


def _joined(engine: Any, table: Any, column: Column, number: int) -> Any:
    """The codes of a long list of categories, looked up in tables of them."""
    import ibis

    numbers, moments = _meanings(column)
    texts = {one: code for code, one in enumerate(column.values)}
    found = []
    for name, said, kind in ((f"t{number}", texts, "string"), (f"x{number}", numbers, "float64"),
                             (f"m{number}", moments, "string")):  # fmt: skip
        if name not in table.columns or not said:
            continue
        listed = _listed_in_spark(said) if engine.name == SPARK else _listed(said)
        listed = listed.select(key=listed.key.cast(kind), code=listed.code)
        both = table.left_join(listed, [(name, "key")])
        found.append(f"{name}_code")
        table = both.select(*(both[one] for one in table.columns), both.code.name(found[-1]))
    else_code = _code_of_others(table, column, number, engine.name)
    return table.mutate(**{f"c{number}": ibis.coalesce(*(table[one] for one in found), else_code)})


def _listed(said: Mapping[Any, int]) -> Any:
    """Keys, as texts, beside their codes, as a table."""
    import ibis

    keys = ibis.literal([str(key) for key in said], "array<string>").unnest()
    codes = ibis.literal(list(said.values()), "array<int64>").unnest()
    return ibis.literal(1).as_table().select(key=keys, code=codes)


def _listed_in_spark(said: Mapping[Any, int]) -> Any:
    """The same, by one generator: the code before its key, at the first space of a text."""
    import ibis

    both = ibis.literal([f"{code} {key}" for key, code in said.items()], "array<string>").unnest()
    listed = ibis.literal(1).as_table().select(both=both)
    space = listed.both.find(" ")
    return listed.select(key=listed.both.substr(space + 1), code=listed.both.left(space).cast("int64"))


def _where(condition: Any, value: Any) -> Any:
    import ibis

    return ibis.cases((condition, value))


@cache
def _half_to_even() -> Any:
    """A function of Spark: the nearest whole number, as a double."""
    import ibis

    @ibis.udf.scalar.builtin(name="rint", signature=(("float64",), "float64"))
    def rint(number): ...  # type: ignore[no-untyped-def]

    return rint


@cache
def _attempts() -> tuple[Any, Any]:
    """Functions of DuckDB, NULL where they fail: the text of bytes, and that of a text in JSON."""
    import ibis

    @ibis.udf.scalar.builtin(name="try", signature=(("string",), "string"))
    def attempt(text): ...  # type: ignore[no-untyped-def]

    @ibis.udf.scalar.builtin(name="decode", signature=(("binary",), "string"))
    def decode(data): ...  # type: ignore[no-untyped-def]

    @ibis.udf.scalar.builtin(name="json_extract_string", signature=(("string", "string"), "string"))
    def extract(text, path): ...  # type: ignore[no-untyped-def]

    return lambda data: attempt(decode(data)), lambda text: attempt(extract(text, "$"))


def _literal(number: float | None) -> Any:
    """A double, exactly: a bare 0.01 would be a decimal to the engine."""
    import ibis

    assert number is not None
    return ibis.literal(repr(number)).cast("float64")


def _decimal(number: float | None) -> Any:
    import ibis

    assert number is not None
    return ibis.literal(Decimal(repr(number)))
