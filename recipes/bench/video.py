"""
What frames cost: ours against decord, PyAV, torchcodec and qwen_vl_utils, on generated H.264 files.

    pip install torchcodec qwen_vl_utils requests
    python recipes/bench/video.py
    python recipes/bench/video.py --against CHECKOUT   # ours beside that of another checkout, in turns with decord
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from readers import PIXELS, READERS, WORKS, worker_peak

from paravt.metrics import table


FILES = {"60 s 480p": (1, 854, 480), "10 min 720p": (10, 1280, 720), "60 min 360p": (60, 640, 360)}  # minutes, pixels
RUNS, READ = 3, os.path.join(os.path.dirname(os.path.abspath(__file__)), "readers.py")


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


def measure(reader: str, name: str, path: str, work: str, checkout: str | None = None) -> list | None:
    """Frames, seconds, MiB and MiB of a worker of one reading, with the library of a checkout; `None` if it fails."""
    command = [sys.executable, READ, reader, path, work, *map(str, FILES[name])]
    environment = {**os.environ, "PYTHONPATH": checkout} if checkout else None
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    return json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else None


def video(folder: str = "paravt-bench") -> str:
    """All readers on all files, then a generation batch, with progress."""
    from tqdm import tqdm

    paths, rows = make_files(folder), []
    work = [(name, w, r) for name in paths for w in WORKS for r in READERS if "key" not in r or w == "K = 64"]
    for name, w, reader in tqdm(work, "Readers"):
        found = [run for run in (measure(reader, name, paths[name], w) for _ in range(RUNS)) if run]
        if found:
            seconds = statistics.median(f[1] for f in found)
            values = {"frames": found[0][0], "seconds": seconds, "MiB": max(f[2] for f in found)}
            ours = next((v["seconds"] for n, v in rows if n == f"{name}, {w}: ours"), seconds)
            values |= {"x ours": seconds / ours} | ({"worker MiB": max(f[3] for f in found)} if found[0][3] else {})
            rows.append((f"{name}, {w}: {reader}", values))
    parts = [table("file, work: reader", rows, ["frames", "seconds", "x ours", "MiB", "worker MiB"])]
    done = subprocess.run([sys.executable, __file__, "--batch", paths["60 s 480p"]], capture_output=True, text=True)
    return "\n\n".join([*parts, done.stdout or done.stderr])


def compare(checkout: str, folder: str = "paravt-bench", runs: int = RUNS) -> str:
    """Ours of this checkout and of another, and decord, in turns: what changed, whatever else the machine does."""
    from tqdm import tqdm

    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sides = {"ours": ("ours", here), "theirs": ("ours", os.path.abspath(checkout)), "decord": ("decord", here)}
    paths, rows = make_files(folder), []
    for name, work in tqdm([(name, work) for name in paths for work in WORKS], "Files"):
        seconds = {side: [] for side in sides}
        for _ in range(runs):
            for side, (reader, library) in sides.items():
                seconds[side].append(measure(reader, name, paths[name], work, library)[1])
        median = {side: statistics.median(found) for side, found in seconds.items()}
        values = median | {f"{side} / decord": median[side] / median["decord"] for side in ("ours", "theirs")}
        rows.append((f"{name}, {work}", values | {"ours / theirs": median["ours"] / median["theirs"]}))
    columns = ["ours", "theirs", "decord", "ours / decord", "theirs / decord", "ours / theirs"]
    means = {column: statistics.geometric_mean(values[column] for _, values in rows) for column in columns}
    return table("seconds", [*rows, ("geometric mean", means)], columns)


def batch(path: str) -> None:
    """8 prompts x 8 rollouts with mixed K, then 4 crops each, of which half overlap within a prompt."""
    from paravt import video as frames
    from paravt.video import jobs, timeline

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
                jobs._recent.clear()
                made = [frames.clip(file, times, PIXELS) for file, times in requests]
                frames.prefetch(made)
                count += sum(len([frame.load() for frame in one.frames]) for one in made)
                del made
        return count

    rows = []
    for name, function, runs in (("ours", shared, RUNS), ("decoding per rollout", per_rollout, 1)):
        seconds = []
        for _ in range(runs):
            jobs._recent.clear()
            start = time.perf_counter()
            count = function()
            seconds.append(time.perf_counter() - start)
        median = statistics.median(seconds)
        ratio = median / (rows[0][1]["seconds"] if rows else median)
        rows.append((name, {"frames": count, "seconds": median, "x ours": ratio, "worker MiB": worker_peak()}))
    print(table("generation batch", rows, ["frames", "seconds", "x ours", "worker MiB"]))
    assert not timeline.failures, timeline.failures


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", metavar="CHECKOUT", help="another checkout of the library")
    parser.add_argument("--runs", type=int, default=RUNS, help="of which the median counts, with --against")
    parser.add_argument("--batch", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.batch:
        batch(options.batch)
    else:
        print(compare(options.against, runs=options.runs) if options.against else video())
