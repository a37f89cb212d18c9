"""The command as a person meets it: help, one-line errors, exit codes, completion."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import types
import weakref

import pytest
from typer.main import get_command

from reticent import __version__
from reticent.apps import listed, main
from reticent.cli import entry
from reticent.cli.app import create_app
from reticent.cli.commands import Panel
from reticent.errors import ParameterError, SourceError

COMMANDS = [
    "aggregate", "answers", "ask", "audit", "bridge", "chain", "convert", "crowd", "dataset",
    "demo", "device", "enrolment", "federated", "key", "ledger", "location", "market", "mechanisms", "oracle",
    "perturb", "plan", "price", "publish", "reproduce", "serve", "source", "store", "survey", "version",
]  # fmt: skip


@pytest.fixture
def demo_raising(monkeypatch):
    """Put a demo in place that fails with the given error."""

    def plant(error):
        def run(**options):
            raise error

        module = types.ModuleType("reticent.apps.query.demo")
        module.run = run
        monkeypatch.setitem(sys.modules, "reticent.apps.query.demo", module)

    return plant


@pytest.fixture
def usual_signals():
    """Put back what `main` does to signals."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def code_after_lost_interrupt(monkeypatch, number, patience_s):
    """Exit code of a command that a signal reaches in the callback of a weak reference."""

    def run(_):
        thing = type("Thing", (), {})()
        weakref.finalize(thing, signal.raise_signal, number)
        del thing
        end = time.monotonic() + patience_s
        while time.monotonic() < end:  # in pieces: a signal that comes just before a sleep does not wake it
            time.sleep(0.01)
        return 0

    monkeypatch.setattr(entry, "_run", run)
    with pytest.raises(SystemExit) as ended:
        entry.main(list)
    return ended.value.code


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_that_python_drops_is_repeated(monkeypatch, capsys, number, code):
    assert code_after_lost_interrupt(monkeypatch, number, 120.0) == code
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_planted_a_dropped_interrupt_ends_nothing(monkeypatch, number):
    monkeypatch.setattr(entry, "_repeat_lost_interrupts", lambda ended: contextlib.nullcontext())
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: None)
    assert code_after_lost_interrupt(monkeypatch, number, 0.2) == 0


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_command(command, flag):
    code, out, err = command(flag)
    assert (code, err) == (0, "")
    assert all(f"\n  {name} " in out for name in COMMANDS)
    assert "..." not in out.split("Start here:")[1], "a summary is too long for one line"


def test_help_has_every_command_under_one_heading(command):
    """Planted: a capability whose commands have none would not be listed at all."""
    listed = command("--help")[1].split("Start here:")[1]
    names = [line.split()[0] for line in listed.splitlines() if line.startswith("  ")]
    assert sorted(names) == sorted({*names}), "none twice"
    assert set(COMMANDS) <= set(names)
    headings = [line for line in listed.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings[0] == "Ask a data set:"
    assert len(headings) == len(Panel) - 1


def test_no_argument_shows_the_help(command):
    assert command() == command("--help")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(command, name):
    code, out, err = command(name, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: reticent {name}")
    assert "\\" not in out


def test_version(command):
    assert command("version") == (0, f"reticent {__version__}\n", "")


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["nope"], "nope"),
        (["--nope"], "--nope"),
        (["mechanisms"], "--epsilon"),
        (["mechanisms", "--epsilon", "x"], "'x'"),
        (["mechanisms", "--epsilon", "1", "--bits", "1.5"], "'1.5'"),
        (["convert", "--nope"], "--nope"),
        (["version", "more"], "more"),
    ],
)
def test_a_wrong_command_line_is_one_line(command, is_one_error_line, args, part):
    code, out, err = command(*args)
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert part in err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ParameterError("epsilon must be > 0, got -1.0"), 2, "epsilon must be > 0, got -1.0"),
        (ValueError("two\n lines"), 2, "two lines"),
        (FileNotFoundError(2, "No such file or directory", "a.csv"), 2, "a.csv: No such file or directory"),
        (OSError("disk is full"), 2, "disk is full"),
        (ModuleNotFoundError("no", name="matplotlib"), 2, "pip install 'reticent[plot]'"),
        (ModuleNotFoundError("no", name="ibis"), 2, "pip install 'reticent[query]'"),
        (ModuleNotFoundError("no", name="web3"), 2, "pip install 'reticent[chain]'"),
        (ModuleNotFoundError("no", name="eth_abi"), 2, "pip install 'reticent[chain]'"),
        (ModuleNotFoundError("no", name="fastapi"), 2, "pip install 'reticent[service]'"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (RuntimeError("holds a private 0.73"), 1, "internal fault (RuntimeError)"),
        (ModuleNotFoundError("no", name="reticent.gone"), 1, "internal fault (ModuleNotFoundError)"),
    ],
)
def test_every_failure_is_one_line(command, is_one_error_line, demo_raising, error, code, line):
    demo_raising(error)
    got, out, err = command("demo")
    assert (got, out) == (code, "")
    assert is_one_error_line(err)
    assert line in err
    assert "0.73" not in err


