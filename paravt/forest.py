"""
Rows that share prompts as one packed sequence, and back: every distinct token is computed once.

A group is a tree. Its stem is the prompt without its last token, and each rollout is a branch of its own:

    [prompt without its last token] [last token, completion 1] [last token, completion 2] ...

The last prompt token stands at the head of each branch, so that a label shift of one works inside every branch. A
token sees the earlier tokens of its branch, and the stem. Trees stand one after the other in one sequence, without
padding. Attention is computed by segments: no mask is made, and cost and memory grow with the tokens there are.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import repeat_kv
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel

from .engines.features import Picture


# ------------------------------------------------------------------------------------------------------------- packing


@dataclass(frozen=True)
class Row:
    """A prompt and a completion without padding. `columns` are the places of the completion's tokens, `first` the
    column at which the row begins."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    columns: tuple[int, ...]
    first: int
    prompt_pictures: tuple[Picture, ...] = ()
    own_pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Tree:
    """A stem, [start, fork), which may be empty, and the ends of its branches; the first branch begins at the fork."""

    start: int
    fork: int
    ends: tuple[int, ...]

    @property
    def branches(self) -> list[slice]:
        return [slice(start, end) for start, end in zip((self.fork, *self.ends), self.ends, strict=False)]


@dataclass(frozen=True)
class Forest:
    """
    Rows as one sequence of T tokens: what the model takes, (1, T) or (3, 1, T) for positions with three axes, the
    pictures in the order of their tokens, and the way back.
    """

    trees: tuple[Tree, ...]
    input_ids: torch.Tensor
    labels: torch.Tensor
    position_ids: torch.Tensor
    pictures: tuple[Picture, ...]
    rows: torch.Tensor  # (N,): row,
    columns: torch.Tensor  # (N,): column in the completions,
    places: torch.Tensor  # (N,): and place in the shifted sequence of each label

    def to(self, device: torch.device) -> "Forest":
        tensors = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, torch.Tensor)}
        return replace(self, **tensors)

    def inputs(self) -> dict:
        """What the model takes, but for pictures."""
        return {
            "input_ids": self.input_ids,
            "attention_mask": no_mask(self.input_ids.device),
            "position_ids": self.position_ids,
            "labels": self.labels,
            "trees": self.trees,
        }

    def lay_back(self, values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Values that are shifted by one, (1, T - 1), laid in their places in the completions of all rows, (B, C)."""
        return rows.index_put((self.rows, self.columns), values[0, self.places].to(rows.dtype))


def read_rows(
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    completion_length: int,
    pictures: Sequence[Sequence[Picture]],
    image_token: int | None,
) -> list[Row]:
    """
    The rows of a padded batch, (B, L), whose last `completion_length` columns are completions.

    Raises:
        `ValueError`: If the tokens of a row do not match its pictures.
    """
    split, rows = input_ids.shape[1] - completion_length, []
    for ids, mask, seen in zip(input_ids.tolist(), attention_mask.tolist(), pictures, strict=True):
        places = [i for i, real in enumerate(mask) if real]
        prompt = tuple(ids[i] for i in places if i < split)
        columns = tuple(i - split for i in places if i >= split)
        completion = tuple(ids[split + i] for i in columns)
        shown = first_pictures(seen, prompt.count(image_token))
        own = seen[len(shown) :]
        if own and sum(picture.tokens for picture in own) != completion.count(image_token):
            raise ValueError(
                f"a completion has {completion.count(image_token)} picture tokens, but its pictures have "
                f"{[picture.tokens for picture in own]}"
            )
        rows.append(Row(prompt, completion, columns, places[0] if places else 0, tuple(shown), tuple(own)))
    return rows


def first_pictures(pictures: Sequence[Picture], tokens: int) -> Sequence[Picture]:
    """The first pictures, as many as have so many tokens."""
    count = total = 0
    while count < len(pictures) and total < tokens:
        total += pictures[count].tokens
        count += 1
    if pictures and total != tokens:
        raise ValueError(f"a prompt has {tokens} picture tokens, but its pictures have {total}")
    return pictures[:count]


def group_rows(rows: Sequence[Row], image_token: int | None = None) -> list[list[int]]:
    """
    Numbers of the rows that share a prompt, in order of first appearance. Prompts are equal if their ids and their
    pictures are: two pictures have the same placeholders.
    """
    groups: dict[tuple, list[int]] = {}
    for number, row in enumerate(rows):
        # Every branch has the last prompt token. If it is a picture's, its feature would be needed as often.
        alone = number if row.prompt and row.prompt[-1] == image_token else None
        key = (row.prompt, tuple(picture.key for picture in row.prompt_pictures), alone)
        groups.setdefault(key, []).append(number)
    return list(groups.values())


def count_tokens(rows: Sequence[Row], group: Sequence[int]) -> int:
    """Distinct tokens of a group, which are those of its tree."""
    if len(group) == 1:
        return len(rows[group[0]].prompt) + len(rows[group[0]].completion)
    return len(rows[group[0]].prompt) - 1 + sum(1 + len(rows[number].completion) for number in group)


def split_groups(sizes: Sequence[int], limit: int) -> list[list[int]]:
    """Numbers of groups in chunks of at most `limit` tokens, in order; a larger group is a chunk of its own."""
    chunks: list[list[int]] = []
    room = 0
    for number, size in enumerate(sizes):
        if not chunks or size > room:
            chunks.append([])
            room = limit
        chunks[-1].append(number)
        room -= size
    return chunks


def pack(
    rows: Sequence[Row],
    groups: Sequence[Sequence[int]],
    rope: Callable[[Sequence[int], Sequence[Picture]], torch.Tensor] | None = None,
) -> Forest:
    """
    Groups of rows as one sequence.

    Args:
        rows (`Sequence[Row]`): All rows.
        groups (`Sequence[Sequence[int]]`): Numbers of the rows of each tree.
        rope (`Callable`, *optional*):
            Positions (3, n) of n token ids with these pictures; if not given, a token's position is its column.
    """
    ids, labels, positions, trees, pictures, back = [], [], [], [], [], []

    def append(tokens: Sequence[int], places: torch.Tensor, targets: Sequence[int]) -> None:
        ids.extend(tokens)
        positions.append(places)
        labels.extend([-100] * (len(tokens) - len(targets)) + list(targets))

    for group in groups:
        start, first = len(ids), rows[group[0]]
        prompt_positions = _prompt_positions(first, rope)
        pictures.extend(first.prompt_pictures)
        shared = len(first.prompt) - 1 if len(group) > 1 else 0
        append(first.prompt[:shared], prompt_positions[:, :shared], ())
        fork, ends = len(ids), []
        for number in group:
            row = rows[number]
            pictures.extend(row.own_pictures)
            begin = len(ids) + len(row.prompt) - shared  # of the completion; the shift takes one off
            back.extend((number, column, begin + i - 1) for i, column in enumerate(row.columns))
            own_positions = _own_positions(row, prompt_positions, rope)
            append(
                row.prompt[shared:] + row.completion,
                torch.cat([prompt_positions[:, shared:], own_positions], dim=1),
                row.completion,
            )
            ends.append(len(ids))
        trees.append(Tree(start, fork, tuple(ends)))

    position_ids = torch.cat(positions, dim=1)  # (axes, T)
    numbers, columns, places = torch.tensor(back, dtype=torch.long).reshape(-1, 3).T.contiguous()
    return Forest(
        trees=tuple(trees),
        input_ids=torch.tensor([ids]),
        labels=torch.tensor([labels]),
        position_ids=position_ids[:, None] if rope else position_ids,
        pictures=tuple(pictures),
        rows=numbers,
        columns=columns,
        places=places,
    )


def _prompt_positions(row: Row, rope) -> torch.Tensor:
    if rope is None:
        return torch.arange(row.first, row.first + len(row.prompt))[None]
    return rope(row.prompt, row.prompt_pictures)


def _own_positions(row: Row, prompt_positions: torch.Tensor, rope) -> torch.Tensor:
    if row.own_pictures and rope is not None:
        whole = rope(row.prompt + row.completion, row.prompt_pictures + row.own_pictures)
        return whole[:, len(row.prompt) :]
    following = prompt_positions.max() + 1 + torch.arange(len(row.completion))
    return following.expand(len(prompt_positions), -1)


def pack_conversations(
    ids: Sequence[Sequence[int]],
    learned: Sequence[Sequence[int]],
    pictures: Sequence[Sequence[Picture]],
    image_token: int,
    rope: Callable[[Sequence[int], Sequence[Picture]], torch.Tensor],
) -> Forest:
    """
    Rows of supervised fine-tuning as one sequence. What they all begin with, such as a system prompt, is their stem.

    Args:
        ids (`Sequence[Sequence[int]]`): Token ids of each row.
        learned (`Sequence[Sequence[int]]`): For each token 1 if it is a label, else 0.
        pictures (`Sequence[Sequence[Picture]]`): The pictures of each row, in the order of their tokens.
        image_token (`int`): The token that stands for a piece of a picture.
        rope (`Callable`): Positions (3, n) of n token ids with these pictures.
    """
    common = os.path.commonprefix([list(row) for row in ids])
    ends = [
        len(common),
        *(list(row).index(1) for row in learned if 1 in row),
        *(row.index(image_token) for row in ids if image_token in row),
    ]
    shared = max(1, min(ends))
    rows = [
        Row(tuple(row[:shared]), tuple(row[shared:]), tuple(range(len(row) - shared)), 0, (), tuple(seen))
        for row, seen in zip(ids, pictures, strict=True)
    ]
    forest = pack(rows, group_rows(rows), rope)
    is_label = torch.tensor([label for row in learned for label in row[shared:]], dtype=torch.bool)
    without = forest.places[~is_label] + 1
    return replace(forest, labels=forest.labels.index_fill(1, without, -100))


# ----------------------------------------------------------------------------------------------------------- attention


def obstacle(model: PreTrainedModel) -> str | None:
    """Why sequences of a model cannot be packed, in words; `None` if they can."""
    config = model.config.get_text_config()
    kinds = sorted(set(getattr(config, "layer_types", None) or []) - {"full_attention"})
    if kinds:
        return f"it has layers of {' and '.join(kinds)}"
    if getattr(config, "sliding_window", None) or getattr(config, "attention_chunk_size", None):
        return "its attention has windows"
    if not model._supports_attention_backend or config.is_encoder_decoder:
        return "its attention cannot be replaced"
    if not getattr(config, "rope_parameters", None):
        return "its positions are not rotary, and padding shifts them"
    if getattr(config, "attention_dropout", 0.0):
        return "its attention has dropout"
    if getattr(config, "output_router_logits", False):
        return "it has an auxiliary loss for its experts, which counts padded rows"
    return None


def no_mask(device: torch.device) -> torch.Tensor:
    """
    Stands where a mask would: one with four axes is passed on as it is, and none is made. A model that does not pass
    the trees on to its attention fails on it.
    """
    return torch.empty(0, 0, 0, 0, dtype=torch.bool, device=device)


def teach_forests(model: PreTrainedModel) -> None:
    """
    Gives the decoder of a model an attention that takes trees as the keyword `trees`, and is the model's own without
    them. It stays, since gradient checkpointing computes attention again in the backward pass.
    """
    text_config = model.config.get_text_config()
    configs = [module.__dict__.get("config") for module in model.modules()]
    for config in configs + [text_config]:
        own = config._attn_implementation if type(config) is type(text_config) else None
        if own is None or own.startswith(_NAME):
            continue
        AttentionInterface.register(_NAME + own, partial(forest_attention, own=own))
        AttentionMaskInterface.register(_NAME + own, ALL_MASK_ATTENTION_FUNCTIONS[own])
        config._attn_implementation = _NAME + own


_NAME = "forest_"


def forest_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    own: str,
    trees: tuple[Tree, ...] | None = None,
    scaling: float | None = None,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """
    Attention for `transformers`: by segments where there are trees, else that of the implementation `own`.

    Queries are (1, heads, T, D), keys and values (1, key heads, T, D), the result is (1, T, heads, D).
    """
    if trees is None:
        if attention_mask is not None and attention_mask.dim() == 4 and not attention_mask.numel():
            raise RuntimeError(
                f"{type(module).__name__} got a packed sequence without its trees: train it with `packing=False`"
            )
        eager = sys.modules[type(module).__module__].__dict__.get("eager_attention_forward")
        function = ALL_ATTENTION_FUNCTIONS.get_interface(own, eager)
        return function(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    for name in ("sliding_window", "softcap", "s_aux", "position_bias"):
        if kwargs.get(name) is not None:
            raise ValueError(f"packed sequences cannot have `{name}`, which {type(module).__name__} asks for")
    if kwargs.get("dropout"):
        raise ValueError(f"packed sequences cannot have attention dropout, got {kwargs['dropout']}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    if _kernels(query, value) is None:
        return _attend_by_branch(query, key, value, trees, scale), None
    return _ForestAttention.apply(query, key, value, trees, scale), None


def _attend_by_branch(query, key, value, trees, scale) -> torch.Tensor:
    """Each branch on the keys of stem and branch: for devices and sizes without a kernel that tells its sums."""
    groups = query.shape[1] // key.shape[1]
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    outputs = []
    for tree in trees:
        stem = slice(tree.start, tree.fork)
        if tree.fork > tree.start:
            q, k, v = query[:, :, stem], key[:, :, stem], value[:, :, stem]
            outputs.append(scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale))
        for branch in tree.branches:
            q = query[:, :, branch]
            k, v = (torch.cat([x[:, :, stem], x[:, :, branch]], dim=2) for x in (key, value))
            mask = causal_lower_right(q.shape[2], k.shape[2])
            outputs.append(scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale))
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous()


class _ForestAttention(torch.autograd.Function):
    """
    Attention by segments: the stem on itself, each branch on itself, and all branches at once on their stem. The two
    parts of a branch are put together by the sums under their softmaxes; a kernel's backward pass needs no more than
    these sums and the whole output to give the gradients of a part. So keys of a stem are neither copied nor masked.
    """

    @staticmethod
    def forward(ctx, query, key, value, trees, scale):
        forward, _ = _kernels(query, value)
        q, k, v = _by_key_head(query, key, value)
        output = query.new_empty(1, query.shape[2], query.shape[1], query.shape[3])
        o = _as_key_heads(output, len(k))
        sums = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)  # (key heads, groups, T)
        for tree in trees:
            stem, crown = slice(tree.start, tree.fork), slice(tree.fork, tree.ends[-1])
            for part in (stem, *tree.branches):
                if part.stop > part.start:
                    o[:, :, part], sums[:, :, part] = forward(q[:, :, part], k[:, :, part], v[:, :, part], True, scale)
            if tree.fork > tree.start:
                shared, shared_sums = forward(q[:, :, crown], k[:, :, stem], v[:, :, stem], False, scale)
                weight = torch.sigmoid(shared_sums - sums[:, :, crown])[..., None]
                own = o[:, :, crown].float()
                o[:, :, crown] = (own + weight * (shared.float() - own)).to(o.dtype)
                sums[:, :, crown] = torch.logaddexp(shared_sums, sums[:, :, crown])
        ctx.save_for_backward(query, key, value, output, sums)
        ctx.trees, ctx.scale = trees, scale
        return output

    @staticmethod
    def backward(ctx, grad):
        query, key, value, output, sums = ctx.saved_tensors
        _, backward = _kernels(query, value)
        q, k, v = _by_key_head(query, key, value)
        o, g = _as_key_heads(output, len(k)), _as_key_heads(grad.contiguous(), len(k))
        dq, dk, dv = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        q_grad = dq[0].unflatten(0, (len(k), -1))  # (key heads, groups, T, D)

        def part(queries: slice, keys: slice, causal: bool) -> tuple[torch.Tensor, ...]:
            grads = backward(
                g[:, :, queries],
                q[:, :, queries],
                k[:, :, keys],
                v[:, :, keys],
                o[:, :, queries],
                sums[:, :, queries],
                causal,
                ctx.scale,
            )
            return grads[0], grads[1].sum(1), grads[2].sum(1)

        for tree in ctx.trees:
            stem, crown = slice(tree.start, tree.fork), slice(tree.fork, tree.ends[-1])
            for own in (stem, *tree.branches):
                if own.stop > own.start:
                    q_grad[:, :, own], dk[0, :, own], dv[0, :, own] = part(own, own, True)
            if tree.fork > tree.start:
                for total, share in zip(
                    (q_grad[:, :, crown], dk[0, :, stem], dv[0, :, stem]), part(crown, stem, False), strict=True
                ):
                    total += share
        return dq, dk, dv, None, None


def _by_key_head(query, key, value) -> tuple[torch.Tensor, ...]:
    """All as (key heads, queries per key head, T, D). Keys and values are not copied for it."""
    groups = query.shape[1] // key.shape[1]
    q = query[0].unflatten(0, (key.shape[1], groups))
    return q, key[0][:, None].expand(-1, groups, -1, -1), value[0][:, None].expand(-1, groups, -1, -1)


def _as_key_heads(output: torch.Tensor, heads: int) -> torch.Tensor:
    """A view of (1, T, all heads, D) as (key heads, queries per key head, T, D)."""
    return output[0].unflatten(1, (heads, -1)).permute(1, 2, 0, 3)


def _kernels(query: torch.Tensor, value: torch.Tensor) -> tuple[Callable, Callable] | None:
    """Kernels for attention that also give the logarithm of the sums under their softmaxes, if there are any."""
    size = query.shape[-1]
    if size != value.shape[-1]:
        return None
    if query.device.type == "cpu":
        return _cpu_forward, _cpu_backward
    half = query.dtype in (torch.float16, torch.bfloat16)
    if query.device.type == "cuda" and half and size % 8 == 0 and size <= 256:
        return _cuda_forward, _cuda_backward
    return None


def _cpu_forward(q, k, v, causal, scale):
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, scale=scale)


def _cpu_backward(grad, q, k, v, output, sums, causal, scale):
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad, q, k, v, output, sums, 0.0, causal, scale=scale
    )


def _cuda_forward(q, k, v, causal, scale):
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, scale=scale)[:2]


def _cuda_backward(grad, q, k, v, output, sums, causal, scale):
    seed = torch.empty(2, dtype=torch.uint64, device=q.device)  # of a dropout that there is not
    offset = torch.empty((), dtype=torch.uint64, device=q.device)
    return torch.ops.aten._scaled_dot_product_flash_attention_backward(
        grad,
        q,
        k,
        v,
        output,
        sums.contiguous(),
        None,
        None,
        q.shape[2],
        k.shape[2],
        0.0,
        causal,
        seed,
        offset,
        scale=scale,
    )
