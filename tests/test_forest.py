import copy
import importlib.util
import os
import subprocess
import sys

import numpy as np
import others
import pytest
import torch
import transformers
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from PIL import Image
from transformers import AutoProcessor, Qwen3VLForConditionalGeneration
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from paravt import ParaGRPOConfig, ParaGRPOTrainer, toy
from paravt import forest as forests
from paravt.chat import Chat, prepare_processor
from paravt.engines import features
from paravt.engines.features import Picture, Tower
from paravt.engines.trl import keep_together
from paravt.forest import (
    Tree,
    group_rows,
    obstacle,
    pack,
    read_rows,
    split_groups,
    teach_forests,
)


def picture(number, width=64, height=32):
    noise = np.random.default_rng(number).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def named(*names):
    """Pictures of two tokens each."""
    return [Picture(name.encode(), (1, 2, 4), 2) for name in names]


class TestRows:
    ROWS = [  # prompt, pictures (* stands for the token of one), completion
        ((1, 9, 9, 2), "a", (3, 4)),
        ((1, 9, 9, 2), "b", (5,)),
        ((1, 9, 9, 2), "a", ()),
        ((1, 2), "", (3,)),
        ((1, 9, 9, 2), "ac", (9, 9, 7)),
        ((1, 9, 9), "a", (6,)),
        ((1, 9, 9), "a", (6,)),
    ]

    def rows(self):
        width, length = 4, 3
        ids = [[0] * (width - len(p)) + list(p) + list(c) + [0] * (length - len(c)) for p, _, c in self.ROWS]
        mask = [[0] * (width - len(p)) + [1] * (len(p) + len(c)) + [0] * (length - len(c)) for p, _, c in self.ROWS]
        pictures = [named(*seen) for _, seen, _ in self.ROWS]
        return read_rows(torch.tensor(ids), torch.tensor(mask), length, pictures, image_token=9)

    def test_rows_share_a_prompt_if_ids_and_pictures_are_equal(self):
        rows = self.rows()
        assert [row.prompt for row in rows] == [prompt for prompt, _, _ in self.ROWS]
        assert [row.completion for row in rows] == [completion for _, _, completion in self.ROWS]
        assert [len(row.own_pictures) for row in rows] == [0, 0, 0, 0, 1, 0, 0]
        # The last two end on a picture's token, which cannot stand at the head of two branches.
        assert group_rows(rows, image_token=9) == [[0, 2, 4], [1], [3], [5], [6]]

    def test_packed_and_laid_back(self):
        rows = self.rows()
        packed = pack(rows, group_rows(rows, image_token=9))
        assert packed.input_ids[0].tolist() == [
            *(1, 9, 9), *(2, 3, 4), 2, *(2, 9, 9, 7), *(1, 9, 9, 2, 5), *(1, 2, 3), *(1, 9, 9, 6), *(1, 9, 9, 6),
        ]  # fmt: skip
        assert packed.trees == (
            Tree(0, 3, (6, 7, 11)), Tree(11, 11, (16,)), Tree(16, 16, (19,)), Tree(19, 19, (23,)), Tree(23, 23, (27,)),
        )  # fmt: skip
        assert packed.pictures == tuple(named(*"acbaa"))
        labels = [label for label in packed.labels[0].tolist() if label != -100]
        assert labels == [3, 4, 9, 9, 7, 5, 3, 6, 6]
        shifted = packed.input_ids[:, 1:].float()  # the value of each place is the token after it
        laid = packed.lay_back(shifted, torch.zeros(len(rows), 3))
        assert laid.tolist() == [[3, 4, 0], [5, 0, 0], [0, 0, 0], [3, 0, 0], [9, 9, 7], [6, 0, 0], [6, 0, 0]]
        # Positions are columns: the prompt of two tokens begins in the third.
        assert packed.position_ids[0, 16:19].tolist() == [2, 3, 4]
        assert packed.position_ids[0, :11].tolist() == [0, 1, 2, 3, 4, 5, 3, 3, 4, 5, 6]
        assert sum(forests.count_tokens(rows, group) for group in group_rows(rows, 9)) == packed.input_ids.shape[1]

    @pytest.mark.parametrize("seen, message", [("aa", "a completion has 0 picture tokens"), ("", None)])
    def test_pictures_must_match_tokens(self, seen, message):
        ids, mask = torch.tensor([[1, 9, 9, 2, 3]]), torch.ones(1, 5)
        if message is None:  # no pictures at all: the placeholders are tokens like others
            assert read_rows(ids, mask, 1, [[]], 9)[0].prompt == (1, 9, 9, 2)
        else:
            with pytest.raises(ValueError, match=message):
                read_rows(ids, mask, 1, [named(*seen)], 9)
        with pytest.raises(ValueError, match="a prompt has 1 picture tokens, but its pictures have 2"):
            read_rows(torch.tensor([[1, 9, 2, 3]]), torch.ones(1, 4), 1, [named("a")], 9)

    @pytest.mark.parametrize(
        "sizes, limit, expected",
        [
            ([3, 3, 3], 6, [[0, 1], [2]]),
            ([9, 1, 1], 6, [[0], [1, 2]]),
            ([1, 9, 1], 6, [[0], [1], [2]]),
            ([2, 2, 2], 6, [[0, 1, 2]]),
        ],
    )
    def test_chunks(self, sizes, limit, expected):
        assert split_groups(sizes, limit) == expected

    def test_micro_batches_hold_whole_groups(self):
        names = ["b", "a", "b", "c", "a", "c"]
        batches = [
            {"x": torch.tensor([0, 1, 2]), "n": torch.tensor(6), "l": ["0", "1", "2"], "none": None},
            {"x": torch.tensor([3, 4, 5]), "n": torch.tensor(6), "l": ["3", "4", "5"], "none": None},
        ]
        made = keep_together(batches, names)
        assert [batch["x"].tolist() for batch in made] == [[0, 2, 1], [4, 3, 5]]
        assert [batch["l"] for batch in made] == [["0", "2", "1"], ["4", "3", "5"]]
        assert all(batch["n"] == 6 and batch["none"] is None for batch in made)


