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
        elif tag in ("<tool_call>", "<tool_code>", "```tool_code"):
            position = outside = _read_block(text, tag, marker.start(), position, complete, entries)
    return entries


def _error(fault: str, span: tuple[int, int]) -> ToolCallError:
    return ToolCallError(f"{fault} {LEGAL_FORM}", span)


def _read_block(text, tag, start, body, complete, entries) -> int:
    """Appends what stands in the block that `tag` opens at `start`; returns where to go on."""
    closer = {"<tool_call>": "</tool_call>", "<tool_code>": "</tool_code>"}.get(tag, "```")
    # JSON decides where a call ends, so that a tag within a string is text.
    objects, end = _decode(text, body) if tag == "<tool_call>" else ([], body)
    boundary = re.compile(_MARKER.pattern + "|```").search(text, end) if closer == "```" else _MARKER.search(text, end)
    stop = boundary.start() if boundary else len(text)
    closed = bool(boundary) and boundary[0] == closer
    end = boundary.end() if closed else (end if objects else stop)
    if not (closed or complete or boundary):
        entries.append(_error("The call is not finished: the turn reached its token limit.", (start, len(text))))
        return len(text)
    for value, value_end in objects:
        entries.append(_read_object(value, (start, end if value is objects[-1][0] else value_end)))
        start = value_end
    if objects:
        return end
    if stop - body > MAX_LENGTH:
        entries.append(_error(f"The call is longer than {MAX_LENGTH} characters.", (start, end)))
    elif tag == "<tool_call>":
        entries.append(_repair(text[body:stop], closed, (start, end)))
    else:
        entries.extend(_read_python(text[body:stop], body) or [_error("The block holds no call.", (start, end))])
    return end


class _DuplicateKey(ValueError): ...


def _unique(pairs: list) -> dict:
    if len(dict(pairs)) < len(pairs):
        raise _DuplicateKey
    return dict(pairs)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
_NEXT_OBJECT = re.compile(r"[\s,;]*\{")


def _decode(text: str, body: int) -> tuple[list, int]:
    """The strict JSON objects of a block, after prose or a fence, with their ends; ([], body) if there are none."""
    boundary = _MARKER.search(text, body)
    limit = boundary.start() if boundary else len(text)
    found = re.compile(r"[{]|\[(?=\s*\{)").search(text, body, limit)
    objects, end = [], body
    while found:
        try:
            begin = found.end() - 1
            value, length = _DECODER.raw_decode(text[begin : begin + MAX_LENGTH])
        except (ValueError, RecursionError):
            return [], body
        end = begin + length
        objects += [(item, end) for item in (value if isinstance(value, list) else [value])]
        found = _NEXT_OBJECT.match(text, end)
    return objects, end


_STRAIGHT = str.maketrans("“”‘’", "\"\"''")
_TIME_SOURCE = re.compile(r"""\b(start_time|end_time|start|end)\b["']?\s*[:=]\s*["']?([^,}\]"'\n]*)""")


def _repair(content: str, closed: bool, span) -> ToolCall | ToolCallError:
    begin = content.find("{")
    source = content[begin:].translate(_STRAIGHT).strip().strip("`").strip() if begin >= 0 else ""
    depths, depth = [0], 0
    for character in source[:MAX_REPAIR]:
        depth += (character in "{[") - (character in "}]")
        depths.append(depth)
    if not source or len(source) > MAX_REPAIR or max(depths) > MAX_DEPTH:
        return _error("The call holds no JSON object of a call's size.", span)
    if depth > 0 and not closed:
        return _error("The call is not finished: it lacks its closing brace and </tool_call>.", span)
    try:
        json.loads(source, object_pairs_hook=_unique)
    except _DuplicateKey:
        return _error("An argument stands twice in the call.", span)
    except (ValueError, RecursionError):
        pass
    try:
        call = _read_object(json_repair.loads(source, skip_json_loads=True), span)
    except Exception:  # a third-party parser fed by a sampled policy: whatever it raises, the call is bad
        return _error("The call is not valid JSON.", span)
    if isinstance(call, ToolCall):
        # Repair may cut a value short (1:23 becomes 1): the times must be what stands in the source, once each.
        for key in ("start_time", "end_time"):
            raw = [value for name, value in _TIME_SOURCE.findall(source) if ALIASES.get(name, name) == key]
            try:
                if [parse_seconds(value) for value in raw] != [call.arguments[key]]:
                    raise ValueError(f"{raw} has no single reading")
            except ValueError as error:
                return _error(f"{key}: {error}.", span)
    return call


def _read_object(value: object, span) -> ToolCall | ToolCallError:
    if not isinstance(value, dict):
        return _error(f"The call is {type(value).__name__}, not a JSON object.", span)
    if isinstance(value.get("function"), dict):
        value = value["function"]
    name = value.get("name")
    if name != NAME:
        fault = "The call names no tool" if name is None else f"There is no tool {str(name)[:40]!r}"
        return _error(f"{fault}; the only tool is {NAME!r}.", span)
    flat = {key: item for key, item in value.items() if key not in ("name", "type", "id")}
    containers = [key for key in flat if key in ("arguments", "parameters")]
    if len(containers) > 1:
        return _error("The call has both 'arguments' and 'parameters'.", span)
    arguments = flat[containers[0]] if containers else flat
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, object_pairs_hook=_unique)
        except (ValueError, RecursionError):
            pass
    if not isinstance(arguments, dict):
        return _error("The arguments are not a JSON object.", span)
    return build_call(list(arguments.items()), span)


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


_PYTHON_CALL = re.compile(r"(?:\bdefault_api\.)?\b([A-Za-z_][\w.]*)[ \t]*\(")


def _read_python(content: str, offset: int) -> list[ToolCall | ToolCallError]:
    """Calls in Python form: the text from each name to its own closing bracket, its arguments read as literals."""
    entries, position = [], 0
    while match := _PYTHON_CALL.search(content, position):
        position = match.end()
        if match[1] == "print":
            continue
        depth, quote = 1, ""
        while position < len(content) and depth:
            character = content[position]
            position += 1
            if quote or character in "\"'":
                quote = "" if character == quote else quote or character
            else:
                depth += (character == "(") - (character == ")")
        span = (offset + match.start(), offset + position)
        if match[1].removeprefix("default_api.") != NAME:
            entries.append(_error(f"There is no tool {match[1][:40]!r}; the only tool is {NAME!r}.", span))
            continue
        try:
            node = ast.parse("f(" + content[match.end() : position], mode="eval").body
            positional = [ast.literal_eval(argument) for argument in node.args]
            named = [(keyword.arg, ast.literal_eval(keyword.value)) for keyword in node.keywords]
            entries.append(build_call([*zip(ARGUMENTS, positional, strict=False), *named], span))
            if len(positional) > len(ARGUMENTS):
                entries[-1] = _error(f"{NAME} takes {len(ARGUMENTS)} arguments, not {len(positional)}.", span)
        except (ValueError, SyntaxError, TypeError, AttributeError, MemoryError, RecursionError):
            entries.append(_error(f"The arguments of {NAME} must be plain numbers and strings.", span))
    return entries


def render_tool_call(call: ToolCall) -> str:
    """The plain form of a call, as the chat template writes it; `parse_tool_calls` gives the call back."""
    body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"
