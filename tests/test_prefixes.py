"""What was read of a conversation is not read again, and what is said is what a model says that reads all of it."""

import gc
import random

import numpy as np
import others
import pytest
import torch
from test_weights import random_lora
from transformers import Cache, GenerationConfig
from transformers.cache_utils import DynamicLayer
from trl import prepare_multimodal_messages

from paravt import FrameBudgetCollator, ParallelRollout, rollout, toy
from paravt.chat import Chat
from paravt.engines import forbidden_ids
from paravt.engines.features import image_features
from paravt.engines.prefixes import GrowingLayer, Prefix, PrefixCache, Segment, can_be_cut, fill
from paravt.engines.transformers import TransformersEngine, _Noise
from paravt.parser import ToolCall


@pytest.fixture(scope="module")
def model(toy_processor):
    return toy.make_model(toy_processor).eval()


@pytest.fixture(scope="module")
def groups(toy_processor, toy_rows):
    """Prompts of two groups with pictures and of one without, of unequal lengths."""
    chat = Chat(toy_processor)
    rows = [FrameBudgetCollator(toy_processor, [k], max_pixels=1024).prepare(toy_rows[k]) for k in (4, 8)]
    made = [chat.prompt(prepare_multimodal_messages(row["prompt"], images=row["images"])) for row in rows]
    return [*made, chat.prompt([{"role": "user", "content": "hello, which colour is it?"}])]


class Reader:
    """Counts what a model reads in prompts, turns and responses: tokens by row, padding too, and pictures."""

    def __init__(self, model):
        self.tokens = self.pictures = 0
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        base.model.language_model.register_forward_pre_hook(self._text, with_kwargs=True)
        base.model.visual.register_forward_pre_hook(self._vision, with_kwargs=True)

    def _text(self, module, args, kwargs):
        batch, length = kwargs["inputs_embeds"].shape[:2]
        self.tokens += batch * length if length > 1 else 0

    def _vision(self, module, args, kwargs):
        self.pictures += len(kwargs["grid_thw"])


def is_right(model, processor, ids, images, sample, seed, temperature):
    """
    Whether a sample is what a model says that reads the whole conversation at once: each token had the highest score,
    or was within 1e-4 of it, and its log-probability is right to 1e-4.
    """
    whole = torch.tensor([ids + sample.ids])
    inputs = {"input_ids": whole, "mm_token_type_ids": (whole == processor.image_token_id).long()}
    if images:
        inputs |= image_features(processor.image_processor, images)
    with torch.no_grad():
        logits = model(**inputs, use_cache=False).logits[0, len(ids) - 1 : -1]
    logits[:, forbidden_ids(processor.tokenizer)] = -torch.inf
    scores, drawn = logits / (temperature or 1.0), torch.tensor(sample.ids)[:, None]
    found = scores.log_softmax(-1).gather(1, drawn)[:, 0]
    if temperature:
        noise = _Noise([seed], "cpu")
        scores = torch.stack([noise(None, row[None])[0] for row in scores])
    best = scores.max(-1).values - scores.gather(1, drawn)[:, 0]
    return best.max() < 1e-4 and (found - torch.tensor(sample.logprobs)).abs().max() < 1e-4


def converse(engine, model, groups, size=3, turns=3, temperature=1.0, length=12, goes_on=lambda turn, row: True):
    """
    Groups talk for some turns, in one session, and what they say is checked. After each turn a few of its tokens may
    be dropped, as after a forgery; responses of unequal lengths follow; sub-agents report in between. Returns the
    number of tokens and of pictures that were read in each turn.
    """
    draw, reader = random.Random(0), Reader(model)
    words = engine.tokenizer("Seconds 0.0 to 8.0: it is red, then blue.")["input_ids"]
    live = [(ids, images, row) for row, (ids, images) in enumerate(g for g in groups for _ in range(size))]
    counts = []
    with engine.session():
        for turn in range(turns):
            prompts, images, rows = map(list, zip(*live, strict=True))
            reader.tokens = reader.pictures = 0
            done = [goes_on(turn, row) for row in rows]
            seeds = [1000 * turn + row for row in rows]
            limits = [length - row % 3 for row in rows]
            samples = engine.generate(prompts, images, limits, lambda i, sample, done=done: done[i], seeds)
            counts.append((reader.tokens, reader.pictures))
            for ids, pictures, sample, seed in zip(prompts, images, samples, seeds, strict=True):
                assert is_right(model, engine.processor, ids, pictures, sample, seed, temperature)
            live = []
            for ids, pictures, row, sample, on in zip(prompts, images, rows, samples, done, strict=True):
                said = sample.ids[: draw.choice([None, -1, -5])]
                response = draw.choices(words, k=draw.randint(5, 40))
                live += [(ids + said + response, pictures, row)] if on else []
            reports = [groups[1]] * 2 + [groups[0]]
            made = engine.generate([g[0] for g in reports], [g[1] for g in reports], [4] * 3, seeds=[1, 2, 3])
            for (ids, pictures), sample, seed in zip(reports, made, (1, 2, 3), strict=True):
                assert is_right(model, engine.processor, ids, pictures, sample, seed, temperature)
    return counts


