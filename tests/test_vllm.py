"""The rollout on the real vLLM engine, its CPU build. `.ci/run` runs these in an environment of their own."""

import os
import re
import subprocess
import sys
import time
import urllib.request

import pytest
import torch
from conftest import RANKS, free_port, two_ranks
from datasets import Dataset
from transformers import AutoProcessor, Qwen3VLForConditionalGeneration
from trl import ModelConfig, prepare_multimodal_messages

from paravt import FrameBudgetCollator, ParaGRPOConfig, ParaGRPOTrainer, ParallelRollout, rollout
from paravt.chat import Chat, prepare_processor
from paravt.engines import FORBIDDEN
from paravt.engines.checkpoints import quantization_config
from paravt.engines.transformers import TransformersEngine
from paravt.engines.trl import connect, sampling_of
from paravt.engines.vllm import VLLMEngine, VLLMServerEngine
from paravt.evaluation import measure_trainer
from paravt.parser import ToolCall
from paravt.rewards import accuracy_reward, format_reward


vllm = pytest.importorskip("vllm", reason="THE VLLM TESTS ARE SKIPPED: vLLM is not installed here")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]

OPTIONS = {"max_model_len": 2048, "dtype": "float32", "enforce_eager": True, "logprobs_mode": "processed_logprobs"}


@pytest.fixture(scope="module", autouse=True)
def small_cache():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        yield


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, toy_processor, toy_checkpoint):
    """The tiny model with the image sizes of a stock checkpoint: what the engine loads would resize every frame."""
    folder = str(tmp_path_factory.mktemp("stock"))
    Qwen3VLForConditionalGeneration.from_pretrained(toy_checkpoint).save_pretrained(folder)
    processor = AutoProcessor.from_pretrained(toy_checkpoint)
    size = processor.image_processor.size
    processor.image_processor.size = type(size)(shortest_edge=65536, longest_edge=16777216)
    processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def processor(checkpoint):
    return prepare_processor(AutoProcessor.from_pretrained(checkpoint), 1024)


@pytest.fixture(scope="module")
def llm(checkpoint):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        return vllm.LLM(model=checkpoint, **OPTIONS)


@pytest.fixture(scope="module")
def prompts(processor, toy_rows):
    chat = Chat(processor)
    rows = FrameBudgetCollator(processor, [4, 16], max_pixels=1024)(toy_rows[:5])
    made = [chat.prompt(prepare_multimodal_messages(r["prompt"], images=r["images"])) for r in rows]
    return [*made, chat.prompt([{"role": "user", "content": "hello"}])]


def generate(engine, prompts, limits, seeds=None):
    return engine.generate([p[0] for p in prompts], [p[1] for p in prompts], limits, seeds=seeds)


def reference(checkpoint, processor):
    return TransformersEngine(Qwen3VLForConditionalGeneration.from_pretrained(checkpoint).eval(), processor)


