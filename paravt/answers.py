"""What a text answers: a letter, an interval, or words; and how right it is."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence

from .parser import parse_seconds


QUESTION_TYPES = ("mcq", "tvg", "oe")
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SPECIAL = re.compile(r"<\|[^|<>\s]{1,30}\|>")


def assistant_turns(completion: str | list[dict], turns: list[dict] | None = None) -> list[str]:
    """The texts that the model wrote, turn by turn, special tokens taken out."""
    messages = turns or completion
    if isinstance(messages, str):
        texts = [messages]
    else:
        texts = [m.get("content") or "" for m in messages if m["role"] == "assistant"]
    texts = [t if isinstance(t, str) else "".join(p.get("text") or "" for p in t) for t in texts]
    return [_SPECIAL.sub("", t) for t in texts] or [""]


def extract_answer(text: str) -> str | None:
    """What stands in the one `<answer>` block after the last `</think>`; `None` if there is none, or two."""
    final = text.rpartition("</think>")[2]
    found = re.findall(r"<answer>((?:(?!</?answer>).)*)</answer>", final, re.DOTALL)
    if len(found) != 1 or final.count("<answer>") != 1 or final.count("</answer>") != 1:
        return None
    return found[0].strip() or None


# ------------------------------------------------------------------------------------------------------------ choices

_LEAD = (
    r"(?:(?:final|correct|right|best)\s+)?(?:answer|option|choice|antwort|respuesta|r[ée]ponse|答案|选项)|"
    r"\bit(?:\s+is|\s+must\s+be|'s)|\b(?:choose|chose|pick|select|go\s+with)|\b(?:so|thus|therefore|hence)"
)
_CONCLUSION = re.compile(
    rf"(?P<strong>(?:{_LEAD}))\s*(?:is|are|was|be|would\s+be|should\s+be|must\s+be|ist|es|est|是|为)?\s*[:：=]?\s*"
    r"(?:(?:the\s+)?(?:option|choice|letter|answer)\s*(?:is\s+)?)?[(\[\"'“]?(?P<label>[^\W\d_])(?P<after>[^\w].*|$)",
    re.IGNORECASE,
)
_BRACKETED = re.compile(r"[(\[]([^\W\d_])[)\]]")
_CONNECTIVE = re.compile(r"\s+(?:because|since|as|for|due|given|based|is|was|and|but|which)\b")
_DENIED = re.compile(
    r"\b(?:not|isn't|never|except|excluding|rather than|instead of|unlike)\s+(?:the\s+|option\s+)*$", re.I
)


def extract_choice(
    text: str, choices: str | Sequence[str] = "ABCD", options: Sequence[str] | Mapping[str, str] | None = None
) -> str | None:
    """
    The letter that an answer chooses, whatever the truth is; `None` if it chooses none or more than one.

    Args:
        text (`str`): The answer.
        choices (`str` or `Sequence[str]`): The row's letters.
        options (`Sequence[str]` or `Mapping[str, str]`, *optional*): Their texts: an answer may name one instead.
    """
    labels = [label.upper() for label in choices]
    plain = re.sub(r"\\(?:boxed|text|mathrm)\s*\{([^{}]*)\}", r"\1", text)
    plain = re.sub(r"[*_`$]+", "", _SPECIAL.sub("", plain)).strip()[:2000]
    alone = re.fullmatch(r"[\s(\[{\"'“<]*(\w)[\s)\]}\"'”>.:,;!]*", plain)
    if alone:
        return alone[1].upper() if alone[1].upper() in labels else None
    concluded = []
    for position in [m.start() for m in re.finditer(_LEAD, plain, re.IGNORECASE)]:
        match = _CONCLUSION.match(plain, position)
        if match and match["label"].upper() in labels and _is_label(match["label"], match["after"]):
            weight = (
                0 if re.match(r"option|choice", match["strong"], re.I) else 1 + ("final" in match["strong"].lower())
            )
            concluded.append((weight, match["label"].upper()))
    if concluded:
        best = max(weight for weight, _ in concluded)
        found = [label for weight, label in concluded if weight == best]
        return found[-1] if best else _only(found)
    bracketed = [m[1].upper() for m in _BRACKETED.finditer(plain) if not _DENIED.search(plain[: m.start()])]
    bracketed = [label for label in bracketed if label in labels]
    leading = re.match(r"[(\[]?\s*([^\W\d_])\s*[)\].:：](?=\s|$)", plain)
    if leading and leading[1].upper() in labels and len(set(bracketed)) < 2:
        return leading[1].upper()
    if bracketed:
        return _only(bracketed)
    named = _named_option(plain, labels, options)
    if named:
        return named
    bare = re.fullmatch(r".{0,200}(?:[,:;\-–—]|\b(?:is|be|say|with|answer))\s*([A-Z])\s*[.!]?", plain, re.DOTALL)
    return bare[1] if bare and bare[1] in labels else None


def _is_label(letter: str, after: str) -> bool:
    """Whether a letter after `the answer is` is a label: neither an article nor a pronoun nor a word's start."""
    if after.startswith(("'", "’")):
        return False
    word_follows = re.match(r"\s+\w", after) and not _CONNECTIVE.match(after)
    return not word_follows or (letter.isupper() and letter not in "AI")


def _only(labels: list[str]) -> str | None:
    return labels[0] if len(set(labels)) == 1 else None


def _named_option(text: str, labels: list[str], options) -> str | None:
    if not options:
        return None
    pairs = options.items() if isinstance(options, Mapping) else zip(labels, options, strict=False)
    said = " ".join(_tokens(text))
    names = [(label.upper(), " ".join(_tokens(str(option)))) for label, option in pairs]
    exact = [label for label, name in names if name and name == said]
    if exact:
        return _only(exact)
    inside = [(label, name) for label, name in names if name and f" {name} " in f" {said} "]
    # An option within a longer one that is named too is not named by itself.
    longest = [label for label, name in inside if not any(name != n and f" {name} " in f" {n} " for _, n in inside)]
    return longest[0] if len(longest) == 1 else None


