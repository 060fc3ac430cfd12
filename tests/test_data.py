import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from paravt.data import load_rows


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
        rows = [rl_row("cfr.mp4")] * 90 + [
            rl_row("missing.mp4"),
            rl_row("missing2.mp4"),
            rl_row("page.mp4"),
            rl_row("cfr.mp4", "essay"),
            rl_row("cfr.mp4", "mcq", "E"),
            rl_row("cfr.mp4", "tvg", "5 - 5"),
            rl_row("cfr.mp4", "tvg", "50 - 60"),
            rl_row("cfr.mp4", "oe", ""),
            {"videos": []},
            {**rl_row("cfr.mp4"), "videos": None},
        ]
        said = []
        found = load_rows(save(rows, tmp_path / "a.jsonl"), video_root=str(clips), max_bad=0.1, report=said.append)
        assert len(found) == 90
        for cause in (
            "10 of 100 rows left out",
            "2 x video not found",
            "1 x video cannot be opened",
            "question_type 'essay'",
            "none of the choices",
            "no interval",
            "starts after the end",
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
