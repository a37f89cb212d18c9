"""The check of names in `make lint`, on small trees with planted offences."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("check_names", ROOT / "tools" / "check_names.py")
check_names = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_names)

CLEAN_MODULE = '''"""Reports of devices."""


class ReportStatus:
    """The status of a report."""


def load_report(path):
    """Load a report.

    Args:
        path: File of the report.
    """
    report = path.read_text()
    return report
'''
CLEAN_LIMITS = {
    "bare_participle_functions": "0.0",
    "house_word_identifiers": "0.0",
    "one_word_classes": "0.0",
    "shared_class_names": "0.0",
    "public_modules": "0.0",
    "fragment_docstrings": "0.0",
    "preposition_arguments": "0.0",
    "whoever": "0",
    "lines_of_code": "1000",
}
PREPOSITION = '''def save_report(path):
    """Save a report.

    Args:
        path: of the report.
    """
'''
# Each measure with a file that offends it alone, and the line of the offence.
OFFENCES = {
    "bare_participle_functions": ("_planted.py", "def opened():\n    pass\n", 1),
    "house_word_identifiers": ("_planted.py", "report = 1\nheld_report = 1\n", 2),
    "one_word_classes": ("_planted.py", "class Outcome:\n    pass\n", 1),
    "shared_class_names": ("_planted.py", "class ReportStatus:\n    pass\n", 1),
    "public_modules": ("planted.py", "", 1),
    "fragment_docstrings": ("_planted.py", 'def save_report():\n    """What is saved."""\n', 2),
    "preposition_arguments": ("_planted.py", PREPOSITION, 5),
    "whoever": ("_planted.py", "\n# Whoever reads this.\n", 2),
    "lines_of_code": ("_planted.py", "report = 1\n" * 1001, 1),
}


@pytest.fixture
def tree(tmp_path):
    source = tmp_path / "package"
    source.mkdir()
    (source / "__init__.py").write_text("")
    (source / "_reports.py").write_text(CLEAN_MODULE)
    return source


@pytest.fixture
def run_check(tree, tmp_path, monkeypatch, capsys):
    """Run the check on the tree, and return its exit code and output."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "limits.toml"

    def run(*options, **limits):
        if limits or not path.exists():
            values = {**CLEAN_LIMITS, **limits}
            path.write_text("# A comment.\n" + "".join(f"{key} = {value}\n" for key, value in values.items()))
        code = check_names.main(["--source", str(tree), "--limits", str(path), *options])
        return code, capsys.readouterr().out

    run.limits = path
    return run


def test_a_clean_tree_passes(run_check):
    assert run_check()[0] == 0


@pytest.mark.parametrize("measure", OFFENCES)
def test_each_planted_offence_fails_its_measure_alone(tree, run_check, measure):
    name, text, line = OFFENCES[measure]
    (tree / name).write_text(text)
    code, output = run_check()
    assert code == 1
    failed = [entry for entry in output.splitlines() if not entry.startswith(" ")]
    assert len(failed) == 1
    assert failed[0].startswith(f"{measure}: ")
    assert "is above the limit of" in failed[0]
    if measure != "shared_class_names":  # its first offender is in the clean module
        assert f"package/{name}:{line}" in output


def test_every_measure_has_a_planted_offence(tree):
    assert check_names.measure_tree(tree).keys() == OFFENCES.keys() == CLEAN_LIMITS.keys()


def test_every_offender_of_a_file_is_listed(tree, run_check):
    for name, text, _ in OFFENCES.values():
        with (tree / name).open("a") as file:
            file.write(text)
    code, output = run_check("--list", str(tree / "_planted.py"))
    assert code == 0
    assert "package/_planted.py:1: bare_participle_functions: opened\n" in output
    assert "_reports.py" not in output


def test_shares_are_rounded_up(tree, run_check):
    (tree / "_planted.py").write_text("class Outcome:\n    pass\n\n\nclass ReportReader:\n    pass\n")
    code, output = run_check(one_word_classes="33.3")
    assert code == 1
    assert "1 of 3 (33.33 %) is above the limit of 33.3" in output
    assert run_check(one_word_classes="33.4")[0] == 0


def test_a_figure_clearly_below_its_limit_fails(run_check):
    assert run_check(one_word_classes="0.5")[0] == 0
    code, output = run_check(one_word_classes="0.6", whoever="11")
    assert code == 1
    assert output.splitlines() == [
        "one_word_classes: class names of one word: 0 of 1 (0.00 %) has fallen: lower the limit to 0.0",
        "whoever: 'whoever' in the source: 0 has fallen: lower the limit to 0",
    ]


def test_limits_are_lowered_and_never_raised(tree, run_check):
    (tree / "_planted.py").write_text("class Outcome:\n    pass\n")
    code, _ = run_check("--lower", whoever="11")
    assert code == 1
    assert run_check.limits.read_text() == "# A comment.\n" + "".join(
        f"{key} = {value}\n" for key, value in CLEAN_LIMITS.items()
    )


def test_a_missing_limit_is_refused(run_check):
    run_check()
    run_check.limits.write_text("whoever = 0\n")
    with pytest.raises(SystemExit, match="must hold these limits: bare_participle_functions, "):
        run_check()