def test_debug_shows_the_traceback(monkeypatch, demo_raising):
    demo_raising(ParameterError("epsilon must be > 0, got -1.0"))
    monkeypatch.setattr(sys, "argv", ["reticent", "--debug", "demo"])
    with pytest.raises(ParameterError, match="epsilon"):
        main()


def test_debug_shows_the_cause_of_a_source_that_cannot_be_reached(monkeypatch, demo_raising):
    demo_raising(SourceError("the source cannot be reached", details="Cause: a.Type, raised in x.py:1"))
    monkeypatch.setattr(sys, "argv", ["reticent", "--debug", "demo"])
    with pytest.raises(SourceError) as raised:
        main()
    assert raised.value.__notes__ == ["Cause: a.Type, raised in x.py:1"]


@pytest.mark.parametrize("missing", ["typer", "click"])
def test_without_typer_one_line_says_what_to_install(command, is_one_error_line, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "reticent.cli.app", raising=False)
    code, out, err = command("--help")
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert "pip install 'reticent[cli]'" in err


def reticent(*args, before="", after="", **environment):
    """Run the command in a fresh interpreter."""
    program = f"""
import sys
{before}
from reticent.apps import listed, main
from reticent.cli import entry
from reticent.cli.app import create_app
try:
    main()
finally:
    {after or "pass"}
"""
    return subprocess.run(
        [sys.executable, "-c", program, *args],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_debug_shows_what_an_error_came_from():
    """Planted: without it, and in one line, only what the user can mend."""
    for asked, shown in (((), False), (("--debug",), True)):
        done = reticent(*asked, "reproduce", "nothing")
        assert ("ParameterError: name must be one of" in done.stderr) is shown
        assert ("KeyError: 'nothing'" in done.stderr) is shown
        assert done.returncode == (1 if shown else 2)


HEAVY = {
    "dp_accounting", "duckdb", "eth_account", "fastapi", "ibis", "matplotlib", "numba", "numpy", "opendp",
    "pydantic", "rich", "scipy", "uvicorn", "web3", "yaml",
}  # fmt: skip


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["mechanisms", "--help"],
        ["demo", "--help"],
        ["dataset", "--help"],
        ["ask", "--help"],
        ["chain", "--help"],
        ["oracle", "--help"],
        ["serve", "--help"],
        ["key", "--help"],
        ["version"],
    ],
)
def test_help_loads_nothing_heavy(args):
    done = reticent(*args, after="print(*sys.modules, file=sys.stderr)")
    assert done.returncode == 0
    assert HEAVY.isdisjoint(done.stderr.split())


def test_a_reader_that_leaves_early_is_no_error():
    planted = "import os; read, write = os.pipe(); os.dup2(write, 1); os.close(write); os.close(read)"
    done = reticent("version", before=planted)
    assert (done.returncode, done.stderr) == (1, "")


def test_completion_knows_the_commands():
    done = reticent(
        _RETICENT_COMPLETE="complete_bash",
        COMP_WORDS="reticent ",
        COMP_CWORD="1",
        before="sys.argv[0] = 'reticent'",
    )
    assert sorted(done.stdout.split()) == COMMANDS


def test_completion_script_can_be_shown():
    done = reticent("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 0
    assert "_RETICENT_COMPLETE=complete_bash" in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_without_unicode_shows_what_it_can(tmp_path, encoding):
    program = (
        "import sys; from reticent.cli import entry; entry._write_anywhere(); "
        "print('5 \u00b1 2 \u2588\u2591 \u4eba'); print('\u4eba', file=sys.stderr)"
    )
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, check=True)
    said = {"ascii": "5 +/- 2 #. \\u4eba", "latin-1": "5 \u00b1 2 #. \\u4eba"}.get(
        encoding, "5 \u00b1 2 \u2588\u2591 \u4eba"
    )
    assert done.stdout.decode(encoding) == f"{said}\n"


def command_names(only):
    capabilities = [app.commands() for app in listed.APPS]
    return set(get_command(create_app(capabilities, only)).commands)


def test_only_the_named_command_is_built():
    assert command_names("ask") == {"ask"}
    assert command_names("ledger") == {"ledger"}
    assert {"ask", "ledger", "version"} < command_names(None) == command_names("no such command")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], None), (["ask", "--help"], "ask"), (["--debug", "ask"], "ask"), (["--help", "ask"], "--help")],
)
def test_the_first_word_names_the_command(arguments, expected):
    assert entry._named_command(arguments) == expected
