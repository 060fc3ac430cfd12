"""
Checks video files by reading what training would read of each: an overview and a crop. A line per bad file with its
cause, and a summary; the exit code is 1 if one is bad.

    python -m paravt.video FILE_OR_FOLDER...
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from . import workers
from .clips import clip
from .files import VideoError
from .timeline import choose_times, probe


CROP_SECONDS, CROP_FRAMES, MAX_PIXELS = 16, 16, 50176  # the defaults of training


def main(arguments: list[str] | None = None) -> int:
    """Checks files and folders; returns 1 if one is bad, or else 0."""
    parser = argparse.ArgumentParser(prog="python -m paravt.video", description="Checks video files before training.")
    parser.add_argument("paths", nargs="+", metavar="FILE_OR_FOLDER", help="videos, or folders with nothing else")
    parser.add_argument("--frames", type=int, default=8, metavar="K", help="frames of the overview (default: 8)")
    parser.add_argument("--quick", action="store_true", help="only index the files: no frame of most is decoded")
    options = parser.parse_args(arguments)
    if options.frames < 1:
        parser.error(f"--frames must be at least 1, got {options.frames}")
    paths = list(dict.fromkeys(find_files(options.paths)))
    bad = check(paths, probe if options.quick else lambda path: read(path, options.frames))
    causes = Counter(error.cause for error in bad)
    print(f"{len(paths) - len(bad)} of {len(paths)} files are good")
    for cause, count in causes.most_common():
        print(f"{count:6d}  {cause}")
    return int(bool(bad))


def find_files(paths: Iterable[str]) -> Iterable[str]:
    """Files, and the files in folders and the folders below them."""
    for path in paths:
        if os.path.isdir(path):
            yield from sorted(os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
        else:
            yield path


def check(paths: list[str], use: Callable[[str], object]) -> list[VideoError]:
    """Uses each file, as many at a time as there are workers; prints and returns the errors, in the files' order."""
    from tqdm import tqdm

    def attempt(path: str) -> VideoError | None:
        try:
            use(path)
        except VideoError as error:
            return error
        return None

    bad = []
    with ThreadPoolExecutor(workers.count()) as pool:
        for error in tqdm(pool.map(attempt, paths), "Videos", total=len(paths), leave=False):
            if error:
                tqdm.write(str(error), file=sys.stdout)
                bad.append(error)
    return bad


def read(path: str, frames: int) -> None:
    """Reads `frames` frames of the whole video, and a crop from its middle at a frame per second."""
    clip(path, choose_times(path, frames), MAX_PIXELS).load()
    duration = probe(path).duration  # only now: reading may have mended what is known of the file
    start = max(0.0, (duration - CROP_SECONDS) / 2)
    end = min(duration, start + CROP_SECONDS)
    count = max(1, min(CROP_FRAMES, int(end - start + 0.5)))
    clip(path, choose_times(path, count, start, end), MAX_PIXELS).load()


if __name__ == "__main__":
    sys.exit(main())
