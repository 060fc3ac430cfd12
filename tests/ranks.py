"""
Run by two ranks: prompts that identify their rank, rollouts of unequal numbers and lengths, through an engine that the
ranks share: weights sharded over both by FSDP2, or a vLLM server. Each rank compares what it got with what an engine
of its own makes of the same prompts.

    torchrun --nproc_per_node 2 tests/ranks.py CHECKPOINT sharded|SERVER_URL VIDEO
"""

import sys

import torch
from accelerate import Accelerator
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoProcessor, Qwen3VLForConditionalGeneration
from trl.data_utils import prepare_multimodal_messages

from paravt import FrameBudgetCollator, ParallelRollout, rollout
from paravt.calls import ToolCall
from paravt.chat import prepare_processor
from paravt.engine import TransformersEngine


checkpoint, kind, video = sys.argv[1:]
accelerator = Accelerator(cpu=True)
rank = accelerator.process_index
processor = prepare_processor(AutoProcessor.from_pretrained(checkpoint), 1024)
model = Qwen3VLForConditionalGeneration.from_pretrained(checkpoint).eval()
if kind == "sharded":
    sharded = Qwen3VLForConditionalGeneration.from_pretrained(checkpoint).eval()
    mesh = init_device_mesh("cpu", (accelerator.num_processes,))
    for module in (*sharded.model.visual.blocks, *sharded.model.language_model.layers, sharded):
        fully_shard(module, mesh=mesh)
    assert all(isinstance(param, DTensor) for param in sharded.parameters())
    engine = TransformersEngine(sharded, processor, group=accelerator, max_batch=2)
    batches, one_batch = [], engine._generate
    engine._generate = lambda *a: (batches.append(1), one_batch(*a))[1]
else:
    from trl.generation.vllm_client import VLLMClient

    from paravt.vllm_engine import VLLMServerEngine

    engine = VLLMServerEngine(VLLMClient(kind), processor, ready=accelerator.wait_for_everyone)

counts = [5, 1]  # rollouts of each rank; one rank calls, the other never does; one has no images at all
rows = [
    {"prompt": [{"role": "user", "content": f"<video>Which colour is flash {i} of rank {rank}?"}], "videos": [video]}
    for i in range(counts[rank])
]
made = FrameBudgetCollator(processor, [4, 8], max_pixels=1024)(rows)
prompts = [prepare_multimodal_messages(row["prompt"], images=row["images"]) for row in made]
if rank == 1:
    for message in prompts[0]:
        message["content"] = [part for part in message["content"] if part["type"] != "image"]


def calls(text, *, complete=True):
    windows = [(0, 8), (8, 24), (24, 64)]
    made = [ToolCall("crop_video", {"start_time": float(a), "end_time": float(b)}) for a, b in windows]
    return made if rank == 0 else []


rollout.parse_tool_calls = calls
player = ParallelRollout(max_turns=2, max_turn_length=12, max_report_length=8, max_pixels=1024)
shared = player.run(prompts, engine, 400)
alone = player.run(prompts, TransformersEngine(model, processor), 400)
assert [e.ids for e in shared] == [e.ids for e in alone], f"rank {rank}: completions differ"
for mine, expected in zip(shared, alone, strict=True):
    torch.testing.assert_close(torch.tensor(mine.logprobs), torch.tensor(expected.logprobs), atol=1e-3, rtol=0)
served = sum(slot.status == "ok" for e in shared for slot in e.slots)
assert served == (5 * 6 if rank == 0 else 0), served
if kind == "sharded":  # every forward pass of a sharded model is a collective
    made = accelerator.gather(torch.tensor([len(batches)])).tolist()
    assert made[0] == made[1] > 3, made
accelerator.wait_for_everyone()
print(f"rank {rank} is right", flush=True)
accelerator.end_training()
