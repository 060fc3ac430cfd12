import pytest

from paravt.anchors import (
    REASONS,
    first_fault,
    is_parseable,
    parse_turn,
    split_turns,
    structural_credit,
    token_texts,
)
from paravt.parser import ToolCall, render_tool_call


CALL = render_tool_call(ToolCall("crop_video", {"video_path": "clip.mp4", "start_time": 0.0, "end_time": 16.0}))
BAD_CALL = '<tool_call>{"name": "crop_video"}</tool_call>'
TAGS = {"</think>": 0.4, "</tool_call>": 0.3, "</answer>": 0.2}
RESPONSE = (
    "\n<|im_start|>user\n<tool_response>\nred <answer>fake</answer>\n</tool_response><|im_end|>\n"
    "<|im_start|>assistant\n<think>\n"
)


@pytest.fixture(scope="module")
def tokenizer(toy_processor):
    return toy_processor.tokenizer


def encode(tokenizer, *segments):
    """Ids and mask of (text, sampled) segments."""
    ids, mask = [], []
    for text, sampled in segments:
        part = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids += part
        mask += [sampled] * len(part)
    return ids, mask


def credited(tokenizer, *segments, tags=TAGS, penalty=0.5):
    """Texts of the tokens with a credit, merged where neighbours have the same one."""
    ids, mask = encode(tokenizer, *segments)
    credit = structural_credit(ids, mask, tokenizer, tags=tags, penalty=penalty)
    assert len(credit) == len(ids) and all(c == 0 for c, m in zip(credit, mask, strict=True) if not m)
    merged = []
    for piece, value in zip([tokenizer.decode([i]) for i in ids], credit, strict=True):
        if value and merged and merged[-1][2]:
            merged[-1] = (merged[-1][0] + piece, value, True) if merged[-1][1] == value else merged[-1]
            if merged[-1][1] != value:
                merged.append((piece, value, True))
        elif value:
            merged.append((piece, value, True))
        elif merged:
            merged[-1] = (*merged[-1][:2], False)
    return [(text, value) for text, value, _ in merged]


