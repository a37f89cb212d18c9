"""A file is whole or not there, whenever writing stops."""

import contextlib
import stat

import pytest

from reticent.files import appearing


@contextlib.contextmanager
def written_in_place(path, *, mode=0o666):
    """The bug that `appearing` is there against."""
    with path.open("wb") as file:
        yield file


def after_a_crash(folder, write):
    """What a folder holds after a crash in the middle of writing over a file."""
    (folder / "kept").write_bytes(b"old")
    with contextlib.suppress(KeyboardInterrupt), write(folder / "kept") as file:
        file.write(b"ne")
        file.flush()
        raise KeyboardInterrupt
    return {one.name: one.read_bytes() for one in folder.iterdir()}


def test_a_crash_leaves_what_was_there(tmp_path):
    assert after_a_crash(tmp_path, appearing) == {"kept": b"old"}


def test_planted_writing_in_place_is_caught(tmp_path):
    assert after_a_crash(tmp_path, written_in_place) == {"kept": b"ne"}


def test_it_appears_when_it_is_whole(tmp_path):
    with appearing(tmp_path / "new", mode=0o600) as file:
        file.write(b"whole")
        assert not (tmp_path / "new").exists()
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("new", b"whole")]
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600


def test_no_folder_is_the_callers_error(tmp_path):
    with pytest.raises(FileNotFoundError), appearing(tmp_path / "none" / "new"):
        pass
