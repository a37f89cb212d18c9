"""Check that names and docstrings do not get harder to guess: `python tools/check_names.py`.

Each figure has a limit in `tools/name_limits.toml`, and limits may only fall. The check fails if a figure is
above its limit, and also if it has fallen clearly below, so that the limits follow. `--lower` writes the
limits that have fallen; `--list PATH` lists every offender in a file or folder. CONTRIBUTING.md says how to
name things.
"""

import argparse
import ast
import collections
import io
import math
import os
import re
import sys
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAX_EXAMPLES = 10

HOUSE_WORD = re.compile(
    "told|tell|teller|telling|held|hold|holder|asked|asks|wanted|given|gives|kept|keep|said|says|made|ways?|laws?"
    "|desk|due|standing|hand|heed|words?|lots|apart|lanes|sparing|found|seen|shown|mine|whoever|whole|reach"
    "|longest|most|least|few|fewer|others?|rest|places?|ones?"
)
PARTICIPLE = re.compile(
    "told|held|found|made|kept|said|given|seen|shown|taken|written|drawn|known|bought|sent|paid|begun|done|chosen"
    "|spent|lost|meant|understood|laid|left|met|built|thrown|broken|sold|stood|led|fed|hidden|gone|proven|torn"
    "|(?!(?:speed|embed|hundred|shared|exceed|proceed|indeed)$)[a-z]{3,}ed"
)
FRAGMENT = re.compile(r"(What|Who|Whoever|Whether it|Of|That|Those|How|Where|Which|The same|As)\b")
ARGUMENT = re.compile(r"^\s+(\w+): (?=\S)", re.MULTILINE)
PREPOSITION = re.compile(
    r"\w+: (of|for|as|in|by|to|from|with|that|what|who|whether|where|which|how|those|the same)\b"
)
NOT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


@dataclass(frozen=True, order=True)
class Place:
    """A name or a text, and the line where it stands."""

    path: Path
    line: int
    text: str

    @property
    def address(self) -> str:
        """The file, as seen from the current folder, and the line."""
        return f"{os.path.relpath(self.path)}:{self.line}"


@dataclass(frozen=True)
class Measure:
    """Offenders of one kind among `total` candidates, or counted by themselves if there is no total."""

    title: str
    offenders: list[Place]
    total: int | None = None
    step: Decimal = Decimal("0.1")
    slack: Decimal = Decimal("0.5")

    @property
    def lowest_limit(self) -> Decimal:
        """The figure, in percent if there is a total, rounded up to a multiple of the step."""
        scale = 1 if self.total is None else 100
        figure = Fraction(scale * len(self.offenders), self.total or 1)
        return math.ceil(figure / Fraction(self.step)) * self.step

    def __str__(self) -> str:
        if self.total is None:
            return f"{self.title}: {len(self.offenders)}"
        share = 100 * len(self.offenders) / (self.total or 1)
        return f"{self.title}: {len(self.offenders)} of {self.total} ({share:.2f} %)"


def split_words(name: str) -> list[str]:
    """Return the words of a name in snake case or camel case, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def is_participle(name: str) -> bool:
    """Return whether a name is one word, and that a past participle."""
    return is_one_word(name) and PARTICIPLE.fullmatch(split_words(name)[0]) is not None


def is_one_word(name: str) -> bool:
    """Return whether a name is one word."""
    return len(split_words(name)) == 1


def has_house_word(name: str) -> bool:
    """Return whether a word of a name belongs to the house dialect."""
    return any(HOUSE_WORD.fullmatch(word) for word in split_words(name))


def find_code_lines(text: str) -> list[int]:
    """Return the numbers of the lines that hold code: no blank lines, comments or docstrings."""
    lines: set[int] = set()
    is_start = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in NOT_CODE:
            is_start = is_start or token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
            continue
        if not (is_start and token.type == tokenize.STRING):
            lines.update(range(token.start[0], token.end[0] + 1))
        is_start = False
    return sorted(lines)


def collect_nodes(tree: ast.Module) -> Iterator[tuple[str, int, str]]:
    """Yield the kind, the line and the text of each name that a module defines and of its docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.name.startswith("__"):
                yield "function", node.lineno, node.name
            for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                if argument.arg not in ("self", "cls"):
                    yield "variable", argument.lineno, argument.arg
        elif isinstance(node, ast.ClassDef):
            yield "class", node.lineno, node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield "variable", node.lineno, node.id
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            text, start = ast.get_docstring(node), node.body[0].lineno if node.body else 1
            if text:
                yield "docstring", start, text.splitlines()[0]
                head, _, arguments = text.partition("Args:")
                for match in ARGUMENT.finditer(arguments):
                    line = start + head.count("\n") + arguments.count("\n", 0, match.start(1))
                    yield "argument", line, arguments[match.start(1) :].splitlines()[0]


