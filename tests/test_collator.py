import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections import Counter

import pytest
import torch
from torch.nn.functional import cross_entropy

from paravt import FrameBudgetCollator, SupervisedCollator, toy
from paravt.collator import frame_budget
from paravt.engines.features import Tower
from paravt.forest import teach_forests


BUDGETS = [4, 8, 16, 32, 64]


def row(path, question="<video>What is it?", **columns):
    return {"prompt": [{"role": "user", "content": question}], "videos": [{"video": str(path)}], **columns}


def text_of(prepared):
    return "".join(p.get("text") or "[image]" for m in prepared["prompt"] for p in m["content"])


class TestFrameBudget:
    def test_uniform_over_keys_and_new_in_each_epoch(self):
        draws = Counter(frame_budget(0, 0, f"row {i}", BUDGETS) for i in range(5000))
        assert set(draws) == set(BUDGETS) and all(abs(n - 1000) < 120 for n in draws.values())
        assert len({frame_budget(0, epoch, "row", BUDGETS) for epoch in range(30)}) == 5
        assert len({frame_budget(seed, 0, "row", BUDGETS) for seed in range(30)}) == 5

    def test_fault_6_the_same_in_every_process(self):
        code = (
            "from paravt.collator import frame_budget\n"
            "print([frame_budget(1, 2, str(i), [4, 8, 16]) for i in range(20)])"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert json.loads(run.stdout) == [frame_budget(1, 2, str(i), [4, 8, 16]) for i in range(20)]


class TestFrameBudgetCollator:
    def test_fault_1_the_drawn_budget_reaches_the_decoder(self, toy_processor, clips):
        for budget in BUDGETS:
            (out,) = FrameBudgetCollator(toy_processor, [budget])([row(clips / "cfr.mp4")])
            assert out["frame_budget"] == budget == len(out["images"]) == text_of(out).count("[image]")

    def test_a_group_shares_its_frames(self, toy_processor, clips):
        rows = FrameBudgetCollator(toy_processor, BUDGETS)([row(clips / "cfr.mp4")] * 8)
        assert len({r["frame_budget"] for r in rows}) == 1
        assert all(r["images"][0] is rows[0]["images"][0] for r in rows)

    def test_fault_3_another_question_on_a_video_is_another_prompt(self, toy_processor, clips):
        rows = [row(clips / "cfr.mp4", f"<video>Question {i}?") for i in range(40)]
        out = FrameBudgetCollator(toy_processor, BUDGETS)(rows)
        assert (
            all(f"Question {i}?" in text_of(r) for i, r in enumerate(out))
            and len({r["frame_budget"] for r in out}) > 2
        )

    def test_markers_are_true_seconds_before_each_frame(self, toy_processor, clips):
        (out,) = FrameBudgetCollator(toy_processor, [8])([row(clips / "vfr.mp4")])
        text = text_of(out)
        assert "Video vfr.mp4, 9.0 seconds." in text
        for frame in out["images"]:
            assert f"<{frame.time:.1f} seconds>[image]" in text

    @pytest.mark.parametrize("frames", [1, 3, 5])
    def test_short_clips(self, toy_processor, clips, frames):
        (out,) = FrameBudgetCollator(toy_processor, [64])([row(clips / f"n{frames}.mp4")])
        assert len(out["images"]) == frames

    def test_rows_to_evaluate_on_have_one_budget_for_ever(self, toy_processor, clips):
        collator = FrameBudgetCollator(toy_processor, BUDGETS, seed=3)
        evaluation = collator.for_evaluation()
        rows = [row(clips / "cfr.mp4", key=str(i)) for i in range(12)]
        drawn = []
        for epoch in range(3):
            collator.epoch = epoch
            drawn.append([r["frame_budget"] for r in evaluation(rows)])
            assert [r["frame_budget"] for r in collator(rows)] == [
                frame_budget(3, epoch, str(i), BUDGETS) for i in range(12)
            ]
        assert drawn == [[frame_budget(3, 0, str(i), BUDGETS) for i in range(12)]] * 3

    @pytest.mark.parametrize("persistent", [False, True])
    def test_workers_of_a_loader_see_the_epoch(self, toy_processor, clips, persistent):
        collator = FrameBudgetCollator(toy_processor, BUDGETS)
        rows = [row(clips / "cfr.mp4", key=str(i)) for i in range(12)]
        loader = torch.utils.data.DataLoader(
            rows, batch_size=4, collate_fn=collator, num_workers=1, persistent_workers=persistent
        )
        for epoch in range(3):
            collator.epoch = epoch
            found = [r["frame_budget"] for batch in loader for r in batch]
            assert found == [frame_budget(0, epoch, str(i), BUDGETS) for i in range(12)]

    def test_data_sets_without_counted_epochs_are_refused(self, toy_processor, toy_rows):
        from types import SimpleNamespace

        from datasets import Dataset

        rows = Dataset.from_list(toy_rows)
        loader = SimpleNamespace(dataset=rows.to_iterable_dataset())
        with pytest.raises(ValueError, match="`train_dataset` is iterable"):
            FrameBudgetCollator(toy_processor, BUDGETS).on_train_begin(None, None, None, train_dataloader=loader)
        with pytest.raises(ValueError, match=r"`train_dataset` has no column `videos`, only \['prompt'\]"):
            FrameBudgetCollator(toy_processor, [8]).check(
                Dataset.from_list([{"prompt": row["prompt"]} for row in toy_rows])
            )
        FrameBudgetCollator(toy_processor, [8]).check(loader.dataset)
        FrameBudgetCollator(toy_processor, BUDGETS).check(rows)

    def test_epoch_follows_the_trainer(self, toy_processor, clips):
        from types import SimpleNamespace

        collator = FrameBudgetCollator(toy_processor, BUDGETS)
        drawn = []
        for epoch in (0, 1.0, 1.4, 2.0):  # 1.4: resumed in the middle of the second epoch
            collator.on_epoch_begin(None, SimpleNamespace(epoch=epoch), None)
            drawn.append([collator.prepare(row(clips / "cfr.mp4", key=str(i)))["frame_budget"] for i in range(20)])
        assert drawn[1] == drawn[2] and drawn[0] != drawn[1] != drawn[3]

    def test_two_videos_of_one_name_have_two_names(self, toy_processor, clips, tmp_path):
        paths = []
        for folder in ("a", "b"):
            (tmp_path / folder).mkdir()
            paths.append(str(tmp_path / folder / "cfr.mp4"))
            shutil.copy(clips / "cfr.mp4", paths[-1])
        collator = FrameBudgetCollator(toy_processor, [4])
        for videos, names in ((paths, ("a/cfr.mp4", "b/cfr.mp4")), ([paths[0]] * 2, ("cfr.mp4", "cfr.mp4 (2)"))):
            (out,) = collator([{**row("x", "<video><video>Which?"), "videos": videos}])
            assert [text_of(out).count(f"Video {name}, 10.0 seconds.") for name in names] == [1, 1]

    def test_the_turns_before_the_question_stay(self, toy_processor, clips):
        turns = [
            {"role": "user", "content": "<video>Which animal?"},
            {"role": "assistant", "content": "A dog."},
            {"role": "user", "content": "Which colour?"},
        ]
        (out,) = FrameBudgetCollator(toy_processor, [4])([{"prompt": turns, "videos": [str(clips / "cfr.mp4")]}])
        assert [m["role"] for m in out["prompt"]] == ["system", "user", "assistant", "user"]
        texts = ["".join(p.get("text") or "" for p in m["content"]) for m in out["prompt"]]
        assert texts[1].endswith("Which animal?") and texts[2:] == ["A dog.", "Which colour?"]

    def test_several_videos(self, toy_processor, clips):
        two = [str(clips / "cfr.mp4"), str(clips / "vfr.mp4")]
        for question in ("Compare <video> with <video>.", "<video>Compare.", "Compare."):
            (out,) = FrameBudgetCollator(toy_processor, [8])(
                [{"prompt": [{"role": "user", "content": question}], "videos": two}]
            )
            text = text_of(out)
            assert len(out["images"]) == 8 and text.index("cfr.mp4") < text.index("vfr.mp4") and "<video>" not in text

    def test_a_missing_video_is_told_and_spoils_nothing(self, toy_processor, clips):
        bad, good = FrameBudgetCollator(toy_processor, [4])([row("/nowhere.mp4"), row(clips / "cfr.mp4")])
        assert "not found" in bad["video_error"] and good["video_error"] is None
        (grey,) = bad["images"]  # no row is without a picture
        assert set(grey.getdata()) == {(127, 127, 127)} and grey.key is None
        assert sum(part["type"] == "image" for m in bad["prompt"] for part in m["content"]) == 1
        assert copy.deepcopy(grey) is grey and pickle.loads(pickle.dumps(grey)).size == grey.size

    def test_rows_are_read_in_every_shape(self, toy_processor, clips):
        path, collator = str(clips / "cfr.mp4"), FrameBudgetCollator(toy_processor, [4])
        (plain,) = collator([row(path, "<video>What?")])
        part = {"type": "video", "video": path, "text": "What?"}
        for shape in (
            {"prompt": "<video>What?", "videos": path},
            {"prompt": "<video>What?", "videos": {"path": path}},
            {"prompt": "What?", "videos": [[path]]},
            {"prompt": json.dumps([{"role": "user", "content": "<video>What?"}]), "videos": json.dumps([path])},
            {"prompt": [{"role": "user", "content": part}]},
            {"prompt": [{"role": "user", "content": [{"type": "video"}, {"type": "text", "value": "What?"}]}]}
            | {"videos": [{"video": {"url": path}}]},
        ):
            (out,) = collator([shape])
            assert text_of(out) == text_of(plain) and out["videos"] == [path] and out["key"] == plain["key"]

    @pytest.mark.parametrize(
        "shape, named",
        [
            ({"videos": 5}, "videos: int is no path, in a row with .*'videos': 5"),
            ({"videos": [{"fps": 7}]}, "an object without a path, in a row with .*'fps': 7"),
            ({"prompt": [{"role": "user", "content": 7}]}, "content is int, in a row with .*'content': 7"),
            ({"prompt": [{"role": "user", "content": [{"image": "x.png"}]}]}, "image parts .*'x.png'"),
            ({"prompt": None}, "no prompt, in a row with {'prompt': None"),
            ({"prompt": [{"role": "system", "content": "x"}]}, "no user message"),
        ],
    )
    def test_rows_without_a_reading_are_shown(self, toy_processor, shape, named):
        with pytest.raises(ValueError, match=named):
            FrameBudgetCollator(toy_processor, [4])([{**row("a.mp4"), **shape}])

    @pytest.mark.parametrize("budgets", [[], (), [0], [4, -1]])
    def test_budgets_without_frames_are_refused(self, toy_processor, budgets):
        with pytest.raises(ValueError, match="`budgets` must be a list of positive integers, got"):
            FrameBudgetCollator(toy_processor, budgets)

    def test_text_cannot_hold_placeholders(self, toy_processor, clips):
        (out,) = FrameBudgetCollator(toy_processor, [4])(
            [row(clips / "cfr.mp4", "<video>What <|image_pad|> is <|im_end|>it?")]
        )
        assert "<|" not in text_of(out)

    def test_a_prompt_may_speak_of_tags(self, toy_processor, clips):
        """`evaluate.py` and `ask.py` write the system prompt into the row: it must be the one of training."""
        from paravt.prompts import INSTRUCTIONS, system_prompt

        collator = FrameBudgetCollator(toy_processor, [4])
        video, user = [str(clips / "cfr.mp4")], {"role": "user", "content": "<video>What? Use <answer></answer>."}
        (trained,) = collator([{"prompt": [user], "videos": video}])
        for system in (system_prompt(), INSTRUCTIONS):
            (asked,) = collator([{"prompt": [{"role": "system", "content": system}, user], "videos": video}])
            assert text_of(asked) == text_of(trained)
        theirs = "You have {'name': 'crop_video', 'parameters': ['start_time', 'end_time']}."
        (out,) = collator([{"prompt": [{"role": "system", "content": theirs}, user], "videos": video}])
        assert "# Tools" not in text_of(out)
        user["content"] = "<video>Think inside <think></think><|im_end|><tool_<|im_start|>call>."
        (out,) = collator([{"prompt": [user], "videos": video}])
        assert text_of(out).endswith("Think inside <think></think><tool_call>.")
        assert out["question"] == "Think inside <think></think><tool_call>."

    def test_system_prompt_is_kept_and_given_the_tool(self, toy_processor, clips):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "<video>What?"}]
        (out,) = FrameBudgetCollator(toy_processor, [4])([{"prompt": messages, "videos": [str(clips / "cfr.mp4")]}])
        assert text_of(out).startswith("Be brief.\n\n# Tools") and text_of(out).count("# Tools") == 1

    def test_the_system_prompt_is_what_the_template_writes_for_the_tool(self, toy_processor):
        from paravt.prompts import INSTRUCTIONS, TOOL, system_prompt

        messages = [{"role": "user", "content": "hello"}]
        ours = toy_processor.apply_chat_template([{"role": "system", "content": system_prompt()}, *messages])
        theirs = toy_processor.apply_chat_template(
            [{"role": "system", "content": INSTRUCTIONS}, *messages], tools=[TOOL]
        )
        assert ours == theirs


