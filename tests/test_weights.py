"""What vLLM gets is what the policy computes with, and the policy's weights stay as they were."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForImageTextToText
from trl import ModelConfig
from trl.generation.vllm_generation import VLLMGeneration

from paravt.engines.checkpoints import quantization_config
from paravt.engines.weights import keep_gradients, push_exact_weights


def need_bitsandbytes():
    pytest.importorskip("bitsandbytes", reason="THE TESTS OF QUANTISED WEIGHTS ARE SKIPPED: bitsandbytes is missing")


def generation_of(model, fsdp_version=None, quantization=None):
    """Stands in for TRL's object, whose constructor starts an engine."""
    distributed = SimpleNamespace(
        gather_params=lambda params: nullcontext(),
        is_fsdp=fsdp_version is not None,
        is_zero3=False,
        fsdp_version=fsdp_version,
    )
    config = SimpleNamespace(quantization=quantization)
    generation = SimpleNamespace(
        model=model,
        mode="colocate",
        llm=SimpleNamespace(llm_engine=SimpleNamespace(model_config=config)),
        accelerator=SimpleNamespace(device=torch.device("cpu")),
        _dist=distributed,
    )
    generation._fix_param_name_to_vllm = lambda *a, **k: VLLMGeneration._fix_param_name_to_vllm(generation, *a, **k)
    push_exact_weights(generation)
    return generation


def pushed(generation) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in generation._iter_named_params()}


def load(checkpoint, **kwargs):
    torch.manual_seed(0)
    return AutoModelForImageTextToText.from_pretrained(checkpoint, **kwargs).eval()


def random_lora(model, **kwargs):
    """A policy whose adapter changes what the model says."""
    kwargs = {"target_modules": "all-linear", "lora_alpha": 32, **kwargs}
    return get_peft_model(model, LoraConfig(r=4, init_lora_weights=False, **kwargs))


def kept(policy) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in policy.state_dict().items() if torch.is_tensor(value)}


@pytest.fixture(scope="module")
def inputs(toy_processor):
    noise = torch.randint(0, 255, (3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    text = f"{toy_processor.image_token} the flash is red and the box is blue"
    return dict(toy_processor(text=[text], images=[noise], return_tensors="pt"))


def logits(model, inputs):
    with torch.no_grad():
        return model(**inputs).logits


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"use_dora": True},
        {"lora_bias": True, "target_modules": r".*visual.*(qkv|proj|linear_fc1|linear_fc2)"},
        {"modules_to_save": ["norm"]},
    ],
)
def test_merged_on_a_copy(toy_checkpoint, inputs, kind):
    policy = random_lora(load(toy_checkpoint), **kind).eval()
    with torch.no_grad():
        for name, param in policy.named_parameters():
            if "lora_B" in name and name.endswith("bias"):
                param.normal_()
    before, expected = kept(policy), logits(policy, inputs)
    found = pushed(generation_of(policy))
    plain = load(toy_checkpoint)
    assert set(found) == {name for name, _ in plain.named_parameters()}
    plain.load_state_dict(found, strict=False)
    torch.testing.assert_close(logits(plain, inputs), expected, atol=1e-4, rtol=1e-4)
    assert (logits(load(toy_checkpoint), inputs) - expected).abs().max() > 0.1  # the adapter matters
    assert all(torch.equal(value, before[name]) for name, value in kept(policy).items())
    assert torch.equal(logits(policy, inputs), expected)


@pytest.mark.parametrize(
    ("bits", "adapter"), [(4, {}), (4, {"use_dora": True}), (4, {"target_modules": ["q_proj", "v_proj"]}), (8, {})]
)
def test_quantised_weights(toy_checkpoint, inputs, bits, adapter):
    """What is pushed are whole weights with the errors of quantisation, those outside the adapter as well."""
    need_bitsandbytes()
    config = quantization_config(ModelConfig(load_in_4bit=bits == 4, load_in_8bit=bits == 8, dtype="float32"))
    model = load(toy_checkpoint, quantization_config=config, dtype=torch.float32)
    assert not any(type(p).__name__ in ("Params4bit", "Int8Params") for p in model.model.visual.parameters())
    policy = random_lora(model, lora_alpha=8, **adapter).eval()
    keep_gradients(policy)
    before, expected = kept(policy), logits(policy, inputs)
    found = pushed(generation_of(policy))
    plain = load(toy_checkpoint)
    exact = kept(plain)
    assert set(found) == {name for name, _ in plain.named_parameters()}
    assert all(found[name].shape == exact[name].shape and found[name].is_floating_point() for name in found)
    plain.load_state_dict(found, strict=False)
    # The 8-bit kernel also rounds what flows through it.
    torch.testing.assert_close(logits(plain, inputs), expected, atol=1e-3 if bits == 4 else 0.3, rtol=1e-3)
    outside = "model.language_model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(found[outside], exact[outside])
    assert all(torch.equal(value, before[name]) for name, value in kept(policy).items())
    assert torch.equal(logits(policy, inputs), expected)


def test_four_bits_train_after_an_evaluation(toy_checkpoint, inputs):
    need_bitsandbytes()
    config = quantization_config(ModelConfig(load_in_4bit=True, dtype="float32"))
    policy = random_lora(load(toy_checkpoint, quantization_config=config, dtype=torch.float32))
    keep_gradients(policy)
    policy.eval()
    logits(policy, inputs)
    policy.train()
    policy(**inputs).logits.sum().backward()
    first = next(p for name, p in policy.named_parameters() if "language_model.layers.0" in name and "lora_A" in name)
    assert first.grad.abs().max() > 0


def test_what_cannot_be_merged_is_refused(toy_checkpoint):
    need_bitsandbytes()
    with pytest.raises(ValueError, match="checkpoint of fp8 weights.*name the plain checkpoint"):
        generation_of(random_lora(load(toy_checkpoint)), quantization="fp8")
    config = quantization_config(ModelConfig(load_in_4bit=True, dtype="float32"))
    policy = random_lora(load(toy_checkpoint, quantization_config=config))
    with pytest.raises(ValueError, match="without FSDP or ZeRO-3"):
        generation_of(policy, fsdp_version=2)
