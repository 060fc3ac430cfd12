import copy
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paravt.data import load_rows, normalise, read_options
from paravt.messages import RowError
from paravt.rewards import accuracy_reward


def rl_row(video, kind="mcq", answer="B", as_text=False, question="<video>Which?\nA. red\nB. blue\nC. green"):
    info = {"answer": answer, "question_type": kind}
    return {
        "prompt": [{"role": "user", "content": question}],
        "videos": [{"video": str(video)}],
        "extra_info": json.dumps(info) if as_text else info,
    }


def save(rows, path):
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


class TestRows:
    @pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl"])
    def test_reads_both_shapes_of_extra_info(self, clips, tmp_path, name):
        for as_text in (True, False):
            rows = [
                rl_row("cfr.mp4", as_text=as_text),
                rl_row(f"file://{clips}/vfr.mp4", "oe", "a dog", as_text=as_text),
            ]
            found = load_rows(save(rows, tmp_path / name), video_root=str(clips))
            assert found["answer"] == ["B", "a dog"] and found[0]["options"] == ["red", "blue", "green"]
            assert found[0]["videos"] == [str(clips / "cfr.mp4")] and found[1]["options"] is None

    def test_reads_a_folder(self, clips, tmp_path):
        save([rl_row("cfr.mp4")], tmp_path / "a.parquet")
        save([rl_row("vfr.mp4")], tmp_path / "b.jsonl")
        assert len(load_rows(str(tmp_path), video_root=str(clips))) == 2
        with pytest.raises(ValueError, match="no file"):
            load_rows(str(tmp_path / "c.parquet"))

    def test_intervals(self, clips, tmp_path):
        rows = [rl_row("cfr.mp4", "tvg", answer) for answer in ("1.0 - 2.5", "from 1 to 2.5 seconds")]
        assert load_rows(save(rows, tmp_path / "a.jsonl"), video_root=str(clips))["answer"] == ["1.0 - 2.5"] * 2
        assert load_rows(save([rl_row("cfr.mp4", "tvg", [1, 2.5])], tmp_path / "b.jsonl"), video_root=str(clips))[
            "answer"
        ] == ["1.0 - 2.5"]

    def test_bad_rows_are_counted_by_cause(self, clips, tmp_path):
        rows = [rl_row("cfr.mp4")] * 99 + [
            rl_row("missing.mp4"),
            rl_row("missing2.mp4"),
            rl_row("page.mp4"),
            rl_row("cfr.mp4", "essay"),
            rl_row("cfr.mp4", "mcq", "E"),
            rl_row("cfr.mp4", "tvg", "5 - 5"),
            rl_row("cfr.mp4", "tvg", "50 - 60"),
            rl_row("cfr.mp4", "tvg", [-1, 5]),
            rl_row("cfr.mp4", "oe", ""),
            {"videos": []},
            {**rl_row("cfr.mp4"), "videos": None},
        ]
        said = []
        found = load_rows(save(rows, tmp_path / "a.jsonl"), video_root=str(clips), max_bad=0.1, report=said.append)
        assert len(found) == 99
        for cause in (
            "11 of 110 rows left out",
            "2 x video not found",
            "1 x video a web page, not a video",
            "question_type 'essay'",
            "none of the choices",
            "no interval",
            "starts after the end",
            "starts before the video",
            "no answer",
            "no prompt",
            "no videos",
        ):
            assert cause in said[0]

    def test_too_many_bad_rows_are_refused(self, clips, tmp_path):
        rows = [rl_row("cfr.mp4")] * 7 + [rl_row("missing.mp4")] * 3
        with pytest.raises(ValueError, match=r"3 of 10 rows are bad, more than the 5% allowed: 3 x video not found"):
            load_rows(save(rows, tmp_path / "a.jsonl"), video_root=str(clips))
        with pytest.raises(ValueError, match="1 of 1 rows are bad"):
            load_rows(save([rl_row("missing.mp4")], tmp_path / "b.jsonl"), video_root=str(clips), max_bad=1.0)

    def test_the_summary_says_where_the_first_of_each_cause_is(self, clips, tmp_path):
        path = tmp_path / "a.jsonl"
        lines = [json.dumps(rl_row("cfr.mp4"))] * 57
        lines[3] = lines[0][:14]
        lines[7], lines[9] = json.dumps("x"), "null"
        lines[12] = json.dumps(rl_row("gone.mp4"))
        lines[20] = json.dumps({**rl_row("cfr.mp4"), "extra_info": "{"})
        path.write_text("\n".join(lines) + "\n\n" + lines[12])
        said = []
        found = load_rows(str(path), video_root=str(clips), max_bad=0.2, report=said.append)
        assert len(found) == 52
        assert f"2 x video not found (first: {path} line 13)" in said[0]
        assert f"1 x not valid JSON (first: {path} line 4)" in said[0]
        assert f"1 x the row is str, not an object (first: {path} line 8)" in said[0]
        assert f"1 x extra_info: not valid JSON (first: {path} line 21)" in said[0]
        with pytest.raises(ValueError, match="the row is null, not an object .first: .*a.jsonl line 10"):
            load_rows(str(path), video_root=str(clips))

    def test_a_file_without_rows(self, tmp_path):
        (tmp_path / "a.jsonl").write_text("\n")
        with pytest.raises(ValueError, match="has no rows"):
            load_rows(str(tmp_path / "a.jsonl"))


