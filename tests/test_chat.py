import pytest

from paravt.chat import Chat, prepare_processor


# A template that says which of its arguments it was given.
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{{ mood or '' }}"
OPENING = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


class TestChat:
    def test_chat_template_kwargs_reach_every_rendering(self, toy_processor, monkeypatch):
        monkeypatch.setattr(toy_processor, "chat_template", TEMPLATE + OPENING)
        chat = Chat(toy_processor, template_kwargs={"mood": "glad"})
        decode = toy_processor.tokenizer.decode
        asked = [{"role": "user", "content": "a"}]
        assert "glad" in decode(chat.prompt(asked)[0]) and "glad" in decode(chat.ids_between_turns(asked))
        assert "glad" not in decode(Chat(toy_processor).prompt(asked)[0])

    def test_a_rollout_hands_them_on(self, toy_processor, monkeypatch):
        from test_rollout import ANSWER, Script

        from paravt import ParallelRollout

        monkeypatch.setattr(toy_processor, "chat_template", TEMPLATE + OPENING)
        prompt = [{"role": "user", "content": "a", "videos": [], "question": "a"}]
        rollout = ParallelRollout(chat_template_kwargs={"mood": "glad"})
        (episode,) = rollout.run([prompt], Script(toy_processor, [[ANSWER]]), 100)
        assert "glad" in toy_processor.tokenizer.decode(episode.prompt_ids)

    @pytest.mark.parametrize(
        ("opening", "think_prefix", "refused"),
        [
            ("<think>\n", True, "begins each turn with <think>"),
            ("<think>\n", False, None),
            ("<think>\n\n</think>\n\n", True, "empty think block"),
            ("<think>\n\n</think>\n\n", False, "empty think block"),
            ("", True, None),
        ],
    )
    def test_templates_that_think_for_themselves(self, toy_processor, monkeypatch, opening, think_prefix, refused):
        monkeypatch.setattr(toy_processor, "chat_template", TEMPLATE + OPENING.replace("nt\n", "nt\n" + opening))
        chat = Chat(toy_processor, think_prefix)
        if refused is None:
            chat.check()
        else:
            with pytest.raises(ValueError, match=refused):
                chat.check()

    def test_templates_that_change_earlier_turns(self, toy_processor, monkeypatch):
        monkeypatch.setattr(toy_processor, "chat_template", "{{ messages | length }}" + TEMPLATE + OPENING)
        with pytest.raises(ValueError, match="changes earlier turns"):
            Chat(toy_processor).check()

    def test_processors_of_another_kind(self, toy_processor):
        import others

        _, processor = others.gemma3(toy_processor.tokenizer)
        with pytest.raises(ValueError, match="Gemma3ImageProcessor has no merge_size and no patch_size"):
            prepare_processor(processor, 1024)