def measure_tree(source: Path) -> dict[str, Measure]:
    """Measure every Python file below a folder. The keys are those of the file of limits."""
    places: dict[str, list[Place]] = collections.defaultdict(list)
    for path in sorted(path for path in source.rglob("*.py") if "__pycache__" not in path.parts):
        text = path.read_text(encoding="utf-8")
        module = str(path.relative_to(source))
        if path.name not in ("__init__.py", "__main__.py"):
            places["module"].append(Place(path, 1, module))
        for match in re.finditer(r"\bwhoever\b", text, re.IGNORECASE):
            places["whoever"].append(Place(path, text.count("\n", 0, match.start()) + 1, match[0]))
        places["code"] += [Place(path, line, module) for line in find_code_lines(text)]
        for kind, line, name in collect_nodes(ast.parse(text)):
            places[kind].append(Place(path, line, name))
    identifiers = places["function"] + places["class"] + places["variable"]
    class_files: dict[str, set[Path]] = collections.defaultdict(set)
    for place in places["class"]:
        class_files[place.text].add(place.path)

    def select(title: str, candidates: list[Place], is_offender: Callable[[str], object]) -> Measure:
        return Measure(title, sorted(p for p in candidates if is_offender(p.text)), len(candidates))

    functions, classes, arguments = places["function"], places["class"], places["argument"]
    return {
        "bare_participle_functions": select("functions named by a bare participle", functions, is_participle),
        "house_word_identifiers": select("identifiers with a house word", identifiers, has_house_word),
        "one_word_classes": select("class names of one word", classes, is_one_word),
        "shared_class_names": select(
            "class names defined in two or more modules", classes, lambda name: len(class_files[name]) > 1
        ),
        "public_modules": select(
            "modules without a leading underscore", places["module"], lambda name: "/_" not in f"/{name}"
        ),
        "fragment_docstrings": select(
            "docstrings that open with a fragment", places["docstring"], FRAGMENT.match
        ),
        "preposition_arguments": select(
            "argument docs that open with a preposition", arguments, PREPOSITION.match
        ),
        "whoever": Measure("'whoever' in the source", places["whoever"], step=Decimal(1), slack=Decimal(10)),
        "lines_of_code": Measure("lines of code", places["code"], step=Decimal(1000), slack=Decimal(2000)),
    }


def find_complaints(measures: dict[str, Measure], limits: dict[str, Decimal]) -> Iterator[str]:
    """Yield a complaint for each figure that is above its limit or clearly below it."""
    for key, measure in measures.items():
        if measure.lowest_limit > limits[key]:
            yield f"{key}: {measure} is above the limit of {limits[key]}. Most frequent:"
            counts = collections.Counter(place.text for place in measure.offenders)
            first = {place.text: place for place in reversed(measure.offenders)}
            for text, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MAX_EXAMPLES]:
                yield f"  {count:6}  {text[:60]:60}  {first[text].address}"
        elif limits[key] - measure.lowest_limit > measure.slack:
            yield f"{key}: {measure} has fallen: lower the limit to {measure.lowest_limit}"


def main(arguments: list[str] | None = None) -> int:
    """Run the check. Return 0 if every figure keeps its limit, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", type=Path, default=ROOT / "src" / "reticent", help="folder to measure")
    parser.add_argument(
        "--limits", type=Path, default=ROOT / "tools" / "name_limits.toml", help="file of limits"
    )
    parser.add_argument("--lower", action="store_true", help="write the limits that have fallen")
    parser.add_argument("--list", type=Path, metavar="PATH", help="list every offender in a file or folder")
    options = parser.parse_args(arguments)
    measures = measure_tree(options.source.resolve())
    text = options.limits.read_text(encoding="utf-8")
    limits = {key: Decimal(value) for key, value in tomllib.loads(text, parse_float=Decimal).items()}
    if measures.keys() != limits.keys():
        sys.exit(f"{options.limits} must hold these limits: {', '.join(measures)}")
    if options.list:
        for key, measure in measures.items():
            for place in measure.offenders:
                if key != "lines_of_code" and place.path.is_relative_to(options.list.resolve()):
                    print(f"{place.address}: {key}: {place.text}")
        return 0
    if options.lower:
        for key, measure in measures.items():
            limits[key] = min(limits[key], measure.lowest_limit)
            text = re.sub(rf"^{key} = \S+", f"{key} = {limits[key]}", text, flags=re.MULTILINE)
        options.limits.write_text(text, encoding="utf-8")
    complaints = list(find_complaints(measures, limits))
    for line in complaints or [f"{measure}; limit {limits[key]}" for key, measure in measures.items()]:
        print(line)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
