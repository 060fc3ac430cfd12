"""
What is read of a file is what a plain decode of it shows: containers x codecs x ways to code x ways to mistreat it.

A sample runs by default; `pytest tests/test_video_matrix.py --full` makes and reads all of them.
"""

import random
import subprocess
from dataclasses import dataclass

import av
import numpy as np
import pytest
from conftest import ffmpeg, write_clip

from paravt.video import VideoError, choose_times, jobs, probe, read_frames, timeline
from paravt.video.decode import Decoded


FRAMES, SAMPLE = 240, 60
GAPS = ["-vf", r"select=not(between(mod(n\,25)\,5\,12))", "-fps_mode", "vfr"]  # a variable rate
ALL = "mp4 mov mkv avi flv wmv mpg ts"


def x264(params, *more):
    return ["-c:v", "libx264", "-preset", "veryfast", *more, "-x264-params", f"scenecut=0:{params}"]


def x265(params, *more):
    encode = ["-c:v", "libx265", "-preset", "ultrafast", *more, "-x265-params"]
    return [*encode, f"log-level=none:pools=none:frame-threads=1:{params}"]


def plain(codec, *more):
    return ["-c:v", codec, "-q:v", "3", *more]


AV1 = ["-c:v", "libsvtav1", "-preset", "12", "-g", "40", "-svtav1-params", "irefresh-type={}"]
VP9 = ["-c:v", "libvpx-vp9", "-b:v", "300k", "-deadline", "realtime", "-cpu-used", "8", "-g", "40"]
VP8 = ["-c:v", "libvpx", "-b:v", "500k", "-deadline", "realtime", "-cpu-used", "8", "-g", "40"]

# Codec -> the containers that take it, and the ways to code: options of ffmpeg.
CODECS = {
    "h264": (ALL, {
        "closed": x264("keyint=40:bframes=2"), "open": x264("keyint=40:bframes=3:open-gop=1"),
        "refresh": x264("keyint=40:intra-refresh=1"), "b": x264("keyint=250:bframes=5:b-pyramid=normal"),
        "no-b": x264("keyint=60:bframes=0"), "vfr": x264("keyint=40:bframes=2", *GAPS),
    }),
    "hevc": ("mp4 mov mkv ts flv avi", {
        "closed": x265("keyint=40:open-gop=0"), "open": x265("keyint=40:bframes=4"),
        "refresh": x265("keyint=40:intra-refresh=1:bframes=0"), "b": x265("keyint=250:bframes=8:rc-lookahead=20"),
        "no-b": x265("keyint=60:bframes=0"), "vfr": x265("keyint=40", *GAPS),
    }),
    "av1": ("mp4 mkv webm", {
        "closed": [o.format(2) for o in AV1], "open": [o.format(1) for o in AV1],
        "vfr": [*[o.format(2) for o in AV1], *GAPS],
    }),
    "vp9": ("webm mkv mp4", {
        "closed": VP9, "vfr": [*VP9, *GAPS],
        "b": ["-c:v", "libvpx-vp9", "-b:v", "300k", "-cpu-used", "5", "-auto-alt-ref", "1", "-lag-in-frames", "16"],
    }),
    "vp8": ("webm mkv ogv avi", {"closed": VP8, "vfr": [*VP8, *GAPS]}),
    "mpeg4": ("mp4 mov mkv avi ts", {
        "closed": plain("mpeg4", "-g", "40", "-bf", "2", "-flags", "+cgop", "-sc_threshold", "1000000000"),
        "open": plain("mpeg4", "-g", "40", "-bf", "2"), "no-b": plain("mpeg4", "-g", "60"),
        "vfr": plain("mpeg4", "-g", "40", *GAPS),
    }),
    "mpeg2": ("mpg ts mkv mp4 mov avi", {
        "closed": plain("mpeg2video", "-g", "15", "-bf", "2", "-flags", "+cgop", "-sc_threshold", "1000000000"),
        "open": plain("mpeg2video", "-g", "15", "-bf", "2"), "no-b": plain("mpeg2video", "-g", "30", "-bf", "0"),
    }),
    "mpeg1": ("mpg avi mkv", {"open": plain("mpeg1video", "-g", "15", "-bf", "2")}),
    "mjpeg": ("avi mov mkv", {"no-b": plain("mjpeg"), "vfr": plain("mjpeg", *GAPS)}),
    "wmv2": ("wmv avi mkv", {"no-b": plain("wmv2", "-g", "40"), "vfr": plain("wmv2", "-g", "40", *GAPS)}),
    "msmpeg4": ("avi wmv mkv", {"no-b": plain("msmpeg4", "-g", "40")}),
    "flv1": ("flv avi", {"no-b": plain("flv1", "-g", "40"), "vfr": plain("flv1", "-g", "40", *GAPS)}),
    "theora": ("ogv mkv", {"no-b": plain("libtheora", "-g", "40"), "vfr": plain("libtheora", "-g", "40", *GAPS)}),
}  # fmt: skip
TREATMENTS = ["as-is", "remux", "remux-twice", "cut-at-key", "cut-off-key", "mid-gop", "truncated", "damaged"]
FORMATS = {"wmv": "asf", "mpg": "vob", "ts": "mpegts", "ogv": "ogg", "mkv": "matroska"}


