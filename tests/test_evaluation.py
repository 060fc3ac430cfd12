import json
import os
from pathlib import Path

import pytest

from paravt import FrameBudgetCollator, ParallelRollout, toy
from paravt.engines import load_engine
from paravt.engines.checkpoints import merge, resolve_model
from paravt.engines.transformers import TransformersEngine
from paravt.evaluation import Records, measure, play, play_safely


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
        broken = {**toy_rows[1], "prompt": [{"role": "user", "content": None}]}
        records = play_safely(rollout(), engine, collator, [toy_rows[0], broken, toy_rows[2]], 64)
        assert [bool(r["error"]) for r in records] == [False, True, False]
        assert "Error" in records[1]["error"] and records[1]["score"] is None

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

    def test_ranks_have_files_of_their_own(self, tmp_path):
        path = str(tmp_path / "records.jsonl")
        first, second = Records(path, self.SETTINGS), Records(path, self.SETTINGS, rank=1)
        first.add(self.record(0))
        second.add(self.record(1))
        assert os.path.exists(tmp_path / "records.1.jsonl")
        assert sorted(first.everything()) == ["task/test/0", "task/test/1"]


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

    def test_an_adapter_that_was_trained_again_is_merged_again(self, toy_checkpoint, tmp_path):
        from peft import LoraConfig, get_peft_model
        from transformers import Qwen3VLForConditionalGeneration

        merged = []
        for _ in range(2):
            model = Qwen3VLForConditionalGeneration.from_pretrained(toy_checkpoint)
            config = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
            get_peft_model(model, config).save_pretrained(tmp_path)
            file = Path(merge(toy_checkpoint, str(tmp_path))) / "model.safetensors"
            merged.append(file.read_bytes())
            written = file.stat().st_mtime_ns
            merge(toy_checkpoint, str(tmp_path))
            assert file.stat().st_mtime_ns == written
        assert merged[0] != merged[1]

    def test_unknown_engine(self, toy_checkpoint):
        with pytest.raises(ValueError, match="must be one of .* got 'sglang'"):
            load_engine(toy_checkpoint, engine="sglang")
