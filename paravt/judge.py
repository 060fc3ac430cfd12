"""Open-ended answers scored by a language model behind an OpenAI-compatible endpoint, as an async reward function."""

import asyncio
import logging
import re

from .answers import assistant_turns, final_answer
from .rewards import tool_reward


logger = logging.getLogger(__name__)

PROMPT = (
    "Question: {question}\nReference answer: {truth}\nAnswer to judge: {answer}\n\n"
    "Does the answer say the same as the reference? Reply with one number between 0 (no) and 1 (yes)."
)


class JudgeReward:
    """
    Reward in [0, 1] for open-ended rows, `None` for all others; use it beside `accuracy_reward(mode="judge")`, and its
    `tool_reward` in place of [`rewards.tool_reward`].

    A sample that cannot be judged is unscored: `None`, counted in the metric `judge/failure_rate`, never zero.

    Args:
        model (`str`):
            Name of the judge.
        base_url (`str`, *optional*):
            Endpoint. The key is the `openai` client's own affair (`OPENAI_API_KEY`).
        concurrency (`int`, *optional*, defaults to `16`):
            Most requests in flight.
        retries (`int`, *optional*, defaults to `2`):
            Attempts after a failure.
        timeout (`float`, *optional*, defaults to `30.0`):
            Seconds a request may take.
    """

    __name__ = "judge_reward"

    def __init__(
        self, model: str, base_url: str | None = None, concurrency: int = 16, retries: int = 2, timeout: float = 30.0
    ):
        self.model, self.concurrency = model, concurrency
        self._rows, self._round = None, None
        self._settings = {"base_url": base_url, "max_retries": retries, "timeout": timeout}

    async def __call__(self, completions, **columns) -> list[float | None]:
        scores = await self._scores(completions, columns)
        kinds = columns.get("question_type") or [None] * len(completions)
        asked = [score for score, kind in zip(scores, kinds, strict=True) if kind == "oe"]
        if asked and "log_metric" in columns:
            columns["log_metric"]("judge/failure_rate", sum(score is None for score in asked) / len(asked))
        return scores

    async def tool_reward(self, completions, **columns) -> list[float]:
        """[`rewards.tool_reward`], for which an open-ended answer is right where the judge says so."""
        return tool_reward(completions, judged=await self._scores(completions, columns), **columns)

    async def _scores(self, completions, columns: dict) -> list[float | None]:
        """The scores of a batch. Both rewards ask for them at once, and share one round of requests."""
        get = lambda name: columns.get(name) or [None] * len(completions)  # noqa: E731
        names = ("turns", "answer", "question_type", "question")
        rows = list(zip(completions, *(get(name) for name in names), strict=True))
        if self._round is None or self._round.done() or rows != self._rows:
            self._rows, self._round = rows, asyncio.ensure_future(self._ask(rows))
        return list(await self._round)

    async def _ask(self, rows: list[tuple]) -> list[float | None]:
        from openai import AsyncOpenAI

        gate = asyncio.Semaphore(self.concurrency)
        async with AsyncOpenAI(**self._settings) as client:
            return await asyncio.gather(*(self._score(client, gate, *row) for row in rows))

    async def _score(self, client, gate, completion, turns, truth, kind, question) -> float | None:
        if kind != "oe" or truth is None:
            return None
        answer = final_answer(assistant_turns(completion, turns)[-1], fallback=False)
        if answer is None:
            return 0.0
        content = PROMPT.format(question=question or "(not given)", truth=truth, answer=answer[:2000])
        from openai import OpenAIError

        try:
            async with gate:
                reply = await client.chat.completions.create(
                    model=self.model, messages=[{"role": "user", "content": content}], temperature=0.0, max_tokens=16
                )
            text = reply.choices[0].message.content or ""
            number = re.fullmatch(r"\s*(?:score\s*[:=]\s*)?(0(?:\.\d+)?|1(?:\.0+)?)\s*\.?\s*", text, re.IGNORECASE)
            if number is None:
                raise ValueError(f"the judge said {text[:80]!r}, which is no number between 0 and 1")
            return float(number[1])
        except (OpenAIError, ValueError, IndexError, AttributeError, TypeError) as error:
            logger.warning("unscored: %s: %s", type(error).__name__, error)
            return None