def engine_of(model, processor, temperature=1.0, **kwargs):
    config = GenerationConfig(do_sample=True, temperature=temperature) if temperature else None
    return TransformersEngine(model, processor, config, **kwargs)


class TestTurns:
    @pytest.mark.parametrize("max_batch", [64, 4, 1])
    @pytest.mark.parametrize("temperature", [None, 1.0, 2.0])
    def test_what_is_said_and_what_is_read(self, model, toy_processor, groups, temperature, max_batch):
        engine = engine_of(model, toy_processor, temperature, max_batch=max_batch)
        first, *later = converse(engine, model, groups, temperature=temperature)
        assert first[1] == sum(len(images) for _, images in groups)  # once for a group, also if it fills many batches
        # Of a turn at most what was dropped and its end, and the responses, padded to the longest of a batch.
        assert all(tokens <= 9 * (6 + 40) and pictures == 0 for tokens, pictures in later)

    def test_a_turn_that_ended_early_leaves_nothing_behind(self, toy_processor, groups):
        model = toy.make_model(toy_processor).eval()
        with torch.no_grad():
            model.lm_head.weight[toy_processor.tokenizer.eos_token_id] *= 3
        engine, ended, generate = engine_of(model, toy_processor), set(), TransformersEngine.generate

        def watched(*arguments, **kwargs):
            samples = generate(engine, *arguments, **kwargs)
            ended.update((sample.finished, len(sample.ids)) for sample in samples)
            return samples

        engine.generate = watched
        converse(engine, model, groups, length=30)
        assert len({length for finished, length in ended if finished}) > 3
        assert any(not finished for finished, _ in ended)

    @pytest.mark.parametrize("limit", [0, 2**19, 2**20, 2**21])
    def test_what_is_above_the_limit_is_read_anew(self, model, toy_processor, groups, limit):
        engine, kept = engine_of(model, toy_processor, cache_limit=limit, max_batch=4), []
        keep = PrefixCache.keep

        def checked(self, prefix, beside):
            keep(self, prefix, beside)
            kept.append(sum(s.nbytes for s in {s for p in self._kept for s in p.segments}))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PrefixCache, "keep", checked)
            counts = converse(engine, model, groups)
        everything = 3 * sum(len(ids) for ids, _ in groups)
        assert (counts[1][0] > everything) == (limit == 0)
        assert max(kept, default=0) <= limit and bool(kept) == (limit > 0)

    def test_an_adapter(self, toy_processor, groups):
        torch.manual_seed(0)
        policy = random_lora(toy.make_model(toy_processor)).eval()
        _, second, third = converse(engine_of(policy, toy_processor), policy, groups)
        assert second[1] == third[1] == 0

    @pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl_moe"])
    def test_other_families(self, toy_processor, groups, family):
        model = others.qwen(family, toy_processor).eval()
        _, second, third = converse(engine_of(model, toy_processor), model, groups, turns=3)
        assert second[1] == third[1] == 0

    def test_a_model_whose_cache_cannot_be_cut_reads_all(self, model, toy_processor, groups, monkeypatch):
        monkeypatch.setattr("paravt.engines.transformers.can_be_cut", lambda model: False)
        assert converse(engine_of(model, toy_processor), model, groups)[1][1] == 3 * 12

    def test_finished_conversations_give_theirs_up(self, model, toy_processor, groups):
        engine, kept = engine_of(model, toy_processor), {}

        def goes_on(turn, row):
            kept[turn] = len(engine._kept._kept)  # before the turn
            return row % 3 != turn

        converse(engine, model, groups, goes_on=goes_on)
        assert kept == {0: 0, 1: 6, 2: 3}

    def test_nothing_outlives_its_session(self, model, toy_processor, groups):
        gc.collect()
        engine = engine_of(model, toy_processor)
        with pytest.raises(KeyError), engine.session():  # also if something is wrong
            engine.generate([groups[0][0]] * 2, [groups[0][1]] * 2, [4] * 2, lambda i, sample: True, [1, 2])
            assert any(type(each) is Segment for each in gc.get_objects())
            raise KeyError
        gc.collect()
        assert not any(type(each) is Segment for each in gc.get_objects())

    def test_weights_that_changed_read_all_anew(self, toy_processor, groups):
        model = toy.make_model(toy_processor).eval()
        engine = engine_of(model, toy_processor)
        prompts = [groups[0]] * 2 + [groups[2]]
        for step in range(3):
            columns = [p[0] for p in prompts], [p[1] for p in prompts], [6] * 3
            samples = engine.generate(*columns, lambda i, sample: True, [step, 10, 20])
            for (ids, images), sample, seed in zip(prompts, samples, (step, 10, 20), strict=True):
                assert is_right(model, toy_processor, ids, images, sample, seed, 1.0)
            prompts = [(ids + sample.ids, images) for (ids, images), sample in zip(prompts, samples, strict=True)]
            with torch.no_grad():
                for param in model.parameters():
                    param += 0.05 * torch.randn(param.shape, generator=torch.Generator().manual_seed(step))

    def test_equal_crops_of_sub_agents_are_read_once(self, model, toy_processor, groups):
        reader, engine = Reader(model), engine_of(model, toy_processor, max_batch=3)
        asked = [groups[0], groups[1]] * 5
        engine.generate([g[0] for g in asked], [g[1] for g in asked], [4] * 10, seeds=range(10))
        assert reader.pictures == sum(len(images) for _, images in groups[:2])

    def test_pictures_that_are_added_are_seen(self, model, toy_processor, groups):
        """A prompt with one more picture is not one whose beginning is known: the tower sees all of them again."""
        engine = engine_of(model, toy_processor)
        (ids, images), (more_ids, more) = groups[:2]
        with engine.session():
            (sample,) = engine.generate([ids], [images], [6], lambda i, sample: True, [1])
            longer = ids + sample.ids + more_ids
            (sample,) = engine.generate([longer], [images + more], [6], lambda i, sample: True, [2])
            assert is_right(model, toy_processor, longer, images + more, sample, 2, 1.0)


