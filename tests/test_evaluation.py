import json
import os

import pytest

from paravt import FrameBudgetCollator, ParallelRollout, toy
from paravt.engines import load_engine
from paravt.engines.checkpoints import find_checkpoint, is_merged, merge, resolve_model, weights_fingerprint
from paravt.engines.transformers import TransformersEngine
from paravt.evaluation import Records, measure, play, play_safely
from paravt.evaluation.playing import FIELDS, failed


@pytest.fixture(scope="module")
def engine(toy_processor):
    return TransformersEngine(toy.make_model(toy_processor).eval(), toy_processor)


@pytest.fixture(scope="module")
def collator(toy_processor):
    return FrameBudgetCollator(toy_processor, [4], max_pixels=1024)


def rollout():
    return ParallelRollout(max_turn_length=12, max_pixels=1024)


class TestPlay:
    def test_a_row_that_fails_is_a_record_without_a_score(self, engine, collator, toy_rows, clips):
        rows = [toy_rows[0], {**toy_rows[1], "videos": [str(clips / "page.mp4")]}, {**toy_rows[2], "videos": ["gone"]}]
        records = play(rollout(), engine, collator, rows, 64)
        assert [r["id"] for r in records] == [row["key"] for row in rows]
        assert [r["error"] is None for r in records] == [True, False, False]
        assert [r["score"] for r in records] == [0.0, None, None]  # an untrained model answers nothing: wrong
        assert "web page" in records[1]["error"] and "not found" in records[2]["error"]
        assert records[0]["frames"] == 4 and records[0]["pixels"] == 4 * 1024 and records[0]["turns"]
        assert [r["parseable"] for r in records] == [False] * 3 and records[1]["fault"] is None
        assert records[0]["fault"] == {"reason": "cut_by_length", "turn": 0, "place": len(records[0]["turns"][0])}
        rates = measure(rollout(), engine, collator.chat.processor, rows, [4], 64, 1024, progress=False)
        assert rates[4]["accuracy"] == 0.0

    def test_what_one_row_breaks_costs_that_row(self, engine, collator, toy_rows):
        for prompt in ([{"role": "user", "content": None}], [], None, 5, [None]):
            broken = {**toy_rows[1], "prompt": prompt}
            records = play_safely(rollout(), engine, collator, [toy_rows[0], broken, toy_rows[2]], 64)
            assert [bool(r["error"]) for r in records] == [False, True, False]
            assert "Error" in records[1]["error"] and records[1]["score"] is None
            assert records[1]["question"] == str(prompt)

    def test_watching(self, engine, collator, toy_rows):
        seen = []
        records = play(rollout(), engine, collator, toy_rows[:2], 64, lambda i, m: seen.append((i, m["content"])))
        assert sorted(seen) == [(i, text) for i, r in enumerate(records) for text in r["turns"]]


def test_engine_arguments_are_those_of_vllm(toy_checkpoint):
    with pytest.raises(ValueError, match="`engine_args` are those of vLLM, got {'max_num_seqs': 4}"):
        load_engine(toy_checkpoint, engine_args={"max_num_seqs": 4})


