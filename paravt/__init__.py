"""
Train vision-language models to call a video-cropping tool several times in parallel, with PARA-GRPO on TRL.

To follow one rollout from row to loss, read `collator.py` (a row becomes a prompt with K timed frames), `rollout.py`
and `episode.py` (turns, sub-agents, responses), `rewards.py`, `anchors.py` (a credit per token), and `trainer.py`,
which adds the credit to the advantage and leaves the loss to TRL.
"""

from importlib import import_module


__version__ = "0.1.0"

# Names are resolved on first use: a decode worker imports `paravt.video` and must not pay for torch.
_EXPORTS = {
    "ParaGRPOConfig": "config",
    "ParaGRPOTrainer": "trainer",
    "FrameBudgetCollator": "collator",
    "SupervisedCollator": "collator",
    "ParallelRollout": "rollout",
    "CropVideo": "tools",
}

__all__ = list(_EXPORTS)


def __getattr__(name: str):
    if name in _EXPORTS:
        return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
