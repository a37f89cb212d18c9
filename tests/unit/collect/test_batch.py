"""Tables larger than a block: reports of every row, counted on any executor."""

import datetime as dt
import math
from concurrent.futures import Future, ProcessPoolExecutor
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from reticent.collect import batch
from reticent.collect.design import designed
from reticent.collect.estimates import estimates
from reticent.errors import ParameterError, SourceError
from reticent.mechanisms.record import Category, Number

KINDS = ["car", "bus", "bicycle"]


class Here:
    """An executor that works in this process, and says how many jobs were under way at once."""

    def __init__(self):
        self.jobs = 0

    def submit(self, work, *given):
        self.jobs += 1
        done = Future()
        done.set_result(work(*given))
        return done


@pytest.fixture(params=[{}, {"kind": "OUE", "speed": "PM"}, {"kind": "OLH", "speed": "Window"}], ids=str)
def survey(request):
    return designed(
        "traffic",
        [Number("speed", (0.0, 130.0)), Category("kind", KINDS)],
        epsilon=4.0,
        purpose="To plan roads.",
        start=0,
        period_s=60,
        periods=1,
        groups=4,
        mechanisms=request.param,
    )


def people(rows, *, odd=True):
    rng = np.random.default_rng(1)
    speed = rng.uniform(20.0, 80.0, rows).astype(object)
    kind = rng.choice(KINDS, rows, p=[0.5, 0.3, 0.2]).astype(object)
    if odd:
        speed[0], kind[0] = None, None
    return {"speed": speed.tolist(), "kind": kind.tolist(), "name": ["somebody"] * rows}


def written(folder, table, form):
    path = folder / f"rows.{form}"
    if form == "parquet":
        pa.parquet.write_table(pa.table(table), path)
    else:
        pa.csv.write_csv(pa.table(table), path)
    return path


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_reports_are_counted_and_estimate_the_rows(survey, tmp_path, monkeypatch, form):
    """Mean and shares within 6 standard errors: false alarms below 1e-8."""
    monkeypatch.setattr(batch, "BLOCK_ROWS", 3000)
    rows, shown, here = 8000, [], Here()
    table = people(rows)
    given = written(tmp_path, table, form)
    out = tmp_path / f"reports.{form}"
    assert batch.perturb(survey, given, out, here, progress=shown.append) == rows
    assert shown[-1] == rows
    assert shown == sorted(shown)
    assert not [one for one in tmp_path.iterdir() if one.suffix == ".part"]
    tally = batch.aggregate(survey, out, here)
    assert sum(int(one.sum()) for one in tally.reports) == rows * survey.sample_size
    speed, kind = estimates(tally)
    truth = np.array([65.0 if one is None else one for one in table["speed"]]).mean()
    error = math.sqrt(survey.instruments[0].worst_case_variance / speed.reports)
    assert abs(speed.mean.value - truth) < 6 * error
    shares = np.array([sum((one or "car") == name for one in table["kind"]) for name in KINDS]) / rows
    assert (np.abs(kind.frequencies.frequencies - shares) < 6 * kind.frequencies.standard_errors + 0.01).all()


def test_the_check_finds_reports_that_are_not_perturbed_but_shifted(survey, tmp_path, monkeypatch):
    """Planted: every number is reported as if it were the upper bound."""
    true = batch._values
    monkeypatch.setattr(
        batch,
        "_values",
        lambda column, of: np.full(len(column), 130.0) if of.name == "speed" else true(column, of),
    )
    given, out = written(tmp_path, people(8000), "parquet"), tmp_path / "reports.parquet"
    batch.perturb(survey, given, out, Here())
    speed, _ = estimates(batch.aggregate(survey, out, Here()))
    assert abs(speed.mean.value - 50.0) > 6 * math.sqrt(
        survey.instruments[0].worst_case_variance / speed.reports
    )


def test_processes_draw_independently(tmp_path):
    """Two processes, equal rows: their reports differ (equal by chance with probability below 2^-1000)."""
    survey = designed("traffic", [Number("speed")], epsilon=1.0, purpose="x", start=0, period_s=60, periods=1)
    given = written(tmp_path, {"speed": [0.0] * 4000}, "parquet")
    out = tmp_path / "reports.parquet"
    with pytest.MonkeyPatch.context() as patch, ProcessPoolExecutor(2) as pool:
        patch.setattr(batch, "BLOCK_ROWS", 2000)
        batch.perturb(survey, given, out, pool)
    symbols = pa.parquet.read_table(out)["speed"].to_numpy()
    assert (symbols[:2000] != symbols[2000:]).any()


