import copy

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from PIL import Image
from transformers import AutoProcessor
from trl.trainer.utils import add_fused_lm_head

from paravt import forest as forests
from paravt import toy
from paravt.chat import prepare_processor
from paravt.engines import features
from paravt.engines.features import Picture, Tower
from paravt.forest import Tree, group_rows, keep_together, pack, read_rows, split_groups, teach_forests


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
    """Groups of unequal lengths and budgets as TRL pads them, with pictures in prompts and completions, and without."""

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
        self.ids = torch.tensor(
            [[pad] * (width - len(p)) + p + c + [pad] * (self.length - len(c)) for p, c in rows]
        )  # fmt: skip
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
            input_ids=self.ids, attention_mask=self.mask, mm_token_type_ids=kinds, labels=labels, fused_lm_head=True,
            **self.pixels,
        )  # fmt: skip
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
