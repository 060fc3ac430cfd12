"""What frames cost: ours against decord, PyAV, torchcodec and qwen_vl_utils, on generated H.264 files."""

import json
import os
import resource
import statistics
import subprocess
import sys
import time

from paravt.metrics import table


FILES = {"60 s 480p": (1, 854, 480), "10 min 720p": (10, 1280, 720), "60 min 360p": (60, 640, 360)}  # minutes, pixels
PIXELS, RUNS = 50176, 3
WORKS = ["K = 4", "K = 16", "K = 64", "4 crops x 16"]
READERS = ["ours", "ours, key frames", "decord", "PyAV", "torchcodec", "fetch_video"]


def make_files(folder: str) -> dict[str, str]:
    """H.264 at 30 fps with key frames 250 frames apart; the long ones repeat a minute of moving picture with noise."""
    import imageio_ffmpeg

    os.makedirs(folder, exist_ok=True)
    ffmpeg, paths = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y"], {}
    for name, (minutes, width, height) in FILES.items():
        minute, path = (os.path.join(folder, f"{height}-{m}.mp4") for m in ("minute", minutes))
        if not os.path.exists(path):
            source = f"testsrc2=s={width}x{height}:r=30:d=60,noise=alls=4:allf=t"
            encode = ["-c:v", "libx264", "-preset", "veryfast", "-g", "250", "-pix_fmt", "yuv420p"]
            subprocess.run([*ffmpeg, "-f", "lavfi", "-i", source, *encode, minute], check=True)
            loop = ["-stream_loop", str(minutes - 1), "-i", minute, "-c", "copy"]
            subprocess.run([*ffmpeg, *loop, path + ".part.mp4"], check=True)
            os.replace(path + ".part.mp4", path)
        paths[name] = path
    return paths


def windows(duration: float, work: str) -> list[tuple[float, float, int]]:
    """Start, end and number of frames of each request."""
    if work.startswith("K"):
        return [(0.0, duration, int(work.split()[-1]))]
    return [(start, start + 16, 16) for start in (share * (duration - 16) for share in (0.1, 0.35, 0.6, 0.85))]


def read(reader: str, path: str, work: str, minutes: int, width: int, height: int) -> int:
    """Frames of one request by one reader, at most `PIXELS` each; returns their number."""
    from paravt.timeline import fit_size, sample_times

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
    from paravt import timeline, workers

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


def video(folder: str = "paravt-bench") -> str:
    """All readers on all files, then a generation batch, with progress."""
    from tqdm import tqdm

    paths, rows = make_files(folder), []
    work = [(name, w, r) for name in paths for w in WORKS for r in READERS if "key" not in r or w == "K = 64"]
    for name, w, reader in tqdm(work, "Readers"):
        command = [sys.executable, __file__, "one", reader, paths[name], w, *map(str, FILES[name])]
        runs = [subprocess.run(command, capture_output=True, text=True) for _ in range(RUNS)]
        found = [json.loads(run.stdout.splitlines()[-1]) for run in runs if run.returncode == 0]
        if found:
            seconds = statistics.median(f[1] for f in found)
            values = {"frames": found[0][0], "seconds": seconds, "MiB": max(f[2] for f in found)}
            ours = next((v["seconds"] for n, v in rows if n == f"{name}, {w}: ours"), seconds)
            values |= {"x ours": seconds / ours} | ({"worker MiB": max(f[3] for f in found)} if found[0][3] else {})
            rows.append((f"{name}, {w}: {reader}", values))
    parts = [table("file, work: reader", rows, ["frames", "seconds", "x ours", "MiB", "worker MiB"])]
    done = subprocess.run([sys.executable, __file__, "batch", paths["60 s 480p"]], capture_output=True, text=True)
    return "\n\n".join([*parts, done.stdout or done.stderr])


def batch(path: str) -> None:
    """8 prompts x 8 rollouts with mixed K, then 4 crops each, of which half overlap within a prompt."""
    from paravt import passes, timeline
    from paravt import video as frames

    folder, files = os.path.dirname(path), []
    for i in range(8):
        files.append(os.path.join(folder, f"prompt-{i}.mp4"))
        if not os.path.exists(files[-1]):
            os.link(path, files[-1])
    frames.probe_many(files)
    overviews, crops = [], []
    for i, file in enumerate(files):
        times = frames.choose_times(file, [4, 8, 16, 32, 64][i % 5])
        for rollout in range(8):
            overviews.append([(file, times)])
            starts = [0.0, 20.0, 2.0 * rollout + 1, 2.0 * rollout + 30 - 4]
            crops.append([(file, frames.choose_times(file, 16, s, min(s + 16, 60.0))) for s in starts])

    def shared() -> int:
        count = 0
        for stage in (overviews, crops):
            made = [[frames.clip(file, times, PIXELS) for file, times in requests] for requests in stage]
            frames.prefetch(one for clips in made for one in clips)
            count += sum(len([frame.load() for frame in one.frames]) for clips in made for one in clips)
        return count

    def per_rollout() -> int:
        count = 0
        for stage in (overviews, crops):
            for requests in stage:
                passes._recent.clear()
                made = [frames.clip(file, times, PIXELS) for file, times in requests]
                frames.prefetch(made)
                count += sum(len([frame.load() for frame in one.frames]) for one in made)
                del made
        return count

    rows = []
    for name, function, runs in (("ours", shared, RUNS), ("decoding per rollout", per_rollout, 1)):
        seconds = []
        for _ in range(runs):
            passes._recent.clear()
            start = time.perf_counter()
            count = function()
            seconds.append(time.perf_counter() - start)
        median = statistics.median(seconds)
        first = rows[0][1]["seconds"] if rows else median
        rows.append(
            (name, {"frames": count, "seconds": median, "x ours": median / first, "worker MiB": worker_peak()})
        )
    print(table("generation batch", rows, ["frames", "seconds", "x ours", "worker MiB"]))
    assert not timeline.failures, timeline.failures


if __name__ == "__main__":
    {"one": one, "batch": batch}[sys.argv[1]](*sys.argv[2:])
