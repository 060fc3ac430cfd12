import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paravt.answers.choices import FORMS, extract_choice, option_texts, read_choice


DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")


@pytest.mark.parametrize(
    "form, text, letter", [(form.name, *example) for form in FORMS for example in form.examples], ids=str
)
def test_each_form_reads_its_examples(form, text, letter):
    assert read_choice(text) == (letter, form)


class TestLabelled:
    """Labelled answers; `recipes/bench/answers.py --misses` prints what is read wrongly."""

    @pytest.mark.parametrize("name", ["choices.jsonl", "choices_blind.jsonl"])
    def test_credit_is_neither_given_wrongly_nor_lost(self, name):
        with open(os.path.join(DATA, name), encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        read = [extract_choice(row["text"], row["choices"], row["options"]) for row in rows]
        wrong = [r["text"] for r, letter in zip(rows, read, strict=True) if letter not in (None, r["label"])]
        lost = [r["text"] for r, letter in zip(rows, read, strict=True) if letter is None and r["label"] is not None]
        unchosen = sum(row["label"] is None for row in rows)
        assert len(rows) >= 400 and unchosen >= 100
        assert len(wrong) <= 0.005 * unchosen, wrong
        assert len(lost) <= 0.02 * (len(rows) - unchosen), lost

    def test_the_sets_share_no_more_than_the_plainest_answers(self):
        texts = []
        for name in ("choices.jsonl", "choices_blind.jsonl"):
            with open(os.path.join(DATA, name), encoding="utf-8") as file:
                texts.append({json.loads(line)["text"] for line in file})
        assert len(texts[0]) + len(texts[1]) >= 800 and len(texts[0] & texts[1]) < 0.2 * len(texts[1])


@pytest.mark.parametrize(
    "text, choices, letter",
    [
        ("A dog runs.", "ABCD", None),
        ("The answer is B because a car moves.", "ABCD", "B"),
        ("Answer: **D**", "ABCD", "D"),
        ("I considered (A), but final answer: D.", "ABCD", "D"),
        ("The correct answer is d.", "ABCD", "D"),
        ("The answer is B. Note that A is a distractor.", "ABCD", "B"),
        ("Antwort: C", "ABCD", "C"),
        ("a", "ABCD", "A"),
        ("The answer is C because I computed it.", "ABCDEFGHIJ", "C"),
        ("Dog", "ABCD", None),
        ("the", "ABCD", None),
        ("E", "ABCDE", "E"),
        ("D", "ABC", None),
        ("I think it is option C", "ABCDEFGHIJ", "C"),
        ("(B)", "ABCD", "B"),
        ("B. The dog", "ABCD", "B"),
        ("B) the dog", "ABCD", "B"),
        ("b: the dog", "ABCD", "B"),
        ("\\boxed{C}", "ABCD", "C"),
        ("Answer seems to be A", "ABCD", "A"),
        ("A or B", "ABCD", None),
        ("(A) or (B)", "ABCD", None),
        ("", "ABCD", None),
        ("The answer is a dog.", "ABCD", None),
        ("Based on the video, C", "ABCDE", "C"),
        ("Option A is wrong, option B is right", "ABCD", "B"),
        ("I'd say B.", "ABCD", "B"),
        ("The answer is I think unclear", "ABCDEFGHI", None),
        ("The answer is A. No, the answer is B.", "ABCD", "B"),
    ],
)
def test_extract_choice(text, choices, letter):
    assert extract_choice(text, choices) == letter


@pytest.mark.parametrize(
    "text, letter",
    [
        ("red", "A"),
        ("It is red.", "A"),
        ("dark red", "B"),
        ("red and blue", None),
        ("A dog", None),
        ("green", None),
        ("C", "C"),
    ],
)
def test_extract_choice_by_option_text(text, letter):
    assert extract_choice(text, "ABC", ["red", "dark red", "blue"]) == letter


@pytest.mark.parametrize(
    "text, letter",
    [
        ("B\n\nBecause the dog runs", "B"),
        ("B because the dog runs", "B"),
        ("B, the dog", "B"),
        ("B - dog", "B"),
        ("**B**\n\nThe dog runs.", "B"),
        ("It is what they wear.\n\nC", "C"),
        ("A, B, C, D", None),
        ("Answer: A, B, C, D", None),
        ("Answer: A and C", None),
        ("Answer: C or D", None),
        ("选B", "B"),
        ("我选择 C 选项", "C"),
        ("B选项", "B"),
        ("答えはBです", "B"),
        ("정답은 B입니다", "B"),
        ("La respuesta correcta es la B", "B"),
        ("La réponse est B", "B"),
        ("Die richtige Antwort ist B", "B"),
        ("答案是B。", "B"),
        ("답은 (B) 입니다", "B"),
    ],
)
def test_letters_with_words_lists_and_languages(text, letter):
    assert extract_choice(text) == letter


@pytest.mark.parametrize(
    "text, options, letter",
    [
        ("It is not red", ["red", "blue"], None),
        ("不是红色", ["红色", "蓝色"], None),
        ("It is not red, it is blue", ["red", "blue"], "B"),
        ("blue rather than red", ["red", "blue"], "B"),
        ("There aren't 5 people", ["4", "5"], None),
        ("neither red nor blue", ["red", "blue"], None),
        ("빨간색이 아닙니다", ["빨간색", "파란색"], None),
        ("빨간색입니다", ["빨간색", "파란색"], "A"),
        ("赤ではありません", ["赤", "青"], None),
        ("Ce n'est pas le chien", ["le chat", "le chien"], None),
        ("nicht die Katze, sondern der Hund", ["die Katze", "der Hund"], "B"),
        ("I cannot tell whether it is red", ["red", "blue"], None),
        ("2 or 3 dogs", ["2 dogs", "3 dogs"], None),
        ("He takes vitamin C", ["vitamin A", "vitamin C"], "B"),
        ("No, he does not.", ["Yes", "No"], "B"),
        ("No idea.", ["Yes", "No"], None),
        ("dog", ["A. cat", "B. dog"], "B"),
        ("4", [2, 3, 4, 5], "C"),
        ("the garden", {"A": "the kitchen", "B": "the garden"}, "B"),
    ],
)
def test_options_by_their_words(text, options, letter):
    assert extract_choice(text, "ABCD"[: len(options)], options) == letter


@pytest.mark.parametrize(
    "options, texts",
    [
        (None, {}),
        (["cat", "dog"], {"A": "cat", "B": "dog"}),
        (["A. cat", "B. dog"], {"A": "cat", "B": "dog"}),
        (["(A) cat", "(B) dog"], {"A": "cat", "B": "dog"}),
        (["B: dog", "A: cat"], {"A": "cat", "B": "dog"}),
        (["A. M. Smith", "a dog"], {"A": "A. M. Smith", "B": "a dog"}),  # only one of them seems to have a letter
        ([2, 3], {"A": "2", "B": "3"}),
        ({"a": "cat", "b": "dog", "c": None}, {"A": "cat", "B": "dog"}),
    ],
)
def test_option_texts(options, texts):
    assert option_texts(options) == texts


PIECES = ["A", "B", " the answer is ", "not ", " or ", "\n", "(", ")", " is correct", "I ", "wait, ", "\\boxed{", "}"]
PIECES += ["选", "答案", "でも", ":", '{"answer":', "[", "है", "<think>", "**", "it is ", "a ", "red", ", "]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=30).map("".join))
def test_any_text_gives_a_label_or_none(text):
    assert extract_choice(text, "ABC", ["red", "not red", "B"]) in ("A", "B", "C", None)


@pytest.mark.parametrize(
    "unit", ["A ", "(A) ", "B, ", "A or ", "it is ", "the answer is not ", "\\boxed{", '{"answer":', "wait "]
)
def test_long_texts_are_read_at_both_ends(unit):
    filler = unit * (20_000 // len(unit))
    assert extract_choice("The dog runs. " * 2000 + "\nAnswer: C") == "C"
    assert extract_choice(filler) in (None, "A", "B")
