"""Terms of CSV on the Web and of CSVW-EO, by level, under all the names that JSON-LD allows.

`normal` reads an object into plain names: prefixes, full IRIs and what the file's @context renames are
expanded, and each name must be known at its level. An unknown name is refused with an error that shows it,
since it may say whom the file protects. CSV on the Web allows annotations in other vocabularies: these are
passed over, but only if nothing in them looks like a statement about privacy.

The terms are those of W3C's "Metadata Vocabulary for Tabular Data" and of the repository
dscc-admin-ch/csvw-eo, with the names that it had before (csvw-safe, csvw-dp). It is young: terms may change.

Not here: the meaning of the terms (`foreign_metadata`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from reticent.errors import ParameterError, ParameterTypeError

_CSVW = "http://www.w3.org/ns/csvw#"
_PREFIXES = {
    "csvw": _CSVW,
    "csvw-eo": "http://w3id.org/csvw-eo#",
    "csvw-safe": "http://w3id.org/csvw-safe#",
    "csvw-dp": "http://w3id.org/csvw-dp#",
    "dp": "http://w3id.org/csvw-dp#",
}
_SPACES = (*_PREFIXES.values(), "http://github.com/dscc-admin-ch/csvw-dp/csvw-dp-ext#")
_CONTEXTS = re.compile(r"https?://www\.w3\.org/ns/csvw|(.*[/\\])?csvw-(eo|safe|dp|dp-ext)-context\.jsonld")
_GROUPS = ("public.", "bounds.", "dp.", "part.", "synth.")  # in which CSVW-EO once put its terms
_IRIS = {"table": "tables", "column": "columns", "title": "titles", "note": "notes"}  # of CSV on the Web
_RENAMED = {  # by CSVW-EO
    "length": "publicLength",
    "maxContribution": "maxContributions",
    "publicPartitions": "partitions",
}
_KEYWORDS = ("@language", "@base", "@version")  # of a context: they rename nothing
_LONGEST_CHAIN = 10  # of names in a context that stand for others

# Terms allowed at each level, with their content: an object of a level, or a list of them; "data": values of
# rows; "predicates": one for each of some columns; else a plain value, or a note for people.
_EVERYWHERE = {"@id": "", "@type": ""}
_BOUNDS = dict.fromkeys(
    ("minimum", "maximum", "minInclusive", "maxInclusive", "minExclusive", "maxExclusive"), ""
)
_INHERITED = dict.fromkeys(
    ("aboutUrl", "lang", "ordered", "propertyUrl", "required", "separator", "textDirection", "valueUrl"), ""
) | {"datatype": "datatype", "default": "data", "null": "data"}
_SHARED = _EVERYWHERE | _INHERITED
_TABLES = {"dialect": "note", "notes": "note", "tableDirection": "", "transformations": "note"}
_PARTS = {
    "exhaustiveKeys": "",
    "exhaustivePartitions": "",
    "invariantPublicKeys": "",
    "maxContributions": "",
    "maxGroupsPerUnit": "",
    "maxLength": "",
    "maxNumPartitions": "",
}
_LEVELS: dict[str, dict[str, str]] = {
    "table": _SHARED
    | _TABLES
    | dict.fromkeys(("url", "name", "suppressOutput"), "")
    | dict.fromkeys(("privacyUnit", "maxContributions", "maxLength", "publicLength"), "")
    | {"tableSchema": "schema", "additionalInformation": "list of column group"},
    "table group": _SHARED | _TABLES | {"tables": "list of table", "tableSchema": "schema"},
    "schema": _SHARED
    | {"columns": "list of column", "foreignKeys": "note", "primaryKey": "", "rowTitles": "", "name": ""},
    "column": _SHARED
    | _BOUNDS
    | _PARTS
    | dict.fromkeys(("name", "suppressOutput", "virtual", "privacyId", "nullableProportion"), "")
    | {
        "titles": "data",
        "keyValues": "data",
        "partitions": "list of partition",
        "rowDependencies": "list of dependency",
    },
    "datatype": _EVERYWHERE
    | _BOUNDS
    | dict.fromkeys(("base", "length", "minLength", "maxLength", "name"), "")
    | {"format": "note"},
    "partition": _EVERYWHERE
    | {"predicate": "predicate", "maxContributions": "", "maxGroupsPerUnit": "", "maxLength": ""},
    "predicate": _EVERYWHERE
    | dict.fromkeys(("lowerBound", "upperBound", "lowerInclusive", "upperInclusive"), "")
    | {"partitionValue": "data"},
    "dependency": _EVERYWHERE | {"dependsOn": "", "dependencyType": "", "valueMap": "data"},
    "column group": _EVERYWHERE
    | _PARTS
    | {
        "columnsInGroup": "",
        "columns": "",
        "keyValues": "predicates",
        "partitions": "list of group partition",
    },
    "group partition": _EVERYWHERE
    | {"predicate": "predicates", "maxContributions": "", "maxGroupsPerUnit": "", "maxLength": ""},
}
_WORDS = frozenset(name for known in _LEVELS.values() for name in known)
_ABOUT_PRIVACY = (
    *("privacyunit", "privacyid", "maxcontributions", "maxgroupsperunit", "publiclength", "privacymodel"),
    *("privateid", "privatekey", "rowprivacy", "maxids", "samplemaxids", "contributions"),
)
_PART_OF_ONE = ("privac", "private", "contrib", "maxid")
_ALIKE = 0.7  # of 1 by difflib: two letters of nine may be others


class Names:
    """A resolver of the names in a file: its @context, beside the terms and prefixes that are always known.

    Raises:
        ParameterError: The context is not known, or gives a known term another meaning.
    """

    def __init__(self, context: Any) -> None:
        self._given: dict[str, str] = {}
        for one in context if isinstance(context, list) else [context]:
            if isinstance(one, Mapping):
                self._add(one)
            elif one is not None and not (isinstance(one, str) and _CONTEXTS.fullmatch(one)):
                raise ParameterError(
                    f"@context must be that of CSV on the Web, of CSVW-EO, or an object, got {one!r:.80}: "
                    "what it renames is not known"
                )
        for name in self._given:
            iri = self.iri(name)
            if not iri.startswith("@") and ":" not in iri:
                raise ParameterError(f"@context.{name} must be an IRI, got {iri!r:.60}")
            is_other = iri != _PREFIXES[name] if name in _PREFIXES else self.plain(name) != name
            if is_other and (name in _WORDS or name in _PREFIXES):
                raise ParameterError(f"@context.{name} must not give {name} another meaning")

    def _add(self, context: Mapping[str, Any]) -> None:
        for name, given in context.items():
            if name in _KEYWORDS:
                continue
            meant = given
            if isinstance(given, Mapping):
                if not given.keys() <= {"@id", "@type", "@container", "@language", "@prefix"}:
                    raise ParameterError(f"@context.{name} must be an IRI, or an object with @id and @type")
                meant = given.get("@id")
            if not isinstance(meant, str) or not meant:
                raise ParameterError(f"@context.{name} must be an IRI, got {given!r:.60}")
            if name == "@vocab":
                if _plain_iri(meant) not in _SPACES:
                    raise ParameterError(f"@context.@vocab must be that of CSV on the Web, got {meant!r:.60}")
            elif name.startswith("@") or ":" in name:
                raise ParameterError(f"@context.{name} must be known to Reticent, it is not")
            elif self._given.setdefault(name, meant) != meant:
                raise ParameterError(f"@context.{name} must be given once")

    def plain(self, name: str) -> str | None:
        """Return the term that a name stands for, or the name if it has no vocabulary; None if foreign."""
        if name.startswith("@") or (":" not in name and name not in self._given):
            return name
        iri = self.iri(name)
        if iri.startswith("@"):
            return iri
        space = next((one for one in _SPACES if iri.startswith(one)), None)
        if space is None:
            return None
        word = iri.removeprefix(space)
        if space == _CSVW:
            return _IRIS.get(word, word)
        word = word.removeprefix(next((one for one in _GROUPS if word.startswith(one)), ""))
        return _RENAMED.get(word, word)

    def iri(self, name: str) -> str:
        """Return a name expanded to an IRI, as far as its parts are known."""
        for _ in range(_LONGEST_CHAIN):
            prefix, colon, rest = name.partition(":")
            if name in self._given:
                name = self._given[name]
            elif colon and not rest.startswith("//") and prefix in self._given:
                name = self._given[prefix] + rest
            elif colon and not rest.startswith("//") and prefix in _PREFIXES:
                return _PREFIXES[prefix] + rest
            else:
                return _plain_iri(name)
        raise ParameterError(f"@context.{name} must not stand for itself")


def _plain_iri(iri: str) -> str:
    return "http://" + iri.removeprefix("https://") if iri.startswith("https://") else iri


def normal(level: str, given: Any, names: Names, at: str = "") -> dict[str, Any]:
    """Return an object of a level, and the objects inside, under plain names. Annotations are left out.

    Args:
        level: Level of the object, a key of the table of levels.
        given: Object to read.
        names: Resolver of the names in the file.
        at: Path of the object in the file, for errors.

    Raises:
        ParameterError: a name is not known there, or given twice; or an annotation looks like one about
            privacy.
    """
    if not isinstance(given, Mapping):
        raise ParameterTypeError(f"{at or 'the file'} must hold an object, got {type(given).__name__}")
    known, inside, found = _LEVELS[level], f"{at}." if at else "", dict[str, Any]()
    for name, value in given.items():
        word = names.plain(name)
        if word is None:
            check_silent(f"{inside}{name}", name, value, names)
        elif word not in known:
            raise ParameterError(f"{inside}{name} {_misplaced(level, word)}")
        elif word in found:
            raise ParameterError(f"{inside}{word} must be given once, it is given as {name} too")
        else:
            found[word] = _value(known[word], value, names, f"{inside}{word}")
    return found


def _misplaced(level: str, word: str) -> str:
    """Return the reason why a term is refused at a level."""
    homes = [one for one, known in _LEVELS.items() if word in known]
    if homes:
        return f"must stand on a {homes[0]}, not on a {level}: what it says would be lost"
    near = get_close_matches(word, _LEVELS[level], 1)
    return "must be known to Reticent, it is not" + (f"; {near[0]} is" if near else "")


def _value(form: str, given: Any, names: Names, at: str) -> Any:
    if isinstance(given, Mapping) and "@value" in given and given.keys() <= {"@value", "@type", "@language"}:
        given = given["@value"]
    if form.startswith("list of "):
        if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
            raise ParameterTypeError(f"{at} must be a list of objects")
        level = form.removeprefix("list of ")
        return [normal(level, one, names, f"{at}[{number}]") for number, one in enumerate(given)]
    if form == "predicates":
        for one in given if isinstance(given, list) else [given]:
            for column, predicate in one.items() if isinstance(one, Mapping) else ():
                if isinstance(predicate, Mapping):
                    normal("predicate", predicate, names, f"{at}.{column}")
                else:
                    check_silent(f"{at}.{column}", column, predicate, names)
    elif form in _LEVELS and isinstance(given, Mapping):
        return normal(form, given, names, at)
    elif form == "data":
        check_silent(at, "", given, names, alike=False)
    else:
        check_silent(at, "", given, names)
    return given


def check_silent(at: str, name: str, given: Any, names: Names, *, alike: bool = True) -> None:
    """Refuse ignored content if a name in it looks like a statement about privacy.

    Args:
        at: Path of the content in the file, for errors.
        name: Name of the content itself.
        given: Content that is passed over.
        names: Resolver of the names in the file.
        alike: Flag to refuse names that only resemble such a name, too; False where names are values of rows.
    """
    left: list[tuple[str, str, Any]] = [(at, name, given)]
    while left:
        place, one, value = left.pop()
        if any(_is_about_privacy(form, alike=alike) for form in (one, names.iri(one))):
            raise ParameterError(
                f"{place} must not be about privacy in a place, or in words, that Reticent passes over"
            )
        if isinstance(value, Mapping):
            left.extend((f"{place}.{key}", str(key), inner) for key, inner in value.items())
        elif isinstance(value, list):
            left.extend((f"{place}[{number}]", "", inner) for number, inner in enumerate(value))


def _is_about_privacy(name: str, *, alike: bool) -> bool:
    parts = [part for part in re.split(r"[#/:.]", name.lower()) if part]
    bare = re.sub("[^a-z]", "", parts[-1]) if parts else ""
    if bare in _ABOUT_PRIVACY:
        return True
    return alike and (
        any(part in bare for part in _PART_OF_ONE)
        or bool(get_close_matches(bare, _ABOUT_PRIVACY, 1, cutoff=_ALIKE))
    )
