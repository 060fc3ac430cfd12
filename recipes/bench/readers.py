"""
The readers of video files that `recipes/bench/video.py` compares; a measurement has a process of its own.

    python recipes/bench/readers.py READER FILE WORK MINUTES WIDTH HEIGHT
"""

import json
import resource
import sys
import time


PIXELS = 50176  # most of a frame
WORKS = ["K = 4", "K = 16", "K = 64", "4 crops x 16"]
READERS = ["ours", "ours, key frames", "decord", "PyAV", "torchcodec", "fetch_video"]


def windows(duration: float, work: str) -> list[tuple[float, float, int]]:
    """Start, end and number of frames of each request."""
    if work.startswith("K"):
        return [(0.0, duration, int(work.split()[-1]))]
    return [(start, start + 16, 16) for start in (share * (duration - 16) for share in (0.1, 0.35, 0.6, 0.85))]


def read(reader: str, path: str, work: str, minutes: int, width: int, height: int) -> int:
    """Frames of one request by one reader, at most `PIXELS` each; returns their number."""
    from paravt.video.timeline import fit_size, sample_times

    requests = windows(60.0 * minutes, work)
    asked = [sample_times(60.0 * minutes, k, start, end) for start, end, k in requests]
    numbers = [[int(t * 30) for t in times] for times in asked]
    size = fit_size(width, height, PIXELS)
    if reader.startswith("ours"):
        from paravt import video

        snap = "key" in reader
        times = [video.choose_times(path, k, start, end, snap=snap) for start, end, k in requests]
        clips = [video.clip(path, t, PIXELS) for t in times]
        video.prefetch(clips)
        return sum(len([frame.load() for frame in one.frames]) for one in clips)
    if reader == "decord":
        import decord

        video = decord.VideoReader(path, width=size[0], height=size[1])
        return sum(len(video.get_batch(n).asnumpy()) for n in numbers)
    if reader == "PyAV":
        import av

        count = 0
        with av.open(path) as container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            for time_ in (t for times in asked for t in times):
                container.seek(int(time_ / stream.time_base), stream=stream)
                for frame in container.decode(stream):
                    if frame.time + 1 / 30 > time_:
                        count += frame.to_ndarray(format="rgb24", width=size[0], height=size[1]) is not None
                        break
        return count
    if reader == "torchcodec":
        import torch
        from torchcodec.decoders import VideoDecoder

        decoder = VideoDecoder(path, num_ffmpeg_threads=0)
        frames = [decoder.get_frames_at(n).data for n in numbers]
        return sum(len(torch.nn.functional.interpolate(f.float(), size[::-1], mode="bilinear")) for f in frames)
    from qwen_vl_utils.vision_process import fetch_video

    found = [
        fetch_video(
            {
                "video": path,
                "nframes": k,
                "min_pixels": 4096,
                "max_pixels": PIXELS,
                "video_start": start,
                "video_end": end,
            }
        )
        for start, end, k in requests
    ]
    return sum(len(f[0] if isinstance(f, tuple) else f) for f in found)


def worker_peak() -> float:
    """Peak memory of the busiest decode worker, MiB."""
    from paravt.video import timeline, workers

    texts = [timeline.schedule(eval, "open('/proc/self/status').read()") for _ in range(4 * workers.count())]
    return max(int(text.result().split("VmHWM:")[1].split()[0]) / 1024 for text in texts)


def one(reader: str, path: str, work: str, *shape: str) -> None:
    """A measurement in a process of its own: imports and the start of workers are not timed, the file's index is."""
    for module in {"decord": ["decord"], "torchcodec": ["torchcodec.decoders"], "fetch_video": ["qwen_vl_utils"]}.get(
        reader, ["paravt.video"]
    ):
        __import__(module)
    if reader.startswith("ours"):
        worker_peak()
    start = time.perf_counter()
    count = read(reader, path, work, *map(int, shape))
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([count, seconds, peak, worker_peak() if reader.startswith("ours") else 0.0]))


if __name__ == "__main__":
    one(*sys.argv[1:])