def dense_mask(trees, length):
    """What a token of a packed sequence sees, (1, 1, T, T)."""
    mask = torch.zeros(length, length, dtype=torch.bool)
    for tree in trees:
        for part in (slice(tree.start, tree.fork), *tree.branches):
            mask[part, part] = True
            mask[part, tree.start : tree.fork] = True
    return mask.tril()[None, None]


class TestAttention:
    TREES = (Tree(0, 37, (48, 49, 81)), Tree(81, 81, (100,)), Tree(100, 101, (103, 140)))

    def tensors(self, dtype=torch.float32, heads=6, key_heads=2, value_size=32):
        torch.manual_seed(0)
        shapes = [(heads, 32), (key_heads, 32), (key_heads, value_size)]
        made = [torch.randn(1, 140, count, size, dtype=dtype).transpose(1, 2) for count, size in shapes]
        return [tensor.requires_grad_() for tensor in made]

    def run(self, function, tensors):
        out = function(*tensors)
        weights = torch.sin(torch.arange(out.numel())).view(out.shape)
        return out.detach(), *torch.autograd.grad((out * weights).sum(), tensors)

    def dense(self, query, key, value):
        mask = dense_mask(self.TREES, 140)
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, scale=0.3, enable_gqa=True)
        return out.transpose(1, 2)

    def segments(self, query, key, value):
        return forests.forest_attention(None, query, key, value, None, own="sdpa", trees=self.TREES, scaling=0.3)[0]

    @pytest.mark.parametrize("heads, key_heads", [(6, 2), (4, 4), (4, 1)])
    @pytest.mark.parametrize("kernel", [True, False])
    def test_segments_are_the_dense_mask(self, heads, key_heads, kernel, monkeypatch):
        if not kernel:
            monkeypatch.setattr(forests, "_kernels", lambda query, value: None)
        tensors = self.tensors(heads=heads, key_heads=key_heads)
        found, expected = self.run(self.segments, tensors), self.run(self.dense, tensors)
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, theirs, atol=2e-6, rtol=1e-5)

    def test_values_of_another_size(self):
        tensors = self.tensors(value_size=16)
        for mine, theirs in zip(self.run(self.segments, tensors), self.run(self.dense, tensors), strict=True):
            torch.testing.assert_close(mine, theirs, atol=2e-6, rtol=1e-5)

    def test_bf16_is_as_near_as_a_dense_mask(self):
        exact = self.run(self.dense, self.tensors())
        half = [t.detach().bfloat16().requires_grad_() for t in self.tensors()]
        for mine, theirs, truth in zip(self.run(self.segments, half), self.run(self.dense, half), exact, strict=True):
            assert (mine.float() - truth).norm() < 2 * (theirs.float() - truth).norm()

    def test_cuda_kernels_are_called_as_they_want_it(self):
        """There is no GPU here, but shapes and arguments can be checked."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            tensors = [torch.randn(1, n, 140, 64, device="cuda", dtype=torch.bfloat16) for n in (4, 2, 2)]
            q, k, v = forests._by_key_head(*tensors)
            assert forests._kernels(q, v) == (forests._cuda_forward, forests._cuda_backward)
            out, sums = forests._cuda_forward(q[:, :, 40:], k[:, :, :40], v[:, :, :40], False, 0.1)
            assert (out.shape, sums.shape, sums.dtype) == ((2, 2, 100, 64), (2, 2, 100), torch.float32)
            q, k, v = q[:, :, 40:], k[:, :, :40], v[:, :, :40]
            grads = forests._cuda_backward(out, q, k, v, out, sums, False, 0.1)
            assert [grad.shape for grad in grads] == [q.shape, k.shape, v.shape]

    @pytest.mark.parametrize(
        "unknown", [{"sliding_window": 4}, {"softcap": 1.0}, {"dropout": 0.1}, {"position_bias": torch.ones(1)}]
    )
    def test_what_it_cannot_do_is_refused(self, unknown):
        with pytest.raises(ValueError, match="packed sequences cannot have"):
            forests.forest_attention(None, *self.tensors(), None, own="sdpa", trees=self.TREES, **unknown)

    def test_a_sequence_without_its_trees_is_refused(self):
        with pytest.raises(RuntimeError, match="without its trees"):
            forests.forest_attention(None, *self.tensors(), forests.no_mask("cpu"), own="sdpa")


@pytest.fixture
def processor(toy_checkpoint):
    return prepare_processor(AutoProcessor.from_pretrained(toy_checkpoint), 96 * 64)


class Case:
    """Groups of unequal lengths and budgets as TRL pads them, with pictures in prompts, in completions and nowhere."""

    PROMPTS = [("a # b # c", [1, 2])] * 3 + [("a # b # c", [3, 2])] * 2 + [("only text", [])] * 2 + [("a #", [1])]
    COMPLETIONS = [
        ("x # y", [4]), ("x y z z z z", []), ("# and #", [1, 4]), ("d", []), ("d e e e e", []), ("f g", []), ("", []),
        ("one", []),
    ]  # fmt: skip
    SIZES = {1: (64, 32), 2: (32, 64), 3: (64, 32), 4: (96, 32)}

    def __init__(self, tower, tokenizer):
        self.token = tower.image_token
        images = {number: picture(number, *size) for number, size in self.SIZES.items()}
        shown = [[images[n] for n in p[1] + c[1]] for p, c in zip(self.PROMPTS, self.COMPLETIONS, strict=True)]
        self.pictures = tower.look(shown)
        features = tower.image_processor(images=[i for row in shown for i in row], return_tensors="pt")
        self.pixels = {"pixel_values": features["pixel_values"], "image_grid_thw": features["image_grid_thw"]}
        rows = []
        for (p, _), (c, _), row in zip(self.PROMPTS, self.COMPLETIONS, self.pictures, strict=True):
            row = iter(row)
            rows.append((self.encode(tokenizer, p, row), self.encode(tokenizer, c, row)))
        width, self.length = (max(len(row[part]) for row in rows) for part in (0, 1))
        pad = tokenizer.pad_token_id
        self.ids = torch.tensor([[pad] * (width - len(p)) + p + c + [pad] * (self.length - len(c)) for p, c in rows])
        self.mask = torch.tensor(
            [[0] * (width - len(p)) + [1] * len(p + c) + [0] * (self.length - len(c)) for p, c in rows]
        )
        torch.manual_seed(0)
        self.weights = torch.randn(2, len(rows), self.length)

    def encode(self, tokenizer, text, pictures):
        first, *others = (tokenizer(piece)["input_ids"] for piece in text.split("#"))
        return first + [i for piece in others for i in [self.token] * next(pictures).tokens + piece]

    def stock(self, model):
        labels = self.ids.masked_fill(self.mask == 0, -100)
        labels[:, : -self.length] = -100
        kinds = (self.ids == self.token).long()
        out = model(
            input_ids=self.ids,
            attention_mask=self.mask,
            mm_token_type_ids=kinds,
            labels=labels,
            fused_lm_head=True,
            **self.pixels,
        )
        return torch.stack([out.log_probs, out.entropy])[:, :, -self.length :]  # (2, B, C)

    def packed(self, tower):
        rows = read_rows(self.ids, self.mask, self.length, self.pictures, self.token)
        return pack(rows, group_rows(rows, self.token), tower.rope)

    def ours(self, model, tower, dense=False):
        packed = self.packed(tower)
        inputs = packed.inputs()
        if dense:
            del inputs["trees"]
            inputs["attention_mask"] = dense_mask(packed.trees, packed.input_ids.shape[1])
        with tower.showing(packed.pictures) as asked:
            out = model(**inputs, **asked, fused_lm_head=True)
        nothing = torch.zeros(len(self.ids), self.length)
        return torch.stack([packed.lay_back(out.log_probs, nothing), packed.lay_back(out.entropy, nothing)])

    def gradients(self, model, values):
        model.zero_grad()
        (values * self.weights).sum().backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_equal_gradients(found, expected, tolerance=1e-5):
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() <= tolerance * gradient.norm() + 1e-7, name
    assert any(gradient.norm() > 0 for gradient in expected.values())


def tiny(processor, attention="sdpa", **adapter):
    model = toy.make_model(processor)
    model.set_attn_implementation(attention)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    tower = Tower(model, processor.image_processor)
    if adapter:
        model = get_peft_model(model, LoraConfig(r=4, init_lora_weights=False, **adapter))
    return model.train(), tower


LANGUAGE = r".*language_model.*\.(q|k|v|o|gate|up|down)_proj"


class TestPass:
    @pytest.mark.parametrize(
        "attention, checkpointing, frozen, adapter",
        [
            ("sdpa", None, False, {}),
            ("eager", None, True, {}),
            ("sdpa", {"use_reentrant": False}, False, {}),
            ("sdpa", {"use_reentrant": True}, False, {"target_modules": LANGUAGE}),
            ("sdpa", None, False, {"target_modules": "all-linear"}),
            ("sdpa", {"use_reentrant": False}, True, {"target_modules": LANGUAGE}),
        ],
    )
    def test_it_is_the_pass_over_padded_rows(self, processor, attention, checkpointing, frozen, adapter):
        model, tower = tiny(processor, attention, **adapter)
        case = Case(tower, processor.tokenizer)
        if checkpointing:
            model.gradient_checkpointing_enable(checkpointing)
            model.enable_input_require_grads()
        if frozen:
            tower.inner.visual.requires_grad_(False)
        assert tower.frozen == (frozen or adapter.get("target_modules") == LANGUAGE)
        expected = case.stock(model)
        gradients = case.gradients(model, expected)
        dense = case.ours(model, tower, dense=True) if attention == "sdpa" else expected
        teach_forests(tower.model)
        torch.testing.assert_close(case.stock(model), expected, atol=0, rtol=0)  # as ever where nothing is packed
        found = case.ours(model, tower)
        for values in (expected, dense):
            torch.testing.assert_close(found, values, atol=1e-5, rtol=0)
        assert_equal_gradients(case.gradients(model, found), gradients)
        packed = case.packed(tower)
        assert packed.input_ids.shape[1] < 0.75 * case.mask.sum()

    def test_what_is_saved_names_no_forest(self, processor, tmp_path):
        model, _ = tiny(processor)
        teach_forests(model)
        teach_forests(model)  # once is enough
        assert model.config.text_config._attn_implementation == "forest_sdpa"
        assert model.config.vision_config._attn_implementation == "sdpa"
        model.save_pretrained(tmp_path)
        assert "forest" not in (tmp_path / "config.json").read_text()
        assert "forest" not in str(copy.deepcopy(model).config.to_dict())

    def test_memory_of_attention_grows_with_distinct_tokens(self, processor):
        """What is saved for the backward pass, by the number of branches: each adds its own tokens and no stem."""
        sizes = {}
        for branches in (1, 2, 3):
            trees, length = (Tree(0, 400, tuple(400 + 10 * (i + 1) for i in range(branches))),), 400 + 10 * branches
            tensors = [torch.randn(1, heads, length, 32, requires_grad=True) for heads in (4, 2, 2)]
            saved = {}
            with torch.autograd.graph.saved_tensors_hooks(
                lambda t, saved=saved: saved.setdefault(t.data_ptr(), t), lambda t: t
            ):
                forests.forest_attention(None, *tensors, None, own="sdpa", trees=trees)
            sizes[branches] = sum(t.nbytes for t in saved.values())
        assert sizes[3] - sizes[2] == sizes[2] - sizes[1] == sizes[1] * 10 / 410


class Counted:
    """Counts the calls of a tower, and its pictures."""

    def __init__(self, *models):
        self.calls, self.pictures = 0, 0
        for model in models:
            model.base_model.visual.register_forward_pre_hook(self.count, with_kwargs=True)

    def count(self, module, args, kwargs):
        self.calls += 1
        self.pictures += len(kwargs["grid_thw"])


class TestTower:
    def test_a_frozen_one_sees_each_picture_once(self, processor):
        model, tower = tiny(processor)
        tower.inner.visual.requires_grad_(False)
        teach_forests(model)
        case, counted = Case(tower, processor.tokenizer), Counted(model)
        assert len(tower._pixels) == 4
        case.ours(model, tower).sum().backward()
        with torch.no_grad(), tower.one_pass():
            case.ours(model, tower)
        with torch.no_grad(), tower.remembering():
            case.stock(model)  # whoever calls the model
        assert (counted.calls, counted.pictures) == (1, 4) and not tower._pixels
        case.stock(model)
        assert (counted.calls, counted.pictures) == (2, 4 + sum(map(len, case.pictures)))
        tower.forget()
        assert not tower._seen

    def test_one_that_is_trained_sees_each_picture_once_in_a_pass(self, processor):
        model, tower = tiny(processor)
        teach_forests(model)
        case, counted = Case(tower, processor.tokenizer), Counted(model)
        for number in (1, 2):
            case.gradients(model, case.ours(model, tower))
            assert (counted.calls, counted.pictures) == (number, 4 * number)
        with torch.no_grad(), tower.one_pass():
            case.ours(model, tower)
            case.ours(model, tower)  # another part of the same pass
        assert (counted.calls, counted.pictures) == (3, 12)
        with torch.no_grad(), tower.remembering():
            case.stock(model)
        assert not tower._seen and len(tower._pixels) == 4

    def test_an_adapter_that_is_switched_off_is_no_frozen_tower(self, processor):
        model, tower = tiny(processor, target_modules="all-linear")
        teach_forests(tower.model)
        case = Case(tower, processor.tokenizer)
        with torch.no_grad():
            for _ in range(2):
                with tower.one_pass():
                    torch.testing.assert_close(case.ours(model, tower), case.stock(model), atol=1e-5, rtol=0)
                with model.disable_adapter(), tower.one_pass():
                    assert not tower.frozen
                    torch.testing.assert_close(case.ours(model, tower), case.stock(model), atol=1e-5, rtol=0)

    def test_features_are_kept_in_the_dtype_of_the_model_and_beyond_a_limit_on_the_host(self, processor, monkeypatch):
        model, tower = tiny(processor)
        model.bfloat16()
        tower.inner.visual.requires_grad_(False)
        Case(tower, processor.tokenizer)
        monkeypatch.setattr(features, "PATCHES", 16)  # a picture of 64 x 64 has 16
        counted = Counted(model)
        moved = []
        monkeypatch.setattr(torch.Tensor, "cpu", lambda self: moved.append(self.nbytes) or self)
        tower.limit, shown = 0, tower.look([[picture(i) for i in range(3)]])[0]
        moved.clear()
        tower._see(shown)
        assert counted.calls == 2 and len(tower._seen) == 3
        levels = [level for levels in tower._seen.values() for level in levels]
        assert {level.dtype for level in levels} == {torch.bfloat16} and len(levels) == 6  # DeepStack's level too
        assert sorted(moved) == sorted(level.nbytes for level in levels)

    def test_pictures_with_equal_pixels_are_one(self, processor):
        _, tower = tiny(processor)
        first, second, other = picture(1), picture(1), picture(2)
        a, b, c = tower.look([[first, second, other]])[0]
        assert a == b != c and a.tokens == 2 and a.grid == (1, 2, 4)
        turned = tower.look(
            [[Image.fromarray(np.full((32, 64, 3), 7, np.uint8)), Image.new("RGB", (32, 64), (7,) * 3)]]
        )
        assert turned[0][0] != turned[0][1]  # the same values, but another grid


SMALL = {
    "vocab_size": 60, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


class TestModels:
    @pytest.mark.parametrize(
        "name, options",
        [
            ("Qwen3", {}), ("Llama", {}), ("Mistral", {"sliding_window": None}), ("Qwen2", {}), ("GPTNeoX", {}),
            ("Granite", {}), ("Qwen3Moe", EXPERTS),
        ],
    )  # fmt: skip
    def test_models_of_text(self, name, options):
        torch.manual_seed(0)
        config = getattr(transformers, f"{name}Config")(**SMALL, **options)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        assert obstacle(model) is None
        add_fused_lm_head(model)
        ids, mask = torch.randint(3, 60, (4, 20)), torch.ones(4, 20, dtype=torch.long)
        ids[1, :10], ids[3, :10] = ids[0, :10], ids[2, :10]
        mask[:2, :3], mask[1, 15:] = 0, 0
        labels = ids.masked_fill(mask == 0, -100)
        labels[:, :10] = -100
        with torch.no_grad():
            expected = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True).log_probs[:, -10:]
            teach_forests(model)
            rows = read_rows(ids, mask, 10, [[]] * 4, None)
            packed = pack(rows, group_rows(rows))
            found = packed.lay_back(model(**packed.inputs(), fused_lm_head=True).log_probs, torch.zeros(4, 10))
        assert len(packed.trees) == 2
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)

    @pytest.mark.parametrize(
        "name, options, reason",
        [
            ("Mistral", {"sliding_window": 8}, "its attention has windows"),
            ("Gemma3Text", {}, "layers of sliding_attention"),
            ("Llama4Text", {}, "layers of chunked_attention"),
            ("Qwen3Next", {"linear_num_value_heads": 2, "linear_num_key_heads": 2, **EXPERTS}, "linear_attention"),
            ("Mamba", {}, "linear_attention"),
            ("FalconH1", {}, "layers of hybrid"),
            ("Llama", {"attention_dropout": 0.1}, "dropout"),
            ("Qwen3Moe", {**EXPERTS, "output_router_logits": True}, "auxiliary loss"),
            ("Bloom", {}, "cannot be replaced"),
            ("OPT", {"word_embed_proj_dim": 64, "ffn_dim": 64}, "not rotary"),
        ],
    )
    def test_models_that_cannot_be_packed_say_why(self, name, options, reason):
        config = getattr(transformers, f"{name}Config")(**SMALL, **options)
        assert reason in obstacle(transformers.AutoModelForCausalLM.from_config(config))

    @pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl_moe"])
    def test_families_with_pictures(self, processor, family):
        model = others.qwen(family, processor).train()
        assert obstacle(model) is None and family in features.FAMILIES
        add_fused_lm_head(model, outputs=("log_probs", "entropy"))
        tower = Tower(model, processor.image_processor)
        case = Case(tower, processor.tokenizer)
        expected = case.stock(model)
        gradients = case.gradients(model, expected)
        teach_forests(model)
        for frozen in (False, True):
            tower.inner.visual.requires_grad_(not frozen)
            found = case.ours(model, tower)
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
            if not frozen:
                assert_equal_gradients(case.gradients(model, found), gradients)


SHOWN = [[1, 2], [4, 2, 3]]  # pictures of two prompts, of different budgets
SIZES = Case.SIZES
SAID = ["red blue", "a", "blue red red a b c d", "a", "b b b", "c", "a a flash", "red"]


def prompts_with(images, text):
    content = [*({"type": "image"} for _ in images), {"type": "text", "text": text}]
    return {"prompt": [{"role": "user", "content": content}], "images": images}


def rows_of(copies=4):
    """Two groups, whose members have copies of their pictures."""
    texts = ["Which colour?", "Where is the flash?"]
    return [
        prompts_with([picture(n, *SIZES[n]) for n in shown], text)
        for shown, text in zip(SHOWN, texts, strict=True)
        for _ in range(copies)
    ]


def finished(said=SAID, shown=None):
    """A rollout function that has nothing left to do. `shown` are the pictures of completions, one for each `#`."""

    def rollout(prompts, trainer):
        chat, made = Chat(trainer.processing_class), {"prompt_ids": [], "completion_ids": [], "logprobs": None}
        pictures, masks = [], []
        for number, prompt in enumerate(prompts):
            ids, images = chat.prompt(prompt)
            own = shown[number % len(said)] if shown else []
            first, *others = (chat.tokenize(piece) for piece in said[number % len(said)].split("#"))
            image_id = chat.tokenizer.convert_tokens_to_ids(chat.image_token)
            placed = [[image_id] * chat.image_tokens(image) for image in own]
            completion = first + [i for pad, piece in zip(placed, others, strict=True) for i in pad + piece]
            made["prompt_ids"].append(ids)
            made["completion_ids"].append(completion)
            if number % 2:
                completion.append(chat.tokenizer.eos_token_id)
            masks.append([int(i != image_id) for i in completion])
            masks[-1][0] = 0 if len(completion) > 3 else 1
            pictures.append(images + own)
        return {**made, "env_mask": masks, **({"pictures": pictures} if shown else {})}

    return rollout


def spread(completions, completion_ids, **columns):
    return [float(sum(ids) % 7) for ids in completion_ids]


def trainer_of(kind, folder, model, processor, adapter=None, rollout=None, rows=None, frozen=False, **options):
    config = GRPOConfig if kind is GRPOTrainer else ParaGRPOConfig
    own = {} if kind is GRPOTrainer else {"anchor_weight": 0.0, "train_vision": not frozen}
    defaults = {
        "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 64, "report_to": "none",
        "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "save_strategy": "no", "beta": 0.1,
        "num_iterations": 2, "max_steps": 2, "logging_steps": 1, "disable_tqdm": True,
    }  # fmt: skip
    args = config(str(folder), **{**defaults, **own, **options})
    dataset = Dataset.from_list([{"prompt": "x"}] * 8)
    trainer = kind(
        model,
        spread,
        args,
        train_dataset=dataset,
        processing_class=processor,
        peft_config=adapter,
        rollout_func=rollout or finished(),
    )
    trainer.data_collator = lambda batch: [dict(row) for row in (rows or rows_of())][: len(batch)]
    if frozen and not adapter:
        trainer.accelerator.unwrap_model(trainer.model).base_model.visual.requires_grad_(False)
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def disturb(model):
    """Moves what is trained, so that neither old nor reference log-probabilities are those of the policy."""
    torch.manual_seed(1)
    with torch.no_grad():
        for param in model.parameters():
            if param.requires_grad:
                param += 0.02 * torch.randn_like(param)


def gradients_of(trainer, batch):
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    found = {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}
    trainer.model.zero_grad()
    return loss.item(), found


LOSSES = ["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "vespo", "luspo"]


class TestTrainer:
    @pytest.mark.parametrize(
        "adapter, frozen, options",
        [
            (None, True, {}),
            (None, False, {"gradient_checkpointing": True}),
            ("all-linear", False, {}),
            (LANGUAGE, True, {"gradient_checkpointing": True, "mask_truncated_completions": True}),
        ],
    )
    def test_every_loss_is_that_of_the_stock_trainer(
        self, tmp_path, toy_checkpoint, processor, adapter, frozen, options
    ):
        results = []
        for kind in (GRPOTrainer, ParaGRPOTrainer):
            lora = LoraConfig(r=4, target_modules=adapter) if adapter else None
            trainer = trainer_of(kind, tmp_path, toy_checkpoint, processor, lora, frozen=frozen, **options)
            batch = trainer._generate_and_score_completions(rows_of())
            disturb(trainer.model)
            found = {}
            for loss_type in LOSSES:
                trainer.loss_type = loss_type
                trainer.importance_sampling_level = "sequence" if loss_type == "luspo" else "token"
                found[loss_type] = gradients_of(trainer, batch)
            results.append((batch, found))
        (stock, expected), (ours, found) = results
        assert "pixel_values" in stock and not {"pixel_values", "image_grid_thw", "num_images"} & ours.keys()
        for name in ("old_per_token_logps", "ref_per_token_logps", "advantages"):
            torch.testing.assert_close(ours[name], stock[name], atol=1e-5, rtol=0)
        for loss_type in LOSSES:
            assert found[loss_type][0] == pytest.approx(expected[loss_type][0], abs=1e-5, rel=1e-5)
            assert_equal_gradients(found[loss_type][1], expected[loss_type][1])

    def test_bf16_is_as_near_to_fp32_as_the_stock_trainer(self, tmp_path, toy_checkpoint, processor):
        results = {}
        for kind, bf16 in ((GRPOTrainer, False), (GRPOTrainer, True), (ParaGRPOTrainer, True)):
            trainer = trainer_of(kind, tmp_path, toy_checkpoint, processor, bf16=bf16, learning_rate=0.0)
            batch = trainer._generate_and_score_completions(rows_of())
            with trainer.accelerator.autocast():
                _, gradients = gradients_of(trainer, batch)
            results[kind, bf16] = batch["old_per_token_logps"], gradients
        exact, stock, ours = results.values()
        assert (ours[0] - exact[0]).abs().mean() <= 2 * (stock[0] - exact[0]).abs().mean()
        assert (ours[0] - exact[0]).abs().max() <= 2 * (stock[0] - exact[0]).abs().max()
        distance = [
            sum((result[1][name] - exact[1][name]).norm() ** 2 for name in exact[1]) ** 0.5 for result in (stock, ours)
        ]
        assert 0 < distance[1] <= 2 * distance[0]

    def test_groups_come_whole_into_micro_batches_and_find_their_pictures(self, tmp_path, toy_checkpoint, processor):
        """dapo normalises over the generation batch, so that its gradient does not depend on micro-batches."""
        results = []
        for kind in (GRPOTrainer, ParaGRPOTrainer):
            trainer = trainer_of(
                kind,
                tmp_path,
                toy_checkpoint,
                processor,
                per_device_train_batch_size=4,
                gradient_accumulation_steps=2,
                loss_type="dapo",
                num_iterations=1,
                epsilon=10.0,
            )
            trainer.current_gradient_accumulation_steps = 2
            prompts, gradients = [], []
            for _ in range(2):
                inputs = trainer._prepare_inputs(rows_of())
                prompts.append({tuple(ids) for ids in inputs["prompt_ids"].tolist()})
                gradients.append(gradients_of(trainer, inputs)[1])
                trainer._step += 1
            results.append({name: gradients[0][name] + gradients[1][name] for name in gradients[0]})
        assert [len(found) for found in prompts] == [1, 1] and prompts[0] != prompts[1]
        assert_equal_gradients(results[1], results[0])

    @pytest.mark.parametrize(
        "size, said",
        [(8, None), (4, None), (2, "up to 2 times"), (6, "up to 2 times"), (3, "up to 2 times"), (1, "up to 4 times")],
    )
    def test_the_cost_of_split_groups_is_said(self, tmp_path, toy_checkpoint, processor, caplog, size, said):
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": 4, "beta": 0.0}
        trainer_of(ParaGRPOTrainer, tmp_path, toy_checkpoint, processor, **options)
        assert ("splits the groups of 4 rollouts" in caplog.text) == bool(said)
        assert said is None or said in caplog.text

    def test_passes_without_gradient_are_chunked_by_tokens(self, tmp_path, toy_checkpoint, processor, monkeypatch):
        trainer = trainer_of(ParaGRPOTrainer, tmp_path, toy_checkpoint, processor)
        passes, counted = [], Counted(trainer.accelerator.unwrap_model(trainer.model))
        trainer.model.register_forward_pre_hook(
            lambda module, args, kwargs: passes.append(kwargs["input_ids"].shape[1]), with_kwargs=True
        )
        whole = trainer._generate_and_score_completions(rows_of())
        assert len(passes) == 1
        passes.clear()
        counted.calls = counted.pictures = 0
        trainer.args.per_device_train_batch_size = 2  # as many tokens as two padded rows have
        parts = trainer._generate_and_score_completions(rows_of())
        assert len(passes) == 2 and counted.pictures == 4  # the second prompt shows a picture of the first again
        for name in ("old_per_token_logps", "ref_per_token_logps"):
            torch.testing.assert_close(parts[name], whole[name], atol=1e-5, rtol=0)

    def test_pictures_in_completions(self, tmp_path, toy_checkpoint, processor):
        """Their column names them; a pass of the model over the plain rows is the reference."""
        said = ["a # b", "a", "# #", "b", "a", "# c", "a", "b"]
        images = {n: picture(n, *size) for n, size in SIZES.items()}
        shown = [[images[n] for n in row] for row in ([3], [], [1, 4], [], [], [2], [], [])]
        trainer = trainer_of(
            ParaGRPOTrainer, tmp_path, toy_checkpoint, processor, rollout=finished(said, shown), num_iterations=1
        )
        batch = trainer._generate_and_score_completions(rows_of())
        disturb(trainer.model)
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        per_row = [[images[n] for n in SHOWN[i // 4]] + shown[i] for i in range(8)]
        pixels = processor.image_processor(images=[image for row in per_row for image in row], return_tensors="pt")
        given = {
            **pixels,
            "num_images": [len(row) for row in per_row],
            "mm_token_type_ids": (ids == processor.image_token_id).long(),
        }
        length = batch["completion_ids"].shape[1]
        expected = GRPOTrainer._get_per_token_logps_and_entropies(
            trainer, trainer.model, ids, mask, length, compute_entropy=True, **given
        )[:2]
        trainer._rows = batch["rows"].tolist()
        found = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, length, compute_entropy=True)[:2]
        trainer._rows = None
        # Rows of which somebody else has the pixels are told apart by these.
        others = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, mask, length, compute_entropy=True, **given
        )[:2]
        for mine, other, stock in zip(found, others, expected, strict=True):
            torch.testing.assert_close(mine, stock, atol=1e-5, rtol=0)
            torch.testing.assert_close(other, stock, atol=1e-5, rtol=0)
        assert gradients_of(trainer, batch)[0] != 0

    def test_where_tokens_and_pictures_do_not_match_trl_gets_the_images(self, tmp_path, toy_checkpoint, processor):
        trainer = trainer_of(ParaGRPOTrainer, tmp_path, toy_checkpoint, processor)
        prompts = [[{"role": "user", "content": [{"type": "image", "image": picture(1)}]}]]
        trainer._aside = [()]
        image_id = processor.image_token_id
        for ids, kept in (([image_id], False), ([image_id] * 2, True)):
            images, _ = trainer._keep_pictures(prompts, [ids], [[100]], {}, None, [])
            assert (images is None) == kept == (trainer._rows is not None)

    def test_a_row_gets_its_columns_back(self, tmp_path, toy_checkpoint, processor):
        seen = []

        def reward(completions, images, **columns):
            seen.extend(images)
            return [0.0] * len(completions)

        trainer = trainer_of(ParaGRPOTrainer, tmp_path, toy_checkpoint, processor)
        trainer.reward_funcs[0], rows = reward, rows_of()
        before = [(row["prompt"], row["images"]) for row in rows]
        trainer._generate_and_score_completions(rows)
        assert [(row["prompt"], row["images"]) for row in rows] == before
        assert seen == [row["images"] for row in rows]

    @pytest.mark.parametrize("rollout", ["finished", "trl"])
    def test_a_frozen_tower_sees_each_frame_once_in_a_step(self, tmp_path, toy_checkpoint, processor, rollout):
        """In generation, old-policy, reference and loss passes, and in every iteration on the same rollouts."""
        trainer = trainer_of(
            ParaGRPOTrainer,
            tmp_path,
            toy_checkpoint,
            processor,
            frozen=True,
            max_steps=4,
            max_completion_length=8,
            num_iterations=2,
            per_device_train_batch_size=4,
            steps_per_generation=2,
            gradient_accumulation_steps=1,
        )
        if rollout == "trl":
            trainer.rollout_func = None
        counted = Counted(trainer.model, trainer.ref_model)
        trainer.train()
        assert trainer.state.global_step == 4 and counted.pictures == 4  # one generation, two iterations
        assert not trainer._tower.kept  # freed with the step

    def test_sub_agents_included(self, tmp_path, toy_checkpoint, processor, toy_rows):
        options = {"max_turns": 1, "max_turn_length": 24, "max_report_length": 8, "max_pixels": 1024}
        args = ParaGRPOConfig(
            str(tmp_path),
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=64,
            max_steps=2,
            report_to="none",
            use_cpu=True,
            bf16=False,
            beta=0.1,
            frame_budgets=[4],
            **options,
        )
        lora = LoraConfig(r=4, target_modules=LANGUAGE)
        processor = prepare_processor(processor, 1024)
        trainer = ParaGRPOTrainer(
            toy_checkpoint,
            spread,
            args,
            train_dataset=Dataset.from_list(toy_rows),
            processing_class=processor,
            peft_config=lora,
        )
        seen, distinct = [], set()
        look = trainer._tower.look_at
        trainer._tower.look_at = lambda *given: (made := look(*given), distinct.update(made))[0]
        trainer.model.get_base_model().base_model.visual.register_forward_pre_hook(
            lambda module, args, kwargs: seen.append(len(kwargs["grid_thw"])), with_kwargs=True
        )
        trainer.train()
        assert sum(seen) == len(distinct) > 8

    def test_evaluation(self, tmp_path, toy_checkpoint, processor):
        results = []
        for kind in (GRPOTrainer, ParaGRPOTrainer):
            trainer = trainer_of(kind, tmp_path, toy_checkpoint, processor, per_device_eval_batch_size=8)
            trainer.eval_dataset = Dataset.from_list([{"prompt": "x"}] * 2)
            trainer._prepare_inputs(rows_of())  # amid a generation batch
            results.append(trainer.evaluate())
        assert results[1]["eval_loss"] == pytest.approx(results[0]["eval_loss"], abs=1e-5)
        assert trainer._tower.kept and not trainer._pictures["eval"]
        trainer.model.train()
        gradients_of(trainer, trainer._buffered_inputs[0])  # which still has its pictures

    def test_a_model_of_text(self, tmp_path, processor):
        config = transformers.Qwen3Config(**{**SMALL, "vocab_size": len(processor.tokenizer)})
        torch.manual_seed(0)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
        tokenizer, results = processor.tokenizer, []

        def rollout(prompts, trainer):
            ids = [tokenizer(prompt)["input_ids"] for prompt in prompts]
            said = [tokenizer(SAID[i])["input_ids"] for i in range(len(prompts))]
            return {"prompt_ids": ids, "completion_ids": said, "logprobs": None}

        rows = [{"prompt": text} for text in ("Which colour is it?", "Where?") for _ in range(4)]
        for kind in (GRPOTrainer, ParaGRPOTrainer):
            trainer = trainer_of(kind, tmp_path, str(tmp_path / "model"), tokenizer, rollout=rollout)
            batch = trainer._generate_and_score_completions([dict(row) for row in rows])
            disturb(trainer.model)
            results.append((batch["ref_per_token_logps"], *gradients_of(trainer, batch)))
        assert trainer._packs
        torch.testing.assert_close(results[1][0], results[0][0], atol=1e-5, rtol=0)
        assert_equal_gradients(results[1][2], results[0][2])

    def test_it_can_be_left_out_and_says_where_it_must(self, tmp_path, toy_checkpoint, processor, caplog):
        trainer = trainer_of(ParaGRPOTrainer, tmp_path, toy_checkpoint, processor, packing=False)
        assert not trainer._packs and not caplog.text
        assert "pixel_values" in trainer._generate_and_score_completions(rows_of())
        model = Qwen3VLForConditionalGeneration.from_pretrained(toy_checkpoint)
        model.config.text_config.layer_types = ["full_attention", "linear_attention"]
        trainer = trainer_of(ParaGRPOTrainer, tmp_path, model, processor, beta=0.0)
        assert not trainer._packs
        assert caplog.text.count("trained without packing: it has layers of linear_attention") == 1
        assert "pixel_values" in trainer._generate_and_score_completions(rows_of())


def on_two_ranks(checkpoint, kind, tower, packing, file):
    """How the weights move in two steps, and what was printed."""
    command = "-m torch.distributed.run --nproc_per_node 2 --master_port 29623 tests/forest_ranks.py".split()
    done = subprocess.run(
        [sys.executable, *command, checkpoint, kind, tower, packing, str(file)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=600,
    )
    assert done.stdout.count("is done") == 2, done.stdout[-2000:] + done.stderr[-3000:]
    before, weights = Qwen3VLForConditionalGeneration.from_pretrained(checkpoint).state_dict(), torch.load(file)
    return {name: weights[name] - before[name] for name in before}, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("tower", ["frozen", "trained"])
def test_two_ranks(tmp_path, toy_checkpoint, tower):
    """Plain and with weights sharded by FSDP2 or ZeRO-3, the weights move as without packing."""
    expected, _ = on_two_ranks(toy_checkpoint, "plain", tower, "false", tmp_path / "stock.pt")
    assert any(change.norm() > 1e-3 for change in expected.values())
    for kind in ("plain", "fsdp", *(["zero3"] if importlib.util.find_spec("deepspeed") else [])):
        found, printed = on_two_ranks(toy_checkpoint, kind, tower, "true", tmp_path / f"{kind}.pt")
        assert ("DTensor" in printed) == (kind == "fsdp")
        assert (" 0 of " in printed) == (kind != "zero3")
        for name, change in expected.items():
            assert (found[name] - change).norm() <= 1e-3 * change.norm() + 1e-6, (kind, name)
