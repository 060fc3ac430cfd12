"""What the first bytes of a packet say of its frame, for the codecs where the container's flags do not suffice."""

import re
from collections.abc import Iterator


def begins_cleanly(codec: str, data: memoryview, extradata: bytes | None) -> bool:
    """
    Whether every frame from the time of a key frame on comes out exact if decoding begins there.

    Containers also mark H.264 frames from which the picture only recovers, as with intra refresh: these do not count.
    """
    if codec == "h264":
        return _begins_h264(_units(data, extradata, 4, 1))
    if codec == "hevc":
        return _begins_hevc(_units(data, extradata, 21, 2))
    return True


def is_hidden(codec: str, data: memoryview) -> bool:
    """Whether a VP8 or VP9 packet holds a frame that is only for reference and never shown."""
    first = data[0]
    if codec == "vp8":
        return not first & 0x10
    if codec == "vp9":
        superframe = data[len(data) - 1] & 0xE0 == 0xC0  # several frames, the last of which is shown
        profile3 = first & 0x30 == 0x30
        again, shown = (0x04, 0x01) if profile3 else (0x08, 0x02)  # show_existing_frame, show_frame
        return not superframe and not first & (again | shown)
    return False


def _begins_h264(units: Iterator[memoryview]) -> bool:
    recovered = False
    for unit in units:
        kind = unit[0] & 31
        if kind == 5:  # IDR
            return True
        if 1 <= kind <= 4:  # another slice
            return recovered
        if kind == 6:
            recovered |= _recovers_at_once(bytes(unit[1:]))
    return False


def _recovers_at_once(messages: bytes) -> bool:
    """Whether SEI messages hold a recovery point at this very frame, with exact pictures (an open GOP)."""
    at = 0
    while at + 2 < len(messages):
        kind = size = 0
        while at < len(messages) and messages[at] == 255:
            kind, at = kind + 255, at + 1
        kind, at = kind + messages[at], at + 1
        while at < len(messages) and messages[at] == 255:
            size, at = size + 255, at + 1
        if at + 1 >= len(messages):
            return False
        size, at = size + messages[at], at + 1
        if kind == 6:
            return messages[at] & 0xE0 == 0xC0  # recovery_frame_cnt 0, exact_match_flag, no broken_link
        at += size
    return False


def _begins_hevc(units: Iterator[memoryview]) -> bool:
    kinds = (unit[0] >> 1 & 63 for unit in units)
    first = next((kind for kind in kinds if kind < 32), -1)  # of a slice
    return 16 <= first <= 21  # BLA, IDR, CRA


def _units(data: memoryview, extradata: bytes | None, size_at: int, header: int) -> Iterator[memoryview]:
    """NAL units of a packet: each after its length where the extradata say so, or else between start codes."""
    if extradata and extradata[0] == 1 and len(extradata) > size_at:
        length, at = (extradata[size_at] & 3) + 1, 0
        while at + length + header <= len(data):
            size = int.from_bytes(data[at : at + length])
            yield data[at + length : at + length + max(size, header)]
            at += length + size
    else:
        begins = [match.end() for match in re.finditer(b"\0\0\1", data)]
        for begin, end in zip(begins, [*begins[1:], len(data)], strict=True):
            if end - begin >= header:
                yield data[begin:end]
