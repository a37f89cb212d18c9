"""Find out which fields the files may have that people write, by reading stored ones with every field."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import yaml

FILES = Path(__file__).parents[1] / "golden" / "files"


def collect_file_fields() -> list[str]:
    """Return one line for each field that the files of people may have, as reading the stored ones shows.

    A file with every field is read whole. Then each field in turn is misspelt, which must be refused, unless
    the name is for people to choose.
    """
    return sorted({line for name, read in READERS.items() for line in _describe_file(name, read)})


def _describe_file(name: str, read: Callable[[Path], object]) -> Iterator[str]:
    stored = (FILES / name).read_text()
    variants = [stored, *(stored.replace(*change) for change in VARIANTS)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        (path.parent / "public.csv").write_text((FILES / "public.csv").read_text())
        np.savez(path.parent / "test.npz", features=np.eye(4)[:3], labels=np.arange(3))
        for variant in dict.fromkeys(variants):
            tree = json.loads(json.dumps(yaml.safe_load(variant), default=str))  # days become texts
            for text in (variant, json.dumps(tree)):
                path.write_text(text)
                read(path)
            for keys in _list_keys(tree):
                path.write_text(json.dumps(_misspell(tree, keys)))
                yield f"{name} | {'.'.join(keys)}{'' if _is_refused(read, path) else ' (any name)'}"


def _list_keys(tree: Any) -> Iterator[tuple[str, ...]]:
    if isinstance(tree, list):
        for keys in dict.fromkeys(keys for inner in tree for keys in _list_keys(inner)):
            yield "[]", *keys
    for key, inner in tree.items() if isinstance(tree, dict) else ():
        yield (key,)
        for keys in _list_keys(inner):
            yield key, *keys


def _misspell(tree: Any, keys: tuple[str, ...]) -> Any:
    if keys[0] == "[]":
        return [_misspell(inner, keys[1:]) for inner in tree]
    if len(keys) == 1:
        return {f"{key}x" if key == keys[0] else key: inner for key, inner in tree.items()}
    return {key: _misspell(inner, keys[1:]) if key == keys[0] else inner for key, inner in tree.items()}


def _is_refused(read: Callable[[Path], object], path: Path) -> bool:
    from reticent.errors import ReticentError

    try:
        read(path)
    except ReticentError:
        return True
    return False


def _reader(module: str) -> Callable[[Path], object]:
    return lambda path: import_module(module).read(path)


READERS: dict[str, Callable[[Path], object]] = {
    "census.yaml": _reader("reticent.query.declarations.dataset_file"),
    "crowd-task.yaml": _reader("reticent.federated.crowd.task_file"),
    "offer.yaml": _reader("reticent.market.offer_file"),
    "patients.people": _reader("reticent.query.declarations.populations"),
    "patients.yaml": _reader("reticent.query.declarations.dataset_file"),
    "survey.yaml": _reader("reticent.collect.survey_file"),
    "task.yaml": _reader("reticent.federated.task_file"),
}
CSV = 'csv: census.csv, delimiter: ";"'
VARIANTS = (  # fields that exclude each other
    (CSV, "duckdb: census.db, table: persons, schema: main"),
    (CSV, 'url: "postgresql://host/base", table: persons, schema: main'),
    (CSV, 'spark: "local[4]", parquet: census'),
    ("typical: 0.1\nsample: 1\nmechanism: OneBit\n", "sample: 1\nprior: small gradients\n"),
)
