"""Selective anchoring: token ids and a mask of sampled tokens become a credit per token.

The grammar of a turn is `<think>...</think>` followed by one or more `<tool_call>{json}</tool_call>` or by one
`<answer>...</answer>`. Works on any rollout: all it needs are the ids, which of them the policy sampled, and the
tokenizer. A completion is read turn by turn, a turn being a run of sampled tokens with the think prefix before it.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from .parser import NAME, ToolCall, parse_tool_calls


# Why a rollout does not keep the grammar. A rollout has one reason: the first that is found.
REASONS = {
    "nothing_sampled": "no token was sampled",
    "think_missing": "a turn does not begin with a thought",
    "think_not_closed": "another tag, or the end, comes before `</think>`",
    "think_blank": "there is nothing between `<think>` and `</think>`",
    "think_twice": "a second thought",
    "text_outside": "text that is neither thought, call nor answer",
    "call_not_closed": "a call without its `</tool_call>`",
    "call_malformed": "a call that the parser cannot read",
    "call_and_answer": "a turn that calls and answers",
    "calls_in_last_turn": "the last turn calls where it had to answer",
    "answer_missing": "a turn that neither calls nor answers",
    "answer_not_closed": "another tag, or the end, comes before `</answer>`",
    "answer_blank": "there is nothing between `<answer>` and `</answer>`",
    "answer_twice": "a second answer",
    "answer_too_early": "another turn follows the answer",
    "stray_tag": "a tag that neither opens nor closes anything",
    "cut_by_length": "the turn reached its token limit before it was complete",
}

_TAG = re.compile(r"<(/?)(think|tool_call|tool_code|answer)>")
_PREFIX = re.compile(r"<think>\s*$")


@dataclass(frozen=True)
class Turn:
    """One assistant turn: its text with the think prefix, and where each sampled token stands in it."""

    text: str
    tokens: list[tuple[int, int, int]]  # (position in the completion, first character, end)
    ended: bool  # by itself, with a control token, rather than at its token limit


@dataclass(frozen=True, order=True)
class Mark:
    """
    What gives a turn its structure: a tag, or a whole attempted call, which is one mark whatever tags its text holds.
    """

    start: int  # first character
    end: int
    kind: str  # "think", "/think", "answer", "/answer"; "call", or "open call" where its closing tag is missing


@dataclass(frozen=True)
class Fault:
    """Why a rollout does not keep the grammar, and where."""

    reason: str  # one of `REASONS`
    place: int  # character of the turn
    turn: int = 0
    breaks: bool = True  # False where the turn did what it should, and only cannot count as parseable


@dataclass(frozen=True)
class ParsedTurn:
    """What the grammar makes of a turn: one without a fault calls or answers; whether it may is up to its place."""

    tags: list[tuple[int, int, str]]  # (first character, end, tag) of well-formed elements
    fault: Fault | None
    calls: int  # well-formed calls
    answered: bool

    @property
    def broken(self) -> bool:
        """Whether the turn leaves the grammar."""
        return self.fault is not None and self.fault.breaks


def token_texts(ids: Sequence[int], tokenizer) -> list[str]:
    """The text that each token adds. Characters split over tokens go to the token that completes them."""
    hidden = {
        i
        for i, token in zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
        if not _TAG.fullmatch(token)
    }

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
        turns.append(Turn(text, tokens, ended=token_ids[end - 1] in tokenizer.all_special_ids))
        position = placed = end
    return turns


def parse_turn(
    text: str, last: bool = True, ended: bool = True, is_tool: Callable[[str], bool] | None = None
) -> ParsedTurn:
    """
    Parses one turn, its think prefix included.

    Args:
        text (`str`): The turn.
        last (`bool`): Whether it is the last one. An answer counts in that only.
        ended (`bool`): Whether it ended by itself rather than at its token limit.
        is_tool (`Callable`, *optional*): Whether other people's rollouts have a tool of a name beside `crop_video`.
    """
    calls = parse_tool_calls(text)
    marks = _marks(text, calls)
    good_calls = [
        call
        for call in calls
        if _is_closed(text, call)
        and (isinstance(call, ToolCall) or is_tool is not None and _calls_other_tool(_text_of(text, call), is_tool))
    ]
    tags = [tag for call in good_calls for tag in _call_tags(call)]

    think_tags = _well_formed_think(text, marks)
    tags += think_tags

    answer_tags = []
    if think_tags:
        thought_end = max(end for _, end, _ in think_tags)
        answer_tags = _well_formed_answer(text, marks, thought_end)
    answered = bool(answer_tags) and last
    if answered:
        tags += answer_tags

    fault = _first_fault(text, marks)
    if fault is None and not answered:
        fault = _missing_act(text, calls, good_calls, answer_tags)
    if fault is not None and fault.place == len(text) and not ended:
        fault = replace(fault, reason="cut_by_length")
    return ParsedTurn(sorted(tags), fault, len(good_calls), answered)


def _missing_act(text: str, calls: Sequence, good_calls: Sequence, answer_tags: list) -> Fault | None:
    """What is wrong with a turn whose tags are in order, as an act: it has to call, or to answer in the last turn."""
    if answer_tags:
        return Fault("answer_too_early", answer_tags[0][0], breaks=False)
    if not calls:
        return Fault("answer_missing", len(text))
    if not good_calls:
        return Fault("call_malformed", len(text))
    bad = next((call for call in calls if call not in good_calls), None)
    return None if bad is None else Fault("call_malformed", bad.span[0], breaks=False)


def _text_of(text: str, call) -> str:
    return text[call.span[0] : call.span[1]]


def _calls_other_tool(block: str, is_tool: Callable[[str], bool]) -> bool:
    """Whether a closed block is a call, as JSON, of somebody else's tool. `crop_video` is up to the parser."""
    try:
        call = json.loads(block.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    except (ValueError, RecursionError):
        return False
    name = call.get("name") if isinstance(call, dict) else None
    return isinstance(name, str) and name != NAME and isinstance(call.get("arguments", {}), dict) and is_tool(name)


def _is_closed(text: str, call) -> bool:
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


def _first_fault(text: str, marks: list[Mark]) -> Fault | None:
    """Where the tags of a turn first leave the grammar: at the end of the text if a block stays open there."""
    kinds = [mark.kind for mark in marks]
    opener_in_prompt = "/think" in kinds and "think" not in kinds
    block = "think" if opener_in_prompt else None  # the one that is open
    inside = 0  # where its content begins
    seen = ["think"] if opener_in_prompt else []  # blocks so far
    outside = 0  # where the text behind the last block begins
    for mark in marks:
        if block is not None:
            if mark.kind != "/" + block:
                reason = "twice" if mark.kind == block != "call" else "not_closed"
                return Fault(f"{block}_{reason}", mark.start)
            if not text[inside : mark.start].strip():
                return Fault(f"{block}_blank", mark.start)
            block = None
        else:
            stray = _first_visible(text, outside, mark.start)
            if stray is not None:
                return Fault("text_outside" if "think" in kinds else "think_missing", stray)
            reason = _wrong_order(mark.kind, seen)
            if reason is not None:
                return Fault(reason, mark.start)
            seen.append("call" if mark.kind == "open call" else mark.kind)
            block = {"call": None, "open call": "call"}.get(mark.kind, mark.kind)
            inside = mark.end
        outside = mark.end
    if block is not None:
        return Fault(f"{block}_not_closed", len(text))
    stray = _first_visible(text, outside, len(text))
    if stray is not None:
        return Fault("text_outside" if seen else "think_missing", stray)
    return None if seen else Fault("think_missing", len(text))


def _wrong_order(kind: str, seen: list[str]) -> str | None:
    """Why a block may not open after those seen: one thought comes first, then calls or one answer."""
    if kind not in ("think", "answer", "call", "open call"):
        return "stray_tag"
    if kind == "think":
        return "think_twice" if seen else None
    if not seen:
        return "think_missing"
    if kind == "answer":
        return {"think": None, "answer": "answer_twice"}.get(seen[-1], "call_and_answer")
    return "call_and_answer" if "answer" in seen else None


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
    is_tool: Callable[[str], bool] | None = None,
) -> list[float]:
    """
    Credit of each token of a completion.

    Args:
        token_ids (`Sequence[int]`): The completion, (T,).
        mask (`Sequence[int]`): 1 on sampled tokens, 0 on placed ones, (T,). Placed tokens get 0.
        tokenizer: The tokenizer of the ids.
        tags (`Mapping[str, float]` or `Iterable[str]`): Anchored tags and their credit (1 if only named).
        penalty (`float`): Subtracted at the break token of a turn that leaves the grammar.
        is_tool (`Callable`, *optional*): Whether there is a tool of a name, beside `crop_video`.

    Returns:
        `list[float]`: (T,) the credit of a tag on every sampled token that overlaps it by a character, where its
        element is well-formed; `-penalty` on the token at which the turn leaves the grammar; 0 elsewhere.
    """
    weights = dict(tags) if isinstance(tags, Mapping) else dict.fromkeys(tags, 1.0)
    credit = [0.0] * len(token_ids)
    turns = split_turns(token_ids, mask, tokenizer)
    for turn in turns:
        parsed = parse_turn(turn.text, turn is turns[-1], turn.ended, is_tool)
        for start, end, tag in parsed.tags:
            if tag not in weights:
                continue
            for position, first, stop in turn.tokens:
                if first < end and stop > start:
                    credit[position] = max(credit[position], weights[tag])
        if parsed.broken:
            at_or_after = (position for position, _, stop in turn.tokens if stop > parsed.fault.place)
            last_sampled = turn.tokens[-1][0]
            credit[next(at_or_after, last_sampled)] = -penalty
    return credit


def first_fault(
    token_ids: Sequence[int], mask: Sequence[int], tokenizer, is_tool: Callable[[str], bool] | None = None
) -> Fault | None:
    """Why a completion is not parseable; `None` if every turn keeps the grammar, and the last one answers."""
    turns = split_turns(token_ids, mask, tokenizer)
    if not turns:
        return Fault("nothing_sampled", 0)
    for number, turn in enumerate(turns):
        parsed = parse_turn(turn.text, turn is turns[-1], turn.ended, is_tool)
        if parsed.fault is not None:
            return replace(parsed.fault, turn=number)
    if not parsed.answered:
        return Fault("calls_in_last_turn", len(turn.text), turn=number, breaks=False)
    return None


def is_parseable(token_ids: Sequence[int], mask: Sequence[int], tokenizer) -> bool:
    """Whether every turn of a completion keeps the grammar, and the last one answers."""
    return first_fault(token_ids, mask, tokenizer) is None
