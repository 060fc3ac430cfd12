"""Tool calls read from sampled text. Nothing is evaluated and nothing raises: a fault fills the slot of its call.

| accepted | read as |
|---|---|
| `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, also fenced, after prose, or several in a block | calls |
| `<tool_code>crop_video(...)</tool_code>`, also fenced as `tool_code`, with literals only | calls |
| `{"function": {...}}`, `"parameters"`, arguments as JSON text or flat beside `"name"` | the plain form |
| `start`, `end`; no `video_path` where the row has one video | `start_time`, `end_time`; that video |
| quotes, commas, keys, control characters, final braces gone wrong, where one reading exists | the plain form |
| times in any form that [`parse_seconds`] reads | seconds |
"""

import ast
import json
import re
from dataclasses import dataclass, field

import json_repair

from .prompts import TOOL


NAME = TOOL["function"]["name"]
ARGUMENTS = ("video_path", "start_time", "end_time")
ALIASES = {"start": "start_time", "end": "end_time"}
LEGAL_FORM = (
    f'Write {{"name": "{NAME}", "arguments": {{"video_path": "name", "start_time": 10.0, "end_time": 20.0}}}}, '
    "times in seconds."
)
MAX_SECONDS = 1e6  # 11 days: no video is longer
MAX_LENGTH = 4000  # characters of a call: bounds the work on a block whose end is missing
MAX_REPAIR, MAX_DEPTH = 1000, 4  # characters and open brackets: repair is superlinear in both


@dataclass(frozen=True)
class ToolCall:
    """A call that can be tried: `arguments` holds `start_time`, `end_time` in seconds, and `video_path` if given."""

    name: str
    arguments: dict
    span: tuple[int, int] = field(default=(0, 0), compare=False)


@dataclass(frozen=True)
class ToolCallError:
    """An attempted call that cannot be tried; `message` tells the model what is wrong and what is legal."""

    message: str
    span: tuple[int, int] = field(default=(0, 0), compare=False)


_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")
_CLOCK = re.compile(r"(?:([0-9]{1,4}):)?([0-9]{1,6}):([0-9]{1,2}(?:\.[0-9]*)?)")
_UNITS = re.compile(
    r"(?:([0-9]+(?:\.[0-9]*)?) ?h(?:ours?|rs?)?)? ?(?:([0-9]+(?:\.[0-9]*)?) ?m(?:in(?:ute)?s?)?)? ?"
    r"(?:([0-9]+(?:\.[0-9]*)?) ?s(?:ec(?:ond)?s?)?)?"
)


def parse_seconds(value: object) -> float:
    """
    Seconds from a number or a text: `12.5`, `"12.5s"`, `"83 seconds"`, `"01:23"` (minutes and seconds), `"1:02:03.5"`,
    `"1m30s"`, `"<12.5 seconds>"`. Negative numbers pass; windows clamp them.

    Raises:
        `ValueError`: naming the value, if it is none of these, not finite, or beyond 1e6 seconds.
    """
    seconds = None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = value
    elif isinstance(value, str) and len(value) < 50:
        text = value.strip().strip("<>").strip().lower()
        if _NUMBER.fullmatch(text):
            seconds = float(text)
        elif (clock := _CLOCK.fullmatch(text)) and float(clock[3]) < 60 and (not clock[1] or int(clock[2]) < 60):
            seconds = int(clock[1] or 0) * 3600 + int(clock[2]) * 60 + float(clock[3])
        elif text and (units := _UNITS.fullmatch(text)):
            seconds = sum(float(part or 0) * size for part, size in zip(units.groups(), (3600, 60, 1), strict=True))
    if seconds is None or not abs(seconds) <= MAX_SECONDS:  # the comparison also refuses NaN
        raise ValueError(f"{str(value)[:40]!r} is not a time; write seconds, such as 12.5")
    return float(seconds)


_MARKER = re.compile(r"</?(?:think|answer|tool_call|tool_code)>|<tool_response>|```tool_code\b")
_MARKER_OR_FENCE = re.compile(_MARKER.pattern + "|```")
_CLOSERS = {"<tool_call>": "</tool_call>", "<tool_code>": "</tool_code>", "```tool_code": "```"}


