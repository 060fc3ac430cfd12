"""Texts as words, in any script, and how far two of them agree."""

import unicodedata
from collections import Counter
from dataclasses import dataclass

import regex


# Scripts without spaces count character by character; a character has its combining marks with it.
_UNSPACED = r"\p{Thai}\p{Lao}\p{Myanmar}\p{Khmer}\p{Hiragana}\p{Katakana}\p{Han}"
_WORD = regex.compile(
    rf"(?<!\w)[+-]?\d+(?:\.\d+)?|\d+(?:\.\d+)?"  # numbers, with their signs
    rf"|[{_UNSPACED}]\p{{M}}*"
    rf"|(?:(?![{_UNSPACED}])\p{{L}}\p{{M}}*)+"
    r"|[%$€£¥°]"
)
_ARTICLES = ("a", "an", "the")


@dataclass(frozen=True)
class Word:
    """A word, and the characters of the plain text that it spans."""

    text: str
    start: int
    end: int


def plain(text: str) -> str:
    """A text in one writing: width, case, minus signs, apostrophes in words, commas of thousands, joiners aside."""
    text = unicodedata.normalize("NFKC", text).replace("\u2212", "-").lower()
    text = regex.sub(r"[\u200b-\u200d\ufeff]|(?<=\w)['’](?=\w)", "", text)
    return regex.sub(r"(?<=\d),(?=\d{3}\b)", "", text)


def split_words(text: str) -> list[Word]:
    """The words of a [`plain`] text; without articles, unless there is nothing else."""
    words = [Word(match[0], *match.span()) for match in _WORD.finditer(text)]
    return [word for word in words if word.text not in _ARTICLES] or words


def words_of(text: str) -> list[str]:
    """The words of any text."""
    return [word.text for word in split_words(plain(text))]


def token_f1(prediction: str, reference: str) -> float:
    """
    F1 of the tokens of two texts, counted; articles, case and punctuation aside, numbers with their signs kept whole.
    Scripts without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) count by character. 0 if either has no token.
    """
    said, truth = Counter(words_of(prediction)), Counter(words_of(reference))
    common = sum((said & truth).values())
    return 2 * common / (said.total() + truth.total()) if common else 0.0
