"""What files show and when, and that reading them always ends: the members of many kinds of awkward files."""

import io
import shutil
from fractions import Fraction

import av
import numpy as np
import pytest
from conftest import barcode, ffmpeg, read_barcode, write_clip
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from paravt import video
from paravt.video import VideoError, choose_times, decode, index, jobs, probe, read_frames, timeline
from paravt.video.decode import Plan, Segment


X264, X265 = ["-c:v", "libx264", "-x264-params"], ["-c:v", "libx265", "-x265-params"]


def barcodes(path, times, **kwargs):
    return [read_barcode(image) for image in read_frames(str(path), times, **kwargs).images]


def chosen(path, k):
    """Numbers of the frames of a constant 30 a second that K times choose, and what is read there."""
    times = choose_times(str(path), k)
    return [round(time * 30) for time in times], barcodes(path, times)


def plain_barcodes(path):
    """Barcodes of a plain decode in its order."""
    found = []
    with av.open(str(path)) as container:
        for packet in container.demux(video=0):
            try:
                found += [read_barcode(frame.to_image()) for frame in packet.decode()]
            except av.error.FFmpegError:
                pass
    return found


def remux(*paths):
    """Copies the streams of the first file into the second, of that into the third, and so on."""
    for source, target in zip(paths, paths[1:], strict=False):
        ffmpeg("-i", source, "-c", "copy", target)
    return paths[-1]


class TestRemuxed:
    """Rounded time stamps make a seek land before the key frame it is for."""

    @pytest.mark.parametrize("chain", ["mkv mp4", "flv mp4", "flv mov", "mkv ts mp4", "mp4 mkv mov", "flv mkv mp4"])
    @pytest.mark.parametrize("rate", ["30", "30000/1001", "60"])
    def test_through_another_container(self, clips, tmp_path, chain, rate):
        first, *others = [tmp_path / f"{i}.{name}" for i, name in enumerate(chain.split())]
        ffmpeg("-r", rate, "-i", clips / "cfr.mp4", "-c:v", "libx264", "-preset", "veryfast", first)
        path = remux(first, *others)
        assert probe(str(path)).num_frames == 300
        for k in (8, 64):
            times = choose_times(str(path), k)
            assert barcodes(path, times) == [round(time * eval(rate)) for time in times]

    @pytest.mark.parametrize("chain", ["mkv mp4", "ts mp4", "mkv", "ts", "mkv ts mkv"])
    @pytest.mark.parametrize("k", [4, 16, 32])
    def test_open_gops(self, clips, tmp_path, chain, k):
        first, *others = [tmp_path / f"{i}.{name}" for i, name in enumerate(chain.split())]
        ffmpeg("-i", clips / "cfr.mp4", *X264, "open-gop=1:keyint=30:bframes=3:scenecut=0", first)
        numbers, found = chosen(remux(first, *others), k)
        assert found == numbers


