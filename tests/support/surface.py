"""Collect the public surface: everything that a rename of Python names must leave as it is.

Each part is a list of readable lines, stored in `tests/golden/surface/PART.txt` and compared by
`tests/unit/test_frozen_surface.py`. Write the files anew with `python -m tests.support.surface --write`, and
read the difference: a line that changed is a change that users, devices or stored files notice.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "surface"


def collect_commands() -> list[str]:
    """Return one line for each command, argument and option, without help texts."""
    import typer

    from reticent.apps.listed import APPS
    from reticent.cli.app import create_app

    root = typer.main.get_command(create_app([app.commands() for app in APPS]))
    return sorted(_describe_command("reticent", root))


def _describe_command(name: str, command: Any) -> Iterator[str]:
    yield f"{name}{' (hidden)' if command.hidden else ''}"
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    for index, param in enumerate(arguments, 1):
        yield f"{name} | argument {index} {param.human_readable_name} | {_describe_param(param)}"
    for param in command.params:
        if param not in arguments:
            yield f"{name} | {' '.join([*param.opts, *param.secondary_opts])} | {_describe_param(param)}"
    for child_name, child in getattr(command, "commands", {}).items():
        yield from _describe_command(f"{name} {child_name}", child)


def _describe_param(param: Any) -> str:
    choices = getattr(param.type, "choices", None)
    parts = [f"one of {', '.join(map(str, choices))}" if choices else param.type.name]
    parts += ["required"] * param.required + ["flag"] * getattr(param, "is_flag", False)
    parts += ["repeatable"] * bool(getattr(param, "multiple", False) or param.nargs == -1)
    parts += [f"{param.nargs} values"] * (param.nargs > 1)
    if param.default is not None:
        parts.append("default computed" if callable(param.default) else f"default {param.default}")
    if param.envvar:
        parts.append(f"variable {param.envvar}")
    return ", ".join(parts)


def build_service() -> Any:
    """Return the application that `reticent serve` builds, on an empty folder."""
    from reticent.apps.service.serving import create_app
    from reticent.service.settings import Settings

    with tempfile.TemporaryDirectory() as folder:
        return create_app(Settings(Path(folder)))


def collect_http() -> list[str]:
    """Return one line for each field of requests and responses of each documented route."""
    return sorted(_describe_openapi(build_service().openapi()))


def _describe_openapi(document: dict[str, Any]) -> Iterator[str]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            route = f"{path} {method.upper()}"
            yield route
            for param in operation.get("parameters", ()):
                is_required = " required" * bool(param.get("required"))
                yield f"{route} | {param['in']} {param['name']}{is_required}"
            body = operation.get("requestBody", {})
            for media, content in body.get("content", {}).items():
                yield f"{route} | body {media}{' required' * bool(body.get('required'))}"
                for field in _list_fields(content.get("schema", {}), document, ()):
                    yield f"{route} | body {field}"
            for status, response in operation["responses"].items():
                yield f"{route} | {status} {' '.join(sorted(response.get('content', {})))}".rstrip()
                for content in response.get("content", {}).values():
                    for field in _list_fields(content.get("schema", {}), document, ()):
                        yield f"{route} | {status} {field}"


def _list_fields(schema: dict[str, Any], document: dict[str, Any], parents: tuple[str, ...]) -> list[str]:
    """Return the dotted paths of a schema's fields, once each; a schema inside itself is not followed."""
    if reference := schema.get("$ref"):
        if reference in parents:
            return [". (again)"]
        target = document["components"]["schemas"][reference.rpartition("/")[2]]
        return _list_fields(target, document, (*parents, reference))
    fields = []
    for kind in ("anyOf", "oneOf", "allOf"):
        for option in schema.get(kind, ()):
            fields += _list_fields(option, document, parents)
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if values:
        fields.append(f"= {' | '.join(map(str, values))}")
    for suffix, inner in (("[]", schema.get("items")), ("{}", schema.get("additionalProperties"))):
        if isinstance(inner, dict):
            fields += [suffix] + [_join(suffix, field) for field in _list_fields(inner, document, parents)]
    for name, inner in schema.get("properties", {}).items():
        fields.append(f".{name}{' required' * (name in schema.get('required', ()))}")
        fields += [_join(f".{name}", field) for field in _list_fields(inner, document, parents)]
    return list(dict.fromkeys(fields))


def _join(prefix: str, field: str) -> str:
    return f"{prefix} {field}" if field.startswith("=") else prefix + field


def collect_pages() -> list[str]:
    """Return one line for each route outside OpenAPI with its parameters, and for each field of a form."""
    service = build_service()
    documented = service.openapi()["paths"]
    routes = [
        f"{path} {method}{parameters}"
        for path, methods, parameters in _list_routes(service.routes, "")
        for method in sorted(methods)
        if method.lower() not in documented.get(path, ())
    ]
    templates = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.html")]
    fields = re.findall(r'<(?:input|select|textarea|button)\b[^>]* name="([^"]+)"', "".join(templates))
    return sorted(routes) + [f"form {field}" for field in sorted(set(fields))]


def _list_routes(routes: list[Any], prefix: str) -> Iterator[tuple[str, set[str], str]]:
    from fastapi.dependencies.utils import get_flat_dependant

    for route in routes:
        if inner := getattr(route, "original_router", None):  # what `include_router` leaves
            yield from _list_routes(inner.routes, prefix + route.include_context.prefix)
            continue
        parameters = ""
        if dependant := getattr(route, "dependant", None):
            flat = get_flat_dependant(dependant)
            for kind in ("path", "query", "header", "cookie", "body"):
                names = sorted({param.alias for param in getattr(flat, f"{kind}_params")})
                parameters += f" | {kind} {', '.join(names)}" if names else ""
        yield prefix + route.path, getattr(route, "methods", None) or {"MOUNT"}, parameters


