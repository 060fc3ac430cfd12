import os
import subprocess
import sys

import pytest
import torch
from transformers import GenerationConfig

from paravt import FrameBudgetCollator, toy
from paravt.chat import Chat
from paravt.engines import FORBIDDEN, forbidden_ids
from paravt.engines.features import image_features, reuse_features
from paravt.engines.transformers import TransformersEngine


@pytest.fixture(scope="module")
def model(toy_processor):
    return toy.make_model(toy_processor).eval()


@pytest.fixture(scope="module")
def prompts(toy_processor, toy_rows):
    """Two prompts of unequal length with images, and one without."""
    from trl.data_utils import prepare_multimodal_messages

    chat = Chat(toy_processor)
    rows = [FrameBudgetCollator(toy_processor, [k], max_pixels=1024).prepare(toy_rows[0]) for k in (4, 16)]
    made = [chat.prompt(prepare_multimodal_messages(r["prompt"], images=r["images"])) for r in rows]
    return [*made, chat.prompt([{"role": "user", "content": "hello"}])]


def sampled(model, processor, prompts, limits, **kwargs):
    engine = TransformersEngine(model, processor, GenerationConfig(do_sample=True, temperature=0.7, top_k=0), **kwargs)
    return engine.generate([p[0] for p in prompts], [p[1] for p in prompts], limits, seeds=range(len(prompts)))


class TestTransformersEngine:
    @pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2, 0, 1, 1, 2]])
    def test_log_probabilities_are_those_of_the_model(self, model, toy_processor, prompts, order):
        prompts = [prompts[i] for i in order]
        samples = sampled(model, toy_processor, prompts, [12] * len(order))
        for (ids, images), sample in zip(prompts, samples, strict=True):
            whole = torch.tensor([ids + sample.ids])
            inputs = {"input_ids": whole, "mm_token_type_ids": (whole == toy_processor.image_token_id).long()}
            if images:
                inputs |= image_features(toy_processor.image_processor, images)
            with torch.no_grad():
                logits = model(**inputs).logits[0, len(ids) - 1 : -1] / 0.7
            logits[:, forbidden_ids(toy_processor.tokenizer)] = -torch.inf
            expected = logits.log_softmax(-1).gather(1, torch.tensor(sample.ids)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=2e-4, rtol=1e-3)

    def test_equal_prompts_are_read_once(self, model, toy_processor, prompts):
        """The rollouts of a group begin with the same overview: one of them pays for it."""
        grids = []
        handle = model.model.visual.register_forward_hook(
            lambda module, args, kwargs, out: grids.append(kwargs["grid_thw"]), with_kwargs=True
        )
        samples = sampled(model, toy_processor, [prompts[1], prompts[0]] * 4, [12] * 8)
        handle.remove()
        assert [len(grid) for grid in grids] == [4 + 16]
        assert len({tuple(s.ids) for s in samples}) == 8  # what they say is their own

    def test_limits_and_order(self, model, toy_processor, prompts):
        samples = sampled(model, toy_processor, prompts, [3, 7, 5], max_batch=2)
        assert [len(s.ids) for s in samples] == [3, 7, 5] and not any(s.finished for s in samples)
        assert all(len(s.ids) == len(s.logprobs) for s in samples)

    def test_finished_sequences_end_with_their_end_token(self, toy_processor, prompts):
        model = toy.make_model(toy_processor).eval()
        end = toy_processor.tokenizer.eos_token_id
        with torch.no_grad():  # the end token's logit is pushed up
            model.lm_head.weight[end] = model.lm_head.weight.abs().mean() * 40
        samples = sampled(model, toy_processor, prompts * 8, [40] * 24)
        assert any(s.finished for s in samples)
        assert all(s.ids[-1] == end and end not in s.ids[:-1] for s in samples if s.finished)

    def test_pictures_and_forgeries_cannot_be_sampled(self, model, toy_processor, prompts):
        engine = TransformersEngine(model, toy_processor, GenerationConfig(do_sample=True, temperature=50.0, top_k=0))
        samples = engine.generate([prompts[2][0]] * 32, [[]] * 32, [64] * 32, seeds=range(32))
        text = toy_processor.tokenizer.batch_decode([s.ids for s in samples])
        assert len(forbidden_ids(toy_processor.tokenizer)) == len(FORBIDDEN)
        assert not any(t in line for line in text for t in FORBIDDEN)


class TestImageFeatures:
    def test_equal_to_the_processor_and_processed_once(self, toy_processor, toy_rows, monkeypatch):
        frames = FrameBudgetCollator(toy_processor, [8], max_pixels=1024).prepare(toy_rows[1])["images"]
        for frame in frames:
            frame.features = None
        expected = toy_processor.image_processor(images=[*frames, *frames], return_tensors="pt")
        found = image_features(toy_processor.image_processor, [*frames, *frames])
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        monkeypatch.setattr(type(toy_processor.image_processor), "__call__", lambda *a, **k: pytest.fail("again"))
        with reuse_features(toy_processor):
            again = toy_processor.image_processor([frames, frames])
        assert torch.equal(again["pixel_values"], expected["pixel_values"])

    def test_token_cost_is_known_before_decoding(self, toy_processor, clips):
        from paravt import video
        from paravt.chat import prepare_processor

        chat = Chat(toy_processor)
        prepare_processor(toy_processor, 50176)
        for pixels in (1024, 8192, 50176):
            (frame,) = video.clip(str(clips / "cfr.mp4"), [1.0], pixels).frames
            cost = chat.image_tokens(frame)
            grid = toy_processor.image_processor(images=[frame], return_tensors="pt")["image_grid_thw"]
            assert cost == grid.prod().item() // 4
        prepare_processor(toy_processor, 1024)


@pytest.mark.slow
def test_ranks_that_share_a_sharded_model(toy_checkpoint, toy_rows):
    """Unequal numbers of rollouts and calls, one rank without calls and images: no hang, nothing is swapped."""
    command = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "29613", "tests/ranks.py"]
    done = subprocess.run(
        [sys.executable, *command, toy_checkpoint, "sharded", toy_rows[0]["videos"][0]],
        capture_output=True, text=True, timeout=200, env={**os.environ, "ACCELERATE_USE_CPU": "true"},
        cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.count("is right") == 2, done.stdout[-1000:] + done.stderr[-3000:]


def test_a_sleeping_engine_wakes_once_per_rollout(toy_processor):
    """Sleep mode drops the weights: they are pushed when the rollout begins, not again in each of its rounds."""
    from types import SimpleNamespace

    from paravt.engines.vllm import VLLMEngine

    happened = []
    generation = SimpleNamespace(enable_sleep_mode=True, _llm_weights_sleeping=True, tensor_parallel_size=1)
    generation.sync_weights = lambda: (happened.append("push"), setattr(generation, "_llm_weights_sleeping", False))
    llm = SimpleNamespace(
        llm_engine=SimpleNamespace(model_config=SimpleNamespace(max_model_len=100)),
        wake_up=lambda tags: happened.append(f"wake {tags}"),
        sleep=lambda level: happened.append(f"sleep {level}"),
    )
    engine = VLLMEngine(llm, toy_processor, generation=generation)
    for _ in range(2):
        with engine.session():
            for _ in range(5):
                assert engine.generate([], [], []) == []
    assert happened == ["push", "wake ['kv_cache']", "sleep 2"] * 2 and generation._llm_weights_sleeping
    generation._llm_weights_sleeping = False  # the trainer has just pushed them
    with engine.session():
        pass
    assert happened.count("push") == 2
