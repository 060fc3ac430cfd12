"""The knobs of the method. With all of them off the trainer is TRL's `GRPOTrainer`."""

from dataclasses import dataclass, field
from typing import Any

from trl import GRPOConfig

from .settings import check_settings


ANCHOR_TAGS = {"</think>": 0.4, "</tool_call>": 0.3, "</answer>": 0.3}


@dataclass
class ParaGRPOConfig(GRPOConfig):
    r"""
    Configuration class for the [`ParaGRPOTrainer`].

    This class includes only the parameters that are specific to PARA-GRPO. For those of the trainer below it, see
    [`~trl.GRPOConfig`]; of these the default of `vllm_importance_sampling_mode` differs (`"token_truncate"`, where
    TRL's mask for whole sequences can drop a long rollout for a few tokens).

    Parameters:
        > Parameters that control exploration anchoring

        anchor_weight (`float`, *optional*, defaults to `0.5`):
            Weight of the anchor in the advantage, `A[i, t] = A[i] + anchor_weight * credit[i, t]`. 0 turns it off.
        anchor_tags (`dict[str, float]`, *optional*):
            Credit of the tokens of each tag of a well-formed element, on the command line as JSON. By default the
            closing tags: 0.4 for `</think>`, 0.3 for `</tool_call>` and 0.3 for `</answer>`.
        anchor_penalty (`float`, *optional*, defaults to `0.3`):
            Penalty of the token at which a turn leaves the grammar.
        think_prefix (`bool`, *optional*, defaults to `True`):
            Whether `<think>` is placed at the start of every assistant turn, without loss.

        > Parameters that control what is trained

        train_vision (`bool`, *optional*, defaults to `False`):
            Whether the vision tower and its projector are trained too, rather than the language model alone: by LoRA
            where `peft_config` names no layers, or in full.

        > Parameters that control frames

        frame_budgets (`list[int]`, *optional*, defaults to `[4, 8, 16, 32, 64]`):
            Numbers of overview frames, one drawn per prompt and epoch and shared by the prompt's group. One value
            turns gating off.
        max_pixels (`int`, *optional*, defaults to `50176`):
            Largest area of a frame, in pixels.
        video_backend (`str`, *optional*, defaults to `"pyav"`):
            Decoder: `"pyav"`, or `"decord"`, which falls back to PyAV for files in which the two disagree.
        snap_overview (`bool`, *optional*, defaults to `False`):
            Whether key frames may stand in for overview frames near them, with their true times: cheaper to decode.
        crop_fps (`float`, *optional*, defaults to `1.0`):
            Frames per second of a crop.
        crop_frames (`int`, *optional*, defaults to `16`):
            Most frames of a crop.
        max_bad_rows (`float`, *optional*, defaults to `0.05`):
            Share of rows with a bad video up to which the run goes on.

        > Parameters that control rollouts

        dispatch (`str`, *optional*, defaults to `"parallel"`):
            How calls are served: `"parallel"`, `"sequential"` (one a turn) or `"none"`.
        max_turns (`int`, *optional*, defaults to `3`):
            Turns in which tools may be called; one more, for the answer, follows.
        max_calls_per_turn (`int`, *optional*, defaults to `5`):
            Calls served in a turn.
        max_calls (`int`, *optional*, defaults to `15`):
            Calls served in an episode.
        max_turn_length (`int`, *optional*, defaults to `2048`):
            Most new tokens of a turn of the main agent.
        max_report_length (`int`, *optional*, defaults to `512`):
            Most new tokens of a sub-agent.

        > Parameters that control passes

        packing (`bool`, *optional*, defaults to `True`):
            Whether rows that share a prompt are computed as one, and each frame once a step, where the model allows
            it. What comes out is the same. `per_device_train_batch_size` should be a multiple of `num_generations`.

        > Parameters that control rewards

        format_weight (`float`, *optional*, defaults to `1.0`):
            Weight of the graded format reward.
        tool_weight (`float`, *optional*, defaults to `1.0`):
            Weight of the tool reward.
    """

    _VALID_DICT_FIELDS = GRPOConfig._VALID_DICT_FIELDS + ["anchor_tags"]

    vllm_importance_sampling_mode: str = field(
        default="token_truncate",
        metadata={"help": GRPOConfig.__dataclass_fields__["vllm_importance_sampling_mode"].metadata["help"]},
    )
    anchor_weight: float = field(default=0.5, metadata={"help": "Weight of the anchor in the advantage; 0 is off."})
    anchor_tags: dict[str, Any] | str | None = field(
        default_factory=lambda: dict(ANCHOR_TAGS),
        metadata={"help": "Credit of the tokens of each tag of a well-formed element."},
    )
    anchor_penalty: float = field(
        default=0.3, metadata={"help": "Penalty of the token at which a turn leaves the grammar."}
    )
    think_prefix: bool = field(
        default=True, metadata={"help": "Whether <think> is placed at the start of every assistant turn."}
    )
    train_vision: bool = field(
        default=False, metadata={"help": "Whether the vision tower and its projector are trained too."}
    )
    frame_budgets: list[int] = field(
        default_factory=lambda: [4, 8, 16, 32, 64],
        metadata={"help": "Numbers of overview frames, one drawn per prompt and epoch; one value is no gating."},
    )
    max_pixels: int = field(default=50176, metadata={"help": "Largest area of a frame, in pixels."})
    video_backend: str = field(
        default="pyav",
        metadata={"help": "Decoder: exact, or used where it can be trusted.", "choices": ["pyav", "decord"]},
    )
    snap_overview: bool = field(
        default=False, metadata={"help": "Whether key frames may stand in for overview frames near them: cheaper."}
    )
    packing: bool = field(
        default=True, metadata={"help": "Whether rows that share a prompt are computed as one, and each frame once."}
    )
    format_weight: float = field(default=1.0, metadata={"help": "Weight of the graded format reward."})
    tool_weight: float = field(default=1.0, metadata={"help": "Weight of the tool reward."})
    dispatch: str = field(
        default="parallel",
        metadata={"help": "How calls are served.", "choices": ["parallel", "sequential", "none"]},
    )
    max_turns: int = field(default=3, metadata={"help": "Turns in which tools may be called."})
    max_calls_per_turn: int = field(default=5, metadata={"help": "Calls served in a turn."})
    max_calls: int = field(default=15, metadata={"help": "Calls served in an episode."})
    max_turn_length: int = field(default=2048, metadata={"help": "Most new tokens of a turn of the main agent."})
    max_report_length: int = field(default=512, metadata={"help": "Most new tokens of a sub-agent."})
    crop_fps: float = field(default=1.0, metadata={"help": "Frames per second of a crop."})
    crop_frames: int = field(default=16, metadata={"help": "Most frames of a crop."})
    max_bad_rows: float = field(
        default=0.05, metadata={"help": "Share of rows with a bad video up to which the run goes on."}
    )

    def __post_init__(self):
        super().__post_init__()
        unknown = set(self.anchor_tags) - {f"<{slash}{name}>" for name in _ELEMENTS for slash in ("", "/")}
        if unknown:
            raise ValueError(
                f"`anchor_tags` has {sorted(unknown)}; legal tags are the opening and closing tags of {_ELEMENTS}."
            )
        if not self.frame_budgets or any(not isinstance(k, int) or k < 1 for k in self.frame_budgets):
            raise ValueError(f"`frame_budgets` must be a list of positive integers, got {self.frame_budgets}.")
        check_settings(self, but=["max_completion_length"])
        for name in ("anchor_weight", "anchor_penalty"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"`{name}` must not be negative, got {getattr(self, name)}.")
        if not 0 <= self.max_bad_rows <= 1:
            raise ValueError(f"`max_bad_rows` must be between 0 and 1, got {self.max_bad_rows}.")
        if self.reward_weights is not None and (self.format_weight, self.tool_weight) != (1.0, 1.0):
            raise ValueError(
                f"with `reward_weights`, got {self.reward_weights}, `format_weight` and `tool_weight` must be 1, got "
                f"{self.format_weight} and {self.tool_weight}."
            )
        if self.anchor_weight:
            self._check_anchor()

    def _check_anchor(self) -> None:
        """Refuses what would take the anchor to other tokens, or away from its own."""
        refused = {
            "importance_sampling_level": (
                "token",
                "one ratio for a sequence spreads the anchor over all of its tokens",
            ),
            "top_entropy_quantile": (1.0, "closing tags have little entropy, and would lose their anchor"),
            "off_policy_mask_threshold": (None, "the mask is of rollouts, and would be taken token by token"),
        }
        for name, (legal, reason) in refused.items():
            if getattr(self, name) != legal:
                raise ValueError(
                    f"`{name}` must be {legal!r} unless `anchor_weight` is 0, got {getattr(self, name)!r}: {reason}."
                )


