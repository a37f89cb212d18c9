"""SQL, as far as it says what the closed tree says.

One SELECT of one aggregate from one data set, with WHERE and GROUP BY, becomes a `Query`; everything else is
refused with the reason. The text is never run, and nothing of it reaches a database: sqlglot takes it apart
(as DuckDB's SQL), and what comes out is walked by lists of what is known, first its words, then its tree.

    SELECT AVG(income) FROM census WHERE age >= 40 AND NOT race = 'white'
    SELECT sex, COUNT(*) FROM census WHERE age BETWEEN 20 AND 39 GROUP BY sex
    SELECT AVG(CASE WHEN income > 50000 THEN 1 ELSE 0 END) FROM census
    SELECT QUANTILE_CONT(age, [0.25, 0.5, 0.75]) FROM census WHERE citizen
    SELECT BIN(age, 12), COUNT(*) FROM census GROUP BY BIN(age, 12)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from reticent.errors import MissingExtra, ParameterError
from reticent.query.kinds.base import Asked
from reticent.query.kinds.listed import AGGREGATES, KIND
from reticent.query.language import sql_words
from reticent.query.language.tree import (
    BINS,
    MOST_BINS,
    And,
    By,
    Comparison,
    In,
    Not,
    Or,
    Predicate,
    Query,
    Scalar,
    check_predicate,
    shown,
)

if TYPE_CHECKING:
    from sqlglot import Token

LONGEST = 20_000  # characters
DEEPEST = 16  # brackets and negations; sqlglot takes some thirty calls for each

_COMPARISONS = {"EQ": "=", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_TURNED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

_TYPES = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE")

# The words and signs that sqlglot may see, by its names for them. A word that is not here is a name.
_KNOWN = frozenset(("VAR", "IDENTIFIER", "STRING", "NUMBER", "TRUE", "FALSE", "L_PAREN", "R_PAREN",
                    "L_BRACKET", "R_BRACKET", "COMMA", "DOT", "STAR", "DASH", "DCOLON", "SEMICOLON",
                    "EQ", "NEQ", "LT", "LTE", "GT", "GTE", "AND", "OR", "NOT", "IN", "BETWEEN", "IS",
                    "SELECT", "FROM", "WHERE", "GROUP_BY", "ORDER_BY", "ALIAS", "FILTER", "CASE", "WHEN",
                    "THEN", "ELSE", "END", *_TYPES))  # fmt: skip
_NO_NAMES = ("WITHIN", "SYMMETRIC", "ASYMMETRIC")  # words of the grammar that sqlglot takes for names first
_ONE_TABLE = "one data set at a time"
_ONE_SELECT = "one SELECT at a time"
_EVERY_CELL = "every group is answered, in the declared order"
_NO_TEXT = "categories are compared as a whole, by = or IN"
_NO_NULL = "missing values are replaced as declared, so nothing is NULL"
_NO_ARITHMETIC = "there is no arithmetic on columns or answers"
_NO_DISTINCT = "rows are counted, not different values"
_COLUMNS_ONLY = "GROUP BY takes columns, BIN(column, bins) and WIDTH_BUCKET(column, low, high, bins)"
_REASONS = {
    **dict.fromkeys(("JOIN", "CROSS", "INNER", "OUTER", "LATERAL", "NATURAL", "USING", "ON"), _ONE_TABLE),
    **dict.fromkeys(("UNION", "INTERSECT", "EXCEPT", "WITH", "EXISTS", "ANY", "SOME", "VALUES"), _ONE_SELECT),
    **dict.fromkeys(("LIMIT", "OFFSET", "FETCH", "TABLE_SAMPLE"), _EVERY_CELL),
    **dict.fromkeys(("OVER", "WINDOW", "QUALIFY", "PARTITION_BY"), "rows have no order"),
    **dict.fromkeys(("LIKE", "ILIKE", "RLIKE", "GLOB", "SIMILAR_TO", "DPIPE", "TILDE"), _NO_TEXT),
    **dict.fromkeys(("NULL", "ISNULL", "NOTNULL"), _NO_NULL),
    **dict.fromkeys(("PLUS", "SLASH", "DIV", "MOD", "DSTAR", "CARET", "AMP", "PIPE"), _NO_ARITHMETIC),
    **dict.fromkeys(("ALL", "ROLLUP", "CUBE", "GROUPING_SETS"), _COLUMNS_ONLY),
    "DISTINCT": _NO_DISTINCT,
    "HAVING": "whether a group is shown must not depend on the rows in it",
    # Parts of nodes
    "joins": _ONE_TABLE,
    "alias": "call the data set by its name",
    "db": "call the data set by its name",
    "order": _EVERY_CELL,
    "query": _ONE_SELECT,
    "field": "IN takes a list of constants",
    # Nodes
    "Sub": _NO_ARITHMETIC,
    "Mul": _NO_ARITHMETIC,
    "Subquery": _ONE_SELECT,
    "Select": _ONE_SELECT,
    "Block": _ONE_SELECT,
    "Variance": "it divides by one row less; VAR_POP divides by the rows",
    "Stddev": "take the root of VAR_POP",
    "StddevPop": "take the root of VAR_POP",
    "StddevSamp": "take the root of VAR_POP",
    "Min": "one row decides it; ask QUANTILE_CONT",
    "Max": "one row decides it; ask QUANTILE_CONT",
    "Quantile": "quantiles are read off bins: QUANTILE_CONT",
    "PercentileDisc": "quantiles are read off bins: QUANTILE_CONT",
    "ApproxQuantile": "quantiles are read off bins: QUANTILE_CONT",
}
_SHAPE = "SELECT one aggregate FROM the data set, with WHERE and GROUP BY if need be"
_NAMES = [name for kind in KIND.values() for name in kind.sql]
_AGGREGATES = f"{', '.join(_NAMES[:-1])} and {_NAMES[-1]} are"
_CONDITIONS = "a condition is made of AND, OR, NOT, =, <>, <, <=, >, >=, BETWEEN and IN"


def read(text: str, name: str) -> Query:
    """The query that a SELECT states.

    Args:
        text: one statement.
        name: of the data set, which must stand after FROM.

    Raises:
        ParameterError: it is not SQL, or asks for what is not answered; the reason is in the message.
    """
    select, tokens = _parsed(text, whole=True)
    query = _query(select, name)
    _check_complete(tokens, select)
    return query


def _query(select: Any, name: str) -> Query:
    if _kind(select) != "Select":
        raise _refused(select, _SHAPE)
    _only(select, "expressions", "from", "from_", "where", "group")
    _check_source(_part(select, "from_") or _part(select, "from"), name)
    groups = _groups(_part(select, "group"), name)
    asked = _selected(_list(select, "expressions"), groups, name)
    where = _part(select, "where")
    rows = _both(None if where is None else _condition(_of(where), name), asked.where)
    if KIND[asked.kind].bins_column:
        if groups:
            raise ParameterError(
                f"sql: GROUP BY beside a {asked.kind} is not answered: ask for each group with WHERE"
            )
        binned = By(str(asked.column), bins=BINS)
        return Query(asked.kind, asked.column, rows, asked.of, (binned,), asked.levels)
    return Query(asked.kind, asked.column, rows, asked.of, groups, asked.levels)


def read_condition(text: str) -> Predicate:
    """The predicate that a condition states, as it could stand after WHERE.

    Raises:
        ParameterError: as for `read`.
    """
    condition, tokens = _parsed(text, whole=False)
    predicate = _condition(condition, None)
    _check_complete(tokens, condition)
    check_predicate(predicate)
    return predicate


# Words


def _parsed(text: str, *, whole: bool) -> tuple[Any, list[Token]]:
    """The tree and the tokens of a text that is made of known words only, a statement or a condition."""
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST:
        got = f"{len(text)} characters" if isinstance(text, str) else shown(text)
        raise ParameterError(f"sql must be a text of 1 to {LONGEST} characters, got {got}")
    try:
        from sqlglot import exp
        from sqlglot.dialects.dialect import Dialect
        from sqlglot.errors import SqlglotError
    except ImportError as error:
        raise MissingExtra("SQL", "query") from error
    dialect = Dialect.get_or_raise("duckdb")
    try:
        parser = dialect.parser()
        otherwise = _SHAPE if whole else _CONDITIONS
        tokens = list(_checked(dialect.tokenize(text), parser.ID_VAR_TOKENS, otherwise))
        if whole and (not tokens or tokens[0].token_type.name != "SELECT"):
            raise ParameterError(f"sql must be {_SHAPE}, got {shown(text)}")
        trees = parser.parse(tokens, text) if whole else parser.parse_into(exp.Condition, tokens, text)
    except SqlglotError as err:
        raise ParameterError(f"sql: cannot be read{sql_words.place(err)}") from err
    except RecursionError as error:
        raise _too_deep() from error
    if len(trees) != 1 or trees[0] is None:
        raise ParameterError(f"sql must be one {'statement' if whole else 'condition'}, got {len(trees)}")
    return trees[0], tokens


def _checked(tokens: Sequence[Token], names: Any, otherwise: str) -> Iterator[Token]:
    """The tokens, if each is known and they nest within bounds; words without a meaning here become names."""
    from sqlglot import TokenType

    brackets: list[int] = []  # each with the negations before it
    negations = 0
    for token in tokens:
        kind = token.token_type.name
        if kind in _REASONS:
            raise ParameterError(f"sql: {token.text.upper()} is not answered: {_REASONS[kind]}")
        if kind not in _KNOWN:
            if token.token_type not in names:
                raise ParameterError(f"sql: {shown(token.text)} is not answered: {otherwise}")
            token.token_type = TokenType.VAR
        if kind in ("NOT", "DASH"):
            negations += 1
        else:
            if kind in ("L_PAREN", "L_BRACKET", "CASE"):
                brackets.append(negations + 1)
            elif kind in ("R_PAREN", "R_BRACKET", "END") and brackets:
                brackets.pop()
            negations = 0
        if sum(brackets) + negations > DEEPEST:
            raise _too_deep()
        yield token


def _check_complete(tokens: Sequence[Token], tree: Any) -> None:
    """Refuse a tree that lost a name or a constant: sqlglot drops what a function of SQL does not take."""
    names = constants = 0
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        kind = token.token_type.name
        constants += kind in ("STRING", "NUMBER")
        if kind in ("VAR", "IDENTIFIER"):
            is_function = after is not None and after.token_type.name == "L_PAREN"
            names += not is_function and not (kind == "VAR" and token.text.upper() in _NO_NAMES)
    kinds = [_kind(node) for node in tree.walk()]
    if (names, constants) != (kinds.count("Identifier"), kinds.count("Literal")):
        raise ParameterError("sql: cannot be read: a name or a constant stands where it means nothing")


def _too_deep() -> ParameterError:
    return ParameterError(f"sql must be nested at most {DEEPEST} deep, brackets and negations together")


# Nodes. They are told apart by the names of their exact types: a subtype means something else.


def _kind(node: Any) -> str:
    return type(node).__name__


def _part(node: Any, name: str) -> Any:
    """A part of a node, or None: sqlglot leaves out what it does not find."""
    return None if node is None else node.args.get(name)


def _list(node: Any, name: str) -> list[Any]:
    return list(_part(node, name) or ())


def _of(node: Any) -> Any:
    """What a node that says nothing else is about."""
    _only(node, "this")
    return _part(node, "this")


def _only(node: Any, *known: str) -> None:
    """Refuse a node that says more than is known of it."""
    if node is None:
        raise ParameterError(f"sql: cannot be read: {_SHAPE}")
    for part, said in node.args.items():
        if said and part not in known:
            reason = _REASONS.get(part, _SHAPE if _kind(node) == "Select" else _CONDITIONS)
            raise ParameterError(
                f"sql: {sql_words.part(part)} in {sql_words.word(node)} is not answered: {reason}"
            )


def _refused(node: Any, otherwise: str) -> ParameterError:
    reason = _REASONS.get(_kind(node), otherwise)
    said = sql_words.word(node)
    near = sql_words.near(said, _NAMES) if _kind(node) == "Anonymous" else ""
    return ParameterError(f"sql: {said[:60]} is not answered: {reason}{near}")


def _is_column(node: Any) -> bool:
    return _kind(node) == "Column" and _kind(_part(node, "this")) == "Identifier"


def _column(node: Any, name: str | None) -> str:
    """The name of a column, written alone or after that of the data set."""
    if not _is_column(node):
        raise _refused(node, "a column is wanted here")
    _only(node, "this", "table")
    table = _part(node, "table")
    if table is not None and table.name != name:
        raise ParameterError(f"sql: {shown(table.name)} is not answered: {_ONE_TABLE}")
    return str(_part(node, "this").name)


def _check_source(source: Any, name: str) -> None:
    table = None if source is None else _of(source)
    if _kind(table) != "Table":
        raise ParameterError(f"sql: FROM must be {name}, got {sql_words.word(table)}")
    given = _of(table)
    if _kind(given) != "Identifier" or given.name != name:
        raise ParameterError(f"sql: FROM must be {name}, got {shown(getattr(given, 'name', ''))}")


def _groups(group: Any, name: str) -> tuple[By, ...]:
    if group is None:
        return ()
    _only(group, "expressions")
    return tuple(_grouping(one, name) for one in _list(group, "expressions"))


def _grouping(node: Any, name: str) -> By:
    """A column, `BIN(column, bins)`, or `WIDTH_BUCKET(column, low, high, bins)` with what lies outside."""
    if _is_column(node):
        return By(_column(node, name))
    if _is_bin(node):
        _only(node, "this", "expressions")
        parts = _list(node, "expressions")
        if len(parts) != 2:
            raise ParameterError(f"sql: BIN must be BIN(column, number of bins), got {len(parts)} parts")
        return By(_column(parts[0], name), bins=_whole_number("BIN", parts[1]))
    if _kind(node) == "WidthBucket":
        _only(node, "this", "min_value", "max_value", "num_buckets")
        low, high = (_constant(_part(node, part)) for part in ("min_value", "max_value"))
        bins = _whole_number("WIDTH_BUCKET", _part(node, "num_buckets"))
        if isinstance(low, (str, bool)) or isinstance(high, (str, bool)) or not low < high:
            raise ParameterError("sql: WIDTH_BUCKET must be (column, low, high, bins) with low below high")
        step = (Fraction(high) - Fraction(low)) / bins
        edges = tuple(float(Fraction(low) + place * step) for place in range(bins + 1))
        return By(_column(_part(node, "this"), name), edges=edges)
    raise _refused(node, _COLUMNS_ONLY)


def _is_bin(node: Any) -> bool:
    return _kind(node) == "Anonymous" and str(_part(node, "this")).upper() == "BIN"


def _whole_number(where: str, node: Any) -> int:
    found = _constant(node)
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= MOST_BINS:
        raise ParameterError(
            f"sql: {where} must have a whole number of bins, 1 to {MOST_BINS}, got {shown(found)}"
        )
    return found


def _selected(expressions: Sequence[Any], groups: Sequence[By], name: str) -> Asked:
    """The one aggregate of a SELECT list; what stands beside it must be grouped by."""
    found = []
    for one in expressions:
        if _kind(one) == "Alias":
            _only(one, "this", "alias")
            one = _part(one, "this")
        if not (_is_column(one) or _is_bin(one) or _kind(one) == "WidthBucket"):
            found.append(one)
        elif _grouping(one, name) not in groups:
            column = shown(_grouping(one, name).column)
            raise ParameterError(f"sql: column {column} must stand in GROUP BY or an aggregate")
    if len(found) != 1:
        raise ParameterError(f"sql: SELECT must hold one aggregate, got {len(found)}")
    return _aggregate(found[0], name)


# Aggregates


class _Reader:
    """What the kinds of questions may look at of their aggregates; see `SqlReader`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def kind(self, node: Any) -> str:
        return _kind(node)

    def part(self, node: Any, name: str) -> Any:
        return _part(node, name)

    def listed(self, node: Any, name: str) -> list[Any]:
        return _list(node, name)

    def only(self, node: Any, *known: str) -> None:
        _only(node, *known)

    def of(self, node: Any) -> Any:
        return _of(node)

    def column(self, node: Any) -> str:
        return _column(node, self._name)

    def condition(self, node: Any) -> Predicate:
        return _condition(node, self._name)

    def indicator(self, node: Any) -> Predicate | None:
        return _indicator(node, self._name) if _kind(node) in ("Case", "Cast") else None

    def constant(self, node: Any) -> Any:
        return _constant(node)

    def refused(self, node: Any) -> ParameterError:
        return _refused(node, _AGGREGATES)


