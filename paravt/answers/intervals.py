"""Intervals of time that texts and rows name, in seconds, and how far two of them overlap."""

import json
import math
import unicodedata
from collections.abc import Mapping
from decimal import Decimal

import regex

from ..parser import parse_seconds


MAX_LENGTH = 2000  # characters: of a longer text, the beginning is read
SAME = 0.5  # seconds: as far as two forms of one interval may be apart, since one of them is rounded

_UNITS = {
    "h": (
        r"h(?:(?:ou)?rs?|ours?|eures?|oras?)?|horas?|or[ae]|stunden?|час\w*|小时|小時|時間|시간|ساعة|ساعات"
        r"|घंट[ेा]|giờ|saat"
    ),
    "m": r"m(?:in(?:ut(?:es?|os?|i|en|e)?s?)?)?\.?|分钟|分鐘|分|분|мин(?:ут\w*)?\.?|دقيقة|دقائق|मिनट|phút|dakika",
    "s": (
        r"s(?:ec(?:ond(?:es?|[iois])?s?)?|eg(?:undos?)?|ek(?:unden?)?)?\.?"
        r"|秒钟|秒鐘|秒|초|сек(?:унд\w*)?\.?|ثانية|ثوان[ي]?|सेकंड|giây|saniye"
    ),
}
_NUMBER = r"\d+(?:\.\d+)?"
_CLOCK = r"(?:\d{1,4}:)?\d{1,6}:\d{1,2}(?:\.\d+)?"
# As `_plain` writes them: the units are h, m and s.
_TIME = (
    rf"(?:{_CLOCK}(?: ?s\b)?|{_NUMBER} ?h(?: ?{_NUMBER} ?m)?(?: ?{_NUMBER} ?s)?\b"
    rf"|{_NUMBER} ?m(?: ?{_NUMBER} ?s)?\b|{_NUMBER}(?: ?s\b)?)"
)
_TO = (
    r"(?:-{1,2}>|[-–—~→⟶,;&]|\.{2,3}|到|至|から|부터|에서"
    r"|(?<!\p{L})(?:to|until|till|through|and|à|a|au|jusqu'à|et|bis|und|hasta|al|y|e|até|fino a|до|и|по"
    r"|إلى|حتى|से|तक|đến|tới|sampai|hingga|tot|do)(?!\p{L}))"
)
_AROUND = r"\s*[<>\"'\])}(\[{]{0,2}\s*"
_BEFORE, _BEHIND = r"(?<![\p{Latin}\d.:])", r"(?![\w:])"
_RANGE = regex.compile(rf"{_BEFORE}(?P<a>{_TIME}){_AROUND}{_TO}{_AROUND}(?P<b>{_TIME}){_BEHIND}", regex.IGNORECASE)
_START = r"(?:start|begin|from|onset|开始|開始|시작|начал|début|inicio|anfang|beginn)"
_END = r"(?:end|stop|finish|until|结束|結束|終わ|끝|종료|конец|конч|fin|ende)"
_START_AND_END = regex.compile(
    rf"{_START}\D{{0,30}}(?P<a>{_TIME})\D{{0,40}}?{_END}\D{{0,30}}(?P<b>{_TIME}){_BEHIND}", regex.IGNORECASE
)
_TIMES = regex.compile(rf"{_BEFORE}{_TIME}", regex.IGNORECASE)
# Whether a comma parts two numbers, [2,5], or is a decimal point, 12,5 to 20,3.
_PAIR = regex.compile(rf"[\[(]\s*{_NUMBER}\s*,\s*{_NUMBER}\s*[\])]")
_DECIMAL = r"\d+,\d{1,2}(?!\d)"
_WITH_COMMAS = regex.compile(
    rf"{_DECIMAL}\D{{0,12}}?(?![,;&]){_TO}|(?![,;&]){_TO}{_AROUND}{_DECIMAL}", regex.IGNORECASE
)
_MILLISECONDS = (
    r"(?:m(?:illi)?s(?:ec(?:ond(?:es?|[iois])?s?)?)?|milisegundos?|millisekunden?|毫秒|ミリ秒|밀리초"
    r"|мс|миллисекунд\w*)(?!\p{Latin}|\p{Cyrillic})"
)
_IN_MILLISECONDS = regex.compile(  # also the first number of 1500 to 3000 ms
    rf"(?<![\d.,])(?P<number>{_NUMBER})(?: ?{_MILLISECONDS}|(?={_AROUND}{_TO}{_AROUND}{_NUMBER} ?{_MILLISECONDS}))"
)
_PRIMES = regex.compile(r"(?<![\d.:])(\d{1,4})['′](\d{1,2}(?:\.\d+)?)(?:[\"”]|''|′′)?(?![\d'])")  # 1'05"
# Elsewhere 1,200 may be a little more than 1.
_ENGLISH = regex.compile(r"\b(?:to|until|till|through|and|between|from|starts?|seconds?|secs?)\b")
_THOUSANDS = regex.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")


