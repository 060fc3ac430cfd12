"""`ParaGRPOTrainer` in somebody else's project: their models, their rollouts, their tools, their rows."""

import functools

import others
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from PIL import Image
from test_trainer import config
from trl import GRPOTrainer

from paravt import ParaGRPOTrainer, ParallelRollout
from paravt.chat import Chat
from paravt.rewards import accuracy_reward, format_reward, tool_reward


COLOURS = {"red": (220, 30, 30), "blue": (30, 30, 220)}
PREFIX = "<think>\n"
SAID = ["a</think><answer>red</answer>", "it is red</think>", "no <answer>red</answer>", "</think><answer>red"]


def rollouts(prompts, trainer):
    """What a stranger writes: their own prompt ids, completions of which a part is placed, and a mask."""
    processor, tokenizer = trainer.processing_class, trainer._tokenizer
    prompt_ids, ids, masks = [], [], []
    for i, prompt in enumerate(prompts):
        rendered = processor.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True, return_dict=True)
        found = rendered["input_ids"]
        prompt_ids.append(found if isinstance(found[0], int) else list(found[0]))
        placed, said = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (PREFIX, SAID[i % 4]))
        ids.append(placed + said + [tokenizer.eos_token_id])
        masks.append([0] * len(placed) + [1] * (len(said) + 1))
    return {"prompt_ids": prompt_ids, "completion_ids": ids, "logprobs": None, "env_mask": masks}


def differing(completions, completion_ids, **columns):
    return [float(sum(ids) % 7) for ids in completion_ids]


def picture_rows():
    """TRL's own kind of rows with pictures."""
    return [
        {"prompt": [{"role": "user", "content": f"Which colour {i}?"}], "images": [Image.new("RGB", (32, 32), colour)]}
        for i, colour in enumerate(COLOURS.values())
    ]


def text_rows():
    return [{"prompt": [{"role": "user", "content": f"Which colour {i}?"}]} for i in range(2)]


FAMILIES = [(others.text_model, text_rows), (others.smolvlm, picture_rows), (others.gemma3, picture_rows)]


@pytest.mark.parametrize(("family", "rows"), FAMILIES, ids=lambda f: f.__name__)
class TestFamilies:
    def trainer(self, folder, tokenizer, family, rows, **kwargs):
        model, processor = family(tokenizer)
        args = config(folder, per_device_train_batch_size=8, learning_rate=0.1, max_completion_length=64)
        return ParaGRPOTrainer(
            model,
            differing,
            args,
            train_dataset=Dataset.from_list(rows()),
            processing_class=processor,
            rollout_func=rollouts,
            **kwargs,
        )

    def test_a_step(self, tmp_path, toy_processor, family, rows):
        trainer = self.trainer(tmp_path, toy_processor.tokenizer, family, rows)
        before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
        trainer.train()
        moved = {name for name, p in trainer.model.named_parameters() if not torch.equal(p, before[name])}
        assert moved and all("vision" not in n and "connector" not in n and "projector" not in n for n in moved)
        assert {name for name in before if ".layers." in name and "vision" not in name and "norm" not in name} <= moved
        logs = trainer.state.log_history[0]
        assert logs["format/compliance"] == 0.25 and logs["format/fault/think_blank"] == 0.25
        assert logs["format/fault/think_not_closed"] == logs["format/fault/answer_missing"] == 0.25
        assert not any(name.startswith(("tools/", "budget_", "video/")) for name in logs)

    def test_lora(self, tmp_path, toy_processor, family, rows):
        peft_config = LoraConfig(r=2, lora_dropout=0.0)
        trainer = self.trainer(tmp_path, toy_processor.tokenizer, family, rows, peft_config=peft_config)
        before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
        trainer.train()
        moved = {name for name, p in trainer.model.named_parameters() if not torch.equal(p, before[name])}
        # B is zero at first, so that A moves from the second step on.
        assert moved == {name for name in before if "lora_B" in name} and len(moved) == 14

    def test_the_anchor_is_on_the_tags(self, tmp_path, toy_processor, family, rows):
        trainer = self.trainer(tmp_path, toy_processor.tokenizer, family, rows)
        trainer.reward_funcs = [lambda completions, **columns: [1.0] * len(completions)]
        batch = trainer._generate_and_score_completions([dict(rows()[0]) for _ in range(4)])
        pieces = {}
        for ids, advantages in zip(batch["completion_ids"].tolist(), batch["advantages"].tolist(), strict=True):
            for token, value in zip(ids, advantages, strict=True):
                value = round(value / 0.5, 3)
                pieces[value] = pieces.get(value, "") + trainer._tokenizer.decode([token]) * (value != 0)
        assert pieces[0.4] == "</think>" * 2 and pieces[0.3] == "</answer>"
        assert pieces[-0.3].startswith("<|im_end|> <") or pieces[-0.3].count("<") >= 3