class TestRecords:
    SETTINGS = {"frames": 64, "model": "m"}

    def record(self, number, error=None):
        return {"id": f"task/test/{number}", "error": error, "prediction": "ä\u2028"}

    def test_a_half_line_is_never_read_as_whole(self, tmp_path):
        path = str(tmp_path / "deep" / "records.jsonl")
        records = Records(path, self.SETTINGS)
        records.add(self.record(0))
        records.add(self.record(1))
        whole = open(path, "rb").read()
        with open(path, "ab") as file:
            file.write(whole[: len(whole) // 4])
        again = Records(path, self.SETTINGS)
        assert list(again.done) == ["task/test/0", "task/test/1"] and open(path, "rb").read() == whole
        again.add(self.record(2))
        lines = [json.loads(line) for line in open(path, encoding="utf-8").read().split("\n")[:-1]]
        assert [r["id"][-1] for r in lines] == ["0", "1", "2"] and lines[0]["settings"] == self.SETTINGS

    def test_other_settings_are_refused_by_name(self, tmp_path):
        path = str(tmp_path / "records.jsonl")
        Records(path, self.SETTINGS).add(self.record(0))
        with pytest.raises(ValueError, match="frames 64 there and 32 now"):
            Records(path, {**self.SETTINGS, "frames": 32})

    def test_a_failure_does_not_replace_an_answer(self, tmp_path):
        path = str(tmp_path / "records.jsonl")
        records = Records(path, self.SETTINGS)
        for record in (self.record(0, "gone"), self.record(0), self.record(1), self.record(1, "gone")):
            records.add(record)
        assert [r["error"] for r in Records(path, self.SETTINGS).done.values()] == [None, None]

    @pytest.mark.parametrize(
        "damage",
        [
            b"\0" * 20,
            b"{",
            b"[]",
            b"null",
            b'{"id": "task/test/1"}',
            b"\xff\xfe",
            b'{"a": ' * 5000,
            b"7",
            b"half of it} {",
        ],
    )
    def test_a_damaged_line_is_reported_and_its_question_asked_again(self, tmp_path, caplog, damage):
        path = str(tmp_path / "records.jsonl")
        records = Records(path, self.SETTINGS)
        for number in range(3):
            records.add(self.record(number))
        lines = open(path, "rb").read().split(b"\n")
        lines[1] = damage
        with open(path, "wb") as file:
            file.write(b"\n".join(lines))
        again = Records(path, self.SETTINGS)
        assert list(again.done) == ["task/test/0", "task/test/2"]
        again.add(self.record(1))
        assert sorted(again.everything()) == sorted(Records(path, self.SETTINGS).done)
        assert [record.message for record in caplog.records] == [
            f"line 2 of {path} is damaged: its question is asked again"
        ] * 2  # once for each time that the file was opened

    @pytest.mark.parametrize("lacking", [*FIELDS, "settings"])
    def test_a_line_that_lacks_a_field_is_damaged(self, tmp_path, lacking):
        path = str(tmp_path / "records.jsonl")
        records = Records(path, self.SETTINGS, fields=FIELDS)
        for key in ("a", "b"):
            records.add(failed({"key": key}, "What?", None))
        lines = [json.loads(line) for line in open(path, encoding="utf-8")]
        lines[1].pop(lacking)
        with open(path, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        assert list(Records(path, self.SETTINGS, fields=FIELDS).done) == ["a"]

    def test_ranks_have_files_of_their_own(self, tmp_path):
        path = str(tmp_path / "records.jsonl")
        first, second = Records(path, self.SETTINGS), Records(path, self.SETTINGS, rank=1)
        first.add(self.record(0))
        second.add(self.record(1))
        assert os.path.exists(tmp_path / "records.1.jsonl")
        assert sorted(first.everything()) == ["task/test/0", "task/test/1"]


class TestFindCheckpoint:
    def checkpoint(self, folder, step, state="{}", weights=None):
        path = folder / f"checkpoint-{step}"
        path.mkdir()
        if state is not None:
            (path / "trainer_state.json").write_text(state)
        if weights is not None:
            (path / "model.safetensors").write_bytes(weights)
        return str(path)

    def find(self, asked, folder):
        said = []
        return find_checkpoint(asked, str(folder), said.append), said

    @pytest.mark.parametrize("asked", [None, False, "false", "False", "no", ""])
    def test_not_asked_for(self, tmp_path, asked):
        self.checkpoint(tmp_path, 2)
        assert self.find(asked, tmp_path) == (None, [])

    @pytest.mark.parametrize("asked", [True, "true", "True", "TRUE", "yes", "latest", "last"])
    def test_the_newest(self, tmp_path, asked):
        for step in (2, 10, 9):
            self.checkpoint(tmp_path, step)
        (tmp_path / "checkpoint-best").mkdir()
        assert self.find(asked, tmp_path) == (str(tmp_path / "checkpoint-10"), [])

    def test_nothing_to_go_on_from(self, tmp_path):
        for folder in (tmp_path, tmp_path / "gone"):
            assert self.find("true", folder) == (
                None,
                [f"{folder} has no checkpoint to go on from: training starts afresh"],
            )

    def test_half_written_ones_are_passed_over(self, tmp_path):
        from safetensors.torch import save
        from torch import zeros

        weights = save({"a": zeros(100)})
        whole = self.checkpoint(tmp_path, 2, weights=weights)
        halves = [
            self.checkpoint(tmp_path, 8, weights=weights[:-50]),
            self.checkpoint(tmp_path, 6, state='{"a": '),
            self.checkpoint(tmp_path, 4, state=None, weights=weights),
        ]
        assert self.find("true", tmp_path) == (
            whole,
            [f"{half} is half written: it is passed over" for half in halves],
        )
        assert self.find(whole, tmp_path) == (whole, [])
        for path in (halves[0], str(tmp_path / "checkpoint-99"), "treu"):
            with pytest.raises(ValueError, match="is no whole checkpoint"):
                self.find(path, tmp_path)

    @pytest.mark.parametrize(
        "name",
        ["optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin", "global_step4/bf16_optim_states.pt"],
    )
    def test_state_that_is_cut_is_half_written(self, tmp_path, name):
        import torch

        folder = self.checkpoint(tmp_path, 4)
        path = tmp_path / "checkpoint-4" / name
        path.parent.mkdir(exist_ok=True)
        torch.save({"a": torch.zeros(1000)}, path)
        assert self.find("true", tmp_path) == (folder, [])
        for size in (path.stat().st_size - 100, 1000, 0):
            os.truncate(path, size)
            assert self.find("true", tmp_path)[0] is None
        torch.save({"a": torch.zeros(1000)}, path, _use_new_zipfile_serialization=False)
        assert self.find("true", tmp_path) == (folder, [])


class TestWeightsFingerprint:
    def test_other_weights_under_the_same_path(self, toy_processor, tmp_path):
        import shutil

        import torch

        model, base = toy.make_model(toy_processor, 1), str(tmp_path / "base")
        model.save_pretrained(base)
        first = weights_fingerprint(base)
        shutil.copytree(base, tmp_path / "copy")
        (tmp_path / "copy" / "notes.md").write_text("x")
        assert weights_fingerprint(str(tmp_path / "copy")) == first
        seen = {first}
        for parameter in list(model.parameters())[::7]:
            with torch.no_grad():
                parameter.add_(1e-3)
            model.save_pretrained(base)
            seen.add(weights_fingerprint(base))
        assert len(seen) == 1 + len(list(model.parameters())[::7])

    def test_other_adapters_on_the_same_base(self, toy_checkpoint, tmp_path):
        (tmp_path / "adapter_config.json").write_text("{}")
        seen = {weights_fingerprint(toy_checkpoint), weights_fingerprint(toy_checkpoint, str(tmp_path))}
        (tmp_path / "adapter_model.safetensors").write_bytes(b"a")
        seen.add(weights_fingerprint(toy_checkpoint, str(tmp_path)))
        assert len(seen) == 3


class TestLoad:
    def test_adapters(self, toy_checkpoint, toy_processor, toy_rows, tmp_path):
        import torch
        from peft import LoraConfig, get_peft_model
        from transformers import Qwen3VLForConditionalGeneration

        model = get_peft_model(
            Qwen3VLForConditionalGeneration.from_pretrained(toy_checkpoint),
            LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False),
        )
        model.save_pretrained(tmp_path)
        assert resolve_model(str(tmp_path)) == (toy_checkpoint, str(tmp_path))
        assert resolve_model(toy_checkpoint) == (toy_checkpoint, None)
        collator = FrameBudgetCollator(toy_processor, [4], max_pixels=1024)
        expected = play(rollout(), TransformersEngine(model.eval(), toy_processor), collator, toy_rows[:2], 64)
        engine = load_engine(str(tmp_path), max_pixels=1024, device="cpu")
        found = play(rollout(), engine, collator, toy_rows[:2], 64)
        assert [r["turns"] for r in found] == [r["turns"] for r in expected]
        merged = Qwen3VLForConditionalGeneration.from_pretrained(merge(toy_checkpoint, str(tmp_path)))
        plain = Qwen3VLForConditionalGeneration.from_pretrained(toy_checkpoint)
        changed = [not torch.equal(a, b) for a, b in zip(merged.parameters(), plain.parameters(), strict=True)]
        assert any(changed)

    def test_a_merged_model_is_that_of_the_adapter_and_the_base(self, toy_checkpoint, toy_processor, tmp_path):
        import torch
        from peft import LoraConfig, get_peft_model
        from transformers import Qwen3VLForConditionalGeneration

        def train(folder, base, seed):
            torch.manual_seed(seed)
            model = Qwen3VLForConditionalGeneration.from_pretrained(base)
            config = LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False)
            get_peft_model(model, config).save_pretrained(folder)

        def weights(folder):
            model = Qwen3VLForConditionalGeneration.from_pretrained(folder)
            return sum(p.double().sum().item() for name, p in model.named_parameters() if "q_proj" in name)

        adapter, base = str(tmp_path / "adapter"), str(tmp_path / "base")
        toy.make_model(toy_processor, 1).save_pretrained(base)
        toy_processor.save_pretrained(base)
        train(adapter, base, seed=0)
        folder = merge(base, adapter)
        first, written = weights(folder), os.stat(os.path.join(folder, "model.safetensors")).st_mtime_ns
        assert merge(base, adapter) == folder  # nothing changed, nothing written
        assert os.stat(os.path.join(folder, "model.safetensors")).st_mtime_ns == written
        train(adapter, base, seed=1)
        second = weights(merge(base, adapter))
        assert second != first
        toy.make_model(toy_processor, 2).save_pretrained(base)
        assert weights(merge(base, adapter)) not in (first, second)
        os.remove(os.path.join(folder, "merged_from.json"))  # killed before the end
        (tmp_path / "adapter" / "merged" / "model.safetensors").write_bytes(b"")
        assert weights(merge(base, adapter)) not in (first, second)

    def test_a_merge_that_was_cut_off_is_done_again(self, toy_checkpoint, tmp_path, monkeypatch):
        from peft import LoraConfig, get_peft_model
        from transformers import Qwen3VLForConditionalGeneration

        adapter, folder = str(tmp_path / "adapter"), str(tmp_path / "merged")
        model = Qwen3VLForConditionalGeneration.from_pretrained(toy_checkpoint)
        get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj"])).save_pretrained(adapter)
        with monkeypatch.context() as patch:
            save = Qwen3VLForConditionalGeneration.save_pretrained
            patch.setattr(
                Qwen3VLForConditionalGeneration, "save_pretrained", lambda self, path: (save(self, path), 1 / 0)
            )
            with pytest.raises(ZeroDivisionError):
                merge(toy_checkpoint, adapter, folder)
        assert os.path.exists(os.path.join(folder, "model.safetensors")) and not is_merged(
            toy_checkpoint, adapter, folder
        )
        os.makedirs(os.path.join(folder, "old"))
        assert merge(toy_checkpoint, adapter, folder) == folder and is_merged(toy_checkpoint, adapter, folder)
        assert not os.path.exists(os.path.join(folder, "old"))

    def test_a_folder_of_something_else_is_not_merged_into(self, toy_checkpoint, tmp_path):
        (tmp_path / "adapter_config.json").write_text("{}")
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "notes.txt").write_text("keep")
        with pytest.raises(ValueError, match="neither empty nor a merged model"):
            merge(toy_checkpoint, str(tmp_path), str(tmp_path / "mine"))
        assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"

    def test_unknown_engine(self, toy_checkpoint):
        with pytest.raises(ValueError, match="must be one of .* got 'sglang'"):
            load_engine(toy_checkpoint, engine="sglang")
