"""
A model of lmms-eval that answers with the rollout: all of its tasks, none of their loaders or metrics rewritten.

    lmms_eval --model paravt --model_args pretrained=CHECKPOINT,dispatch=parallel --tasks videomme

`recipes/evaluate.py` does more: strict scores, a trace of each question, resume, an exit code that tells of failures.
Needs `pip install "paravt[eval]"`. Nothing here is imported by the rest of the library.
"""

import ast
import json
import re
from dataclasses import asdict

import torch
from accelerate import Accelerator, PartialState
from lmms_eval.api.model import lmms
from lmms_eval.models.registry_v2 import ModelManifest
from lmms_eval.protocol import ChatMessages

from ..answers import extract_choice, parse_interval, score_answer
from ..collator import FrameBudgetCollator
from ..engines import load_engine
from ..engines.checkpoints import resolve_model, weights_fingerprint
from ..rollout import ParallelRollout
from ..settings import settings_of
from .playing import FIELDS, failed, play_safely
from .records import Records


def manifest() -> ModelManifest:
    """What the entry point gives lmms-eval."""
    return ModelManifest(model_id="paravt", chat_class_path="paravt.evaluation.plugin.ParaVT")


# The options of a question, as the tasks of lmms-eval list them.
OPTION = re.compile(r"^\s*\(?([A-Z])[).:]\s*(\S.*?)\s*$", re.MULTILINE)
NO_ANSWER = "???"  # no letters, no digits: every official scorer that does not guess finds it wrong


def official_answer(prediction: str | None, question: str, doc: dict) -> str:
    """
    What the official scorer is given: a bare capital letter for a choice, `2.0 - 5.0` for an interval, the answer as
    it is for the rest, and for no answer a text that it scores as wrong.
    """
    options = OPTION.findall(question)
    answer = prediction
    if options and answer is not None:
        labels = [label for label, _ in options]
        answer = extract_choice(answer, labels, [text for _, text in options])
    elif answer is not None and "timestamp" in doc:  # temporal grounding
        interval = parse_interval(answer)
        answer = f"{interval[0]} - {interval[1]}" if interval else None
    if answer:
        return answer
    if "correct_choice" in doc:  # LongVideoBench draws a random choice where it finds none: it gets a wrong one
        return "B" if doc["correct_choice"] == 0 else "A"
    return NO_ANSWER


def strict_score(record: dict, target, doc: dict) -> tuple[str, float]:
    """The truth as text, and the score of a prediction: nothing is guessed, and no answer is wrong."""
    options = [text for _, text in OPTION.findall(record["question"])]
    if options:
        truth = chr(ord("A") + target) if isinstance(target, int) else str(target)
        return truth, score_answer(record["prediction"], truth, "mcq", options)
    if "timestamp" in doc:
        start, end = ast.literal_eval(target) if isinstance(target, str) else target
        return f"{start} - {end}", score_answer(record["prediction"], (float(start), float(end)), "tvg")
    return str(target), score_answer(record["prediction"], str(target), "oe", mode="exact")