class TestRollout:
    @pytest.mark.parametrize("max_batch", [64, 5])
    def test_whole_rollouts_are_the_same(self, model, toy_processor, toy_rows, max_batch, monkeypatch):
        """Groups, turns, sub-agents and reports by the model itself; some rollouts end before others."""
        windows = [(0.0, 8.0), (8.0, 24.0), (0.0, 8.0)]

        def calls(text, *, complete=True):
            made = [ToolCall("crop_video", {"start_time": a, "end_time": b}) for a, b in windows]
            return made[: sum(map(ord, text)) % 4]

        monkeypatch.setattr(rollout, "parse_tool_calls", calls)
        rows = [row for row in toy_rows[:2] for _ in range(4)]
        made = FrameBudgetCollator(toy_processor, [4, 8], max_pixels=1024)(rows)
        prompts = [prepare_multimodal_messages(row["prompt"], images=row["images"]) for row in made]
        player = ParallelRollout(max_turns=3, max_turn_length=16, max_report_length=8, max_pixels=1024)
        reader, episodes, read = Reader(model), [], []
        for limit in (2**32, 0):
            reader.tokens = 0
            engine = engine_of(model, toy_processor, cache_limit=limit, max_batch=max_batch)
            episodes.append(player.run(prompts, engine, 600, seeds=range(8)))
            read.append(reader.tokens)
        assert [e.ids for e in episodes[0]] == [e.ids for e in episodes[1]]
        for kept, anew in zip(*episodes, strict=True):
            assert kept.logprobs == pytest.approx(anew.logprobs, abs=1e-4)
        turns = [sum(message["role"] == "assistant" for message in e.messages) for e in episodes[0]]
        assert len(set(turns)) > 1 and max(turns) == 4
        assert read[0] < read[1] / 2


