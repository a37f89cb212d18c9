"""Import every module with the packages that are installed: `python tests/imports.py [PACKAGE ...]`.

A module may lack a package of an extra that is not installed. It fails for any other reason, and for the
packages that are named: these must be there. Then the service must be able to describe itself.
"""

import importlib
import pkgutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import reticent
from reticent.apps.service.serving import create_app
from reticent.errors import MissingExtra

OPTIONAL = {
    "distributed", "dp_accounting", "flwr", "matplotlib", "mpmath", "numba", "opentelemetry", "ot", "paho",
    "pyspark", "safetensors", "scipy", "torch", "vyper",
}  # fmt: skip


def import_all(required):
    """Return the number of modules that were imported, and the modules that lack an optional package."""
    imported, lacking = 0, []
    for module in pkgutil.walk_packages(reticent.__path__, "reticent."):
        if module.name == "reticent.__main__":
            continue
        try:
            importlib.import_module(module.name)
            imported += 1
        except MissingExtra:
            lacking.append(module.name)
        except ModuleNotFoundError as error:
            package = str(error.name).partition(".")[0]
            if package not in OPTIONAL or package in required:
                raise
            lacking.append(module.name)
    return imported, lacking


def main():
    import tempfile
    from importlib.metadata import version

    from reticent.service.settings import Settings

    imported, lacking = import_all(set(sys.argv[1:]))
    with tempfile.TemporaryDirectory() as folder:
        paths = create_app(Settings(Path(folder))).openapi()["paths"]
    versions = ", ".join(
        f"{name} {version(name)}" for name in ("fastapi", "starlette", "uvicorn", "typer", "rich")
    )
    lack = f"{len(lacking)} lack an optional package"
    print(f"{imported} modules imported, {lack}, {len(paths)} routes; {versions}")


if __name__ == "__main__":
    main()
