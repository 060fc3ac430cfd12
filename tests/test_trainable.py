import re
import warnings

import others
import pytest
from peft import LoraConfig, PrefixTuningConfig, get_peft_model
from torch import nn

from paravt import toy
from paravt.trainable import check_vision, freeze_vision, language_layers, warn_of_dropout, with_targets


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

    @pytest.mark.parametrize(
        "named", ["all-linear", ["q_proj", "qkv", "linear_fc1"], r".*\.(q_proj|attn\.qkv)", ["fc1", "q_proj"]]
    )
    def test_of_those_that_are_named(self, family, named):
        """Those of the language model, by whatever they are named; what is excluded stays so."""
        model, prefix = family
        adapted = get_peft_model(model, with_targets(LoraConfig(r=2, target_modules=named), model))
        trained = [name for name, p in adapted.named_parameters() if "lora_" in name]
        assert trained and all(f".{prefix}" in name for name in trained)

    def test_what_is_excluded_stays_out(self, toy_checkpoint):
        for excluded in (["q_proj"], r".*\.q_proj"):
            asked = LoraConfig(r=2, target_modules=["q_proj", "k_proj"], exclude_modules=excluded)
            adapted = get_peft_model(qwen(None)[0], with_targets(asked, toy_checkpoint))
            trained = [name for name, p in adapted.named_parameters() if p.requires_grad]
            assert len(trained) == 4 and all("k_proj" in name for name in trained)

    def test_other_adapters_stay_as_they_are(self, toy_checkpoint):
        for named in (PrefixTuningConfig(num_virtual_tokens=2), None):
            assert with_targets(named, toy_checkpoint) is named
        named = LoraConfig(target_modules=["q_proj"])
        assert with_targets(named, toy_checkpoint, train_vision=True).target_modules == {"q_proj"}
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

    def test_adapters_too(self, toy_checkpoint):
        model = get_peft_model(qwen(None)[0], LoraConfig(r=2, target_modules="all-linear"))
        adapters = {name for name, p in model.named_parameters() if p.requires_grad}
        freeze_vision(model)
        trained = {name for name, p in model.named_parameters() if p.requires_grad}
        assert trained == {name for name in adapters if ".language_model." in name} != adapters


class TestCheckVision:
    def test_a_tower_that_is_to_be_trained_and_is_not(self, family):
        model, prefix = family
        check_vision(model)
        only = get_peft_model(model, with_targets(LoraConfig(r=2), model))
        if prefix == "model.layers.":  # text alone
            check_vision(only)
        else:
            with pytest.raises(
                ValueError, match="`train_vision` is true, but no layer of the vision tower is trained"
            ):
                check_vision(only)

    def test_a_tower_that_is_adapted(self, toy_checkpoint):
        config = with_targets(LoraConfig(r=2), toy_checkpoint, train_vision=True)
        check_vision(get_peft_model(qwen(None)[0], config))


class TestDropout:
    def test_warns_where_it_is_active(self):
        with pytest.warns(UserWarning, match="dropout of 0.05 is active.*`lora_dropout` to 0"):
            warn_of_dropout(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.05)))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn_of_dropout(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0)))

    def test_in_functions(self, toy_processor):
        model, _ = others.text_model(toy_processor.tokenizer)
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.1
        with pytest.warns(UserWarning, match="`attention_dropout` of 0.1 is active.*in the model's config"):
            warn_of_dropout(model)

    def test_lora(self, toy_checkpoint):
        model = qwen(None)[0]
        adapted = get_peft_model(model, LoraConfig(r=2, lora_dropout=0.1, target_modules="all-linear"))
        with pytest.warns(UserWarning, match="dropout of 0.1"):
            warn_of_dropout(adapted)
