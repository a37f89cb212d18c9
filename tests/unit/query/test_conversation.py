"""`reticent dataset new` asks: what is written is what was said, and nothing of the rows."""

import os
import pty
import re
import select
import signal
import sys

import pytest

from reticent.errors import ParameterError
from reticent.query.declarations import dataset_file
from reticent.query.declarations.conversation import Conversation

COMMAND = [sys.executable, "-c", "from reticent.apps import main; main()"]
PERSONS = ["y", "", "id", "2", "n", "1", ""]
AGE = ["integer", "0", "120", "35"]
SEX = ["category", "f, m, other", "other"]


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("id,age,sex\n77,61,SECRET\n78,17,SECRET\n")
    return path


def told(path, answers):
    """The declaration after these answers, and all that was shown."""
    left, shown = list(answers), []

    def ask(question):
        shown.append(question)
        return left.pop(0)

    data = Conversation(ask, shown.append).declared(path, path.name)
    assert not left
    return data, "\n".join(shown)


class TestAnswers:
    def test_persons(self, rows):
        data, shown = told(rows, [*PERSONS, "", *AGE, *SEX, "y"])
        assert (data.name, data.person, data.contribution, data.rows) == ("people", "id", 2, None)
        assert data.relation.value == "add or remove one"
        assert [column.name for column in data.columns] == ["age", "sex"]
        assert data.column("age").missing == 35
        assert dataset_file.parse(dataset_file.write(data)) == data
        assert "people.csv has 3 columns, by its names alone: id, age, sex." in shown

    def test_rows_whose_number_is_public(self, rows):
        data, _ = told(rows, ["y", "town", "", "y", "2", "1", "1e-5", "", "", "boolean", "false", "y"])
        assert (data.name, data.person, data.rows) == ("town", None, 2)
        assert (data.relation.value, data.budget.delta) == ("replace one", 1e-5)

    def test_nothing_of_the_rows_is_shown_or_written(self, rows):
        """Whatever the rows are, the conversation is the same, to the letter."""
        data, shown = told(rows, [*PERSONS, "", *AGE, *SEX, "y"])
        rows.write_text("id,age,sex\n" + "1,99,OTHER\n" * 500)
        assert told(rows, [*PERSONS, "", *AGE, *SEX, "y"]) == (data, shown)

    def test_planted_bounds_that_are_guessed_are_noticed(self, rows, monkeypatch):
        header = dataset_file.header

        def guessed(path):
            most = max(int(line.split(",")[1]) for line in path.read_text().splitlines()[1:])
            return header(path) | {f"age (up to {most})": None}

        monkeypatch.setattr(dataset_file, "header", guessed)
        with pytest.raises((AssertionError, IndexError)):
            self.test_nothing_of_the_rows_is_shown_or_written(rows)

    def test_a_column_is_asked_for_until_it_is_right_and_all_that_is_wrong_is_said(self, rows):
        wrong = ["integr", "integer", "9", "3", "", "integer", "x", "y", "z", "integer", "0", "9", "12"]
        data, shown = told(rows, [*PERSONS, "", *wrong, *AGE, "", "y"])
        assert data.column("age").missing == 35
        lines = [line.strip() for line in shown.splitlines() if line.startswith("  ! ")]
        assert [re.sub(" must.*", "", line) for line in lines] == [
            "! type",
            *("! columns.age.missing", "! columns.age.high"),
            *("! columns.age.low", "! columns.age.high", "! columns.age.missing"),
            "! columns.age.missing",
        ]
        assert lines[0].endswith("did you mean integer?")

    def test_no_missing_number_becomes_the_middle_unasked(self, rows):
        data, shown = told(rows, [*PERSONS, "", "integer", "0", "120", "", *AGE, "", "y"])
        assert data.column("age").says_missing
        assert "the middle" not in shown

    @pytest.mark.parametrize(
        ("answers", "line"),
        [
            (["n"], "people.csv must begin with a line of column names"),
            ([*PERSONS, "", "", ""], "columns must be at least one"),
        ],
    )
    def test_refusals(self, rows, answers, line):
        with pytest.raises(ParameterError, match=f"^{line}"):
            told(rows, answers)

    def test_not_confirmed(self, rows):
        assert told(rows, [*PERSONS, "", *AGE, "", "n"])[0] is None

    def test_mistypings_of_the_head(self, rows):
        head = ["what", "y", "a b", "people", "idd", "id", "0", "many", "2", "n"]
        data, shown = told(rows, [*head, "x", "1e-6", "0", "", "1", "1e-6", "", *AGE, "", "y"])
        assert (data.name, data.contribution, data.budget.epsilon) == ("people", 2, 1)
        assert "did you mean id?" in shown

    def test_names_that_command_a_terminal_are_shown_and_left_out(self, tmp_path):
        path = tmp_path / "d.csv"
        path.write_text("age,\x1b[2Jgone,\u202eback," + ",".join(f"c{n}" for n in range(300)) + "\n")
        data, shown = told(path, ["y", "", "", "n", "1", "", *AGE, *[""] * 300, "y"])
        assert [column.name for column in data.columns] == ["age"]
        assert shown.replace("\n", "").isprintable()
        assert "d.csv has 303 columns" in shown
        assert "c299" not in shown.split("What you answer")[0]

    def test_types_of_parquet_are_proposed(self, tmp_path):
        import pyarrow as pa
        import pyarrow.parquet

        path = tmp_path / "d.parquet"
        pyarrow.parquet.write_table(pa.table({"age": [7, 8], "truth": [True, False]}), path)
        data, _ = told(path, ["y", "", "", "n", "1", "", "", "0", "120", "35", "-", "y"])
        assert [column.kind.value for column in data.columns] == ["integer"]


