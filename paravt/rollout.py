"""The one episode loop, also TRL's `rollout_func`: generation, parallel crops, sub-agents, tool responses."""

import math
from collections.abc import Callable
from functools import partial

from . import video
from .anchors import token_texts
from .chat import Chat
from .engines import Engine, Sample, engine_of
from .episode import Episode, Slot
from .parser import ToolCall, ToolCallError, parse_tool_calls
from .prompts import LAST_TURN, subagent_messages
from .tools import Crop, ToolError, resolve
from .video import VideoError


ANSWER_TOKENS = 64  # kept free for the last answer when reports are cut to what fits
MIN_REPORT_TOKENS = 16


class ParallelRollout:
    """
    Plays episodes: the main agent thinks, sends several calls in one turn, sub-agents with the same weights watch the
    crops of all calls of all rollouts in one batch, their reports come back in call order, and the main agent goes on.

    It is a `rollout_func` for [`~trl.GRPOTrainer`], whose prompts must come from a [`FrameBudgetCollator`]; [`run`]
    serves evaluation with any engine.

    Args:
        think_prefix (`bool`, *optional*, defaults to `True`):
            Whether `<think>` is placed at the start of every turn.
        dispatch (`str`, *optional*, defaults to `"parallel"`):
            `"parallel"`: all calls of a turn; `"sequential"`: the first one; `"none"`: no call is served.
        max_turns (`int`, *optional*, defaults to `3`):
            Turns with tools; one more turn, without, follows.
        max_calls_per_turn (`int`, *optional*, defaults to `5`):
            Calls served in a turn.
        max_calls (`int`, *optional*, defaults to `15`):
            Calls served in an episode.
        max_turn_length (`int`, *optional*, defaults to `2048`):
            Most new tokens of a turn.
        max_report_length (`int`, *optional*, defaults to `512`):
            Most new tokens of a sub-agent.
        crop_fps (`float`, *optional*, defaults to `1.0`):
            Frames per second of a crop.
        crop_frames (`int`, *optional*, defaults to `16`):
            Most frames of a crop.
        max_pixels (`int`, *optional*, defaults to `50176`):
            Largest area of a frame, in pixels.
        video_backend (`str`, *optional*, defaults to `"pyav"`):
            Decoder of the crops, `"pyav"` or `"decord"`.
    """

    def __init__(
        self,
        think_prefix: bool = True,
        dispatch: str = "parallel",
        max_turns: int = 3,
        max_calls_per_turn: int = 5,
        max_calls: int = 15,
        max_turn_length: int = 2048,
        max_report_length: int = 512,
        crop_fps: float = 1.0,
        crop_frames: int = 16,
        max_pixels: int = 50176,
        video_backend: str = "pyav",
    ):
        self.video_backend = video_backend
        self.think_prefix, self.max_calls, self.max_turn_length = think_prefix, max_calls, max_turn_length
        self.max_turns = 0 if dispatch == "none" else max_turns
        self.max_calls_per_turn = 1 if dispatch == "sequential" else max_calls_per_turn
        self.max_report_length, self.max_pixels = max_report_length, max_pixels
        self.crop_fps, self.crop_frames = crop_fps, crop_frames
        self.generated = 0  # tokens sampled so far, by main agents and sub-agents

    @classmethod
    def from_config(cls, config) -> "ParallelRollout":
        """The rollout of a [`ParaGRPOConfig`]."""
        names = (
            "think_prefix", "dispatch", "max_turns", "max_calls_per_turn", "max_calls", "max_turn_length",
            "max_report_length", "crop_fps", "crop_frames", "max_pixels", "video_backend",
        )  # fmt: skip
        return cls(**{name: getattr(config, name) for name in names})

    def __call__(self, prompts: list[list[dict]], trainer) -> dict[str, list]:
        """TRL's `rollout_func`: one episode per prompt; `turns` and `tool_calls` go to the reward functions."""
        engine = engine_of(trainer)
        episodes = self.run(prompts, engine, trainer.max_completion_length)
        return {
            "prompt_ids": [e.prompt_ids for e in episodes],
            "completion_ids": [e.ids for e in episodes],
            "logprobs": [e.logprobs for e in episodes],
            "env_mask": [e.mask for e in episodes],
            "turns": [e.messages for e in episodes],
            "tool_calls": [[slot.record() for slot in e.slots] for e in episodes],
        }

    def run(
        self,
        prompts: list[list[dict]],
        engine: Engine,
        max_completion_length: int,
        watch: Callable[[int, dict], None] | None = None,
    ) -> list[Episode]:
        """
        Plays one episode per prompt, all in step.

        Args:
            prompts (`list[list[dict]]`): Messages whose images are filled in.
            engine: What generates.
            max_completion_length (`int`): Most tokens of an episode after its prompt.
            watch (`Callable`, *optional*): Called with the number of an episode and each of its messages as it comes.
        """
        chat = Chat(engine.processor, self.think_prefix)
        episodes = [self._start(chat, prompt) for prompt in prompts]
        if watch is not None:
            for number, e in enumerate(episodes):
                e.watch = partial(watch, number)
        with engine.session():
            # As many rounds on every rank, since ranks may share an engine; an empty one costs nothing.
            for turn in range(self.max_turns + 1):
                live = [e for e in episodes if not e.done]
                self._speak(chat, engine, live, turn, max_completion_length)
                waiting = {id(e): [s for s in e.slots if s.turn == turn] for e in live if not e.done}
                self._serve(chat, engine, live, waiting, max_completion_length)
                for e in live:
                    if not e.done:
                        self._gather(chat, e, waiting[id(e)], turn, max_completion_length)
        return episodes

    def _start(self, chat: Chat, prompt: list[dict]) -> Episode:
        asked = next((m for m in prompt if "question" in m), None)
        if asked is None:
            raise ValueError("a prompt names no question and videos; make prompts with `FrameBudgetCollator`")
        ids, images = chat.prompt(prompt)
        return Episode(ids, images, asked["question"], asked["videos"])

    def _speak(self, chat, engine, live, turn, limit) -> None:
        """One turn of the main agents; it ends with slots for their calls, or is their last."""
        for e in live:
            e.place(chat.prefix)
        most = engine.max_length or math.inf
        lengths = [len(e.prompt_ids) + len(e.ids) for e in live]
        if max(lengths, default=0) >= most:
            raise ValueError(
                f"a conversation of {max(lengths)} tokens leaves no room in the engine, which takes {most}: raise "
                "`vllm_max_model_length`, or lower `frame_budgets` or `max_completion_length`"
            )
        room = [
            max(1, min(self.max_turn_length, limit - len(e.ids), most - length))
            for e, length in zip(live, lengths, strict=True)
        ]

        def hear(i: int, sample: Sample) -> None:
            self._hear(chat, live[i], sample, turn, limit)

        engine.generate([e.prompt_ids + e.ids for e in live], [e.images for e in live], room, hear)

    def _hear(self, chat, e: Episode, sample: Sample, turn: int, limit: int) -> None:
        """Takes in a turn as soon as it has ended; its crops decode while others still speak."""
        self.generated += len(sample.ids)
        pieces = token_texts(sample.ids, chat.tokenizer)
        text, length = "".join(pieces), len(sample.ids)
        forged = text.find("<tool_response>")
        if forged >= 0:  # what follows is not the model's to write: it is dropped from the history
            while length > 1 and sum(map(len, pieces[: length - 1])) >= forged:
                length -= 1
            text = "".join(pieces[:length])
        e.extend(sample, length)
        e.say({"role": "assistant", "content": chat.prefix_text + text})
        entries = parse_tool_calls(chat.prefix_text + text, complete=sample.finished)
        for entry in entries:
            slot = self._slot(e, entry, turn)
            slot.response = chat.plain(slot.response)
            e.slots.append(slot)
        if not entries or turn == self.max_turns or len(e.ids) >= limit:
            self._end(e, e.slots[len(e.slots) - len(entries) :])
            return
        if not (sample.finished and length == len(sample.ids)):
            e.place([chat.tokenizer.eos_token_id])
        self._open([slot for slot in e.slots[len(e.slots) - len(entries) :] if slot.status == "ok"])

    def _slot(self, e: Episode, entry: ToolCall | ToolCallError, turn: int) -> Slot:
        if isinstance(entry, ToolCallError):
            return Slot(turn, "malformed", f"Error: {entry.message}")
        planned = sum(s.turn == turn and s.status == "ok" for s in e.slots)
        if turn == self.max_turns or planned >= self.max_calls_per_turn or e.served >= self.max_calls:
            return Slot(turn, "limit", "Error: limit reached, this call was not served.")
        try:
            crop = resolve(entry, e.videos, self.crop_fps, self.crop_frames)
        except ToolError as error:
            return Slot(turn, "refused", f"Error: {error}")
        except VideoError as error:
            slot = Slot(turn, "failed", "")
            slot.fail(error)
            return slot
        return Slot(turn, "ok", "", crop.path, crop.start, crop.end, crop)

    def _open(self, slots: list[Slot]) -> None:
        """Starts the decoding of the crops of a turn, together."""
        for slot in slots:
            try:
                slot.clip = video.clip(slot.crop.path, slot.crop.times, self.max_pixels, self.video_backend)
            except VideoError as error:
                slot.fail(error)
        video.prefetch(slot.clip for slot in slots if slot.clip is not None)

    def _serve(self, chat, engine, live, waiting, limit) -> None:
        """Waits for the crops of all episodes, then lets all sub-agents report in one batch."""
        tasks = []
        for e in live:
            room = self._make_room(chat, e, waiting.get(id(e), []), limit)
            jobs: dict[Crop, list[Slot]] = {}  # equal calls of a turn are served once
            for slot in waiting.get(id(e), []):
                if slot.status == "ok":
                    jobs.setdefault(slot.crop, []).append(slot)
            for crop, slots in jobs.items():
                try:
                    slots[0].clip.load()
                except VideoError as error:
                    for slot in slots:
                        slot.fail(error)
                    continue
                prompt = self._brief(chat, e.question, crop, slots[0].clip.frames, engine.max_length, room)
                if prompt is None:
                    for slot in slots:
                        slot.over_budget()
                else:
                    tasks.append((slots, *prompt, room))
        reports = engine.generate([t[1] for t in tasks], [t[2] for t in tasks], [t[3] for t in tasks])
        self.generated += sum(len(report.ids) for report in reports)
        for (slots, *_, room), report in zip(tasks, reports, strict=True):
            text = chat.plain(chat.tokenizer.decode(report.ids, skip_special_tokens=True)).strip()
            cut = "" if report.finished else f" [cut at {room} tokens]"
            for slot in slots:
                slot.response = f"Seconds {slot.start:.1f} to {slot.end:.1f}:{slot.crop.note} {text}{cut}"

    @staticmethod
    def _brief(chat, question, crop, frames, most, room) -> tuple[list[int], list] | None:
        """The prompt of a sub-agent, with fewer frames where the engine has no room for all; `None` if for none."""
        while frames:
            ids, images = chat.prompt(subagent_messages(question, crop.start, crop.end, frames))
            if most is None or len(ids) + room <= most:
                return ids, images
            frames = frames[len(frames) % 2 :: 2]
        return None

    def _make_room(self, chat, e: Episode, slots: list[Slot], limit: int) -> int:
        """
        Tokens that each report of the turn may have, so that all of them and an answer fit. Calls for which there is
        too little room, the last ones, are not served.
        """
        least = min(MIN_REPORT_TOKENS, self.max_report_length)
        served = [slot for slot in slots if slot.status == "ok"]
        while served:
            blank = [
                s.response or f"Seconds {s.start:.1f} to {s.end:.1f}:{s.crop.note} [cut at 9999 tokens]" for s in slots
            ]
            fixed = len(self._response_ids(chat, [*blank, LAST_TURN])) + ANSWER_TOKENS
            room = (limit - len(e.ids) - fixed) // len(served)
            if room >= least:
                return min(self.max_report_length, room)
            served.pop().over_budget()
        return 0

    def _gather(self, chat, e: Episode, slots: list[Slot], turn: int, limit: int) -> None:
        """Places the responses in call order, in one user turn."""
        if turn == self.max_turns - 1:
            slots[-1].response += LAST_TURN
        ids = self._response_ids(chat, [slot.response for slot in slots])
        if len(e.ids) + len(ids) + len(chat.prefix) >= limit:  # not even the errors fit: the episode ends on its calls
            self._end(e, slots)
            return
        e.place(ids)
        for slot in slots:
            e.say({"role": "tool", "name": "crop_video", "content": slot.response})

    @staticmethod
    def _end(e: Episode, slots: list[Slot]) -> None:
        e.done = True
        for slot in slots:
            slot.status = "budget" if slot.status == "ok" else slot.status

    @staticmethod
    def _response_ids(chat, responses: list[str]) -> list[int]:
        return chat.between([{"role": "tool", "name": "crop_video", "content": r} for r in responses])
