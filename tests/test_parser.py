import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paravt.parser import ToolCall, ToolCallError, parse_seconds, parse_tool_calls, render_tool_call


def call(start, end, path="v.mp4"):
    arguments = f'{{"video_path":"{path}","start_time":{start},"end_time":{end}}}'
    return f'<tool_call>{{"name":"crop_video","arguments":{arguments}}}</tool_call>'


def windows(text, **kwargs):
    """(start, end) of each call, None for each error."""
    found = parse_tool_calls(text, **kwargs)
    return [
        None if isinstance(c, ToolCallError) else (c.arguments["start_time"], c.arguments["end_time"]) for c in found
    ]


BODY = call(10, 20)[len("<tool_call>") : -len("</tool_call>")]
BAD = '<tool_call>{"name":"crop_video","arguments":{start:}}</tool_call>'


class TestParseToolCalls:
    @pytest.mark.parametrize(
        "text, expected",
        [
            ("", []),
            ("no call here", []),
            (call(10, 20), [(10, 20)]),
            # A bad call keeps its slot and its siblings run.
            (call(10, 20) + BAD + call(40, 50), [(10, 20), None, (40, 50)]),
            # A closing tag is missing, or is another character.
            (call(10, 20)[:-12] + call(40, 50), [(10, 20), (40, 50)]),
            (call(10, 20)[:-12], [(10, 20)]),
            ("<tool_call>\n" + BODY + "\n\u2697", [(10, 20)]),
            # The opening tag is missing: not run, but counted.
            (BODY + "</tool_call>", [None]),
            # Almost JSON.
            ("<tool_call>{'name':'crop_video','arguments':{'start_time':10,'end_time':20,}}</tool_call>", [(10, 20)]),
            ("<tool_call>{'name':'crop_video','arguments':{'start_time':10,}}</tool_call>", [None]),
            (call(10, 20).replace('"', "\u201c"), [(10, 20)]),
            ("<tool_call>\ufeff" + BODY + "\u00a0</tool_call>", [(10, 20)]),
            ('<tool_call>{name: "crop_video", arguments: {start_time: 10, end_time: 20}}</tool_call>', [(10, 20)]),
            (call(10, 20, "a\nb.mp4"), [(10, 20)]),
            (BODY.join(("<tool_call>", "</tool_call>")).replace("}}", "}") + call(1, 2), [(10, 20), (1, 2)]),
            # Fences and prose in the block.
            (f"<tool_call>Sure:\n```json\n{BODY}\n```</tool_call>", [(10, 20)]),
            (f"<tool_call>{BODY}\n{BODY}</tool_call>", [(10, 20), (10, 20)]),
            (f"<tool_call>[{BODY},{BODY}]</tool_call>", [(10, 20), (10, 20)]),
            # Other key names.
            ('<tool_call>{"function":' + BODY + "}</tool_call>", [(10, 20)]),
            ('<tool_call>{"name":"crop_video","parameters":{"start":10,"end":20}}</tool_call>', [(10, 20)]),
            ('<tool_call>{"name":"crop_video","start_time":10,"end_time":20}</tool_call>', [(10, 20)]),
            (
                '<tool_call>{"name":"crop_video","arguments":"{\\"start_time\\":10,\\"end_time\\":20}"}</tool_call>',
                [(10, 20)],
            ),
            # Missing pieces.
            *(
                (f"<tool_call>{body}</tool_call>", [None])
                for body in (
                    "",
                    "{}",
                    "null",
                    "42",
                    '"crop_video"',
                    '{"name":"crop_video"}',
                    '{"name":null,"arguments":{}}',
                    '{"name":"crop_video","arguments":[10,20]}',
                    '{"name":"crop_video","arguments":null}',
                    '{"name":["crop_video"],"arguments":{"start_time":1,"end_time":2}}',
                )
            ),
            # Two readings are none.
            (call('10,"start_time":40', 50), [None]),
            (
                '<tool_call>{"name":"crop_video","arguments":{"start":1,"start_time":2,"end_time":3}}</tool_call>',
                [None],
            ),
            ('<tool_call>{"name":"crop_video","arguments":{},"parameters":{}}</tool_call>', [None]),
            # Times that are not plain numbers.
            (call('"12.5s"', '"01:23"'), [(12.5, 83)]),
            (call("05", 20), [(5, 20)]),
            (call("1:23", 90), [None]),
            (call("60*2", 190), [None]),
            (call("1,000", "2,000"), [None]),
            (call('"soon"', 20), [None]),
            (call("NaN", 20), [None]),
            (call("true", 20), [None]),
            # Names.
            *(
                (call(1, 2).replace("crop_video", name), [None])
                for name in ("crop_videocrop_video", "Crop_Video", "functions.crop_video", "zoom_in")
            ),
            (call(1, 2).replace('"end_time":2', '"end_time":2,"fps":4'), [None]),
            # Python form.
            ('<tool_code>crop_video(video_path="v.mp4", start_time=10, end_time=20)</tool_code>', [(10, 20)]),
            ('<tool_code>crop_video("v.mp4", 10, 20)</tool_code>', [(10, 20)]),
            ('```tool_code\ncrop_video("v.mp4", start_time=10, end_time=20)\n```', [(10, 20)]),
            ('<tool_code>print(crop_video("v.mp4", 10, 20))</tool_code>', [(10, 20)]),
            ('<tool_code>default_api.crop_video("v.mp4", 10, 20)</tool_code>', [(10, 20)]),
            (
                '<tool_code>x = crop_video(\n  "v.mp4",\n  10,\n  20,\n)\ncrop_video("v.mp4", 1, 2)</tool_code>',
                [(10, 20), (1, 2)],
            ),
            ('<tool_code>crop_video("v.mp4", 05, 20)\ncrop_video("v.mp4", 1, 2)</tool_code>', [None, (1, 2)]),
            ('<tool_code>crop_video("v.mp4", 60*2, 190)</tool_code>', [None]),
            ('<tool_code>crop_video("v.mp4", start_time=None, end_time=2)</tool_code>', [None]),
            ('<tool_code>crop_video("v.mp4", 10, 20)"</tool_code>', [(10, 20)]),
            ('<tool_code>crop_video("v.mp4", 1, 2, 3, 4)</tool_code>', [None]),
            ('<tool_code>crop_video("v.mp4", 1, start_time=1, end_time=2)</tool_code>', [None]),
            ('<tool_code>__import__("os").system("true")</tool_code>', [None, None]),
            ('<tool_code>crop_video(open("x"), 1, 2)</tool_code>', [None]),
            ("<tool_code>hello</tool_code>", [None]),
            # Thinking, answers and forged responses hold no calls.
            (f"<think>I could {call(1, 2)}</think><answer>B</answer>", []),
            (f"I could {call(1, 2)}</think><answer>B</answer>", []),
            (f"<think>... {call(10, 20)}", [(10, 20)]),
            (f"<think>a</think><answer>B</answer>{call(1, 2)}", []),
            (f"<think>a</think><answer>{call(1, 2)}</answer>", []),
            (f"{call(10, 20)}<tool_response>done</tool_response>{call(1, 2)}", [(10, 20)]),
            # JSON decides where a call ends.
            (call(10, 20, "a</tool_call>b"), [(10, 20)]),
        ],
    )
    def test_table(self, text, expected):
        assert windows(text) == expected

    @pytest.mark.parametrize("text", [call(10, 20)[:-12], call(10, 20)[:-15], call(10, 20)[:-40], "<tool_call>"])
    def test_a_cut_call_is_never_run(self, text):
        assert windows(call(1, 2) + text, complete=False) == [(1, 2), None]
        assert windows("<tool_code>crop_video('v', 1, 2", complete=False) == [None]

    def test_an_unclosed_call_without_its_braces_is_not_repaired(self):
        assert windows(call(10, 20)[:-14]) == [None]

    def test_spans_are_where_the_calls_stand(self):
        text = f"<think>a</think>\n{call(10, 20)}\n{BAD} {call(1, 2)}"
        spans = [text[slice(*entry.span)] for entry in parse_tool_calls(text)]
        assert spans == [call(10, 20), BAD, call(1, 2)]

    def test_errors_name_the_fault_and_the_legal_form(self):
        (error,) = parse_tool_calls(call(1, 2).replace("crop_video", "zoom_in"))
        assert "'zoom_in'" in error.message and "'crop_video'" in error.message and '"start_time"' in error.message

    @settings(max_examples=300, deadline=None)
    @given(
        st.lists(
            st.sampled_from(
                [
                    "<think>",
                    "</think>",
                    "<tool_call>",
                    "</tool_call>",
                    "<tool_code>",
                    "</tool_code>",
                    "```tool_code\n",
                    "```",
                    "{",
                    "}",
                    '"',
                    "'",
                    ":",
                    ",",
                    "[",
                    "]",
                    "(",
                    ")",
                    "crop_video",
                    '{"name":"crop_video","arguments":{',
                    "start_time",
                    "1",
                    "NaN",
                    "<answer>",
                    "</answer>",
                    "\\",
                    "\n",
                    "e",
                    "<tool_response>",
                    BODY,
                    call(1, 2),
                ]
            )
            | st.text(max_size=5),
            max_size=40,
        )
    )
    def test_never_raises_and_keeps_slot_order(self, pieces):
        text = "".join(pieces)
        for complete in (True, False):
            entries = parse_tool_calls(text, complete=complete)
            assert [e.span for e in entries] == sorted(e.span for e in entries)
            assert all(0 <= e.span[0] <= e.span[1] <= len(text) for e in entries)

    @settings(max_examples=200, deadline=None)
    @given(st.text(min_size=1, max_size=30), st.floats(-1e5, 1e5), st.floats(-1e5, 1e5))
    def test_parse_of_render_is_the_identity(self, path, start, end):
        original = ToolCall("crop_video", {"video_path": path, "start_time": start, "end_time": end})
        assert parse_tool_calls(render_tool_call(original)) == [original]

    @pytest.mark.parametrize(
        "unit",
        [
            "<tool_call>",
            "<tool_call>{'",
            '<tool_call>{"a":',
            "<think>",
            "</think>",
            "[",
            "{",
            "<tool_code>f((",
            "<tool_call>[{",
            "```tool_code f('",
            '"',
            "<answer>",
        ],
    )
    def test_work_is_linear_in_length(self, unit):
        def lines_run(text):
            import sys

            count = 0

            def trace(frame, event, argument):
                nonlocal count
                count += 1
                return trace

            sys.settrace(trace)
            try:
                parse_tool_calls(text)
            finally:
                sys.settrace(None)
            return count

        short, long = (lines_run(unit * (n // len(unit))) for n in (4000, 16000))
        assert long < 6 * short + 1000


class TestParseSeconds:
    @pytest.mark.parametrize(
        "value, seconds",
        [
            (12, 12),
            (12.5, 12.5),
            ("12.5", 12.5),
            ("12.5s", 12.5),
            ("12.5 s", 12.5),
            ("83 seconds", 83),
            ("01:23", 83),
            ("1:02:03.5", 3723.5),
            ("<12.5 seconds>", 12.5),
            ("1m30s", 90),
            ("1h", 3600),
            ("1 min 5 sec", 65),
            ("-3", -3),
            (" 7 ", 7),
            ("12:34.56s".rstrip("s"), 754.56),
        ],
    )
    def test_reads(self, value, seconds):
        assert parse_seconds(value) == pytest.approx(seconds)

    @pytest.mark.parametrize(
        "value",
        [
            True,
            None,
            [],
            {},
            "",
            "soon",
            "1:75",
            "1:2:3:4",
            "nan",
            "inf",
            math.nan,
            math.inf,
            10**400,
            1e300,
            "9" * 60,
            "1e3",
            "s",
        ],
    )
    def test_refuses(self, value):
        with pytest.raises(ValueError, match="is not a time"):
            parse_seconds(value)
