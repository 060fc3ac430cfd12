"""What a rollout is made of: episodes, and slots for the calls in them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from .engines import Sample
from .tools import Crop
from .video import Clip, VideoError


@dataclass
class Slot:
    """One attempted call. `status`: `ok`, `malformed`, `refused`, `failed`, `limit` or `budget`."""

    turn: int
    status: str
    response: str
    video: str | None = None
    start: float | None = None
    end: float | None = None
    crop: Crop | None = field(default=None, repr=False)
    clip: Clip | None = field(default=None, repr=False)

    def fail(self, error: VideoError) -> None:
        self.status, self.response = "failed", f"Error: the video cannot be read, {error.reason}."

    def over_budget(self) -> None:
        self.status, self.response = "budget", "Error: no room is left, this call was not served."

    def record(self) -> dict:
        return {name: value for name, value in vars(self).items() if name not in ("crop", "clip")}


@dataclass
class Episode:
    """One rollout: `ids`, `mask` (1 sampled, 0 placed) and `logprobs` are always of one length."""

    prompt_ids: list[int]
    images: list
    question: str
    videos: list[str]
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    messages: list[dict] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    done: bool = False
    watch: Callable[[dict], None] | None = None

    def say(self, message: dict) -> None:
        self.messages.append(message)
        if self.watch is not None:
            self.watch(message)

    def place(self, ids: list[int]) -> None:
        self.ids += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)

    def extend(self, sample: Sample, length: int) -> None:
        self.ids += sample.ids[:length]
        self.mask += [1] * length
        self.logprobs += sample.logprobs[:length]

    @property
    def served(self) -> int:
        return sum(slot.status == "ok" for slot in self.slots)