def question(**columns):
    """A row in the common shape, of an open-ended row with `columns` changed."""
    return normalise({**rl_row("/v/a.mp4", "oe", "bars", question="<video>What?"), **columns}, "key")


def truth(kind, answer, **columns):
    return question(extra_info={"question_type": kind, "answer": answer}, **columns)


class TestShapes:
    def test_the_reading_of_messages_is_shared(self):
        row = question(prompt=json.dumps([{"role": "user", "content": [{"type": "video", "video": "/v/b.mp4"}, "a"]}]))
        assert row["prompt"] == [{"role": "user", "content": "<video>a"}] and row["videos"] == ["/v/a.mp4"]
        assert question(videos=None, video="/v/b.mp4")["videos"] == ["/v/b.mp4"]
        for videos in (None, [], "", " ", [None]):
            with pytest.raises(RowError, match="no videos"):
                question(videos=videos)

    @pytest.mark.parametrize("images", ["a.png", ["a.png"], [{"bytes": b"x", "path": None}]])
    def test_pictures_beside_the_video_are_a_cause(self, images):
        with pytest.raises(RowError, match="images are not supported"):
            question(images=images)
        assert question(images=[])["prompt"] == question(images=[{"bytes": None, "path": None}])["prompt"]

    def test_the_last_question_is_asked_with_the_turns_before_it(self):
        turns = [
            {"role": "user", "content": "<video>Which animal?"},
            {"role": "assistant", "content": "A dog."},
            {"role": "user", "content": "Which colour?\nA. red\nB. blue"},
        ]
        row = truth("mcq", "blue", prompt=turns)
        assert row["prompt"] == turns and row["answer"] == "B" and row["options"] == ["red", "blue"]
        assert truth("oe", "x", prompt=[*turns, {"role": "assistant", "content": "B"}])["prompt"] == turns
        with pytest.raises(RowError, match="does not end with a user message"):
            truth("oe", "x", prompt=[*turns[:2], {"role": "tool", "content": "x"}])

    def test_padding_of_objects_hides_nothing(self):
        row = question(
            answer="red", question_type="oe", extra_info={"answer": None, "question_type": None, "index": 3}
        )
        assert row["answer"] == "red" and row["question_type"] == "oe"
        for info in (None, [], "text", {}):
            assert question(answer="red", question_type=" OE ", extra_info=info)["answer"] == "red"

    @pytest.mark.parametrize(
        "options, texts",
        [
            (["cat", "dog"], ["cat", "dog"]),
            ('["cat", "dog"]', ["cat", "dog"]),
            ("['cat', 'dog']", ["cat", "dog"]),
            ("cat\ndog\n", ["cat", "dog"]),
            ("A. cat\nB. dog", ["cat", "dog"]),
            (["A. cat", "B. dog"], ["cat", "dog"]),
            (["(A) cat", "(B) dog"], ["cat", "dog"]),
            (["B: dog", "A: cat"], ["cat", "dog"]),
            ({"A": "cat", "B": "dog", "C": None}, ["cat", "dog"]),
            ('{"a": "cat", "b": "dog"}', ["cat", "dog"]),
            ({"1": "cat", "2": "dog", "10": "cow"}, ["cat", "dog", "cow"]),
            ({"label": ["A", "B"], "text": ["cat", "dog"]}, ["cat", "dog"]),
            ([{"A": "cat"}, {"B": "dog"}], ["cat", "dog"]),
            ([{"label": "B", "text": "dog"}, {"label": "A", "text": "cat"}], ["cat", "dog"]),
            ([["A", "cat"], ["B", "dog"]], ["cat", "dog"]),
            ([2, 3.0, 4.5], ["2", "3", "4.5"]),
            ([True, False], ["True", "False"]),
            (np.array(["cat", "dog"]), ["cat", "dog"]),
            ([["cat", "dog"]], ["cat", "dog"]),
            ([["A. cat", "B. dog"]], ["cat", "dog"]),
            ({"0": "cat", "1": "dog"}, ["cat", "dog"]),
            ({1: "cat", 2: "dog"}, ["cat", "dog"]),
            (["E. coli", "S. aureus"], ["E. coli", "S. aureus"]),
            ({"A": "E. coli", "B": "S. aureus"}, ["E. coli", "S. aureus"]),
            (["a.m.", "p.m."], ["a.m.", "p.m."]),
            ("A、cat\nB、dog", ["cat", "dog"]),
            (["Option A: cat", "Option B: dog"], ["cat", "dog"]),
            (["cat", "dog", None], ["cat", "dog"]),
            (None, None),
            ([], None),
        ],
    )
    def test_options(self, options, texts):
        assert read_options(options) == texts

    @pytest.mark.parametrize(
        "options",
        [
            "cat",
            5,
            ["cat", ""],
            ["cat", None, "dog"],
            [b"cat"],
            {"A": "cat", "C": "dog"},
            {"B": "cat", "D": "dog"},
            {"x": "cat", "z": []},
            ["A. cat", "D. dog"],
            [[1, 2, 3]],
            ["x"] * 30,
            {"label": ["A"], "text": ["cat", "dog"]},
        ],
    )
    def test_options_that_have_no_reading(self, options):
        with pytest.raises(RowError, match="option"):
            read_options(options)

    @pytest.mark.parametrize(
        "options, answer, letter",
        [
            (["cat", "dog"], "B", "B"),
            (["cat", "dog"], "b", "B"),
            (["cat", "dog"], "dog", "B"),
            (["cat", "dog"], ["dog"], "B"),
            (["A. cat", "B. dog"], "dog", "B"),
            (["A. cat", "B. dog"], "B. dog", "B"),
            (["2", "3", "4", "5"], "4", "C"),
            ([2, 3, 4, 5], 4, "C"),
            ([2, 3, 4, 5], 4.0, "C"),
            ([True, False], True, "A"),
            ('["cat","dog"]', "(B)", "B"),
            (["not a dog", "a dog"], "not a dog", "A"),
        ],
    )
    def test_the_right_option_by_letter_or_by_value(self, options, answer, letter):
        row = truth("mcq", answer, options=options)
        assert row["answer"] == letter
        said = f"<answer>{row['options'][ord(letter) - ord('A')]}</answer>"
        assert accuracy_reward([said], **{k: [row[k]] for k in ("answer", "question_type", "options")}) == [1]

    @pytest.mark.parametrize(
        "answer", ["cow", "C", ["A", "B"], {"A": 1}, None, [], [None], float("nan"), b"A", ["cat", []]]
    )
    def test_an_answer_that_is_not_one_of_the_options(self, answer):
        with pytest.raises(RowError, match="answer"):
            truth("mcq", answer, options=["cat", "dog"])

    @pytest.mark.parametrize(
        "answer, text",
        [
            ([2, 5], "2.0 - 5.0"),
            ([[2, 5]], "2.0 - 5.0"),
            ([[2, 5], [7, 9]], "[[2.0, 5.0], [7.0, 9.0]]"),
            ({"start": 2, "end": 5}, "2.0 - 5.0"),
            (["00:02", "00:05"], "2.0 - 5.0"),
            ("[[2.0, 5.0]]", "2.0 - 5.0"),
            (np.array([2.0, 5.0]), "2.0 - 5.0"),
        ],
    )
    def test_windows(self, answer, text):
        row = truth("tvg", answer)
        assert row["answer"] == text
        said = ["<answer>2 - 5</answer>"]
        assert accuracy_reward(said, **{k: [row[k]] for k in ("answer", "question_type", "options")}) == [1]

    @pytest.mark.parametrize(
        "answer, text",
        [
            ([1e-7, 3], "0.0 - 3.0"),
            ([-0.0, 3], "0.0 - 3.0"),
            ([-1e-9, 3], "0.0 - 3.0"),
            ([0.00012345, 3], "0.0001 - 3.0"),
            ([[1e-7, 3], [4, 5.00000001]], "[[0.0, 3.0], [4.0, 5.0]]"),
            ([2, 1e6], "2.0 - 1000000.0"),
        ],
    )
    def test_any_window_is_written_as_it_is_read(self, answer, text):
        assert truth("tvg", answer)["answer"] == text and truth("tvg", text)["answer"] == text

    @pytest.mark.parametrize(
        "answer", [[-1, 5], ["-1", "5"], {"start": -0.5, "end": 5}, [[2, 5], [-3, -1]], "[[6, 7], [-1, 5]]"]
    )
    def test_a_window_before_the_video_is_a_cause(self, answer):
        with pytest.raises(RowError, match="the interval starts before the video"):
            truth("tvg", answer)

    def test_a_window_of_no_length_is_a_cause(self):
        with pytest.raises(RowError, match="the interval is empty"):
            truth("tvg", [1e-9, 1e-8])

    @pytest.mark.parametrize("answer", [[None, 5], [5, 2], "soon", {}, 5, None, "", [2, 5, 7], b"2 - 5"])
    def test_no_window(self, answer):
        with pytest.raises(RowError, match="answer"):
            truth("tvg", answer)

    @pytest.mark.parametrize(
        "answer, text, said",
        [
            ("dog", "dog", "dog"),
            (["dog", "puppy"], '["dog", "puppy"]', "puppy"),
            (["dog", None, "dog"], "dog", "dog"),
            ("['a dog', 'puppy']", '["a dog", "puppy"]', "puppy"),
            ("[a dog, a puppy]", "[a dog, a puppy]", "a dog a puppy"),
            (7, "7", "7"),
            (7.0, "7", "7"),
        ],
    )
    def test_texts(self, answer, text, said):
        row = truth("oe", answer)
        assert row["answer"] == text
        columns = {name: [row[name]] for name in ("answer", "question_type", "options")}
        assert accuracy_reward([f"<answer>{said}</answer>"], **columns) == [1]

    def test_half_characters_are_a_cause(self):
        with pytest.raises(RowError, match="half a character"):
            question(prompt="What \ud800?")