class TestCodings:
    @pytest.mark.parametrize(
        "name, encode",
        [
            ("refresh.mp4", [*X264, "intra-refresh=1:keyint=30"]),
            ("refresh.mkv", [*X265, "intra-refresh=1:keyint=30:log-level=none"]),
            ("ps.mpg", ["-c:v", "mpeg2video", "-g", "15", "-bf", "2"]),
            ("ps.vob", ["-c:v", "mpeg2video", "-g", "15", "-bf", "2"]),
            ("old.wmv", ["-c:v", "wmv2", "-g", "30"]),
            ("old.flv", ["-c:v", "flv1", "-g", "30"]),
            ("old.ogv", ["-c:v", "libtheora", "-q:v", "6"]),
            ("b.avi", [*X264, "bframes=2:keyint=60"]),
            ("many-b.avi", [*X264, "bframes=8:b-adapt=0"]),
            ("b4.avi", ["-c:v", "mpeg4", "-bf", "2", "-q:v", "3"]),
            ("sparse.mkv", [*X264, "keyint=30:scenecut=0", "-cues_to_front", "0", "-cluster_time_limit", "9000"]),
            ("live.mkv", [*X264, "keyint=30:scenecut=0", "-live", "1"]),
            ("fragments.mp4", [*X264, "keyint=45", "-movflags", "frag_keyframe+empty_moov"]),
            ("picture.gif", []),
            ("palette.avi", ["-c:v", "rawvideo", "-pix_fmt", "pal8"]),
            ("palette.mov", ["-c:v", "rawvideo", "-pix_fmt", "pal8"]),
            ("grey.mov", ["-c:v", "qtrle", "-pix_fmt", "gray"]),
        ],
    )
    @pytest.mark.parametrize("k", [8, 16, 32])
    def test_frames_are_those_of_their_times(self, clips, tmp_path, name, encode, k):
        path = tmp_path / name
        ffmpeg("-i", clips / "cfr.mp4", *encode, path)
        assert probe(str(path)).num_frames == 300
        numbers, found = chosen(path, k)
        assert found == numbers and len(found) == k

    @pytest.mark.parametrize("orientation, rotation", [(None, 0), (6, 270), (3, 180), (8, 90)])
    def test_pictures_with_exif(self, tmp_path, orientation, rotation):
        """Side data of a kind that PyAV may not know."""
        path, exif = str(tmp_path / "exif.mov"), Image.Exif()
        exif[0x010E] = "a picture"
        if orientation:
            exif[0x0112] = orientation
        with av.open(path, "w") as container:
            stream = container.add_stream("mjpeg", rate=10)
            stream.width, stream.height, stream.pix_fmt = 96, 64, "yuvj420p"
            for i in range(20):
                data = io.BytesIO()
                Image.new("RGB", (96, 64), (10 * i,) * 3).save(data, "JPEG", exif=exif)
                packet = av.Packet(data.getvalue())
                packet.stream, packet.pts, packet.dts, packet.time_base = stream, i, i, Fraction(1, 10)
                packet.is_keyframe = True
                container.mux(packet)
        frames = read_frames(path, [0.5, 1.9]).images
        assert [frame.getpixel((5, 5))[0] for frame in frames] == pytest.approx([50, 190], abs=2)
        assert frames[0].size == ((64, 96) if rotation in (90, 270) else (96, 64))
        assert probe(path).rotation == rotation

    def test_time_stamps_of_decoding_travel(self, clips, tmp_path):
        """MP4 has times of presentation, and believes those of an AVI file, which are times of decoding."""
        ffmpeg("-i", clips / "cfr.mp4", *X264, "bframes=2", tmp_path / "b.avi")
        for name in ("b.mp4", "b.mov"):
            path = remux(tmp_path / "b.avi", tmp_path / name)
            assert timeline.find_index(str(path))[1].in_order
            numbers, found = chosen(path, 32)
            assert found == numbers

    def test_hidden_frames_are_not_counted(self, clips, tmp_path):
        """VP8 keeps alternate references in packets of their own."""
        encode = ["-c:v", "libvpx", "-b:v", "500k", "-auto-alt-ref", "1", "-lag-in-frames", "16"]
        log = ["-passlogfile", tmp_path / "log"]
        ffmpeg("-i", clips / "cfr.mp4", *encode, "-pass", "1", *log, "-f", "null", "-")
        ffmpeg("-i", clips / "cfr.mp4", *encode, "-pass", "2", *log, tmp_path / "alt.webm")
        with av.open(str(tmp_path / "alt.webm")) as container:
            packets = [packet for packet in container.demux(video=0) if packet.size]
        assert len(packets) > 300  # or this shows nothing
        assert probe(str(tmp_path / "alt.webm")).num_frames == 300
        numbers, found = chosen(tmp_path / "alt.webm", 32)
        assert found == numbers