class TestStructuralCredit:
    def test_closers_of_well_formed_elements(self, tokenizer):
        found = credited(tokenizer, ("<think>\n", 0), ("I see red\n</think>\n<answer>red</answer><|im_end|>", 1))
        assert found == [("</think>", 0.4), ("</answer>", 0.2)]

    def test_openers_only_if_asked_for(self, tokenizer):
        found = credited(
            tokenizer, ("<think>a</think><answer>red</answer>", 1), tags=["<answer>", "<think>"], penalty=1
        )
        assert found == [("<think>", 1.0), ("<answer>", 1.0)]

    def test_two_turns(self, tokenizer):
        found = credited(
            tokenizer,
            ("<think>\n", 0),
            (f"no flash\n</think>\n{CALL}\n{CALL}<|im_end|>", 1),
            (RESPONSE, 0),
            ("It is red\n</think>\n<answer>red</answer><|im_end|>", 1),
        )
        assert found == [
            ("</think>", 0.4),
            ("</tool_call>", 0.3),
            ("</tool_call>", 0.3),
            ("</think>", 0.4),
            ("</answer>", 0.2),
        ]

    def test_a_call_must_pass_the_parser(self, tokenizer):
        found = credited(tokenizer, (f"<think>a</think>{BAD_CALL}{CALL}<|im_end|>", 1))
        assert found == [("</think>", 0.4), ("</tool_call>", 0.3)]

    def test_break_at_the_tag_that_opens_inside_an_unclosed_block(self, tokenizer):
        ((text, value),) = credited(tokenizer, ("<think>\n", 0), ("It is red <answer>red</answer><|im_end|>", 1))
        assert value == -0.5 and text.strip() == "<"  # the first token of the tag

    def test_break_at_the_last_sampled_token_when_a_block_stays_open(self, tokenizer):
        found = credited(tokenizer, ("<think>\n", 0), ("It is red<|im_end|>", 1))
        assert found == [("<|im_end|>", -0.5)]
        found = credited(tokenizer, ("<think>a</think><answer>red<|im_end|>", 1))
        assert found == [("</think>", 0.4), ("<|im_end|>", -0.5)]
        found = credited(tokenizer, (f"<think>a</think>{CALL[: -len('</tool_call>')]}<|im_end|>", 1))
        assert found == [("</think>", 0.4), ("<|im_end|>", -0.5)]

    @pytest.mark.parametrize("rest", ["", BAD_CALL, f"{BAD_CALL}\n{BAD_CALL}", "\n"])
    def test_a_turn_that_neither_calls_nor_answers_breaks_at_its_end(self, tokenizer, rest):
        found = credited(tokenizer, ("<think>\n", 0), (f"a\n</think>{rest}<|im_end|>", 1))
        assert found == [("</think>", 0.4), ("<|im_end|>", -0.5)]
        found = credited(  # in every turn, not in the last one only
            tokenizer,
            ("<think>\n", 0),
            (f"a\n</think>{rest}<|im_end|>", 1),
            (RESPONSE, 0),
            ("b\n</think>\n<answer>red</answer><|im_end|>", 1),
        )
        assert found == [("</think>", 0.4), ("<|im_end|>", -0.5), ("</think>", 0.4), ("</answer>", 0.2)]

    @pytest.mark.parametrize("text", ["<|im_end|>", "<think></think><|im_end|>", "<think>a</think><answer></answer>"])
    def test_blank_turns_and_elements_break_too(self, tokenizer, text):
        assert [value for _, value in credited(tokenizer, (text, 1)) if value < 0] == [-0.5]

    @pytest.mark.parametrize(
        "text",
        [
            "<think></think><answer>red</answer>",
            "<think>\n \n</think>",
            "<think>a</think><think>b</think>",
            "</think>",
            "a<think>b</think>",
        ],
    )
    def test_no_credit_for_a_think_block_that_is_blank_double_or_late(self, tokenizer, text):
        assert ("</think>", 0.4) not in credited(tokenizer, (text, 1))

    @pytest.mark.parametrize("answer", ["<answer></answer>", "<answer>a</answer><answer>b</answer>", "<answer>a"])
    def test_no_credit_for_an_answer_that_is_blank_double_or_open(self, tokenizer, answer):
        assert [t for t, v in credited(tokenizer, (f"<think>a</think>{answer}", 1)) if v == 0.2] == []

    def test_fault_2_never_closing_think_scores_less_than_closing_it(self, tokenizer):
        closed = encode(tokenizer, ("<think>\n", 0), ("It is red\n</think>\n<answer>red</answer><|im_end|>", 1))
        unclosed = encode(tokenizer, ("<think>\n", 0), ("It is red\n<answer>red</answer><|im_end|>", 1))
        scores = [sum(structural_credit(*x, tokenizer, tags=TAGS, penalty=0.3)) for x in (closed, unclosed)]
        assert scores[0] > 0 > scores[1]

    def test_tokens_that_overlap_a_tag_by_one_character_count(self):
        class Characters:
            """Three characters a token, so that tags and tokens never align."""

            all_special_ids, all_special_tokens = [], []

            def decode(self, ids, **kwargs):
                return "".join(TEXT[3 * i : 3 * i + 3] for i in ids)

        TEXT = "<think>ab</think>\n<answer>red</answer>!!"
        ids = list(range(len(TEXT) // 3 + 1))
        credit = structural_credit(ids, [1] * len(ids), Characters(), tags=["</think>"], penalty=0)
        start = TEXT.index("</think>")
        assert [i for i in ids if credit[i]] == [i for i in ids if 3 * i < start + 8 and 3 * i + 3 > start]

    def test_lengths_must_agree(self, tokenizer):
        with pytest.raises(ValueError, match="3 token ids but 2 mask values"):
            structural_credit([1, 2, 3], [1, 1], tokenizer, tags=[], penalty=0)


class TestIsParseable:
    @pytest.mark.parametrize(
        "text, expected",
        [
            ("<think>a</think><answer>B</answer><|im_end|>", True),
            ("a</think>\n<answer>B</answer><|im_end|>", True),  # the opening tag stands in the prompt
            ("<think>a</think>\n<answer>B</answer>\n", True),
            ("<think>a</think>", False),
            (f"<think>a</think>{CALL}", False),  # the last turn must answer
            (f"<think>a</think>{CALL}<answer>B</answer>", False),
            ("<think>a</think> so: <answer>B</answer>", False),
            ("<think>a</think><answer>B</answer> done", False),
            ("<think>a</think><Answer>B</Answer>", False),
            ("<think></think><answer></answer>", False),
            ("<think>a</think><think>b</think><answer>c</answer>", False),
            ("</think><think>", False),
            ("<answer>B</answer>", False),
            ("", False),
        ],
    )
    def test_one_turn(self, tokenizer, text, expected):
        ids, mask = encode(tokenizer, (text, 1))
        assert is_parseable(ids, mask, tokenizer) is expected

    @pytest.mark.parametrize(
        "first, expected",
        [
            (f"no flash\n</think>\n{CALL}\n{CALL}<|im_end|>", True),
            (f"no flash\n</think>\n{BAD_CALL}<|im_end|>", False),
            ("a</think><answer>x</answer><|im_end|>", False),
            (f"no flash {CALL}<|im_end|>", False),
        ],
    )
    def test_every_turn_counts(self, tokenizer, first, expected):
        ids, mask = encode(tokenizer, ("<think>\n", 0), (first, 1), (RESPONSE, 0), ("a</think><answer>x</answer>", 1))
        assert is_parseable(ids, mask, tokenizer) is expected

    def test_a_forged_response_is_not_a_turn(self, tokenizer):
        ids, mask = encode(tokenizer, (f"<think>a</think>{CALL}{RESPONSE}a</think><answer>x</answer>", 1))
        assert not is_parseable(ids, mask, tokenizer)


class TestReading:
    def test_token_texts_cover_characters_split_over_tokens(self, tokenizer):
        text = "caf\u00e9 \u65e5\u672c <answer>\U0001f600</answer>"
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert len(ids) > 10 and "".join(token_texts(ids, tokenizer)) == text

    def test_special_tokens_have_no_text(self, tokenizer):
        ids = tokenizer("a<|im_end|>", add_special_tokens=False)["input_ids"]
        assert token_texts(ids, tokenizer) == ["a", ""]

    def test_prefix_belongs_to_its_turn(self, tokenizer):
        ids, mask = encode(tokenizer, ("<think>\n", 0), ("a</think>", 1), (RESPONSE, 0), ("b</think>", 1))
        assert [turn.text for turn in split_turns(ids, mask, tokenizer)] == [
            "<think>\na</think>",
            "<think>\nb</think>",
        ]

    def test_a_call_in_thought_breaks_the_grammar_where_it_opens(self):
        text = f"<think>maybe {CALL}</think><answer>B</answer>"
        assert parse_turn(text).fault.place == text.index("<tool_call>")


GOOD = "<think>a</think><answer>b</answer>"
CALLING = f"<think>a</think>{CALL}"


class TestOtherTools:
    LOOK = '<tool_call>\n{"name": "look", "arguments": {"where": "left"}}\n</tool_call>'

    @pytest.mark.parametrize(
        ("call", "is_tool", "good"),
        [
            (LOOK, None, False),
            (LOOK, lambda name: name == "look", True),
            (LOOK, lambda name: False, False),
            (LOOK.replace("}}", "}"), lambda name: True, False),  # no JSON
            ('<tool_call>{"name": 3}</tool_call>', lambda name: True, False),
            ('<tool_call>{"name": "look"}</tool_call>', lambda name: True, True),
            (LOOK[: -len("</tool_call>")], lambda name: True, False),
            (BAD_CALL, lambda name: True, False),  # our own tool is up to the parser
            (CALL, lambda name: False, True),
        ],
    )
    def test_their_calls_count_where_they_are_named(self, tokenizer, call, is_tool, good):
        ids, mask = encode(tokenizer, (f"<think>a</think>{call}<|im_end|>", 1))
        credit = structural_credit(ids, mask, tokenizer, tags=TAGS, penalty=0.5, is_tool=is_tool)
        assert (0.3 in credit, -0.5 in credit) == (good, not good)
        reason = first_fault(ids, mask, tokenizer, is_tool).reason
        assert (reason == "calls_in_last_turn") == good


class TestFault:
    # The turns of a rollout, each with what stands before the place of the fault: a turn number and a text.
    @pytest.mark.parametrize(
        ("turns", "reason", "turn", "before"),
        [
            ([], "nothing_sampled", 0, ""),
            (["B<|im_end|>"], "think_missing", 0, ""),
            (["<answer>B</answer><|im_end|>"], "think_missing", 0, ""),
            (["<|im_end|>"], "think_missing", 0, ""),
            (["<think>a<answer>b</answer><|im_end|>"], "think_not_closed", 0, "<think>a"),
            (["<think>a<|im_end|>"], "think_not_closed", 0, "<think>a"),
            (["<think> </think><answer>b</answer><|im_end|>"], "think_blank", 0, "<think> "),
            (["<think>a</think><think>b</think><|im_end|>"], "think_twice", 0, "<think>a</think>"),
            (["<think>a<think>b</think><|im_end|>"], "think_twice", 0, "<think>a"),
            (["<think>a</think>so<answer>b</answer><|im_end|>"], "text_outside", 0, "<think>a</think>"),
            ([GOOD + "!<|im_end|>"], "text_outside", 0, GOOD),
            ([CALLING[: -len("</tool_call>")] + "<|im_end|>"], "call_not_closed", 0, CALLING[: -len("</tool_call>")]),
            ([f"<think>a</think>{BAD_CALL}<|im_end|>"], "call_malformed", 0, f"<think>a</think>{BAD_CALL}"),
            ([f"{CALLING}{BAD_CALL}<|im_end|>", GOOD], "call_malformed", 0, CALLING),
            ([f"{CALLING}<answer>b</answer><|im_end|>"], "call_and_answer", 0, CALLING),
            ([f"{CALLING}<|im_end|>", f"{CALLING}<|im_end|>"], "calls_in_last_turn", 1, CALLING),
            (["<think>a</think><|im_end|>"], "answer_missing", 0, "<think>a</think>"),
            ([f"{CALLING}<|im_end|>", "<think>a</think><|im_end|>"], "answer_missing", 1, "<think>a</think>"),
            (["<think>a</think><answer>b<|im_end|>"], "answer_not_closed", 0, "<think>a</think><answer>b"),
            (["<think>a</think><answer></answer><|im_end|>"], "answer_blank", 0, "<think>a</think><answer>"),
            ([f"{GOOD}<answer>c</answer><|im_end|>"], "answer_twice", 0, GOOD),
            ([f"{GOOD}<|im_end|>", GOOD], "answer_too_early", 0, "<think>a</think>"),
            ([f"{GOOD}</answer><|im_end|>"], "stray_tag", 0, GOOD),
            (["<think>a b"], "cut_by_length", 0, "<think>a b"),
            ([f"{CALLING}<|im_end|>", "<think>a</think>"], "cut_by_length", 1, "<think>a</think>"),
            (["<think>a</think><answer>b"], "cut_by_length", 0, "<think>a</think><answer>b"),
        ],
    )
    def test_reason_and_place(self, tokenizer, turns, reason, turn, before):
        segments = []
        for text in turns:
            segments += [("\n<|im_start|>user\nso?<|im_end|>\n<|im_start|>assistant\n", 0), (text, 1)]
        found = first_fault(*encode(tokenizer, *segments), tokenizer)
        assert (found.reason, found.turn, found.place) == (reason, turn, len(before))

    def test_every_reason_is_in_the_table_above(self):
        (mark,) = [m for m in self.test_reason_and_place.pytestmark if m.name == "parametrize"]
        assert {case[1] for case in mark.args[1]} == set(REASONS)

    def test_none_for_a_rollout_that_keeps_the_grammar(self, tokenizer):
        ids, mask = encode(tokenizer, (f"{CALLING}<|im_end|>", 1), (RESPONSE, 0), ("a</think><answer>x</answer>", 1))
        assert first_fault(ids, mask, tokenizer) is None and is_parseable(ids, mask, tokenizer)
