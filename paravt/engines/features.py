"""Pictures as what the model takes: each processed once, however often it is used."""

from collections.abc import Sequence
from contextlib import contextmanager

import torch
from transformers import BatchFeature


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
