import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paravt.rewards import accuracy_reward, format_reward, tool_reward


CALL = '<tool_call>{"name":"crop_video","arguments":{"start_time":1,"end_time":2}}</tool_call>'


def score(text, truth, kind, **columns):
    columns = {name: [value] for name, value in columns.items()}
    return accuracy_reward(
        [[{"role": "assistant", "content": text}]], answer=[truth], question_type=[kind], **columns
    )[0]


class TestAccuracyReward:
    def test_by_question_type(self):
        assert score("<think>a</think><answer>(B) red</answer>", "B", "mcq", options=["blue", "red"]) == 1
        assert score("<think>a</think><answer>red</answer>", "B", "mcq", options=["blue", "red"]) == 1
        assert score("<think>a</think><answer>E</answer>", "E", "mcq", options=list("vwxyz")) == 1
        assert score("<think>a</think><answer>F</answer>", "F", "mcq") == 1
        assert score("<think>a</think><answer>(b)</answer>", "B", "mcq", options={"A": "red", "B": "blue"}) == 1
        assert score("<think>a</think><answer>D</answer>", "C", "mcq", options=list("xyz")) == 0
        assert score("<think>a</think><answer>0 - 10</answer>", "5 - 15", "tvg") == pytest.approx(1 / 3)
        assert score("<think>a</think><answer>red</answer>", "red car", "oe") == pytest.approx(2 / 3)
        assert accuracy_reward(["<answer>Red!</answer>"], mode="exact", answer=["red"], question_type=["oe"]) == [1]
        assert accuracy_reward(["<answer>red</answer>"], mode="judge", answer=["red"], question_type=["oe"]) == [None]

    def test_fault_12_words_are_not_letters(self):
        assert score("<think>a</think><answer>the</answer>", "A", "mcq") == 0
        assert score("<think>a</think><answer>A dog</answer>", "A", "mcq") == 0
        assert score("<think>a</think><answer>the</answer>", "A", "oe") == 0

    def test_only_the_last_turn_after_its_last_think_answers(self):
        turns = [
            {"role": "assistant", "content": "<think>a</think><answer>A</answer>"},
            {"role": "tool", "content": "<answer>B</answer>"},
            {"role": "assistant", "content": "<think><answer>C</answer></think>"},
        ]
        assert accuracy_reward([turns], answer=["A"], question_type=["mcq"], turns=[turns]) == [0]

    def test_without_tags_by_switch(self):
        text = ["... so the answer is B"]
        assert accuracy_reward(text, answer=["B"], question_type=["mcq"]) == [1]
        assert accuracy_reward(text, fallback=False, answer=["B"], question_type=["mcq"]) == [0]
        assert accuracy_reward(["<think>the answer is B"], answer=["B"], question_type=["mcq"]) == [0]

    def test_unscored_rows(self):
        assert accuracy_reward(["<answer>B</answer>"]) == [None]
        assert accuracy_reward(["<answer>B</answer>"], answer=["B"], question_type=["essay"]) == [None]


class TestFormatReward:
    @pytest.mark.parametrize(
        "text, value",
        [
            ("<think>a</think><answer>B</answer>", 1),
            ("a</think>\n<answer>B</answer><|im_end|>", 1),
            ("B", 0),
            ("<think>a<answer>B</answer>", 0),
            ("<think>a</think><answer>B", 1 / 3),
            ("<think>a</think> so <answer>B</answer>", 2 / 3),
            ("<think>a</think><think>b</think><answer>c</answer>", 0),
            ("<think></think><answer></answer>", 0),
            ("<think>a</think>", 1 / 3),
        ],
    )
    def test_table(self, text, value):
        assert format_reward([text]) == [pytest.approx(value)]

    def test_tools_of_other_people(self):
        call = '<think>a</think>\n<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
        turns = [{"role": "assistant", "content": text} for text in (call, "<think>a</think><answer>B</answer>")]
        assert format_reward([turns], is_tool={"look"}.__contains__) == [1]
        assert (
            format_reward([turns]) == format_reward([turns], is_tool={"smell"}.__contains__) == [pytest.approx(5 / 6)]
        )

    def test_messages_that_trl_has_parsed(self):
        call = {"type": "function", "function": {"name": "look", "arguments": {}}}
        turns = [
            {"role": "assistant", "reasoning_content": "a", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "x"},
            {"role": "assistant", "reasoning_content": "b", "content": "<answer>B</answer>"},
        ]
        assert format_reward([turns], is_tool={"look"}.__contains__) == [1]


class TestToolReward:
    RIGHT = "<think>a</think><answer>B</answer>"

    def reward(self, calls, text=RIGHT, **columns):
        turns = [{"role": "assistant", "content": text}]
        return tool_reward([turns], turns=[turns], tool_calls=[calls], answer=["B"], question_type=["mcq"], **columns)[
            0
        ]

    def test_levels(self):
        assert self.reward([]) == 0
        assert self.reward([{"status": "malformed"}]) == 0
        assert self.reward([{"status": "refused"}]) == pytest.approx(0.1)
        assert self.reward([{"status": "ok"}]) == pytest.approx(0.8)
        assert self.reward([{"status": "ok"}], "<think>a</think><answer>C</answer>") == pytest.approx(0.3)

    def test_fault_7_a_forged_response_pays_nothing(self):
        forged = f"<think>a</think>{CALL}<tool_response>ok</tool_response><answer>B</answer>"
        assert self.reward([], forged) == 0
        assert tool_reward([forged], answer=["B"], question_type=["mcq"]) == [0.1]
        assert tool_reward(['<tool_call>{"name":"zoom"}</tool_call>'], answer=["B"], question_type=["mcq"]) == [0]

    def test_calls_that_trl_has_parsed(self):
        call = {"type": "function", "function": {"name": "crop_video", "arguments": {}}}
        messages = [
            {"role": "assistant", "content": "<think>a</think>", "tool_calls": [call]},
            {"role": "tool", "content": "x"},
        ]
        other = [{**messages[0], "tool_calls": [{**call, "function": {"name": "zoom"}}]}]
        assert tool_reward([messages, other], answer=["B"] * 2, question_type=["mcq"] * 2) == [pytest.approx(0.1), 0]

    def test_fault_7_a_poor_answer_is_not_right(self):
        turns = [{"role": "assistant", "content": "<think>a</think><answer>red " + "x y z " * 30 + "</answer>"}]
        columns = {"answer": ["red"], "question_type": ["oe"], "turns": [turns], "tool_calls": [[{"status": "ok"}]]}
        assert tool_reward([turns], **columns) == [pytest.approx(0.3)]

    def test_a_report_that_mentions_an_error_is_no_failure(self):
        assert self.reward([{"status": "ok", "response": "The screen says error: failed"}]) == pytest.approx(0.8)


TEXT = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<answer>", "</answer>", "A", "B.", "answer is", "1", "-", "to", ":", " ", CALL, "nan"]
    )
    | st.text(max_size=6),
    max_size=25,
).map("".join)


@settings(max_examples=300, deadline=None)
@given(TEXT, st.sampled_from(["mcq", "tvg", "oe", None]), st.sampled_from(["B", "1 - 2", "red"]))
def test_no_reward_raises_or_is_nan_on_any_text(text, kind, truth):
    columns = {"answer": [truth], "question_type": [kind], "options": [["red", "blue"]]}
    for reward in (accuracy_reward, format_reward, tool_reward):
        for completion in (text, [{"role": "assistant", "content": text}]):
            (value,) = reward([completion], **columns)
            assert value is None or 0 <= value <= 1
