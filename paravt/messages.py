"""What the messages and videos of a row say, in whichever shape somebody wrote them: texts, and paths."""

import ast
import json
import os
from collections.abc import Mapping, Sequence

import numpy as np


ROLES = ("system", "user", "assistant", "tool")
WRITER = {"prompt": "user", "completion": "assistant"}  # of a column that is one text
_TEXTS = ("text", "content", "value")  # keys of the text of a part
_PATHS = ("video", "path", "video_path", "url", "video_url")
_VIDEOS = ("video", "video_url", "video_path")  # types of parts, and keys that make a part one of a video
_OTHER_MEDIA = ("image", "image_url", "input_image", "audio", "audio_url", "input_audio")
_KINDS = ("text", "input_text", "output_text", *_VIDEOS, *_OTHER_MEDIA)
_BESIDE = ("text", "value", "reasoning_content", "reasoning", "thinking", "refusal", "function_call", "images")


class RowError(ValueError):
    """What is wrong with a row."""


def read_prompt(row: Mapping, column: str = "prompt") -> tuple[list[dict], list[str]]:
    """
    The messages of a row, each with text content, and the paths of its videos: those in a column, or else those that
    stand in the messages. Nothing that is text is left out.

    Raises:
        [`RowError`]: for what has no reading, and where nothing is asked.
    """
    messages, inline = read_messages(row.get(column), column)
    asked = [message["content"] for message in messages if message["role"] == "user"]
    if not asked:
        raise RowError("no user message")
    if not "".join(asked).replace("<video>", "").strip():
        raise RowError("no question")
    return messages, read_videos(row.get("videos")) or read_videos(row.get("video")) or inline


def read_messages(value: object, column: str) -> tuple[list[dict], list[str]]:
    """Messages with text content, and the videos that stand in them. Raises [`RowError`]."""
    value = structured(value, column)
    if isinstance(value, str) and value.strip() and column in WRITER:
        value = {"role": WRITER[column], "content": value}
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, (list, tuple)) or not value:
        raise RowError(f"no {column}")
    inline: list[str] = []
    return [_read_message(message, inline) for message in value], inline


def read_videos(value: object) -> list[str]:
    """
    The paths of videos: one path, an object that has one, or a list of these, perhaps as JSON text. Raises
    [`RowError`].
    """
    try:
        value = structured(value, "videos")
    except RowError:
        pass  # a name may begin with a bracket
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if is_blank(value):
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, (list, tuple)):
        return [path for video in value for path in read_videos(video)]
    if not isinstance(value, Mapping):
        raise RowError(f"videos: {kind_of(value)} is no path")
    name = next((name for name in _PATHS if not is_blank(value.get(name))), None)
    if name is None:
        raise RowError("videos: an object without a path")
    return read_videos(value[name])


# -------------------------------------------------------------------------------------------------------------- values


def kind_of(value: object) -> str:
    return "null" if value is None else type(value).__name__


