"""Bodies that are almost right: valid ones of every route, and what becomes of them."""

import copy
import json
import random
import re
from urllib.parse import quote_plus

from .fuzzing import Call, World

CENSUS, TOWN = "/api/v1/datasets/census", "/api/v1/datasets/town"
FORM, PARTS = b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=cut"
DECLARATION = """\
name: fresh
version: 1
source: fresh.csv
unit: row
relation: replace one
rows: 2000
budget: {epsilon: 1, delta: 1e-6}
policy: share
columns:
  income: {type: number, low: -10000, high: 1000000, step: 1, missing: 0}
  age: {type: integer, low: 0, high: 120}
  sex: {type: category, values: [male, female]}
"""
_AGED = {"column": "age", "op": ">=", "value": 40}
_WHERE = {"and": [_AGED, {"not": {"column": "race", "in": ["white", "black"]}},
                  {"or": [{"column": "sex", "op": "=", "value": "male"},
                          {"column": "hours", "op": "<", "value": 9}]}]}  # fmt: skip
QUESTIONS = [
    {"kind": "count", "where": _AGED},
    {"kind": "count", "where": _WHERE, "by": [{"column": "sex"}]},
    {"kind": "sum", "column": "income", "where": _WHERE},
    {"kind": "mean", "column": "age", "by": ["sex", {"column": "income", "edges": [10000, 50000]}]},
    {"kind": "variance", "column": "hours", "where": _AGED},
    {"kind": "proportion", "of": {"column": "sex", "op": "!=", "value": "male"}, "where": _AGED},
    {"kind": "histogram", "by": [{"column": "age", "bins": 12}, {"column": "race"}]},
    {"kind": "quantile", "column": "income", "levels": [0.25, 0.5]},
    {"kind": "quantile", "column": "age", "by": [{"column": "age", "bins": 16}], "levels": [0.5]},
    "SELECT AVG(income) FROM census",
    "SELECT sex, COUNT(*) FROM census WHERE age BETWEEN 20 AND 39 GROUP BY sex",
    "SELECT AVG(CASE WHEN age > 60 THEN 1 ELSE 0 END) FROM census WHERE NOT (race = 'white' OR hours < 3)",
    "SELECT QUANTILE_CONT(age, [0.25, 0.5, 0.75]) FROM census WHERE sex IN ('male')",
]
ACCURACY = [
    {"information": 1e-7},
    {"error": 500.0, "confidence": 0.9, "rows": 100},
    {"epsilon": 0.001, "delta": 1e-6},
]
_BUILT = {"kind": "mean", "column": "age", "exactness": "1", "where_column": "sex", "where_op": "=",
          "where_value": "male", "by": "age", "bins": "4", "rows": "100", "error": ""}  # fmt: skip


def seeds():
    """How often each is taken, the method, the path, the role, and the valid body: JSON, or a form's fields.

    What reads the rows, or makes some up, takes long and comes less often.
    """
    found = []
    for number, query in enumerate(QUESTIONS):
        body = {"query": query, **ACCURACY[number % 3]}
        found.append((8, "POST", f"{CENSUS}/price", "analyst", body))
        found.append((4, "POST", f"{CENSUS}/ask", "analyst", body))
        found.append((4, "POST", f"{CENSUS}/known", "analyst", {"query": query, "confidence": 0.9}))
    town = {"query": {"kind": "count", "where": _AGED}, "epsilon": 0.01}
    found += [
        (8, "POST", f"{TOWN}/ask", "owner", town),
        (8, "POST", f"{TOWN}/price", "owner", town | {"rows": 10}),
        (4, "POST", f"{CENSUS}/jobs", "analyst", {"query": QUESTIONS[9], "information": 1e-7}),
        (4, "POST", f"{TOWN}/jobs", "owner", town),
        (1, "POST", f"{CENSUS}/rehearse", "analyst", {"query": QUESTIONS[0], "information": 1.0, "seed": 3}),
        (8, "POST", "/api/v1/datasets", "owner", {"declaration": DECLARATION}),
        (20, "POST", "/api/v1/keys", "owner", {"name": "fresh", "role": "analyst"}),
        (20, "PUT", f"{CENSUS}/quotas/bob", "owner", {"share": 0.5}),
        (4, "POST", "/datasets/census/ask", "analyst", _BUILT),
        (8, "POST", "/datasets/census/price", "analyst", _BUILT | {"where_op": "one of"}),
        (4, "POST", "/datasets/census/price", "analyst", {"mode": "sql", "sql": QUESTIONS[9], "error": "9"}),
        (4, "POST", "/datasets/town/price", "owner", {"kind": "quantile", "column": "age", "levels": ".5"}),
        (4, "POST", "/datasets/census/quota", "owner", {"analyst": "bob", "share": "50"}),
        (4, "POST", "/owner/keys", "owner", {"name": "fresh", "role": "auditor"}),
        (4, "POST", "/owner/keys/revoke", "owner", {"name": "gone"}),
        (4, "POST", "/owner/keys/replace", "owner", {"name": "gone"}),
        (2, "POST", "/owner/register/blanks", "owner", _BLANKS),
        (4, "POST", "/owner/register/review", "owner", {"declaration": DECLARATION, "file": "fresh.csv"}),
        (4, "POST", "/owner/register", "owner", {"declaration": DECLARATION, "file": "fresh.csv"}),
        (4, "POST", "/signin", None, {"key": "rk_none"}),
        (1, "POST", "/signout", "auditor", {}),
    ]  # fmt: skip
    return found