class Terminal:
    """The command in a terminal of its own."""

    def __init__(self, folder, *arguments, command=COMMAND, **environment):
        pid, self._file = pty.fork()
        if not pid:
            os.chdir(folder)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # which a shell ignores for what runs behind it
            os.execvpe(command[0], [*command, *arguments], os.environ | environment)
        self.pid, self.shown = pid, ""

    def _more(self):
        for _ in range(120):
            if select.select([self._file], [], [], 1)[0]:
                break
        else:
            raise AssertionError(self.shown)
        try:
            data = os.read(self._file, 4096)
        except OSError:  # as Linux says that nobody writes any more
            data = b""
        self.shown += data.decode(errors="replace")
        return bool(data)

    def until(self, text):
        """Read until it is shown."""
        while text not in self.shown:
            assert self._more(), self.shown

    def types(self, text):
        os.write(self._file, text.encode())

    def ended(self):
        """How it ended, once it did."""
        while self._more():
            pass
        os.close(self._file)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class TestTerminal:
    def test_a_conversation(self, rows):
        terminal = Terminal(rows.parent, "dataset", "new", rows.name, TERM="dumb", LC_ALL="C", COLUMNS="40")
        terminal.until("first row of data? [y/N] ")
        terminal.types("\n".join([*PERSONS, "", *AGE, *SEX, "y", ""]))
        assert terminal.ended() == 0
        assert "people.yaml is written" in terminal.shown
        assert "\x1b[3" not in terminal.shown, "no colours"
        assert dataset_file.read(rows.with_suffix(".yaml")).column("sex").missing == "other"

    @pytest.mark.parametrize("how", ["\x03", "\x04", signal.SIGTERM], ids=["Ctrl-C", "Ctrl-D", "SIGTERM"])
    def test_ended_in_the_middle_it_leaves_nothing(self, rows, how):
        terminal = Terminal(rows.parent, "dataset", "new", rows.name)
        terminal.until("first row of data? [y/N] ")
        terminal.types("y\n")
        terminal.until("Name of the data set")
        typed = isinstance(how, str)
        terminal.types(how) if typed else os.kill(terminal.pid, how)
        assert terminal.ended() == (130 if typed else 143)
        assert "Traceback" not in terminal.shown
        assert list(rows.parent.iterdir()) == [rows]

    def test_nobody_types_for_nothing(self, rows):
        rows.with_suffix(".yaml").touch()
        terminal = Terminal(rows.parent, "dataset", "new", rows.name)
        assert terminal.ended() == 2
        assert "error: people.yaml: File exists" in terminal.shown

    def test_nor_into_a_folder_that_is_not_there(self, rows):
        terminal = Terminal(rows.parent, "dataset", "new", rows.name, "--out", "no/d.yaml")
        assert terminal.ended() == 2
        assert "error: no must be a folder that you may write to" in terminal.shown

    def test_yes_asks_nothing(self, rows):
        terminal = Terminal(rows.parent, "dataset", "new", rows.name, "--yes")
        assert terminal.ended() == 0
        assert "Fill in the blanks" in terminal.shown

    # The main thread leaves the signal to another, so that its own waiting is never interrupted: that is how
    # it is when a signal comes in the instant before. What is left of two lines says when it was seen.
    UNSEEN = """if True:
        import os, signal, sys, threading
        from reticent.cli.asking import asked

        def end(*_):
            raise KeyboardInterrupt

        def hear():
            os.read(heard, 1)
            print("came\\n", end="", flush=True)  # in one write, so that nothing comes between

        heard, told = os.pipe()
        os.set_blocking(told, False)
        signal.set_wakeup_fd(told)
        signal.signal(signal.SIGTERM, end)
        threading.Thread(target=hear, daemon=True).start()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        try:
            {ask}("Name? ")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            print("left:", sys.stdin.readline())
    """

    @pytest.mark.parametrize(
        ("ask", "seen", "left"), [("asked", "interrupted", "one"), ("input", "came", "two")]
    )
    def test_a_signal_just_before_it_waits_is_seen(self, tmp_path, ask, seen, left):
        """Planted: with `input` it is seen after the next line only."""
        terminal = Terminal(tmp_path, "-c", self.UNSEEN.format(ask=ask), command=[sys.executable])
        terminal.until("Name? ")
        os.kill(terminal.pid, signal.SIGTERM)
        terminal.until(seen)
        terminal.types("one\ntwo\n")
        assert terminal.ended() == 0
        assert f"left: {left}" in terminal.shown
