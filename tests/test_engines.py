import pytest
import torch
from conftest import RANKS, two_ranks
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
    from trl import prepare_multimodal_messages

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


def engine_with(model, processor, **settings):
    return TransformersEngine(model, processor, GenerationConfig(do_sample=True, **settings))


class TestSampling:
    @pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1, 0, 1, 2, 2], [1] * 5])
    def test_a_sample_does_not_depend_on_who_shares_its_batch(self, model, toy_processor, prompts, order):
        engine = engine_with(model, toy_processor, temperature=1.0)
        seeds = [100 + i for i in range(len(order))]
        made = [prompts[i] for i in order]
        together = engine.generate([p[0] for p in made], [p[1] for p in made], [20] * len(made), seeds=seeds)
        again = engine.generate([p[0] for p in made], [p[1] for p in made], [20] * len(made), seeds=seeds)
        assert together == again  # to the bit
        for (ids, images), seed, sample in zip(made, seeds, together, strict=True):
            (alone,) = engine.generate([ids], [images], [20], seeds=[seed])
            assert alone.ids == sample.ids
            assert alone.logprobs == pytest.approx(sample.logprobs, abs=1e-4)

    def test_seeds_differ_from_the_first_token(self, model, toy_processor, prompts):
        ids, images = prompts[2]
        engine = engine_with(model, toy_processor, temperature=50.0)  # nearly uniform
        first = [s.ids[0] for s in engine.generate([ids] * 16, [images] * 16, [1] * 16, seeds=range(16))]
        assert len(set(first)) >= 14

    @pytest.mark.parametrize(
        "settings", [{}, {"temperature": 0.5}, {"top_k": 4}, {"top_p": 0.3}, {"min_p": 0.2}, {"top_k": 1}]
    )
    def test_samples_have_the_distribution_that_the_settings_say(self, model, toy_processor, prompts, settings):
        from transformers import LogitsProcessorList, MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

        ids, count = prompts[2][0], 1500
        engine = TransformersEngine(
            model, toy_processor, GenerationConfig(do_sample=True, **{"temperature": 0.3, **settings}), max_batch=count
        )
        samples = engine.generate([ids] * count, [[]] * count, [1] * count, seeds=range(count))
        with torch.no_grad():
            scores = model(input_ids=torch.tensor([ids])).logits[:, -1] / settings.get("temperature", 0.3)
        scores[:, forbidden_ids(toy_processor.tokenizer)] = -torch.inf
        kinds = {"top_k": TopKLogitsWarper, "top_p": TopPLogitsWarper, "min_p": MinPLogitsWarper}
        warpers = LogitsProcessorList(kinds[name](value) for name, value in settings.items() if name in kinds)
        expected = warpers(None, scores).softmax(-1)[0]
        found = torch.bincount(torch.tensor([s.ids[0] for s in samples]), minlength=len(expected)) / count
        assert (found[expected == 0] == 0).all()
        deviation = (expected * (1 - expected) / count).sqrt().clamp(min=1 / count)
        assert ((found - expected).abs() < 5 * deviation).all()
        # The recorded probability is that of the policy: at its temperature, and before anything was cut off.
        whole = scores.log_softmax(-1)[0]
        assert [s.logprobs[0] for s in samples] == pytest.approx([whole[s.ids[0]].item() for s in samples], abs=1e-4)

    def test_sampling_without_seeds_is_refused(self, model, toy_processor, prompts):
        engine = engine_with(model, toy_processor)
        for seeds in (None, [1]):
            with pytest.raises(ValueError, match="2 prompts are sampled and need a seed each"):
                engine.generate([prompts[2][0]] * 2, [[]] * 2, [4] * 2, seeds=seeds)
        assert engine.greedy().generate([prompts[2][0]], [[]], [4])

    def test_the_generators_of_the_process_are_left_alone(self, model, toy_processor, prompts):
        before = torch.get_rng_state()
        engine_with(model, toy_processor).generate([prompts[0][0]], [prompts[0][1]], [8], seeds=[1])
        assert torch.equal(before, torch.get_rng_state())


class TestSettingsOfACheckpoint:
    FRIENDS = {
        "repetition_penalty": 3.0,
        "no_repeat_ngram_size": 1,
        "min_new_tokens": 12,
        "bad_words_ids": [[40], [41]],
        "min_p": 0.9,
        "top_k": 1,
        "typical_p": 0.1,
        "suppress_tokens": list(range(30, 400)),
    }

    @pytest.mark.parametrize("adapter", [False, True])
    @pytest.mark.parametrize("sampling", [False, True])
    def test_they_do_not_reach_a_rollout(self, toy_processor, prompts, adapter, sampling):
        def samples(**settings):
            model = toy.make_model(toy_processor).eval()
            model.generation_config.update(**settings)
            if adapter:
                from peft import LoraConfig, get_peft_model

                model = get_peft_model(model, LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM"))
            config = GenerationConfig(do_sample=True) if sampling else None
            engine = TransformersEngine(model, toy_processor, config)
            found = engine.generate([p[0] for p in prompts], [p[1] for p in prompts], [12] * 3, seeds=[1, 2, 3])
            kept = model.generation_config  # of a model that is saved after it
            assert all(getattr(kept, name) == value for name, value in settings.items())
            return found

        assert samples(**self.FRIENDS) == samples()

    def test_its_other_end_tokens_end_a_turn(self, toy_processor, prompts):
        model = toy.make_model(toy_processor).eval()
        end, other = toy_processor.tokenizer.eos_token_id, toy_processor.tokenizer.pad_token_id
        model.generation_config.eos_token_id = [end, other]
        with torch.no_grad():
            model.lm_head.weight[other] = model.lm_head.weight.abs().mean() * 40
        for engine in (TransformersEngine(model, toy_processor), engine_with(model, toy_processor).greedy()):
            samples = engine.generate([p[0] for p in prompts] * 2, [p[1] for p in prompts] * 2, [40] * 6)
            ended = [s for s in samples if s.finished]
            assert ended and all(s.ids[-1] in (end, other) and other not in s.ids[:-1] for s in samples)


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
def test_ranks_that_share_a_sharded_model(toy_checkpoint, toy_rows, tmp_path):
    """Unequal numbers of rollouts and calls, one rank without calls and images: no hang, nothing is swapped."""
    ranks = two_ranks(tmp_path, RANKS, toy_checkpoint, "sharded", toy_rows[0]["videos"][0])
    assert ranks.code == 0 and all("is right" in text for text in ranks.stdout), str(ranks)


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
    generation.llm = llm
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
