import json
import os
import shutil
import subprocess
import sys

import pytest
import yaml
from conftest import CONVERSATION, two_ranks


RECIPES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "recipes")
SMALL = (
    "--max_steps 2 --per_device_train_batch_size 4 --num_generations 4 --max_completion_length 96 "
    "--max_turn_length 24 --max_report_length 8 --max_pixels 1024 --eval_rows 4 --report_to none --bf16 false "
    "--gradient_checkpointing false --logging_steps 1 --dtype float32"
).split()


TOLD = """
import runpy, sys
import accelerate.state as state
import torch
from trl import GRPOTrainer

state.PartialState._prepare_backend = lambda *a, **k: ("gloo", state.DistributedType.MULTI_GPU)
state.PartialState.set_device = lambda self: setattr(self, "device", torch.device("cpu"))
step = GRPOTrainer.training_step

def told(self, *args, **kwargs):
    print("sharded:", type(next(self.model_wrapped.parameters())).__name__, flush=True)
    return step(self, *args, **kwargs)

GRPOTrainer.training_step = told
sys.path.insert(0, {recipe!r}.rpartition("/")[0])
sys.argv[0] = {recipe!r}
runpy.run_path({recipe!r}, run_name="__main__")
"""


def run(recipe, *flags):
    command = [sys.executable, os.path.join(RECIPES, recipe), *map(str, flags)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "ACCELERATE_USE_CPU": "true"})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def mark(checkpoint):
    """Leaves a word in a checkpoint's log, which those that go on from it have too."""
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    state["log_history"].append({"step": state["global_step"], "mark": 1.0})
    (checkpoint / "trainer_state.json").write_text(json.dumps(state))


def is_marked(checkpoint):
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    return any("mark" in entry for entry in state["log_history"])


@pytest.fixture(scope="module")
def cold_start(clips, toy_checkpoint, tmp_path_factory):
    """A LoRA adapter, trained on conversations about somebody else's mp4 files; its training was cut in two."""
    folder = tmp_path_factory.mktemp("cold-start")
    (folder / "rows.jsonl").write_text("\n".join([json.dumps({"messages": json.dumps(CONVERSATION)})] * 4))
    flags = ["--dataset_name", folder / "rows.jsonl", "--video_root", clips, "--output_dir", folder / "out"]
    flags += ["--model_name_or_path", toy_checkpoint, "--use_peft"]
    flags += ["--frame_budgets", 4, "--max_pixels", 1024, "--per_device_train_batch_size", 2]
    flags += ["--learning_rate", "1e-2", "--report_to", "none", "--bf16", "false", "--dtype", "float32"]
    flags += ["--gradient_checkpointing", "false", "--resume_from_checkpoint", "true"]
    assert "starts afresh" in run("sft.py", *flags, "--max_steps", 1)
    mark(folder / "out" / "checkpoint-1")
    assert "starts afresh" not in run("sft.py", *flags, "--max_steps", 2)
    return folder / "out"


@pytest.fixture
def sft(monkeypatch):
    monkeypatch.syspath_prepend(RECIPES)
    import sft

    return sft


