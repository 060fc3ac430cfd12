import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paravt.answers.words import token_f1, words_of


@pytest.mark.parametrize(
    "prediction, reference, f1",
    [
        ("A", "A", 1),
        ("B", "A", 0),
        ("The", "the", 1),
        ("...", "...", 0),
        ("", "", 0),
        ("red red", "red", 2 / 3),
        ("the red car", "a red car", 1),
        ("-5", "5", 0),
        ("3.5", "35", 0),
        ("1,000", "1000", 1),
        ("it's", "its", 1),
        ("red", "blue", 0),
        ("\u7ea2\u8272", "\u7ea2", 2 / 3),
        ("5 %", "5%", 1),
        ("Red!", "red", 1),
    ],
)
def test_token_f1(prediction, reference, f1):
    assert token_f1(prediction, reference) == pytest.approx(f1)


@pytest.mark.parametrize(
    "text, words",
    [
        ("माल मेल", ["माल", "मेल"]),  # vowel signs are part of words
        ("ที่บ้าน", ["ที่", "บ้", "า", "น"]),  # and of characters, where these count
        ("cafe\u0301 CAFÉ", ["café", "café"]),
        ("क्\u200dष", ["क्ष"]),  # joiners are none
        ("שָׁלוֹם", ["שָׁלוֹם"]),
        ("できる", ["で", "き", "る"]),
        ("３．５", ["3.5"]),
        ("\u22125 °C", ["-5", "°", "c"]),
    ],
)
def test_words(text, words):
    import unicodedata

    assert words_of(text) == [unicodedata.normalize("NFKC", word) for word in words]


def test_words_that_differ_in_marks_are_other_words():
    assert token_f1("माल", "मेल") == token_f1("किला", "कला") == 0


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_f1_of_a_text_with_itself(text):
    assert token_f1(text, text) == (1 if words_of(text) else 0)
