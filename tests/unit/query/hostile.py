"""T26: a folder with everything that may not be a source, and names that try to get at it."""

import json
import os
import random
import sqlite3
from types import SimpleNamespace

import duckdb

CANARY = 7_777_777
DECLARED = """
name: {name}
version: 1
source: {source}
unit: row
relation: replace one
rows: 2
budget: {{epsilon: 1, delta: 1e-6}}
columns:
  age: {{type: integer, low: 0, high: 120}}
"""


def text(name="d", source="rows.csv"):
    return DECLARED.format(name=name, source=json.dumps(source))


def rigged(place):
    """Make the folder `desk` with rows, and beside it `elsewhere`, with what nobody here may read."""
    desk, elsewhere = place / "desk", place / "elsewhere"
    for folder in (
        desk,
        elsewhere,
        desk / "census.reticent",
        desk / ".service" / "devices",
        desk / ".hidden",
    ):
        folder.mkdir(parents=True)
    rows = f"age\n{CANARY}\n{CANARY}\n"
    (elsewhere / "x.csv").write_text(rows)
    with duckdb.connect(str(elsewhere / "x.db")) as made:
        made.execute(f"CREATE TABLE people AS SELECT {CANARY} AS age FROM range(2)")
        made.execute(f"COPY people TO '{elsewhere / 'x.parquet'}'")
    (desk / "rows.csv").write_text("age\n5\n6\n")
    with duckdb.connect(str(desk / "rows.db")) as made:
        made.execute("CREATE TABLE people AS SELECT 5 AS age FROM range(2)")
        made.execute(f"CREATE VIEW called AS SELECT * FROM read_csv('{elsewhere / 'x.csv'}')")
        made.execute(f"CREATE VIEW replaced AS SELECT * FROM '{elsewhere / 'x.csv'}'")
        made.execute(f"CREATE MACRO told() AS TABLE SELECT * FROM read_parquet('{elsewhere / 'x.parquet'}')")
        made.execute("CREATE VIEW through AS SELECT * FROM told()")
        made.execute("CREATE VIEW adults AS SELECT * FROM people WHERE age >= 18")
        made.execute(f"COPY people TO '{desk / 'rows.parquet'}'")
    ours = {
        "census.yaml": text("census").encode(), "old.YML": b"name: old\n", "hand.key": b"ab" * 32,
        ".env.csv": b"a\n", ".hidden/rows.csv": b"age\n1\n", "olga.pem": b"-----BEGIN PRIVATE KEY-----\n",
        "census.reticent/snapshot-1.duckdb": (desk / "rows.db").read_bytes(),
        ".service/ledger.key": b"ab" * 32 + b"\n", ".service/devices/one.csv": b"a,b\n1,2\n",
    }  # fmt: skip
    for name, content in ours.items():
        (desk / name).write_bytes(content)
    for name in ("census.reticent/ledger.sqlite", "census.reticent/notebook.sqlite", ".service/state.sqlite"):
        made = sqlite3.connect(desk / name)
        made.execute("CREATE TABLE kept (x)")
        made.close()
        ours[name] = b""
    names = list(ours)
    for number, name in enumerate(ours):
        (desk / f"soft{number}.csv").symlink_to(desk / name)
        (desk / f"softer{number}.parquet").symlink_to(f"./soft{number}.csv")
        os.link(desk / name, desk / f"hard{number}.csv")
        names += [f"soft{number}.csv", f"softer{number}.parquet", f"hard{number}.csv"]
    for name in (
        "alone.yaml",
        ".service/alone.csv",
        "census.reticent/alone.csv",
    ):
        (desk / name).write_text("age\n1\n")
        names.append(name)
    (desk / "open").symlink_to(desk / ".service")
    (desk / "circle.csv").symlink_to("circle.csv")
    (desk / "copied-key.csv").write_bytes(b"0x" + b"cd" * 32)
    (desk / "copied-ledger.csv").write_bytes((desk / "census.reticent/ledger.sqlite").read_bytes())
    (desk / "keystore.csv").write_text('{"crypto": {}}')
    names += ["open/ledger.key", "open/state.sqlite", "open/devices/one.csv", "circle.csv", "copied-key.csv"]
    names += ["copied-ledger.csv", "keystore.csv"]
    protected = {(desk / name).stat()[1:3] for name in names if name != "circle.csv"}
    return SimpleNamespace(desk=desk, elsewhere=elsewhere, ours=names, protected=protected)