def parse_tool_calls(text: str, *, complete: bool = True) -> list[ToolCall | ToolCallError]:
    """
    The calls attempted in one assistant turn, in slot order.

    What is inside a closed `<think>` block, in or after an answer, or after a tool response that the model wrote
    itself, is no call. With `complete=False` the text was cut by the token limit: a last call that is not closed is an
    error. Never raises.
    """
    entries: list[ToolCall | ToolCallError] = []
    position, outside, thought = 0, 0, False
    last = {tag: text.rfind(tag) for tag in ("</think>", "</answer>")}
    while marker := _MARKER.search(text, position):
        tag, position = marker[0], marker.end()
        if tag == "<think>":
            thought = True
            if position <= last["</think>"]:
                position = outside = text.index("</think>", position) + len("</think>")
        elif tag == "</think>":
            if not thought:  # its opening tag stands in the prompt: all so far was thinking
                entries.clear()
            thought, outside = True, position
        elif tag in ("<tool_response>", "</answer>") or (tag == "<answer>" and position <= last["</answer>"]):
            break
        elif tag == "</tool_call>":
            if "{" in text[max(outside, position - MAX_LENGTH) : position]:
                entries.append(_error("</tool_call> has no opening tag.", (outside, position)))
            outside = position
        elif tag in _CLOSERS:
            block = _find_block(text, tag, marker.start(), position)
            if block.unfinished and not complete:
                fault = "The call is not finished: the turn reached its token limit."
                entries.append(_error(fault, (block.start, len(text))))
                break
            entries += _read_block(text, block)
            position = outside = block.end
    return entries


def _error(fault: str, span: tuple[int, int]) -> ToolCallError:
    return ToolCallError(f"{fault} {LEGAL_FORM}", span)


# -------------------------------------------------------------------------------------------------------------- blocks


@dataclass(frozen=True)
class _Block:
    """
    A block of calls in a text: what it holds from `body` to `stop`, with its tags from `start` to `end`.

    `closed` is whether its closing tag is there, `unfinished` whether nothing at all follows that ends it, `objects`
    the strict JSON objects in it, each with the place where it ends.
    """

    tag: str
    start: int
    body: int
    stop: int
    end: int
    closed: bool
    unfinished: bool
    objects: list[tuple[object, int]]


def _find_block(text: str, tag: str, start: int, body: int) -> _Block:
    """The block that `tag` opens at `start`. It ends at its closing tag, at any other tag, or with the text."""
    # JSON decides where a call ends, so that a tag within a string is text.
    objects = _decode_objects(text, body) if tag == "<tool_call>" else []
    content_end = objects[-1][1] if objects else body
    boundaries = _MARKER_OR_FENCE if _CLOSERS[tag] == "```" else _MARKER
    boundary = boundaries.search(text, content_end)
    stop = boundary.start() if boundary else len(text)
    closed = boundary is not None and boundary[0] == _CLOSERS[tag]
    if closed:
        end = boundary.end()
    else:
        end = content_end if objects else stop
    return _Block(tag, start, body, stop, end, closed, unfinished=boundary is None, objects=objects)


def _read_block(text: str, block: _Block) -> list[ToolCall | ToolCallError]:
    """The calls of a block, at least one entry."""
    span = (block.start, block.end)
    content = text[block.body : block.stop]
    if block.objects:
        return _read_objects(block)
    if len(content) > MAX_LENGTH:
        return [_error(f"The call is longer than {MAX_LENGTH} characters.", span)]
    if block.tag == "<tool_call>":
        return [_repair(content, block.closed, span)]
    return _read_python(content, block.body) or [_error("The block holds no call.", span)]


def _read_objects(block: _Block) -> list[ToolCall | ToolCallError]:
    """The calls of a block of strict JSON: each spans the text from the one before it, the last one up to the end."""
    starts = [block.start, *(end for _, end in block.objects[:-1])]
    ends = [*(end for _, end in block.objects[:-1]), block.end]
    spans = zip(starts, ends, strict=True)
    return [_read_object(value, span) for (value, _), span in zip(block.objects, spans, strict=True)]


