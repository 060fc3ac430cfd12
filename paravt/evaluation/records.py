"""Records on disk, a line each as soon as there is one."""

import glob
import json
import logging
import os
from collections.abc import Sequence


logger = logging.getLogger(__name__)


class Records:
    """
    Records on disk, a JSON line each, written as soon as there is one: a killed run goes on where it was. A line that
    was cut by a crash is dropped; one that is damaged otherwise, or lacks a field, is reported, and its question asked
    again, as is that of a record that failed; its next line counts.

    Args:
        path (`str`): The file. With several ranks each writes its own, with its rank in the name.
        settings (`dict`): What made the records; kept in every line. Lines made with other settings are refused.
        rank (`int`): The rank of this process.
        fields (`Sequence[str]`): What a whole record has; `id` and `error` are always among it.
    """

    def __init__(self, path: str, settings: dict, rank: int = 0, fields: Sequence[str] = ()):
        stem, end = os.path.splitext(path)
        self.path = path if rank == 0 else f"{stem}.{rank}{end}"
        self.fields = {"id", "error", "settings", *fields}
        self.settings = json.loads(json.dumps(settings))
        self.done: dict[str, dict] = {}
        self.damaged: set[tuple[str, int]] = set()  # file and line
        self.pattern = (path, glob.escape(stem) + ".*" + end)
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        self.everything()
        self.file = open(self.path, "a", encoding="utf-8")

    def everything(self) -> dict[str, dict]:
        """The records of all ranks by id, read again."""
        path, pattern = self.pattern
        for found in sorted({path, *glob.glob(pattern)}):
            if os.path.exists(found):
                self._read(found)
        return self.done

    def _read(self, path: str) -> None:
        with open(path, "rb") as file:
            data = file.read()
        whole = data.rfind(b"\n") + 1
        if whole < len(data) and path == self.path:
            os.truncate(path, whole)
        for number, line in enumerate(data[:whole].split(b"\n")[:-1], start=1):
            record = self._parse(line)
            if record is None:
                self._report(path, number)
                continue
            self._check_settings(record["settings"], path, number)
            if not record["error"] or self.done.get(record["id"], record)["error"]:
                self.done[record["id"]] = record

    def _parse(self, line: bytes) -> dict | None:
        """The record of a line; `None` if the line is damaged."""
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return None
        whole = isinstance(record, dict) and self.fields <= record.keys()
        return record if whole and isinstance(record["settings"], dict) and isinstance(record["id"], str) else None

    def _report(self, path: str, number: int) -> None:
        if (path, number) not in self.damaged:
            self.damaged.add((path, number))
            logger.warning("line %d of %s is damaged: its question is asked again", number, path)

    def _check_settings(self, theirs: dict, path: str, number: int) -> None:
        differ = [k for k in sorted({*theirs, *self.settings}) if theirs.get(k) != self.settings.get(k)]
        if differ:
            says = ", ".join(f"{k} {theirs.get(k)!r} there and {self.settings.get(k)!r} now" for k in differ)
            raise ValueError(f"line {number} of {path} was made with other settings: {says}; use another file")

    def add(self, record: dict) -> None:
        """Writes a record, and returns once it is on the disk."""
        self.done[record["id"]] = record | {"settings": self.settings}
        self.file.write(json.dumps(self.done[record["id"]], ensure_ascii=False) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())