def structured(value: object, name: str) -> object:
    """JSON text, or Python's way of writing it, as what it says; arrays as lists; anything else as it is."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    text = _unquoted(value) if isinstance(value, str) else ""
    if not text.lstrip().startswith(("[", "{")):
        return value
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    raise RowError(f"{name}: not valid JSON")


def _unquoted(text: str) -> str:
    """A text that was written as JSON more than once, as it was written first."""
    while text.lstrip().startswith('"'):
        try:
            text = json.loads(text)
        except ValueError:
            break
    return text


def is_blank(value: object) -> bool:
    """Whether a value says nothing: what is null, NaN or empty, or holds only that, as tables pad objects."""
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, Mapping):
        return all(map(is_blank, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(is_blank, value))
    return value is None or (isinstance(value, float) and value != value)


# ------------------------------------------------------------------------------------------------------------ messages


def _read_message(message: object, videos: list[str]) -> dict:
    """A message with text content, videos in it turned into `<video>` and collected; tool calls into their text."""
    if not isinstance(message, Mapping) or message.get("role") not in ROLES:
        raise RowError("a message without a known role")
    beside = [name for name in _BESIDE if not is_blank(message.get(name))]
    if beside:
        raise RowError(f"a message has {beside[0]} beside its content")
    text = "".join(_read_part(part, videos) for part in _parts(message.get("content")))
    calls = structured(message.get("tool_calls"), "tool_calls")
    if calls is not None and not isinstance(calls, (list, tuple, Mapping)):
        raise RowError(f"tool_calls is {kind_of(calls)}, not a list")
    for call in [calls] if isinstance(calls, Mapping) else calls or []:
        text += ("\n" if text else "") + _read_call(call)
    if message["role"] in ("user", "assistant") and not text.strip():
        raise RowError(f"an empty {message['role']} message")
    return {"role": message["role"], "content": text}


def _parts(content: object) -> Sequence:
    """The parts of a message's content, which may be a text, one part, or a list of both."""
    content = _written_parts(content) if isinstance(content, str) else structured(content, "content")
    if content is None:
        return []
    if isinstance(content, (str, Mapping)):
        return [content]
    if isinstance(content, (list, tuple)):
        return [part for part in content if part is not None]
    raise RowError(f"a message's content is {kind_of(content)}")


def _written_parts(text: str) -> object:
    """The parts that a text is the JSON of, told by their types; otherwise the text: it may be about JSON."""
    try:
        value = structured(text, "content")
    except RowError:
        return text
    parts = [value] if isinstance(value, Mapping) else value
    if not isinstance(parts, list) or not any(isinstance(part, Mapping) for part in parts):
        return text
    typed = all(isinstance(part, str) or (isinstance(part, Mapping) and part.get("type") in _KINDS) for part in parts)
    return parts if typed else text


def _read_part(part: object, videos: list[str]) -> str:
    """The text of a part of a message, after `<video>` for a video, which is collected if its file is named here."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise RowError(f"a part of a message is {kind_of(part)}")
    kind = part.get("type")
    given = {name: value for name, value in part.items() if name != "type" and not is_blank(value)}
    medium = next((name for name in _OTHER_MEDIA if name == kind or name in given), None)
    if medium:
        raise RowError(f"{'audio' if 'audio' in medium else 'image'} parts are not supported in a message")
    text = _text_of(part)
    if kind in _VIDEOS or any(name in given for name in _VIDEOS):
        videos += read_videos({name: given[name] for name in _PATHS if name in given} or None)
        return "<video>" + (text or "")
    if text is None and (given or kind not in ("text", None)):
        raise RowError(f"a part of a message of type {str(kind)[:40]!r} without text")
    return text or ""


def _text_of(part: Mapping) -> str | None:
    """The text of a part, under one of its names; `None` without one."""
    values = [part[name] for name in _TEXTS if part.get(name) is not None]
    values = [value for value in values if value == value and value != ""]
    if not all(isinstance(value, (str, int, float)) for value in values):
        raise RowError("a part of a message with a text that is none")
    texts = list(dict.fromkeys(map(str, values)))
    if len(texts) > 1:
        raise RowError("a part of a message with several texts")
    return texts[0] if texts else None


def _read_call(call: object) -> str:
    """A tool call as the text that the model writes."""
    function = call.get("function") or call if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise RowError("a tool call is no object")
    if not isinstance(function.get("name"), str):
        raise RowError("a tool call without a name")
    given = [function[name] for name in ("arguments", "parameters") if function.get(name) is not None]
    if len(given) != 1:
        raise RowError("a tool call without arguments" if not given else "a tool call with arguments and parameters")
    arguments = structured(given[0], "arguments of a tool call")
    if not isinstance(arguments, Mapping):
        raise RowError(f"the arguments of a tool call are {kind_of(arguments)}")
    arguments = {name: value for name, value in arguments.items() if value is not None}  # parquet pads
    try:
        body = json.dumps({"name": function["name"], "arguments": arguments}, ensure_ascii=False)
    except (TypeError, ValueError):
        raise RowError("a tool call holds what JSON does not") from None
    return f"<tool_call>\n{body}\n</tool_call>"