def parse_interval(text: str) -> tuple[float, float] | None:
    """
    Start and end in seconds of the one interval that a text names, in any common form; `None` otherwise.

    An interval that is said again in another form, such as `12.5 to 20 seconds, i.e. [0:12, 0:20]`, is still one.
    """
    text = _plain(text[:MAX_LENGTH])
    if regex.match(r"[\[(<]?\s*-\s*\d", text):  # before the start of the video
        return None
    pairs = [(match["a"], match["b"]) for match in _RANGE.finditer(text)]
    if not pairs:
        pairs = [(match["a"], match["b"]) for match in _START_AND_END.finditer(text)]
    if not pairs:
        times = _TIMES.findall(text)
        pairs = [tuple(times)] if len(times) == 2 else []
    try:
        found = [_interval(*pair) for pair in pairs]
    except ValueError:
        return None
    same = all(abs(x - y) <= SAME for interval in found for x, y in zip(interval, found[0], strict=True))
    return found[0] if found and same else None


def _interval(start: object, end: object) -> tuple[float, float]:
    """Two times in seconds, in order. Raises `ValueError`."""
    interval = parse_seconds(start), parse_seconds(end)
    if interval[0] > interval[1]:
        raise ValueError(f"{start!r} is after {end!r}")
    return interval


def _plain(text: str) -> str:
    """A text with the digits, decimal points and units that [`parse_seconds`] reads."""
    text = unicodedata.normalize("NFKC", text).strip().lower().replace("’", "'")
    text = regex.sub(r"\d", lambda digit: str(unicodedata.digit(digit[0])), text)
    text = _PRIMES.sub(r"\1m\2s ", text.replace("٫", ".").replace("٬", ""))
    text = _IN_MILLISECONDS.sub(lambda time: f"{Decimal(time['number']) / 1000:f}s ", text)
    text = regex.sub(r"(?<=\d:\d\d),(?=\d{3}(?!\d))", ".", text)  # 00:00:12,500 in subtitles
    if not _PAIR.search(text) and _WITH_COMMAS.search(text):
        text = regex.sub(r"(?<![\d.,])(\d+),(\d{1,2})(?![\d,])", r"\1.\2", text)
    english = _ENGLISH.search(text)
    for unit, words in _UNITS.items():
        text = regex.sub(rf"(?<=\d) ?(?:{words})(?!\p{{Latin}}|\p{{Cyrillic}}) ?", unit + " ", text)
    if english and not _PAIR.search(text) and regex.search(r"\d[hms] ", text):
        text = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), text)
    # 1 minute and 5 seconds
    text = regex.sub(r"(?<=\d[hm]) (?:(?:and|und|et|y|e|и) |, ?)(?=\d+(?:\.\d+)?[ms] )", " ", text)
    return regex.sub(r"(?<=\d[hm]) (?=\d+(?:\.\d+)?[ms] )", "", text)


def read_windows(truth: object) -> list[tuple[float, float]]:
    """
    The intervals that a truth gives, in seconds: `"2 - 5"`, `[2, 5]`, `["00:02", "00:05"]`, `{"start": 2, "end": 5}`,
    a list of several of these, or any of them as JSON text.

    Raises:
        `ValueError`: for anything else, and for a window that does not end after it starts.
    """
    if isinstance(truth, str):
        return _read_text(truth)
    if isinstance(truth, Mapping):
        return [_window(*(_field(truth, names) for names in (_STARTS, _ENDINGS)))]
    if not isinstance(truth, (list, tuple)) or not truth:
        raise ValueError(f"{truth!r} is no interval")
    if len(truth) == 2 and not any(isinstance(end, (list, tuple, Mapping)) for end in truth):
        try:
            return [_window(*truth)]
        except ValueError:
            if not all(isinstance(end, str) for end in truth):
                raise
    if any(isinstance(window, (int, float)) or window is None for window in truth):
        raise ValueError(f"{truth!r} is no interval")
    return [window for windows in truth for window in read_windows(windows)]


_STARTS = ("start", "start_time", "begin", "from", "start_sec", "start_s")
_ENDINGS = ("end", "end_time", "stop", "to", "end_sec", "end_s")


def _field(truth: Mapping, names: tuple[str, ...]) -> object:
    found = [truth[name] for name in names if truth.get(name) is not None]
    if len(found) != 1:
        raise ValueError(f"{truth!r} is no interval")
    return found[0]


def _window(start: object, end: object) -> tuple[float, float]:
    interval = _interval(start, end)
    if interval[0] >= interval[1]:
        raise ValueError(f"{interval} is empty")
    return interval


def _read_text(text: str) -> list[tuple[float, float]]:
    if text.lstrip().startswith(("[", "{")):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            if not (isinstance(value, list) and len(value) == 1 and isinstance(value[0], str) and value[0] == text):
                return read_windows(value)
    interval = parse_interval(text)
    if interval is None or interval[0] >= interval[1]:
        raise ValueError(f"{text!r} is no interval")
    return [interval]


def write_windows(windows: list[tuple[float, float]]) -> str:
    """Windows as text that [`read_windows`] reads: `2.0 - 5.0`, or JSON where there are several."""
    if len(windows) > 1:
        return json.dumps(windows)
    return " - ".join(format(Decimal(str(end)), "f") for end in windows[0])  # 1e-07 would be no number


def temporal_iou(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Intersection over union of two intervals, in [0, 1]; 0 if either is empty, reversed or not finite."""
    if not all(math.isfinite(x) for x in (*a, *b)) or a[0] >= a[1] or b[0] >= b[1]:
        return 0.0
    shared = min(a[1], b[1]) - max(a[0], b[0])
    return min(1.0, shared / (max(a[1], b[1]) - min(a[0], b[0]))) if shared > 0 else 0.0