class TestTools:
    def test_other_peoples_tools_in_trls_loop(self, tmp_path, toy_processor, monkeypatch):
        """A text model with a plain function as its tool: calls of it are well-formed, calls of others are not."""
        model, tokenizer = others.text_model(toy_processor.tokenizer)

        def look(where: str) -> str:
            """
            Look somewhere.

            Args:
                where: The place.

            Returns:
                What is there.
            """
            return f"a cat on the {where}"

        call = '<tool_call>\n{"name": "look", "arguments": {"where": "left"}}\n</tool_call>'
        said = [f"<think>a</think>\n{call}<|im_end|>", "<think>b</think>\n<answer>cat</answer><|im_end|>"]
        turns = iter(said)

        def scripted(self, prompt_ids, images, fields, num_generations, has_tool_images=False):
            return [tokenizer(text)["input_ids"] for text in [next(turns)] * len(prompt_ids)], None

        monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", scripted)
        rows = text_rows()[:1]
        args = config(tmp_path, max_completion_length=256)
        trainer = ParaGRPOTrainer(
            model,
            [lambda completions, **columns: [1.0] * len(completions), format_reward],
            args,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            tools=[look],
        )
        batch = trainer._generate_and_score_completions([dict(rows[0]) for _ in range(4)])
        assert trainer._metrics["train"]["format/compliance"] == [1.0]
        assert trainer._rewards.tolist() == [[1.0, 1.0]] * 4  # of thoughts and calls that TRL took out of the texts
        assert (batch["advantages"] >= 0).all()
        text = tokenizer.decode(batch["completion_ids"][0])
        assert "a cat on the left" in text and batch["advantages"][0].sum() > 0
        trainer._is_tool = {"smell"}.__contains__
        assert {fault.reason for fault in trainer._faults()} == {"call_malformed"}


class TestColumns:
    def test_what_only_has_the_name_of_ours(self, tmp_path, toy_processor):
        """Fields of their rollouts and columns of their data that are called as ours are."""
        model, tokenizer = others.text_model(toy_processor.tokenizer)
        rows = [{**text_rows()[0], "answer": "red", "question_type": "oe", "frame_budget": "small", "turns": 2}]

        def with_fields(prompts, trainer):
            fields = {"tool_calls": [[3], ["look"], None, 5], "pictures": [1, 2, 3, 4]}
            return {**rollouts(prompts, trainer), **fields}

        rewards = [accuracy_reward, format_reward, tool_reward]
        found = {}
        for name, rollout in (("fields", with_fields), ("plain", rollouts)):
            trainer = ParaGRPOTrainer(
                model, rewards, config(tmp_path), train_dataset=Dataset.from_list(rows),
                processing_class=tokenizer, rollout_func=rollout,
            )  # fmt: skip
            trainer._generate_and_score_completions([dict(rows[0]) for _ in range(4)])
            found[name] = trainer._rewards.tolist(), dict(trainer._metrics["train"])
        assert found["fields"] == found["plain"] and 1.0 in [row[0] for row in found["plain"][0]]
        assert not any(name.startswith(("tools/", "budget_")) for name in found["plain"][1])


class Scripted(ParallelRollout):
    """Rollouts of our own kind, in which nothing is generated and no call is made."""

    def __call__(self, prompts, trainer):
        told = rollouts(prompts, trainer)
        chat = Chat(trainer.processing_class)
        turns = [[{"role": "assistant", "content": PREFIX + said}] for said in SAID]
        prompt_ids = [chat.prompt(prompt)[0] for prompt in prompts]
        return {**told, "prompt_ids": prompt_ids, "turns": turns, "tool_calls": [[] for _ in prompts]}


class TestMetrics:
    @pytest.mark.parametrize(
        "reward",
        [
            accuracy_reward,
            functools.partial(accuracy_reward, fallback=False),
            lambda *args, **kwargs: accuracy_reward(*args, **kwargs),
            lambda completions, **columns: [0.5] * len(completions),
        ],
    )
    def test_they_do_not_depend_on_what_a_reward_is_called(self, tmp_path, toy_checkpoint, toy_rows, reward):
        row = {**toy_rows[0], "answer": "red", "question_type": "oe"}
        args = config(tmp_path)
        trainer = ParaGRPOTrainer(
            toy_checkpoint,
            [reward],
            args,
            train_dataset=Dataset.from_list([row]),
            rollout_func=Scripted.from_config(args),
        )
        trainer.model.train()
        trainer._generate_and_score_completions(trainer.data_collator([row] * 4))
        assert trainer._metrics["train"]["answered_without_tool_accuracy"] == [0.5]  # two have closed their answer