# ------------------------------------------------------------------------------------------------------------- text

# Scripts without spaces count character by character.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"(?<!\w)[+-]?\d+(?:\.\d+)?|\d+(?:\.\d+)?|[{_UNSPACED}]|[^\W\d{_UNSPACED}]+|[%$€£¥°]")
_ARTICLES = ("a", "an", "the")


def _tokens(text: str) -> list[str]:
    text = unicodedata.normalize("NFKC", text).replace("\u2212", "-").lower()
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", re.sub(r"(?<=\w)['’](?=\w)", "", text))
    tokens = _TOKEN.findall(text)
    return [t for t in tokens if t not in _ARTICLES] or tokens


def token_f1(prediction: str, reference: str) -> float:
    """
    F1 of the tokens of two texts, counted; articles, case and punctuation aside, numbers with their signs kept whole.
    Scripts without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) count by character. 0 if either has no token.
    """
    said, truth = Counter(_tokens(prediction)), Counter(_tokens(reference))
    common = sum((said & truth).values())
    return 2 * common / (said.total() + truth.total()) if common else 0.0


# --------------------------------------------------------------------------------------------------------- intervals

_TIME = (
    r"(?:\d{1,4}:)?\d{1,6}:\d{1,2}(?:\.\d+)?|"
    r"\d+(?:\.\d+)?\s?h(?:ours?|rs?)?(?:\s?\d+(?:\.\d+)?\s?m(?:in(?:ute)?s?)?)?(?:\s?\d+(?:\.\d+)?\s?s(?:ec(?:ond)?s?)?)?\b|"
    r"\d+(?:\.\d+)?\s?m(?:in(?:ute)?s?)?(?:\s?\d+(?:\.\d+)?\s?s(?:ec(?:ond)?s?)?)?\b|"
    r"\d+(?:\.\d+)?(?:\s?s(?:ec(?:ond)?s?)?\b)?"
)
_TIMES = re.compile(_TIME, re.IGNORECASE)
_RANGE = re.compile(
    rf"(?<![\w.:])(?P<a>{_TIME})\s*[>\"'\]]?\s*(?:-|–|—|~|→|,|\bto\b|\buntil\b|\btill\b|\band\b|\bthrough\b)\s*[<\"'\[]?\s*"
    rf"(?P<b>{_TIME})(?![\w:])",
    re.IGNORECASE,
)


def parse_interval(text: str) -> tuple[float, float] | None:
    """Start and end in seconds of the one interval that a text names, in any common form; `None` otherwise."""
    text = text.strip()[:2000]
    if re.match(r"[\[(<]?\s*-\s*\d", text):  # before the start of the video
        return None
    ranges = {(m["a"], m["b"]) for m in _RANGE.finditer(text)}
    pair = list(ranges.pop()) if len(ranges) == 1 else _TIMES.findall(text) if not ranges else []
    if len(pair) != 2:
        return None
    try:
        start, end = (parse_seconds(re.sub(r"\s+", " ", value)) for value in pair)
    except ValueError:
        return None
    return (start, end) if start <= end else None


def temporal_iou(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Intersection over union of two intervals, in [0, 1]; 0 if either is empty, reversed or not finite."""
    if not all(math.isfinite(x) for x in (*a, *b)) or a[0] >= a[1] or b[0] >= b[1]:
        return 0.0
    shared = min(a[1], b[1]) - max(a[0], b[0])
    return min(1.0, shared / (max(a[1], b[1]) - min(a[0], b[0]))) if shared > 0 else 0.0


# ------------------------------------------------------------------------------------------------------------- score


def score_answer(
    answer: str | None, truth, question_type: str, options: Sequence[str] | None = None, mode: str = "f1"
) -> float | None:
    """Score in [0, 1] of an answer; 0 for none, `None` where a judge must say."""
    if question_type not in QUESTION_TYPES:
        raise ValueError(f"question_type must be one of {QUESTION_TYPES}, got {question_type!r}")
    if mode not in ("f1", "exact", "judge"):
        raise ValueError(f"mode must be 'f1', 'exact' or 'judge', got {mode!r}")
    if answer is None:
        return 0.0
    if question_type == "mcq":
        gold = str(truth).strip()
        labels = list(options) if isinstance(options, Mapping) else _ALPHABET[: len(options) if options else 4]
        if not options and len(gold) == 1 and gold.upper() in _ALPHABET[4:]:  # as many letters as the truth tells of
            labels = _ALPHABET[: _ALPHABET.index(gold.upper()) + 1]
        gold = gold.upper() if len(gold) == 1 else extract_choice(gold, labels, options)
        return float(gold is not None and extract_choice(answer, labels, options) == gold)
    if question_type == "tvg":
        gold = parse_interval(truth) if isinstance(truth, str) else tuple(truth)
        said = parse_interval(answer)
        return temporal_iou(said, gold) if said and gold else 0.0
    if mode == "judge":
        return None
    return token_f1(answer, str(truth)) if mode == "f1" else float(_tokens(answer) == _tokens(str(truth)))


def final_answer(text: str, fallback: bool) -> str | None:
    text = text.rpartition("</tool_response>")[2]  # one text of several turns, as other loops give it
    answer = extract_answer(text)
    if answer is None and fallback and "answer>" not in text and ("<think>" not in text or "</think>" in text):
        answer = text.rpartition("</think>")[2].strip() or None
    return answer