@dataclass(frozen=True)
class Case:
    codec: str
    coding: str
    container: str
    treatment: str

    def __str__(self):
        return f"{self.codec}-{self.coding}-{self.container}-{self.treatment}"


# ffmpeg does not copy these: on the way through AVI or FLV packets lose their time stamps.
UNMADE = {
    *(("h264", container, "remux-twice") for container in ("mov", "mkv", "avi", "wmv")),
    *((codec, "avi", "remux") for codec in ("h264", "hevc", "mpeg4", "mpeg1")),
    *((codec, "avi", "remux-twice") for codec in ("hevc", "mpeg4", "mpeg2", "mpeg1")),
    *((codec, "mpg", "remux-twice") for codec in ("mpeg2", "mpeg1")),
    ("h264", "mkv", "remux"), ("hevc", "flv", "remux-twice"), ("mpeg4", "mkv", "remux-twice"),
}  # fmt: skip
CASES = [
    Case(codec, coding, container, treatment)
    for codec, (containers, codings) in CODECS.items()
    for coding in codings
    for container in containers.split()
    for treatment in TREATMENTS
    if (codec, container, treatment) not in UNMADE
]


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        full = metafunc.config.getoption("--full")
        metafunc.parametrize("case", CASES if full else random.Random(0).sample(CASES, SAMPLE), ids=str)


def test_the_sample_has_something_of_everything():
    sample = random.Random(0).sample(CASES, SAMPLE)
    for name in ("codec", "coding", "container", "treatment"):
        assert {getattr(case, name) for case in sample} == {getattr(case, name) for case in CASES}
    assert len(CASES) >= 300