def prefix(ids, images=(), cut=None, heads=2, width=4):
    """A prefix of one segment, or of two, whose keys are the ids and whose values are their negatives."""

    def segment(part):
        keys = torch.tensor(part, dtype=torch.float32)[None, :, None].expand(heads, -1, width)
        return Segment(((keys, -keys), (keys + 0.5, -keys)))

    cut = len(ids) if cut is None else cut
    empty = Prefix(np.array([], int), list(images), 0)
    return empty.then(ids[:cut], segment(ids[:cut])).then(ids[cut:], segment(ids[cut:]))


class TestPrefixCache:
    IMAGE = 99

    def taken(self, kept, ids, images=(), limit=2**30):
        cache = PrefixCache(limit)
        for each in kept:
            cache.keep(each, ())
        (found,) = cache.take([ids], [list(images)], self.IMAGE)
        assert cache.take([ids], [list(images)], self.IMAGE) == [None]
        if found is not None:
            filled = Cache(layers=[GrowingLayer(), GrowingLayer()])
            fill(filled, [found])
            keys = [row[0, :, 0].tolist() for row in filled.layers[0].keys]
            assert keys == [ids[: len(found)]] and found.ids.tolist() == ids[: len(found)]
        return 0 if found is None else len(found)

    @pytest.mark.parametrize(
        ("ids", "length"),
        [
            ([1, 2, 3, 4, 5, 6], 4),
            ([1, 2, 3, 4], 3),  # the last token is read
            ([1, 2, 3, 9, 9], 3),
            ([1, 2, 7, 8], 3),
            ([1, 9], 1),
            ([9, 1, 2, 3], 0),
            ([1], 0),
        ],
    )
    def test_the_longest_beginning_is_found(self, ids, length):
        assert self.taken([prefix([1, 2, 3, 4], cut=2), prefix([1, 2, 7], cut=1), prefix([5])], ids) == length

    @pytest.mark.parametrize(
        ("ids", "images", "length"),
        [
            ([1, 99, 99, 2, 3, 4], "ab", 5),
            ([1, 99, 99, 2, 5, 6], "ab", 4),
            ([1, 99, 99, 5, 6], "ab", 3),
            (
                [1, 7, 99, 2, 99, 5],
                "ab",
                0,
            ),  # a picture that is read needs the tower, which sees all pictures of a prompt
            ([1, 99, 99, 2, 3, 99, 4], "abc", 0),
            ([1, 99, 99, 2, 3, 4], "ba", 0),
            ([1, 99, 99, 2, 3, 4], "", 0),
        ],
    )
    def test_pictures_are_told_apart(self, ids, images, length):
        pictures = {name: object() for name in "abc"}
        kept = prefix([1, 99, 99, 2, 3, 7], [pictures["a"], pictures["b"]], cut=4)
        assert self.taken([kept], ids, [pictures[name] for name in images]) == length

    def test_segments_that_are_shared_count_once(self):
        head = prefix([1, 2, 3, 4])
        size = head.segments[0].nbytes
        tails = [head.then([5, number], prefix([5, number]).segments[0]) for number in range(4)]
        cache = PrefixCache(2 * size)
        for tail in tails:
            cache.keep(tail, ())
        assert cache._kept == tails[:2]
        assert [len(found) for found in cache.take([[1, 2, 3, 4, 5, n, 9] for n in range(4)], [[]] * 4, 99)] == [
            6,
            6,
            5,
            5,
        ]

    def test_room_is_left_for_what_is_in_use(self):
        cache, used = PrefixCache(100), prefix([1] * 4)
        assert used.segments[0].nbytes > 100
        cache.keep(prefix([1], heads=1, width=1), [used])
        assert cache._kept == []


class TestGrowingLayer:
    def test_equal_to_the_library_s(self):
        draw = torch.Generator().manual_seed(0)
        ours, theirs = GrowingLayer(), DynamicLayer()
        for length in (3, 1, 1, 300, *[1] * 200):
            keys, values = torch.randn(2, 2, 3, length, 4, generator=draw)
            for found, expected in zip(ours.update(keys, values), theirs.update(keys, values), strict=True):
                assert torch.equal(found, expected)
            assert ours.get_seq_length() == theirs.get_seq_length()
            assert ours.get_mask_sizes(1) == theirs.get_mask_sizes(1)


@pytest.mark.parametrize(
    ("family", "whole"), [(others.text_model, True), (others.smolvlm, True), (others.gemma3, False)]
)
def test_windows_cannot_be_cut(toy_processor, family, whole):
    assert can_be_cut(family(toy_processor.tokenizer)[0]) == whole
