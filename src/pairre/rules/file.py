"""Rules and their files, which are tab-separated tables with a header and one rule per line.

The body of a composition has two names, and a name may contain anything but tabs and line breaks, so this cell is a
JSON list: `["born_in", "city_of"]`. The cell of every other body is the name itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args

import pyarrow as pa

from pairre.graph.streams import read_lines, split_ending
from pairre.support.errors import GraphError, RuleError, suggest
from pairre.support.files import written_whole
from pairre.support.reading import file_fault, parse_json, shortened, shown

Kind = Literal["subrelation", "inverse", "symmetry", "equivalence", "composition"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_FORMULAS: dict[Kind, str] = {
    "subrelation": "{}(x, y) ⇒ {}(x, y)",
    "inverse": "{}(x, y) ⇒ {}(y, x)",
    "symmetry": "{}(x, y) ⇒ {}(y, x)",
    "equivalence": "{}(x, y) ⇔ {}(x, y)",
    "composition": "{}(x, y) ∧ {}(y, z) ⇒ {}(x, z)",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A body that implies a conclusion; the body is one relation, or a path of two relations for a composition."""

    body: tuple[str, ...]
    conclusion: str
    kind: Kind
    confidence: float
    pca_confidence: float | None = None
    support: int | None = None
    head_coverage: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise RuleError(
                f"unknown kind '{shortened(self.kind)}'{suggest(self.kind, KINDS)} (known: {', '.join(KINDS)})"
            )
        num_names = 2 if self.kind == "composition" else 1
        if len(self.body) != num_names:
            raise RuleError(f"the body of a rule of kind {self.kind} has {num_names} relation(s), not {len(self.body)}")
        for name in (*self.body, self.conclusion):
            if not name.strip() or any(c in "\t\r\n" or "\ud800" <= c <= "\udfff" for c in name):
                expected = "a name that is not empty, without tabs and line breaks, expected"
                raise RuleError(f"relation {shortened(ascii(name))}: {expected}")
        if self.kind == "symmetry" and self.body != (self.conclusion,):
            raise RuleError("the body and the head of a symmetry are the same relation")
        for column in ("confidence", "pca_confidence", "head_coverage"):
            value = getattr(self, column)
            if value is not None and not 0 < value <= 1:
                raise RuleError(f"{column} {value}: a number above 0 and up to 1 expected")
        if self.support is not None and self.support < 1:
            raise RuleError(f"support {self.support}: a whole number from 1 up expected")

    def __str__(self) -> str:
        return self.formula({})

    def formula(self, shown: Mapping[str, str]) -> str:
        """Return the rule as a formula, with relations as `shown` has them, else by name."""
        return _FORMULAS[self.kind].format(*(shown.get(name, name) for name in (*self.body, self.conclusion)))


# The file calls the conclusion "head", the word of the rule-mining literature.
COLUMNS = {("head" if f.name == "conclusion" else f.name): f.name for f in fields(Rule)}  # column → field
REQUIRED = tuple(COLUMNS)[:4]


def read_rules(path: str | Path) -> list[Rule]:
    """Return the rules of a file, which may be compressed as .gz or .zst.

    Columns are found by their titles; columns other than `COLUMNS` are ignored. A RuleError names the faulty line.
    """
    path = Path(path)
    (first, header), *rest = _read_rows(path)
    if missing := [column for column in REQUIRED if column not in header]:
        needed = f"the header has at least {', '.join(REQUIRED)}, with tabs"
        raise RuleError(f"{path}:{first}: column '{missing[0]}' is missing; {needed}")
    rules = []
    for number, cells in rest:
        if len(cells) != len(header):
            raise RuleError(f"{path}:{number}: {len(cells)} columns, expected {len(header)} as in the header")
        try:
            rules.append(_parse_rule(dict(zip(header, cells, strict=True))))
        except RuleError as error:
            raise RuleError(f"{path}:{number}: {error}") from None
    return rules


def _read_rows(path: Path) -> list[tuple[int, list[str]]]:
    """Return (line number, cells) of every line that is not blank; there is at least one."""
    if fault := file_fault(path):
        raise RuleError(f"{shown(path)}: {fault}")
    try:
        lines = list(read_lines(path))
    except GraphError as error:
        raise RuleError(str(error)) from error
    except OSError as error:
        raise RuleError(f"{path}: cannot be read: {error.strerror or error}") from error
    rows = [(number, text.rstrip("\r\n").split("\t")) for number, text in lines if text.strip("\r\n")]
    if not rows:
        raise RuleError(f"{path}: the file is empty")
    return rows


def _parse_rule(cells: Mapping[str, str]) -> Rule:
    """Return the rule of one line, as cells by column."""
    kind = cast(Kind, cells["kind"])  # Rule refuses a value that is not a Kind
    body = _parse_pair(cells["body"]) if kind == "composition" else (cells["body"],)
    return Rule(
        body,
        cells["head"],
        kind,
        _parse_number(cells, "confidence", float),
        *(
            _parse_number(cells, column, number_type) if cells.get(column) else None
            for column, number_type in (("pca_confidence", float), ("support", int), ("head_coverage", float))
        ),
    )


def _parse_pair(cell: str) -> tuple[str, ...]:
    try:
        names = parse_json(cell)
    except ValueError:
        names = None
    if not isinstance(names, list) or len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise RuleError(
            f'body {shortened(cell)}: a composition has a JSON list of two names, as ["born_in", "city_of"]'
        )
    return tuple(names)


def _parse_number(cells: Mapping[str, str], column: str, number_type: type[Any]) -> Any:
    try:
        return number_type(cells[column])
    except ValueError:
        raise RuleError(
            f"{column} {shortened(repr(cells[column]))}: a {'whole ' * (number_type is int)}number expected"
        ) from None


def write_rules(path: str | Path, rules: Iterable[Rule]) -> None:
    """Write a file that `read_rules` can read, completely or not at all; a measure of None is an empty cell."""
    path = Path(path)
    with written_whole(path) as part, pa.output_stream(str(part), compression=split_ending(path)[1]) as stream:
        stream.write(("\t".join(COLUMNS) + "\n").encode())
        for rule in rules:
            body = json.dumps(rule.body, ensure_ascii=False) if len(rule.body) > 1 else rule.body[0]
            values = (body, *(getattr(rule, field) for field in list(COLUMNS.values())[1:]))
            stream.write(("\t".join("" if v is None else str(v) for v in values) + "\n").encode())