def cut(survey, folder, names, form):
    """How reports of rows with these names, which nobody asks for, are cut into row groups."""
    folder.mkdir()
    rows = len(names)
    given = written(folder, {"speed": [50.0] * rows, "kind": ["car"] * rows, "name": names}, form)
    out = folder / "reports.parquet"
    batch.perturb(survey, given, out, Here())
    file = pa.parquet.ParquetFile(out)
    return [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_reports_are_cut_by_the_number_of_rows_alone(survey, tmp_path, monkeypatch, form):
    """How long a row is must not be told. Planted: blocks as the reader cuts them."""
    monkeypatch.setattr(batch, "BLOCK_ROWS", 1000)
    short, long = ["x" * 5] * 2500, ["x" * 5_000] * 2500
    assert (
        cut(survey, tmp_path / "a", short, form)
        == cut(survey, tmp_path / "b", long, form)
        == [1000, 1000, 500]
    )
    if form == "csv":
        monkeypatch.setattr(batch, "_recut", lambda blocks: blocks)
        assert cut(survey, tmp_path / "c", short, form) != cut(survey, tmp_path / "d", long, form)


def test_no_line_of_reports_is_that_of_its_row(tmp_path, monkeypatch):
    """At epsilon 20 nearly every symbol tells its value: sorted rows must not give sorted reports."""
    survey = designed(
        "traffic", [Number("speed")], epsilon=20.0, purpose="x", start=0, period_s=60, periods=1,
        mechanisms={"speed": "Duchi"},
    )  # fmt: skip
    given = written(tmp_path, {"speed": [-1.0] * 500 + [1.0] * 500}, "parquet")
    for planted in (False, True):
        if planted:
            monkeypatch.setattr(batch.np, "argsort", lambda words: np.arange(len(words)))
        out = tmp_path / f"{planted}.parquet"
        batch.perturb(survey, given, out, Here())
        symbols = pa.parquet.read_table(out)["speed"].to_numpy()
        share = symbols[:500].mean()  # by chance 0.5, and beyond 0.35 once in 1e11
        assert (share < 0.01) if planted else (0.35 < share < 0.65)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("values", [5, [1, 2, 3]], ids=["numbers", "labels"])
def test_whole_numbers_are_categories_in_every_form(tmp_path, form, values):
    survey = designed(
        "c", [Category("c", values)], epsilon=12.0, purpose="x", start=0, period_s=60, periods=1,
        mechanisms={"c": "KRR"},
    )  # fmt: skip
    given, out = written(tmp_path, {"c": [3] * 1000}, form), tmp_path / "r.parquet"
    batch.perturb(survey, given, out, Here())
    (found,) = estimates(batch.aggregate(survey, out, Here()))
    assert found.frequencies.frequencies[survey.instruments[0].categories.index(3)] > 0.95


# What a row says does not follow from the others

ATTRIBUTES = {
    "number": (Number("x", (0.0, 130.0)), [50, 20, 2**53 + 1]),
    "double": (Number("x", (0.0, 130.0)), [0.5, 20.25]),
    "counted": (Category("x", 4), [0, 3, 1, 9]),
    "grades": (Category("x", (1, 2, 3)), [1, 3, 4]),
    "written": (Category("x", ("01", "2", "no grade")), [1, 2]),
    "truths": (Category("x", ("maybe", True, False)), [True, False]),
    "words": (Category("x", ("f", "m", "?")), ["f", "m"]),
    "days": (Category("x", ("2026-01-02", "other")), [dt.date(2026, 1, 2), dt.date(2026, 1, 3)]),
    "decimals": (Category("x", ("1.5", "2")), [Decimal("1.50"), Decimal("2.00")]),
}
ODD = [None, 1.5, 7, "x", "", "a\rb\rc,d", True, math.nan, Decimal("1.005"), Decimal("1e30"), b"f", b"\xff",
       [1], dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 5), dt.timedelta(1), 2**60, 1j]  # fmt: skip


def stored(path, cells):
    """As pandas, or else Arrow, stores the cells; None if both refuse them."""
    frame = pd.DataFrame({"x": cells, "who": cells})
    if path.suffix == ".csv":
        return frame.to_csv(path, index=False, lineterminator="\n")
    try:
        frame.to_parquet(path)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        path.unlink(missing_ok=True)


def read(path, attribute):
    """What is read of each row, and whose it is."""
    table, owners = batch.columns(path, [attribute], key="who")
    return [[one, owners.tolist()[i]] for i, one in enumerate(table["x"].tolist())]


def check_flips(tmp_path, form):
    """Columns in which one odd cell changes what is read of another row, or whose it is."""
    wrong = []
    for name, (attribute, cells) in ATTRIBUTES.items():
        stored(tmp_path / f"x.{form}", cells)
        plain = read(tmp_path / f"x.{form}", attribute)
        for odd in ODD:
            stored(tmp_path / f"x.{form}", [*cells, odd])
            if (tmp_path / f"x.{form}").exists():
                found = read(tmp_path / f"x.{form}", attribute)
                wrong += [(name, odd)] if found[:-1] != plain or len(found) != len(cells) + 1 else []
    return wrong


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_one_odd_row_leaves_the_others_as_they_are(tmp_path, form):
    assert check_flips(tmp_path, form) == []


def test_planted_values_by_storage_are_noticed(tmp_path, monkeypatch):
    def by_storage(column, attribute):
        found = np.empty(len(column), dtype=object)
        found[:] = [str(one) for one in column.to_pylist()]
        return found

    monkeypatch.setattr(batch, "_values", by_storage)
    assert {name for name, _ in check_flips(tmp_path, "parquet")} >= {"grades", "decimals"}


