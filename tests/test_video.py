import multiprocessing
import os
import subprocess
import sys

import av
import numpy as np
import pytest
from conftest import ffmpeg, read_barcode
from PIL import Image

from paravt import video
from paravt.video import VideoError, clip, decode, index, jobs, probe, read_frames, sample_times, timeline


def barcodes(path, times, **kwargs):
    return [read_barcode(image) for image in read_frames(str(path), times, **kwargs).images]


class TestProbe:
    @pytest.mark.parametrize(
        "name, frames, duration",
        [
            ("cfr.mp4", 300, 10),
            ("vfr.mp4", 155, 9 + 1 / 30),
            ("editlist.mp4", 69, 2.3),
            ("start5.ts", 300, 10),
            ("start5.mkv", 300, 10),
            ("start5.mp4", 300, 10),
            ("live.webm", 300, 10),
            ("bframes.mp4", 300, 10),
            ("n1.mp4", 1, 1 / 30),
        ],
    )
    def test_reports_what_is_shown(self, clips, name, frames, duration):
        info = probe(str(clips / name))
        assert (info.num_frames, info.width, info.height) == (frames, 192, 96)
        assert info.duration == pytest.approx(duration, abs=0.002)

    def test_many_files_are_read_once_and_errors_are_theirs(self, clips, monkeypatch):
        paths = [str(clips / name) for name in ("cfr.mp4", "page.mp4", "missing.mp4", "vfr.mp4", "cfr.mp4")]
        first = video.probe_many(paths)
        assert [isinstance(first[p], VideoError) for p in paths] == [False, True, True, False, False]
        scanned = []
        schedule = timeline.schedule
        monkeypatch.setattr(timeline, "schedule", lambda f, *a: scanned.append(a[0]) or schedule(f, *a))
        again = video.probe_many(paths)
        assert scanned == [str(clips / "page.mp4")] and again[paths[0]] == first[paths[0]]

    def test_a_large_file_is_indexed_in_parts(self, clips, tmp_path, monkeypatch):
        """Fragments, edit lists, damage and files cut short included, the index is that of one reading."""
        ffmpeg("-i", clips / "cfr.mp4", "-c", "copy", "-movflags", "frag_keyframe", tmp_path / "fragments.mp4")
        ffmpeg("-ss", "3.3", "-i", clips / "cfr.mp4", "-c", "copy", tmp_path / "edit.mp4")
        data = (clips / "faststart.mp4").read_bytes()
        (tmp_path / "short.mp4").write_bytes(data[: len(data) * 4 // 10])
        monkeypatch.setattr(timeline, "LARGE", 1)
        shares = {}
        for path in [*sorted(clips.glob("*")), *sorted(tmp_path.glob("*"))]:
            try:
                whole = index.scan(str(path))
            except VideoError as error:
                with pytest.raises(VideoError, match=error.reason.split("(")[0].strip()):
                    probe(str(path))
                continue
            timeline._indices.clear()
            found = timeline.find_index(str(path))[1]
            assert found.info == whole.info and found.format == whole.format and found.time_base == whole.time_base
            for name in ("pts", "starts", "entry", "checks"):
                assert np.array_equal(getattr(found, name), getattr(whole, name))
            try:
                shares[path.name] = [len(index.read_packets(str(path), part, 3).pts) for part in range(3)]
            except index.CutError:
                shares[path.name] = None
        timeline._indices.clear()
        if "index_entries" in dir(av.VideoStream):  # PyAV 16
            assert sum(shares["cfr.mp4"]) == 300 and min(shares["cfr.mp4"]) > 60
        assert shares["live.webm"] == [300, 0, 0]

    def test_rotation_is_upright(self, clips):
        info = probe(str(clips / "rotated.mp4"))
        assert (info.width, info.height, info.rotation) == (96, 192, 90)

    def test_cover_art_is_no_video(self, clips, tmp_path):
        Image.new("RGB", (64, 64)).save(tmp_path / "cover.png")
        ffmpeg(
            "-i",
            clips / "audio.mp4",
            "-i",
            tmp_path / "cover.png",
            "-map",
            "0",
            "-map",
            "1",
            "-c:a",
            "copy",
            "-c:v",
            "png",
            "-disposition:v:0",
            "attached_pic",
            tmp_path / "song.mp4",
        )
        with pytest.raises(VideoError, match="no video stream"):
            probe(str(tmp_path / "song.mp4"))


class TestReadFrames:
    @pytest.mark.parametrize("backend", ["pyav", "decord"])
    @pytest.mark.parametrize(
        "name, times, expected",
        [
            ("cfr.mp4", [0, 1, 5.51, 9.99], [0, 30, 165, 299]),
            ("longgop.mp4", [9.99, 0.5, 5.0], [299, 15, 150]),  # in the order asked for
            ("bframes.mp4", [0.6, 1.87, 3.1, 4.37], [18, 56, 93, 131]),
            ("vfr.mp4", [4.99, 5.5, 6.0, 8.99, 9.0], [149, 150, 151, 153, 154]),
            ("editlist.mp4", [0.0, 1.0, 2.29], [231, 261, 299]),
            ("start5.ts", [0.0, 1.99, 7.0], [0, 59, 210]),
            ("start5.mkv", [0.0, 1.99], [0, 59]),
            ("start5.mp4", [0.0, 1.99], [0, 59]),
            ("vp9.webm", [0.0, 3.1, 9.9], [0, 93, 297]),
            ("live.webm", [0.0, 3.1, 9.9], [0, 93, 297]),
            ("cfr.mp4", [2.0, 2.0, 2.01], [60, 60, 60]),
        ],
    )
    def test_the_frame_on_screen(self, clips, backend, name, times, expected):
        assert barcodes(clips / name, times, backend=backend) == expected

    def test_every_frame(self, clips):
        times = [i / 30 + 0.01 for i in range(300)]
        for name in ("cfr.mp4", "bframes.mp4"):
            assert barcodes(clips / name, times) == list(range(300))

    def test_repeatable(self, clips):
        found = set()
        for _ in range(100):
            jobs._recent.clear()
            found.add(tuple(image.tobytes() for image in read_frames(str(clips / "bframes.mp4"), [0.4, 3.3]).images))
        assert len(found) == 1

    def test_an_edit_list_that_ends_early(self, clips, tmp_path):
        """Its header promises 300 frames of which 90 are shown."""
        data = bytearray((clips / "cfr.mp4").read_bytes())
        at = data.index(b"elst") + 12  # after the name, the version and the number of entries
        scale = data.index(b"mvhd") + 16
        seconds = 3 * int.from_bytes(data[scale : scale + 4], "big")
        data[at : at + 4] = seconds.to_bytes(4, "big")
        (tmp_path / "short.mp4").write_bytes(data)
        info = probe(str(tmp_path / "short.mp4"))
        assert info.num_frames == pytest.approx(90, abs=2) and info.duration == pytest.approx(3, abs=0.1)
        assert barcodes(tmp_path / "short.mp4", [0.0, 1.5, 2.9]) == [0, 45, 87]
        with pytest.raises(VideoError, match="lasts 3"):
            read_frames(str(tmp_path / "short.mp4"), [5.0])

    @pytest.mark.parametrize("backend", ["pyav", "decord"])
    def test_av1(self, clips, tmp_path, backend):
        encode = ["-c:v", "libsvtav1", "-preset", "12", "-t", "2"]
        ffmpeg("-i", clips / "cfr.mp4", *encode, tmp_path / "av1.mp4")
        assert barcodes(tmp_path / "av1.mp4", [0.0, 1.0, 1.9], backend=backend) == [0, 30, 57]

    def test_returns_the_times_of_its_frames(self, clips):
        frames = read_frames(str(clips / "vfr.mp4"), [5.5, 6.2])
        assert frames.times == pytest.approx([5.0, 6.0])

    def test_the_end(self, clips):
        assert barcodes(clips / "cfr.mp4", [10.0, 10.03]) == [299, 299]
        for bad in (10.5, -0.1, float("nan")):
            with pytest.raises(VideoError, match="lasts 10.00 s"):
                read_frames(str(clips / "cfr.mp4"), [bad])

    def test_rotated_frames_equal_those_of_ffmpeg(self, clips, tmp_path):
        ffmpeg("-i", clips / "rotated.mp4", "-vf", "select=eq(n\\,100)", "-vframes", "1", tmp_path / "truth.png")
        (image,) = read_frames(str(clips / "rotated.mp4"), [100 / 30]).images
        assert np.array_equal(np.asarray(image), np.asarray(Image.open(tmp_path / "truth.png").convert("RGB")))

    def test_sizes_suit_the_model(self, clips):
        (image,) = read_frames(str(clips / "cfr.mp4"), [1.0], max_pixels=8192).images
        assert image.size == (128, 64) and read_barcode(image) == 30
        assert read_frames(str(clips / "n3.mp4"), [0.0], max_pixels=10**6).images[0].size == (192, 96)
        assert video.fit_size(8, 8, 50176) == (32, 32)
        assert video.fit_size(1920, 1080, 50176) == (288, 160)
        with pytest.raises(VideoError, match="2048 x 8"):
            read_frames(str(clips / "thin.mp4"), [0.0], max_pixels=50176)

    def test_backends_are_named(self, clips):
        with pytest.raises(VideoError, match="'pyav', 'decord'"):
            read_frames(str(clips / "cfr.mp4"), [0.0], backend="opencv")


class TestBadFiles:
    @pytest.mark.parametrize(
        "name, cause",
        [
            ("empty.mp4", "0 bytes"),
            ("page.mp4", "a web page"),
            ("truncated.mp4", "incomplete or damaged MP4"),
            ("audio.mp4", "no video stream"),
            ("raw.h264", "no time stamps"),
            ("missing.mp4", "not found"),
            ("", "not a regular file"),
        ],
    )
    def test_causes(self, clips, name, cause):
        with pytest.raises(VideoError, match=cause) as raised:
            read_frames(str(clips / name), [0.0])
        assert str(clips) in str(raised.value)

    def test_damage_costs_only_the_frames_it_touches(self, clips):
        assert barcodes(clips / "damaged.mp4", [0.5, 2.0]) == [15, 60]
        with pytest.raises(VideoError, match="damaged: 1 of 2 frames"):
            read_frames(str(clips / "damaged.mp4"), [0.5, 6.2])

    def test_no_protocol_is_opened(self, clips, tmp_path):
        for name in (
            "http://127.0.0.1:9/x.mp4",
            f"concat:{clips}/cfr.mp4|{clips}/cfr.mp4",
            f"file:{clips}/cfr.mp4",
            "pipe:0",
        ):
            with pytest.raises(VideoError, match="not found"):
                probe(name)
        os.mkfifo(tmp_path / "pipe.mp4")
        with pytest.raises(VideoError, match="not a regular file"):
            probe(str(tmp_path / "pipe.mp4"))

    def test_paths(self, clips, tmp_path):
        data = (clips / "n3.mp4").read_bytes()
        for name in (
            "dir with space/a b.mp4",
            "100%20 off.mp4",
            "q#1?.mp4",
            "it's.mp4",
            "\u65e5\u672c\u8a9e.mp4",
            "concat:a|b.mp4",
        ):
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            assert probe(str(path)).num_frames == 3
            assert probe(f"file://{path}").num_frames == 3
        assert probe(f"file://{tmp_path}/dir%20with%20space/a%20b.mp4").num_frames == 3


class TestWorkers:
    # The first holds the interpreter lock, as a decoder in C may.
    @pytest.mark.parametrize(
        "work, cause",
        [
            ("sum(range(10**12))", "longer than"),
            ("__import__('os').abort()", "crashed"),
            ("__import__('os').kill(__import__('os').getpid(), 9)", "crashed"),  # as the kernel does without memory
            ("bytearray(2**60)", "MemoryError"),
        ],
    )
    def test_a_decoder_that_hangs_or_dies_is_an_error_and_the_next_decode_works(self, clips, monkeypatch, work, cause):
        if cause == "longer than":  # a worker on a busy machine must have its time to crash
            monkeypatch.setattr(timeline, "TIMEOUT", 1.0)
        before = sum(timeline.failures.values())
        with pytest.raises(VideoError, match=cause):
            timeline.result(timeline.schedule(eval, work), "x.mp4")
        assert sum(timeline.failures.values()) == before + 1
        monkeypatch.undo()
        assert barcodes(clips / "cfr.mp4", [3.0]) == [90]

    def test_workers_load_neither_torch_nor_the_main_script(self):
        loaded = timeline.result(timeline.schedule(eval, "list(__import__('sys').modules)"), "")
        heavy = {"torch", "transformers", "PIL", "pytest", "conftest"}
        assert "paravt.video.workers" in loaded and not heavy & set(loaded)

    def test_many_crops_at_once(self, clips):
        path = str(clips / "longgop.mp4")
        made = [clip(path, [i + 0.02, i + 0.52]).prefetch() for i in range(9)]
        assert [read_barcode(f) for c in made for f in c.frames] == [
            b for i in range(9) for b in (30 * i, 30 * i + 15)
        ]

    def test_threads_may_ask_at_once(self, clips):
        from concurrent.futures import ThreadPoolExecutor

        path = str(clips / "bframes.mp4")
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda i: barcodes(path, [i / 8 + 0.03, 9 - i / 8 + 0.03]), range(64)))
        assert found == [[int(30 * (i / 8 + 0.03) + 1e-6), int(30 * (9 - i / 8 + 0.03) + 1e-6)] for i in range(64)]

    def test_hundreds_of_crops_leave_memory_as_it_was(self, clips):
        def resident():
            texts = [timeline.schedule(eval, "open('/proc/self/status').read()").result() for _ in range(8)]
            texts.append(open("/proc/self/status").read())
            return [int(text.split("VmRSS:")[1].split()[0]) / 1024 for text in texts]

        def crops(count):
            for i in range(count):
                jobs._recent.clear()
                assert len(read_frames(str(clips / "cfr.mp4"), [i % 9 + j / 4 for j in range(4)]).images) == 4

        crops(200)
        before = resident()
        crops(600)
        after = resident()
        # Allocators settle by some 10 MiB. Pixels alone of 300 crops, a worker's share, would be 60.
        assert max(after[:-1]) < max(before[:-1]) + 30 and after[-1] < before[-1] + 30, (before, after)

    def test_a_forked_process_that_has_read_frames_ends(self, clips):
        """It stops its own workers: the worker of a data loader would be waited for, and killed."""
        child = multiprocessing.get_context("fork").Process(target=barcodes, args=(clips / "cfr.mp4", [1.0]))
        child.start()
        child.join(timeout=120)
        assert child.exitcode == 0

    def test_data_loader_workers(self, clips):
        from torch.utils.data import DataLoader

        path = str(clips / "cfr.mp4")
        assert barcodes(path, [1.0]) == [30]  # the parent's pool exists before the fork
        loader = DataLoader([1.0, 2.0, 3.0, 4.0], num_workers=2, collate_fn=lambda t: barcodes(path, t), timeout=60)
        assert [b for batch in loader for b in batch] == [30, 60, 90, 120]


