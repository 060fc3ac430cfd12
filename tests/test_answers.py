import pytest

from paravt.answers import extract_answer, final_answer, references, score_answer


@pytest.mark.parametrize(
    "text, answer",
    [
        ("<think>a</think><answer>B</answer>", "B"),
        ("a</think>\n<answer> B \n</answer><|im_end|>", "B"),
        ("<answer>B</answer>", "B"),
        ("<think><answer>A</answer></think><answer>B</answer>", "B"),
        ("<think>a</think><answer>A</answer><answer>B</answer>", None),
        ("<think><answer>A</answer></think>", None),
        ("<think>a</think><answer></answer>", None),
        ("<think>a</think><answer>A", None),
        ("A", None),
        ("", None),
        ("<think>a</think><Answer>A</Answer>", None),
        ("<answer><answer>A</answer></answer>", None),
    ],
)
def test_extract_answer(text, answer):
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    "text, fallback, answer",
    [
        ("<think>a</think><answer>B</answer>", False, "B"),
        ("<think>a</think> It is B.", False, None),
        ("<think>a</think> It is B.", True, "It is B."),
        ("It is B.", True, "It is B."),
        ("<think>It is B.", True, None),
        ("<answer>A</answer><answer>B</answer>", True, None),
        ("<answer>A</answer><tool_response>x</tool_response><answer>B</answer>", False, "B"),
    ],
)
def test_final_answer(text, fallback, answer):
    assert final_answer(text, fallback) == answer


class TestScore:
    @pytest.mark.parametrize(
        "answer, truth, options, score",
        [
            ("B", "B", None, 1),
            ("dog", "B", ["A. cat", "B. dog"], 1),
            ("cat", "B", ["A. cat", "B. dog"], 0),
            ("dog", "dog", ["A. cat", "B. dog"], 1),
            ("A dog", "A", ["A. cat", "B. dog"], 0),
            ("4", "C", ["2", "3", "4", "5"], 1),
            ("4", "4", ["2", "3", "4", "5"], 1),
            ("C", "4", [2, 3, 4, 5], 1),
            ("4", "C", [2, 3, 4, 5], 1),
            ("blue", "B", {"A": "red", "B": "blue"}, 1),
            ("B", ["B"], None, 1),
            ("A, B, C, D", "D", None, 0),
            ("B", "X", ["cat", "dog"], 0),
            (None, "B", None, 0),
        ],
    )
    def test_choices(self, answer, truth, options, score):
        assert score_answer(answer, truth, "mcq", options) == score

    @pytest.mark.parametrize(
        "answer, truth, score",
        [
            ("2 - 5", "2 - 5", 1),
            ("2 - 5", (2, 5), 1),
            ("2 - 5", [[2, 5]], 1),
            ("7 - 9", [[2, 5], [7, 9]], 1),
            ("7 - 9", "[[2.0, 5.0], [7.0, 9.0]]", 1),
            ("2 - 8", "[[2.0, 5.0], [7.0, 9.0]]", 0.5),
            ("2 - 5", {"start": 2, "end": 5}, 1),
            ("2 - 5", None, 0),
            ("soon", "2 - 5", 0),
        ],
    )
    def test_intervals_of_which_the_best_counts(self, answer, truth, score):
        assert score_answer(answer, truth, "tvg") == pytest.approx(score)

    @pytest.mark.parametrize(
        "answer, truth, mode, score",
        [
            ("dog", ["dog", "puppy"], "f1", 1),
            ("puppy", '["dog", "puppy"]', "f1", 1),
            ("puppy", "['dog', 'puppy']", "exact", 1),
            ("dog puppy", ["dog", "puppy"], "f1", 2 / 3),
            ("cat", ["dog", "puppy"], "f1", 0),
            ("Puppy!", ["dog", "puppy"], "exact", 1),
            ("dog puppy", ["dog", "puppy"], "exact", 0),
            ("[1, 2]", "[1, 2]", "f1", 1),
            ("dog", "dog", "judge", None),
        ],
    )
    def test_texts_of_which_the_best_counts(self, answer, truth, mode, score):
        assert score_answer(answer, truth, "oe", mode=mode) == (None if score is None else pytest.approx(score))

    def test_unknown_names_are_refused(self):
        with pytest.raises(ValueError, match="question_type must be one of .* got 'essay'"):
            score_answer("B", "B", "essay")
        with pytest.raises(ValueError, match="mode must be .* got 'bleu'"):
            score_answer("B", "B", "oe", mode="bleu")


@pytest.mark.parametrize(
    "truth, texts",
    [
        ("dog", ["dog"]),
        (["dog", "puppy"], ["dog", "puppy"]),
        ('["dog", "puppy"]', ["dog", "puppy"]),
        ("['a dog', 'dog']", ["a dog", "dog"]),
        ("[1, 2]", ["[1, 2]"]),
        ("[dog, puppy]", ["[dog, puppy]"]),
        ("[dog", ["[dog"]),
        (3, ["3"]),
    ],
)
def test_references(truth, texts):
    assert references(truth) == texts