class TestSupervisedOptions:
    WORK = {
        "packing",
        "max_length",
        "loss_type",
        "activation_offloading",
        "router_aux_loss_coef",
        "model_init_kwargs",
        "trust_remote_code",
    }

    def test_every_option_of_trl_works_or_is_refused(self, sft):
        """An option that a new version of TRL adds is in neither set."""
        from transformers import TrainingArguments
        from trl import SFTConfig

        own = set(SFTConfig.__dataclass_fields__) - set(TrainingArguments.__dataclass_fields__)
        assert own == self.WORK | set(sft.REFUSED) and not self.WORK & set(sft.REFUSED)

    @pytest.mark.parametrize(
        "option, value",
        [
            ("assistant_only_loss", True),
            ("completion_only_loss", False),
            ("packing_strategy", "wrapped"),
            ("eval_packing", True),
            ("padding_free", True),
            ("pad_to_multiple_of", 8),
            ("truncation_mode", "keep_end"),
            ("shuffle_dataset", True),
            ("chat_template_path", "template.jinja"),
            ("eos_token", "</s>"),
            ("pad_token", "<pad>"),
            ("dataset_text_field", "content"),
            ("dataset_kwargs", {"skip_prepare_dataset": False}),
            ("dataset_num_proc", 2),
        ],
    )
    def test_what_would_be_ignored_is_refused(self, sft, tmp_path, option, value):
        assert option in sft.REFUSED
        with pytest.raises(ValueError, match=f"`{option}` .* has no effect here"):
            sft.Training(str(tmp_path), use_cpu=True, bf16=False, **{option: value})

    def test_what_says_nothing_new_is_not(self, sft, tmp_path):
        sft.Training(str(tmp_path), use_cpu=True, bf16=False, eval_packing=False)

    def losses(self, sft, folder, **settings):
        """Of two steps on the toy world."""
        from trl import ModelConfig, SFTTrainer

        found, log = [], SFTTrainer.log
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SFTTrainer, "log", lambda self, logs, *a: (found.append(logs), log(self, logs, *a))[1])
            arguments = sft.Arguments(toy_folder=str(folder / "videos"), toy_videos=6, toy_copies=2, max_pixels=1024)
            arguments.frame_budgets = [4]
            training = sft.Training(
                str(folder / "out"),
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                max_steps=2,
                per_device_train_batch_size=2,
                report_to="none",
                logging_steps=1,
                save_strategy="no",
                **settings,
            )
            sft.main(arguments, training, ModelConfig())
        assert all(logs["num_tokens"] > 100 for logs in found if "loss" in logs)
        return [logs["loss"] for logs in found if "loss" in logs]

    def test_the_options_that_work(self, sft, tmp_path):
        plain = self.losses(sft, tmp_path)
        assert self.losses(sft, tmp_path, packing=False) == pytest.approx(plain, rel=1e-4)
        assert self.losses(sft, tmp_path, max_length=4096) == plain
        assert self.losses(sft, tmp_path, activation_offloading=False, loss_type="dft") != plain
        with pytest.raises(ValueError, match="more than max_length 20"):
            self.losses(sft, tmp_path, max_length=20)

    def test_a_video_that_vanishes_costs_its_row_the_loss(self, sft, clips, toy_checkpoint, tmp_path, capsys, caplog):
        from trl import ModelConfig

        shutil.copy(clips / "cfr.mp4", tmp_path / "gone.mp4")
        rows = [{"messages": CONVERSATION}, {"messages": CONVERSATION, "videos": ["gone.mp4"]}]
        (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
        shutil.copy(clips / "cfr.mp4", tmp_path / "cfr.mp4")
        arguments = sft.Arguments(str(tmp_path / "rows.jsonl"), video_root=str(tmp_path), max_pixels=1024)
        arguments.frame_budgets, load = [4], sft.data.load_rows

        def load_and_lose(*args, **kwargs):
            found = load(*args, **kwargs)
            os.remove(tmp_path / "gone.mp4")
            return found

        training = sft.Training(
            str(tmp_path / "out"),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            max_steps=4,
            per_device_train_batch_size=1,  # half of the steps have no other row
            report_to="none",
            save_strategy="no",
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sft.data, "load_rows", load_and_lose)
            sft.main(arguments, training, ModelConfig(toy_checkpoint, dtype="float32"))
        assert "2 times a row had no loss" in capsys.readouterr().out
        assert sum("gone.mp4: not found" in message for message in caplog.messages) == 2
        from safetensors.torch import load_file

        old, new = (load_file(os.path.join(f, "model.safetensors")) for f in (toy_checkpoint, tmp_path / "out"))
        changed = [not old[name].equal(new[name]) for name in new if name in old]
        assert any(changed) and all(tensor.isfinite().all() for tensor in new.values())


class TestIgnored:
    """Options that would have no effect are refused before anything is loaded."""

    DATA = {"dataset_name": "rows.jsonl"}
    BOTH = [
        ({"video_root": "videos"}, {}, "`video_root` 'videos' has no effect without `dataset_name`"),
        ({"dataset_split": "test"}, {}, "`dataset_split` 'test' has no effect without `dataset_name`"),
        ({}, {"model_name_or_path": "m"}, "`model_name_or_path` 'm' has no effect without `dataset_name`"),
        ({}, {"model_revision": "v2"}, "`model_revision` 'v2' has no effect without `dataset_name`"),
        (DATA, {}, "`dataset_name` needs `model_name_or_path`"),
        ({**DATA, "toy_videos": 3}, {"model_name_or_path": "m"}, "`toy_videos` 3 has no effect with `dataset_name`"),
        ({**DATA, "toy_folder": "f"}, {"model_name_or_path": "m"}, "`toy_folder` 'f' has no effect with"),
        ({**DATA, "toy_checks": 0.5}, {"model_name_or_path": "m"}, "`toy_checks` 0.5 has no effect with"),
    ]

    @pytest.mark.parametrize(
        ("given", "model", "message"),
        [
            *BOTH,
            ({"max_bad_rows": 0.5}, {}, "`max_bad_rows` 0.5 has no effect without `dataset_name`"),
            ({}, {"dtype": "bfloat16"}, "`dtype` 'bfloat16' has no effect .* the toy world makes its model"),
            ({}, {"load_in_4bit": True}, "`load_in_4bit` True has no effect"),
            ({**DATA, "toy_faults": 0.5}, {"model_name_or_path": "m"}, "`toy_faults` 0.5 has no effect with"),
        ],
    )
    def test_cold_start(self, sft, tmp_path, given, model, message):
        from trl import ModelConfig

        training = sft.Training(str(tmp_path), use_cpu=True, bf16=False)
        with pytest.raises(ValueError, match=message):
            sft.main(sft.Arguments(**given), training, ModelConfig(**model))

    @pytest.mark.parametrize(
        ("given", "model", "message"),
        [
            *BOTH,
            ({**DATA, "cold_start": "c"}, {"model_name_or_path": "m"}, "`cold_start` 'c' has no effect with"),
            ({"judge_url": "http://j"}, {}, "`judge_url` 'http://j' has no effect without `judge_model`"),
            ({"eval_rows": 0, "eval_budgets": [4]}, {}, r"`eval_budgets` \[4\] has no effect with `eval_rows` 0"),
        ],
    )
    def test_reinforcement(self, sft, tmp_path, given, model, message):
        import para_grpo
        from trl import ModelConfig

        training = para_grpo.ParaGRPOConfig(str(tmp_path), use_cpu=True, bf16=False)
        with pytest.raises(ValueError, match=message):
            para_grpo.build(para_grpo.Arguments(**given), training, ModelConfig(**model))

    def test_how_the_model_is_loaded(self, sft, tmp_path):
        from trl import ModelConfig

        training = sft.Training(
            str(tmp_path), use_cpu=True, bf16=False, model_init_kwargs={"dtype": "float16", "a": 1}
        )
        found = sft.init_kwargs(training, ModelConfig(attn_implementation="eager"))
        assert found == {"dtype": "float16", "attn_implementation": "eager", "a": 1}

    def test_a_revision(self, tmp_path, monkeypatch):
        from paravt.engines import checkpoints

        asked = []
        monkeypatch.setattr(checkpoints, "snapshot_download", lambda *a, **k: asked.append((a, k)) or str(tmp_path))
        assert checkpoints.trainable("some/model", "v2") == str(tmp_path)
        assert asked == [(("some/model",), {"revision": "v2"})]
        with pytest.raises(ValueError, match="`model_revision` 'v2' is one of the hub, but .* is a folder"):
            checkpoints.trainable(str(tmp_path), "v2")


def test_a_benchmark_prints_as_it_measures_and_goes_on(monkeypatch, capsys):
    monkeypatch.syspath_prepend(os.path.join(RECIPES, "bench"))
    monkeypatch.syspath_prepend(RECIPES)
    from script import Rows

    def breaks():
        yield 2.0
        assert "first" in capsys.readouterr().out  # already printed
        raise MemoryError("no room")

    rows = Rows("title")
    rows.measure(["first", "second"], breaks)
    rows.measure(["third"], lambda: [3.0], "first")
    rows.measure(["fourth"], lambda: [1.0], "second")
    assert rows.attempt("engine", lambda: 1 / 0) is None
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["first", "and", "second:", "left", "out,", "MemoryError:", "no", "room"]
    assert lines[1:3] == [["third", "3.00", "1.50"], ["fourth", "1.00", "-"]]
    assert lines[3][:3] == ["engine:", "left", "out,"]


@pytest.mark.slow
class TestRecipes:
    def test_somebody_elses_rows_train(self, row_file, clips, toy_checkpoint, tmp_path):
        flags = ["--dataset_name", row_file, "--video_root", clips, "--model_name_or_path", toy_checkpoint]
        flags += ["--output_dir", tmp_path, "--use_peft", "--frame_budgets", 4, 8]
        text = run("para_grpo.py", *flags, *SMALL)
        assert "1 of 41 rows left out: 1 x video not found" in text and "after  K=8" in text
        assert (tmp_path / "adapter_model.safetensors").exists() and not (tmp_path / "model.safetensors").exists()

    def test_vanilla_is_the_same_script_with_the_knobs_off(self, row_file, clips, toy_checkpoint, tmp_path):
        flags = ["--dataset_name", row_file, "--video_root", clips, "--model_name_or_path", toy_checkpoint]
        flags += ["--output_dir", tmp_path, "--anchor_weight", 0, "--frame_budgets", 8, "--think_prefix", "false"]
        text = run("para_grpo.py", *flags, *SMALL)
        assert "after  K=8" in text and "K=4" not in text

    def test_weights_sharded_by_fsdp(self, row_file, clips, toy_checkpoint, tmp_path):
        """Two ranks train with the settings of `fsdp.yaml`; accelerate takes them for GPUs only, so it is told so."""
        (tmp_path / "told.py").write_text(TOLD.format(recipe=os.path.join(RECIPES, "para_grpo.py")))
        flags = ["--dataset_name", row_file, "--video_root", clips, "--output_dir", tmp_path / "out", "--use_peft"]
        flags += ["--model_name_or_path", toy_checkpoint]
        with open(os.path.join(RECIPES, "configs", "fsdp.yaml")) as file:
            settings = yaml.safe_load(file)["fsdp_config"]
        environment = {name.upper(): str(value) for name, value in settings.items()}
        ranks = two_ranks(
            tmp_path / "logs",
            tmp_path / "told.py",
            *flags,
            "--frame_budgets",
            "4",
            *SMALL,
            ACCELERATE_USE_FSDP="true",
            **environment,
        )
        assert ranks.code == 0 and "after  K=4" in ranks.stdout[0], str(ranks)
        assert all("sharded: DTensor" in text for text in ranks.stdout)
        assert (tmp_path / "out" / "adapter_model.safetensors").exists()

    def test_toy_world_end_to_end(self, tmp_path):
        flags = ["--config", os.path.join(RECIPES, "configs", "toy.yaml"), "--output_dir", tmp_path]
        flags += ["--toy_videos", 12, "--eval_rows", 4]
        resume = ["--save_steps", 1, "--resume_from_checkpoint", "true"]
        text = run("para_grpo.py", *flags, "--max_steps", 2, *resume)
        assert "Cold start" in text and "before K=4" in text and "after  K=32" in text and "starts afresh" in text
        assert (tmp_path / "adapter_model.safetensors").exists()
        mark(tmp_path / "checkpoint-2")
        (tmp_path / "checkpoint-3").mkdir()
        text = run("para_grpo.py", *flags, "--max_steps", 3, *resume)
        assert "Cold start" not in text and "after  K=32" in text
        assert "checkpoint-3 is half written" in text and is_marked(tmp_path / "checkpoint-3")

    def test_cold_start_on_conversations_with_lora(self, cold_start):
        assert (cold_start / "adapter_model.safetensors").exists() and is_marked(cold_start / "checkpoint-2")

    def test_an_adapter_that_cannot_be_merged_is_named(self, row_file, clips, cold_start, tmp_path):
        shutil.copytree(cold_start, tmp_path / "moved", ignore=shutil.ignore_patterns("merged", "checkpoint-*"))
        config = json.loads((tmp_path / "moved" / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = str(tmp_path / "gone")
        (tmp_path / "moved" / "adapter_config.json").write_text(json.dumps(config))
        command = [sys.executable, os.path.join(RECIPES, "para_grpo.py"), "--model_name_or_path", tmp_path / "moved"]
        command += ["--dataset_name", row_file, "--video_root", clips, "--output_dir", tmp_path / "out", *SMALL]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        assert done.returncode and f"could not be merged with '{tmp_path / 'gone'}'" in done.stderr

    def test_ablation(self, tmp_path):
        """Two rows of a small ablation, run again: finished cells are not repeated."""
        flags = ["--output_dir", tmp_path, "--seeds", 1, "--rows", "GRPO", "anchors with a baseline", "--tokens", 900]
        flags += ["--toy_videos", 12, "--eval_rows", 4, "--per_device_train_batch_size", 8]
        text = run("ablation/run.py", *flags)
        cells = sorted(os.listdir(tmp_path / "cells"))
        assert [c for c in cells if c.endswith("json")] == [
            "GRPO-1.json",
            "anchors-with-a-baseline-1.json",
            "cold-start-1.json",
        ]
        cell = json.loads((tmp_path / "cells" / "GRPO-1.json").read_text())
        assert cell["tokens"] >= 900 and cell["steps"] == len(cell["log"]) > 0 and cell["versions"]["trl"]
        assert set(cell["rates"]) == {"sampled", "greedy", "sequential"}
        assert set(cell["rates"]["greedy"]) == {"4", "8", "16", "32"}
        assert "| GRPO |" in text and (tmp_path / "dynamics.png").stat().st_size > 1000
        times = {name: (tmp_path / "cells" / name).stat().st_mtime for name in cells}
        (tmp_path / "cells" / "GRPO-1.json").unlink()
        run("ablation/run.py", *flags)
        again = {name: (tmp_path / "cells" / name).stat().st_mtime for name in cells}
        assert [n for n in cells if again[n] != times[n] and n.endswith("json")] == ["GRPO-1.json"]
        command = [sys.executable, os.path.join(RECIPES, "ablation/run.py"), "--rows", "nonsense"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode and "unknown rows ['nonsense']" in done.stderr
