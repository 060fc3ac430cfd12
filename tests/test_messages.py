import json
from pathlib import Path

import numpy as np
import pytest

from paravt.messages import RowError, is_blank, read_messages, read_prompt, read_videos


def content(value, role="user"):
    """What is read of a message's content."""
    messages, videos = read_messages([{"role": role, "content": value}], "prompt")
    return messages[0]["content"], videos


def written(value):
    return json.dumps(json.dumps(value))


class TestVideos:
    @pytest.mark.parametrize(
        "videos, paths",
        [
            ("/v/a.mp4", ["/v/a.mp4"]),
            (Path("/v/a.mp4"), ["/v/a.mp4"]),
            ([Path("/v/a.mp4")], ["/v/a.mp4"]),
            ('["/v/a.mp4", "/v/b.mp4"]', ["/v/a.mp4", "/v/b.mp4"]),
            (written(["/v/a.mp4"]), ["/v/a.mp4"]),
            ('{"video": "/v/a.mp4"}', ["/v/a.mp4"]),
            ({"video": "/v/a.mp4"}, ["/v/a.mp4"]),
            ({"path": "/v/a.mp4", "bytes": None}, ["/v/a.mp4"]),
            ([{"path": "/v/a.mp4"}], ["/v/a.mp4"]),
            ([{"video": "/v/a.mp4", "fps": None}, "/v/b.mp4", None], ["/v/a.mp4", "/v/b.mp4"]),
            (np.array(["/v/a.mp4", "/v/b.mp4"]), ["/v/a.mp4", "/v/b.mp4"]),
            ([["/v/a.mp4"]], ["/v/a.mp4"]),
            ("/v/[1] a.mp4", ["/v/[1] a.mp4"]),
            ("[1].mp4", ["[1].mp4"]),
            ({"type": "video_url", "video_url": {"url": "/v/a.mp4"}}, ["/v/a.mp4"]),
            (None, []),
            ([], []),
            ("", []),
            (" ", []),
            ([None], []),
            ({"video": None, "fps": None}, []),
        ],
    )
    def test_shapes(self, videos, paths):
        assert read_videos(videos) == paths

    @pytest.mark.parametrize("videos", [{"fps": 1}, 5, [5], b"/v/a.mp4", [{"bytes": b"x"}], ["/v/a.mp4", {"fps": 1}]])
    def test_what_is_no_path(self, videos):
        with pytest.raises(RowError, match="videos"):
            read_videos(videos)


class TestContents:
    @pytest.mark.parametrize(
        "value, text",
        [
            ("What?", "What?"),
            (["What?"], "What?"),
            (["<video>", "What?"], "<video>What?"),
            ({"type": "text", "text": "What?"}, "What?"),
            ({"type": "text", "content": "What?"}, "What?"),
            ({"type": "text", "value": "What?"}, "What?"),
            ({"type": "text", "text": None, "value": "What?"}, "What?"),
            ({"type": "text", "text": "What?", "value": "What?"}, "What?"),
            ({"type": "input_text", "text": "What?"}, "What?"),
            ([{"type": "text", "text": "What?", "video": None, "image": ""}, None], "What?"),
            ([{"type": "text", "text": "What", "image_url": {"url": None}}, {"text": " "}, "is it?"], "What is it?"),
            ([{"type": "video"}, {"type": "text", "text": "What?"}], "<video>What?"),
            ([{"text": "What?"}], "What?"),
            ([{"text": 7}], "7"),
            ([{"type": None, "text": float("nan"), "value": "What?"}], "What?"),
            (["What?", {}, {"type": "text", "text": ""}, {"type": None, "video": None}], "What?"),
            (np.array([{"type": "text", "text": "What?"}]), "What?"),
            ('[{"type": "text", "text": "What?"}]', "What?"),
            ('{"type": "text", "text": "What?"}', "What?"),
            ("[{'type': 'video'}, {'type': 'text', 'text': 'What?'}]", "<video>What?"),
            ('["<video>", {"type": "text", "text": "What?"}]', "<video>What?"),
            (written([{"type": "text", "text": "What?"}]), "What?"),
        ],
    )
    def test_shapes(self, value, text):
        assert content(value) == (text, [])

    @pytest.mark.parametrize(
        "text",
        [
            '{"a": 1} is what?',
            '{"type": "bar", "text": "What?"}',
            '["a", "b"]',
            "[1] or [2]?",
            '"What?"',
            "[{",
            '{"name": "crop_video", "arguments": {}}',
            "[]",
        ],
    )
    def test_text_that_is_about_json_stays(self, text):
        assert content(text) == (text, []) == content([text]) == content({"text": text})

    @pytest.mark.parametrize(
        "part",
        [
            {"type": "video", "video": "a.mp4", "text": "What?"},
            {"type": "text", "text": "What?", "video": "a.mp4"},
            {"video": "a.mp4", "text": "What?", "fps": 2},
            {"type": "video_url", "video_url": {"url": "a.mp4"}, "content": "What?"},
            {"type": "video", "path": "a.mp4", "value": "What?"},
        ],
    )
    def test_text_beside_a_video(self, part):
        assert content([part]) == content(part) == content(json.dumps([{"type": "video", **part}]))
        assert content(part) == ("<video>What?", ["a.mp4"])

    @pytest.mark.parametrize(
        "value",
        [
            5,
            [5],
            [["What?"]],
            b"x",
            {"type": "audio", "audio": "a.wav"},
            {"audio": "a.wav", "text": "What?"},
            {"image": "a.png"},
            {"image": "a.png", "text": "What?"},
            {"type": "image"},
            {"type": "text", "text": "What?", "image_url": {"url": "a.png"}},
            '[{"type": "image_url", "image_url": {"url": "a.png"}}]',
            {"type": "text", "text": ["x"]},
            {"type": "text", "text": {"value": "What?"}},
            {"type": "text", "text": "What?", "content": "Why?"},
            {"type": "text", "words": "What?"},
            {"words": "What?"},
            {"type": "thinking", "thinking": "hm"},
            {"type": "video", "video": 5},
            {"type": "video", "video": {"fps": 1}},
        ],
    )
    def test_what_has_no_reading(self, value):
        with pytest.raises(RowError, match="message|videos"):
            content(["What?", value] if isinstance(value, dict) else value)

    @pytest.mark.parametrize("role", ["user", "assistant"])
    @pytest.mark.parametrize("value", [None, [], "", " \n", [None], {"type": "text", "text": ""}])
    def test_empty_messages(self, role, value):
        with pytest.raises(RowError, match=f"an empty {role} message"):
            content(value, role)
        assert content(value, "tool")[0].strip() == content(value, "system")[0].strip() == ""

    @pytest.mark.parametrize("name", ["text", "value", "reasoning_content", "function_call", "images"])
    def test_what_stands_beside_the_content(self, name):
        message = {"role": "assistant", "content": "a"}
        with pytest.raises(RowError, match=f"a message has {name} beside its content"):
            read_messages([{**message, name: ["b"]}], "messages")
        assert read_messages([{**message, name: None, "weight": 1}], "messages")[0] == [message]