# ---------------------------------------------------------------------------------------------------------------- JSON


class _DuplicateKey(ValueError): ...


def _unique(pairs: list) -> dict:
    if len(dict(pairs)) < len(pairs):
        raise _DuplicateKey
    return dict(pairs)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
_FIRST_OBJECT = re.compile(r"[{]|\[(?=\s*\{)")
_NEXT_OBJECT = re.compile(r"[\s,;]*\{")


def _decode_objects(text: str, body: int) -> list[tuple[object, int]]:
    """The strict JSON objects of a block, after prose or a fence, with their ends; none if one is not strict."""
    boundary = _MARKER.search(text, body)
    found = _FIRST_OBJECT.search(text, body, boundary.start() if boundary else len(text))
    objects: list[tuple[object, int]] = []
    while found:
        begin = found.end() - 1
        try:
            value, length = _DECODER.raw_decode(text[begin : begin + MAX_LENGTH])
        except (ValueError, RecursionError):
            return []
        end = begin + length
        objects += [(item, end) for item in (value if isinstance(value, list) else [value])]
        found = _NEXT_OBJECT.match(text, end)
    return objects


_STRAIGHT = str.maketrans("“”‘’", "\"\"''")


def _repair(content: str, closed: bool, span: tuple[int, int]) -> ToolCall | ToolCallError:
    """The call of text that is almost a JSON object, if there is one way to read it."""
    begin = content.find("{")
    source = content[begin:].translate(_STRAIGHT).strip().strip("`").strip() if begin >= 0 else ""
    depth, deepest = _nesting(source[:MAX_REPAIR])
    if not source or len(source) > MAX_REPAIR or deepest > MAX_DEPTH:
        return _error("The call holds no JSON object of a call's size.", span)
    if depth > 0 and not closed:
        return _error("The call is not finished: it lacks its closing brace and </tool_call>.", span)
    if _has_duplicate_key(source):
        return _error("An argument stands twice in the call.", span)
    try:
        call = _read_object(json_repair.loads(source, skip_json_loads=True), span)
    except Exception:  # a third-party parser fed by a sampled policy: whatever it raises, the call is bad
        return _error("The call is not valid JSON.", span)
    fault = _time_fault(call, source) if isinstance(call, ToolCall) else None
    return _error(fault, span) if fault else call


def _nesting(source: str) -> tuple[int, int]:
    """How many brackets are open at the end of a text, and at most."""
    depth = deepest = 0
    for character in source:
        depth += (character in "{[") - (character in "}]")
        deepest = max(deepest, depth)
    return depth, deepest


def _has_duplicate_key(source: str) -> bool:
    """Whether a text is JSON but for a key that stands twice in an object."""
    try:
        json.loads(source, object_pairs_hook=_unique)
    except _DuplicateKey:
        return True
    except (ValueError, RecursionError):
        pass
    return False


_TIME_SOURCE = re.compile(r"""\b(start_time|end_time|start|end)\b["']?\s*[:=]\s*["']?([^,}\]"'\n]*)""")


def _time_fault(call: ToolCall, source: str) -> str | None:
    """What is wrong if the times of a repaired call are not those of its source: repair may make 1 of 1:23."""
    written = _TIME_SOURCE.findall(source)
    for key in ("start_time", "end_time"):
        values = [value for name, value in written if ALIASES.get(name, name) == key]
        try:
            if [parse_seconds(value) for value in values] != [call.arguments[key]]:
                return f"{key}: {values} has no single reading."
        except ValueError as error:
            return f"{key}: {error}."
    return None


# --------------------------------------------------------------------------------------------------------------- calls


def _read_object(value: object, span: tuple[int, int]) -> ToolCall | ToolCallError:
    """The call of a decoded JSON value in any of the accepted forms."""
    if not isinstance(value, dict):
        return _error(f"The call is {type(value).__name__}, not a JSON object.", span)
    if isinstance(value.get("function"), dict):
        value = value["function"]
    name = value.get("name")
    if name != NAME:
        fault = "The call names no tool" if name is None else f"There is no tool {str(name)[:40]!r}"
        return _error(f"{fault}; the only tool is {NAME!r}.", span)
    if "arguments" in value and "parameters" in value:
        return _error("The call has both 'arguments' and 'parameters'.", span)
    arguments = _arguments_of(value)
    if not isinstance(arguments, dict):
        return _error("The arguments are not a JSON object.", span)
    return build_call(list(arguments.items()), span)


