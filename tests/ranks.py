"""
Run by two ranks: prompts that identify their rank, rollouts of unequal numbers and lengths, through an engine that the
ranks share: weights sharded over both by FSDP2, a vLLM of which each rank computes a part, or a vLLM server. Each rank
compares what it got with what an engine of its own makes of the same prompts.

    torchrun --nproc_per_node 2 tests/ranks.py CHECKPOINT sharded|parts|SERVER_URL VIDEO
"""

import copy
import sys
from types import SimpleNamespace

import torch
from accelerate import Accelerator
from test_weights import generation_of, pushed, random_lora
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoProcessor, Qwen3VLForConditionalGeneration
from trl import prepare_multimodal_messages

from paravt import FrameBudgetCollator, ParallelRollout, rollout
from paravt.chat import prepare_processor
from paravt.engines import forbidden_ids
from paravt.engines.transformers import TransformersEngine
from paravt.parser import ToolCall


checkpoint, kind, video = sys.argv[1:]
accelerator = Accelerator(cpu=True)
rank = accelerator.process_index
processor = prepare_processor(AutoProcessor.from_pretrained(checkpoint), 1024)
model = Qwen3VLForConditionalGeneration.from_pretrained(checkpoint).eval()


def shard(model, whole):
    mesh = init_device_mesh("cpu", (accelerator.num_processes,))
    for module in (*model.model.visual.blocks, *model.model.language_model.layers, whole):
        fully_shard(module, mesh=mesh)
    assert all(isinstance(param, DTensor) for param in whole.parameters())


if kind == "sharded":
    sharded = Qwen3VLForConditionalGeneration.from_pretrained(checkpoint).eval()
    shard(sharded, sharded)
    engine = TransformersEngine(sharded, processor, shared_by=accelerator, max_batch=2)
    batches, one_batch = [], engine._generate
    engine._generate = lambda *a: (batches.append(1), one_batch(*a))[1]
    reads, read = [], engine._read
    engine._read = lambda model, rows: (reads.extend(rows), read(model, rows))[1]
elif kind == "parts":
    from vllm import LLM

    from paravt.engines.vllm import VLLMEngine

    llm = LLM(
        checkpoint,
        tensor_parallel_size=2,
        distributed_executor_backend="external_launcher",
        max_model_len=2048,
        dtype="float32",
        enforce_eager=True,
        logprobs_mode="processed_logprobs",
    )
    group = SimpleNamespace(tensor_parallel_size=2, tp_group=torch.distributed.group.WORLD, enable_sleep_mode=False)
    engine = VLLMEngine(llm, processor, generation=group)
else:
    from paravt.engines.trl import connect
    from paravt.engines.vllm import VLLMServerEngine

    engine = VLLMServerEngine(connect(kind), processor, ready=accelerator.wait_for_everyone)

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
    # Each prompt is read once: of main agents in their first turn, and of sub-agents.
    assert sum(row.number >= 0 for row in reads) == (5 + 5 * 6 if rank == 0 else 1)

    # An adapter on sharded weights: whole merged weights are pushed, and the shards stay as they were.
    torch.manual_seed(0)
    policy = random_lora(Qwen3VLForConditionalGeneration.from_pretrained(checkpoint))
    expected = dict(copy.deepcopy(policy).merge_and_unload().named_parameters())
    shard(policy.base_model.model, policy)
    before = {name: param.data.to_local().clone() for name, param in policy.named_parameters()}
    found = pushed(generation_of(policy, fsdp_version=2))
    assert set(found) == set(expected)
    for name, weight in found.items():
        torch.testing.assert_close(weight, expected[name].data)
    assert all(torch.equal(param.to_local(), before[name]) for name, param in policy.named_parameters())
if kind == "parts":
    # Sampling, with random states that differ between the ranks: parts that drew from them would go different ways.
    torch.manual_seed(rank)
    engine.sampling["temperature"] = 2.0
    ids = processor.tokenizer("hello")["input_ids"]
    count = 3 + rank
    seeds = range(10 * rank, 10 * rank + count)
    samples = engine.generate([ids] * count, [[]] * count, [24] * count, seeds=seeds)
    everyones = [None, None]
    torch.distributed.all_gather_object(everyones, [sample.ids for sample in samples])
    assert [len(part) for part in everyones] == [3, 4]
    assert len({tuple(ids) for part in everyones for ids in part}) == 7, everyones  # none is another's
    for sample in samples:
        inputs = torch.tensor([ids + sample.ids])
        with torch.no_grad():
            logits = model(input_ids=inputs).logits[0, len(ids) - 1 : -1].float() / 2.0
        logits[:, forbidden_ids(processor.tokenizer)] = -100.0
        chosen = logits.log_softmax(-1).gather(1, inputs[0, len(ids) :, None]).squeeze(1)
        torch.testing.assert_close(torch.tensor(sample.logprobs), chosen, atol=1e-3, rtol=0)
accelerator.wait_for_everyone()
print(f"rank {rank} is right", flush=True)
if kind != "parts":  # vLLM takes down its own groups, and with them those of the process
    accelerator.end_training()