class TestToolCalls:
    CALL = '<tool_call>\n{"name": "crop_video", "arguments": {"start_time": 1}}\n</tool_call>'

    @pytest.mark.parametrize(
        "call",
        [
            {"name": "crop_video", "arguments": {"start_time": 1, "x": None}},
            {"name": "crop_video", "parameters": {"start_time": 1}},
            {"id": "1", "type": "function", "function": {"name": "crop_video", "arguments": '{"start_time": 1}'}},
        ],
    )
    def test_shapes(self, call):
        for calls in (call, [call], json.dumps([call])):
            (message,), _ = read_messages([{"role": "assistant", "content": None, "tool_calls": calls}], "messages")
            assert message["content"] == self.CALL

    @pytest.mark.parametrize(
        "call",
        [
            None,
            "crop_video",
            {"name": "crop_video", "start_time": 1},
            {"name": None, "arguments": {}},
            {"name": "crop_video", "arguments": {}, "parameters": {}},
            {"name": "crop_video", "arguments": [1]},
        ],
    )
    def test_what_has_no_reading(self, call):
        with pytest.raises(RowError, match="tool call"):
            read_messages([{"role": "assistant", "content": "a", "tool_calls": [call]}], "messages")


class TestPrompts:
    MESSAGE = {"role": "user", "content": "What?"}

    @pytest.mark.parametrize(
        "prompt",
        [
            "What?",
            MESSAGE,
            [MESSAGE],
            json.dumps([MESSAGE]),
            json.dumps(MESSAGE),
            written([MESSAGE]),
            json.dumps(written([MESSAGE])),
            str([MESSAGE]),
            np.array([MESSAGE]),
        ],
    )
    def test_shapes(self, prompt):
        assert read_prompt({"prompt": prompt}) == ([self.MESSAGE], [])

    def test_a_completion_may_be_one_text(self):
        assert read_messages("a", "completion")[0] == [{"role": "assistant", "content": "a"}]

    @pytest.mark.parametrize(
        "prompt, cause",
        [
            (None, "no prompt"),
            ("", "no prompt"),
            ([], "no prompt"),
            (5, "no prompt"),
            ("[{", "not valid JSON"),
            (json.dumps("[{"), "not valid JSON"),
            ([None], "without a known role"),
            (["What?"], "without a known role"),
            ([{"role": "robot", "content": "x"}], "without a known role"),
            ([{"role": "user", "text": "What?"}], "a message has text beside its content"),
            ([{"role": "system", "content": "x"}], "no user message"),
            ("<video>", "no question"),
            ([{"role": "user", "content": {"type": "video", "video": "a.mp4"}}], "no question"),
        ],
    )
    def test_what_has_no_reading(self, prompt, cause):
        with pytest.raises(RowError, match=cause):
            read_prompt({"prompt": prompt})

    def test_videos_of_a_column_come_before_those_in_messages(self):
        prompt = [{"role": "user", "content": [{"video": "c.mp4"}, "What?"]}]
        for columns, paths in (
            ({"videos": ["a.mp4"], "video": "b.mp4"}, ["a.mp4"]),
            ({"videos": None, "video": "b.mp4"}, ["b.mp4"]),
            ({}, ["c.mp4"]),
        ):
            assert read_prompt({"prompt": prompt, **columns})[1] == paths


@pytest.mark.parametrize("value", [None, "", " ", [], {}, [None, ""], {"url": {"url": None}}, float("nan"), ((),)])
def test_blank(value):
    assert is_blank(value) and not is_blank([value, 0]) and not is_blank({"a": value, "b": False})