class TestParts:
    @pytest.mark.parametrize("codec", ["mpeg4", "mjpeg"])
    def test_avi_without_its_index(self, clips, tmp_path, codec):
        ffmpeg("-i", clips / "cfr.mp4", "-c:v", codec, "-q:v", "3", tmp_path / "whole.avi")
        data = (tmp_path / "whole.avi").read_bytes()
        (tmp_path / "cut.avi").write_bytes(data[: len(data) * 6 // 10])
        shown = plain_barcodes(tmp_path / "cut.avi")
        assert len(shown) > 150 and probe(str(tmp_path / "cut.avi")).num_frames == len(shown)
        for k in (8, 64):
            numbers, found = chosen(tmp_path / "cut.avi", k)
            assert found == numbers

    @pytest.mark.parametrize("container", ["mkv", "mp4", "ts"])
    def test_hevc_that_starts_at_a_cra(self, clips, tmp_path, container):
        """The frames before the key frame, in time, refer to what was cut off: nobody shows them."""
        ffmpeg("-i", clips / "cfr.mp4", *X265, "keyint=60:log-level=none", tmp_path / f"whole.{container}")
        ffmpeg("-ss", "4.3", "-i", tmp_path / f"whole.{container}", "-c", "copy", tmp_path / f"cut.{container}")
        shown = plain_barcodes(tmp_path / f"cut.{container}")
        assert len(shown) > 100 and probe(str(tmp_path / f"cut.{container}")).num_frames == len(shown)
        times = [i / 30 + 0.002 for i in range(0, len(shown), 7)]
        assert barcodes(tmp_path / f"cut.{container}", times) == shown[::7]

    @pytest.mark.parametrize("share", [0.13, 0.4, 0.71])
    def test_transport_stream_from_its_middle(self, clips, tmp_path, share):
        ffmpeg("-i", clips / "cfr.mp4", *X264, "keyint=50:scenecut=0", tmp_path / "whole.ts")
        data = (tmp_path / "whole.ts").read_bytes()
        (tmp_path / "cut.ts").write_bytes(data[int(len(data) // 188 * share) * 188 :])
        shown = plain_barcodes(tmp_path / "cut.ts")
        info = probe(str(tmp_path / "cut.ts"))
        assert shown[0] % 50 == 0 and shown[-1] == 299 and info.num_frames == len(shown)
        assert info.duration == pytest.approx(len(shown) / 30, abs=0.002)
        numbers, found = chosen(tmp_path / "cut.ts", 16)
        assert found == [shown[0] + number for number in numbers]

    def test_program_stream_without_time_stamps(self, clips, tmp_path):
        """A cut leaves none; the pictures themselves state their constant rate."""
        ffmpeg(
            "-i", clips / "cfr.mp4", "-c:v", "mpeg2video", "-g", "30", "-bf", "0", "-q:v", "3", tmp_path / "whole.mpg"
        )
        ffmpeg("-ss", "3.3", "-i", tmp_path / "whole.mpg", "-c", "copy", tmp_path / "cut.mpg")
        shown = plain_barcodes(tmp_path / "cut.mpg")
        assert probe(str(tmp_path / "cut.mpg")).duration == pytest.approx(len(shown) / 30, abs=0.002)
        assert barcodes(tmp_path / "cut.mpg", [0.0, 1.01, 4.01]) == [shown[i] for i in (0, 30, 120)]

    def test_time_that_begins_anew(self, clips, tmp_path):
        """Two recordings in one transport stream, each from 0 s: the second follows the first."""
        ffmpeg("-i", clips / "cfr.mp4", *X264, "keyint=50", tmp_path / "one.ts")
        data = (tmp_path / "one.ts").read_bytes()
        (tmp_path / "two.ts").write_bytes(data + data)
        times = [1.0, 5.0, 11.0, 15.0]
        shown = plain_barcodes(tmp_path / "two.ts")
        assert probe(str(tmp_path / "two.ts")).num_frames == len(shown)
        assert barcodes(tmp_path / "two.ts", times) == [30, 150, 30, 150]

    def test_a_damaged_frame_costs_what_depends_on_it(self, clips, tmp_path):
        """What comes before it in its group of pictures, and the groups after it, are read."""
        ffmpeg("-i", clips / "cfr.mp4", *X264, "keyint=100:scenecut=0:bframes=0", tmp_path / "whole.mkv")
        with av.open(str(tmp_path / "whole.mkv")) as container:
            packet = [packet for packet in container.demux(video=0) if packet.size][150]
            at, size = packet.pos, packet.size
        data = bytearray((tmp_path / "whole.mkv").read_bytes())
        at += bytes(data[at : at + size + 30]).index(bytes(packet)[:8])
        data[at + 4 : at + size] = bytes([0xFF] * (size - 4))
        (tmp_path / "damaged.mkv").write_bytes(data)
        assert barcodes(tmp_path / "damaged.mkv", [i / 30 + 0.002 for i in (120, 149, 200, 299)]) == [
            120,
            149,
            200,
            299,
        ]
        shown = plain_barcodes(tmp_path / "damaged.mkv")
        assert len(shown) >= 299


class TestStreams:
    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    @pytest.mark.parametrize("container", ["mkv", "mp4"])
    def test_the_one_that_shows_most_time(self, clips, tmp_path, order, container):
        """Cover art that the container does not mark as such, before or after the video."""
        Image.new("RGB", (64, 64), "red").save(tmp_path / "cover.png")
        inputs = ["-i", clips / "cfr.mp4", "-i", tmp_path / "cover.png"]
        maps = [option for i in order for option in ("-map", f"{i}:v")]
        ffmpeg(*inputs, *maps, "-c:v", "libx264", tmp_path / f"art.{container}")
        assert probe(str(tmp_path / f"art.{container}")).num_frames == 300
        assert barcodes(tmp_path / f"art.{container}", [0.0, 5.0, 9.9]) == [0, 150, 297]

    @pytest.mark.parametrize(
        "turn",
        [
            "-display_hflip",
            "-display_vflip",
            "-display_hflip -display_vflip",
            "-display_rotation 90",
            "-display_rotation 180",
            "-display_rotation 270",
            "-display_rotation 90 -display_hflip",
            "-display_rotation 270 -display_hflip",
            "-display_rotation 180 -display_hflip",
        ],
    )
    def test_turned_and_mirrored_as_ffmpeg_does(self, tmp_path, turn):
        """A picture of four colours in its corners."""
        colours = ["red", "green", "blue", "yellow"]
        parts = [f"color={colour}:s=64x32:d=0.2:r=10[{i}]" for i, colour in enumerate(colours)]
        graph = ";".join([*parts, "[0][1]hstack[top]", "[2][3]hstack[bottom]", "[top][bottom]vstack"])
        ffmpeg("-filter_complex", graph, "-c:v", "libx264", tmp_path / "plain.mp4")
        ffmpeg(*turn.split(), "-i", tmp_path / "plain.mp4", "-c", "copy", tmp_path / "turned.mp4")
        ffmpeg("-i", tmp_path / "turned.mp4", "-vframes", "1", tmp_path / "truth.png")
        truth = Image.open(tmp_path / "truth.png").convert("RGB")
        (image,) = read_frames(str(tmp_path / "turned.mp4"), [0.0]).images
        info = probe(str(tmp_path / "turned.mp4"))
        assert image.size == truth.size == (info.width, info.height)
        assert np.abs(np.asarray(image).astype(int) - np.asarray(truth)).mean() < 2
        (small,) = read_frames(str(tmp_path / "turned.mp4"), [0.0], max_pixels=4096).images
        assert np.abs(np.asarray(small).astype(int) - np.asarray(truth.resize(small.size))).mean() < 20


class TestNoVideos:
    @pytest.mark.parametrize(
        "name, content",
        [
            ("readme.txt", "Thank you for downloading.\n" * 200),
            ("rel.nfo", "\u2588\u2580 release \u2584\u2588\r\n" * 50),
            ("dos.nfo", b"\xdb\xdf release \xdc\xdb\r\n" * 50),
            ("colours.ans", "\x1b[31mred\x1b[0m\r\n" * 50),
            ("file_id.diz", "a file"),
            ("wide.txt", "wide".encode("utf-16")),
            ("subtitles.srt", "1\n00:00:01,000 --> 00:00:02,000\nHello.\n"),
            ("subtitles.ass", "[Script Info]\n[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,Hello\n"),
            ("subtitles.vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\nHello.\n"),
            ("rows.json", '{"videos": ["a.mp4"]}'),
            ("rows.csv", "video,answer\na.mp4,B\n"),
            ("list.m3u8", "#EXTM3U\n#EXTINF:10,\ncfr.mp4\n#EXT-X-ENDLIST\n"),
            ("list.ffconcat", "ffconcat version 1.0\nfile cfr.mp4\n"),
            ("session.sdp", "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 9 RTP/AVP 26\n"),
            ("text.mp4", "not found"),
        ],
    )
    def test_text(self, clips, tmp_path, name, content):
        shutil.copy(clips / "cfr.mp4", tmp_path)
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(VideoError, match="text, not a video"):
            probe(str(tmp_path / name))

    @pytest.mark.parametrize(
        "name", ["art.xbin", "art.jpg", "art.png", "art.bmp", "art.webp", "art.gif", "art.avif", "art.svg"]
    )
    def test_pictures(self, tmp_path, name):
        if name == "art.xbin":
            size = b"\x50\x00\x19\x00"  # 80 x 25 characters
            (tmp_path / name).write_bytes(b"XBIN\x1a" + size + b"\x10\x00" + b"A\x07" * 80 * 25)
        elif name == "art.svg":
            (tmp_path / name).write_text("<svg xmlns='http://www.w3.org/2000/svg'></svg>")
        elif name == "art.avif":
            still = ["-frames:v", "1", "-c:v", "libaom-av1", "-cpu-used", "8", "-still-picture", "1"]
            ffmpeg("-f", "lavfi", "-i", "testsrc=s=64x64", *still, tmp_path / name)
        else:
            Image.fromarray(barcode(5)).save(tmp_path / name)
        with pytest.raises(VideoError, match="not a video"):
            probe(str(tmp_path / name))

    def test_uncompressed_video_is_no_text(self, tmp_path):
        ffmpeg("-f", "lavfi", "-i", "color=white:s=64x64:d=1:r=10", tmp_path / "white.y4m")
        assert probe(str(tmp_path / "white.y4m")).num_frames == 10


class TestDecord:
    def test_is_not_used_without_idr_frames(self, clips, tmp_path):
        """Some of its frames agree, others are broken pictures."""
        ffmpeg("-i", clips / "cfr.mp4", *X264, "intra-refresh=1:keyint=30", tmp_path / "refresh.mp4")
        for k in (16, 5, 64):
            times = choose_times(str(tmp_path / "refresh.mp4"), k)
            assert barcodes(tmp_path / "refresh.mp4", times, backend="decord") == [round(30 * t) for t in times]
        draw = np.random.default_rng(0)
        for _ in range(5):
            numbers = sorted(draw.choice(300, 5, replace=False).tolist())
            times = [number / 30 + 0.002 for number in numbers]
            assert barcodes(tmp_path / "refresh.mp4", times, backend="decord") == numbers


class TestShortCut:
    """Reading by seeks ends whatever they do, decodes no packet twice, and delivers nothing that is broken."""

    class Packet:
        def __init__(self, container, number):
            self.container, self.number, self.is_keyframe = container, number, number in container.keys
            self.pts, self.size = (None, 0) if number is None else (10 * number, 1)

        def decode(self):
            return self.container.decode(self.number)

    class Frame:
        def __init__(self, number, sound, corrupt):
            self.pts, self.sound, self.is_corrupt = 10 * number, sound, corrupt

    class Container:
        """
        Seeks land where the test says, errors and frames that the decoder calls corrupt come where it says; frames
        come `delay` packets late.
        """

        def __init__(self, keys, count, landings, errors, corrupt, delay):
            self.keys, self.count, self.errors, self.corrupt, self.delay = keys, count, errors, corrupt, delay
            self.landings = landings  # `None`: where they should
            self.position, self.given, self.held, self.last, self.sound = 0, [], [], None, False
            self.codec_context, self.name = self, "mpeg4"  # a stream, too

        def seek(self, target, stream):
            self.position = target // 10 if self.landings is None else self.landings.pop(0) if self.landings else 0
            self.held, self.last = [], None

        def demux(self, stream):
            while self.position < self.count:
                self.position += 1
                yield TestShortCut.Packet(self, self.position - 1)
            yield TestShortCut.Packet(self, None)  # asks for what is held back

        def decode(self, number):
            if number is None:
                held, self.held = self.held, []
                return held
            self.given.append(number)
            self.sound = number in self.keys or (self.sound and self.last == number - 1)
            self.last = number
            if number in self.errors:
                self.sound = False
                raise av.error.InvalidDataError(1, "broken")
            self.sound = self.sound and number not in self.corrupt
            self.held.append(TestShortCut.Frame(number, self.sound, number in self.corrupt))
            return [self.held.pop(0)] if len(self.held) > self.delay else []

    @settings(max_examples=300, deadline=None)
    @given(st.data())
    def test_always_ends(self, data):
        count = data.draw(st.integers(1, 60))
        keys = sorted({0, *data.draw(st.sets(st.integers(0, count - 1), max_size=8))})
        wanted = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=10)))
        honest = data.draw(st.booleans())
        landings = None if honest else data.draw(st.lists(st.integers(0, count), max_size=30))
        errors = data.draw(st.sets(st.integers(0, count - 1), max_size=4))
        corrupt = data.draw(st.sets(st.integers(0, count - 1), max_size=4))
        container = self.Container(keys, count, landings, errors, corrupt, data.draw(st.integers(0, 3)))
        segments = {}
        for number in wanted:
            key = max(key for key in keys if key <= number)
            before = max((other for other in keys if other < key), default=None)
            seeks = (10 * key, 10 * before) if before is not None else (None,)
            segments.setdefault(key, Segment(10 * key, seeks, [])).wanted.append(10 * number)
        rows = {10 * number: row for row, number in enumerate(wanted)}
        plan = Plan(0, rows, False, list(segments.values()), {}, count, 0, False, [], count, 30.0)
        delivered = []

        class Delivery:
            missing = dict(rows)

            def take(self, key, frame):
                self.missing.pop(key)
                delivered.append(frame)

        read = []
        demux = container.demux
        container.demux = lambda stream: (read.append(packet) or packet for packet in demux(stream))
        sought, frames = decode.take_short_cut(container, container, plan, Delivery())
        assert frames <= len(container.given) <= count + 1
        assert len(container.given) == len(set(container.given)) or not sought
        assert len(read) <= 2 * count + 2 * len(segments) + 2
        assert all(frame.sound for frame in delivered)
        if honest and not errors | corrupt:
            assert sought and not Delivery.missing

    def test_a_real_file_whose_seeks_go_astray(self, clips, monkeypatch):
        """Each seek leads back to the start of the file."""
        path = str(clips / "cfr.mp4")
        found = timeline.find_index(path)[1]
        numbers = list(range(5, 300, 20))
        plan = decode.make_plan(found, numbers)
        astray = [decode.replace(segment, seeks=(0, 0)) for segment in plan.segments]
        got = decode.decode(path, decode.replace(plan, segments=astray), numbers, (192, 96))
        assert got.frames <= 300 and not got.plain
        assert {n for n in numbers if n not in got.missing} >= {5, 25}
        for number, pixels in zip(numbers, got.pixels, strict=True):
            assert number in got.missing or read_barcode(Image.fromarray(pixels)) == number

    def test_what_seeks_do_not_deliver_comes_from_one_plain_decode(self, clips, monkeypatch):
        path, calls = str(clips / "cfr.mp4"), []
        make_plan, schedule = decode.make_plan, timeline.schedule

        def astray(*args, **kwargs):
            plan = make_plan(*args, **kwargs)
            return decode.replace(plan, segments=[decode.replace(s, seeks=(9**12,)) for s in plan.segments])

        def counted(function, *args):
            calls.extend([len(args[1].segments)] if function is decode.decode else [])
            return schedule(function, *args)

        monkeypatch.setattr(decode, "make_plan", astray)
        monkeypatch.setattr(timeline, "schedule", counted)
        monkeypatch.setattr(jobs.workers, "count", lambda: 3)
        monkeypatch.setattr(jobs, "_unseekable", set())
        jobs._recent.clear()
        assert barcodes(path, [i / 10 + 0.01 for i in range(100)]) == [3 * i for i in range(100)]
        assert len(calls) == 4 and calls[-1] == 0 and min(calls[:-1]) > 0
        monkeypatch.setattr(decode, "make_plan", make_plan)
        jobs._recent.clear()
        calls.clear()
        assert barcodes(path, [1.01, 5.01]) == [30, 150]
        assert calls == [0]  # its seeks are not tried again


class TestIndex:
    def test_packets_that_no_decoder_shows(self, clips, tmp_path, monkeypatch):
        """What is on screen at the time of a frame that never comes is the one before; then the index is mended."""
        path = str(shutil.copy(clips / "cfr.mp4", tmp_path / "promise.mp4"))
        true = index.scan(path)
        pts = np.sort(np.append(true.pts, [true.pts[100] + 1, true.pts[-1] + 1]))
        entry = np.interp(pts, true.pts, true.entry).astype(np.int32)
        key = (path, *video.files.check_file(path))
        timeline._indices.put(key, decode.replace(true, pts=pts, entry=entry))
        promised = timeline.find_index(path)[1].times[[30, 101, 301]].tolist()
        found = read_frames(path, promised)
        assert [read_barcode(image) for image in found.images] == [30, 100, 299]
        assert found.times == pytest.approx([1.0, 100 / 30, 299 / 30])
        mended = timeline.find_index(path)[1]
        assert mended.checks is not None and mended.info.num_frames == 300

    def test_ordinary_files_are_not_decoded_for_it(self, clips):
        for name in ("cfr.mp4", "longgop.mp4", "bframes.mp4", "vfr.mp4", "editlist.mp4", "start5.mkv", "vp9.webm"):
            assert index.scan(str(clips / name)).checks is None

    def test_indices_are_kept_within_bytes(self, clips, monkeypatch):
        timeline._indices.clear()
        sizes = [timeline.find_index(str(clips / f"n{n}.mp4"))[1].nbytes for n in (1, 2, 3, 5, 31)]
        monkeypatch.setattr(timeline, "INDEX_BYTES", sum(sizes[-2:]))
        timeline.find_index(str(clips / "n5.mp4"))  # used last
        timeline.find_index(str(clips / "cfr.mp4"))
        assert len(timeline._indices) == 1
        monkeypatch.setattr(timeline, "INDEX_BYTES", 10**6)
        for name in ("n1.mp4", "n2.mp4"):
            timeline.find_index(str(clips / name))
        assert len(timeline._indices) == 3
        hour = index.Index(None, *[np.zeros(108_000, np.int64)] * 2, np.zeros(108_000, np.int32), 1, "", 0, 0)
        assert 2**20 < hour.nbytes < 3 * 2**20


@pytest.mark.slow
def test_work_that_goes_on_is_not_ended(monkeypatch):
    """The time limit is on work without a new frame."""
    monkeypatch.setattr(timeline, "TIMEOUT", 6.0)
    step = "(__import__('time').sleep(1), __import__('paravt.video.workers').video.workers.progress())"
    assert timeline.result(timeline.schedule(eval, f"len([{step} for _ in range(9)])"), "x.mp4") == 9
    with pytest.raises(VideoError, match="longer than 6 s without a new frame"):
        timeline.result(timeline.schedule(eval, f"[{step}, __import__('time').sleep(60)]"), "x.mp4")


def test_a_file_that_is_called_good_trains(clips, tmp_path):
    from test_video import check_folder

    write_clip(tmp_path / "good.mp4", 31)
    ffmpeg("-i", clips / "cfr.mp4", *X264, "bframes=2", tmp_path / "b.avi")
    (tmp_path / "readme.txt").write_text("Thank you for downloading.")
    shutil.copy(clips / "damaged.mp4", tmp_path)
    run = check_folder(tmp_path)
    assert run.returncode == 1 and "2 of 4 files are good" in run.stdout
    assert "text, not a video" in run.stdout and "damaged.mp4: damaged: 3 of 8 frames" in run.stdout