TEXTS = ["[1", '["a"]', "{}", "A", "B", "2 - 5", "mcq", "tvg", "oe", "user", "\ud800", "cfr.mp4", "\0", "/"]
KEYS = ["role", "content", "type", "text", "video", "url", "A", "start", "end", "x"]
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)


def places(value, path=()):
    """Where something stands in a row: the keys and indices that lead there."""
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from places(inner, (*path, key))


def replaced(value, path, other):
    if not path:
        return other
    value = copy.copy(value)
    value[path[0]] = replaced(value[path[0]], path[1:], other)
    return value


WHOLE = [
    {**rl_row("cfr.mp4"), "options": ["red", "blue"], "id": 7},
    rl_row("cfr.mp4", "tvg", [[1.0, 2.0], [3.0, 4.0]]),
    rl_row("cfr.mp4", "oe", ["dog", "puppy"]),
    {
        "messages": [
            {"role": "user", "content": [{"type": "video", "video": "cfr.mp4"}, {"type": "text", "text": "a"}]},
            {"role": "assistant", "content": "b", "tool_calls": [{"function": {"name": "c", "arguments": {"d": 1}}}]},
            {"role": "tool", "content": "e"},
            {"role": "assistant", "content": "f"},
        ]
    },
]


class TestAnyRow:
    @settings(max_examples=400, deadline=None)
    @given(st.data())
    def test_normalise_raises_nothing_but_its_error(self, data):
        row = data.draw(st.sampled_from(WHOLE))
        for _ in range(data.draw(st.integers(1, 3))):
            row = replaced(row, data.draw(st.sampled_from(list(places(row)))), data.draw(ODD))
        try:
            read = normalise(row, "key", supervised="messages" in (row if isinstance(row, dict) else {}))
        except RowError:
            return
        assert all(isinstance(video, str) and video for video in read["videos"])
        assert read["prompt"] and all(isinstance(message["content"], str) for message in read["prompt"])

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def test_load_rows_raises_nothing_but_its_error(self, clips, tmp_path, data):
        rows = []
        for row in data.draw(st.lists(st.sampled_from(WHOLE[:3]), min_size=1, max_size=3)):
            rows.append(replaced(row, data.draw(st.sampled_from(list(places(row)))), data.draw(ODD)))
        text = "\n".join(json.dumps(row) for row in [*rows, WHOLE[0]])
        for _ in range(data.draw(st.integers(0, 2))):
            at = data.draw(st.integers(0, len(text)))
            text = text[:at] + data.draw(st.sampled_from(["", "\n", "{", "\u2028", '"'])) + text[at + 1 :]
        (tmp_path / "a.jsonl").write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            found = load_rows(str(tmp_path / "a.jsonl"), video_root=str(clips), max_bad=1.0, report=str)
        except ValueError as error:
            assert str(tmp_path) in str(error)
        else:
            columns = {name: found[name] for name in ("answer", "question_type", "options")}
            assert all(0 <= s <= 1 for s in accuracy_reward(["<answer>B</answer>"] * len(found), **columns))


