"""The rows of the ablation: flags of `recipes/para_grpo.py`, and trainers where a flag does not suffice."""

import json

from paravt import ParaGRPOTrainer


VANILLA = ["--anchor_weight", "0", "--think_prefix", "false"]
ONE_BUDGET = ["--frame_budgets", "32"]
ALL_TAGS = {"think": 0.4, "tool_call": 0.3, "answer": 0.3}
ROWS = {
    "cold start": VANILLA,
    "GRPO": VANILLA + ONE_BUDGET + ["--tool_weight", "0"],
    "GRPO + tool reward": VANILLA + ONE_BUDGET,
    "anchoring only": ONE_BUDGET,
    "gating only": VANILLA,
    "PARA-GRPO": [],
    "without tool reward": ["--tool_weight", "0"],
    "without penalty": ["--anchor_penalty", "0"],
}
# Choices of this implementation.
VARIANTS = {
    "anchors on all tags": [
        "--anchor_tags",
        json.dumps({f"<{end}{tag}>": w for tag, w in ALL_TAGS.items() for end in ("", "/")}),
    ],
    "penalty on the whole turn": [],
    "anchors with a baseline": [],
    "no format reward, no anchors": ["--anchor_weight", "0", "--format_weight", "0"],
    "anchors instead of a format reward": ["--format_weight", "0"],
    "small budgets more often": ["--frame_budgets", "4", "4", "4", "8", "8", "16", "32"],
}
BUDGETS = [4, 8, 16, 32]


class SpreadPenalty(ParaGRPOTrainer):
    """The penalty of a broken turn is shared by the sampled tokens of the turn."""

    def _credit(self, rows):
        credits = super()._credit(rows)
        for (_, mask), credit in zip(rows, credits, strict=True):
            for broken in [t for t, value in enumerate(credit) if value < 0]:
                start = next((t + 1 for t in range(broken, -1, -1) if not mask[t]), 0)
                end = next((t for t in range(broken, len(mask)) if not mask[t]), len(mask))
                share, credit[broken] = credit[broken] / (end - start), 0.0
                for t in range(start, end):
                    credit[t] += share
        return credits


class BaselineAnchor(ParaGRPOTrainer):
    """A credit counts against the mean credit of the structural tokens of the rollout's group."""

    def _credit(self, rows):
        credits, size = super()._credit(rows), self.num_generations
        for start in range(0, len(credits), size):
            group = credits[start : start + size]
            values = [value for credit in group for value in credit if value]
            mean = sum(values) / len(values) if values else 0.0
            for credit in group:
                credit[:] = [value - mean if value else 0.0 for value in credit]
        return credits


TRAINERS = {"penalty on the whole turn": SpreadPenalty, "anchors with a baseline": BaselineAnchor}
