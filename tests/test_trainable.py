import re
import warnings

import others
import pytest
from peft import LoraConfig, PrefixTuningConfig, get_peft_model
from torch import nn

from paravt import toy
from paravt.trainable import freeze_vision, language_layers, warn_of_dropout, with_targets


def qwen(tokenizer):
    return toy.make_model(toy.make_processor(["a b c"] * 4)), None


# What each architecture calls its language model, and how many linear layers the tiny one has: 7 in each of 2 blocks.
FAMILIES = [
    (qwen, "model.language_model."),
    (others.smolvlm, "model.text_model."),
    (others.gemma3, "model.language_model."),
    (others.text_model, "model.layers."),
]


@pytest.fixture(params=FAMILIES, ids=lambda family: family[0].__name__)
def family(request, toy_processor):
    make, prefix = request.param
    return make(toy_processor.tokenizer)[0], prefix


class TestLanguageLayers:
    def test_those_of_the_language_model_and_no_others(self, family):
        model, prefix = family
        found = [name for name, _ in model.named_modules() if re.fullmatch(language_layers(model), name)]
        assert len(found) == 14 and all(name.startswith(prefix) for name in found)
        adapted = get_peft_model(model, with_targets(LoraConfig(r=2), model))
        trained = [name for name, p in adapted.named_parameters() if p.requires_grad]
        assert len(trained) == 28 and all(f".{prefix}" in name and "lora_" in name for name in trained)

    def test_quantised_layers_count(self, toy_processor):
        class QuantLinear(nn.Module):
            """As the quantisation libraries have them: no relative of `nn.Linear`."""

        model, _ = others.text_model(toy_processor.tokenizer)
        layer = model.model.layers[0]
        layer.mlp.odd_proj = QuantLinear()
        assert re.fullmatch(language_layers(model), "model.layers.0.mlp.odd_proj")
        assert not re.fullmatch(language_layers(model), "model.layers.0.input_layernorm")

    def test_by_name_without_weights(self, toy_checkpoint):
        config = with_targets(LoraConfig(r=2), toy_checkpoint)
        assert config.target_modules == language_layers(qwen(None)[0])

    def test_what_is_named_stays(self, toy_checkpoint):
        for named in (LoraConfig(target_modules=["q_proj"]), PrefixTuningConfig(num_virtual_tokens=2), None):
            assert with_targets(named, toy_checkpoint) is named
        asked = LoraConfig()
        assert with_targets(asked, toy_checkpoint, train_vision=True).target_modules == "all-linear"
        assert asked.target_modules is None  # the caller's own is left alone


class TestFreezeVision:
    def test_the_language_model_with_its_head_is_left(self, family):
        model, prefix = family
        freeze_vision(model)
        frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
        language = prefix.removesuffix("layers.")
        rest = {n for n, _ in model.named_parameters() if not n.startswith((language, "lm_head"))}
        assert frozen == rest

    def test_adapters_are_left_alone(self, toy_checkpoint):
        model = get_peft_model(qwen(None)[0], LoraConfig(r=2, target_modules="all-linear"))
        before = [p.requires_grad for p in model.parameters()]
        freeze_vision(model)
        assert [p.requires_grad for p in model.parameters()] == before


class TestDropout:
    def test_warns_where_it_is_active(self):
        with pytest.warns(UserWarning, match="dropout of 0.05 is active.*`lora_dropout` to 0"):
            warn_of_dropout(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.05)))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn_of_dropout(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0)))

    def test_lora(self, toy_checkpoint):
        model = qwen(None)[0]
        adapted = get_peft_model(model, LoraConfig(r=2, lora_dropout=0.1, target_modules="all-linear"))
        with pytest.warns(UserWarning, match="dropout of 0.1"):
            warn_of_dropout(adapted)
