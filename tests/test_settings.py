import argparse
import inspect
import json
from dataclasses import asdict, fields
from functools import partial

import pytest
from datasets import Dataset
from test_trainer import config, spread

from paravt import FrameBudgetCollator, ParaGRPOConfig, ParaGRPOTrainer, ParallelRollout
from paravt.evaluation import measure_trainer
from paravt.prompts import INSTRUCTIONS, offers_tool
from paravt.settings import FILE, RolloutSettings, add_flags, given_flags, prompt_of, settings_of


SYSTEM = {"role": "system", "content": "Be brief."}
OWN = {
    "think_prefix": False,
    "dispatch": "none",
    "max_turns": 2,
    "crop_fps": 2.0,
    "crop_frames": 32,
    "snap_overview": True,
    "chat_template_kwargs": {"mood": "glad"},
}


def flags(*given):
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return given_flags(parser.parse_args([*map(str, given)]))


class TestRolloutSettings:
    def test_every_setting_of_a_rollout_is_one_with_the_same_default(self):
        ours = {one.name: one.default for one in fields(RolloutSettings)}
        for name, parameter in inspect.signature(ParallelRollout).parameters.items():
            assert ours[name] == parameter.default, name

    def test_every_setting_is_an_option_of_the_config_with_the_same_default(self):
        theirs = {one.name: one.default for one in fields(ParaGRPOConfig)}
        for one in fields(RolloutSettings):
            if one.name not in ("frames", "prompt", "max_completion_length"):
                assert theirs[one.name] == one.default, one.name

    def test_saved_and_read_back(self, tmp_path):
        settings = RolloutSettings(**OWN)
        settings.save(str(tmp_path / "new"))
        assert RolloutSettings.load(str(tmp_path / "new")) == settings
        assert RolloutSettings.load(str(tmp_path)) is None

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("dispatch", "serial", r"must be one of .*'none'.*, got 'serial'"),
            ("video_backend", "ffmpeg", "must be one of .*'pyav'.*, got 'ffmpeg'"),
            ("think_prefix", "no", "must be true or false, got 'no'"),
            ("max_turns", 2.5, "must be an integer of at least 0, got 2.5"),
            ("max_turns", -1, "must be an integer of at least 0, got -1"),
            ("max_calls_per_turn", None, "must be an integer of at least 0, got None"),
            ("max_calls", True, "must be an integer of at least 0, got True"),
            ("max_turn_length", 0, "must be an integer of at least 1, got 0"),
            ("max_report_length", "8", "must be an integer of at least 1, got '8'"),
            ("max_completion_length", 0, "must be an integer of at least 1, got 0"),
            ("frames", 0, "must be an integer of at least 1, got 0"),
            ("max_pixels", 0.5, "must be an integer of at least 1, got 0.5"),
            ("crop_fps", 0.0, "must be a number above 0, got 0.0"),
            ("crop_fps", float("nan"), "must be a number above 0, got nan"),
            ("crop_frames", 0, "must be an integer of at least 1, got 0"),
            ("prompt", 3, "must be a text, got 3"),
            ("chat_template_kwargs", [], r"must be a dict or None, got \[\]"),
        ],
    )
    def test_bad_values_are_named(self, tmp_path, name, value, message):
        """Wherever they are given: as settings, to a rollout, and in the config of a trainer."""
        takers = [RolloutSettings]
        takers += [ParallelRollout] if name in inspect.signature(ParallelRollout).parameters else []
        takers += (
            [partial(config, tmp_path)] if name in vars(config(tmp_path)) and name != "max_completion_length" else []
        )
        for taker in takers:
            with pytest.raises(ValueError, match=f"`{name}` {message}"):
                taker(**{name: value})

    def test_settings_of_another_version_are_named(self, tmp_path):
        (tmp_path / FILE).write_text(json.dumps({"crop_frames": 8, "depth": 3}))
        with pytest.raises(ValueError, match=r"settings \['depth'\], which this version"):
            RolloutSettings.load(str(tmp_path))

    @pytest.mark.parametrize("text, said", [("", "is not JSON"), ("[1]", r"an object of settings, got \[1\]")])
    def test_a_file_that_has_no_settings_is_named(self, tmp_path, text, said):
        (tmp_path / FILE).write_text(text)
        with pytest.raises(ValueError, match=f"{FILE} .*{said}"):
            RolloutSettings.load(str(tmp_path))

    def test_a_folder_that_is_not_there_is_named(self, tmp_path):
        for name in (str(tmp_path / "gone"), "./gone", "a/b/c"):
            with pytest.raises(ValueError, match=f"'{name}' is no folder, and no repository of the hub"):
                RolloutSettings.load(name)

    def test_the_prompt_of_a_row_in_every_shape(self):
        user = {"role": "user", "content": "What?"}
        for system in (SYSTEM, {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}):
            for prompt in ([system, user], json.dumps([system, user])):
                assert prompt_of({"prompt": prompt}) == "Be brief."
        for row in ({}, {"prompt": None}, {"prompt": "What?"}, {"prompt": [user]}):
            assert prompt_of(row) == INSTRUCTIONS


