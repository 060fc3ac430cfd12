"""Rows out of files, folders and the hub, each with the place it comes from."""

import codecs
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from glob import escape, glob


ENDS = (".parquet", ".jsonl", ".json")
DESCRIPTIONS = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")  # of data sets; no rows
SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
}
CONTAINERS = ("data", "rows", "examples", "instances", "items")  # keys of the list of rows in a JSON object
_BOMS = {  # the longer ones first: UTF-32's begins with UTF-16's
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


@dataclass(frozen=True)
class SourceRow:
    """A row as it was found: its `value`, or the `fault` that made it unreadable, and its `place`."""

    place: str
    value: object = None
    fault: str | None = None


def read_rows(name: str, split: str = "train") -> Iterator[SourceRow]:
    """
    The rows of a parquet, JSON or JSON-lines file, of the files in a folder, or of a data set on the hub.

    Of a folder whose files name splits (`train.jsonl`, `test-00000-of-00002.parquet`, `val/a.json`), those of `split`
    are read.

    Raises:
        `ValueError`: naming the file or folder, if there is none, or if it is no such file.
    """
    if os.path.isdir(name):
        for path in _files_of(name, split):
            yield from _read_file(path, split)
    elif name.endswith(ENDS):
        if not os.path.exists(name):
            raise ValueError(f"no file {name!r}")
        yield from _read_file(name, split)
    else:
        from datasets import load_dataset

        for number, row in enumerate(load_dataset(name, split=split)):
            yield SourceRow(f"{name} row {number + 1}", row)


# ------------------------------------------------------------------------------------------------------------- folders


def _files_of(folder: str, split: str) -> list[str]:
    """The files of a split; files that name none are of the split that no other file names."""
    paths = sorted(path for end in ENDS for path in glob(os.path.join(escape(folder), f"**/*{end}"), recursive=True))
    paths = [path for path in paths if os.path.basename(path) not in DESCRIPTIONS]
    if not paths:
        raise ValueError(f"the folder {folder!r} has no .parquet, .jsonl or .json file")
    splits = {path: _split_of(os.path.relpath(path, folder), split) for path in paths}
    wanted = [path for path in paths if splits[path] == _canonical(split)]
    wanted = wanted or [path for path in paths if splits[path] is None]
    if not wanted:
        found = ", ".join(sorted(set(filter(None, splits.values()))))
        raise ValueError(f"the folder {folder!r} has no split {split!r}; it has {found}")
    return wanted


def _split_of(path: str, asked: str) -> str | None:
    """The split that a file's name says, or else the folder next to it that says one."""
    names = {asked, *(alias for aliases in SPLITS.values() for alias in aliases)}
    longest_first = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    for part in reversed(path.split(os.sep)):
        if found := re.search(rf"(?<![^\W_])({longest_first})(?![^\W\d_])", part, re.IGNORECASE):
            return _canonical(found[1])
    return None


def _canonical(split: str) -> str:
    return next((name for name, aliases in SPLITS.items() if split.lower() in aliases), split)


# --------------------------------------------------------------------------------------------------------------- files


def _read_file(path: str, split: str) -> Iterator[SourceRow]:
    return _read_parquet(path) if path.endswith(".parquet") else _read_json(path, split)


def _read_parquet(path: str) -> Iterator[SourceRow]:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except (pa.ArrowException, ValueError, OSError) as error:
        raise ValueError(f"{path}: no readable parquet file: {error}") from None
    for number, row in enumerate(rows):
        yield SourceRow(f"{path} row {number + 1}", row)


def _read_json(path: str, split: str) -> Iterator[SourceRow]:
    """JSON lines, an array, an object that is a row, or one that holds the rows."""
    lines = _lines_of(path)
    written = [line for line in lines if line is None or line.strip()]
    if len(written) < 2 or not isinstance(_parsed(written[0]), dict):  # not JSON lines, or one that may be a document
        document = None if None in written else _parsed("\n".join(lines))
        if isinstance(document, dict):
            document = _rows_in(document, split)
        if isinstance(document, list):
            for number, row in enumerate(document):
                yield SourceRow(f"{path} row {number + 1}", row)
            return
        if written and (written[0] or "").lstrip().startswith("[") and _parsed(written[0]) is None:
            raise ValueError(f"{path} begins like a JSON array and is not one: {_fault(lines)}")
    for number, line in enumerate(lines):
        place = f"{path} line {number + 1}"
        if line is None:
            yield SourceRow(place, fault="not UTF-8")
        elif line.strip():
            value = _parsed(line)
            yield SourceRow(place, value, "not valid JSON" if value is None and line.strip() != "null" else None)


def _lines_of(path: str) -> list[str | None]:
    r"""The lines of a text file, split at `\n` only: JSON strings may hold U+2028 and the like. `None`: not UTF-8."""
    with open(path, "rb") as file:
        data = file.read()
    encoding = next((name for bom, name in _BOMS.items() if data.startswith(bom)), "utf-8")
    if encoding != "utf-8":
        try:
            return data.decode(encoding).split("\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} begins like {encoding} and is not: {error}") from None
    return [_decoded(line) for line in data.split(b"\n")]


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _parsed(text: str | None) -> object:
    """What JSON text says; `None` where it is not JSON."""
    try:
        return json.loads(text or "")
    except (ValueError, RecursionError):
        return None


def _fault(lines: list[str | None]) -> str:
    if None in lines:
        return f"line {lines.index(None) + 1} is not UTF-8"
    try:
        json.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:
        return str(error)
    return "it is nested too deeply"


def _rows_in(document: dict, split: str) -> list:
    """The rows in an object: its list of the split, its one list of rows, or the object itself."""
    if "prompt" in document or "messages" in document:
        return [document]
    lists = {name: value for name, value in document.items() if isinstance(value, list)}
    for name, value in lists.items():
        if _canonical(name) == _canonical(split):
            return value
    rows = [
        value
        for name, value in lists.items()
        if name in CONTAINERS or any(isinstance(row, dict) and ("prompt" in row or "messages" in row) for row in value)
    ]
    return rows[0] if len(rows) == 1 else [document]
