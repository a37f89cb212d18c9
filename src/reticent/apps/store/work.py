"""The work behind the commands of `reticent store`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from reticent import peers
from reticent.errors import ParameterError
from reticent.files import appearing
from reticent.store import Cid, Directory, at, cid_of
from reticent.store.server import StoreServer

_LEAST_TOKEN, _MOST_TOKEN = 16, 512  # letters


def cid(file: Path) -> None:
    """Print the content identifier of a file."""
    with _opened(file) as content:
        print(cid_of(content))


def put(where: str, file: Path, *, token_file: Path | None) -> None:
    """Put a file into a store, and print its identifier."""
    with _opened(file) as content, at(where, token=read_token(token_file)) as store:
        print(store.put(content))


def get(where: str, text: str, *, out: Path, most: int) -> None:
    """Write a file from a store, completely or not at all."""
    if not out.absolute().parent.is_dir():
        raise ParameterError(f"out must be in a folder that is there, got {out}")
    with at(where) as store:
        pieces = store.pieces(Cid.parse(text), most=most)
        with appearing(out) as file:
            for piece in pieces:
                file.write(piece)


def serve(
    folder: Path, *, host: str, port: int, capacity: int, token_file: Path | None, to_all: bool
) -> None:
    """Serve the folder of a store until interrupted."""
    token = read_token(token_file)
    here = peers.is_here(host)
    if token is not None and to_all:
        raise ParameterError("give --token-file or --open, not both")
    store = Directory(folder, capacity=capacity)
    try:
        server = StoreServer(store, host, port, token=token, is_open=to_all or (here and token is None))
    except OSError as error:
        raise ParameterError(f"host and port must be free to listen at, got {host}:{port}") from error
    with server:
        rule = "holders of the token" if token else "anybody" if server.is_open else "nobody"
        print(f"store {server.url}, writable by {rule}", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def _opened(file: Path) -> BinaryIO:
    if not file.is_file():
        raise ParameterError(f"there is no file {file}")
    return file.open("rb")


def read_token(file: Path | None) -> str | None:
    """Read the token from a file that holds it in one line; return None if no file is given."""
    if file is None:
        return None
    if not file.is_file():
        raise ParameterError(f"there is no file {file}")
    token = file.read_bytes()[: _MOST_TOKEN + 2].decode("latin-1").strip()
    if not (_LEAST_TOKEN <= len(token) <= _MOST_TOKEN and token.isascii() and token.isprintable()):
        raise ParameterError(
            f"the token in {file} must be {_LEAST_TOKEN} to {_MOST_TOKEN} printable letters in one line"
        )
    return token
