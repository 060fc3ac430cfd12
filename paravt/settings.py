"""The settings of a rollout, kept beside the weights that were trained with them and read back by all that play."""

import argparse
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import Field, asdict, dataclass, field, fields, replace
from typing import Any

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError
from transformers.utils.generic import strtobool

from .messages import read_messages
from .prompts import INSTRUCTIONS


FILE = "rollout.json"


def _setting(default: Any, text: str, **metadata) -> Any:
    """A field with its help, and what is legal: `choices`, or a number that is at `least` or `above` another."""
    return field(default=default, metadata={"help": text, **metadata})


@dataclass(frozen=True)
class RolloutSettings:
    """
    What decides how a policy is asked, beside its weights. Those that a [`ParallelRollout`] has mean the same there.

    Raises:
        `ValueError`: naming a value that is none of the legal ones.
    """

    think_prefix: bool = _setting(True, "whether <think> is placed at the start of every turn")
    dispatch: str = _setting("parallel", "how calls are served", choices=("parallel", "sequential", "none"))
    max_turns: int = _setting(3, "turns with tools", least=0)
    max_calls_per_turn: int = _setting(5, "calls served in a turn", least=0)
    max_calls: int = _setting(15, "calls served in an episode", least=0)
    max_turn_length: int = _setting(2048, "most new tokens of a turn", least=1)
    max_report_length: int = _setting(512, "most new tokens of a sub-agent", least=1)
    max_completion_length: int = _setting(8192, "most tokens after the prompt", least=1)
    frames: int = _setting(64, "overview frames", least=1)
    max_pixels: int = _setting(50176, "largest area of a frame", least=1)
    crop_fps: float = _setting(1.0, "frames per second of a crop", above=0)
    crop_frames: int = _setting(16, "most frames of a crop", least=1)
    video_backend: str = _setting("pyav", "decoder of the frames", choices=("pyav", "decord"))
    snap_overview: bool = _setting(False, "whether key frames may stand in for overview frames near them")
    prompt: str = _setting(INSTRUCTIONS, "instructions of the system prompt, or their file")
    chat_template_kwargs: dict | None = _setting(None, "arguments of the chat template, as JSON")

    def __post_init__(self):
        check_settings(self)

    @classmethod
    def from_config(cls, config, row: dict | None = None) -> "RolloutSettings":
        """Those of a [`ParaGRPOConfig`], with the system message of a row of its data, if that has one."""
        taken = {one.name: getattr(config, one.name) for one in fields(cls) if one.name not in ("frames", "prompt")}
        return cls(**taken, frames=max(config.frame_budgets), prompt=prompt_of(row or {}))

    @classmethod
    def load(cls, folder: str) -> "RolloutSettings | None":
        """
        Those saved in a folder or hub repository; `None` if there are none.

        Raises:
            `ValueError`: if it is neither, or the settings are none.
        """
        path = os.path.join(folder, FILE)
        if not os.path.isdir(folder):
            try:
                path = hf_hub_download(folder, FILE)
            except EntryNotFoundError:
                return None
            except (HFValidationError, HfHubHTTPError) as error:
                raise ValueError(f"{folder!r} is no folder, and no repository of the hub: {error}") from None
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            try:
                found = json.load(file)
            except ValueError as error:
                raise ValueError(f"{path} is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise ValueError(f"{path} must have an object of settings, got {found!r}")
        unknown = sorted(found.keys() - {one.name for one in fields(cls)})
        if unknown:
            raise ValueError(f"{path} has settings {unknown}, which this version of paravt does not know")
        return cls(**found)

    def save(self, folder: str) -> None:
        """Writes them into a folder, which is made if it is not there."""
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, FILE), "w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=2, ensure_ascii=False)

    def override(self, **given) -> "RolloutSettings":
        """With what is given in place of what was; `None` is not given, and a file stands for the prompt in it."""
        given = {name: value for name, value in given.items() if value is not None}
        if os.path.isfile(given.get("prompt", "")):
            with open(given["prompt"], encoding="utf-8") as file:
                given["prompt"] = file.read()
        return replace(self, **given)


def check_settings(holder, but: Sequence[str] = ()) -> None:
    """Raises a `ValueError` that names a setting, `but` for some, whose value in `holder` is not a legal one."""
    for one in fields(RolloutSettings):
        if one.name not in but and one.name in vars(holder):
            value, legal = getattr(holder, one.name), _legal(one)
            if not _is_legal(value, one):
                raise ValueError(f"`{one.name}` must be {legal}, got {value!r}")


def _is_legal(value: Any, one: Field) -> bool:
    rule = one.metadata
    if one.type in (int, float):
        kinds = int if one.type is int else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
            return False
        return value >= rule["least"] if "least" in rule else value > rule["above"]
    return value in rule["choices"] if "choices" in rule else isinstance(value, one.type)


def _legal(one: Field) -> str:
    """What a setting may be, in words."""
    rule = one.metadata
    if "choices" in rule:
        return f"one of {rule['choices']}"
    kind = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}.get(one.type, "a dict or None")
    limits = [f"of at least {rule['least']}"] if "least" in rule else []
    return " ".join([kind, *limits, *([f"above {rule['above']}"] if "above" in rule else [])])


def prompt_of(row: dict) -> str:
    """The system message of a row, or the instructions that rows without one are given."""
    if not row.get("prompt"):
        return INSTRUCTIONS
    first = read_messages(row["prompt"], "prompt")[0][0]
    return first["content"] if first["role"] == "system" else INSTRUCTIONS


def settings_of(
    model: str, adapter: str | None = None, *, report: Callable[[str], None] = print, **given
) -> RolloutSettings:
    """
    The settings with which a policy is to be played: given ones before saved ones before the defaults.

    Args:
        model (`str`): Checkpoint, or an adapter.
        adapter (`str`, *optional*): LoRA adapter, whose settings come before those of the checkpoint.
        report (`Callable`): Told where each setting comes from.
        given: Settings by name; `None` is not given.
    """
    source, saved = "defaults", RolloutSettings()
    for folder in (adapter, model):
        found = RolloutSettings.load(folder) if folder else None
        if found is not None:
            source, saved = f"saved in {folder}", found
            break
    settings = saved.override(**given)
    for title, were_given in ((source, False), ("given", True)):
        values = {name: v for name, v in asdict(settings).items() if (given.get(name) is not None) == were_given}
        if values:
            report(f"rollout settings, {title}: {', '.join(f'{name} {value!r}' for name, value in values.items())}")
    return settings


def add_flags(parser: argparse.ArgumentParser) -> None:
    """A flag for each setting; one that is not given is `None`."""
    readers = {bool: lambda text: bool(strtobool(text)), dict | None: json.loads}
    for one in fields(RolloutSettings):
        default = "" if one.name == "prompt" else f"; {one.default} unless saved beside the weights"
        parser.add_argument(
            f"--{one.name}",
            type=readers.get(one.type, one.type),
            choices=one.metadata.get("choices"),
            help=one.metadata["help"] + default,
        )


def given_flags(options: argparse.Namespace) -> dict:
    """The settings that were given as flags."""
    values = {one.name: getattr(options, one.name) for one in fields(RolloutSettings)}
    return {name: value for name, value in values.items() if value is not None}