class TestLazyFrames:
    def test_decode_once_and_share(self, clips, monkeypatch):
        count = 0
        schedule = timeline.schedule
        jobs._recent.clear()

        def counted(function, *args):
            nonlocal count
            count += function is decode.decode
            return schedule(function, *args)

        monkeypatch.setattr(timeline, "schedule", counted)
        frames = [f for _ in range(8) for f in clip(str(clips / "cfr.mp4"), [4.1, 4.7]).frames]
        assert count == 0 and [round(f.time, 2) for f in frames[:2]] == [4.1, 4.7]
        assert [read_barcode(f) for f in frames] == [123, 141] * 8 and count == 1

    def test_copies_and_pickles_carry_no_pixels(self, clips):
        import copy
        import pickle

        (frame,) = clip(str(clips / "cfr.mp4"), [6.0]).frames
        frame.load()
        assert copy.deepcopy(frame) is frame and len(pickle.dumps(frame)) < 1000
        assert pickle.loads(pickle.dumps(frame)) is frame  # in the same process an equal request is shared

    def test_a_request_is_its_window_and_size(self, clips):
        path = str(clips / "cfr.mp4")
        requests = [clip(path, [1.0]), clip(path, [2.0]), clip(path, [1.0], 8192), clip(path, [1.0, 2.0])]
        assert len({id(c) for c in requests}) == 4 and clip(path, [1.0]) is requests[0]

    def test_stand_in_pixels_do_not_outlive_their_batch(self, clips):
        broken = clip(str(clips / "damaged.mp4"), [6.2])
        broken.fill()
        assert broken.frames[0].getpixel((0, 0)) == (127, 127, 127)
        broken.release()
        with pytest.raises(VideoError, match="damaged"):
            clip(str(clips / "damaged.mp4"), [6.2]).load()

    def test_cache_is_bounded(self, clips, monkeypatch):
        monkeypatch.setattr(jobs, "CACHE_BYTES", 3 * 192 * 96 * 3)
        for i in range(20):
            clip(str(clips / "cfr.mp4"), [i / 3]).load()
        assert len(jobs._recent) <= 3


