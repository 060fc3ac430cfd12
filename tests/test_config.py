"""Every option that TRL's GRPO adds to `TrainingArguments`: it works, as a test shows; it is refused; or neither."""

import math
import os
from dataclasses import fields

import others
import pytest
import torch
from datasets import Dataset
from test_trainer import LOOP, config, fixed_rollouts, rows_with_errors, spread
from transformers import AutoProcessor, Qwen3VLForConditionalGeneration, TrainingArguments
from trl import GRPOConfig, GRPOTrainer

from paravt import FrameBudgetCollator, ParaGRPOTrainer, ParallelRollout
from paravt.rewards import accuracy_reward, format_reward, tool_reward


HERE = os.path.dirname(os.path.abspath(__file__))

# Options with which the anchor's gradient is still on the anchored tokens, in proportion to their credit.
LOSSES = [
    *({"loss_type": kind} for kind in ("dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "luspo")),
    {"loss_type": "vespo", "vespo_k_pos": 2.5, "vespo_lambda_pos": 2.5, "vespo_k_neg": 2.5, "vespo_lambda_neg": 2.5},
    {"loss_type": "sapo", "sapo_temperature_neg": 1.2, "sapo_temperature_pos": 1.1},
    {"epsilon": 0.1, "epsilon_high": 0.3, "delta": 2.0},
    {"importance_sampling_level": "token", "off_policy_mask_threshold": None, "top_entropy_quantile": 1.0},
    {"scale_rewards": "batch"},
    {"scale_rewards": "none", "multi_objective_aggregation": "normalize_then_sum"},
    {"pad_to_multiple_of": 64},
    {"cast_lm_head_to_fp32": True},
    {"mask_truncated_completions": True},
]
RATIOS = [
    {"vllm_importance_sampling_mode": mode, "vllm_importance_sampling_correction": True}
    | {"vllm_importance_sampling_clip_min": 0.5, "vllm_importance_sampling_clip_max": 2.0}
    for mode in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
]

# Options with which a step on videos moves the weights.
STEPS = [
    {"num_generations": 2, "num_generations_eval": 2, "steps_per_generation": 2, "num_iterations": 2, "max_steps": 3},
    {"generation_batch_size": 8, "shuffle_dataset": False, "pad_to_multiple_of": 16, "max_completion_length": 40},
    {
        "temperature": 0.8, "top_p": 0.9, "top_k": 50, "min_p": 0.001, "repetition_penalty": 1.05,
        "generation_kwargs": {"typical_p": 0.99},
    },
    {
        "beta": 0.1, "use_bias_correction_kl": False, "sync_ref_model": True, "ref_model_sync_steps": 1,
        "ref_model_mixup_alpha": 0.5, "model_init_kwargs": {"dtype": "float32"}, "disable_dropout": True,
    },
    {
        "use_adaptive_entropy": True, "entropy_coef": 0.01, "entropy_coef_min": 0.0, "entropy_coef_max": 0.5,
        "entropy_coef_delta": 0.01, "entropy_target": 100.0, "max_steps": 2,
    },
    {
        "log_completions": True, "log_unique_prompts": True, "num_completions_to_print": 1, "log_multimodal": False,
        "reward_weights": [0.5],
    },
]  # fmt: skip

REFUSED = [
    ({"importance_sampling_level": "sequence"}, "`importance_sampling_level` must be 'token' unless `anchor_weight`"),
    ({"top_entropy_quantile": 0.2}, "`top_entropy_quantile` must be 1.0 unless `anchor_weight` is 0, got 0.2"),
    ({"off_policy_mask_threshold": 0.1}, "`off_policy_mask_threshold` must be None unless `anchor_weight` is 0"),
    ({"cache_implementation": "static"}, "`cache_implementation` must be None in rollouts, got 'static'"),
    ({"cache_implementation": "dynamic"}, "`cache_implementation` must be None in rollouts"),
    ({"max_tool_calling_iterations": 2}, "`max_tool_calling_iterations` must be None in rollouts.*`max_turns`"),
    ({"vllm_structured_outputs_regex": "a+"}, "`vllm_structured_outputs_regex` must be None in rollouts"),
    ({"use_transformers_continuous_batching": True}, "does not support multimodal models"),
    ({"generation_kwargs": {"num_beams": 2}}, r"`generation_kwargs` must not have \['num_beams'\]"),
    ({"generation_kwargs": {"max_new_tokens": 8}}, r"\['max_new_tokens'\]: lengths are `max_turn_length`"),
    ({"generation_kwargs": {"seed": 3}}, r"must not have \['seed'\].*the seed is `seed`"),
    (
        {"generation_kwargs": {"guidance_scale": 2.0}},
        r"must not have \['guidance_scale'\].*Legal with transformers are",
    ),
    ({"generation_kwargs": {"temprature": 0.5}}, r"must not have \['temprature'\]"),
    ({"generation_kwargs": {"typical_p": 2.0}}, "`typical_p` has to be a float > 0 and < 1"),
    ({"generation_kwargs": {"top_k": -1}}, "`top_k` must be an integer of at least 0 in rollouts, got -1"),
    ({"temperature": 0.0}, "`temperature` must be above 0 in rollouts, got 0.0"),
    ({"top_p": 0.0}, "`top_p` must be above 0 and at most 1 in rollouts, got 0.0"),
    ({"top_k": -1}, "`top_k` must be an integer of at least 0 in rollouts, got -1"),
    ({"min_p": 1.5}, "`min_p` must be None or between 0 and 1 in rollouts, got 1.5"),
    ({"repetition_penalty": 0.0}, "`repetition_penalty` must be above 0 in rollouts, got 0.0"),
    ({"max_completion_length": None}, "`max_completion_length` must be a positive integer in rollouts, got None"),
    ({"chat_template_kwargs": {"tools": []}}, r"`chat_template_kwargs` must not have \['tools'\]"),
    ({"remove_unused_columns": True}, "`remove_unused_columns` must be False in rollouts"),
    (
        {"reward_weights": [1.0], "tool_weight": 0.5},
        "with `reward_weights`.*`tool_weight` must be 1",
    ),
    ({"format_weight": 0.5}, "`format_weight` 0.5 weighs 'format_reward', which is no reward function here"),
    ({"tool_weight": 0.5}, "`tool_weight` 0.5 weighs 'tool_reward'"),
]

# Neither: they concern what the method does not touch.
IRRELEVANT = {
    "trust_remote_code": "how weights are loaded",
    "ds3_gather_for_generation": "of DeepSpeed's ZeRO-3: the engine asks for it",
    "vllm_model_impl": "how vLLM computes",
    "vllm_server_base_url": "where a server is",
    "vllm_server_host": "where a server is",
    "vllm_server_port": "where a server is",
    "vllm_server_timeout": "how long a server is waited for",
    "vllm_group_port": "where weights are sent",
    "vllm_tensor_parallel_size": "how vLLM computes; `ranks.py` runs an engine in two parts",
    "log_completions_hub_repo": "a place for the log",
    "transformers_continuous_batching_config": "of an option that is refused",
    "use_transformers_paged": "an old name of `use_transformers_continuous_batching`",
    "vllm_importance_sampling_cap": "an old name of `vllm_importance_sampling_clip_max`",
}

# What other tests show.
ELSEWHERE = {
    "use_vllm": "test_vllm.py",
    "vllm_mode": "test_vllm.py",
    "vllm_enable_sleep_mode": "test_vllm.py",
    "vllm_gpu_memory_utilization": "test_vllm.py",
    "vllm_max_model_length": "test_vllm.py",
    "chat_template_kwargs": "test_chat.py",
    "router_aux_loss_coef": "test_trainer.py",
}


class TestTable:
    def test_every_option_is_in_it_and_no_other(self):
        added = {one.name for one in fields(GRPOConfig)} - {one.name for one in fields(TrainingArguments)}
        shown = {name for knobs in [*LOSSES, *RATIOS, *STEPS] for name in knobs} - {"max_steps"}
        refused = {name for knobs, _ in REFUSED for name in knobs}
        refused -= {"format_weight", "tool_weight", "remove_unused_columns"}
        assert added == shown | refused | IRRELEVANT.keys() | ELSEWHERE.keys()
        assert not IRRELEVANT.keys() & (shown | refused | ELSEWHERE.keys())

    def test_what_is_shown_elsewhere(self):
        for option, name in ELSEWHERE.items():
            with open(os.path.join(HERE, name)) as file:
                assert option in file.read(), option


class TestWorks:
    @pytest.mark.parametrize("knobs", [*LOSSES, *RATIOS], ids=str)
    def test_the_anchor_stays_on_its_tokens(self, tmp_path, text_checkpoint, knobs, monkeypatch):
        """Equal rewards: the gradient is the anchor's alone, nonzero where there is a credit and of its sign."""
        equal = lambda completions, **columns: [1.0] * len(completions)  # noqa: E731
        trainer = ParaGRPOTrainer(
            text_checkpoint, equal, config(tmp_path, **knobs), train_dataset=Dataset.from_list(rows_with_errors([0])),
            rollout_func=fixed_rollouts,
        )  # fmt: skip
        trainer.current_gradient_accumulation_steps = 1
        batch = trainer._generate_and_score_completions(rows_with_errors([0] * 4))
        leaf = torch.zeros(batch["completion_ids"].shape, requires_grad=True)
        monkeypatch.setattr(
            trainer, "_get_per_token_logps_and_entropies", lambda *a, **k: (leaf, torch.zeros_like(leaf), None)
        )
        if knobs in RATIOS:  # as it is with vLLM: a ratio per token, or per rollout
            trainer.use_vllm = True
            width = leaf.shape[1] if "token" in knobs["vllm_importance_sampling_mode"] else 1
            batch["importance_sampling_ratio"] = torch.full((4, width), 0.9)
        trainer._compute_loss(trainer.model, batch).backward()
        credit = torch.zeros_like(leaf)
        for b, values in enumerate(trainer._credit(trainer._rollouts)):
            credit[b, : len(values)] = torch.tensor(values)
        assert (credit > 0).any() and (credit < 0).any()
        assert torch.equal(leaf.grad.sign(), -credit.sign())

    @pytest.mark.parametrize("knobs", STEPS, ids=lambda knobs: next(iter(knobs)))
    def test_a_step_moves_the_weights(self, tmp_path, toy_checkpoint, toy_rows, knobs):
        args = config(tmp_path, **{"frame_budgets": [4], **knobs})
        args.model_init_kwargs = knobs.get("model_init_kwargs")
        trainer = ParaGRPOTrainer(toy_checkpoint, spread, args, train_dataset=Dataset.from_list(toy_rows))
        trainer.train()
        (loss, *_) = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        before = dict(Qwen3VLForConditionalGeneration.from_pretrained(toy_checkpoint).named_parameters())
        assert math.isfinite(loss)
        assert any(not torch.equal(p, before[name]) for name, p in trainer.model.named_parameters())

    def test_weights_of_the_rewards_of_the_method(self, tmp_path, toy_checkpoint, toy_rows):
        """Wherever they stand, and whatever they are called."""

        def mine(completions, **columns):
            return [0.0] * len(completions)

        rewards = [tool_reward, mine, format_reward, accuracy_reward]
        args = config(tmp_path, format_weight=0.25, tool_weight=0.5)
        trainer = ParaGRPOTrainer(toy_checkpoint, rewards, args, train_dataset=Dataset.from_list(toy_rows))
        assert trainer.reward_weights.tolist() == [0.5, 1.0, 0.25, 1.0]


class TestRefused:
    @pytest.mark.parametrize(("knobs", "message"), REFUSED, ids=lambda value: str(value)[:40])
    def test_at_construction_by_name(self, tmp_path, toy_checkpoint, toy_rows, knobs, message):
        with pytest.raises(ValueError, match=message):
            ParaGRPOTrainer(
                toy_checkpoint, spread, config(tmp_path, **knobs), train_dataset=Dataset.from_list(toy_rows)
            )

    @pytest.mark.parametrize(
        "knobs",
        [{"importance_sampling_level": "sequence"}, {"top_entropy_quantile": 0.5}, {"off_policy_mask_threshold": 0.1}],
        ids=str,
    )
    def test_without_the_anchor_they_are_trls_own(self, tmp_path, knobs):
        assert config(tmp_path, anchor_weight=0.0, **knobs)

    def test_other_peoples_rollouts_have_what_ours_refuse(self, tmp_path, text_checkpoint):
        args = config(tmp_path, cache_implementation="static", generation_kwargs={"num_beams": 1})
        rows = Dataset.from_list(rows_with_errors([0]))
        assert ParaGRPOTrainer(text_checkpoint, spread, args, train_dataset=rows, rollout_func=fixed_rollouts)

    def test_the_stock_trainer_says_so_before_it_plays(self, tmp_path, toy_checkpoint, toy_processor, toy_rows):
        args = config(tmp_path, GRPOConfig, cache_implementation="static")
        trainer = GRPOTrainer(
            toy_checkpoint, spread, args, train_dataset=Dataset.from_list(toy_rows), rollout_func=ParallelRollout(),
        )  # fmt: skip
        trainer.data_collator = FrameBudgetCollator(toy_processor, [4], max_pixels=1024)
        with pytest.raises(ValueError, match="`cache_implementation` must be None in rollouts, got 'static'"):
            trainer.train()

    def test_a_rollout_that_says_something_else(self, tmp_path, toy_checkpoint, toy_rows):
        with pytest.raises(ValueError, match="`max_turns` is 2 in the rollout and 1 in `args`"):
            ParaGRPOTrainer(
                toy_checkpoint, spread, config(tmp_path), train_dataset=Dataset.from_list(toy_rows),
                rollout_func=ParallelRollout(**{**LOOP, "max_turns": 2}),
            )  # fmt: skip
        trainer = ParaGRPOTrainer(
            toy_checkpoint, spread, config(tmp_path), train_dataset=Dataset.from_list(toy_rows),
            rollout_func=ParallelRollout(**LOOP),
        )  # fmt: skip
        assert isinstance(trainer.data_collator, FrameBudgetCollator) and trainer.settings.max_turns == 1

    def test_models_and_processors(self, tmp_path, toy_processor, text_checkpoint, toy_rows):
        rows = Dataset.from_list(toy_rows)
        with pytest.raises(ValueError, match="need a processor with pictures, got .*Tokenizer.*`rollout_func`"):
            ParaGRPOTrainer(text_checkpoint, spread, config(tmp_path), train_dataset=rows)
        model, processor = others.smolvlm(toy_processor.tokenizer)
        with pytest.raises(ValueError, match="SmolVLMImageProcessor has no merge_size and no patch_size"):
            ParaGRPOTrainer(model, spread, config(tmp_path), train_dataset=rows, processing_class=processor)

    def test_caches_that_forget(self, tmp_path, toy_checkpoint, toy_rows):
        model = Qwen3VLForConditionalGeneration.from_pretrained(toy_checkpoint)
        model.config.text_config.layer_types = ["full_attention", "sliding_attention"]
        model.config.text_config.sliding_window = 16
        with pytest.raises(ValueError, match="cannot be cropped .DynamicSlidingWindowLayer.: set `use_vllm` to true"):
            ParaGRPOTrainer(
                model, spread, config(tmp_path), train_dataset=Dataset.from_list(toy_rows),
                processing_class=AutoProcessor.from_pretrained(toy_checkpoint),
            )  # fmt: skip

    def test_sizes_that_undo_max_pixels_are_set_right(self, tmp_path, toy_checkpoint, toy_rows):
        processor = AutoProcessor.from_pretrained(toy_checkpoint)
        processor.image_processor.size = type(processor.image_processor.size)(
            shortest_edge=64 * 64, longest_edge=10**6
        )
        trainer = ParaGRPOTrainer(
            toy_checkpoint, spread, config(tmp_path, max_pixels=2048), train_dataset=Dataset.from_list(toy_rows),
            processing_class=processor,
        )  # fmt: skip
        size = trainer.processing_class.image_processor.size
        assert (size["shortest_edge"], size["longest_edge"]) == (1024, 2048)


def test_templates_are_checked_at_construction(tmp_path, toy_checkpoint, toy_rows):
    processor = AutoProcessor.from_pretrained(toy_checkpoint)
    start = "'<|im_start|>assistant\\n' }}"
    assert start in processor.chat_template
    processor.chat_template = processor.chat_template.replace(start, start.replace("\\n", "\\n<think>\\n"))
    with pytest.raises(ValueError, match="set `think_prefix` to false"):
        ParaGRPOTrainer(
            toy_checkpoint, spread, config(tmp_path), train_dataset=Dataset.from_list(toy_rows),
            processing_class=processor,
        )  # fmt: skip
