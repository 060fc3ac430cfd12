"""
One vLLM server, two ranks that roll out at once: free of each other, and with a barrier at every round.

    python recipes/bench/server.py
    python recipes/bench/server.py --engine_args '{"gpu_memory_utilization": 0.4}'      # where others use the GPU too

Ranks of unequal rounds send one call and four in turn, one rank when the other sends the other number.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

from script import ANSWER, CALLS, REPORT, RUNS, Rows, Scripted, prompts_of, toy_model


PORT, COUNT = 8124, 16  # rollouts of a rank
KINDS = ("equal", "unequal")
URL = f"http://localhost:{PORT}"


@contextmanager
def serve(model: str, log: str, engine_args: dict):
    """A server of the model, from its first healthy answer on."""
    command = [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        model,
        "--port",
        str(PORT),
        "--max-model-len",
        "4096",
        "--enforce-eager",
        "--logprobs-mode",
        "processed_logprobs",
        "--enable-scale-out",
        "--mm-processor-kwargs",
        '{"size": {"shortest_edge": 1024, "longest_edge": 16777216}}',
    ]
    for name, value in engine_args.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            command.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            command += [f"--{flag}", value if isinstance(value, str) else json.dumps(value)]
    with open(log, "w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        while True:
            try:
                urllib.request.urlopen(f"{URL}/health", timeout=2)
                break
            except OSError:
                if process.poll() is not None:
                    raise RuntimeError(f"the server did not start; see {log}") from None
                time.sleep(1)
        yield
    finally:
        process.terminate()
        process.wait(60)


def server(folder: str = "paravt-bench", engine_args: dict | None = None) -> None:
    """Seconds until both ranks are done, with and without barriers."""
    model = toy_model(os.path.join(folder, "toy-model"))

    def ranks(kind: str) -> list[float]:
        command = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "29618", __file__]
        done = subprocess.run(
            [sys.executable, *command, "--folder", folder, "--rank", kind],
            capture_output=True,
            text=True,
            env={**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"},
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-3000:])
        return json.loads(done.stdout.splitlines()[-1])

    with serve(model, os.path.join(folder, "server.log"), engine_args or {}):
        rows = Rows(f"two ranks, {COUNT} rollouts each, one server")
        for kind in KINDS:
            rows.measure([f"{kind} rounds", f"{kind} rounds, barriers"], lambda kind=kind: ranks(kind))


def rank(kind: str, folder: str) -> None:
    """One rank: the same rollouts without and with a barrier at every round, in turn."""
    from accelerate import Accelerator
    from transformers import AutoProcessor

    from paravt import ParallelRollout
    from paravt.chat import prepare_processor
    from paravt.engines.trl import connect
    from paravt.engines.vllm import VLLMServerEngine

    accelerator, model = Accelerator(cpu=True), toy_model(os.path.join(folder, "toy-model"))
    processor = prepare_processor(AutoProcessor.from_pretrained(model), 1024)
    engine = VLLMServerEngine(connect(URL), processor)
    engine.sampling["generation_kwargs"]["ignore_eos"] = True
    prompts = prompts_of(processor, COUNT, os.path.join(folder, f"toy-{accelerator.process_index}"))
    player = ParallelRollout(max_report_length=REPORT, max_pixels=1024, max_turns=4)

    class Barrier(Scripted):
        def generate(self, *args, **kwargs):
            accelerator.wait_for_everyone()
            return super().generate(*args, **kwargs)

    flip = accelerator.process_index if kind == "unequal" else 0
    calls = [CALLS[: 1 if (turn + flip) % 2 else 4] for turn in range(4)]
    turns = [*("no flash\n</think>\n" + "\n".join(some) for some in calls), ANSWER]
    seconds = {Scripted: [], Barrier: []}
    for run in range(RUNS + 1):
        for wrap, times in seconds.items():
            accelerator.wait_for_everyone()
            start = time.perf_counter()
            player.run(prompts, wrap(engine, turns), 4000)
            accelerator.wait_for_everyone()
            if run:  # the first warms up
                times.append(time.perf_counter() - start)
    if accelerator.is_main_process:
        print(json.dumps([statistics.median(times) for times in seconds.values()]), flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine_args", type=json.loads, help="more arguments of vLLM, as JSON")
    parser.add_argument("--folder", default="paravt-bench", help="where the toy model is kept")
    parser.add_argument("--rank", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    rank(options.rank, options.folder) if options.rank else server(options.folder, options.engine_args)