class ParaVT(lmms):
    """
    Answers each request with a rollout of the trained loop; see [`ParallelRollout`] for the limits.

    Args:
        pretrained (`str`): Checkpoint, or an adapter that names its base model.
        adapter (`str`, *optional*): LoRA adapter.
        engine (`str`): `"transformers"` or `"vllm"`.
        max_length (`int`, *optional*): Longest conversation that vLLM makes room for, in tokens.
        batch_size (`int`): Questions in flight.
        engine_args (`dict` or `str`, *optional*): More arguments of `vllm.LLM`, as a dict or as JSON.
        records (`str`, *optional*): JSONL file with a record per question; those in it are not asked again.
        tasks (`dict`, *optional*): lmms-eval's tasks by name; with them records have the truth and a strict score.
        settings: Those of [`RolloutSettings`] by name, in place of what is saved beside the weights.
    """

    is_simple = False

    def __init__(
        self,
        pretrained: str,
        adapter: str | None = None,
        engine: str = "transformers",
        max_length: int | None = None,
        batch_size: int = 16,
        dtype: str = "auto",
        device: str | None = None,
        records: str | None = None,
        tasks: dict | None = None,
        max_batch_size: int | None = None,
        engine_args: dict | str | None = None,
        **settings,
    ):
        super().__init__()
        cpu = not torch.accelerator.is_available()  # left alone, accelerate sees one rank where there is no GPU
        state = PartialState(cpu=cpu)
        self._rank, self._world_size = state.process_index, state.num_processes
        told = print if self._rank == 0 else (lambda text: None)
        self.asked_with = settings_of(pretrained, adapter, report=told, **settings)
        self.settings = {
            "model": pretrained,
            "adapter": adapter,
            "weights": weights_fingerprint(*resolve_model(pretrained, adapter)),
            "engine": engine,
            "dtype": dtype,
            **asdict(self.asked_with),
        }
        self.rollout = ParallelRollout.from_config(self.asked_with)
        if self._world_size > 1:
            self.accelerator = Accelerator(cpu=cpu)
            device = device or str(self.accelerator.device)
        self.batch_size, self.tasks = int(batch_size), tasks or {}
        self.records = Records(records, self.settings, self._rank, (*FIELDS, "official_answer")) if records else None
        engine_args = json.loads(engine_args) if isinstance(engine_args, str) else engine_args
        max_pixels = self.asked_with.max_pixels
        self.engine = load_engine(
            pretrained, adapter, engine, max_pixels, dtype, device, max_length, self.batch_size, engine_args
        )
        self.device, self.asked = device or "cpu", set()
        self.collator = FrameBudgetCollator.from_settings(self.engine.processor, self.asked_with)

    def generate_until(self, requests) -> list[str]:
        from tqdm import tqdm

        rows, done = {}, {} if self.records is None else self.records.done
        ids = [self._id(request) for request in requests]
        self.asked |= set(ids)
        for key, request in zip(ids, requests, strict=True):
            if key not in rows and (key not in done or done[key]["error"]):
                rows[key] = self._row(key, request)
        found, keys = {}, list(rows)
        progress = tqdm(
            total=len(requests), initial=len(requests) - len(keys), desc="Questions", disable=self.rank > 0
        )
        documents = {key: self._doc(request) for key, request in zip(ids, requests, strict=True)}
        for start in range(0, len(keys), self.batch_size):
            batch = [rows[key] for key in keys[start : start + self.batch_size]]
            records = [failed(row, row["question"], row["error"]) for row in batch if row.get("error")]
            whole = [row for row in batch if not row.get("error")]
            if whole:
                records += play_safely(
                    self.rollout, self.engine, self.collator, whole, self.asked_with.max_completion_length
                )
            for record in records:
                task, doc = record["id"].split("/")[0], documents[record["id"]]
                record["official_answer"] = official_answer(record["prediction"], record["question"], doc)
                if task in self.tasks and not record["error"]:
                    target = self.tasks[task].doc_to_target(doc)
                    record["truth"], record["score"] = strict_score(record, target, doc)
                found[record["id"]] = record
                if self.records is not None:
                    self.records.add(record)
            progress.update(len(batch))
        progress.close()
        return [(found.get(key) or done[key])["official_answer"] for key in ids]

    def answered(self) -> list[dict]:
        """The records of this run's questions, those of all ranks."""
        everything = self.records.everything()
        return [r for key, r in everything.items() if key in self.asked or self.world_size > 1]

    @staticmethod
    def _id(request) -> str:
        _, _, _, doc_id, task, split = request.args
        return f"{task}/{split}/{doc_id}"

    def _doc(self, request) -> dict:
        _, _, _, doc_id, task, split = request.args
        return self.task_dict[task][split][doc_id]

    def _row(self, key: str, request) -> dict:
        """The row of a request, with `error` where lmms-eval cannot make its messages: it may even try to exit."""
        try:
            messages = ChatMessages(messages=request.args[1](self._doc(request)))
            _, videos, _ = messages.extract_media()
            texts = [part.text for m in messages.messages for part in m.content if part.type == "text"]
        except (Exception, SystemExit) as error:
            return {"key": key, "error": f"{type(error).__name__}: {error}", "question": str(request.args[0])}
        prompt = [{"role": "system", "content": self.asked_with.prompt}]
        prompt.append({"role": "user", "content": "<video>" * len(videos) + "\n".join(texts)})
        return {"key": key, "prompt": prompt, "videos": [str(v) for v in videos]}

    def loglikelihood(self, requests):
        raise NotImplementedError("a rollout has no likelihood of a given answer; use tasks that generate")

    def generate_until_multi_round(self, requests):
        raise NotImplementedError("the rollout has its own rounds; use tasks that ask once")