def _aggregate(node: Any, name: str) -> Asked:
    if _kind(node) == "Filter":
        _only(node, "this", "expression")
        asked = _aggregate(_part(node, "this"), name)
        rows = _condition(_of(_part(node, "expression")), name)
        return replace(asked, where=_both(rows, asked.where))
    found = AGGREGATES.get(_kind(node))
    if found is None:
        raise _refused(node, _AGGREGATES)
    return found(_Reader(name), node)


def _indicator(node: Any, name: str) -> Predicate:
    """The condition of `CASE WHEN condition THEN 1 ELSE 0 END` or `(condition)::int`."""
    if _kind(node) == "Cast":
        _only(node, "this", "to")
        inner = _bare(_part(node, "this"))
        if _is_column(inner) or getattr(_of(_part(node, "to")), "name", None) not in _TYPES:
            raise ParameterError("sql: CAST is not answered: columns are what they are declared to be")
        return _condition(inner, name)
    _only(node, "ifs", "default")
    cases = _list(node, "ifs")
    if len(cases) == 1 and _kind(cases[0]) == "If" and _part(node, "default") is not None:
        _only(cases[0], "this", "true")
        if (_constant(_part(cases[0], "true")), _constant(_part(node, "default"))) == (1, 0):
            return _condition(_part(cases[0], "this"), name)
    raise ParameterError("sql: CASE must be CASE WHEN condition THEN 1 ELSE 0 END")