class TestSettingsOf:
    def test_flag_before_saved_before_default(self, tmp_path):
        RolloutSettings(crop_frames=32, think_prefix=False).save(str(tmp_path))
        told = []
        settings = settings_of(str(tmp_path), report=told.append, **flags("--crop_frames", 8, "--frames", 16))
        assert (settings.crop_frames, settings.think_prefix, settings.frames) == (8, False, 16)
        assert settings.max_turns == 3 and len(told) == 2
        assert str(tmp_path) in told[0] and "think_prefix False" in told[0] and "crop_frames" not in told[0]
        assert told[1] == "rollout settings, given: frames 16, crop_frames 8"

    def test_the_adapter_before_its_base(self, tmp_path):
        base, adapter = tmp_path / "base", tmp_path / "adapter"
        base.mkdir()
        adapter.mkdir()
        RolloutSettings(crop_frames=4).save(str(base))
        assert settings_of(str(base), str(adapter)).crop_frames == 4
        RolloutSettings(crop_frames=8).save(str(adapter))
        assert settings_of(str(base), str(adapter)).crop_frames == 8

    @pytest.mark.parametrize(
        ("given", "value"),
        [
            (("--think_prefix", "false"), {"think_prefix": False}),
            (("--think_prefix", "true"), {"think_prefix": True}),
            (("--crop_fps", "0.5"), {"crop_fps": 0.5}),
            (("--chat_template_kwargs", '{"a": 1}'), {"chat_template_kwargs": {"a": 1}}),
            ((), {}),
        ],
    )
    def test_flags(self, given, value):
        assert flags(*given) == value

    def test_a_flag_can_give_back_the_default(self, tmp_path):
        RolloutSettings(think_prefix=False, max_turns=0).save(str(tmp_path))
        settings = settings_of(str(tmp_path), **flags("--think_prefix", "true", "--max_turns", 3))
        assert settings == RolloutSettings()

    def test_a_prompt_from_a_file(self, tmp_path):
        (tmp_path / "prompt.txt").write_text("Be brief.")
        assert settings_of(str(tmp_path), prompt=str(tmp_path / "prompt.txt")).prompt == "Be brief."
        assert settings_of(str(tmp_path), prompt="Be long.").prompt == "Be long."


class TestTraining:
    def train(self, folder, checkpoint, rows, **kwargs):
        args = config(folder, save_strategy="steps", save_steps=1, max_steps=1, frame_budgets=[4, 8], **kwargs)
        trainer = ParaGRPOTrainer(checkpoint, spread, args, train_dataset=Dataset.from_list(rows))
        trainer.train()
        trainer.save_model()
        return trainer

    def test_saved_beside_every_checkpoint(self, tmp_path, toy_checkpoint, toy_rows):
        rows = [{**row, "prompt": [SYSTEM, *row["prompt"]]} for row in toy_rows]
        knobs = {"think_prefix": False, "dispatch": "none", "crop_frames": 32, "crop_fps": 2.0}
        trainer = self.train(tmp_path, toy_checkpoint, rows, **knobs)
        for folder in (tmp_path, tmp_path / "checkpoint-1"):
            saved = settings_of(str(folder))
            assert {name: getattr(saved, name) for name in knobs} == knobs
            assert (saved.frames, saved.max_pixels, saved.max_completion_length) == (8, 1024, 64)
            assert saved.prompt == "Be brief." and saved == trainer.settings
        for same in (saved, trainer.args, trainer.rollout_func):
            ParallelRollout.from_config(saved).check(same)

    def test_evaluation_asks_as_training_did(self, tmp_path, toy_checkpoint, toy_processor, toy_rows):
        """The same row, in training and from what was saved: the same prompt, with or without the tool."""
        for dispatch in ("none", "parallel"):
            trainer = self.train(tmp_path / dispatch, toy_checkpoint, toy_rows, dispatch=dispatch)
            saved = settings_of(str(tmp_path / dispatch))
            collator = FrameBudgetCollator.from_settings(toy_processor, saved)
            asked = {**toy_rows[0], "prompt": [{"role": "system", "content": saved.prompt}, *toy_rows[0]["prompt"]]}
            found = collator.prepare(asked)["prompt"]
            assert found == trainer.data_collator.prepare({**toy_rows[0], "frame_budget": 8})["prompt"]
            assert offers_tool(found[0]["content"][0]["text"]) == (dispatch == "parallel")
            assert saved.prompt == INSTRUCTIONS

    def test_a_policy_without_tools_is_measured_without_them(self, tmp_path, toy_checkpoint, toy_rows, monkeypatch):
        trainer = self.train(tmp_path, toy_checkpoint, toy_rows, dispatch="none", snap_overview=True)
        made, prepare = [], FrameBudgetCollator.prepare

        def told(self, row):
            made.append((self.tools, self.snap))
            return prepare(self, row)

        monkeypatch.setattr(FrameBudgetCollator, "prepare", told)
        measure_trainer(trainer, toy_rows[:2], [4])
        assert set(made) == {(False, True)}

    def test_other_peoples_rollouts_have_none(self, tmp_path, text_checkpoint):
        from test_trainer import fixed_rollouts, rows_with_errors

        rows = Dataset.from_list(rows_with_errors([0]))
        trainer = ParaGRPOTrainer(
            text_checkpoint, spread, config(tmp_path), train_dataset=rows, rollout_func=fixed_rollouts
        )
        trainer.save_model(str(tmp_path / "saved"))
        assert trainer.settings is None and not (tmp_path / "saved" / FILE).exists()
        assert asdict(settings_of(str(tmp_path / "saved"))) == asdict(RolloutSettings())