class TestPasses:
    """What several clips want of a file is decoded together, once."""

    def decoded(self, monkeypatch):
        """Frame numbers that workers are asked for, a list per pass."""
        asked, schedule = [], timeline.schedule

        def counted(function, *args):
            if function is decode.decode:
                asked.append(args[2])
            return schedule(function, *args)

        monkeypatch.setattr(timeline, "schedule", counted)
        jobs._recent.clear()
        return asked

    def groups_shared(self, path, asked):
        """Groups of pictures that more than one pass goes through."""
        entry = timeline.find_index(str(path))[1].entry
        groups = [set(entry[part]) for part in asked]
        return sum(map(len, groups)) - len(set.union(*groups))

    def test_overlapping_crops_decode_no_frame_twice(self, clips, monkeypatch):
        asked = self.decoded(monkeypatch)
        path = str(clips / "cfr.mp4")
        crops = [clip(path, [s + 0.5 + i for i in range(4)], 8192) for s in (0, 2, 4, 2)]
        video.prefetch(crops)
        later = clip(path, [3.5, 4.5, 8.5], 8192)  # of another rollout, while the first is under way
        found = [read_barcode(frame) for one in [*crops, later] for frame in one.frames]
        starts = [0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 2, 3, 4, 5, 3, 4, 8]
        assert found == [15 + 30 * s for s in starts]
        numbers = [number for part in asked for number in part]
        assert sorted(numbers) == sorted(set(numbers)) == [15 + 30 * s for s in range(9)]

    def test_frames_behind_one_key_frame_share_a_pass(self, clips, monkeypatch):
        asked = self.decoded(monkeypatch)
        crops = [clip(str(clips / "longgop.mp4"), [s + i / 2 for i in range(8)], 8192) for s in (0, 2, 5)]
        video.prefetch(crops)
        assert [read_barcode(f) for f in crops[2].frames] == [150 + 15 * i for i in range(8)]
        assert self.groups_shared(clips / "longgop.mp4", asked) == 0

    def test_a_long_request_is_shared_out_at_key_frames(self, clips, monkeypatch):
        asked = self.decoded(monkeypatch)
        monkeypatch.setattr(jobs.workers, "count", lambda: 3)
        frames = clip(str(clips / "cfr.mp4"), [i / 6 + 0.01 for i in range(60)], 8192).frames
        assert [read_barcode(f) for f in frames] == [5 * i for i in range(60)]
        assert len(asked) == 3 and self.groups_shared(clips / "cfr.mp4", asked) == 0

    def test_damage_in_a_shared_pass_costs_only_who_needs_it(self, clips):
        path = str(clips / "damaged.mp4")
        good, bad = clip(path, [0.5, 2.0], 8192), clip(path, [2.0, 6.2], 8192)
        video.prefetch([good, bad])
        assert [read_barcode(f) for f in good.frames] == [15, 60]
        with pytest.raises(VideoError, match="damaged: 1 of 2 frames"):
            bad.load()

    def test_a_decoder_that_returns_neighbours_is_found_out(self, clips, monkeypatch, capfd):
        """A stand-in for decord, whose time stamps are right and whose pictures are those of the frame before."""
        found = timeline.find_index(str(clips / "cfr.mp4"))[1]

        def neighbours(path, plan, numbers, size):
            before = [max(0, number - 1) for number in numbers]
            return decode.decode(path, decode.make_plan(found, before), before, size).pixels

        monkeypatch.setattr(decode, "_decode_decord", neighbours)
        numbers = [30, 60, 90]
        plan = decode.make_plan(found, numbers)
        got = decode.decode(str(clips / "cfr.mp4"), plan, numbers, (192, 96), "decord", compare=(2,))
        assert got.backend == "pyav" and not got.missing
        assert [read_barcode(Image.fromarray(frame)) for frame in got.pixels] == numbers

    def test_decord_is_trusted_once_frames_far_from_key_frames_were_right(self, clips, monkeypatch):
        checks, schedule = [], timeline.schedule

        def counted(function, *args):
            if function is decode.decode:
                checks.append((args[4], args[5]))
            return schedule(function, *args)

        monkeypatch.setattr(timeline, "schedule", counted)
        jobs._recent.clear()
        jobs._trusted.clear()
        for frame in (30, 60, 119, 100, 101):  # of which the first two are key frames, and 119 is the last before one
            assert barcodes(clips / "cfr.mp4", [frame / 30 + 0.01], backend="decord") == [frame]
        assert checks == [("decord", (0,))] * 3 + [("decord", ())] * 2
        checks.clear()
        barcodes(clips / "start5.ts", [1.0], backend="decord")
        assert checks == [("pyav", ())]  # which decord reads wrong without saying so

    def test_memory_of_a_worker(self, tmp_path):
        """Frames are resized on the way: a worker's peak does not grow with the picture or the number of frames."""
        path = tmp_path / "big.mp4"
        ffmpeg("-f", "lavfi", "-i", "testsrc2=s=1280x720:d=12:r=30", "-c:v", "libx264", "-preset", "ultrafast", path)
        frames = read_frames(str(path), [i / 6 for i in range(64)], max_pixels=50176).images
        assert len(frames) == 64
        peaks = [timeline.schedule(eval, "open('/proc/self/status').read()").result() for _ in range(4)]
        peaks = [int(text.split("VmHWM:")[1].split()[0]) / 1024 for text in peaks]
        assert max(peaks) < 120, peaks


