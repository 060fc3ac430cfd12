"""
Checks video files: a line per bad one with its cause, and a summary. The exit code is 1 if one is bad.

    python -m paravt.video FILE_OR_FOLDER...
"""

import os
import sys
from collections import Counter

from .decode import VideoError
from .timeline import probe_many


def main(arguments: list[str]) -> int:
    """Checks files and folders; returns the number of bad files, at most 1."""
    paths = []
    for argument in arguments:
        if os.path.isdir(argument):
            paths += sorted(os.path.join(folder, name) for folder, _, names in os.walk(argument) for name in names)
        else:
            paths.append(argument)
    found = probe_many(paths, progress=True)
    bad = [error for error in found.values() if isinstance(error, VideoError)]
    for error in bad:
        print(error)
    causes = Counter(error.reason.split(" (")[0] for error in bad)
    print(f"{len(found) - len(bad)} of {len(found)} files are good")
    for cause, count in causes.most_common():
        print(f"{count:6d}  {cause}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