_BLANKS = {"file": "fresh.csv", "name": "fresh", "version": "1", "unit": "row", "relation": "replace one",
           "rows": "2000", "epsilon": "1", "delta": "1e-6", "policy": "share", "column_name": "age",
           "column_type": "integer", "column_low": "0", "column_high": "120", "column_step": "",
           "column_values": "", "column_missing": "0"}  # fmt: skip


def _raw(text):
    """A text that stands in JSON as it is, without quotes."""
    return f"@raw{text}@"


ODD = [
    None, True, False, 0, -1, -0.0, 1, 2, 3.5, 1e308, 5e-324, 1e-9, 0.1 + 0.2, 10**15, 2**53, 2**63, 2**64,
    -(2**63), 10**400, -(10**400), float("nan"), float("inf"), -float("inf"), _raw("1e309"), _raw("-0"),
    _raw("1E-400"), _raw("9" * 5000), _raw("1" + "0" * 400 + ".0"), _raw("0x10"), _raw("1_000"), _raw("01"),
    _raw("+1"), _raw(".5"), _raw('"\\ud800"'), _raw('"\\udfff\\ud800"'), _raw('"\\u0000"'), _raw("'x'"),
    _raw("undefined"), _raw(""), "", " ", "\0", "\ufeff", "\u202e", "x" * 201, "y" * 20_001, "é" * 300, "0",
    "1e309", "NaN", "null", "true", "'", '"', "\\", "--", "; DROP TABLE x", "../../etc/passwd", "{{7*7}}",
    "<script>", "%00", "income", "age", "sex", "white", "male", "census", "=", "!=", "<", "and", "count",
    "mean", [], {}, [[]], [None], [1, 2, 3], {"": None}, {"a": 1}, ["age", "age"], list(range(300)),
    [0.5] * 120, _AGED, {"not": _AGED}, {"and": []}, {"or": [{}]}, {"column": "age", "in": [1, 2, 3]},
    {"column": "age", "op": "<", "value": 10**400}, {"column": "race", "bins": 2},
    {"column": "income", "bins": 65537}, {"column": "age", "edges": [1, 1]},
    {"column": "age", "edges": [1e308, 1.7e308]},
]  # fmt: skip
_WORDS = [
    b"null", b"true", b"1e309", b"-0", b"NaN", b"Infinity", b"\\ud800", b"\0", b"\xff", b"\xed\xa0\x80",
    b"\xc0\x80", b"\xef\xbb\xbf", b"{", b"}", b"[", b"]", b'"', b"'", b"\\", b",", b":", b"\\u0000",
    b"[" * 100, b"{\"a\":" * 90, b"(" * 40, b" OR 1=1", b" UNION SELECT", b"/*", b"--", b"&", b"=", b"%",
    b"%ff", b"%00", b"+", b"\r\n", b"&a *a", b"!!python/object", b"<<: ", b"- " * 20, b"\t", b"9" * 60,
]  # fmt: skip
_TYPES = [
    b"application/json; charset=utf-8", b"application/json; charset=utf-16",
    b"application/json;charset=\xff", b"application/json; charset=utf-7", b"APPLICATION/JSON",
    b"application/vnd.x+json", b"text/plain", b"", b"/", b";", b"application/xml",
    b"application/octet-stream", FORM, FORM + b"; charset=utf-16", PARTS, b"multipart/form-data",
    b"multipart/form-data; boundary=", b"multipart/mixed; boundary=cut", b"application/json, text/html",
]  # fmt: skip
_LENGTHS = [
    b"", b"-1", b"0", b"1e3", b"9" * 20, b"9" * 5000, b"\xb2", b"+5", b"0x5", b" 5",
]  # fmt: skip
_HEADERS = [
    (b"idempotency-key", b""), (b"idempotency-key", b"k" * 201), (b"idempotency-key", b"\xff\xfe"),
    (b"idempotency-key", b"a\tb"), (b"hx-request", b"true"), (b"content-encoding", b"gzip"),
    (b"authorization", b"Bearer \xff"), (b"cookie", b"reticent=\xff"), (b"expect", b"100-continue"),
    (b"accept", b"\x00"), (b"content-type", b"text/x"),
]  # fmt: skip
_NUMBER = re.compile(r"\d+")


