"""Files and the video streams in them: what can be opened, and why the rest cannot. Imports only PyAV."""

import codecs
import os
import stat
from collections import Counter

import av

from .workers import progress


TEXT_CODECS = {"ansi", "bintext", "idf", "xbin"}  # decoders that draw text
# Demuxers that open what a file names: other files, or addresses.
FOLLOWERS = {"concat", "dash", "hls", "imf", "rtp", "rtsp", "sap", "sdp", "vobsub"}
DEMUXERS = ",".join(sorted(name for name in av.formats_available if not FOLLOWERS.intersection(name.split(","))))
# Demuxers, and brands of MP4, whose files of one frame are pictures.
PICTURES = {"alias_pix", "brender_pix", "fits", "ico", "iff", "image2", "txd"}
ANIMATIONS = {"apng", "gif", "jpegxl_anim", "mjpeg", "mjpeg_2000", "webp", "webp_anim"}
PICTURE_BRANDS = {"avif", "avis", "heic", "heix", "hevc", "mif1", "msf1"}
HEAD = 4096  # bytes that tell text from a video


class VideoError(Exception):
    """A file, or a part of one, that cannot be shown; `reason` says why."""

    def __init__(self, path: str, reason: str):
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"

    @property
    def cause(self) -> str:
        """The reason without what is particular to the file: what errors are counted by."""
        return self.reason.split(" (")[0].split(":")[0]


def check_file(path: str) -> tuple[int, int]:
    """Modification time and size of a regular, readable, non-empty file."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise VideoError(path, f"not found ({error.strerror})") from None
    if not stat.S_ISREG(status.st_mode):
        raise VideoError(path, "not a regular file")
    if not status.st_size:
        raise VideoError(path, "the file is empty (0 bytes)")
    return status.st_mtime_ns, status.st_size


def open_stream(path: str, number: int | None = None):
    """
    A container and one of its video streams: stream `number`, or the one that shows most time.

    Cover art is no video, whether the container marks it as such or puts it first.
    """
    container = _open(path)
    if number is None:
        streams = _video_streams(path, container)
        if len(streams) > 1:
            number = _longest(container, streams)
            container.close()  # it stands at its end
            container = _open(path)
        else:
            number = streams[0].index
    stream = container.streams[number]
    stream.codec_context.thread_count = 1  # as many workers as cores already
    return container, stream


def _open(path: str):
    check_file(path)
    # An absolute path is never read as a protocol, whatever characters it holds, and no name as that of a sequence.
    options = {"format_whitelist": DEMUXERS, "pattern_type": "none"}
    try:
        return av.open(os.path.abspath(path), metadata_errors="ignore", options=options)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        mp4 = _head(path)[4:8] == b"ftyp"
        kind = "an incomplete or damaged MP4" if mp4 else "not a video, or damaged"
        raise refusal(path, "cannot be opened", f"{kind}: {error.strerror}") from None


def refusal(path: str, reason: str, *details: str) -> VideoError:
    """The error for a file of which nothing can be shown: `reason`, unless it begins as a web page or as text does."""
    head = _head(path)
    if head.lstrip()[:1] == b"<" and b"\0" not in head:
        reason, details = "a web page, not a video", ()
    elif _is_text(head):
        reason, details = "text, not a video", ()
    return VideoError(path, f"{reason} ({', '.join([f'{os.path.getsize(path)} bytes', *details])})")


def _head(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(HEAD)


def _is_text(head: bytes) -> bool:
    """Whether a file begins as text does: UTF-16 with its mark, or UTF-8 without control characters."""
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return True
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)  # its end may cut a character in two
    except UnicodeDecodeError:
        return False
    return all(character >= " " or character in "\t\n\v\f\r\x1a\x1b" for character in text)


def may_be_picture(container) -> bool:
    """Whether a file of this kind is a picture if it has a single frame."""
    name, brand = container.format.name, container.metadata.get("major_brand")
    return name in PICTURES | ANIMATIONS or name.endswith("_pipe") or brand in PICTURE_BRANDS


def _video_streams(path: str, container) -> list:
    cover = av.stream.Disposition.attached_pic
    streams = [stream for stream in container.streams.video if not stream.disposition & cover]
    decodable = [stream for stream in streams if stream.codec_context is not None]
    if decodable and decodable[0].codec_context.codec.name not in TEXT_CODECS:
        return decodable
    kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "none"
    container.close()
    if decodable:
        raise refusal(path, "text, not a video")
    if streams:
        raise refusal(path, "no decoder for its video stream")
    raise refusal(path, "no video stream", f"streams: {kinds}")


def _longest(container, streams) -> int:
    """Number of the stream whose packets span most time; of several the one with most packets, or else the first."""
    spans = {stream.index: (0.0, 0.0) for stream in streams}
    counts = Counter()
    try:
        for packet in container.demux(streams):
            progress()
            stamp, number = packet.dts if packet.pts is None else packet.pts, packet.stream.index
            if stamp is None or packet.is_discard:
                continue
            begin, end = float(stamp * packet.time_base), float((stamp + (packet.duration or 0)) * packet.time_base)
            span = spans[number] if counts[number] else (begin, end)
            spans[number] = min(span[0], begin), max(span[1], end)
            counts[number] += 1
    except av.error.FFmpegError:
        pass  # a truncated file: what came before can be shown
    return max(spans, key=lambda number: (spans[number][1] - spans[number][0], counts[number]))
