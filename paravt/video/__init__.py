"""
Frames of videos by time stamp: exact, lazy, decoded once, and never in a process that matters.

The verbs: [`probe`] tells what is shown of a file, [`sample_times`] and [`choose_times`] choose times, [`read_frames`]
reads them at once, and [`clip`] when they are looked at. `python -m paravt.video FILE_OR_FOLDER...` checks files.

In the process that asks:

- `clips`: frames that decode together, and images that decode when they are looked at
- `jobs`: what several clips want of a file, decoded together and once
- `recent`: indices and pixels that are kept for the next who asks
- `timeline`: when frames are shown, and the times to ask for
- `workers`: processes that can be killed

Inside the workers:

- `files`: what can be opened, and why the rest cannot
- `index`: what a file shows and when; `bitstream`: what codecs say of it
- `decode`: frames out of a file
"""

from importlib import import_module


# Names are resolved on first use: a decode worker imports `paravt.video.decode` and must not pay for Pillow.
_EXPORTS = {
    "Clip": "clips",
    "Frames": "clips",
    "GreyClip": "clips",
    "LazyFrame": "clips",
    "clip": "clips",
    "prefetch": "clips",
    "read_frames": "clips",
    "VideoError": "files",
    "VideoInfo": "index",
    "choose_times": "timeline",
    "fit_size": "timeline",
    "local_path": "timeline",
    "probe": "timeline",
    "probe_many": "timeline",
    "sample_times": "timeline",
}

__all__ = list(_EXPORTS)


def __getattr__(name: str):
    if name in _EXPORTS:
        return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
