"""Every command of the two READMEs is run here as it is written, or is named with the test that runs its like.

The commands run in a folder in which their paths exist: the model that they name is the toy model, their rows and
videos are small ones. What is added at the end of a command makes it short, and takes off what needs a GPU.
"""

import json
import os
import re
import shlex
import shutil
import subprocess

import pytest
import torch
from conftest import CONVERSATION
from peft import PeftModel
from test_readme import ROOT, commands
from transformers import Qwen3VLForConditionalGeneration


ELSEWHERE = {
    'pip install -e ".[dev]"': "the suite runs in what it installs",
    'pip install -e ".[quantization]"': "test_weights.py runs in what it installs",
    'pip install -e ".[eval]"': "test_plugin.py runs in what it installs",
    "accelerate launch recipes/para_grpo.py": "test_recipes.py, with fewer videos and steps",
    "python recipes/ask.py": "test_plugin.py",
    'python recipes/ask.py talk.mp4 "When does the speaker change?" --model paravt-8b-lora': "below, with `merged`",
    "python recipes/evaluate.py": "test_plugin.py, on tasks that need no download",
    "VLLM_SERVER_DEV_MODE=1 vllm serve": "needs GPUs; test_vllm.py reads from a server on CPUs",
    "accelerate launch recipes/para_grpo.py --config recipes/configs/qwen3_vl_8b_8gpu.yaml "
    "--dataset_name path/to/rl.parquet --video_root path/to/videos --use_vllm true --vllm_mode server": "needs GPUs",
    "vllm serve merged": "needs vLLM's own tool parser; test_parser.py reads what it would",
    "python recipes/ablation/run.py": "test_ablation.py, with fewer rows and tokens",
}
SHORT = (
    "--max_pixels 1024 --report_to none --bf16 false --dtype float32 --gradient_checkpointing false --logging_steps 1 "
    "--learning_rate 1e-2 --max_steps 1"
)
SMALL = {
    "recipes/sft.py": f"{SHORT} --frame_budgets 4 --per_device_train_batch_size 2",
    "recipes/para_grpo.py": f"{SHORT} --frame_budgets 4 --per_device_train_batch_size 4 --num_generations 4 "
    "--eval_rows 4 --gradient_accumulation_steps 1 --max_completion_length 96 --max_turn_length 24 "
    "--max_report_length 8 --load_in_4bit false",
    "recipes/ask.py": "--frames 4 --max_pixels 1024 --max_turns 1 --max_turn_length 24 --json",
    "paravt.engines.checkpoints": "",
}


def elsewhere(command):
    """An entry stands for the command itself, or for all that begin with it if none is that command."""
    whole = [entry for entry in ELSEWHERE if entry == command]
    return whole or [e for e in ELSEWHERE if not e.endswith(("para_grpo.py", "ask.py")) and command.startswith(e)]


RUN = [command for command in dict.fromkeys(commands()) if not elsewhere(command)]


def test_no_command_is_forgotten():
    assert len(RUN) == 6 and all(any(script in command for script in SMALL) for command in RUN), RUN
    named = {entry for command in commands() for entry in elsewhere(command)}
    assert named == set(ELSEWHERE), set(ELSEWHERE) - named


@pytest.fixture(scope="module")
def folder(row_file, clips, toy_checkpoint, tmp_path_factory):
    """Where the commands run: a checkout's recipes, and the paths that the commands name."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "recipes").symlink_to(os.path.join(ROOT, "recipes"))
    (folder / "Qwen").mkdir()
    (folder / "Qwen" / "Qwen3-VL-8B-Instruct").symlink_to(toy_checkpoint)
    (folder / "path" / "to").mkdir(parents=True)
    (folder / "path" / "to" / "videos").symlink_to(clips)
    (folder / "talk.mp4").symlink_to(clips / "cfr.mp4")
    shutil.copy(row_file, folder / "path" / "to" / "rl.parquet")
    (folder / "path" / "to" / "sft.jsonl").write_text("\n".join([json.dumps({"messages": CONVERSATION})] * 4))
    return folder


def run(command, folder):
    (script,) = [script for script in SMALL if script in command]
    on_cpu = re.sub(r"--num_processes \d+", "--num_processes 1", command)
    on_cpu = on_cpu.replace("accelerate launch", "accelerate launch --cpu")
    done = subprocess.run(
        shlex.split(on_cpu) + SMALL[script].split(), cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": ROOT, "ACCELERATE_USE_CPU": "true"},
    )  # fmt: skip
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-3000:])
    return done.stdout


def load(folder):
    return Qwen3VLForConditionalGeneration.from_pretrained(folder)


@pytest.mark.slow
def test_the_commands_run(folder, toy_checkpoint):
    """In the order in which they are written; the last ones lead from files to an answer."""
    told = {command: run(command, folder) for command in RUN}
    assert (folder / "paravt-8b" / "adapter_model.safetensors").exists()

    # Each stage begins with what the one before it has learned.
    begun = json.loads((folder / "paravt-8b-lora" / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert os.path.normpath(folder / begun) == str(folder / "cold-start" / "merged")
    stages = [load(path).state_dict() for path in (toy_checkpoint, folder / begun, folder / "merged")]
    adapted = [name for name in stages[0] if "layers.0.self_attn.q_proj" in name]
    for before, after in zip(stages, stages[1:], strict=False):
        assert adapted and before.keys() == after.keys()
        assert all(not torch.equal(before[name], after[name]) for name in adapted)
    expected = PeftModel.from_pretrained(load(toy_checkpoint), folder / "cold-start").merge_and_unload().state_dict()
    assert all(torch.equal(expected[name], weight) for name, weight in stages[1].items())

    ask = next(command for command in RUN if "--model merged" in command)
    of_adapter = run(ask.replace("--model merged", "--model paravt-8b-lora"), folder)
    first, second = (
        json.loads(next(x for x in text.splitlines() if x[:1] == "{")) for text in (told[ask], of_adapter)
    )
    assert first["error"] is None and first["turns"] and first["turns"] == second["turns"]
