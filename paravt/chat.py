"""Messages to token ids, one way only: what was sampled is never rendered again."""

import inspect
import re
from collections.abc import Iterable

from transformers import PreTrainedTokenizerBase

from .prompts import THINK_PREFIX
from .video.timeline import MULTIPLE


# What the tokenizer itself does with a conversation, rather than its template.
_TAKEN = inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters.keys() - {"self", "kwargs"}


def _any_of(texts: Iterable[str]) -> re.Pattern:
    """A pattern for any of the texts, or for nothing; the longest first, so that none is read as a part of another."""
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or "(?!)")


def _strip(tokens: re.Pattern, text: str) -> str:
    while tokens.search(text):  # what is left may come together to one
        text = tokens.sub("", text)
    return text


class Chat:
    """
    The chat template of a vision-language model as token segments: a prompt, the think prefix, and what stands between
    two assistant turns.

    Args:
        processor ([`~transformers.ProcessorMixin`]):
            Processor with an image processor and a chat template that leaves earlier turns as they are.
        think_prefix (`bool`, *optional*, defaults to `True`):
            Whether `<think>` is placed at the start of every assistant turn.
        template_kwargs (`dict`, *optional*):
            Arguments of the chat template.
    """

    def __init__(self, processor, think_prefix: bool = True, template_kwargs: dict | None = None):
        self.processor, self.tokenizer = processor, processor.tokenizer
        self.template_kwargs = template_kwargs or {}
        self.prefix_text = THINK_PREFIX if think_prefix else ""
        self.prefix = self.tokenize(self.prefix_text)
        self.image_token = processor.image_token
        added = self.tokenizer.added_tokens_decoder.values()
        self._control = _any_of(token.content for token in added if token.special)
        self._added = _any_of(token.content for token in added)

    def check(self) -> None:
        """
        Raises a `ValueError` if the chat template has ways of its own with thoughts or with earlier turns, or if its
        arguments are not the template's.
        """
        taken = sorted(self.template_kwargs.keys() & _TAKEN)
        if taken:
            raise ValueError(
                f"`chat_template_kwargs` must not have {taken}: they are for variables of the template, and the tool "
                "stands in the system prompt"
            )
        asked = [{"role": "user", "content": "a"}]
        before, after = self._render(asked), self._render(asked, add_generation_prompt=True)
        opening = after.removeprefix(before)
        if re.search(r"<think>\s*</think>", opening):
            raise ValueError(
                "the chat template begins each turn with an empty think block, so that no turn can think: pass "
                "`chat_template_kwargs` that let it think, such as {'enable_thinking': true}, or use another template"
            )
        if "<think>" in opening and self.prefix_text:
            raise ValueError(
                "the chat template begins each turn with <think>, and `think_prefix` would place a second one: set "
                "`think_prefix` to false"
            )
        self.ids_between_turns([{"role": "tool", "name": "crop_video", "content": "c"}])

    def _render(self, messages: list[dict], **kwargs) -> str:
        return self.processor.apply_chat_template(messages, tokenize=False, **kwargs, **self.template_kwargs)

    def tokenize(self, text: str) -> list[int]:
        """Ids of a text, without tokens that a tokenizer adds around it."""
        return self.tokenizer(text, add_special_tokens=False)["input_ids"] if text else []

    def strip_control_tokens(self, text: str) -> str:
        """A prompt without image placeholders and the like. Tags that it may speak of stay, such as `<think>`."""
        return _strip(self._control, text)

    def strip_added_tokens(self, text: str) -> str:
        """A text without anything that would become an added token: no control token, no tag such as `<think>`."""
        return _strip(self._added, text)

    def image_tokens(self, image) -> int:
        """Visual tokens of an image, from its size alone."""
        processor = self.processor.image_processor
        width, height = image.size
        return processor.get_number_of_image_patches(height, width, {}) // processor.merge_size**2

    def prompt(self, messages: list[dict]) -> tuple[list[int], list]:
        """Ids of a conversation that ends before an assistant turn, each image expanded, and its images in order."""
        images = [
            part["image"]
            for message in messages
            if isinstance(message["content"], list)
            for part in message["content"]
            if part["type"] == "image"
        ]
        text = self._render(messages, add_generation_prompt=True)
        pieces = text.split(self.image_token)
        if len(pieces) != len(images) + 1:
            raise ValueError(f"the prompt has {len(pieces) - 1} image placeholders but {len(images)} images")
        expanded = [self.image_token * self.image_tokens(image) for image in images]
        text = "".join(piece + image for piece, image in zip(pieces, [*expanded, ""], strict=True))
        return self.tokenize(text), images

    def ids_between_turns(self, messages: list[dict]) -> list[int]:
        """
        Ids from the end of an assistant turn, its end token excluded, to the start of the next, with `messages` (tool
        or user) between them: what the template adds to a dummy conversation when they are appended.
        """
        dummy = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        before = self._render(dummy)
        after = self._render(dummy + messages, add_generation_prompt=True)
        turn_end = before.rindex("b") + 1
        if after[:turn_end] != before[:turn_end]:
            raise ValueError("the chat template changes earlier turns; use one that leaves them as they are")
        suffix = after[turn_end:]
        end = self.tokenizer.eos_token
        if not suffix.startswith(end):
            raise ValueError(f"the chat template does not end an assistant turn with {end!r}")
        return self.tokenize(suffix[len(end) :])


def prepare_processor(processor, max_pixels: int):
    """Sets a processor up for frames that are already sized: padding on the left, and no second resize."""
    image_processor = processor.image_processor
    missing = {"patch_size", "merge_size"} - image_processor.to_dict().keys()
    if missing:
        raise ValueError(
            f"frames are sized for image processors of Qwen's kind; {type(image_processor).__name__} has no "
            f"{' and no '.join(sorted(missing))}"
        )
    processor.tokenizer.padding_side = "left"
    factor = image_processor.patch_size * image_processor.merge_size
    if MULTIPLE % factor:
        raise ValueError(f"frames have sides of multiples of {MULTIPLE} pixels, but the model needs {factor}")
    size = {"shortest_edge": factor * factor, "longest_edge": max(max_pixels, MULTIPLE * MULTIPLE)}
    image_processor.size = type(image_processor.size)(**size)
    return processor
