"""The one tool, `crop_video`: what a call asks for becomes a window of one of the row's own videos."""

import math
import reprlib
from dataclasses import dataclass
from itertools import count

from . import video
from .messages import RowError, read_videos
from .parser import ToolCall, ToolCallError, build_call, parse_seconds, parse_tool_calls, render_tool_call


__all__ = [
    "Crop",
    "CropVideo",
    "ToolCall",
    "ToolCallError",
    "ToolError",
    "parse_seconds",
    "parse_tool_calls",
    "render_tool_call",
    "resolve",
    "video_names",
]


class ToolError(ValueError):
    """A well-written call that cannot be served; its text is the tool response."""


@dataclass(frozen=True)
class Crop:
    """The effective window of a call; `times` are those of its frames. All in seconds of the source video."""

    path: str
    start: float
    end: float
    times: tuple[float, ...]
    note: str = ""


def resolve(call: ToolCall, videos: list[str], fps: float = 1.0, max_frames: int = 16) -> Crop:
    """
    The window that a call gets of one of `videos`, the row's own: clamped to the video, its frames chosen.

    Raises:
        [`ToolError`]: for an unknown video, and a window that is empty, reversed or outside; it states the duration.
        [`~video.VideoError`]: for a file gone bad.
    """
    path = _choose(call.arguments.get("video_path"), videos)
    duration = video.probe(path).duration
    start, end = call.arguments["start_time"], call.arguments["end_time"]
    lasts = f"The video lasts {duration:.1f} seconds."
    if end <= start:
        raise ToolError(f"end_time {end:g} is not after start_time {start:g}. {lasts}")
    if start >= duration or end <= 0:
        raise ToolError(f"Seconds {start:g} to {end:g} are outside the video. {lasts}")
    shown = max(0.0, start), min(duration, end)
    frames = max(1, min(max_frames, math.floor((shown[1] - shown[0]) * fps + 0.5)))
    times = video.choose_times(path, frames, *shown)
    return Crop(path, *shown, tuple(times), "" if shown == (start, end) else f" {lasts}")


def video_names(paths: list[str]) -> list[str]:
    """
    What each of a row's videos is called in prompts and calls: its base name, with as many folders before it as tell
    it from the others; a file that is listed again has a number after it. No two have the same name.
    """
    parts = [path.split("/") for path in paths]
    length = dict.fromkeys(paths, 1)
    for path, own in zip(paths, parts, strict=True):
        others = [other for other in parts if other != own]
        while length[path] < len(own) and any(other[-length[path] :] == own[-length[path] :] for other in others):
            length[path] += 1
    names = ["/".join(own[-length[path] :]) for path, own in zip(paths, parts, strict=True)]
    taken = set(names)
    for i, name in enumerate(names):
        if name in names[:i]:
            free = (f"{name} ({number})" for number in count(2))
            names[i] = next(new for new in free if new not in taken)
            taken.add(names[i])
    return names


def _choose(name: str | None, videos: list[str]) -> str:
    names = video_names(videos)
    if name is None and len(videos) == 1:
        return videos[0]
    if name in videos:
        return name
    if name in names:
        return videos[names.index(name)]
    asked = "The call names no video" if name is None else f"There is no video {name[:80]!r}"
    raise ToolError(f"{asked}; the videos are {', '.join(map(repr, names))}.")


class CropVideo:
    """
    The tool for TRL's own loop: `GRPOTrainer(..., environment_factory=CropVideo)` on rows with a `videos` column.

    Args:
        fps (`float`, *optional*, defaults to `1.0`):
            Frames per second of a crop.
        max_frames (`int`, *optional*, defaults to `16`):
            Most frames of a crop.
        max_pixels (`int`, *optional*, defaults to `50176`):
            Largest area of a frame, in pixels.
    """

    def __init__(self, fps: float = 1.0, max_frames: int = 16, max_pixels: int = 50176):
        self._fps, self._max_frames, self._max_pixels, self._videos = fps, max_frames, max_pixels, []

    def reset(self, videos: object = None, **row) -> None:
        """
        Takes the videos of a row, in any shape that [`~messages.read_videos`] reads. No other file can be opened.
        """
        try:
            self._videos = read_videos(videos)
        except RowError as error:
            raise ValueError(f"{error}: {reprlib.repr(videos)}") from None

    def crop_video(self, video_path: str, start_time: float, end_time: float) -> list:
        """
        Look closely at a part of a video.

        Args:
            video_path: Name of the video.
            start_time: Start of the part, in seconds.
            end_time: End of the part, in seconds.

        Returns:
            The frames of the part, each after its time.
        """
        call = build_call([("video_path", video_path), ("start_time", start_time), ("end_time", end_time)])
        if isinstance(call, ToolCallError):
            raise ToolError(call.message)
        crop = resolve(call, self._videos, self._fps, self._max_frames)
        frames = video.read_frames(crop.path, crop.times, max_pixels=self._max_pixels)
        parts = [{"type": "text", "text": f"Seconds {crop.start:.1f} to {crop.end:.1f}.{crop.note}"}]
        for time, image in zip(frames.times, frames.images, strict=True):
            parts += [{"type": "text", "text": f"<{time:.1f} seconds>"}, {"type": "image", "image": image}]
        return parts