def check_generation(args: GRPOConfig) -> None:
    """Refuses options of TRL that a [`ParallelRollout`] would not heed, or with which nothing can be sampled."""
    refused = {
        "max_tool_calling_iterations": "`max_turns` is the number of turns with tools",
        "vllm_structured_outputs_regex": "a grammar of this kind cannot hold several turns and reports",
    }
    if not args.use_vllm:
        refused["cache_implementation"] = "the rollouts of a group share the cache of their prompt"
    for name, reason in refused.items():
        if getattr(args, name) is not None:
            raise ValueError(f"`{name}` must be None in rollouts, got {getattr(args, name)!r}: {reason}.")
    if args.remove_unused_columns:
        raise ValueError("`remove_unused_columns` must be False in rollouts: it takes the videos away from the rows.")
    length = args.max_completion_length
    if not isinstance(length, int) or length < 1:
        raise ValueError(f"`max_completion_length` must be a positive integer in rollouts, got {length!r}.")
    _check_sampling(args)


def _check_sampling(args: GRPOConfig) -> None:
    given = args.generation_kwargs or {}
    engine = "vllm" if args.use_vllm else "transformers"
    unknown = sorted(given.keys() - _SAMPLING[engine])
    if unknown:
        raise ValueError(
            f"`generation_kwargs` must not have {unknown}: lengths are `max_turn_length`, `max_report_length` and "
            "`max_completion_length`, turns end with the template's token, each prompt has one sequence, and the seed "
            f"is `seed`. Legal with {engine} are {sorted(_SAMPLING[engine])}."
        )
    least = -1 if args.use_vllm else 0
    ranges = {
        "temperature": ("above 0", lambda value: value > 0),
        "top_p": ("above 0 and at most 1", lambda value: 0 < value <= 1),
        "top_k": (f"an integer of at least {least}", lambda value: isinstance(value, int) and value >= least),
        "min_p": ("None or between 0 and 1", lambda value: value is None or 0 <= value <= 1),
        "repetition_penalty": ("above 0", lambda value: value > 0),
    }
    for name, (legal, is_legal) in ranges.items():
        value = given.get(name, getattr(args, name))
        if not is_legal(value):
            raise ValueError(f"`{name}` must be {legal} in rollouts, got {value!r}.")


_ELEMENTS = ("think", "tool_call", "answer")
_BOTH = {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"}
# What may be said of sampling, by the names of `GenerationConfig` and of vLLM's `SamplingParams`. A rollout decides
# all else itself.
_SAMPLING = {
    "transformers": _BOTH
    | {"top_h", "typical_p", "epsilon_cutoff", "eta_cutoff", "no_repeat_ngram_size", "bad_words_ids", "sequence_bias"}
    | {"suppress_tokens", "begin_suppress_tokens"},
    "vllm": _BOTH | {"presence_penalty", "frequency_penalty", "logit_bias", "bad_words", "allowed_token_ids"},
}