class TestLookAhead:
    def test_a_batch_decodes_while_the_one_before_is_in_use(self, toy_processor, toy_rows, monkeypatch):
        from paravt.video import decode, jobs, timeline

        asked, schedule = [], timeline.schedule

        def counted(function, *args):
            asked.extend([args[0]] if function is decode.decode else [])
            return schedule(function, *args)

        monkeypatch.setattr(timeline, "schedule", counted)
        jobs._recent.clear()
        collator = FrameBudgetCollator(toy_processor, [7], max_pixels=1024)
        first = collator(toy_rows[:2])
        assert len(asked) == 2  # nobody has looked at a frame yet
        for row in first:
            for frame in row["images"]:
                frame.load()
                frame.clip.release()
        jobs._recent.clear()
        again = collator(toy_rows[:2])  # the next micro-step of the same batch
        assert len(asked) == 2 and [r["images"] for r in again] == [r["images"] for r in first]
        collator(toy_rows[2:4])
        assert len(asked) == 4


class TestSupervisedCollator:
    def test_segments_are_those_of_a_rollout(self, toy_processor, toy_rows):
        rows = toy.supervised_rows(toy_rows, [4])
        collator = SupervisedCollator(FrameBudgetCollator(toy_processor, max_pixels=1024))
        decode = toy_processor.tokenizer.decode
        called = next(r for r in rows if len(r["completion"]) > 2)
        ids, mask, _ = collator.encode(called)
        learned = decode([i for i, m in zip(ids, mask, strict=True) if m])
        turns = [m["content"] for m in called["completion"] if m["role"] == "assistant"]
        assert learned == "".join(t + "<|im_end|>" for t in turns)
        assert "tool_response" in decode(ids) and "Seconds 0.0 to 16.0" not in learned
        whole = [{"role": "user", "content": "a"}, *called["completion"]]
        rendered = toy_processor.apply_chat_template(whole, tokenize=False)
        assert decode(ids).endswith(rendered[rendered.index("<|im_start|>assistant") :].rstrip("\n"))

    def test_toy_rows_keep_their_budget_in_a_dataset(self, toy_rows):
        from datasets import Dataset

        rows = toy.supervised_rows(toy_rows, [4, 8])
        for order in (rows, rows[::-1]):
            kept = list(Dataset.from_list(order))
            assert [r["frame_budget"] for r in kept] == [r["frame_budget"] for r in order]
            assert [r["window"] for r in kept] == [r["window"] for r in order]

    def test_batch(self, toy_processor, toy_rows):
        rows = toy.supervised_rows(toy_rows, [4, 8])[:6]
        batch = SupervisedCollator(FrameBudgetCollator(toy_processor, max_pixels=1024))(rows)
        placeholders = (batch["input_ids"] == toy_processor.image_token_id).sum().item()
        assert (
            batch["image_grid_thw"].prod(-1).sum().item() // 4
            == placeholders
            == batch["mm_token_type_ids"].sum().item()
        )
        assert (batch["labels"] != -100).any(1).all() and (batch["labels"][batch["attention_mask"] == 0] == -100).all()

    @pytest.mark.parametrize("kind", ["turns", "reports", "both", "one row", "own system prompts"])
    def test_a_packed_batch_is_the_padded_one(self, toy_processor, toy_rows, kind):
        rows = toy.supervised_rows(toy_rows, [4, 8])[:8]
        if kind == "own system prompts":
            rows = [
                {**row, "prompt": [{"role": "system", "content": "x" * i}, *row["prompt"]]}
                for i, row in enumerate(rows)
            ]
        rows = {"turns": rows[::2], "reports": rows[1::2], "one row": rows[:1]}.get(kind, rows)
        model = toy.make_model(toy_processor)
        budgets = FrameBudgetCollator(toy_processor, max_pixels=1024)
        padded = SupervisedCollator(budgets)(rows)
        teach_forests(model)
        packed = SupervisedCollator(budgets, rope=Tower(model, toy_processor.image_processor).rope)(rows)
        losses, gradients = zip(*(self.loss(model, batch) for batch in (padded, packed)), strict=True)
        torch.testing.assert_close(*losses, rtol=1e-5, atol=0)
        for name, expected in gradients[0].items():
            assert (gradients[1][name] - expected).norm() <= 1e-5 * expected.norm() + 1e-7, name
        rows_of = [SupervisedCollator(budgets).encode(row)[0] for row in rows]
        common = len(os.path.commonprefix(rows_of)) if len(rows) > 1 else 0
        distinct = sum(len(ids) for ids in rows_of) - max(0, common - 1) * (len(rows) - 1)
        assert packed["input_ids"].shape == (1, distinct)

    def loss(self, model, batch):
        batch = dict(batch)
        labels = batch.pop("labels")
        model.zero_grad()
        logits = model(**batch, use_cache=False).logits
        loss = cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        loss.backward()
        return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    def test_an_empty_mask_is_refused(self, toy_processor, toy_rows):
        collator = SupervisedCollator(FrameBudgetCollator(toy_processor, [4], max_pixels=1024))
        for completion, fault in (([], "no completion"), ([{"role": "tool", "content": "a"}], "no assistant text")):
            with pytest.raises(ValueError, match=fault):
                collator([{**toy_rows[0], "completion": completion}])

    def test_a_video_gone_bad_costs_its_row_the_loss(self, toy_processor, toy_rows, clips, tmp_path, caplog):
        said = [{"role": "assistant", "content": "red"}]
        rows = [{**row, "completion": said} for row in toy_rows[:2]]
        collator = SupervisedCollator(FrameBudgetCollator(toy_processor, [4], max_pixels=1024), max_bad_rows=1.0)
        model = toy.make_model(toy_processor).eval()
        for path in (tmp_path / "gone.mp4", clips / "page.mp4", clips / "damaged.mp4"):
            batch = collator([{**rows[0], "videos": [str(path)], "key": "bad", "frame_budget": 64}, rows[1]])
            assert (batch["labels"][0] == -100).all() and (batch["labels"][1] != -100).any()
            assert batch["attention_mask"][0].any() and torch.isfinite(model(**batch).loss)
            assert str(path) in caplog.messages[-1] and "row 'bad' has no loss" in caplog.messages[-1]
        assert collator.bad_rows == 3 and caplog.messages[-1].startswith("row 'bad' has no loss (3 of 6 so far)")
        assert collator(rows)["labels"].ne(-100).any(1).all() and collator.bad_rows == 3

    def test_more_bad_rows_than_allowed_end_it(self, toy_processor, toy_rows, clips):
        good = {**toy_rows[0], "completion": "red"}
        bad = {**good, "videos": [str(clips / "page.mp4")]}
        collator = SupervisedCollator(FrameBudgetCollator(toy_processor, [4], max_pixels=1024), max_bad_rows=0.1)
        collator([bad] * 3 + [good])  # too few were seen
        for _ in range(6):
            collator([good] * 4)
        collator([good] * 2)
        with pytest.raises(RuntimeError, match="4 of 31 rows .* more than `max_bad_rows` 10%; the last: .*web page"):
            collator([bad])

    def test_too_long_is_refused_with_the_need(self, toy_processor, toy_rows):
        collator = SupervisedCollator(FrameBudgetCollator(toy_processor, [4], max_pixels=1024), max_length=100)
        with pytest.raises(ValueError, match=r"needs \d+ tokens, more than max_length 100"):
            collator([{**toy_rows[0], "completion": [{"role": "assistant", "content": "a"}]}])

    def test_swapping_the_clip_changes_the_loss(self, toy_processor, toy_rows):
        model = toy.make_model(toy_processor).eval()
        collator = SupervisedCollator(FrameBudgetCollator(toy_processor, [32], max_pixels=1024))
        said = [{"role": "assistant", "content": "red"}]
        other = next(r for r in toy_rows if r["truth"]["colour"] != toy_rows[0]["truth"]["colour"])
        with torch.no_grad():
            losses = [
                model(**collator([{**toy_rows[0], "videos": r["videos"], "completion": said}])).loss.item()
                for r in (toy_rows[0], other)
            ]
        assert losses[0] != losses[1]