class TestSupervisedRows:
    def test_conversations_as_text_with_tool_calls_and_video_parts(self, clips, tmp_path):
        call = {
            "type": "function",
            "function": {"name": "crop_video", "arguments": json.dumps({"start_time": 1, "end_time": 2, "x": None})},
        }
        messages = [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [{"type": "video_url", "video_url": {"url": "cfr.mp4"}}, {"type": "text", "text": "What?"}],
            },
            {"role": "assistant", "content": "<think>\nlook\n</think>", "tool_calls": [call]},
            {"role": "tool", "content": "red"},
            {"role": "assistant", "content": "<think>\nred\n</think>\n<answer>red</answer>"},
        ]
        rows = [{"messages": json.dumps(messages)}]
        (row,) = load_rows(save(rows, tmp_path / "a.jsonl"), video_root=str(clips), supervised=True)
        assert row["prompt"][1]["content"] == "<video>What?" and row["videos"] == [str(clips / "cfr.mp4")]
        assert row["completion"][0]["content"] == (
            "<think>\nlook\n</think>\n<tool_call>\n"
            '{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 2}}\n</tool_call>'
        )

    def test_image_parts_and_open_ends_are_refused_by_name(self, clips, tmp_path):
        image = [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            {"role": "assistant", "content": "a"},
        ]
        open_end = [{"role": "user", "content": "<video>a"}]
        rows = [{"messages": image, "videos": ["cfr.mp4"]}, {"messages": open_end, "videos": ["cfr.mp4"]}]
        with pytest.raises(ValueError, match="image parts are not supported.*no assistant message"):
            load_rows(save(rows, tmp_path / "a.jsonl"), video_root=str(clips), supervised=True)
