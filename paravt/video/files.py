"""Files and the video streams in them: what can be opened, and why the rest cannot. Imports only PyAV."""

import os
import stat

import av


# Demuxers and decoders that make pictures of what is not a video.
TEXT_CODECS = {"ansi", "bintext", "idf", "xbin"}
STILL_BRANDS = ("avif", "heic", "heix", "mif1")  # of pictures in a container for videos
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
    size = check_file(path)[1]
    with open(path, "rb") as file:
        head = file.read(HEAD)
    # Not left to the demuxers: some draw text as pictures, others follow the addresses in a playlist.
    if head.lstrip()[:1] == b"<":
        raise VideoError(path, f"a web page, not a video ({size} bytes)")
    if _is_text(head):
        raise VideoError(path, f"text, not a video ({size} bytes)")
    try:
        # An absolute path is never read as a protocol, whatever characters it holds.
        container = av.open(os.path.abspath(path), metadata_errors="ignore")
    except (av.error.FFmpegError, OSError, ValueError) as error:
        kind = "an incomplete or damaged MP4" if head[4:8] == b"ftyp" else "not a video, or damaged"
        raise VideoError(path, f"cannot be opened ({size} bytes, {kind}: {error.strerror})") from None
    name, brand = container.format.name, container.metadata.get("major_brand")
    if name == "image2" or name.endswith("_pipe") or brand in STILL_BRANDS:
        container.close()
        raise VideoError(path, f"a picture, not a video ({size} bytes)")
    return container


def _is_text(head: bytes) -> bool:
    """Whether a file begins as text does: UTF-16 with its mark, or UTF-8 without control characters."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return True
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < HEAD - 3:  # no character that the end of the head cuts in two
            return False
        text = head[: error.start].decode()
    return all(character >= " " or character in "\t\n\v\f\r\x1a\x1b" for character in text)


def _video_streams(path: str, container) -> list:
    cover = av.stream.Disposition.attached_pic
    streams = [stream for stream in container.streams.video if not stream.disposition & cover]
    decodable = [stream for stream in streams if stream.codec_context is not None]
    if decodable and decodable[0].codec_context.codec.name not in TEXT_CODECS:
        return decodable
    size, kinds = os.path.getsize(path), ", ".join(sorted({s.type for s in container.streams})) or "none"
    container.close()
    if decodable:
        raise VideoError(path, f"text, not a video ({size} bytes)")
    if streams:
        raise VideoError(path, f"no decoder for its video stream ({size} bytes)")
    raise VideoError(path, f"no video stream ({size} bytes, streams: {kinds})")


def _longest(container, streams) -> int:
    """Number of the stream whose packets span most time; the first of several."""
    spans = {stream.index: [] for stream in streams}
    try:
        for packet in container.demux(streams):
            stamp = packet.dts if packet.pts is None else packet.pts
            if stamp is None or packet.is_discard:
                continue
            begin, end = float(stamp * packet.time_base), float((stamp + (packet.duration or 0)) * packet.time_base)
            span = spans[packet.stream.index] or [begin, end]
            spans[packet.stream.index] = [min(span[0], begin), max(span[1], end)]
    except av.error.FFmpegError:
        pass  # a truncated file: what came before can be shown
    return max(spans, key=lambda number: spans[number][1] - spans[number][0] if spans[number] else -1.0)