class TestVLLMEngine:
    def test_equal_to_transformers(self, llm, checkpoint, processor, prompts):
        limits, heard = [12, 7, 12, 5, 12, 9], {}
        engine = VLLMEngine(llm, processor)
        found = engine.generate([p[0] for p in prompts], [p[1] for p in prompts], limits, heard.__setitem__)
        expected = generate(reference(checkpoint, processor), prompts, limits)
        for mine, theirs, limit in zip(found, expected, limits, strict=True):
            assert mine.ids == theirs.ids and mine.finished == theirs.finished and len(mine.ids) <= limit
            assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-3)
        assert [heard[i] for i in range(len(prompts))] == found

    def test_unequal_prompts_are_named(self, llm, processor, prompts):
        ids, images = prompts[0]
        at = ids.index(processor.image_token_id)
        with pytest.raises(RuntimeError, match="prompt 1 has .* in the engine and .* in training"):
            wrong = (ids[:at] + [processor.image_token_id] + ids[at:], images)
            generate(VLLMEngine(llm, processor), [prompts[0], wrong], [40, 4])
        assert not llm.llm_engine.has_unfinished_requests()

    def test_pictures_and_forgeries_cannot_be_sampled(self, llm, processor, prompts):
        engine = VLLMEngine(llm, processor, {"temperature": 2.0})
        samples = generate(engine, [prompts[-1]] * 32, [64] * 32, range(32))
        text = processor.tokenizer.batch_decode([s.ids for s in samples])
        assert not any(token in line for line in text for token in FORBIDDEN)

    def test_a_sample_is_its_seeds_and_does_not_depend_on_who_shares_its_batch(self, llm, processor, prompts):
        engine = VLLMEngine(llm, processor, {"temperature": 1.0})
        limits, before = [16] * len(prompts), torch.get_rng_state()
        together = generate(engine, prompts, limits, range(len(prompts)))
        assert generate(engine, prompts, limits, range(len(prompts))) == together  # to the bit
        for i, (ids, images) in enumerate(prompts):
            (alone,) = engine.generate([ids], [images], [16], seeds=[i])
            assert alone.ids == together[i].ids
        other = generate(engine, prompts, limits, range(100, 100 + len(prompts)))
        assert all(a.ids != b.ids for a, b in zip(together, other, strict=True))
        assert torch.equal(before, torch.get_rng_state())
        with pytest.raises(ValueError, match="need a seed each"):
            generate(engine, prompts, limits)

    def test_greedy_drops_what_sampling_had(self, llm, processor, prompts):
        limits = [12] * len(prompts)
        engine = VLLMEngine(llm, processor, {"temperature": 1.0, "repetition_penalty": 3.0, "top_p": 0.5}).greedy()
        assert generate(engine, prompts, limits) == generate(VLLMEngine(llm, processor), prompts, limits)

    def test_limits_are_checked_with_the_setting_to_change(self, llm, processor):
        engine = VLLMEngine(llm, processor)
        engine.check(64, 1, 1024)
        with pytest.raises(ValueError, match="raise `vllm_max_model_length`"):
            engine.check(64, 49, 1024)
        with pytest.raises(ValueError, match="limit_mm_per_prompt"):
            engine.check(10_000, 1, 1)

    def test_evaluation(self, llm, checkpoint, processor, toy_rows):
        from paravt.evaluation import play

        collator = FrameBudgetCollator(processor, [8], max_pixels=1024)
        episodes = ParallelRollout(max_turn_length=24, max_pixels=1024)
        played = [
            play(episodes, engine, collator, toy_rows[:4], 200)
            for engine in (VLLMEngine(llm, processor), reference(checkpoint, processor))
        ]
        assert [r["turns"] for r in played[0]] == [r["turns"] for r in played[1]]

    def test_a_checkpoint_with_an_adapter(self, checkpoint, processor, toy_rows, tmp_path):
        from peft import LoraConfig, get_peft_model

        from paravt.engines import load_engine
        from paravt.evaluation import play

        policy = Qwen3VLForConditionalGeneration.from_pretrained(checkpoint)
        config = LoraConfig(r=8, lora_alpha=32, target_modules="all-linear", init_lora_weights=False)
        get_peft_model(policy, config).save_pretrained(tmp_path)
        collator = FrameBudgetCollator(processor, [8], max_pixels=1024)
        episodes = ParallelRollout(max_turn_length=24, max_pixels=1024)
        played = []
        for kind in ("transformers", "vllm"):
            engine = load_engine(str(tmp_path), engine=kind, dtype="float32", max_pixels=1024, max_length=2048)
            played.append(play(episodes, engine, collator, toy_rows[:4], 200))
        assert [r["turns"] for r in played[0]] == [r["turns"] for r in played[1]]


class Eager(vllm.LLM):
    def __init__(self, **kwargs):
        super().__init__(**{**kwargs, "enforce_eager": True, "dtype": "float32"})


def spread(completions, completion_ids, **columns):
    """A reward that differs within a group, so that gradients are not zero."""
    return [float(sum(ids) % 7) for ids in completion_ids]


def two_calls(text, *, complete=True):
    """In place of the parser: an untrained model calls nothing, so every turn is read as two calls."""
    windows = [{"start_time": 0.0, "end_time": 8.0}, {"start_time": 8.0, "end_time": 24.0}]
    return [ToolCall("crop_video", arguments) for arguments in windows]


class Sleeper(vllm.LLM):
    """Sleep mode needs a GPU: here sleep drops the weights, as its second level does, and keeps the memory."""

    def __init__(self, *, enable_sleep_mode=False, **kwargs):
        super().__init__(**{**kwargs, "enforce_eager": True})
        self.happened = []

    def sleep(self, level):
        self.happened.append("sleep")
        for param in self.llm_engine.model_executor.driver_worker.model_runner.model.parameters():
            param.data.zero_()

    def wake_up(self, tags):
        self.happened += tags


