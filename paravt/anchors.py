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


@dataclass(frozen=True, order=True)
class Mark:
    """
    What gives a turn its structure: a tag, or a whole attempted call, which is one mark whatever tags its text holds.
    """

    start: int  # first character
    end: int
    kind: str  # "think", "/think", "answer", "/answer"; "call", or "open call" where its closing tag is missing


@dataclass(frozen=True)
class ParsedTurn:
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


def split_turns(token_ids: Sequence[int], mask: Sequence[int], tokenizer) -> list[Turn]:
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


def parse_turn(text: str, last: bool = True) -> ParsedTurn:
    """Parses one turn, its think prefix included. An answer counts in the last turn only."""
    calls = parse_tool_calls(text)
    marks = _marks(text, calls)
    good_calls = [call for call in calls if isinstance(call, ToolCall) and _is_closed(text, call)]
    tags = [tag for call in good_calls for tag in _call_tags(call)]

    think_tags = _well_formed_think(text, marks)
    thought = bool(think_tags)
    tags += think_tags

    answer_tags = []
    if last and thought:
        thought_end = max(end for _, end, _ in think_tags)
        answer_tags = _well_formed_answer(text, marks, thought_end)
    answered = bool(answer_tags)
    tags += answer_tags

    fault = _first_fault(text, marks)
    does_one_thing = not calls if answered else len(good_calls) == len(calls) > 0
    parseable = fault is None and thought and does_one_thing
    return ParsedTurn(sorted(tags), fault, len(good_calls), answered, parseable)


def _text_of(text: str, call) -> str:
    return text[call.span[0] : call.span[1]]


def _is_closed(text: str, call: ToolCall) -> bool:
    return re.fullmatch(r"(?s)<tool_call>.*</tool_call>", _text_of(text, call)) is not None


def _call_tags(call: ToolCall) -> list[tuple[int, int, str]]:
    start, end = call.span
    opener, closer = "<tool_call>", "</tool_call>"
    return [(start, start + len(opener), opener), (end - len(closer), end, closer)]


def _marks(text: str, calls: Sequence) -> list[Mark]:
    """The calls of a turn and the tags outside them, in order."""
    marks = []
    for call in calls:
        closed = _text_of(text, call).endswith("</tool_call>")
        marks.append(Mark(*call.span, "call" if closed else "open call"))
    ahead = [call.span for call in calls]  # in order: those that end before a tag are done with
    for tag in _TAG.finditer(text):
        while ahead and ahead[0][1] <= tag.start():
            ahead.pop(0)
        inside = bool(ahead) and ahead[0][0] <= tag.start()
        if not inside:
            marks.append(Mark(tag.start(), tag.end(), tag[1] + tag[2]))
    return sorted(marks)


def _well_formed_think(text: str, marks: list[Mark]) -> list[tuple[int, int, str]]:
    """The tags of the think block, if it comes first, is the only one, is closed and not blank; otherwise none."""
    openers = [mark for mark in marks if mark.kind == "think"]
    closers = [mark for mark in marks if mark.kind == "/think"]
    if len(closers) != 1 or len(openers) > 1:
        return []
    closer = closers[0]
    begin, end = (openers[0].start, openers[0].end) if openers else (0, 0)  # its opener may stand in the prompt
    first = not text[:begin].strip()
    if not (first and end <= closer.start and text[end : closer.start].strip()):
        return []
    tags = [(closer.start, closer.end, "</think>")]
    return tags + [(begin, end, "<think>")] if openers else tags


def _well_formed_answer(text: str, marks: list[Mark], thought_end: int) -> list[tuple[int, int, str]]:
    """The tags of the answer, if it is the only one, stands behind the thought, is closed and not blank."""
    openers = [mark for mark in marks if mark.kind == "answer"]
    closers = [mark for mark in marks if mark.kind == "/answer"]
    if not len(openers) == len(closers) == 1:
        return []
    opener, closer = openers[0], closers[0]
    in_order = thought_end <= opener.start and opener.end <= closer.start
    if not (in_order and text[opener.end : closer.start].strip()):
        return []
    return [(opener.start, opener.end, "<answer>"), (closer.start, closer.end, "</answer>")]


def _first_fault(text: str, marks: list[Mark]) -> int | None:
    """The first character outside the grammar; the end of the text if a block stays open there."""
    kinds = [mark.kind for mark in marks]
    opener_in_prompt = "/think" in kinds and "think" not in kinds
    block = "think" if opener_in_prompt else None  # the one that is open
    seen = ["think"] if opener_in_prompt else []  # blocks so far
    outside = 0  # where the text behind the last block begins
    for mark in marks:
        if block is not None:
            if mark.kind != "/" + block:
                return mark.start
            block = None
        else:
            stray = _first_visible(text, outside, mark.start)
            if stray is not None:
                return stray
            if not _may_follow(mark.kind, seen):
                return mark.start
            seen.append("call" if mark.kind == "open call" else mark.kind)
            block = {"call": None, "open call": "call"}.get(mark.kind, mark.kind)
        outside = mark.end
    return len(text) if block is not None else _first_visible(text, outside, len(text))


def _may_follow(kind: str, seen: list[str]) -> bool:
    """Whether a block may open after those seen: one thought, then calls or one answer."""
    if kind == "think":
        return not seen
    if kind == "answer":
        return seen == ["think"]
    if kind in ("call", "open call"):
        return seen[:1] == ["think"] and "answer" not in seen
    return False  # a closing tag that closes nothing


def _first_visible(text: str, start: int, end: int) -> int | None:
    """Where in a stretch of text the first character stands that is no white space."""
    stretch = text[start:end]
    return start + len(stretch) - len(stretch.lstrip()) if stretch.strip() else None


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
    turns = split_turns(token_ids, mask, tokenizer)
    for turn in turns:
        parsed = parse_turn(turn.text, last=turn is turns[-1])
        for start, end, tag in parsed.tags:
            if tag not in weights:
                continue
            for position, first, stop in turn.tokens:
                if first < end and stop > start:
                    credit[position] = max(credit[position], weights[tag])
        if parsed.fault is not None:
            at_or_after = (position for position, _, stop in turn.tokens if stop > parsed.fault)
            last_sampled = turn.tokens[-1][0]
            credit[next(at_or_after, last_sampled)] = -penalty
    return credit


def is_parseable(token_ids: Sequence[int], mask: Sequence[int], tokenizer) -> bool:
    """Whether every turn of a completion keeps the grammar, and the last one answers."""
    turns = split_turns(token_ids, mask, tokenizer)
    parsed = [parse_turn(turn.text, last=turn is turns[-1]) for turn in turns]
    return bool(parsed) and all(turn.parseable for turn in parsed) and parsed[-1].answered
