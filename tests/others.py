"""Tiny models of other families than the toy world's, with random weights: text alone, SmolVLM, Gemma 3, Qwen."""

from importlib.resources import files
from unittest.mock import patch

from tokenizers import AddedToken
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3ImageProcessor,
    Gemma3Processor,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
    SmolVLMImageProcessor,
    SmolVLMProcessor,
    SmolVLMVideoProcessor,
    set_seed,
)


TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 1024,
}
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
SIDE, PATCH, SCALE = 32, 8, 2  # pixels of a picture and of a patch; patches that become one token, by side
IMAGE_TOKENS = (SIDE // PATCH // SCALE) ** 2
PIXELS = {"do_resize": True, "do_convert_rgb": True}


def _template(name: str) -> str:
    return files("trl").joinpath(f"chat_templates/{name}.jinja").read_text()


def _tokenizer(toy_tokenizer, *tokens: str, **named: str) -> PreTrainedTokenizerFast:
    """The toy tokenizer with some more tokens, those in `named` under their names."""
    copied = type(toy_tokenizer._tokenizer).from_str(toy_tokenizer._tokenizer.to_str())
    copied.add_special_tokens([AddedToken(token, special=True) for token in (*tokens, *named.values())])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=copied,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        extra_special_tokens=named,
    )
    return tokenizer


def text_model(toy_tokenizer):
    """A Qwen3 and its tokenizer."""
    tokenizer = _tokenizer(toy_tokenizer)
    tokenizer.chat_template = _template("qwen3")
    set_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), **TEXT)), tokenizer


def mixture_of_experts(toy_tokenizer):
    """A Qwen3 with experts and a router, and its tokenizer."""
    _, tokenizer = text_model(toy_tokenizer)
    set_seed(0)
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(vocab_size=len(tokenizer), **TEXT, **experts)), tokenizer


def smolvlm(toy_tokenizer):
    """A SmolVLM and its processor."""
    tokens = ("<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>", "<video>")
    tokenizer = _tokenizer(toy_tokenizer, *tokens)
    sizes = {"size": {"longest_edge": SIDE}, "max_image_size": {"longest_edge": SIDE}, **PIXELS}
    # It asks for a package that spells out the number of a video's frames. There is no video here.
    with patch("transformers.models.smolvlm.processing_smolvlm.num2words", str):
        processor = SmolVLMProcessor(
            SmolVLMImageProcessor(do_image_splitting=False, **sizes),
            tokenizer,
            SmolVLMVideoProcessor(**sizes),
            image_seq_len=IMAGE_TOKENS,
            chat_template=_template("smolvlm"),
        )
    set_seed(0)
    config = SmolVLMConfig(
        text_config={"model_type": "llama", "vocab_size": len(tokenizer), "pad_token_id": 0, **TEXT},
        vision_config={"image_size": SIDE, "patch_size": PATCH, **VISION},
        scale_factor=SCALE,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        pad_token_id=0,
    )
    return SmolVLMForConditionalGeneration(config), processor


def gemma3(toy_tokenizer):
    """A Gemma 3 and its processor."""
    named = {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
    tokenizer = _tokenizer(toy_tokenizer, "<start_of_turn>", "<end_of_turn>", **named)
    processor = Gemma3Processor(
        Gemma3ImageProcessor(size={"height": SIDE, "width": SIDE}, **PIXELS),
        tokenizer,
        chat_template=_template("gemma3"),
        image_seq_length=IMAGE_TOKENS,
    )
    set_seed(0)
    ids = {
        f"{name.split('_')[0]}_token_index": tokenizer.convert_tokens_to_ids(token) for name, token in named.items()
    }
    config = Gemma3Config(
        text_config={"vocab_size": len(tokenizer), "sliding_window": 64, **TEXT},
        vision_config={"image_size": SIDE, "patch_size": PATCH, **VISION},
        mm_tokens_per_image=IMAGE_TOKENS,
        **ids,
    )
    return Gemma3ForConditionalGeneration(config), processor


def qwen(family: str, processor):
    """A vision-language model of one of Qwen's families for the toy world's processor."""
    token = processor.tokenizer.convert_tokens_to_ids
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [8, 4, 4]}
    interleaved = {"mrope_interleaved": True} if "qwen3" in family else {}
    experts = {"decoder_sparse_step": 1, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    text = {
        "vocab_size": len(processor.tokenizer), "hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "initializer_range": 0.07,
        "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2, "rope_parameters": {**rope, **interleaved},
        **(experts if "moe" in family else {}),
    }  # fmt: skip
    vision = {
        "depth": 2, "num_heads": 2, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2,
        "in_channels": 3, "initializer_range": 0.07,
    } | {
        "qwen2_vl": {"embed_dim": 32, "hidden_size": 128, "mlp_ratio": 2},
        "qwen2_5_vl": {
            "hidden_size": 32, "out_hidden_size": 128, "intermediate_size": 64, "window_size": 64,
            "fullatt_block_indexes": [1],
        },
        "qwen3_vl_moe": {
            "hidden_size": 32, "out_hidden_size": 128, "intermediate_size": 64, "deepstack_visual_indexes": [0],
            "num_position_embeddings": 16,
        },
    }[family]  # fmt: skip
    config = AutoConfig.for_model(
        family, text_config=text, vision_config=vision,
        image_token_id=token("<|image_pad|>"), video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"), vision_end_token_id=token("<|vision_end|>"),
    )  # fmt: skip
    set_seed(0)
    return AutoModelForImageTextToText.from_config(config)
