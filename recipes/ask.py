"""
Ask a question about a video: the model looks at an overview, sends out calls, reads the reports and answers.

    python recipes/ask.py VIDEO "Which colour is the flash?" --model CHECKPOINT_OR_ADAPTER
    python recipes/ask.py            # a toy video and a toy model, trained the first time: up to 15 minutes
"""

import argparse
import json
import os
import sys
from contextlib import redirect_stdout
from dataclasses import asdict

from evaluate import add_model_arguments


TOY = {"frames": 4, "max_pixels": 1024, "max_turns": 1, "max_turn_length": 120, "max_report_length": 16}


def toy_model(folder: str) -> str:
    """A tiny Qwen3-VL that knows the toy world; trained here if it is not there yet."""
    if not os.path.exists(os.path.join(folder, "processor_config.json")):
        import sft
        from trl import ModelConfig, TrlParser

        print(f"training the toy model in {folder}, once", file=sys.stderr, flush=True)
        sft.use_all_cores()
        flags = [
            "--config",
            os.path.join(os.path.dirname(__file__), "configs", "toy_sft.yaml"),
            "--output_dir",
            folder,
        ]
        flags += ["--toy_folder", os.path.join(folder, "videos"), "--toy_faults", "0", "--toy_skips", "0"]
        with redirect_stdout(sys.stderr):  # standard output is for the answer
            sft.main(*TrlParser((sft.Arguments, sft.Training, ModelConfig)).parse_args_and_config(flags))
    return folder


def tell(text: str) -> None:
    print(text, file=sys.stderr)


def main(options: argparse.Namespace) -> int:
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    from paravt import FrameBudgetCollator, ParallelRollout, toy
    from paravt.engines import load_engine
    from paravt.evaluation import play
    from paravt.settings import given_flags, settings_of

    given = given_flags(options)
    if options.model is None:
        options.model = toy_model(options.toy_folder)
        given = TOY | given
    settings = settings_of(options.model, options.adapter, report=tell, **given)
    if options.video is None:
        rows = toy.make_rows(os.path.join(options.toy_folder, "videos"), 8, seed=2)
        options.video = next(row["videos"][0] for row in rows if not toy.shows(row, settings.frames))
    engine = load_engine(
        options.model,
        options.adapter,
        options.engine,
        settings.max_pixels,
        options.dtype,
        max_length=options.max_length,
        engine_args=options.engine_args,
    )
    collator = FrameBudgetCollator.from_settings(engine.processor, settings)
    rollout = ParallelRollout.from_config(settings)
    row = {
        "key": "question",
        "videos": [options.video],
        "prompt": [
            {"role": "system", "content": settings.prompt},
            {"role": "user", "content": f"<video>{options.question}"},
        ],
    }

    def show(number: int, message: dict) -> None:
        print(f"--- {message['role']}\n{message['content']}", flush=True)

    if not options.json:
        print(f"{options.video}\n{options.question}", flush=True)
    (record,) = play(rollout, engine, collator, [row], settings.max_completion_length, None if options.json else show)
    if options.json:
        print(json.dumps(record | {"settings": asdict(settings)}, ensure_ascii=False))
    elif record["error"] is None:
        for call in record["calls"]:
            window = f"{call['start']:.1f} to {call['end']:.1f} s" if call["start"] is not None else "no window"
            print(f"=== call in turn {call['turn'] + 1}: {call['status']}, {window}")
        print(f"=== answer: {record['prediction'] or 'none'}")
    if record["error"] is not None:
        print(f"error: {record['error']}", file=sys.stderr)
    return int(record["error"] is not None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video", nargs="?", help="a toy video if not given")
    parser.add_argument("question", nargs="?", default="Which colour is the flash?")
    parser.add_argument("--model", help="checkpoint, or an adapter that names its base model; the toy model if none")
    parser.add_argument("--toy_folder", default="paravt-toy-model", help="where the toy model is kept")
    parser.add_argument("--json", action="store_true", help="one JSON record instead of text")
    add_model_arguments(parser)
    sys.exit(main(parser.parse_args()))