def collect_contracts() -> list[str]:
    """Return one line for each function and event of the contracts that are committed."""
    lines = []
    for path in sorted((ROOT / "src").rglob("contracts/*.json")):
        for entry in json.loads(path.read_text()).get("abi", ()):
            name, results = entry.get("name", ""), entry.get("outputs", [])
            parts = [path.stem, entry["type"], f"{name}({_describe_values(entry.get('inputs', []))})"]
            parts += [f"returns ({_describe_values(results)})"] * bool(results)
            parts += [entry["stateMutability"]] if "stateMutability" in entry else []
            lines.append(" ".join(parts))
    return sorted(lines)


def _describe_values(values: list[dict[str, Any]]) -> str:
    def describe(value: dict[str, Any]) -> str:
        kind = value["type"]
        if "components" in value:
            kind = kind.replace("tuple", f"({_describe_values(value['components'])})")
        return f"{kind}{' indexed' * value.get('indexed', False)} {value['name']}".strip()

    return ", ".join(map(describe, values))


@cache
def list_literals() -> list[tuple[str, str]]:
    """Return the literals of the source as pairs: `enum`, `event` or nothing, and the text.

    Experiments and docstrings are left out. Parts of a literal that are filled in become `{}`.
    """
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        if not {"experiments", "planted"} & set(path.relative_to(ROOT).parts):
            found += _list_module_literals(ast.parse(path.read_text(encoding="utf-8")))
    for path in sorted((ROOT / "src").rglob("*.sql")):
        found += [("", statement) for statement in path.read_text().split(";")]
    return found


def _list_module_literals(tree: ast.Module) -> Iterator[tuple[str, str]]:
    kinds: dict[int, str] = {}
    for node in ast.walk(tree):  # parents come before their children
        if isinstance(node, ast.ClassDef) and any("Enum" in ast.unparse(base) for base in node.bases):
            kinds |= {id(line.value): "enum" for line in node.body if isinstance(line, ast.Assign)}
        elif isinstance(node, ast.Expr):
            kinds[id(node.value)] = "docstring"
        elif isinstance(node, ast.Dict):
            named = zip(node.keys, node.values, strict=True)
            kinds |= {id(value): "event" for key, value in named if getattr(key, "value", "") == "event"}
        elif isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values]
            kinds |= {id(part): "docstring" for part in node.values}
            yield "", "".join(parts)
        elif isinstance(node, ast.Constant) and kinds.get(id(node)) != "docstring":
            if isinstance(node.value, str):
                yield kinds.get(id(node), ""), node.value
            elif isinstance(node.value, bytes):
                yield kinds.get(id(node), ""), node.value.decode("latin-1")


def collect_tables() -> list[str]:
    """Return one line for each table and index that a store creates, as its statement has it."""
    lines = set()
    for _, text in list_literals():
        for statement in re.split(r";|(?=\bCREATE )", text):
            if re.match(r"CREATE (TABLE|INDEX|UNIQUE INDEX|VIEW) \w+ ", statement):
                plain = re.sub(r"--[^\n]*", "", statement)
                lines.add(" ".join(re.sub(r"\{\w*\}", "{}", plain).split()))
    return sorted(lines)


def collect_literals() -> list[str]:
    """Return the words in signed, stored and sent texts that stand in the source as literals."""
    paths = [line.split()[0] for line in collect_http() + collect_pages() if line.startswith("/")]
    lines = set()
    for kind, text in list_literals():
        lines |= {f"variable {name}" for name in re.findall(r"\bRETICENT_[A-Z_]+", text)}
        if kind == "event" or (kind == "enum" and re.fullmatch(r"[a-z0-9][a-z0-9_-]*( [a-z-]+){0,3}", text)):
            lines.add(f"{kind} {text}")
        elif re.fullmatch(r"(?s)reticent[ /-][a-z].{0,40}", text):
            lines.add(f"label {text.encode('unicode_escape').decode()}")
        elif re.fullmatch(r"(/[a-z][a-z0-9-]*)+/?", text) and not re.match("/(bin|dev|proc)", text):
            lines |= {f"path {text}"} if not any(text.strip("/") in path for path in paths) else set()
    return sorted(lines)


def collect_formats() -> list[str]:
    """Return one line for each field of a sample of each stored, signed or sent text."""
    from . import stored_formats

    return stored_formats.collect_formats()


def collect_file_fields() -> list[str]:
    """Return one line for each field of the files that people write."""
    from . import file_fields

    return file_fields.collect_file_fields()


PARTS: dict[str, Callable[[], list[str]]] = {
    "commands": collect_commands,
    "contracts": collect_contracts,
    "file-fields": collect_file_fields,
    "formats": collect_formats,
    "http": collect_http,
    "literals": collect_literals,
    "pages": collect_pages,
    "tables": collect_tables,
}


def render(lines: list[str]) -> str:
    """Return the text of a golden file: a line for each item, folded at 120 columns between words."""
    fold = textwrap.TextWrapper(
        120, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False
    ).fill
    return "".join(f"{fold(line)}\n" for line in lines)


def main(arguments: list[str]) -> int:
    """Write the golden files, or name those that differ."""
    differing = []
    for part, collect in PARTS.items():
        path, text = GOLDEN / f"{part}.txt", render(collect())
        if not path.exists() or path.read_text() != text:
            differing.append(part)
            if "--write" in arguments:
                path.write_text(text)
    print(f"differing: {', '.join(differing) or 'none'}")
    return int(bool(differing) and "--write" not in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
