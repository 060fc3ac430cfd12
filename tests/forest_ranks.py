"""
Run by two ranks: two steps on finished rollouts, of which the ranks have unequal numbers of groups, tokens and
pictures. Before, the policy generates after all prompts, which changes nothing. The first rank writes the weights.

    torchrun --nproc_per_node 2 tests/forest_ranks.py CHECKPOINT plain|fsdp|zero3 frozen|trained true|false FILE
"""

import os
import sys
import tempfile

import accelerate.state as state
import torch
import yaml
from test_forest import SIZES, finished, picture, prompts_with, trainer_of
from transformers import AutoProcessor

from paravt import ParaGRPOTrainer
from paravt.chat import Chat, prepare_processor
from paravt.engines.transformers import TransformersEngine


checkpoint, kind, tower, packing, file = sys.argv[1:]
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
rows = [
    [prompts_with([picture(n, *SIZES[n]) for n in (1, 2)], "What?")] * 4 + [prompts_with([], "Where?")] * 4,
    [prompts_with([], "What and where and when is it? " * 8)] * 8,
][rank]
said = [["a", "b b b", "red", "c a", "a", "", "flash", "d d"], ["blue red", "a a a", "b", "c"] * 2][rank]


def rollout(prompts, trainer):
    chat = Chat(trainer.processing_class)
    ids, images = zip(*(chat.prompt(prompt) for prompt in prompts), strict=True)
    TransformersEngine.from_trainer(trainer).greedy().generate(list(ids), list(images), [2] * len(ids))
    return finished(said)(prompts, trainer)


# The settings of `fsdp.yaml` or `zero3.yaml`, as `accelerate launch` sets them.
configs = os.path.join(os.path.dirname(__file__), "../recipes/configs")
if kind == "fsdp":
    with open(os.path.join(configs, "fsdp.yaml")) as settings:
        os.environ |= {name.upper(): str(value) for name, value in yaml.safe_load(settings)["fsdp_config"].items()}
    os.environ["ACCELERATE_USE_FSDP"] = "true"
if kind == "zero3":
    with open(os.path.join(configs, "zero3.yaml")) as settings:
        found = yaml.safe_load(settings)["deepspeed_config"]
    os.environ |= {f"ACCELERATE_DEEPSPEED_{name.upper()}": str(value).lower() for name, value in found.items()}
    os.environ |= {"ACCELERATE_USE_DEEPSPEED": "true", "DS_ACCELERATOR": "cpu"}
if kind != "plain":  # accelerate takes them for GPUs only, so it is told that there are some
    state.PartialState._prepare_backend = lambda *a, **k: ("gloo", state.DistributedType.MULTI_GPU)
    state.PartialState.set_device = lambda self: setattr(self, "device", torch.device("cpu"))

with tempfile.TemporaryDirectory() as folder:
    trainer = trainer_of(
        ParaGRPOTrainer,
        folder,
        checkpoint,
        prepare_processor(AutoProcessor.from_pretrained(checkpoint), 96 * 64),
        rollout=rollout,
        rows=rows,
        frozen=tower == "frozen",
        packing=packing == "true",
        use_cpu=kind == "plain",
        optim="sgd",
        learning_rate=0.05,
        max_grad_norm=0.0,
        loss_type="grpo",
    )
    assert trainer._packs == (packing == "true")
    if kind == "zero3":  # it would keep parameters as small as these whole
        trainer.accelerator.state.deepspeed_plugin.deepspeed_config["zero_optimization"][
            "stage3_param_persistence_threshold"
        ] = 0
    trainer.train()
    # ZeRO-3 leaves nothing in a parameter that is not in use.
    params = list(trainer.accelerator.unwrap_model(trainer.model_wrapped).parameters())
    kinds = f"{type(params[0]).__name__}, {sum(param.numel() == 0 for param in params)} of {len(params)} empty"
    weights = trainer.accelerator.get_state_dict(trainer.model_wrapped)
if rank == 0:
    torch.save(weights, file)
print(f"rank {rank} is done, of {kinds}", flush=True)
trainer.accelerator.end_training()