class Mutator:
    """Requests that come close, one after the other. The same `rng` makes the same."""

    def __init__(self, rng, token):
        """`token`: that of the forms of a visitor, by role."""
        self._rng, self._token, self._made = rng, token, 0
        self._seeds = seeds()
        self._weights = [one[0] for one in self._seeds]
        self._parts = [holder[key] for *_, body in self._seeds for holder, key in _places(body)]

    def calls(self, count):
        for _, method, path, who, body in self._rng.choices(self._seeds, self._weights, k=count):
            yield self._call(method, path, who, body)

    def _call(self, method, path, who, body):
        rng, is_page = self._rng, not path.startswith("/api/")
        body = copy.deepcopy(body)
        if is_page:
            body["csrf"] = self._token(who)
        at = rng.random()
        if at < 0.7:
            for _ in range(rng.choice((1, 1, 1, 2, 3))):
                body = self._changed(body)
        elif at < 0.74:
            body = self._fresh(body)
        raw, kind = self._written(body, is_page)
        if at >= 0.74:
            for _ in range(rng.choice((1, 1, 2, 4))):
                raw = self._cut(raw)
        if rng.random() < 0.04:
            kind = rng.choice(_TYPES)
        if rng.random() < 0.02:
            raw = self._recoded(raw)
        if rng.random() < 0.03:
            who = rng.choice((None, "auditor", "analyst", "owner"))
        headers = (rng.choice(_HEADERS),) if rng.random() < 0.04 else ()
        if is_page and rng.random() < 0.5:
            headers += ((b"hx-request", b"true"),)
        length = rng.choice(_LENGTHS) if rng.random() < 0.005 else None
        pieces = rng.choice((2, 3, 17)) if rng.random() < 0.02 else 1
        return Call(method, path, who, raw, kind, headers=headers, length=length, pieces=pieces)

    # Structure

    def _changed(self, body):
        """One node of a tree is another."""
        rng = self._rng
        places = list(_places(body))
        if not places:
            return rng.choice(ODD)
        holder, key = rng.choice(places)
        given, at = holder[key], rng.random()
        if at < 0.35:
            holder[key] = copy.deepcopy(rng.choice(ODD))
        elif at < 0.6 and isinstance(given, str):
            holder[key] = self._retyped(given)
        elif at < 0.7 and isinstance(given, (int, float)) and abs(given) < 1e9:
            holder[key] = rng.choice((given + 1, -given, given * 1.5, given / 1000, str(given), bool(given)))
        elif at < 0.78:
            del holder[key]
        elif at < 0.84:
            holder[key] = _nested(
                given, rng.choice((1, 2, 30, 79, 200)), rng.choice(("", "not", "and", "query"))
            )
        elif at < 0.92 and isinstance(holder, dict):
            holder[
                rng.choice(("seed", "cap", "role", "owner", "spent", "x" * 300, "", "\0", "by", "levels"))
            ] = given
        else:
            holder[key] = copy.deepcopy(rng.choice(self._parts))
        return body

    def _fresh(self, body):
        """Still right, and not yet asked for: other numbers, another name."""
        self._made += 1

        def renewed(given):
            if isinstance(given, dict):
                return {name: renewed(one) for name, one in given.items()}
            if isinstance(given, list):
                return [renewed(one) for one in given]
            if given in ("fresh", DECLARATION):
                return given.replace("fresh", f"fresh-{self._made}") if self._rng.random() < 0.2 else given
            if isinstance(given, str) and " census WHERE" in given:
                return _NUMBER.sub(lambda _: str(self._rng.randrange(100)), given)
            return self._rng.randrange(1, 90) if type(given) is int else given

        return renewed(body)

    def _retyped(self, text):
        """A text with a slip of the pen, or of a token."""
        rng, at = self._rng, self._rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice((0, 1, 3, 20)))
        return text[:at] + rng.choice(_SLIPS) * rng.choice((1, 1, 1, 1, 50, 3000)) + text[end:]

    # Bytes

    def _written(self, body, is_page):
        rng = self._rng
        if not is_page or not isinstance(body, dict):
            text = json.dumps(body, ensure_ascii=rng.random() < 0.7)
            text = _RAW.sub(lambda found: json.loads(f'"{found[1]}"'), text)
            if rng.random() < 0.03 and text[:1] == "{":  # a name twice
                text = '{"query": "SELECT 1", "share": 1, "name": 5, ' + text[1:]
            return text.encode("utf-8", "surrogatepass"), b"application/json"
        fields = [
            (name, one)
            for name, given in body.items()
            for one in (given if isinstance(given, list) else [given])
        ]
        told = [(str(name), str(one).removeprefix("@raw")) for name, one in fields]
        if rng.random() < 0.1:
            told.append(rng.choice(told or [("a", "b")]))
        if rng.random() < 0.2:
            return b"".join(_part(name, text) for name, text in told) + b"--cut--\r\n", PARTS
        joined = "&".join(
            f"{quote_plus(a, errors='replace')}={quote_plus(b, errors='replace')}" for a, b in told
        )
        return joined.encode(), FORM

    def _cut(self, raw):
        """Some bytes are others."""
        rng = self._rng
        at, how = rng.randrange(len(raw) + 1), rng.randrange(8)
        end = min(len(raw), at + rng.choice((1, 1, 2, 8, 100)))
        if how == 0:
            return raw[:at]
        if how == 1:
            return raw[:at] + raw[end:]
        if how == 2:
            return raw[:at] + raw[at:end] * rng.choice((2, 3, 60)) + raw[end:]
        if how == 3 and raw:
            at = min(at, len(raw) - 1)
            return raw[:at] + bytes([raw[at] ^ (1 << rng.randrange(8))]) + raw[at + 1 :]
        if how == 4:
            return raw[:at] + rng.randbytes(rng.choice((1, 2, 9))) + raw[end:]
        if how == 5:
            other = json.dumps(rng.choice(self._seeds)[4]).encode()
            return raw[:at] + other[rng.randrange(len(other)) :]
        return raw[:at] + rng.choice(_WORDS) + raw[end if how == 6 else at :]

    def _recoded(self, raw):
        text = raw.decode("utf-8", "replace")
        codec = self._rng.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1", "cp037", "utf-7"))
        return text.encode(codec, "replace")


