"""Pictures as what the model takes: each processed once, and seen by the tower once, however often it is used."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from unittest.mock import patch

import torch
import transformers
from packaging.version import Version
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper
from PIL import Image
from transformers import BatchFeature
from transformers.utils import ModelOutput


FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")  # models that a `Tower` knows
PATCHES = 2**15  # that go through a tower at a time; a frame of 224 x 224 pixels has 196
DEVICE_LIMIT = 2 * 2**30  # bytes of features on the device; what is more waits on the host
# Since then models take features of DeepStack's levels picture by picture, as they take those of the last.
_LEVELS_BY_PICTURE = Version(transformers.__version__) >= Version("5.18")


def image_features(image_processor, images: Sequence) -> dict[str, torch.Tensor]:
    """`pixel_values` and `image_grid_thw` of the images in order. Lazy frames are processed once in their lives."""
    fresh = [i for i in {id(i): i for i in images}.values() if getattr(i, "features", None) is None]
    if fresh:
        out = image_processor(images=fresh, return_tensors="pt")
        rows = out["pixel_values"].split(out["image_grid_thw"].prod(-1).tolist())
        features = {id(i): f for i, f in zip(fresh, zip(rows, out["image_grid_thw"], strict=True), strict=True)}
    else:
        features = {}
    for image in fresh:
        if isinstance(getattr(image, "number", None), int):  # a lazy frame
            image.features = features[id(image)]
    found = [features.get(id(i)) or i.features for i in images]
    return {"pixel_values": torch.cat([f[0] for f in found]), "image_grid_thw": torch.stack([f[1] for f in found])}


class _CachedImageProcessor:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def __call__(self, images, **kwargs):
        flat = [i for item in images for i in (item or [])] if isinstance(images[0], (list, tuple)) else images
        return BatchFeature(image_features(self.inner, flat))


@contextmanager
def reuse_features(processor):
    """Within it the processor does not process a frame again that it has processed before."""
    inner = processor.image_processor
    processor.image_processor = _CachedImageProcessor(inner)
    try:
        yield
    finally:
        processor.image_processor = inner


@dataclass(frozen=True)
class Picture:
    """A picture as a model's input: what tells it from all others, its grid of patches, and its tokens."""

    key: bytes
    grid: tuple[int, int, int]  # time, height, width
    tokens: int


@dataclass
class Features(ModelOutput):
    """What `get_image_features` returns: features of each picture, (n, D), and those at each level of DeepStack."""

    pooler_output: tuple[torch.Tensor, ...] | None = None
    deepstack_features: list[tuple[torch.Tensor, ...]] | list[torch.Tensor] | None = None

    @classmethod
    def of(cls, levels: Iterable[tuple[torch.Tensor, ...]]) -> "Features":
        """From features of each picture at each level, the last level first."""
        pooled, *deepstack = levels
        return cls(pooled, deepstack if _LEVELS_BY_PICTURE else [torch.cat(level) for level in deepstack])


