"""A training task as its author writes it, in words, and the tables that it names."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from reticent.errors import ParameterError, ReticentError
from reticent.federated import payload, tables, task_file
from reticent.federated.explanation import clients_needed, explain, noise_share
from reticent.federated.models import SVM, Axes, Linear, Logistic

TEXT = task_file.TEMPLATE
LINEAR = TEXT.replace("model: logistic", "model: linear").replace(
    "braked, values: [soft, hard]", "force, low: 0, high: 10"
)
SIMULATED = TEXT.replace("# simulation: ", "simulation: ").replace("#   ", "  ")


def test_the_template_is_a_task():
    found = task_file.parse(TEXT)
    task = found.task
    assert isinstance(task.model, Logistic)
    assert (task.name, task.version, task.rounds, task.group, task.participations) == (
        *("my-task", "1", 50, 2000, 1),
    )
    assert found.encoding.columns == ["speed", "kind=car", "kind=bus", "kind=bicycle"]
    assert task.dimensions == 5
    assert task.steps.described() == {"kind": "inverse-root", "rate": 4.0, "momentum": 0.0}
    assert (found.table, found.owner, found.holdout) == (None, None, None)


def test_every_field_is_heard(tmp_path):
    text = SIMULATED
    for line in (
        "schedule: inverse-root",
        "momentum: 0",
        "clip: 1",
        "sample: 1",
        "mechanism: OneBit",
        "l2: 0.0001",
    ):
        assert f"\n# {line}" in text
    for old, new in (
        ("# schedule: inverse-root", "schedule: constant"),
        ("# momentum: 0 ", "momentum: 0.5 "),
        ("# clip: 1 ", "clip: 2.5 "),
        ("# sample: 1 ", "sample: 2 "),
        ("# mechanism: OneBit", "mechanism: PMSub"),
        ("# l2: 0.0001", "l2: 1e-3"),
        ("# intercept: true", "intercept: false"),
        ("participations: 1 ", "participations: 3 "),
        ("model: logistic", "model: svm"),
    ):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "t.yaml").write_text(text)
    found = task_file.read(tmp_path / "t.yaml")
    task = found.task
    assert isinstance(task.model, SVM)
    assert (task.model.l2, task.model.intercept, task.dimensions) == (1e-3, False, 4)
    assert (task.bounds, task.sample_size, task.participations) == (2.5, 2, 3)
    assert type(task.mechanism).__name__ == "PMSub"
    assert task.steps.described() == {"kind": "constant", "rate": 4.0, "momentum": 0.5}
    assert (found.table, found.holdout) == (tmp_path / "rows.csv", tmp_path / "public.csv")
    assert found.owner == "driver"


def test_axes_are_fitted_on_the_table_that_the_file_names(tmp_path):
    rows = list(task_file.example_rows(300))
    for name, some in (("public.csv", rows[:101]), ("rows.csv", [rows[0], *rows[101:]])):
        (tmp_path / name).write_text("".join(some))
    text = SIMULATED.replace("# axes: {count: 8,", "axes: {count: 2,")
    found = task_file.parse(text, tmp_path)
    model = found.task.model
    assert (model.inputs, model.axes.count, found.task.dimensions) == (4, 2, 3)
    public, clients = (
        tables.read(tmp_path / name, found.encoding).features for name in ("public.csv", "rows.csv")
    )
    assert model.axes.described() == Axes.fitted(public, 2).described()
    assert model.axes.described() != Axes.fitted(clients, 2).described()  # planted: fitted on clients
    assert "3 numbers of a logistic model of 4 features along 2 public axes" in " ".join(explain(found.task))
    for change, words in (
        ("count: 5", "axes must be <= 4, got 5"),
        ("rows: 2", "axes: .*rows"),
        ("count: x", "axes.count must be a whole number"),
    ):
        with pytest.raises(ReticentError, match=words):
            task_file.parse(text.replace("count: 2", change), tmp_path)
    assert any("must be public" in one for one in explain(found.task))


@pytest.mark.parametrize("made", [Path.symlink_to, Path.hardlink_to, shutil.copyfile])
def test_the_clients_own_table_is_nobodys_public_one(tmp_path, made):
    """By any name: exact means of clients would stand in the task, or exact curves beside the model."""
    rows = tmp_path / "rows.csv"
    rows.write_text("".join(task_file.example_rows(50)))
    public = tmp_path / "public.csv"
    made(*((rows, public) if made is shutil.copyfile else (public, rows)))
    fitted = SIMULATED.replace("# axes: {count: 8,", "axes: {count: 2,").replace("  holdout", "# holdout")
    for field, text in (("axes.table", fitted), ("simulation.holdout", SIMULATED)):
        with pytest.raises(ParameterError, match=f"^{field} must be public rows, got those of simulation"):
            task_file.parse(text, tmp_path)
    public.unlink()
    public.write_text("".join(task_file.example_rows(50)))  # others are taken
    assert task_file.parse(fitted, tmp_path).task.model.axes.count == 2


def test_no_matrix_is_made_of_too_many_features(tmp_path, monkeypatch):
    many = SIMULATED.replace("# axes: {count: 8,", "axes: {count: 2,").replace(
        "[car, bus, bicycle, other]", f"[{', '.join(f'c{place}' for place in range(2100))}, other]"
    )
    (tmp_path / "public.csv").write_text("".join(task_file.example_rows(50)))
    monkeypatch.setattr(tables, "read", None)  # refused before a row is read
    with pytest.raises(ParameterError, match="features of axes must be <= 2048, got 2101"):
        task_file.parse(many, tmp_path)


def test_a_linear_model_predicts_a_number():
    found = task_file.parse(LINEAR)
    assert isinstance(found.task.model, Linear)
    assert not found.encoding.is_classifier


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epsilon: 2 ", "epsilon: much ", "epsilon must be a number, got 'much'"),
        ("epsilon: 2 ", "epsilon: 100 ", "epsilon must be"),
        ("rounds: 50", "rounds: many", "rounds must be a whole number"),
        ("group: 2000", "group: 0", "group must be >= 1"),
        ("participations: 1 ", "participations: 51 ", "participations must be <= 50"),
        ("rate: 4 ", "rate: 0 ", "rate must be > 0"),
        ("typical: 0.1", "prior: big ones", "prior must be 'uniform', 'small gradients', or weights"),
        ("typical: 0.1", "prior: {a: 1}", "prior must be a name, or a list of weights"),
        ("typical: 0.1", "typical: 0.1\nprior: [1, 2]", "typical and prior must not be given together"),
        ("typical: 0.1", "typical: 2", "typical must be"),
        ("model: logistic", "model: forest", "model must be one of linear, logistic, svm"),
        ("model: logistic", "model: linear", "target of a linear model must have low and high"),
        ("values: [soft, hard]", "low: 0, high: 1", "target of a logistic model must have two values"),
        ("[soft, hard]", "[soft, hard, none]", "target must have two values or bounds, got 3"),
        ("target: {column: braked, ", "target: {", "target must have fields: column"),
        ("column: braked", "column: speed", "distinct names, got 'speed' twice"),
        ("low: 0, ", "", "features.speed: field low is missing"),
        ("low: 0, high: 130", "low: 9, high: 3", "bounds must satisfy"),
        ("fallback: other", "fallback: train", "fallback must be one of"),
        ("# intercept: true", "intercept: 1", "intercept must be true or false"),
        ("# schedule: inverse-root", "schedule: slow", "kind of steps must be one of"),
        ("# momentum: 0 ", "momentum: 1 ", "momentum must be"),
        ("# clip: 1 ", "clip: 0 ", "bounds must be"),
        ("# sample: 1 ", "sample: 9 ", "sample_size must be <= 5"),
        ("# mechanism: OneBit", "mechanism: Laplace", "mechanism must be one of"),
        ("# simulation: ", "simulation: 3 #", "simulation must have fields"),
        ("# simulation: ", "simulation: {colour: red} #", "simulation: field 'colour' is not known"),
        ("name: my-task", "name: my task", "name must be"),
        ("version: 1", "colour: 1", "field 'colour' is not known"),
        ("version: 1\n", "", "field version is missing"),
    ],
)
def test_what_breaks_a_rule_is_named(old, new, message):
    assert old in TEXT
    with pytest.raises(ReticentError, match=message):
        task_file.parse(TEXT.replace(old, new))


def test_what_is_no_yaml_is_refused(tmp_path):
    for content in (b"[", b"- a\nb: c", b"3", b"\xff", b"a" * (1 << 21)):
        path = tmp_path / "t.yaml"
        path.write_bytes(content)
        with pytest.raises(ReticentError, match=r"task t\.yaml: "):
            task_file.read(path)


# In words


def test_a_task_is_told_in_words():
    task = task_file.parse(TEXT).task
    text = "\n".join(explain(task))
    for part in (
        "5 numbers of a logistic model in 50 rounds",
        "One report holds 1 of 5 coordinates (the task draws which)",
        "at most 88.1 % sure",
        "reports in one round only, and spends epsilon 2 in all",
        f"One report takes {payload.size(task)} bytes",
        "32-bit numbers takes 20",
        "At least 100,000 clients",
    ):
        assert part in text


def test_participations_are_added_up_and_warned_of():
    task = task_file.parse(TEXT.replace("participations: 1 ", "participations: 4 ")).task
    text = "\n".join(explain(task))
    assert "reports in 4 rounds, the most it may, spends epsilon 8 in all" in text
    assert "fewer participations or a smaller epsilon" in text
    assert clients_needed(task) == 25_000


def test_nobody_reports_twice_in_a_round():
    task = task_file.parse(TEXT.replace("participations: 1 ", "participations: 50 ")).task
    assert clients_needed(task) == task.group


def test_noise_is_told_as_a_share_of_the_clip():
    """Whatever the clip is, and less by the root of the group."""
    one, wide = (task_file.parse(TEXT.replace("# clip: 1 ", f"clip: {clip} ")).task for clip in (1, 50))
    assert noise_share(one) == pytest.approx(noise_share(wide))
    more = task_file.parse(TEXT.replace("group: 2000", "group: 200000")).task
    assert noise_share(more) == pytest.approx(noise_share(one) / 10)


# Tables


@pytest.fixture
def encoding():
    return task_file.parse(TEXT).encoding


def written(folder, form, columns):
    path = folder / f"t.{form}"
    table = pa.table(columns)
    if form == "csv":
        pa.csv.write_csv(table, path)
    else:
        pa.parquet.write_table(table, path)
    return path


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_rows_of_a_file(encoding, tmp_path, form):
    """Whatever a cell holds becomes a value: missing, outside, unknown."""
    path = written(
        tmp_path,
        form,
        {
            "kind": ["car", "bus", "plane", None, "other"],
            "speed": [0.0, 130.0, None, 1e9, 65.0],
            "braked": ["hard", "soft", "soft", None, "hard"],
            "driver": ["a", "b", "a", None, "b"],
            "colour": ["red"] * 5,
        },
    )
    rows = tables.read(path, encoding, "driver")
    assert rows.features[:, 0].tolist() == [-1.0, 1.0, 0.0, 1.0, 0.0]
    assert rows.features[:, 1:].tolist() == [[1, -1, -1], [-1, 1, -1], *[[-1, -1, -1]] * 3]
    assert rows.targets.tolist() == [1.0, -1.0, -1.0, -1.0, 1.0]
    assert rows.owners.tolist() == [0, 1, 0, -1, 1]
    assert rows.clients == 3
    assert tables.read(path, encoding).clients == 5


def test_a_number_may_decide_whose_rows_they_are(encoding, tmp_path):
    columns = {"kind": ["car"] * 4, "speed": [1.0] * 4, "braked": ["hard"] * 4, "driver": [7, 9, 7, 7]}
    for form in ("csv", "parquet"):
        assert tables.read(written(tmp_path, form, columns), encoding, "driver").owners.tolist() == [
            0,
            1,
            0,
            0,
        ]


def test_blocks_of_a_large_file_are_joined(encoding, tmp_path, monkeypatch):
    monkeypatch.setattr("reticent.collect.batch.BLOCK_ROWS", 7)
    speeds = np.linspace(0.0, 130.0, 50)
    path = written(tmp_path, "parquet", {"kind": ["car"] * 50, "speed": speeds, "braked": ["hard"] * 50})
    assert tables.read(path, encoding).features[:, 0] == pytest.approx(np.linspace(-1.0, 1.0, 50))


def test_what_is_no_table_is_refused(encoding, tmp_path):
    with pytest.raises(ParameterError, match="table must be a file, there is none at"):
        tables.read(tmp_path / "none.csv", encoding)
    (tmp_path / "key.csv").write_text("ab" * 32 + "\n")  # which a task file of somebody else may name
    (tmp_path / "link.csv").symlink_to("key.csv")
    with pytest.raises(ParameterError, match="table must be a file with rows: no declaration, key or ledger"):
        tables.read(tmp_path / "link.csv", encoding)
    (tmp_path / "t.csv").write_text("speed,kind\n1,car\n")
    with pytest.raises(ReticentError, match="with the columns speed, kind, braked"):
        tables.read(tmp_path / "t.csv", encoding)
    (tmp_path / "t.csv").write_text("speed,kind,braked\n")
    with pytest.raises(ParameterError, match="must have rows"):
        tables.read(tmp_path / "t.csv", encoding)


def test_the_example_holds_all_that_a_simulation_needs(tmp_path):
    text = task_file.template({"table": "clients.csv", "holdout": "public.csv"})
    for name, rows in zip(("clients", "public"), task_file.EXAMPLE_ROWS, strict=True):
        (tmp_path / f"{name}.csv").write_text("".join(task_file.example_rows(rows)))
    found = task_file.parse(text, tmp_path)
    rows = tables.read(found.table, found.encoding)
    assert rows.clients == len(rows.targets) == clients_needed(found.task) == task_file.EXAMPLE_ROWS[0]
    assert len(tables.read(found.holdout, found.encoding).targets) == task_file.EXAMPLE_ROWS[1]
    assert 0.4 < (rows.targets > 0).mean() < 0.6