def test_planted_rows_out_of_text_are_noticed(tmp_path, monkeypatch):
    def by_arrow(path, names, schema):
        return iter(
            pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(include_columns=names)).to_batches()
        )

    monkeypatch.setattr(batch, "_reader", by_arrow)
    (tmp_path / "x.csv").write_bytes(b"x,who\n1\r2,me\r3\r4,me\n")
    with pytest.raises(SourceError):  # Arrow ends rows at a lone CR, and refuses those that are too short
        read(tmp_path / "x.csv", ATTRIBUTES["number"][0])
    monkeypatch.undo()
    assert len(read(tmp_path / "x.csv", ATTRIBUTES["number"][0])) == 1


def test_values_that_no_cell_can_tell_apart_are_refused(tmp_path):
    for values in ((1, "1"), ("yes", True, "x"), ("01", "1"), ("a", "nan")):
        survey = designed(
            "s", [Category("x", values)], epsilon=1.0, purpose="p", start=0, period_s=60, periods=1
        )
        stored(tmp_path / "x.csv", [1])
        with pytest.raises(ParameterError, match="x: values must say something different in a table, got"):
            batch.perturb(survey, tmp_path / "x.csv", tmp_path / "out.csv", Here())
        assert not (tmp_path / "out.csv").exists()


def test_odd_bytes_are_a_value_like_any_other(survey, tmp_path):
    """And what no mechanism can take is told without a word of it."""
    table = {"speed": pa.array([1.0, 2.0]), "kind": pa.array([b"car", b"\xff\xfe"]).cast(pa.binary())}
    path, out = tmp_path / "rows.parquet", tmp_path / "r.parquet"
    pa.parquet.write_table(pa.table(table), path)
    assert batch.perturb(survey, path, out, Here()) == 2
    (tmp_path / "rows.csv").write_bytes(b"speed,kind\n1,car\n2,\xff\xfe\nx,\n")
    assert batch.perturb(survey, tmp_path / "rows.csv", tmp_path / "r.csv", Here()) == 3


def test_a_fault_in_a_block_tells_nothing(survey, tmp_path, monkeypatch):
    def broken(column, of):
        raise ValueError("a secret of somebody")

    monkeypatch.setattr(batch, "_values", broken)
    with pytest.raises(SourceError, match=r"^a block of rows cannot be read$"):
        batch.perturb(survey, written(tmp_path, people(10), "csv"), tmp_path / "r.csv", Here())


def test_columns_and_files_are_named_in_errors(survey, tmp_path):
    given = written(tmp_path, people(10), "csv")
    other = written(tmp_path, {"speed": [1.0], "other": [2.0]}, "parquet")
    out = tmp_path / "reports.parquet"
    for path in (other, tmp_path / "none.csv", tmp_path / "none.parquet"):
        with pytest.raises(SourceError, match="with the columns speed, kind"):
            batch.perturb(survey, path, out, Here())
    for place in ("reports.txt", "reports"):
        with pytest.raises(ParameterError, match="must end in"):
            batch.perturb(survey, given, tmp_path / place, Here())
    out.write_text("mine")
    with pytest.raises(ParameterError, match="out must not exist"):
        batch.perturb(survey, given, out, Here())
    assert out.read_text() == "mine"


def test_an_interrupted_run_leaves_nothing(survey, tmp_path, monkeypatch):
    given, out = written(tmp_path, people(10), "csv"), tmp_path / "reports.csv"

    def broken(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(batch, "_perturbed", broken)
    with pytest.raises(KeyboardInterrupt):
        batch.perturb(survey, given, out, Here())
    assert sorted(one.name for one in tmp_path.iterdir()) == ["rows.csv"]


def test_illegal_reports_are_refused(tmp_path):
    survey = designed(
        "traffic",
        [Number("speed"), Category("kind", KINDS)],
        epsilon=2.0,
        purpose="x",
        start=0,
        period_s=60,
        periods=1,
        sample_size=2,
        mechanisms={"speed": "Duchi", "kind": "OUE"},
    )
    for speed, kind, message in (
        (2, "00", "symbols >= 0 and < 2"),
        (0, "zz", "reports of OUE"),
        (0, "01", "OUE"),
    ):
        path = tmp_path / "r.parquet"
        pa.parquet.write_table(pa.table({"speed": pa.array([speed], pa.int32()), "kind": [kind]}), path)
        with pytest.raises(ParameterError, match=message):
            batch.aggregate(survey, path, Here())


@pytest.mark.slow
def test_a_dask_cluster_is_an_executor(survey, tmp_path):
    distributed = pytest.importorskip("distributed")
    given, out = written(tmp_path, people(8000), "parquet"), tmp_path / "reports.parquet"
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        executor = client.get_executor(pure=False)
        assert batch.perturb(survey, given, out, executor) == 8000
        tally = batch.aggregate(survey, out, executor)
    assert sum(int(one.sum()) for one in tally.reports) == 8000 * survey.sample_size