class Tower:
    """
    The vision tower of a model. A frozen one sees each distinct picture once, until [`Tower.forget`]; one that is
    trained, once in every pass. Features enter through the model's own forward, in the place of its
    `get_image_features`, so that all its hooks run.

    Args:
        model ([`~transformers.PreTrainedModel`]):
            The whole model, of one of `FAMILIES`.
        image_processor:
            Its image processor.
        group ([`~accelerate.Accelerator`], *optional*):
            Ranks that share a sharded tower. They run it together, so who has no picture lets it see a blank one.
        autocast (`Callable`, *optional*):
            Returns the context in which a frozen tower runs.
        limit (`int`, *optional*, defaults to 2 GiB):
            Bytes of features that stay on the device; others wait on the host.
        twin (`Tower`, *optional*):
            A tower that has looked at the pictures. With the same weights what it has seen is seen.
        same_weights (`bool`, *optional*, defaults to `False`):
            Whether the twin's weights are these.
    """

    def __init__(
        self,
        model,
        image_processor,
        group=None,
        autocast: Callable[[], AbstractContextManager] = nullcontext,
        limit: int = DEVICE_LIMIT,
        twin: "Tower | None" = None,
        same_weights: bool = False,
    ):
        self.model, self.inner, self.image_processor = model, model.base_model, image_processor
        self.group, self.autocast, self.limit = group, autocast, limit
        self.image_token = model.config.image_token_id
        self._run = self.inner.get_image_features
        self._pixels: dict[bytes, torch.Tensor] = twin._pixels if twin else {}
        # Features of pictures, the last and those of the levels of DeepStack, (n, D) each.
        self._seen: dict[bytes, list[torch.Tensor]] = twin._seen if same_weights else {}
        self._judge = twin._judge if same_weights else self.inner.visual
        self._keeps_pixels = False
        if twin and not same_weights:
            twin._keeps_pixels = self._keeps_pixels = True

    @property
    def frozen(self) -> bool:
        # An adapter looks frozen while it is switched off, and then the tower is another.
        adapters = any(
            isinstance(module, (BaseTunerLayer, AuxiliaryTrainingWrapper)) for module in self._judge.modules()
        )
        return not adapters and not any(param.requires_grad for param in self._judge.parameters())

    def look(self, images: Sequence[Sequence]) -> list[list[Picture]]:
        """The pictures of the images of each row, processed once each. Equal pixels are one picture."""
        distinct = list({id(image): image for row in images for image in row}.values())
        if not distinct:
            return [[] for _ in images]
        features = image_features(self.image_processor, distinct)
        pictures = self.look_at(features["pixel_values"], features["image_grid_thw"])
        found = {id(image): picture for image, picture in zip(distinct, pictures, strict=True)}
        return [[found[id(image)] for image in row] for row in images]

    def look_at(self, pixel_values: torch.Tensor, image_grid_thw: torch.Tensor) -> list[Picture]:
        """The pictures of processed pixels, (patches, values), with a grid each."""
        merged, pictures = self.model.config.vision_config.spatial_merge_size**2, []
        for pixels, grid in zip(pixel_values.split(image_grid_thw.prod(-1).tolist()), image_grid_thw, strict=True):
            grid = tuple(grid.tolist())
            digest = hashlib.blake2b(repr(grid).encode(), digest_size=16)
            digest.update(pixels.detach().cpu().contiguous().view(torch.uint8).numpy())
            picture = Picture(digest.digest(), grid, len(pixels) // merged)
            if picture.key not in self._seen or self._keeps_pixels:
                self._pixels.setdefault(picture.key, pixels)
            pictures.append(picture)
        return pictures

    def rope(self, ids: Sequence[int], pictures: Sequence[Picture]) -> torch.Tensor:
        """Positions (3, n) of n token ids with these pictures."""
        ids = torch.tensor([ids])
        grids = torch.tensor([picture.grid for picture in pictures]) if pictures else None
        kinds = (ids == self.image_token).long() if pictures else torch.zeros_like(ids)
        return self.inner.get_rope_index(ids, mm_token_type_ids=kinds, image_grid_thw=grids)[0][:, 0]

    @contextmanager
    def showing(self, pictures: Sequence[Picture]) -> Iterator[dict[str, torch.Tensor]]:
        """
        Within it the model's forward takes the features of these pictures, in this order. It yields the argument that
        makes the forward ask for them.
        """
        ask = {"pixel_values": torch.empty(0, device=self.model.device)} if pictures or self.group is not None else {}
        with self._serving(lambda *args, **kwargs: self._show(pictures)):
            yield ask

    @contextmanager
    def remembering(self, group=None) -> Iterator[None]:
        """
        Within it a frozen tower does not see again what it has seen, whoever calls the model: the ranks of `group`
        together, or each on its own, as where whole weights are gathered to generate.
        """

        def show(pixel_values, image_grid_thw=None, **kwargs):
            return self._show(self.look_at(pixel_values, image_grid_thw))

        with patch.object(self, "group", group), self._serving(show) if self.frozen else nullcontext():
            yield

    @contextmanager
    def one_pass(self) -> Iterator[None]:
        """A pass over rows, in several parts. What a tower that is trained has seen in it is forgotten."""
        yield
        if not self.frozen:
            self._seen.clear()

    @property
    def kept(self) -> int:
        """Number of pictures of which there is anything."""
        return len(self._pixels.keys() | self._seen.keys())

    def state_dict(self) -> dict[str, dict]:
        """What is kept, by the keys of pictures: pixels, and features."""
        return {"pixels": dict(self._pixels), "features": dict(self._seen)}

    def load_state_dict(self, state: dict[str, dict]) -> None:
        """Keeps what a tower with the same weights has kept."""
        self._pixels.update(state["pixels"])
        for key, levels in state["features"].items():
            self._seen[key] = [self._placed(level.to(self.model.device)) for level in levels]

    def forget(self, but: Iterable[Picture] = ()) -> None:
        """Frees features and pixels, but those of some pictures."""
        kept = {picture.key for picture in but}
        for found in (self._pixels, self._seen):
            for key in found.keys() - kept:
                del found[key]

    def _serving(self, features: Callable) -> AbstractContextManager:
        return patch.object(self.inner, "get_image_features", features)

    def _show(self, pictures: Sequence[Picture]) -> Features:
        """The features of the pictures, one after the other."""
        distinct = list(dict.fromkeys(pictures))
        if self.frozen or not torch.is_grad_enabled():
            self._see(distinct)
            seen = self._seen
        else:
            seen = self._run_on(distinct or [self._blank()]) if distinct or self.group is not None else {}
        device = self.model.device
        if not pictures:  # a blank one may have been seen for company's sake: nothing of it is left
            width = self.model.config.get_text_config().hidden_size
            levels = next(iter(seen.values()), [torch.empty(0, width, device=device)])
            return Features.of((level[:0].to(device),) for level in levels)
        levels = zip(*(seen[picture.key] for picture in pictures), strict=True)
        return Features.of(tuple(part.to(device) for part in level) for level in levels)

    def _see(self, pictures: Sequence[Picture]) -> None:
        """Runs the tower on those of the pictures that it has not seen, and keeps what comes out."""
        runs = _portions([picture for picture in pictures if picture.key not in self._seen])
        if self.group is not None:
            counts = self.group.gather(torch.tensor([len(runs)], device=self.group.device))
            while len(runs) < counts.max():
                runs.append([self._blank()])
        for portion in runs:
            with torch.no_grad(), self.autocast():
                features = self._run_on(portion)
            for key, levels in features.items():
                self._seen[key] = [self._placed(level.to(self.model.dtype)) for level in levels]
                if self.frozen and not self._keeps_pixels:
                    self._pixels.pop(key, None)

    def _run_on(self, pictures: Sequence[Picture]) -> dict[bytes, list[torch.Tensor]]:
        """Features of the pictures, and those of DeepStack's levels."""
        pixels = torch.cat([self._pixels[picture.key] for picture in pictures]).to(self.model.device)
        grids = torch.tensor([picture.grid for picture in pictures], device=self.model.device)
        out = self._run(pixels, grids, return_dict=True)
        deepstack = out.get("deepstack_features") or []
        if not _LEVELS_BY_PICTURE:
            deepstack = [level.split([picture.tokens for picture in pictures]) for level in deepstack]
        parts = zip(out.pooler_output, *deepstack, strict=True)
        return {picture.key: list(part) for picture, part in zip(pictures, parts, strict=True)}

    def _placed(self, level: torch.Tensor) -> torch.Tensor:
        """On the device as long as there is room."""
        kept = sum(part.nbytes for levels in self._seen.values() for part in levels if part.device == level.device)
        return level if kept + level.nbytes <= self.limit else level.cpu()

    def _blank(self) -> Picture:
        side = self.image_processor.patch_size * self.image_processor.merge_size
        return self.look([[Image.new("RGB", (side, side))]])[0][0]


def _portions(pictures: Sequence[Picture]) -> list[list[Picture]]:
    """The pictures in lists of at most `PATCHES` patches, or of one picture."""
    portions, room = [], 0
    for picture in pictures:
        patches = picture.grid[0] * picture.grid[1] * picture.grid[2]
        if not portions or patches > room:
            portions.append([])
            room = PATCHES
        portions[-1].append(picture)
        room -= patches
    return portions
