"""
Evaluation on the benchmarks of lmms-eval, with the loop that trained the model. Needs `pip install -e ".[eval]"`.

    python recipes/evaluate.py --model CHECKPOINT_OR_ADAPTER --tasks videomme lvbench mlvu --output_dir evaluation
    torchrun --nproc_per_node 8 recipes/evaluate.py --model ... --tasks longvideobench

It prints a table and writes `OUTPUT_DIR/records.jsonl`, a line per question as it is answered. Started again after a
crash it goes on with the questions that are missing. The exit code is 1 if a question failed, and 2 if a task did.
"""

import argparse
import json
import os
import sys

from paravt.engines import ENGINES
from paravt.metrics import summarise, table
from paravt.settings import add_flags


SHORT = {
    "videomme": "videomme",
    "videomme_subtitles": "videomme_w_subtitle",
    "longvideobench": "longvideobench_val_v",
    "lvbench": "lvbench",
    "mlvu": "mlvu_dev",
    "mmvu": "mmvu_val",
    "charades": "temporal_grounding_charades",
}


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--adapter", help="LoRA adapter")
    parser.add_argument("--engine", choices=ENGINES, default="transformers")
    parser.add_argument("--engine_args", type=json.loads, help="""JSON for vLLM, '{"gpu_memory_utilization": 0.5}'""")
    parser.add_argument("--max_length", type=int, help="longest conversation that vLLM makes room for; the model's")
    parser.add_argument("--dtype", default="auto")
    add_flags(parser)


def recalls(records: list[dict]) -> dict[str, float]:
    """Recall at IoU 0.3, 0.5 and 0.7 of temporal grounding; the strict score is the mean IoU."""
    scores = [r["score"] for r in records if r["score"] is not None]
    return {f"R@{t}": sum(score >= t for score in scores) / len(scores) for t in (0.3, 0.5, 0.7)} if scores else {}


def main(options: argparse.Namespace) -> int:
    from lmms_eval.evaluator import simple_evaluate
    from lmms_eval.tasks import TaskManager, get_task_dict

    from paravt.evaluation.plugin import ParaVT

    names = [SHORT.get(name, name) for name in options.tasks]
    manager = TaskManager(include_path=options.include_path, model_name="paravt")
    unknown = [name for name in names if name not in manager.all_tasks]
    if unknown:
        raise SystemExit(f"unknown tasks {unknown}; short names are {list(SHORT)}, `lmms_eval --tasks list` has all")
    own = ("model", "tasks", "limit", "output_dir", "include_path")
    model = ParaVT(
        options.model,
        **{name: value for name, value in vars(options).items() if name not in own},
        tasks=get_task_dict(names, manager, task_type="chat"),
        records=os.path.join(options.output_dir, "records.jsonl"),
    )
    results = simple_evaluate(model, tasks=names, limit=options.limit, task_manager=manager, log_samples=False)
    return report(names, model, (results or {}).get("results", {})) if model.rank == 0 else 0


def report(names: list[str], model, results: dict[str, dict]) -> int:
    """Prints the table and what failed; returns the exit code."""
    from paravt.evaluation import stats_of

    rows, failures = [], 0
    for name in names:
        records = [r for r in model.answered() if r["id"].split("/")[0] == name]
        good = [r for r in records if not r["error"]]
        rates = summarise(stats_of(r) for r in good)
        found = {k.split(",")[0]: v for k, v in results.get(name, {}).items() if isinstance(v, float)}
        official = {k: v for k, v in found.items() if "stderr" not in k}
        failures += len(records) - len(good)
        row = {
            "questions": len(records),
            "failed": len(records) - len(good),
            "strict": rates.get("accuracy"),
            "official": list(official.values())[-1] if official else None,
            "calls/question": rates.get("calls_per_rollout"),
            "calls/turn": rates.get("calls_per_turn"),
            "without tool": 1 - rates["call_rate"] if good else None,
            "s/question": sum(r["seconds"] for r in records) / max(1, len(records)),
        }
        rows.append((name, {k: float(v) for k, v in row.items() if v is not None}))
        print(f"{name}: official {json.dumps(official | (recalls(good) if 'charades' in name else {}))}")
        for record in records:
            if record["error"]:
                print(f"failed: {record['id']}: {record['error']}")
    print(table("task", rows, list(row)))
    if failures:
        print(f"{failures} questions failed: wrong in the official score, left out of the strict one")
    return 2 if any("official" not in row for _, row in rows) else int(failures > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="checkpoint, or an adapter that names its base model")
    parser.add_argument("--tasks", nargs="+", required=True, help=f"{', '.join(SHORT)}, or any task of lmms-eval")
    parser.add_argument("--include_path", help="folder of task definitions of your own")
    parser.add_argument("--limit", type=int, help="questions per task")
    parser.add_argument("--batch_size", type=int, default=16, help="questions in flight")
    parser.add_argument("--output_dir", default="evaluation")
    add_model_arguments(parser)
    sys.exit(main(parser.parse_args()))
