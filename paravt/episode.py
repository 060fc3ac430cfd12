"""What a rollout is made of: episodes, slots for the calls in them, and the briefs of sub-agents."""

from collections.abc import Callable
from dataclasses import dataclass, field

from .engines import Sample
from .seeds import seed_of
from .tools import Crop
from .video import Clip, VideoError


@dataclass
class Slot:
    """
    One attempted call and its place among the tool responses of its turn.

    `status` is `planned` until the call is served, and then `ok`; or why it was not: `malformed` (no call could be
    read), `refused` (it asks for what there is not), `failed` (the video cannot be read), `limit` (of calls or turns)
    or `no_room` (of tokens).
    """

    turn: int
    status: str
    response: str
    video: str | None = None
    start: float | None = None
    end: float | None = None
    crop: Crop | None = field(default=None, repr=False)
    clip: Clip | None = field(default=None, repr=False)

    def serve(self, report: str) -> None:
        """Answers the call with what the sub-agent reports."""
        self.status, self.response = "ok", f"{self.heading} {report}"

    def fail(self, error: VideoError) -> None:
        """Answers it with why the video cannot be read."""
        self.status, self.response = "failed", f"Error: the video cannot be read, {error.reason}."

    def leave_out(self) -> None:
        """Answers it with the word that there is no room."""
        self.status, self.response = "no_room", "Error: no room is left, this call was not served."

    @property
    def heading(self) -> str:
        """How the response of a served call begins."""
        return f"Seconds {self.start:.1f} to {self.end:.1f}:{self.crop.note}"

    def record(self) -> dict:
        """What reward functions and records see of the call: plain values."""
        return {name: value for name, value in vars(self).items() if name not in ("crop", "clip")}


@dataclass(frozen=True)
class Brief:
    """The task of one sub-agent. Equal calls of a turn share it: each of `slots` gets the report."""

    slots: list[Slot]
    prompt_ids: list[int]
    images: list
    max_tokens: int  # of the report
    seed: int | None = None


@dataclass
class Episode:
    """One rollout: `ids`, `mask` (1 sampled, 0 placed) and `logprobs` are always of one length."""

    prompt_ids: list[int]
    images: list
    question: str
    videos: list[str]
    limit: int  # most tokens after the prompt
    seed: int | None = None  # of all that is drawn in it
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    messages: list[dict] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    done: bool = False
    watch: Callable[[dict], None] | None = None

    def seed_at(self, *place: int) -> int | None:
        """The seed of what is drawn at a place: a turn, or a report of a turn."""
        return None if self.seed is None else seed_of(self.seed, *place)

    def say(self, message: dict) -> None:
        """Appends a message as reward functions and logs see it."""
        self.messages.append(message)
        if self.watch is not None:
            self.watch(message)

    def place(self, ids: list[int]) -> None:
        """Appends tokens that the policy did not sample."""
        self.ids += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)

    def extend(self, sample: Sample, length: int) -> None:
        """Appends the first `length` tokens of what the policy sampled."""
        self.ids += sample.ids[:length]
        self.mask += [1] * length
        self.logprobs += sample.logprobs[:length]

    def end(self, turn: int) -> None:
        """Ends on the calls of a turn: their responses will not be read."""
        self.done = True
        for slot in self.slots_of(turn):
            if slot.status in ("planned", "ok"):
                slot.status = "no_room"

    @property
    def length(self) -> int:
        """Tokens of the whole conversation."""
        return len(self.prompt_ids) + len(self.ids)

    @property
    def room(self) -> int:
        """Tokens that may still follow."""
        return self.limit - len(self.ids)

    @property
    def accepted(self) -> int:
        """Calls that were served or will be."""
        return sum(slot.status in ("planned", "ok") for slot in self.slots)

    def planned(self) -> list[Slot]:
        """The calls that are to be served, in call order."""
        return [slot for slot in self.slots if slot.status == "planned"]

    def slots_of(self, turn: int) -> list[Slot]:
        """The attempted calls of a turn, in call order."""
        return [slot for slot in self.slots if slot.turn == turn]