_SLIPS = [
    "", " ", "(", ")", "'", '"', ",", ";", "0", "9", "-", ".", "*", "\n", ": ", "\u00e9", "\U0001f600", "\0",
    " AND ", " OR ", " NOT ", "age", "income", "sex", "x", "1e9", "[", "]", "{", "}", "- ", "#", "&a ", "*a",
]  # fmt: skip
_RAW = re.compile(r'"@raw((?:[^"\\]|\\.)*?)@"')


def _places(body):
    """Every place in a tree that holds something: what it is in, and under which name."""
    left = [body]
    while left:
        one = left.pop()
        if isinstance(one, (dict, list)):
            for key in list(one) if isinstance(one, dict) else range(len(one)):
                yield one, key
                left.append(one[key])


def _nested(given, levels, word):
    for _ in range(levels):
        given = {word: [given] if word == "and" else given} if word else [given]
    return given


def _part(name, text):
    head = f'--cut\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'
    return head.encode("utf-8", "replace")


def mutate(world, seed, count):
    """What is wrong after so many requests."""
    return [
        one for call in Mutator(random.Random(seed), world.csrf).calls(count) for one in world.faults(call)
    ]


def mutated(folder, made_census, seed, count):
    """The same to a fresh service, and how many replies had which status."""
    with World(folder, made_census) as world:
        return mutate(world, seed, count), world.counts