# Conditions


def _condition(node: Any, name: str | None) -> Predicate:
    kind = _kind(node)
    match kind:
        case "And" | "Or":
            parts = tuple(_condition(part, name) for part in _chain(node))
            return And(parts) if kind == "And" else Or(parts)
        case "Not":
            return Not(_condition(_of(node), name))
        case "Paren":
            return _condition(_of(node), name)
        case "Boolean":
            return And(()) if _of(node) else Or(())
        case "Column":
            return Comparison(_column(node, name), "=", True)
        case "Between":
            _only(node, "this", "low", "high")
            column = _column(_bare(_part(node, "this")), name)
            low, high = _constant(_part(node, "low")), _constant(_part(node, "high"))
            return And((Comparison(column, ">=", low), Comparison(column, "<=", high)))
        case "In":
            _only(node, "this", "expressions")
            column = _column(_bare(_part(node, "this")), name)
            listed = _list(node, "expressions")
            if not listed:
                raise ParameterError("sql: IN takes a list of constants, got nothing")
            return In(column, tuple(_constant(one) for one in listed))
        case "Is":
            _only(node, "this", "expression")
            if _kind(_part(node, "expression")) != "Boolean":
                raise ParameterError(f"sql: IS is not answered: {_NO_NULL}")
            return Comparison(
                _column(_bare(_part(node, "this")), name), "=", _constant(_part(node, "expression"))
            )
        case _ if kind in _COMPARISONS:
            return _comparison(node, _COMPARISONS[kind], name)
        case _:
            raise _refused(node, _CONDITIONS)