class TestColocate:
    @pytest.mark.parametrize("kind", ["plain", "4 bits", "sleep"])
    def test_training_with_lora_tools_and_sub_agents(
        self, checkpoint, processor, toy_rows, tmp_path, monkeypatch, kind
    ):
        from peft import LoraConfig
        from trl.generation.vllm_generation import VLLMGeneration

        quantization = None
        if kind == "4 bits":
            pytest.importorskip("bitsandbytes")
            quantization = quantization_config(ModelConfig(load_in_4bit=True, dtype="float32"))
        monkeypatch.setattr("trl.generation.vllm_generation.LLM", Sleeper)
        monkeypatch.setattr(rollout, "parse_tool_calls", two_calls)
        pushes, push = [], VLLMGeneration.sync_weights
        monkeypatch.setattr(VLLMGeneration, "sync_weights", lambda self: (pushes.append(1), push(self)))
        args = ParaGRPOConfig(
            str(tmp_path), use_vllm=True, vllm_mode="colocate", vllm_max_model_length=2048, max_steps=3,
            vllm_gpu_memory_utilization=0.3, per_device_train_batch_size=4, num_generations=4, frame_budgets=[4, 8],
            max_completion_length=400, max_turns=1, max_turn_length=24, max_report_length=16, max_pixels=1024,
            learning_rate=1e-2, bf16=False, use_cpu=True, report_to="none", gradient_checkpointing=False,
            logging_steps=1, save_strategy="no", model_init_kwargs={"dtype": "float32"},
            vllm_enable_sleep_mode=kind == "sleep",
        )  # fmt: skip
        trainer = ParaGRPOTrainer(
            checkpoint, [accuracy_reward, format_reward], args, train_dataset=Dataset.from_list(toy_rows),
            processing_class=processor, quantization_config=quantization,
            peft_config=LoraConfig(r=8, lora_alpha=64, target_modules="all-linear", init_lora_weights=False),
        )  # fmt: skip
        quantised = [name for name, p in trainer.model.named_parameters() if type(p).__name__ == "Params4bit"]
        assert bool(quantised) == (kind == "4 bits") and not any("visual" in name for name in quantised)
        before = {name: param.detach().clone() for name, param in trainer.model.named_parameters()}
        measured = measure_trainer(trainer, toy_rows[:2], [4])  # before the first step there are weights to push too
        assert measured[4]["calls_per_rollout"] == 4.0
        trainer.train()
        log = [entry for entry in trainer.state.log_history if "reward" in entry]
        assert len(log) == 3 and len(pushes) == 4  # once a step, whatever the number of rounds
        if kind == "sleep":  # asleep from the start; awake for the weights, then for a rollout
            assert trainer.vllm_generation.llm.happened == ["sleep", *["weights", "kv_cache", "sleep"] * 4]
        assert all(entry["tools/calls_per_rollout"] == 4.0 for entry in log)  # two served, two in the last turn
        assert all(entry["tools/failure_rate"] == 0.5 for entry in log)
        for entry in log:
            assert entry["sampling/sampling_logp_difference/mean"] < 0.02, entry
            assert entry["sampling/truncated_share"] <= 0.01
        for name, param in trainer.model.named_parameters():
            if "lora_" in name:
                assert not torch.equal(param, before[name]), name
            else:
                assert torch.equal(param, before[name]), name

    def colocated(self, checkpoint, processor, rows, folder, **settings):
        args = ParaGRPOConfig(
            str(folder), use_vllm=True, vllm_mode="colocate", vllm_max_model_length=2048, max_steps=3,
            vllm_gpu_memory_utilization=0.3, per_device_train_batch_size=4, num_generations=4, frame_budgets=[4, 8],
            max_completion_length=100, max_turns=1, max_turn_length=16, max_report_length=8, max_pixels=1024,
            learning_rate=1e-3, bf16=False, use_cpu=True, report_to="none", gradient_checkpointing=False,
            logging_steps=1, model_init_kwargs={"dtype": "float32"}, **{"save_strategy": "no", **settings},
        )  # fmt: skip
        return ParaGRPOTrainer(
            checkpoint, [format_reward, spread], args, train_dataset=Dataset.from_list(rows),
            processing_class=processor,
        )  # fmt: skip

    def test_pictures_are_looked_at_again_after_a_push(self, checkpoint, processor, toy_rows, tmp_path, monkeypatch):
        """Frames bear names, by which vLLM keeps what the vision tower makes of them: until its weights change."""
        monkeypatch.setattr("trl.generation.vllm_generation.LLM", Eager)
        trainer = self.colocated(checkpoint, processor, toy_rows, tmp_path)
        rows = FrameBudgetCollator(processor, [8], max_pixels=1024)(toy_rows[:2])
        chat = Chat(processor)
        prompts = [chat.prompt(prepare_multimodal_messages(r["prompt"], images=r["images"])) for r in rows]
        assert all(frame.key for _, images in prompts for frame in images)

        def logprobs(engine):
            return torch.tensor([sample.logprobs for sample in generate(engine, prompts, [8, 8])])

        def pushed():
            trainer.vllm_generation.sync_weights()
            found = logprobs(VLLMEngine.from_trainer(trainer).greedy())
            own = logprobs(TransformersEngine(trainer.model.eval(), processor))
            torch.testing.assert_close(found, own, atol=1e-3, rtol=0)
            return found

        before = pushed()
        with torch.no_grad():
            for name, param in trainer.model.named_parameters():
                if "visual" in name:
                    param.add_(torch.randn(param.shape, generator=torch.Generator().manual_seed(0)) * 0.3)
        assert (pushed() - before).abs().max() > 0.05

    def test_a_run_and_its_resume_are_repeated_to_the_last_digit(
        self, checkpoint, processor, toy_rows, tmp_path, monkeypatch
    ):
        monkeypatch.setattr("trl.generation.vllm_generation.LLM", Eager)

        def log(folder, resume=None, **settings):
            trainer = self.colocated(checkpoint, processor, toy_rows, folder, temperature=1.0, **settings)
            trainer.train(resume_from_checkpoint=resume)
            times = ("step_time", "video/decode_seconds")
            entries = [entry for entry in trainer.state.log_history if "reward" in entry]
            return {e["step"]: {k: v for k, v in e.items() if k not in times} for e in entries}

        whole = log(tmp_path / "one", save_strategy="steps", save_steps=1)
        assert len(whole) == 3 and all(entry["grad_norm"] > 0 for entry in whole.values())
        resumed = log(tmp_path / "two", resume=str(tmp_path / "one" / "checkpoint-1"))
        assert {2, 3} <= set(resumed) and resumed == {step: whole[step] for step in resumed}
        other = log(tmp_path / "three", seed=7)
        assert other[1]["completions/mean_length"] and other[1] != whole[1]

    def test_limits_are_checked_at_start_up(self, llm, processor, monkeypatch):
        from types import SimpleNamespace

        generation = SimpleNamespace(
            llm=llm, repetition_penalty=1.0, temperature=0.7, top_p=1.0, top_k=0, min_p=None, generation_kwargs={}
        )
        trainer = SimpleNamespace(vllm_generation=generation, processing_class=processor)
        assert VLLMEngine.from_trainer(trainer).sampling["temperature"] == 0.7
        assert sampling_of(generation)["min_p"] == 0.0


