"""A real browser on a real service, for the tests of the pages."""

import contextlib
import os
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvicorn

from reticent.apps.collect.collecting import Collecting
from reticent.apps.service.serving import create_app
from reticent.collect.design import designed
from reticent.mechanisms.record import Category, Number
from reticent.query import census
from reticent.service.settings import Settings

from ..unit.collect.many_devices import Fleet
from .running import PATIENT, ROWS, make_keys, running

UNPACKED = Path(sys.prefix) / "browser"  # by `make`, where the system has no chromium
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PATIENCE_MS = 240_000  # of a browser on a busy machine
AXE = Path(sys.prefix) / "node_modules" / "axe-core" / "axe.min.js"


# What an owner could write to do harm: names and labels are theirs to choose.
SCRIPT = "<script>window.hit=1</script>"
IMAGE = "\"'><img src=x onerror=window.hit=1>"
HOSTILE = f"""
name: hostile
version: 1
source: hostile.csv
unit: row
relation: replace one
rows: 3
budget: {{epsilon: 8, delta: 1e-4}}
columns:
  '{SCRIPT}': {{type: integer, low: 0, high: 9}}
  '{{{{7*7}}}}': {{type: category, values: ['{SCRIPT}', '{IMAGE.replace("'", "''")}', '{{{{7*7}}}}']}}
"""


def launch(chromium):
    """The system's chromium, or the one that npm brought. Where npm is, no page is skipped."""
    if system := shutil.which("chromium"):
        return chromium.launch(executable_path=system, args=ARGUMENTS, timeout=PATIENCE_MS)
    if not (UNPACKED / "chromium").exists():
        if shutil.which("npm"):
            raise FileNotFoundError(
                f"no browser in {UNPACKED}, though npm is here: run make {sys.prefix}/.browser"
            )
        pytest.skip("neither chromium nor npm on this machine")
    return chromium.launch(
        executable_path=UNPACKED / "chromium",
        args=ARGUMENTS,
        timeout=PATIENCE_MS,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": f"{UNPACKED}/al2023/lib",
            "FONTCONFIG_PATH": f"{UNPACKED}/fonts",
        },
    )


def declare(folder, name, **changes):
    """Another data set on the rows of the census, with a budget of its own."""
    text = (folder / "census.yaml").read_text().replace("name: census", f"name: {name}")
    text = rows_of_its_own(folder, name, text)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / f"{name}.yaml").write_text(text)


def rows_of_its_own(folder, name, text):
    """The declaration with a copy of the rows: one file has one account."""
    (folder / f"{name}.csv").write_bytes((folder / "census.csv").read_bytes())
    assert "census.csv" in text
    return text.replace("census.csv", f"{name}.csv")


def furnish(folder):
    """Data sets, a hostile one among them, and a file that nobody declared; the keys of people."""
    census.write(folder, rows=ROWS)
    text = (folder / "census.yaml").read_text()
    for name in ("story", "priced", "live", "limited"):
        declare(folder, name)
    private = text.replace("name: census", "name: private").replace("replace one", "add or remove one")
    private = rows_of_its_own(folder, "private", private)
    (folder / "private.yaml").write_text(
        "".join(line for line in private.splitlines(keepends=True) if not line.startswith("rows:"))
    )
    (folder / "hostile.yaml").write_text(HOSTILE)
    (folder / "hostile.csv").write_text(f'"{SCRIPT}","{{{{7*7}}}}"\n1,a\n2,b\n3,c\n')
    (folder / "survey.csv").write_text("age,kind,vote\n30,a,true\n40,b,false\n")
    keys = make_keys(folder)
    answered(folder)
    return keys


def answered(folder):
    """A survey with a name that could do harm, and some reports to it."""
    with contextlib.closing(Collecting(Settings(folder))) as collecting:
        survey = designed(
            "fleet",
            [Number("speed", (0.0, 130.0)), Category(SCRIPT, [SCRIPT, IMAGE, "{{7*7}}"])],
            epsilon=2.0,
            purpose=IMAGE,
            start=int(time.time()),
            period_s=3600,
            periods=10,
            mechanisms={"speed": "OneBit", SCRIPT: "KRR"},
        )
        fleet = Fleet(200, survey, key=collecting.signing_key, master=collecting.master)
        collecting.collector.collect(fleet.file, collecting.signer)
        collecting.collector.receive(fleet.reports())


@contextlib.contextmanager
def served(folder, keys, **settings):
    """The service of a folder on a port of its own, in a thread. Nothing takes so long that it is a job."""
    options = {"grid_s": 0.02, "rate": 1e5, "burst": 10**5, **PATIENT, **settings}
    app = create_app(Settings(folder, **options))
    with running(uvicorn.Config(app, ws="none", log_config=None, timeout_keep_alive=600)) as (_, url):
        yield SimpleNamespace(url=url, app=app, desk=app.state.desk, keys=keys, folder=folder)