def _chain(node: Any) -> list[Any]:
    """The parts of `a AND b AND c`, which sqlglot nests to the left, however many they are."""
    kind, parts, left = _kind(node), [], [node]
    while left:
        one = left.pop()
        if _kind(one) == kind:
            _only(one, "this", "expression")
            left += [_part(one, "expression"), _part(one, "this")]
        else:
            parts.append(one)
    return parts


def _comparison(node: Any, op: str, name: str | None) -> Comparison:
    _only(node, "this", "expression")
    one, other = _bare(_part(node, "this")), _bare(_part(node, "expression"))
    if _is_column(one) == _is_column(other):
        got = f"{sql_words.word(one)} and {sql_words.word(other)}"
        quoted = "; a text stands in single quotes" if _is_column(one) else ""
        raise ParameterError(f"sql: a comparison must be of a column and a constant, got {got[:100]}{quoted}")
    if _is_column(one):
        return Comparison(_column(one, name), op, _constant(other))
    return Comparison(_column(other, name), _TURNED[op], _constant(one))


def _bare(node: Any) -> Any:
    """What stands in the brackets."""
    while _kind(node) == "Paren":
        node = _of(node)
    return node


def _constant(node: Any) -> Scalar:
    node = _bare(node)
    match _kind(node):
        case "Boolean":
            return bool(_of(node))
        case "Literal":
            _only(node, "this", "is_string")
            text = str(_part(node, "this"))
            return text if _part(node, "is_string") else _number(text)
        case "Neg":
            number = _constant(_of(node))
            if not isinstance(number, (str, bool)):
                return -number
    raise _refused(node, "a constant is wanted here")


def _number(text: str) -> int | float:
    """A number exactly as written, or a refusal."""
    if len(text) <= 300 and text.isascii() and text.isdigit():
        return int(text)
    try:
        number = float(text)
        if len(text) <= 300 and Decimal(text) == Decimal(repr(number)):
            return number
    except (ValueError, InvalidOperation):
        pass
    raise ParameterError(f"sql: a number must be finite and have at most 17 digits, got {shown(text)}")


def _both(one: Predicate | None, other: Predicate | None) -> Predicate | None:
    if one is None or other is None:
        return one if other is None else other
    return And((one, other))
