"""
How well choices are read from answers, on labelled answers: forms, languages and habits of models, hedges, refusals,
several letters, denied options.

    python recipes/bench/answers.py [--misses]

Wrong credit is the share of answers that were given a letter and chose none, several, or another one; lost credit is
the share that chose a letter and were given none. There are three sets: `tests/data/choices.jsonl` is by those who
wrote the forms; `choices_blind.jsonl` and `choices_second.jsonl` are by others who had not seen them, and each was
scored once, by the command above, before anybody looked at its misses (the second with the parser of commit 1246018).
The kinds of the misses have been mended since, so that what the command prints for them today is no longer blind:

    set     answers  of them none   accuracy %   wrong credit %   lost credit %
    blind       440           149         94.3              2.3             3.4   when it was new
    second      420           140         96.9              0.5             2.6   when it was new
    own        1374           505        100.0              0.0             0.0   today
    blind       440           149        100.0              0.0             0.0   today
    second      420           140        100.0              0.0             0.0   today
"""

import argparse
import json
import os
from collections import defaultdict

from paravt.answers.choices import extract_choice
from paravt.metrics import table


FOLDER = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "data")
SETS = {"own": "choices.jsonl", "blind": "choices_blind.jsonl", "second": "choices_second.jsonl"}
LANGUAGES = {  # the sets write them in two ways
    "ar": "Arabic", "de": "German", "en": "English", "es": "Spanish", "fr": "French", "hi": "Hindi",
    "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "nl": "Dutch", "pl": "Polish",
    "pt": "Portuguese", "ru": "Russian", "sv": "Swedish", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


def read_set(name: str) -> list[dict]:
    """The labelled answers of a set, each with the letter that is `read` from it."""
    with open(os.path.join(FOLDER, SETS[name]), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [row | {"read": extract_choice(row["text"], row["choices"], row["options"])} for row in rows]


def rates(rows: list[dict]) -> dict[str, float]:
    """Accuracy, wrong credit and lost credit of labelled answers, in per cent."""
    wrong = sum(row["read"] not in (None, row["label"]) for row in rows)
    lost = sum(row["read"] is None and row["label"] is not None for row in rows)
    count = len(rows)
    return {
        "answers": float(count), "of them none": float(sum(row["label"] is None for row in rows)),
        "accuracy %": 100 * (count - wrong - lost) / count, "wrong credit %": 100 * wrong / count,
        "lost credit %": 100 * lost / count,
    }  # fmt: skip


def grouped(rows: list[dict], column: str) -> list[tuple[str, dict[str, float]]]:
    groups = defaultdict(list)
    for row in rows:
        groups[LANGUAGES.get(row[column], row[column])].append(row)
    return [(name, rates(group)) for name, group in sorted(groups.items(), key=lambda item: -len(item[1]))]


def main(misses: bool) -> None:
    sets = {name: read_set(name) for name in SETS}
    everything = [row for rows in sets.values() for row in rows]
    columns = list(rates(everything))
    print(table("set", [(name, rates(rows)) for name, rows in sets.items()] + [("all", rates(everything))], columns))
    print(table("language", grouped(everything, "language"), columns))
    for name, rows in sets.items():
        print(table(f"kind ({name})", grouped(rows, "kind"), columns))
    for row in everything if misses else []:
        if row["read"] != row["label"]:
            print(f"{row['label']} read as {row['read']}: {row['text']!r}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--misses", action="store_true", help="print the answers that are read wrongly")
    main(parser.parse_args().misses)
