"""Rows out of files, folders and the hub, each with the place it comes from."""

import codecs
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from glob import escape, glob


ENDS = (".parquet", ".jsonl", ".ndjson", ".json")  # in any case; those of text also with .gz behind
DESCRIPTIONS = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")  # of data sets; no rows
SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
    "eval": ("eval", "evaluation"),  # of some people the validation split, of others the test split
}
CONTAINERS = ("data", "rows", "examples", "instances", "items")  # keys of the list of rows in a JSON object
_BOMS = {  # the longer ones first: UTF-32's begins with UTF-16's
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
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
    The rows of a parquet, JSON or JSON-lines file, of the files in a folder, of a data set that was saved there, or of
    one on the hub.

    Of a folder whose files name splits (`train.jsonl`, `test-00000-of-00002.parquet`, `val/a.json`), those of `split`
    are read; files that name none are for training.

    Raises:
        `ValueError`: naming the file or folder, if there is none, if it is no such file, or if it lacks the split.
    """
    if os.path.isdir(name) and _is_saved(name):
        yield from _read_saved(name, split)
    elif os.path.isdir(name):
        for path in _files_of(name, split):
            yield from _read_file(path, split)
    elif os.path.exists(name) or _end_of(name):
        yield from _read_file(name, split)
    else:
        yield from _read_hub(name, split)


def _end_of(name: str) -> str | None:
    """The ending that says what a file holds."""
    name = name.lower().removesuffix(".gz")
    return next((end for end in ENDS if name.endswith(end)), None)


# ----------------------------------------------------------------------------------------------------------- data sets


def _read_hub(name: str, split: str) -> Iterator[SourceRow]:
    from datasets import load_dataset

    try:
        rows = load_dataset(name, split=split)
    except (OSError, ValueError) as error:
        raise ValueError(f"{name!r} is no file, no folder, and no data set of the hub: {error}") from None
    yield from _numbered(name, rows)


def _is_saved(folder: str) -> bool:
    """Whether [`~datasets.Dataset.save_to_disk`] wrote a folder."""
    return bool(glob(os.path.join(escape(folder), "**/*.arrow"), recursive=True)) and not _row_files(folder)


def _read_saved(folder: str, split: str) -> Iterator[SourceRow]:
    from datasets import DatasetDict, load_from_disk

    try:
        rows = load_from_disk(folder)
    except (OSError, ValueError) as error:
        raise ValueError(f"the folder {folder!r} has no readable data set: {error}") from None
    if isinstance(rows, DatasetDict):
        rows = rows[_of_split({name: _canonical(name) for name in rows}, split, f"the folder {folder!r}")[0]]
    yield from _numbered(folder, rows)


def _numbered(name: str, rows) -> Iterator[SourceRow]:
    for number, row in enumerate(rows):
        yield SourceRow(f"{name} row {number + 1}", row)


# -------------------------------------------------------------------------------------------------------------- splits


def _row_files(folder: str) -> list[str]:
    paths = sorted(glob(os.path.join(escape(folder), "**/*"), recursive=True))
    return [p for p in paths if _end_of(p) and os.path.isfile(p) and os.path.basename(p) not in DESCRIPTIONS]


def _files_of(folder: str, split: str) -> list[str]:
    paths = {os.path.relpath(path, folder): path for path in _row_files(folder)}
    if not paths:
        raise ValueError(f"the folder {folder!r} has no file that ends with {', '.join(ENDS)}")
    wanted = _of_split({path: _split_of(path, split) for path in paths}, split, f"the folder {folder!r}")
    return [paths[path] for path in wanted]


def _of_split(named: dict[str, str | None], split: str, place: str) -> list[str]:
    """Those that name a split; if none does, and it is the one for training, those that name no split."""
    wanted = [name for name, theirs in named.items() if theirs == _canonical(split)]
    if not wanted and _canonical(split) == "train":
        wanted = [name for name, theirs in named.items() if theirs is None]
    if not wanted:
        found = sorted({theirs or name for name, theirs in named.items()})
        raise ValueError(f"{place} has no split {split!r}; it has {', '.join(found)}")
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
    return next((name for name, aliases in SPLITS.items() if split.lower() in aliases), split.lower())


# --------------------------------------------------------------------------------------------------------------- files


def _read_file(path: str, split: str) -> Iterator[SourceRow]:
    if _end_of(path) is None:
        raise ValueError(f"{path!r} does not end with {', '.join(ENDS)}: it is not known what it holds")
    if not os.path.exists(path):
        raise ValueError(f"no file {path!r}")
    return _read_parquet(path) if _end_of(path) == ".parquet" else _read_json(path, split)


def _read_parquet(path: str) -> Iterator[SourceRow]:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except (pa.ArrowException, ValueError, OSError) as error:
        raise ValueError(f"{path}: no readable parquet file: {error}") from None
    yield from _numbered(path, rows)


def _read_json(path: str, split: str) -> Iterator[SourceRow]:
    """JSON lines, an array, an object that is a row, or one that holds the rows."""
    lines = _lines_of(path)
    written = [line for line in lines if line is None or line.strip()]
    if len(written) < 2 or not isinstance(_parsed(written[0]), dict):  # not JSON lines, or one that may be a document
        document = None if None in written else _parsed("\n".join(lines))
        if isinstance(document, dict):
            document = _rows_in(document, split, path)
        if isinstance(document, list):
            yield from _numbered(path, document)
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
    r"""
    The lines of a text file, split at `\n` only: JSON strings may hold U+2028 and the like. `None`: not UTF-8. Byte
    order marks before lines are left out: files that begin with one may have been joined.
    """
    data = _bytes_of(path)
    encoding = next((name for bom, name in _BOMS.items() if data.startswith(bom)), None)
    try:
        lines = data.decode(encoding).split("\n") if encoding else [_decoded(line) for line in data.split(b"\n")]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} begins like {encoding} and is not: {error}") from None
    return [line and line.lstrip("\ufeff") for line in lines]


def _bytes_of(path: str) -> bytes:
    try:
        with gzip.open(path) if path.lower().endswith(".gz") else open(path, "rb") as file:
            return file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


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


def _rows_in(document: dict, split: str, path: str) -> list:
    """The rows in an object: its list of the split, its one list of rows, or the object itself."""
    if _is_row(document):
        return [document]
    known = {*SPLITS, _canonical(split)}
    named = {
        name: _canonical(name) if _canonical(name) in known else None
        for name, value in document.items()
        if isinstance(value, list) and (name in CONTAINERS or _canonical(name) in known or any(map(_is_row, value)))
    }
    if not named:
        return [document]
    wanted = list(named) if list(named.values()) == [None] else _of_split(named, split, path)
    if len(wanted) > 1:
        raise ValueError(f"{path} has several lists of rows, {', '.join(wanted)}: name one of them as the split")
    return document[wanted[0]]


def _is_row(value: object) -> bool:
    return isinstance(value, dict) and ("prompt" in value or "messages" in value)