@pytest.fixture(scope="module")
def server(checkpoint, tmp_path_factory):
    log, port = tmp_path_factory.mktemp("server") / "log", free_port()
    url = f"http://localhost:{port}"
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", checkpoint, "--port", str(port),
        "--max-model-len", "2048", "--dtype", "float32", "--enforce-eager", "--logprobs-mode", "processed_logprobs",
        "--enable-scale-out", "--mm-processor-kwargs", '{"size": {"shortest_edge": 1024, "longest_edge": 16777216}}',
    ]  # fmt: skip
    environment = {**os.environ, "VLLM_SERVER_DEV_MODE": "1"}
    with open(log, "w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
    try:
        while not answers(f"{url}/health"):
            assert process.poll() is None, log.read_text()[-3000:]
            time.sleep(1)
        yield url
    finally:
        process.terminate()
        process.wait()


def answers(url):
    try:
        return urllib.request.urlopen(url, timeout=60).status == 200
    except OSError:
        return False


class TestServer:
    def test_equal_to_transformers(self, server, checkpoint, processor, prompts):
        limits = [12, 7, 12, 5, 12, 9]
        engine = VLLMServerEngine(connect(server), processor)
        assert engine.max_length == 2048
        found = generate(engine, prompts, limits)
        expected = generate(reference(checkpoint, processor), prompts, limits)
        for mine, theirs in zip(found, expected, strict=True):
            assert mine.ids == theirs.ids and mine.finished == theirs.finished
            assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-3)

    def test_a_sample_is_its_seeds_and_does_not_depend_on_who_shares_its_batch(self, server, processor, prompts):
        from paravt.engines.trl import connect

        engine = VLLMServerEngine(connect(server), processor, {"temperature": 1.0})
        seeds, limits = [2**63 - 1 - i for i in range(len(prompts))], [16] * len(prompts)
        together = generate(engine, prompts, limits, seeds)
        for i, prompt in enumerate(prompts):
            assert generate(engine, [prompt], [16], [seeds[i]])[0].ids == together[i].ids
        other = generate(engine, prompts, limits, range(len(prompts)))
        assert all(a.ids != b.ids for a, b in zip(together, other, strict=True))
        with pytest.raises(ValueError, match="need a seed each"):
            generate(engine, prompts, limits)

    def test_a_push_resets_what_is_kept_of_pictures(self, server):
        from types import SimpleNamespace

        from paravt.engines.trl import connect
        from paravt.engines.weights import forget_old_features

        client, pushes, posts = connect(server), [], []
        post = client.session.post
        client.session.post = lambda url, **kwargs: (posts.append(post(url, **kwargs)), posts[-1])[1]
        main, other = (
            SimpleNamespace(
                mode="server", vllm_client=client, accelerator=SimpleNamespace(is_main_process=main),
                sync_weights=lambda: pushes.append(1),
            )
            for main in (True, False)
        )  # fmt: skip
        for generation in (main, other):
            forget_old_features(generation)
            generation.sync_weights()
        assert len(pushes) == 2 and [response.status_code for response in posts] == [200]
        client.base_url += "/elsewhere"  # as of a server without the routes of its development mode
        with pytest.raises(RuntimeError, match="VLLM_SERVER_DEV_MODE=1"):
            main.sync_weights()

    def test_two_ranks(self, server, checkpoint, toy_rows, tmp_path):
        """Ranks ask the server independently: no barrier between rounds, and every completion is the rank's own."""
        play_on_two_ranks(tmp_path, checkpoint, server, toy_rows[0]["videos"][0])


