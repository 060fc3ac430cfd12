import json

import pytest
from conftest import read_barcode, write_clip

from paravt.tools import CropVideo, ToolCall, ToolError, resolve, video_names


class TestVideoNames:
    @pytest.mark.parametrize(
        "paths, names",
        [
            (["/v/a.mp4"], ["a.mp4"]),
            (["/v/a.mp4", "/v/b.mp4"], ["a.mp4", "b.mp4"]),
            (["/v/a/video.mp4", "/v/b/video.mp4"], ["a/video.mp4", "b/video.mp4"]),
            (["/x/a/v.mp4", "/y/a/v.mp4", "/x/a/w.mp4"], ["x/a/v.mp4", "y/a/v.mp4", "w.mp4"]),
            (["v.mp4", "a/v.mp4"], ["v.mp4", "a/v.mp4"]),
            (["/v/a.mp4", "/v/a.mp4"], ["a.mp4", "a.mp4 (2)"]),
            (["/v/a.mp4", "/v/a.mp4", "/w/a.mp4 (2)"], ["a.mp4", "a.mp4 (3)", "a.mp4 (2)"]),
            (["/v/a.mp4", "/w/a.mp4 (2)", "/v/a.mp4", "/v/a.mp4"], ["a.mp4", "a.mp4 (2)", "a.mp4 (3)", "a.mp4 (4)"]),
            (["a/v.mp4"] * 2 + ["b/v.mp4"] * 2, ["a/v.mp4", "a/v.mp4 (2)", "b/v.mp4", "b/v.mp4 (2)"]),
            ([], []),
        ],
    )
    def test_table(self, paths, names):
        assert video_names(paths) == names


class TestCropVideo:
    def windows(self, videos, start, end, *settings, **named):
        call = ToolCall("crop_video", {"start_time": start, "end_time": end, **named})
        return resolve(call, [str(video) for video in videos], *settings)

    def test_effective_windows(self, clips):
        videos = [clips / "cfr.mp4"]
        crop = self.windows(videos, -3.0, 2.0)
        assert (crop.start, crop.end) == (0, 2) and "lasts 10.0" in crop.note
        assert (self.windows(videos, 8.0, 99.0).end, self.windows(videos, 2.0, 4.0).note) == (10.0, "")
        assert len(self.windows(videos, 0.0, 10.0).times) == 10  # 1 frame a second
        assert len(self.windows(videos, 0.0, 10.0, 1.0, 4).times) == 4
        assert len(self.windows(videos, 3.001, 3.002).times) == 1

    @pytest.mark.parametrize("start, end", [(20.0, 10.0), (5.0, 5.0), (10.0, 12.0), (-5.0, -1.0)])
    def test_bad_windows_state_the_duration(self, clips, start, end):
        with pytest.raises(ToolError, match="lasts 10.0 seconds"):
            self.windows([clips / "cfr.mp4"], start, end)

    @pytest.mark.parametrize(
        "name",
        ["concat:/x.ts|/y.ts", "http://127.0.0.1:9/x.mp4", "../../etc/passwd", "/elsewhere/cfr.mp4", "", "b.mp4"],
    )
    def test_the_model_never_chooses_a_file(self, clips, name):
        with pytest.raises(ToolError, match=r"'cfr.mp4', 'vfr.mp4'"):
            self.windows([clips / "cfr.mp4", clips / "vfr.mp4"], 1.0, 2.0, video_path=name)

    def test_fault_10_the_named_video_is_cropped(self, clips, tmp_path):
        other = write_clip(tmp_path / "other.mp4", 60)
        tool = CropVideo()
        tool.reset([{"video": str(clips / "cfr.mp4")}, {"video": other}])
        parts = tool.crop_video("other.mp4", 1.0, 2.0)
        assert [read_barcode(p["image"]) for p in parts if p["type"] == "image"] == [45]
        assert tool.crop_video("cfr.mp4", 8.0, 9.0)[2]["image"].size == (192, 96)
        with pytest.raises(ToolError, match="names no video"):
            self.windows([clips / "cfr.mp4", other], 1.0, 2.0)

    def test_the_videos_of_a_row_in_every_shape(self, clips):
        path, tool = str(clips / "cfr.mp4"), CropVideo()
        for videos in (path, [path], [[path]], {"video": path}, [{"path": path}], json.dumps([{"video": path}])):
            tool.reset(videos=videos, prompt="What?")
            assert [part["type"] for part in tool.crop_video("cfr.mp4", 1.0, 2.0)] == ["text", "text", "image"]
        for videos, said in ((5, "int is no path: 5"), ([{"fps": 7}], r"without a path: \[{'fps': 7}\]")):
            with pytest.raises(ValueError, match=said):
                tool.reset(videos=videos)
        tool.reset()
        with pytest.raises(ToolError, match="no video 'cfr.mp4'"):
            tool.crop_video("cfr.mp4", 1.0, 2.0)

    def test_two_videos_of_one_name_can_both_be_called(self, tmp_path):
        paths = []
        for folder, count in (("a", 60), ("b", 90)):
            (tmp_path / folder).mkdir()
            paths.append(write_clip(tmp_path / folder / "video.mp4", count))
        for name, path in zip(("a/video.mp4", "b/video.mp4"), paths, strict=True):
            assert self.windows(paths, 0.5, 1.0, video_path=name).path == path
        with pytest.raises(ToolError, match="no video 'video.mp4'; the videos are 'a/video.mp4', 'b/video.mp4'"):
            self.windows(paths, 0.5, 1.0, video_path="video.mp4")
        for name in ("video.mp4", "video.mp4 (2)"):
            assert self.windows([paths[0]] * 2, 0.5, 1.0, video_path=name).path == paths[0]

    def test_schema_is_what_trl_reads_from_the_method(self):
        from transformers.utils import get_json_schema

        from paravt.prompts import TOOL

        schema = get_json_schema(CropVideo().crop_video)["function"]
        assert schema["name"] == TOOL["function"]["name"]
        assert json.dumps(schema["parameters"]["required"]) == json.dumps(TOOL["function"]["parameters"]["required"])