class Maker:
    """Makes the files; those of one encoding share it."""

    def __init__(self, folder):
        self.folder = folder
        self.source = write_clip(folder / "source.mp4", FRAMES)

    def encode(self, case):
        path = self.folder / f"{case.codec}-{case.coding}.{case.container}"
        if not path.exists():
            self.run("-i", self.source, *CODECS[case.codec][1][case.coding], path)
        return path

    def run(self, *arguments):
        """ffmpeg, writing its last argument."""
        path = arguments[-1]
        container = FORMATS.get(path.suffix[1:], path.suffix[1:])
        try:
            ffmpeg(*arguments[:-1], "-f", container, path)
        except subprocess.CalledProcessError:
            path.unlink(missing_ok=True)
            pytest.skip("ffmpeg does not make it")

    def make(self, case):
        base = self.encode(case)
        path = self.folder / f"{case}.{case.container}"
        others = CODECS[case.codec][0].split()
        at = others.index(case.container)
        if case.treatment == "as-is":
            return base
        if case.treatment.startswith("remux"):
            for step in range(1 + (case.treatment == "remux-twice")):
                at = (at + 1) % len(others)
                path = self.folder / f"{case}-{step}.{others[at]}"
                self.run("-i", base, "-c", "copy", path)
                base = path
        elif case.treatment == "cut-at-key":
            self.run("-ss", "2.6667", "-i", base, "-c", "copy", path)  # 80 frames: a key frame of most
        elif case.treatment == "cut-off-key":
            self.run("-ss", "3.3", "-i", base, "-c", "copy", path)
        elif case.treatment == "mid-gop":
            self.run("-i", base, "-ss", "3.3", "-copyinkf", "-c", "copy", path)
        else:
            data = bytearray(base.read_bytes())
            if case.container in ("mp4", "mov"):  # what describes the file comes first
                front = self.folder / f"front-{base.name}"
                self.run("-i", base, "-c", "copy", "-movflags", "faststart", front)
                data = bytearray(front.read_bytes())
            at = len(data) * 6 // 10
            if case.treatment == "truncated":
                del data[at:]
            else:
                noise = np.random.default_rng(0).integers(0, 256, len(data) // 50, np.uint8).tobytes()
                data[at : at + len(noise)] = noise
            path.write_bytes(data)
        return path


@pytest.fixture(scope="module")
def maker(tmp_path_factory):
    return Maker(tmp_path_factory.mktemp("matrix"))


@dataclass
class Truth:
    """
    A plain decode: times of the frames and the frames, in the order of their times. Where not all times are known, the
    frames are in the order of decoding.
    """

    times: np.ndarray | None
    pictures: list
    known: dict | None = None


def plain_decode(path):
    pictures, pts, stamps = [], [], []
    with av.open(str(path)) as container:
        name = container.format.name
        if not container.streams.video:
            return Truth(None, [])
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        seconds = float(stream.time_base)
        try:
            for packet in container.demux(stream):
                stamps += [] if packet.pts is None else [packet.pts]
                try:
                    frames = packet.decode()
                except av.error.FFmpegError:
                    continue
                for frame in frames:
                    pts.append(frame.pts)
                    pictures.append(frame.to_ndarray(format="rgb24", width=192, height=96, interpolation="BICUBIC"))
        except av.error.FFmpegError:
            pass
    in_order = bool(pts) and None not in pts and ((np.diff(stamps) > 0).all() or (np.diff(pts) < 0).mean() > 0.1)
    if in_order:  # times of decoding, whichever frame has them
        pts = sorted(pts)
    ranks = np.argsort(np.argsort([0 if stamp is None else stamp for stamp in pts], kind="stable"))
    astray = np.abs(ranks - np.arange(len(pts))) > 40
    if None not in pts and astray.any():  # Ogg that was cut: times before zero become times of another age
        return Truth(None, pictures, {0: pts[0] * seconds})
    if pts and set(pts) == {None} and name == "mpeg":
        pts[0] = 0  # a constant rate, which the pictures state
    if None in pts or (in_order and len(set(pts)) < len(pts)):  # MPEG-PS: a time stamp here and there
        known = {i: stamp * seconds for i, stamp in enumerate(pts) if stamp is not None}
        return Truth(None, pictures, known)
    order = np.argsort(pts, kind="stable")
    times = np.array(pts, np.int64)[order]
    return Truth((times - times[:1]) * seconds, [pictures[i] for i in order])


def requests(path, truth):
    """All times at which something is shown; times for K = 4, 16 and 64 frames of the whole, and for two windows."""
    draw = random.Random(path.name)
    yield sorted(set(truth.times.tolist()))
    for k in (4, 16, 64):
        yield choose_times(str(path), k)
    for _ in range(2):
        duration = probe(str(path)).duration
        start = draw.uniform(0, duration * 0.8)
        yield choose_times(str(path), draw.randint(1, 12), start, draw.uniform(start + duration * 0.1, duration))


@pytest.mark.slow
def test_what_is_read_is_what_a_plain_decode_shows(case, maker, monkeypatch):
    path = maker.make(case)
    try:
        truth = plain_decode(path)
    except av.error.FFmpegError:
        truth = Truth(None, [])
    if truth.times is None and truth.known:
        truth.times = timeline.find_index(str(path))[1].times
        assert len(truth.times) == len(truth.pictures) and (np.diff(truth.times) > 0).all()
        begin = next(time - truth.times[i] for i, time in truth.known.items())
        assert all(abs(truth.times[i] + begin - time) < 0.15 for i, time in truth.known.items())
    if not truth.pictures or truth.times is None:
        with pytest.raises(VideoError):
            probe(str(path))
        return
    decoded, result = [], timeline.result

    def counted(future, name):
        found = result(future, name)
        decoded.append(found.frames if isinstance(found, Decoded) else 0)
        return found

    monkeypatch.setattr(timeline, "result", counted)
    for times in requests(path, truth):
        jobs._recent.clear()
        decoded.clear()
        due = np.searchsorted(truth.times, np.array(times) + 1e-6, "right") - 1  # the frames on screen
        try:
            found = read_frames(str(path), times)
        except VideoError as error:
            lost = [time for time, i in zip(times, due, strict=True) if abs(truth.times[i] - time) > 1e-5]
            assert lost and f"damaged: {len(lost)} of {len(times)} frames" in str(error)
        else:
            assert np.allclose(found.times, truth.times[due], atol=1e-6)
            for i, image in zip(due, found.images, strict=True):
                at_that_time = np.flatnonzero(np.abs(truth.times - truth.times[i]) < 1e-7)
                assert any(np.array_equal(np.asarray(image), truth.pictures[j]) for j in at_that_time), truth.times[i]
        assert sum(decoded) <= 2 * len(truth.pictures)