def test_two_ranks_with_a_part_each(checkpoint, toy_rows, tmp_path):
    """Tensor parallelism: unequal numbers of rollouts, calls and images; both ranks draw the same tokens."""
    play_on_two_ranks(tmp_path, checkpoint, "parts", toy_rows[0]["videos"][0])


def play_on_two_ranks(folder, *arguments):
    settings = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    ranks = two_ranks(folder, RANKS, *arguments, **settings)
    assert ranks.code == 0 and all("is right" in text for text in ranks.stdout), str(ranks)


STARTS = """
import os, sys
from paravt.engines import load_engine

if __name__ == "__main__":
    options = {"engine": "vllm", "dtype": "float32", "max_pixels": 1024, "max_length": 512}
    engine = load_engine(sys.argv[1], **options, engine_args={"max_num_seqs": 3, "enforce_eager": True})
    print("sequences", engine.llm.llm_engine.vllm_config.scheduler_config.max_num_seqs)
    del engine, os.environ["VLLM_CPU_KVCACHE_SPACE"]
    for wrong in ({"engine_args": {"gpu_memory_utilization": 1.0}}, {"max_length": 10_000_000}):
        try:
            load_engine(sys.argv[1], **options | wrong)
        except Exception as error:
            print(type(error).__name__, error, flush=True)
"""


@pytest.mark.parametrize("processes", ["0", "1"])
def test_arguments_of_the_engine_and_what_to_lower_when_memory_is_short(checkpoint, tmp_path, processes):
    """In the process that asks, and in one of its own, whose reasons its log has alone."""
    (tmp_path / "start.py").write_text(STARTS)
    done = subprocess.run(
        [sys.executable, tmp_path / "start.py", checkpoint], capture_output=True, text=True, timeout=600,
        env={**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": processes},
    )  # fmt: skip
    assert "sequences 3" in done.stdout, done.stdout[-2000:] + done.stderr[-3000:]
    lower = (
        """RuntimeError vLLM did not start[\\s\\S]*lower it: `--engine_args '{"gpu_memory_utilization": 0\\.\\d+}'`"""
    )
    assert re.search(lower, done.stdout), done.stdout[-2000:] + done.stderr[-3000:]
    other = done.stdout.partition("max_num_seqs`.")[2]  # another fault: in its own words, without advice on memory
    assert "max_model_len" in other and "did not start" not in other, done.stdout[-2000:]
