"""Rows to prompts: K timed frames of each video, K drawn per row and epoch and shared by its whole group."""

import copy
import hashlib
import logging
import math
import reprlib
from collections.abc import Callable, Sequence
from itertools import islice
from unittest.mock import patch

import torch
from datasets import Dataset
from transformers import TrainerCallback

from . import video
from .chat import Chat
from .engines.features import Picture, image_features
from .forest import pack_conversations
from .messages import RowError, read_messages, read_prompt
from .prompts import frame_parts, offers_tool, subagent_messages, system_prompt, video_header
from .settings import RolloutSettings
from .tools import video_names
from .video import VideoError


logger = logging.getLogger(__name__)


def frame_budget(seed: int, epoch: int, key: str, budgets: Sequence[int]) -> int:
    """One of `budgets`, uniform over keys; the same in every process, on every rank and after a resume."""
    digest = hashlib.blake2b(f"{seed}/{epoch}/{key}".encode(), digest_size=8).digest()
    return budgets[int.from_bytes(digest, "big") % len(budgets)]


class FrameBudgetCollator(TrainerCallback):
    """
    Turns rows into prompts with overview frames. A trainer's `data_collator`, and a callback that follows the epoch:

    ```python
    trainer = GRPOTrainer(...)
    FrameBudgetCollator(trainer.processing_class).attach(trainer)
    ```

    A row has `prompt` (messages with `<video>` in the text) and `videos` (paths, or `{"video": path}`), both in any
    shape that [`~data.load_rows`] reads, and may have
    `key` (what identifies it), `frame_budget` (a fixed K) and `window` (start and end of the crop that a sub-agent
    sees). A system message is kept, with the schema of `crop_video` added where it has none. Texts lose control
    tokens, but not tags such as `<think>`. Frames are lazy: they decode when they are first looked at, once for all
    the rows that share them.

    Args:
        processor ([`~transformers.ProcessorMixin`]):
            The model's processor.
        budgets (`Sequence[int]`, *optional*, defaults to `(4, 8, 16, 32, 64)`):
            Numbers of overview frames of which one is drawn for a row and epoch.
        seed (`int`, *optional*, defaults to `0`):
            Seed of the draw.
        max_pixels (`int`, *optional*, defaults to `50176`):
            Largest area of a frame, in pixels.
        tools (`bool`, *optional*, defaults to `True`):
            Whether the system prompt offers `crop_video`.
        backend (`str`, *optional*, defaults to `"pyav"`):
            Decoder of the frames, `"pyav"` or `"decord"`.
        snap (`bool`, *optional*, defaults to `False`):
            Whether key frames take the places of overview frames within half the spacing of them.
    """

    def __init__(
        self,
        processor,
        budgets: Sequence[int] = (4, 8, 16, 32, 64),
        seed: int = 0,
        max_pixels: int = 50176,
        tools: bool = True,
        backend: str = "pyav",
        snap: bool = False,
    ):
        if not budgets or any(k < 1 for k in budgets):
            raise ValueError(f"`budgets` must be a list of positive integers, got {budgets!r}")
        self.chat = Chat(processor)
        self.budgets, self.seed, self.max_pixels, self.tools = list(budgets), seed, max_pixels, tools
        self.backend, self.snap = backend, snap
        # In shared memory: workers of a loader that outlive the epoch see it change.
        self._epoch = torch.zeros((), dtype=torch.long).share_memory_()
        self._ahead: set[video.Clip] = set()
        self._attached = False

    def attach(self, trainer) -> "FrameBudgetCollator":
        """
        Makes it the `data_collator` of a trainer, which TRL fixes at construction, has it follow the epochs, and has
        rows to evaluate on keep their number of frames.
        """
        trainer.data_collator = self
        trainer.add_callback(self)
        self._attached, build = True, trainer.get_eval_dataloader

        def get_eval_dataloader(eval_dataset=None):
            collator = trainer.data_collator
            ours = isinstance(collator, FrameBudgetCollator)
            with patch.object(trainer, "data_collator", collator.for_evaluation() if ours else collator):
                return build(eval_dataset)

        trainer.get_eval_dataloader = get_eval_dataloader
        return self

    @property
    def epoch(self) -> int:
        return int(self._epoch)

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch.fill_(epoch)

    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        if train_dataloader is not None:
            self.check(train_dataloader.dataset)
        if not self._attached and args.eval_strategy != "no" and len(set(self.budgets)) > 1:
            raise ValueError(
                f"rows to evaluate on would draw another one of `budgets` {self.budgets} in each epoch: use "
                "`FrameBudgetCollator.attach`"
            )

    @classmethod
    def from_settings(cls, processor, settings: RolloutSettings) -> "FrameBudgetCollator":
        """For evaluation: the frames of [`RolloutSettings`], the same number for each row."""
        return cls(
            processor,
            [settings.frames],
            max_pixels=settings.max_pixels,
            tools=settings.dispatch != "none",
            backend=settings.video_backend,
            snap=settings.snap_overview,
        )

    def on_epoch_begin(self, args, state, control, **kwargs):
        self.epoch = int(state.epoch + 1e-6)

    def check(self, dataset) -> None:
        """Raises a [`ValueError`] if a data set to train on has no videos, or epochs that cannot be followed."""
        if isinstance(dataset, torch.utils.data.IterableDataset) and len(set(self.budgets)) > 1:
            raise ValueError(
                "`train_dataset` is iterable: its epochs are not counted, so a row would keep the one of "
                f"`frame_budgets` {self.budgets} that it draws first; use a `Dataset`, or one budget"
            )
        if isinstance(dataset, Dataset) and "videos" not in dataset.column_names:
            raise ValueError(
                f"`train_dataset` has no column `videos`, only {dataset.column_names}: set "
                "`remove_unused_columns` to False"
            )

    def for_evaluation(self) -> "FrameBudgetCollator":
        """A collator alike, of the first epoch for ever: each row has its K, whenever it is looked at."""
        same = copy.copy(self)
        same._epoch = torch.zeros((), dtype=torch.long)
        return same

    def __call__(self, rows: list[dict]) -> list[dict]:
        prepared = [self.prepare(row) for row in rows]
        # Loaders ask for a batch while the one before is in use, so its frames decode meanwhile. The same batch comes
        # again for each micro-step: it is not decoded for those.
        clips = {frame.clip for row in prepared for frame in row["images"]}
        if torch.utils.data.get_worker_info() is None and clips != self._ahead:
            video.prefetch(clips)
            self._ahead = clips
        return prepared

    def prepare(self, row: dict) -> dict:
        """The row with `prompt`, `images`, `question`, resolved `videos` and the drawn `frame_budget`."""
        messages, videos = _read(row)
        row = {**row, "prompt": messages, "images": [], "video_error": None, "key": row_key(row)}
        row["question"] = self.chat.strip_control_tokens(_question(messages))
        row["frame_budget"] = row.get("frame_budget") or frame_budget(self.seed, self.epoch, row["key"], self.budgets)
        try:
            row["videos"] = [video.local_path(path) for path in videos]
            clips = self._clips(row)
        except VideoError as error:  # the row stays in its place; its rollouts do not count
            row["videos"], row["video_error"], clips = videos, str(error), []
        frames = [frame for clip in clips for frame in clip.frames]
        if row.get("window") is not None:
            row["prompt"] = subagent_messages(row["question"], *row["window"], frames)
        else:
            row["prompt"] = self._messages(row, clips)
        if not frames:
            # Each row has a picture: a batch without any takes another way through the model, and a rank another way
            # through TRL than the other ranks.
            frames = video.GreyClip().frames
            next(m for m in row["prompt"] if m["role"] == "user")["content"].insert(0, {"type": "image"})
        # TRL fills the placeholders of the prompt from the `images` column.
        row["images"] = frames
        for message in row["prompt"]:
            message["content"] = [{"type": "image"} if p["type"] == "image" else p for p in message["content"]]
        return row

    def _clips(self, row: dict) -> list[video.Clip]:
        if row.get("window") is not None:
            path, times = row["videos"][0], row["window_times"]
            return [video.clip(path, times, self.max_pixels, self.backend)]
        share = max(1, row["frame_budget"] // max(1, len(row["videos"])))
        return [
            video.clip(path, video.choose_times(path, share, snap=self.snap), self.max_pixels, self.backend)
            for path in row["videos"]
        ]

    def _messages(self, row: dict, clips: list[video.Clip]) -> list[dict]:
        messages = [{**m, "content": self.chat.strip_control_tokens(m["content"])} for m in row["prompt"]]
        if messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": system_prompt(tools=self.tools)})
        elif self.tools and not offers_tool(messages[0]["content"]):
            messages[0]["content"] = system_prompt(messages[0]["content"])
        overviews = []
        for name, clip in zip(video_names(row["videos"]), clips, strict=False):  # no clips where a video is bad
            overviews.append([video_header(name, video.probe(clip.path).duration), *frame_parts(clip.frames)])
        first = next(i for i, m in enumerate(messages) if m["role"] == "user")
        unmarked = len(overviews) - sum(m["content"].count("<video>") for m in messages)
        messages[first]["content"] = "<video>" * unmarked + messages[first]["content"]
        for message in messages:
            pieces = message["content"].split("<video>")
            parts = []
            for i, piece in enumerate(pieces):
                parts += [{"type": "text", "text": piece}] if piece else []
                if i < len(pieces) - 1 and overviews:
                    parts += [*overviews.pop(0), {"type": "text", "text": "\n"}]
            message["content"] = parts or [{"type": "text", "text": ""}]
        # What a rollout needs of the row.
        messages[first] |= {"videos": row["videos"], "question": row["question"], "key": row["key"]}
        return messages


def row_key(row: dict) -> str:
    """What identifies a row: its `key`, or its question and the paths of its videos."""
    if row.get("key"):
        return row["key"]
    messages, videos = _read(row)
    return f"{_question(messages)}|{videos}"


def question_of(row: dict) -> str:
    """What the user messages of a row ask."""
    return _question(_read(row)[0])


def decode(rows: list[dict]) -> list[video.Clip]:
    """
    Decodes the distinct clips of prepared rows, all at once, and returns them. A clip that fails spoils its rows only:
    they say so in `video_error`, and have grey frames.
    """
    clips_of = [
        {id(frame.clip): frame.clip for frame in row.get("images") or [] if isinstance(frame, video.LazyFrame)}
        for row in rows
    ]
    clips = {key: clip for row_clips in clips_of for key, clip in row_clips.items()}
    video.prefetch(clips.values())
    errors = {}
    for key, clip in clips.items():
        try:
            clip.load()
        except VideoError as error:
            clip.fill()
            errors[key] = str(error)
    for row, row_clips in zip(rows, clips_of, strict=True):
        broken = [errors[key] for key in row_clips if key in errors]
        if broken:
            row["video_error"] = broken[0]
    return list(clips.values())


def _read(row: dict) -> tuple[list[dict], list[str]]:
    """The messages and the paths of a row. Raises [`RowError`], which shows them as they are."""
    try:
        return read_prompt(row)
    except RowError as error:
        given = {name: row.get(name) for name in ("prompt", "videos")}
        raise RowError(f"{error}, in a row with {reprlib.repr(given)}") from None


def _question(messages: list[dict]) -> str:
    return " ".join(m["content"] for m in messages if m["role"] == "user").replace("<video>", "").strip()


class SupervisedCollator:
    """
    Batches of finished conversations for [`~trl.SFTTrainer`], made of the token segments of a rollout: the prompt and
    what stands between turns carry no loss, what the assistant wrote does.

    A row is one of [`FrameBudgetCollator`] with `completion`: assistant and tool messages in turn. One whose video has
    gone bad keeps its place, and carries no loss.

    Args:
        collator ([`FrameBudgetCollator`]):
            Makes the prompts.
        think_prefix (`bool`, *optional*, defaults to `True`):
            Whether turns begin with the tokens that a rollout places there.
        max_length (`int`, *optional*):
            Longest row in tokens; a longer one is a `ValueError`.
        max_bad_rows (`float`, *optional*, defaults to `0.05`):
            Share of rows with a bad video up to which training goes on, once 20 rows were seen.
        rope (`Callable`, *optional*):
            Gives positions, as [`~engines.features.Tower.rope`] of the model. With it a batch is one sequence without
            padding, in which what all rows begin with is there once; the model must have learned it from
            [`~forest.teach_forests`].
    """

    def __init__(
        self,
        collator: FrameBudgetCollator,
        think_prefix: bool = True,
        max_length: int | None = None,
        max_bad_rows: float = 0.05,
        rope: Callable | None = None,
    ):
        self.collator, self.max_length, self.max_bad_rows, self.rope = collator, max_length, max_bad_rows, rope
        self.chat = Chat(collator.chat.processor, think_prefix)
        # Rows seen, and bad ones among them: in shared memory, for workers of a loader.
        self._counts = torch.zeros(2, dtype=torch.long).share_memory_()

    @property
    def bad_rows(self) -> int:
        """Rows so far that carried no loss, for their videos had gone bad."""
        return int(self._counts[1])

    def _count(self, prepared: list[dict]) -> None:
        bad = [row for row in prepared if row["video_error"]]
        self._counts += torch.tensor([len(prepared), len(bad)])
        seen, failed = self._counts.tolist()
        for row in bad:
            logger.warning("row %r has no loss (%d of %d so far): %s", row["key"], failed, seen, row["video_error"])
        if bad and failed > self.max_bad_rows * seen and seen >= 20:
            raise RuntimeError(
                f"{failed} of {seen} rows so far had a bad video, more than `max_bad_rows` {self.max_bad_rows:.0%}; "
                f"the last: {bad[-1]['video_error']}"
            )

    def encode(self, row: dict) -> tuple[list[int], list[int], list]:
        """Token ids and mask (1 on what the assistant wrote) of a row, (T,), and its images."""
        return self._encode(row, self.collator.prepare(row))

    def _encode(self, row: dict, prepared: dict) -> tuple[list[int], list[int], list]:
        frames = iter(prepared["images"])
        messages = [
            {**m, "content": [{**p, "image": next(frames)} if p["type"] == "image" else p for p in m["content"]]}
            for m in prepared["prompt"]
        ]
        ids, images = self.chat.prompt(messages)
        mask, pending = [0] * len(ids), []
        prefix = "" if row.get("window") is not None else self.chat.prefix_text
        completion, _ = read_messages(row.get("completion"), "completion")
        for message in completion:
            if message["role"] != "assistant":
                content = self.chat.strip_added_tokens(message["content"])
                pending.append({"role": message["role"], "content": content, "name": "crop_video"})
                continue
            text = message["content"]
            placed = self.chat.ids_between_turns(pending) if pending else []
            # The prefix has the tokens of a rollout; it is learned, so that a run without it starts alike.
            start = self.chat.prefix if prefix and text.startswith(prefix) else []
            text = text[len(prefix) :] if start else text
            written = start + self.chat.tokenize(text) + [self.chat.tokenizer.eos_token_id]
            ids, mask, pending = ids + placed + written, mask + [0] * len(placed) + [1] * len(written), []
        if not any(mask):
            raise ValueError(f"row {row.get('key')!r} has no assistant text to learn from")
        if prepared["video_error"]:
            mask = [0] * len(ids)
        if self.max_length and len(ids) > self.max_length:
            raise ValueError(f"row {row.get('key')!r} needs {len(ids)} tokens, more than max_length {self.max_length}")
        return ids, mask, images

    def __call__(self, rows: list[dict]) -> dict[str, torch.Tensor]:
        prepared = self.collator(rows)
        clips = decode(prepared)
        self._count(prepared)
        encoded = [self._encode(*pair) for pair in zip(rows, prepared, strict=True)]
        images = [image for _, _, row_images in encoded for image in row_images]
        features = image_features(self.chat.processor.image_processor, images) if images else {}
        for clip in clips:
            if clip.stand_in:  # the next epoch may find the file again
                clip.release()
        if self.rope:
            return self._packed(encoded, features.get("image_grid_thw", torch.empty(0, 3))) | features
        return self._padded(encoded) | features

    def _padded(self, encoded: list[tuple[list[int], list[int], list]]) -> dict[str, torch.Tensor]:
        """The rows one under the other, padded to the longest."""
        processor = self.chat.processor
        width = max(len(ids) for ids, _, _ in encoded)
        pad = processor.tokenizer.pad_token_id
        ids = torch.tensor([i + [pad] * (width - len(i)) for i, _, _ in encoded])  # (B, T)
        mask = torch.tensor([m + [0] * (width - len(m)) for _, m, _ in encoded])
        lengths = torch.tensor([len(i) for i, _, _ in encoded])
        batch = {
            "input_ids": ids,
            "attention_mask": (torch.arange(width) < lengths[:, None]).long(),
            "labels": ids.masked_fill(mask == 0, -100),
            "mm_token_type_ids": (ids == processor.image_token_id).long(),
        }
        return batch

    def _packed(self, encoded: list[tuple[list[int], list[int], list]], grids: torch.Tensor) -> dict:
        """The rows as one sequence of T tokens."""
        ids, learned, images = zip(*encoded, strict=True)
        merged = self.chat.processor.image_processor.merge_size**2  # patches of a token
        grids = iter(grids.tolist())
        pictures = [
            [Picture(b"", tuple(grid), math.prod(grid) // merged) for grid in islice(grids, len(row))]
            for row in images
        ]
        return pack_conversations(ids, learned, pictures, self.chat.processor.image_token_id, self.rope).inputs()
