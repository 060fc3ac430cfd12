"""Beginnings of conversations that a model has read and need not read again: their keys and values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer


ROOM = 128  # tokens


def can_be_cut(model) -> bool:
    """Whether a model keeps of each token what is the token's alone. With windows and recurrent states it does not."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)


class GrowingLayer(DynamicLayer):
    """A layer with room for some tokens to come, so that what it has is not copied for each of them."""

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self._buffers = [key_states[:, :, :0], value_states[:, :, :0]]  # (B, heads, tokens and room, head_dim)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        stop = start + key_states.shape[-2]
        for i, states in enumerate((key_states, value_states)):
            if self._buffers[i].shape[2] < stop:
                old = self._buffers[i][:, :, :start]
                self._buffers[i] = states.new_empty(*states.shape[:2], stop + ROOM, states.shape[3])
                self._buffers[i][:, :, :start] = old
            self._buffers[i][:, :, start:stop] = states
        self.keys, self.values = (buffer[:, :, :stop] for buffer in self._buffers)
        return self.keys, self.values


def growing_cache(model) -> Cache:
    """An empty cache for a model that [`can_be_cut`]."""
    return Cache(layers=[GrowingLayer() for _ in DynamicCache(config=model.config).layers])


@dataclass(frozen=True, eq=False)
class Segment:
    """Keys and values of consecutive tokens of a conversation, each (heads, tokens, head_dim), for each layer."""

    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    @classmethod
    def of_row(cls, cache: Cache, row: int) -> "Segment":
        return cls(tuple((layer.keys[row], layer.values[row]) for layer in cache.layers))

    def __len__(self) -> int:
        return self.layers[0][0].shape[1]

    def part(self, start: int, stop: int) -> "Segment":
        return Segment(tuple((keys[:, start:stop], values[:, start:stop]) for keys, values in self.layers))

    def copied(self) -> "Segment":
        """With memory of its own, so that what it is a part of can go."""
        return Segment(tuple((keys.clone(), values.clone()) for keys, values in self.layers))

    @property
    def nbytes(self) -> int:
        return sum(keys.nbytes + values.nbytes for keys, values in self.layers)


@dataclass(frozen=True, eq=False)
class Prefix:
    """
    The first tokens of a conversation, as a model has read them. Those that begin alike share segments.

    `offset` is what Qwen's models add to a token's place behind pictures to have its position.
    """

    ids: np.ndarray
    images: list
    offset: int
    segments: tuple[Segment, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def then(self, ids: Sequence[int], segment: Segment) -> "Prefix":
        """With the ids of tokens that follow, and their segment."""
        return replace(self, ids=np.append(self.ids, ids), segments=(*self.segments, segment))

    def first(self, length: int) -> "Prefix":
        segments, room = [], length
        for segment in self.segments:
            if room > 0:
                segments.append(segment if len(segment) <= room else segment.part(0, room).copied())
                room -= len(segment)
        return replace(self, ids=self.ids[:length], segments=tuple(segments))

    def copied(self) -> "Prefix":
        return replace(self, segments=tuple(segment.copied() for segment in self.segments))

    def common(self, ids: np.ndarray) -> int:
        """With how many of its tokens other ids begin."""
        length = min(len(self.ids), len(ids))
        differing = np.flatnonzero(self.ids[:length] != ids[:length])
        return int(differing[0]) if len(differing) else length


def fill(cache: Cache, prefixes: Sequence[Prefix]) -> None:
    """Fills the empty cache of a batch whose rows begin with these prefixes, padded on the left."""
    width = max(map(len, prefixes))

    def stacked(layer: int, kind: int) -> torch.Tensor:  # (B, heads, width, head_dim)
        like = prefixes[0].segments[0].layers[layer][kind]
        out = like.new_zeros(len(prefixes), like.shape[0], width, like.shape[2])
        for row, prefix in zip(out, prefixes, strict=True):
            start = width - len(prefix)
            for segment in prefix.segments:
                row[:, start : start + len(segment)] = segment.layers[layer][kind]
                start += len(segment)
        return out

    for number, layer in enumerate(cache.layers):
        layer.update(stacked(number, 0), stacked(number, 1))


class PrefixCache:
    """
    What a model has read of conversations that go on, up to `limit` bytes. Of one for which there was no room there is
    what it has in common with another.
    """

    def __init__(self, limit: int):
        self.limit, self._kept = limit, []

    def take(self, prompts: Sequence[list[int]], images: Sequence[list], image_token: int) -> list[Prefix | None]:
        """The longest prefix of each prompt. What is taken is no longer kept, and what nobody takes is given up."""
        found = [self._longest(np.array(ids), row, image_token) for ids, row in zip(prompts, images, strict=True)]
        self._kept = []
        return found

    def _longest(self, ids: np.ndarray, images: list, image_token: int) -> Prefix | None:
        pictures = np.flatnonzero(ids == image_token) if images else []
        least = pictures[-1] + 1 if len(pictures) else 1  # the tower sees all pictures of a prompt, or none
        found, length = None, 0
        for prefix in self._kept:
            if list(map(id, prefix.images)) == list(map(id, images)):
                common = min(prefix.common(ids), len(ids) - 1)  # what follows the last token is wanted: it is read
                if common >= least and common > length:
                    found, length = prefix, common
        return found and found.first(length)

    def keep(self, prefix: Prefix, beside: Iterable[Prefix]) -> None:
        """Keeps it if there is room for it, and for those that are in use beside it."""
        segments = {segment for each in (*self._kept, *beside, prefix) for segment in each.segments}
        if sum(segment.nbytes for segment in segments) <= self.limit:
            self._kept.append(prefix)
