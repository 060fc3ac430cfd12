"""Selective anchoring: token ids and a mask of sampled tokens become a credit per token.

The grammar of a turn is `<think>...</think>` followed by one or more `<tool_call>{json}</tool_call>` or by one
`<answer>...</answer>`. Works on any rollout: all it needs are the ids, which of them the policy sampled, and the
tokenizer. A completion is read turn by turn, a turn being a run of sampled tokens with the think prefix before it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .parser import ToolCall, parse_tool_calls


_TAG = re.compile(r"<(/?)(think|tool_call|tool_code|answer)>")
_PREFIX = re.compile(r"<think>\s*$")


@dataclass(frozen=True)
class Turn:
    """One assistant turn: its text with the think prefix, and where each sampled token stands in it."""

    text: str
    tokens: list[tuple[int, int, int]]  # (position in the completion, first character, end)


@dataclass(frozen=True)
class Reading:
    """What the grammar makes of a turn. `fault` is the character at which the turn leaves the grammar."""

    tags: list[tuple[int, int, str]]  # (first character, end, tag) of well-formed elements
    fault: int | None
    calls: int  # well-formed calls
    answered: bool
    parseable: bool  # as a turn that calls or answers; whether it may do so is up to its place


def token_texts(ids: Sequence[int], tokenizer) -> list[str]:
    """The text that each token adds. Characters split over tokens go to the token that completes them."""
    hidden = {i for i, token in zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
              if not _TAG.fullmatch(token)}  # fmt: skip

    def decode(part):
        return tokenizer.decode([i for i in part if i not in hidden], clean_up_tokenization_spaces=False)

    alone = {i: decode([i]) for i in set(ids)}
    texts = [alone[i] for i in ids]
    if not any("\ufffd" in text for text in texts) and "".join(texts) == decode(ids):
        return texts
    # Some token is not text by itself: decode token after token, each with the few before it as context.
    texts, start, read = [], 0, 0
    for end in range(1, len(ids) + 1):
        before, now = decode(ids[start:read]), decode(ids[start:end])
        if now.endswith("\ufffd") and end - read < 8:
            texts.append("")
            continue
        texts.append(now[len(before) :])
        start, read = read, end
    return texts


def read_turns(token_ids: Sequence[int], mask: Sequence[int], tokenizer) -> list[Turn]:
    """The turns of a completion. `mask` is 1 on sampled tokens and 0 on placed ones."""
    if len(token_ids) != len(mask):
        raise ValueError(f"{len(token_ids)} token ids but {len(mask)} mask values; they must be as many")
    turns, position, placed = [], 0, 0
    while position < len(token_ids):
        if not mask[position]:
            position += 1
            continue
        end = position
        while end < len(token_ids) and mask[end]:
            end += 1
        prefix = _PREFIX.search("".join(token_texts(token_ids[max(placed, position - 8) : position], tokenizer)))
        text, tokens = prefix[0] if prefix else "", []
        for i, piece in enumerate(token_texts(token_ids[position:end], tokenizer), start=position):
            tokens.append((i, len(text), len(text) + len(piece)))
            text += piece
        turns.append(Turn(text, tokens))
        position = placed = end
    return turns


def read_turn(text: str, last: bool = True) -> Reading:
    """Reads one turn. An answer counts in the last turn only."""
    calls = parse_tool_calls(text)
    good = [
        c for c in calls if isinstance(c, ToolCall) and re.fullmatch(r"(?s)<tool_call>.*</tool_call>", _at(text, c))
    ]
    events, skip = [], [c.span for c in calls]
    for match in _TAG.finditer(text):
        while skip and skip[0][1] <= match.start():
            skip.pop(0)
        if not (skip and skip[0][0] <= match.start()):
            events.append((match.start(), match.end(), match[1] + match[2]))
    events = sorted(
        events + [(*c.span, "call" if _at(text, c).endswith("</tool_call>") else "open call") for c in calls]
    )
    named = {name: [e for e in events if e[2] == name] for name in ("think", "/think", "answer", "/answer")}

    tags = [
        tag
        for c in good
        for tag in ((c.span[0], c.span[0] + 11, "<tool_call>"), (c.span[1] - 12, c.span[1], "</tool_call>"))
    ]
    thought_end = None
    if len(named["/think"]) == 1 and len(named["think"]) <= 1:
        begin, end = (named["think"] or [(0, 0, "")])[0][:2]
        close = named["/think"][0]
        if end <= close[0] and not text[:begin].strip() and text[end : close[0]].strip():
            thought_end = close[1]
            tags.append((close[0], close[1], "</think>"))
            if named["think"]:
                tags.append((begin, end, "<think>"))
    answered = False
    if last and thought_end is not None and len(named["answer"]) == len(named["/answer"]) == 1:
        opening, close = named["answer"][0], named["/answer"][0]
        if thought_end <= opening[0] and opening[1] <= close[0] and text[opening[1] : close[0]].strip():
            answered = True
            tags += [(opening[0], opening[1], "<answer>"), (close[0], close[1], "</answer>")]

    fault = _fault(text, events, implicit=not named["think"] and bool(named["/think"]))
    whole = fault is None and thought_end is not None
    parseable = whole and (len(good) == len(calls) > 0 if not answered else not calls)
    return Reading(sorted(tags), fault, len(good), answered, parseable)


def _at(text: str, entry) -> str:
    return text[entry.span[0] : entry.span[1]]


def _fault(text: str, events: list, implicit: bool) -> int | None:
    """The first character outside the grammar; the end of the text if a block stays open there."""
    opened, done, outside = ("think", ["think"], 0) if implicit else (None, [], 0)
    for start, end, name in events:
        if opened == "call" or (opened and name != "/" + opened):
            return start
        if opened is None:
            stray = text[outside:start]
            if stray.strip():
                return outside + len(stray) - len(stray.lstrip())
            legal = {"think": not done, "answer": done == ["think"]}
            legal["call"] = legal["open call"] = done[:1] == ["think"] and "answer" not in done
            if not legal.get(name, False):
                return start
            opened = {"call": None, "open call": "call"}.get(name, name)
            done.append("call" if "call" in name else name)
        else:
            opened = None
        outside = end
    if opened:
        return len(text)
    stray = text[outside:]
    return outside + len(stray) - len(stray.lstrip()) if stray.strip() else None


def structural_credit(
    token_ids: Sequence[int],
    mask: Sequence[int],
    tokenizer,
    *,
    tags: Mapping[str, float] | Iterable[str],
    penalty: float,
) -> list[float]:
    """
    Credit of each token of a completion.

    Args:
        token_ids (`Sequence[int]`): The completion, (T,).
        mask (`Sequence[int]`): 1 on sampled tokens, 0 on placed ones, (T,). Placed tokens get 0.
        tokenizer: The tokenizer of the ids.
        tags (`Mapping[str, float]` or `Iterable[str]`): Anchored tags and their credit (1 if only named).
        penalty (`float`): Subtracted at the break token of a turn that leaves the grammar.

    Returns:
        `list[float]`: (T,) the credit of a tag on every sampled token that overlaps it by a character, where its
        element is well-formed; `-penalty` on the token at which the turn leaves the grammar; 0 elsewhere.
    """
    weights = dict(tags) if isinstance(tags, Mapping) else dict.fromkeys(tags, 1.0)
    credit = [0.0] * len(token_ids)
    turns = read_turns(token_ids, mask, tokenizer)
    for turn in turns:
        reading = read_turn(turn.text, last=turn is turns[-1])
        for start, end, tag in reading.tags:
            for position, first, stop in turn.tokens:
                if tag in weights and first < end and stop > start:
                    credit[position] = max(credit[position], weights[tag])
        if reading.fault is not None:
            after = (position for position, _, stop in turn.tokens if stop > reading.fault)
            credit[next(after, turn.tokens[-1][0])] = -penalty
    return credit


def is_parseable(token_ids: Sequence[int], mask: Sequence[int], tokenizer) -> bool:
    """Whether every turn of a completion keeps the grammar, and the last one answers."""
    turns = read_turns(token_ids, mask, tokenizer)
    readings = [read_turn(turn.text, last=turn is turns[-1]) for turn in turns]
    return bool(readings) and all(reading.parseable for reading in readings) and readings[-1].answered