class TestTimes:
    def test_snapping_to_key_frames(self, clips):
        path = str(clips / "cfr.mp4")  # a key frame each second
        exact, snapped = video.choose_times(path, 8), video.choose_times(path, 8, snap=True)
        assert all(abs(a - b) <= 10 / 16 for a, b in zip(exact, snapped, strict=True))
        found = timeline.find_index(path)[1]
        keys = found.times[found.is_start].tolist()
        assert len(keys) >= 10 and set(snapped) <= set(keys)
        assert barcodes(path, snapped) == [round(30 * t) for t in snapped]  # true times
        path = str(clips / "longgop.mp4")  # few key frames: exact frames where none is near
        exact, snapped = video.choose_times(path, 16), video.choose_times(path, 16, snap=True)
        assert 0 < sum(a != b for a, b in zip(exact, snapped, strict=True)) < 8

    def test_sample_times(self):
        assert sample_times(10, 4) == [1.25, 3.75, 6.25, 8.75]
        assert sample_times(600, 2, 60, 70) == [62.5, 67.5]
        for arguments in (
            (10, 0),
            (10, -1),
            (10, True),
            (10, 2.5),
            (10, 4, 5, 5),
            (10, 4, 0, 11),
            (10, 4, -1, 5),
            (float("nan"), 1),
        ):
            with pytest.raises(ValueError):
                sample_times(*arguments)

    @pytest.mark.parametrize("frames", [1, 2, 3, 5, 31])
    @pytest.mark.parametrize("k", [4, 8, 16, 32, 64])
    def test_no_more_than_there_are(self, clips, frames, k):
        times = video.choose_times(str(clips / f"n{frames}.mp4"), k)
        assert len(times) == len(set(times)) == min(k, frames)

    def test_spread_over_the_whole_video(self, clips):
        times = video.choose_times(str(clips / "cfr.mp4"), 8)
        assert times[-1] > 10 * 7 / 8 and times == sorted(times)


def check_folder(*arguments):
    return subprocess.run([sys.executable, "-m", "paravt.video", *map(str, arguments)], capture_output=True, text=True)


def test_checking_files_from_the_command_line(clips):
    """A good file is one that can be read: damage and impossible shapes are found without `--quick` only."""
    run = check_folder(clips)
    assert run.returncode == 1 and "a web page" in run.stdout and "17 of 24 files are good" in run.stdout
    assert "     1  damaged\n" in run.stdout and "2048 x 8 pixels" in run.stdout and "/24" in run.stderr
    run = check_folder(clips, "--quick")
    assert run.returncode == 1 and "19 of 24 files are good" in run.stdout
    run = check_folder(clips / "cfr.mp4", "--frames", "64")
    assert run.returncode == 0 and "1 of 1 files are good" in run.stdout
    assert check_folder(clips, "--frames", "0").returncode == 2
