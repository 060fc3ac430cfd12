"""The one episode loop, also TRL's `rollout_func`: generation, parallel crops, sub-agents, tool responses."""

import inspect
import math
from collections.abc import Callable, Sequence
from functools import partial

from accelerate.utils import gather_object

from . import video
from .anchors import token_texts
from .chat import Chat
from .config import check_generation
from .engines import Engine, Sample, engine_of
from .episode import Brief, Episode, Slot
from .parser import ToolCall, ToolCallError, parse_tool_calls
from .prompts import LAST_TURN, subagent_messages
from .seeds import copy_numbers, seed_of
from .settings import check_settings
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
        chat_template_kwargs (`dict`, *optional*):
            Arguments of the chat template.
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
        chat_template_kwargs: dict | None = None,
    ):
        self.think_prefix, self.dispatch = think_prefix, dispatch
        self.max_turns, self.max_calls_per_turn, self.max_calls = max_turns, max_calls_per_turn, max_calls
        self.max_turn_length, self.max_report_length = max_turn_length, max_report_length
        self.crop_fps, self.crop_frames, self.max_pixels = crop_fps, crop_frames, max_pixels
        self.video_backend, self.chat_template_kwargs = video_backend, chat_template_kwargs
        check_settings(self)
        # The last generation batch of a trainer: its run, step, and number in the step.
        self._last = (None, -1, 0)
        self.generated = 0  # tokens sampled so far, by main agents and sub-agents

    @classmethod
    def from_config(cls, config) -> "ParallelRollout":
        """The rollout of a [`ParaGRPOConfig`], or of [`RolloutSettings`]."""
        return cls(**{name: getattr(config, name) for name in _SETTINGS})

    def check(self, config) -> None:
        """Raises a `ValueError` if a [`ParaGRPOConfig`] says something else."""
        differ = [
            f"`{name}` is {getattr(self, name)!r} in the rollout and {getattr(config, name)!r} in `args`"
            for name in _SETTINGS
            if getattr(self, name) != getattr(config, name)
        ]
        if differ:
            raise ValueError(f"{', '.join(differ)}: give settings in `args`, which has them saved with the weights")

    @property
    def turns_with_tools(self) -> int:
        return 0 if self.dispatch == "none" else self.max_turns

    @property
    def calls_served_per_turn(self) -> int:
        return 1 if self.dispatch == "sequential" else self.max_calls_per_turn

    def __call__(self, prompts: list[list[dict]], trainer) -> dict[str, list]:
        """TRL's `rollout_func`: one episode per prompt; `turns` and `tool_calls` go to the reward functions."""
        check_generation(trainer.args)
        engine = engine_of(trainer)
        seeds = self._seeds(prompts, trainer)
        episodes = self.run(prompts, engine, trainer.max_completion_length, seeds=seeds)
        return {
            "prompt_ids": [e.prompt_ids for e in episodes],
            "completion_ids": [e.ids for e in episodes],
            "logprobs": [e.logprobs for e in episodes],
            "env_mask": [e.mask for e in episodes],
            "turns": [e.messages for e in episodes],
            "tool_calls": [[slot.record() for slot in e.slots] for e in episodes],
        }

    def _seeds(self, prompts: list[list[dict]], trainer) -> list[int]:
        """
        A seed per episode, from its row and step alone: it is the same on another rank, on fewer of them, beside other
        rows and after a resume. Evaluation has the same draws at every step.
        """
        place = ("eval",)
        if trainer.model.training:
            run, step = trainer.state, trainer.state.global_step  # each run has a state of its own
            last_run, last_step, last_number = self._last
            self._last = (run, step, last_number + 1 if run is last_run and step == last_step else 0)
            place = ("train", *self._last[1:])
        keys = gather_object([[_row_of(prompt)["key"] for prompt in prompts]])  # of each rank
        start = sum(map(len, keys[: trainer.accelerator.process_index]))
        rows = [key for keys_of_rank in keys for key in keys_of_rank]
        numbered = list(zip(rows, copy_numbers(rows), strict=True))[start : start + len(prompts)]
        return [seed_of(trainer.args.seed, *place, key, copy) for key, copy in numbered]

    def run(
        self,
        prompts: list[list[dict]],
        engine: Engine,
        max_completion_length: int,
        watch: Callable[[int, dict], None] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[Episode]:
        """
        Plays one episode per prompt, all in step.

        Args:
            prompts (`list[list[dict]]`): Messages whose images are filled in.
            engine: What generates.
            max_completion_length (`int`): Most tokens of an episode after its prompt.
            watch (`Callable`, *optional*): Called with the number of an episode and each of its messages as it comes.
            seeds (`Sequence[int]`, *optional*): A seed per episode; an engine that draws nothing needs none.
        """
        chat = Chat(engine.processor, self.think_prefix, self.chat_template_kwargs)
        chat.check()
        episodes = [self._start(chat, prompt, max_completion_length) for prompt in prompts]
        for e, seed in zip(episodes, seeds or [None] * len(prompts), strict=True):
            e.seed = seed
        if watch is not None:
            for number, e in enumerate(episodes):
                e.watch = partial(watch, number)
        with engine.session():
            # Ranks may share an engine, and then each call of `generate` is one of all ranks: every rank goes through
            # every round, also when its own episodes have ended. An empty call costs nothing.
            for turn in range(self.turns_with_tools + 1):
                live = [e for e in episodes if not e.done]
                self._generate_turn(chat, engine, live, turn)
                calling = [e for e in live if not e.done]
                self._run_subagents(chat, engine, calling, turn)
                for e in calling:
                    self._append_responses(chat, e, turn)
        return episodes

    @staticmethod
    def _start(chat: Chat, prompt: list[dict], limit: int) -> Episode:
        row = _row_of(prompt)
        ids, images = chat.prompt(prompt)
        return Episode(ids, images, row["question"], row["videos"], limit)

    # ------------------------------------------------------------------------------------------------- the main agent

    def _generate_turn(self, chat: Chat, engine: Engine, live: list[Episode], turn: int) -> None:
        """One turn of the main agents. It ends with planned calls, or is an episode's last."""
        for e in live:
            e.place(chat.prefix)
        most = engine.max_length or math.inf
        longest = max((e.length for e in live), default=0)
        if longest >= most:
            raise ValueError(
                f"a conversation of {longest} tokens leaves no room in the engine, which takes {most}: raise "
                "`vllm_max_model_length`, or lower `frame_budgets` or `max_completion_length`"
            )
        limits = [max(1, min(self.max_turn_length, e.room, most - e.length)) for e in live]

        def record(i: int, sample: Sample) -> bool:
            self._record_turn(chat, live[i], sample, turn)
            return not live[i].done

        prompts, images = [e.prompt_ids + e.ids for e in live], [e.images for e in live]
        engine.generate(prompts, images, limits, record, _all_or_none([e.seed_at(turn) for e in live]))

    def _record_turn(self, chat: Chat, e: Episode, sample: Sample, turn: int) -> None:
        """Takes in a turn as soon as it is sampled: its crops decode while other turns are still being sampled."""
        self.generated += len(sample.ids)
        text, length = _before_forgery(sample.ids, chat)
        e.extend(sample, length)
        turn_text = chat.prefix_text + text
        e.say({"role": "assistant", "content": turn_text})

        entries = parse_tool_calls(turn_text, complete=sample.finished)
        for entry in entries:
            slot = self._slot(e, entry, turn)
            slot.response = chat.strip_added_tokens(slot.response)
            e.slots.append(slot)

        if not entries or self._must_answer(turn) or e.room <= 0:
            e.end(turn)
            return
        # A turn may be cut, or have ended with another token: what follows stands behind the template's.
        if e.ids[-1] != chat.tokenizer.eos_token_id:
            e.place([chat.tokenizer.eos_token_id])
        self._start_decoding(e.planned())

    def _must_answer(self, turn: int) -> bool:
        """Whether a turn is the one after all turns with tools."""
        return turn == self.turns_with_tools

    def _slot(self, e: Episode, entry: ToolCall | ToolCallError, turn: int) -> Slot:
        """The slot of an attempted call: planned, if it can be served."""
        if isinstance(entry, ToolCallError):
            return Slot(turn, "malformed", f"Error: {entry.message}")
        full = len(e.planned()) >= self.calls_served_per_turn or e.accepted >= self.max_calls
        if full or self._must_answer(turn):
            return Slot(turn, "limit", "Error: limit reached, this call was not served.")
        try:
            crop = resolve(entry, e.videos, self.crop_fps, self.crop_frames)
        except ToolError as error:
            return Slot(turn, "refused", f"Error: {error}")
        except VideoError as error:
            slot = Slot(turn, "failed", "")
            slot.fail(error)
            return slot
        return Slot(turn, "planned", "", crop.path, crop.start, crop.end, crop)

    def _start_decoding(self, slots: list[Slot]) -> None:
        """Has the crops of a turn decoded, together, by workers; nobody waits for them yet."""
        for slot in slots:
            try:
                slot.clip = video.clip(slot.crop.path, slot.crop.times, self.max_pixels, self.video_backend)
            except VideoError as error:
                slot.fail(error)
        video.prefetch(slot.clip for slot in slots if slot.clip is not None)

    # -------------------------------------------------------------------------------------------------- the sub-agents

    def _run_subagents(self, chat: Chat, engine: Engine, calling: list[Episode], turn: int) -> None:
        """Lets the sub-agents of all episodes report, in one batch."""
        briefs = [brief for e in calling for brief in self._briefs(chat, engine, e, turn)]
        reports = engine.generate(
            [brief.prompt_ids for brief in briefs],
            [brief.images for brief in briefs],
            [brief.max_tokens for brief in briefs],
            seeds=_all_or_none([brief.seed for brief in briefs]),
        )
        self.generated += sum(len(report.ids) for report in reports)
        for brief, report in zip(briefs, reports, strict=True):
            text = chat.tokenizer.decode(report.ids, skip_special_tokens=True)
            text = chat.strip_added_tokens(text).strip()
            if not report.finished:
                text += _cut_notice(brief.max_tokens)
            for slot in brief.slots:
                slot.serve(text)

    def _briefs(self, chat: Chat, engine: Engine, e: Episode, turn: int) -> list[Brief]:
        """The briefs of the planned calls of an episode, once their crops are decoded; slots that get none say why."""
        max_tokens = self._make_room(chat, e, turn)
        equal_calls: dict[Crop, list[Slot]] = {}
        for slot in e.planned():
            equal_calls.setdefault(slot.crop, []).append(slot)

        briefs = []
        for number, (crop, slots) in enumerate(equal_calls.items()):
            clip = slots[0].clip
            try:
                clip.load()
            except VideoError as error:
                for slot in slots:
                    slot.fail(error)
                continue
            prompt = self._subagent_prompt(chat, e.question, crop, clip.frames, engine.max_length, max_tokens)
            if prompt is None:
                for slot in slots:
                    slot.leave_out()
            else:
                briefs.append(Brief(slots, *prompt, max_tokens, e.seed_at(turn, number)))
        return briefs

    @staticmethod
    def _subagent_prompt(
        chat: Chat, question: str, crop: Crop, frames: list, max_length: int | None, max_tokens: int
    ) -> tuple[list[int], list] | None:
        """Ids and images, every other frame left out until there is room; `None` if there is none for one frame."""
        while frames:
            ids, images = chat.prompt(subagent_messages(question, crop.start, crop.end, frames))
            if max_length is None or len(ids) + max_tokens <= max_length:
                return ids, images
            frames = frames[len(frames) % 2 :: 2]
        return None

    def _make_room(self, chat: Chat, e: Episode, turn: int) -> int:
        """
        Tokens that each report of the turn may have, so that all of them and an answer fit. The last calls are left
        out for which there is too little room.
        """
        least = min(MIN_REPORT_TOKENS, self.max_report_length)
        planned = e.planned()
        while planned:
            # The responses as they will be, but for the texts of the reports.
            around = [slot.response or f"{slot.heading} {_cut_notice(9999)}" for slot in e.slots_of(turn)]
            fixed = len(_response_ids(chat, [*around, LAST_TURN])) + ANSWER_TOKENS
            share = (e.room - fixed) // len(planned)
            if share >= least:
                return min(self.max_report_length, share)
            planned.pop().leave_out()
        return 0

    def _append_responses(self, chat: Chat, e: Episode, turn: int) -> None:
        """Places the responses in call order, in one user turn."""
        slots = e.slots_of(turn)
        if self._must_answer(turn + 1):
            slots[-1].response += LAST_TURN
        ids = _response_ids(chat, [slot.response for slot in slots])
        if len(ids) + len(chat.prefix) >= e.room:  # not even the errors fit: the episode ends on its calls
            e.end(turn)
            return
        e.place(ids)
        for slot in slots:
            e.say({"role": "tool", "name": "crop_video", "content": slot.response})


_SETTINGS = tuple(inspect.signature(ParallelRollout).parameters)


def _row_of(prompt: list[dict]) -> dict:
    """The message of a prompt that says what a rollout needs to know of the row."""
    found = next((message for message in prompt if "videos" in message), None)
    if found is None:
        raise ValueError("the prompt names no videos; prepare rows with `FrameBudgetCollator`")
    return found


def _all_or_none(seeds: list[int | None]) -> list[int] | None:
    """The seeds, or `None` where nothing is drawn."""
    return None if None in seeds else seeds


def _before_forgery(ids: list[int], chat: Chat) -> tuple[str, int]:
    """
    The text of a sampled turn and the number of its tokens, up to a tool response in it: what follows one is not the
    model's to write, and is dropped from the history.
    """
    pieces = token_texts(ids, chat.tokenizer)
    text, length = "".join(pieces), len(ids)
    forged = text.find("<tool_response>")
    if forged < 0:
        return text, length
    while length > 1 and sum(map(len, pieces[: length - 1])) >= forged:
        length -= 1
    return "".join(pieces[:length]), length


def _response_ids(chat: Chat, responses: list[str]) -> list[int]:
    return chat.ids_between_turns([{"role": "tool", "name": "crop_video", "content": r} for r in responses])


def _cut_notice(tokens: int) -> str:
    return f" [cut at {tokens} tokens]"