def _arguments_of(call: dict) -> object:
    """The arguments of a call: in an object of their own, in JSON text, or flat beside the name."""
    for container in ("arguments", "parameters"):
        if container in call:
            arguments = call[container]
            break
    else:
        return {key: item for key, item in call.items() if key not in ("name", "type", "id")}
    if isinstance(arguments, str):
        try:
            return json.loads(arguments, object_pairs_hook=_unique)
        except (ValueError, RecursionError):
            pass
    return arguments


def build_call(pairs: list[tuple[str, object]], span: tuple[int, int] = (0, 0)) -> ToolCall | ToolCallError:
    """A call from named arguments: aliases resolved, times read, everything else refused by name."""
    known: dict[str, object] = {}
    for key, value in pairs:
        target = ALIASES.get(key, key)
        if target not in ARGUMENTS:
            return _error(f"{NAME} has no argument {str(key)[:40]!r}.", span)
        if target in known:
            return _error(f"{target} is given twice.", span)
        known[target] = value
    if "video_path" in known and not (isinstance(known["video_path"], str) and known["video_path"]):
        return _error("video_path must be the name of a video.", span)
    for key in ("start_time", "end_time"):
        try:
            known[key] = parse_seconds(known[key])
        except KeyError:
            return _error(f"{NAME} needs {key}.", span)
        except ValueError as error:
            return _error(f"{key}: {error}.", span)
    return ToolCall(NAME, {key: known[key] for key in ARGUMENTS if key in known}, span)


# -------------------------------------------------------------------------------------------------------------- Python

_PYTHON_CALL = re.compile(r"(?:\bdefault_api\.)?\b([A-Za-z_][\w.]*)[ \t]*\(")


def _read_python(content: str, offset: int) -> list[ToolCall | ToolCallError]:
    """Calls in Python form: the text from each name to its own closing bracket, its arguments read as literals."""
    entries: list[ToolCall | ToolCallError] = []
    position = 0
    while match := _PYTHON_CALL.search(content, position):
        name, position = match[1], match.end()
        if name == "print":
            continue
        arguments, position = position, _closing_bracket(content, position)
        span = (offset + match.start(), offset + position)
        if name.removeprefix("default_api.") == NAME:
            entries.append(_read_arguments(content[arguments:position], span))
        else:
            entries.append(_error(f"There is no tool {name[:40]!r}; the only tool is {NAME!r}.", span))
    return entries


def _closing_bracket(content: str, position: int) -> int:
    """The place after the bracket that closes the one before `position`, or the end; brackets in strings are text."""
    depth, quote = 1, ""
    while position < len(content) and depth:
        character = content[position]
        position += 1
        if quote or character in "\"'":
            quote = "" if character == quote else quote or character
        else:
            depth += (character == "(") - (character == ")")
    return position


def _read_arguments(source: str, span: tuple[int, int]) -> ToolCall | ToolCallError:
    """The call with the arguments that stand in Python's way, up to the closing bracket, in `source`."""
    try:
        node = ast.parse("f(" + source, mode="eval").body
        positional = [ast.literal_eval(argument) for argument in node.args]
        named = [(keyword.arg, ast.literal_eval(keyword.value)) for keyword in node.keywords]
        call = build_call([*zip(ARGUMENTS, positional, strict=False), *named], span)
    except (ValueError, SyntaxError, TypeError, AttributeError, MemoryError, RecursionError):
        return _error(f"The arguments of {NAME} must be plain numbers and strings.", span)
    if len(positional) > len(ARGUMENTS):
        return _error(f"{NAME} takes {len(ARGUMENTS)} arguments, not {len(positional)}.", span)
    return call


def render_tool_call(call: ToolCall) -> str:
    """The plain form of a call, as the chat template writes it; `parse_tool_calls` gives the call back."""
    body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"
