"""`reticent store`: identifiers, putting, getting, serving."""

import os
import re
import signal
import subprocess
import sys

import pytest

NAME = "bafkreifjjcie6lypi6ny7amxnfftagclbuxndqonfipmb64f2km2devei4"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"hello world\n")
    return path


def test_a_file_through_a_folder(command, file, tmp_path):
    assert command("store", "cid", str(file)) == (0, f"{NAME}\n", "")
    store, out = tmp_path / "store", tmp_path / "out"
    assert command("store", "put", str(store), str(file)) == (0, f"{NAME}\n", "")
    assert command("store", "get", str(store), NAME, "--out", str(out))[0] == 0
    assert out.read_bytes() == b"hello world\n"


def test_what_goes_wrong_is_one_line_and_writes_nothing(command, file, tmp_path):
    store, out = tmp_path / "store", tmp_path / "out"
    command("store", "put", str(store), str(file))
    (block,) = store.glob("*/b*")
    short = tmp_path / "short"
    short.write_text("short")
    for args, words in (
        (["cid", str(tmp_path / "none")], "there is no file"),
        (["put", str(store), str(tmp_path / "none")], "there is no file"),
        (["get", str(store), "x", "--out", str(out)], "cid must be CIDv1"),
        (["get", str(store), NAME, "--out", str(out), "--most", "11"], "at most 11 bytes, got 12"),
        (["get", str(store), NAME, "--out", str(tmp_path / "no" / "x")], "out must be in a folder"),
        (["put", str(store), str(file), "--token-file", str(short)], "must be 16 to 512 printable"),
        (["serve", str(store), "--token-file", str(short)], "must be 16 to 512 printable"),
        (["serve", str(file)], "cannot be used"),
        (["serve", str(store), "--host", "203.0.113.7"], "must be free to listen at"),
    ):
        code, said, err = command("store", *args)
        assert (code, said) == (2 if "cannot be used" not in words and "bytes" not in words else code, ""), (
            args
        )
        assert words in err, args
        assert err.count("\n") == 1, args
    block.write_bytes(b"hello worlds")
    code, _, err = command("store", "get", str(store), NAME, "--out", str(out))
    assert code != 0
    assert "is not the content of" in err
    assert not out.exists()
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")]


@pytest.mark.parametrize("guarded", [False, True])
def test_a_process_serves_and_ends(command, file, tmp_path, guarded):
    token = tmp_path / "token"
    token.write_text("a token of many letters\n")
    given = ["--token-file", str(token)] if guarded else []
    program = "from reticent.apps import main; main()"
    line = [sys.executable, "-c", program, "store", "serve", str(tmp_path / "served"), *given]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        try:
            said = process.stdout.readline()
            url = re.fullmatch(r"store (http://127\.0\.0\.1:\d+), writable by (.*)\n", said)
            assert url[2] == ("holders of the token" if guarded else "anybody")
            if guarded:
                assert "token" in command("store", "put", url[1], str(file))[2]
            assert command("store", "put", url[1], str(file), *given)[:2] == (0, f"{NAME}\n")
            assert command("store", "get", url[1], NAME, "--out", str(tmp_path / "out"))[0] == 0
            assert (tmp_path / "out").read_bytes() == b"hello world\n"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
