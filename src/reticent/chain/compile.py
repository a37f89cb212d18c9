"""A compiler of the contracts in a folder: `python -m reticent.chain.compile FOLDER [--check]`.

Beside each `Name.vy` a `Name.json` is written, which is kept in version control, so that deploying or calling
a contract needs no compiler. `--check` writes nothing and exits with 1 if a file is out of date. Creation
code ends with a hash of the source, so that even a comment changes it; runtime code has none.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

COMPILER = "0.4.3"
_OUTPUTS = ["abi", "bytecode", "bytecode_runtime", "method_identifiers"]


def compiled(name: str, source: str) -> dict[str, Any]:
    """Compile the source of a contract.

    The same text gives the same result anywhere.
    """
    vyper: Any = import_module("vyper")  # late: only developers who compile have it
    if vyper.__version__ != COMPILER:
        raise SystemExit(f"needs vyper {COMPILER}, got {vyper.__version__}")
    made = vyper.compile_code(source, output_formats=_OUTPUTS)
    numbers = made["method_identifiers"].items()  # as hexadecimal numbers, without leading zeros
    return {
        "abi": made["abi"],
        "bytecode": made["bytecode"],
        "compiler": f"vyper {COMPILER}",
        "name": name,
        "runtime": made["bytecode_runtime"],
        "selectors": {f"0x{int(number, 16):08x}": text for text, number in numbers},
        "source_sha256": sha256(source.encode()).hexdigest(),
    }


def text_of(artifact: dict[str, Any]) -> str:
    """Format an artifact as JSON, with a line for each field and for each entry of the ABI."""
    abi = ",\n".join(json.dumps(entry, sort_keys=True) for entry in artifact["abi"])
    fields = [
        f'"{field}": ' + (f"[\n{abi}\n]" if field == "abi" else json.dumps(value, sort_keys=True))
        for field, value in sorted(artifact.items())
    ]
    return "{\n" + ",\n".join(fields) + "\n}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write, or check, the compiled files of a folder."""
    parser = argparse.ArgumentParser(prog="python -m reticent.chain.compile")
    parser.add_argument("folder", type=Path, help="of the contracts, Name.vy")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is old")
    given = parser.parse_args(arguments)
    check, sources = given.check, sorted(given.folder.glob("*.vy"))
    if not sources:
        parser.error(f"folder must hold contracts (*.vy), got {given.folder}")
    old = 0
    for source in sources:
        target = source.with_suffix(".json")
        text = text_of(compiled(source.stem, source.read_text(encoding="utf-8")))
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        old += 1
        print(f"{target.name}: {'not what its source compiles to' if check else 'written'}")
        if not check:
            target.write_text(text, encoding="utf-8", newline="\n")
    return int(check and old > 0)


if __name__ == "__main__":
    sys.exit(main())