def files(world, count, seed=26):
    """Names of files: what is not rows, by ever other ways."""
    rng = random.Random(seed)
    away = [str(world.elsewhere / name) for name in ("x.csv", "x.db", "x.parquet")]
    odd = [
        "", ".", "..", "/", "~", "~/x.csv", "*", "*.csv", "[r]ows.*", "rows.csv\0", "\0", "nul",
        "rows.csv/", "rows.csv/.", "rows.csv/..", "http://127.0.0.1/x.csv", "s3://x/y.csv",
        "file:rows.csv", "-", "/dev/stdin", "/dev/fd/0", "/proc/self/environ", "/proc/self/mem",
        "/etc/passwd", "/etc/shadow", "x" * 5000, "\ud800", "rows.csv'; DROP TABLE people; --",
        "rows.csv\n", " rows.csv", "rows.csv ", "rows.csv::$DATA", "%2e%2e/elsewhere/x.csv",
        "..\\elsewhere\\x.csv", "desk/rows.csv", "\u202erows.csv",
    ]  # fmt: skip
    for _ in range(count):
        name = rng.choice([*world.ours * 3, *away, *odd])
        for _ in range(rng.randrange(4)):
            name = rng.choice(_TWISTS)(name, world, rng)
        yield name


_TWISTS = [
    lambda name, world, rng: name.swapcase(),
    lambda name, world, rng: "".join(rng.choice((c.upper(), c.lower())) for c in name),
    lambda name, world, rng: f"./{name}",
    lambda name, world, rng: f".service/../{name}",
    lambda name, world, rng: f"../desk/{name}",
    lambda name, world, rng: f"../../{world.desk.parent.name}/desk/{name}",
    lambda name, world, rng: str(world.desk / name),
    lambda name, world, rng: f"/proc/self/root/{world.desk / name}",
    lambda name, world, rng: name.replace("/", "//"),
    lambda name, world, rng: f"{name}/",
    lambda name, world, rng: f"{name}.csv",
    lambda name, world, rng: f"{name} ",
    lambda name, world, rng: f"'{name}'",
    lambda name, world, rng: f"file://{name}",
    lambda name, world, rng: name.replace(".", "%2e"),
]


def tables(world, count, seed=26):
    """Names of tables, with a schema now and then: files, functions, statements, variables."""
    rng = random.Random(seed)
    places = [str(world.elsewhere / name) for name in ("x.csv", "x.parquet", "x.db")]
    places += [f"../elsewhere/{name}" for name in ("x.csv", "x.parquet")] + [str(world.desk / "rows.csv")]
    own = [
        "duckdb_tables", "duckdb_settings()", "sqlite_master", "information_schema.tables", "pg_class",
        "data", "frame", "engine", "connection", "self", "source", "rows", "told", "told()", "people--",
        'people"', "people; DROP TABLE people", "people UNION SELECT * FROM x", "(SELECT 1)", "",
        " people", "people ", "main.people", "source.main.people", "nobody", "\0", "p\u00ebople",
        "x" * 5000, "*", "?", "generate_series(1, 5)", "range", "http://127.0.0.1/x.csv",
        "s3://x/y.parquet", "sqlite:x", "1",
    ]  # fmt: skip
    schemas = [None, None, None, "main", "temp", "system", "information_schema", "pg_catalog", "nobody",
               str(world.elsewhere), "/", "source", "memory", 'main"', "main.people", ""]  # fmt: skip
    for _ in range(count):
        place = rng.choice(places)
        name = rng.choice([place, place, f"'{place}'", f'"{place}"', f"read_csv('{place}')",
                           f"read_parquet(['{place}'])", f"read_text('{place}')", f"glob('{place}')",
                           f"{place}/*", f"file://{place}", f"{place}?x=1", f"{place}.gz", place.swapcase(),
                           f"x AS y, '{place}'", f"iceberg_scan('{place}')",
                           rng.choice(own), rng.choice(own)])  # fmt: skip
        schema = rng.choice(schemas)
        if schema == str(world.elsewhere):
            name = "x.csv"
        yield name, schema
