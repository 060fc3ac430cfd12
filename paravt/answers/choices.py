"""
Which letter a text chooses, in a table of forms.

People and models give a choice in few ways, each in many languages: `the answer is B`, `I choose B`, `B is correct`,
`B. The dog`, `option B`, `(B)`, or the option's own words. A [`Form`] is one of these ways; `FORMS` has them all, the
most explicit first, and the first one that a text uses decides. Where it gives several letters there is no choice, so
that listing letters pays nothing; nor does a letter beside which another one is offered later (`B; D also works`). A
letter that is denied (`not B`, `B is wrong`), asked for (`is it B?`) or holds for a case only (`B if it rains`) is not
given; nor is one that is a word (`A dog`, `I think`) or part of a name (`Mr. B`; `vitamin C` is no form). What stands
after a change of mind (`wait, no`) is read first.

The words that forms are made of stand in `languages.py`, a language an entry. The examples of forms are tests, and
`recipes/bench/answers.py` measures all of it.
"""

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, takewhile

import regex

from .languages import SOFTENERS, pattern_of
from .words import plain, split_words, words_of


ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
CARRIED_LETTER = regex.compile(  # A. x, (A) x, A - x, A、x, <A> x, **A.** x, Option A: x
    r"\s*(?:\*\*|__)?\s?(?:(?i:option|choice|answer)\s)?[(（\[【<]?(?P<letter>[A-Za-zＡ-Ｚａ-ｚ])"
    r"(?:\s?(?:[)）\]】>](?:\*\*|__)?[.:]?|[.:、．：](?:\*\*|__)?|(?:\*\*|__)[.:)]?)|\s[-–—](?=\s))\s*(?=\S)"
)
SPECIAL_TOKEN = regex.compile(r"<\|[^|<>\s]{1,30}\|>")
MAX_LENGTH = 1200  # characters: of a longer text, its beginning and its end are read


# ------------------------------------------------------------------------------------------ letters, and lists of them

_OPEN = r"[\s(\[{<\"'“”‘’«»「『【《]{0,4}"
_CLOSE = r"[)\]}>\"'“”‘’«»」』】》]{0,4}"
_TITLE = r"(?:Mrs?|Ms|Miss|Mister|Dr|Prof|Professor|Doctor|Herrn?|Frau|Señora?|Monsieur|Madame|Agent)\.? "
# Neither part of a word nor of C'est, X-ray, A.M., C++, R&B, A–D, Mr. B, B.C.; but Hungarian B-t.
_LETTER = (
    r"(?<![\p{Latin}\d]|[\p{Latin}\d][-'’&]|(?<!\p{Latin})\p{Latin}[–—~])[A-Za-z]"
    r"(?![\p{Latin}\d]|['’](?!d[iı]r)\p{Latin}|-(?!(?-i:[aeoö]?t)(?!\p{L}))[\p{Latin}\d]|&\p{Latin}|[+#]|[.–—~]\p{Latin}(?!\p{Latin}))"
    rf"(?<!(?<!\p{{L}})(?:{_TITLE}|\p{{Latin}}\.)\p{{Latin}})"
)
_OPTION = pattern_of("option")
_OR = pattern_of("join")
_ITEM = rf"{_OPEN}(?:{_OPTION}[ :#-]{{0,2}}{_OPEN})?{_LETTER}{_CLOSE}"
_PERHAPS = pattern_of("perhaps")
_JOINED = rf"\s?[,、/;&+|]?\s?[(\[]?{_OR}\s?(?:{SOFTENERS}\s?)*(?:{_PERHAPS}\s?)?"
_NEXT = (
    rf"(?:\s?[,、/;&+|]\s?|\s?[(\[](?={_PERHAPS})"
    r"|(?<=[)\]]) ?(?=[(\[])| (?=(?-i:[A-Z](?!-[aeoö]?t))(?![\p{Latin}\d'’])))"
    rf"(?:{_PERHAPS}\s?)?"
)
# A letter before a verb begins the next clause: "B, C is wrong", "B and a man walks".
_LATE = rf"{pattern_of('because')}|{_OR}|(?:are|both|is|son|sont|sind|são|sono|zijn|są)\b"
_CLAUSE = rf",? (?!{_LATE})(?-i:\p{{Ll}})|,? is (?!possible)"
_WORD_CLAUSE = rf"(?<=[AEIOUY]) (?!{_LATE})(?-i:\p{{Ll}})"
LETTERS = rf"(?P<letters>(?>{_ITEM}(?>{_JOINED}{_ITEM}(?!{_WORD_CLAUSE})|{_NEXT}{_ITEM}(?!{_CLAUSE})){{0,7}}))"

_MARK = "[✅✔✓☑👍❌✗✘✖☐🚫👎]"

# Words of one letter, in English and its neighbours: before another word they are no labels.
_WORD_LETTERS = "AEIOUY"
_BEGINNINGS = r"(?:the|this|that|these|he|she|it|they|there|an|was|is|are|both|i|my)\b"  # of another clause
_CONNECTIVE = regex.compile(
    r"\s?(?:$|[^\p{L}\s]|\n)|[^\p{Latin}\s]"
    rf"|\s?{pattern_of('option_after')}|\s?{pattern_of('right_after')}"
    rf"|\s(?:{pattern_of('because')}|{_BEGINNINGS})(?!-)",  # "a so-called" has no "so"
    regex.IGNORECASE,
)
_NOUN = regex.compile(  # what follows the article of "a 3-D film", "a (short) film", "a ... film"
    rf"\s(?:{_MARK}|[\d$€£#\"'“‘«]|\((?!the ))|\s?(?:\.\.+|…)\s?\p{{Ll}}|\s[–—-]\s\p{{Ll}}{{1,20}}[ ,]"
)

_NOT = pattern_of("not")
_FILL = rf"(?:{pattern_of('fill')}|{_OPTION}|{pattern_of('answer')}|{pattern_of('right')})['’]? ?"
_DENIED_BEFORE = regex.compile(
    rf"{_NOT}(?:, (?:dass|что|że|що)\b)? ?(?:{_FILL}){{0,5}}[(\[\"'“‘«「]? ?\Z", regex.IGNORECASE
)
_DENIED_AFTER = regex.compile(
    rf"{_CLOSE}[\s:–—-]{{0,3}}{pattern_of('denied')}"
    r"(?:(?<=\p{So})|(?! (?:the |option )?(?-i:[A-Z])\b))"  # but: "B, not A"
    rf"|\s{pattern_of('condition')}|\?\s?{_NOT}",
    regex.IGNORECASE,
)
_EXPLAINED = regex.compile(  # what is no denial in "the answer is A: no one moves"
    rf"{_CLOSE}\s?[:–—-]\s?{pattern_of('denied')}\s(?!{pattern_of('because')}|{pattern_of('right')})\p{{L}}",
    regex.IGNORECASE,
)
_DENIED_THING = regex.compile(
    rf"{_NOT}(?: [^\s.,;:]+){{0,4}} ?\((?:{_OPTION} )?$", regex.IGNORECASE
)  # not the dog (B)
_AFTER_OPTION = regex.compile(
    r"(?:options?|opci[óo]n|opção|opzione|alternativ[ae]|variante|вариант|phương án)[ :#-]{0,2}[(\[\"']?$",
    regex.IGNORECASE,
)
_CASE_BEFORE = regex.compile(
    rf"{pattern_of('case')}(?:(?!\b(?:but|so|therefore)\b)[^.!?;\n。]){{0,70}}$", regex.IGNORECASE
)


_QUESTION_END = regex.compile(r"[^.!?;\n]{0,60}\?")
_ASKED_BEFORE = regex.compile(
    rf"¿[^?]*\Z|(?:\A|[.!?:;\n])[\s\"'(]*(?:(?:so|and|but|or|then|well),? )?{pattern_of('asks')}[^.!?;\n]*\Z",
    regex.IGNORECASE,
)
_ASKED_AFTER = regex.compile(
    rf"{_CLOSE}[^\s.,;!?]{{0,6}}?\s?{pattern_of('asked')}\s?(?:[?。.!\n]|\Z)", regex.IGNORECASE
)


@dataclass(frozen=True)
class Statement:
    """What one match of a form says: the letters in it, and where they stand in the text."""

    letters: tuple[str, ...]
    start: int
    end: int


def _statement(match: regex.Match) -> Statement:
    """The letters of a match. Capitals are the labels where there are any: `A o B` has two."""
    start, end = match.span("letters")
    letters = _compiled(_LETTER).finditer(match.string, start)
    found = list(takewhile(lambda letter: letter.end() <= end, letters))
    found = [letter for letter in found if letter[0].isupper()] or found
    return Statement(tuple(letter[0] for letter in found), found[0].start(), found[-1].end())


def _is_word(text: str, letter: regex.Match) -> bool:
    """Whether a letter is an article, a pronoun or the like, by what follows it."""
    if letter[0] == "I" and text.startswith(", ", letter.end()):
        return True
    return letter[0].upper() in _WORD_LETTERS and not _CONNECTIVE.match(text, letter.end())


def _is_denied(text: str, start: int, end: int, lead: int | None = None, linked: bool = False) -> bool:
    """
    Whether the letters at `start` to `end` are denied, or hold for a case only; `lead` is where the words begin that
    introduce them. Where they are `linked` to those words, a colon after them begins an explanation.
    """
    if any(_is_denied_before(text, place) for place in {start, start if lead is None else lead}):
        return True
    return bool(_DENIED_AFTER.match(text, end)) and not (linked and _EXPLAINED.match(text, end))


def _is_denied_before(text: str, place: int) -> bool:
    words = text[max(0, place - 80) : place]
    return bool(_DENIED_BEFORE.search(words) or _CASE_BEFORE.search(words))


def _is_asked(text: str, said: Statement) -> bool:
    """Whether the letters stand in a question, `is the answer B?`; `the answer is B?` only sounds like one."""
    if _ASKED_AFTER.match(text, said.end):
        return True
    return bool(
        _QUESTION_END.match(text, said.end) and _ASKED_BEFORE.search(text[max(0, said.start - 80) : said.start])
    )


def _mentioned(text: str, labels: Sequence[str]) -> set[str]:
    """All labels that stand in a text as capitals and are not denied."""
    return {
        letter[0]
        for letter in regex.finditer(_LETTER, text)
        if letter[0] in labels and not _is_word(text, letter) and not _is_denied(text, *letter.span())
    }


# --------------------------------------------------------------------------------------------------------------- forms


@dataclass(frozen=True)
class Form:
    """
    A way of giving a choice.

    Args:
        name (`str`): What it is called.
        pattern (`str`): What it looks like; the group `letters` has the letters.
        examples (`tuple`): Texts, each with the letter of A to D that it gives, or `None`.
        strict (`bool`): Whether the letter must end its clause: `it is B`, but not `it is B movie`.
        revised (`bool`): Whether a later statement replaces an earlier one, if there is an argument between them;
            otherwise all must agree.
        lonely (`bool`): Whether it says nothing where another letter is mentioned too.
        explicit (`bool`): Whether it can stand after a change of mind and undo what was said before.
        mention (`bool`): Whether it says nothing in a text that goes through the options one by one.
        denying (`bool`): Whether it is made of a denial, which then does not undo it: `all but B are wrong`.
        beside (`str`): What must stand in the text too, if not "": a `yes` to one option needs a `no` to others.
    """

    name: str
    pattern: str
    examples: tuple[tuple[str, str | None], ...]
    strict: bool = False
    revised: bool = False
    lonely: bool = False
    explicit: bool = True
    mention: bool = False
    denying: bool = False
    beside: str = ""

    def statements(self, text: str) -> Iterator[Statement]:
        """What the form says, place by place; what is denied is not said."""
        for match in _compiled(self.pattern).finditer(text, overlapped="lead" in self.pattern):
            said = _statement(match)
            single = len(said.letters) == 1
            if not self._is_undone(text, match, said) and not (single and not self._is_label(text, said)):
                yield said

    def _is_undone(self, text: str, match: regex.Match, said: Statement) -> bool:
        """Whether what a match says is denied, or holds for a case only."""
        parts = match.groupdict()
        if self.beside:  # says so of each letter itself
            return False
        if _is_asked(text, said):
            return True
        if _DENIED_BEFORE.search(parts.get("filler") or ""):
            return True
        if self.denying:
            return _is_denied_before(text, match.start())
        if _is_denied(text, said.start, said.end, match.start(), linked=bool(parts.get("link"))):
            return True
        return self.mention and _DENIED_THING.search(text[max(0, said.start - 80) : said.start]) is not None

    def _is_label(self, text: str, said: Statement) -> bool:
        """Whether a single letter stands for an option here, and is no word."""
        (letter,) = said.letters
        if letter == "I" and text.startswith(", ", said.end):
            return False
        if letter in _WORD_LETTERS.lower() and _NOUN.match(text, said.end):
            return False
        free = letter.isupper() and letter not in _WORD_LETTERS and not self.strict
        if letter.isupper() and _AFTER_OPTION.search(text[max(0, said.start - 30) : said.start]):
            return True
        return free or _CONNECTIVE.match(text, said.end) is not None


@cache
def _compiled(pattern: str) -> regex.Pattern:
    return regex.compile(pattern, regex.IGNORECASE | regex.MULTILINE)


_ANSWER = pattern_of("answer")
_NO_LETTER = r"(?!letter|lettre|letra|lettera|buchstabe|букв|字母|chữ)"  # "the letter B on his shirt"
_LINK = rf"(?P<link>\s?{pattern_of('link')}\s?[:\n]*\s?)"
_SIGN = r"(?P<link>\s?[:=→⇒–—>\n-]{1,3}\s?)"
_SOFT = rf"(?:\s?{SOFTENERS}\s?[,:]?)*"
_SAYS = (
    rf"(?P<lead>{_ANSWER}){_CLOSE}"
    rf"(?:(?P<filler>[^.!?。\n:=]{{0,60}}?){_LINK}\s?{_SOFT}"  # the answer to the question is most likely B
    rf"|(?P<filler>[^.!?。\n:=,]{{0,30}}?){_SIGN}\s?{_SOFT}"  # answer to the question: B
    rf"|\s?)\s?{LETTERS}"  # answer B
)

_OTHERS = rf"(?:,? (?:{_OPTION}|of|the|th?ese|them|others?|les|las|los|a[ns]deren?|другие|остальные)){{0,4}}"
_ALL, _EXCEPT = pattern_of("all"), pattern_of("except")
_DENIED = pattern_of("denied")
_ALL_BUT = (
    rf"(?:{_ALL}{_OTHERS},? ?{_EXCEPT} ?{LETTERS},? ?{_DENIED}"  # everything except B is wrong
    rf"|(?:{_EXCEPT} ?{LETTERS}|{LETTERS} ?{pattern_of('except_after')})"  # except B, all are wrong
    rf"\p{{L}}{{0,3}}?[\s,]{{0,3}}{_ALL}{_OTHERS} ?{_DENIED}"
    rf"|{_ALL}{_OTHERS} ?{_DENIED},? {_EXCEPT} ?{LETTERS}(?!{_CLOSE} ?{_DENIED})"  # all are wrong except B
    rf"|{pattern_of('none')}{_OTHERS},? {_EXCEPT} ?{LETTERS} ?{pattern_of('right_after')}"  # none but B is right
    r")(?! ?\?)"
)
_VERDICT = r"(?P<letters>{letter}){close}\s?(?:[.:,=–—-]{{1,2}}\s?)?{word}(?=\s?(?:[^\p{{L}}\p{{M}}\s\d'’-]|$))"
_YES, _NO = (_VERDICT.format(letter=_LETTER, close=_CLOSE, word=pattern_of(field)) for field in ("yes", "no"))

FORMS = (
    Form(
        "final answer",
        rf"(?:{pattern_of('final')}.{{0,12}}?(?={_ANSWER})|(?={_ANSWER} ?{pattern_of('final')})){_SAYS}",
        (
            ("I considered (A), but final answer: D.", "D"),
            ("The answer is A at first sight. Final answer: **C**", "C"),
            ("最终答案：B", "B"),
        ),
        revised=True,
    ),
    Form(
        "the answer is",
        _SAYS,
        (
            ("The answer is B because a car moves.", "B"),
            ("Antwort: C", "C"),
            ("答えはBです", "B"),
            ("정답은 B입니다", "B"),
            ("La respuesta correcta es la B", "B"),
            ("The answer is B. Note that A is a distractor.", "B"),
            ("Answer: A and C", None),
            ("Answer: A, B, C, D", None),
        ),
        revised=True,
    ),
    Form(
        "I choose",
        rf"(?P<lead>(?P<link>{pattern_of('choose')}))\s?:?\s?{_SOFT}\s?{LETTERS}",
        (
            ("I'd go with D.", "D"),
            ("我选择 C 选项", "C"),
            ("I think it is option C", "C"),
            ("I would pick A or B", None),
        ),
        revised=True,
    ),
    Form(
        "all but",
        _ALL_BUT,
        (
            ("Everything except C is wrong.", "C"),
            ("All are wrong but C.", "C"),
            ("C以外はすべて間違いです。", "C"),
            ("Nothing except C fits.", "C"),
            ("All but A or B are wrong", None),
        ),
        denying=True,
    ),
    Form(
        "yes and no",
        _YES,
        (
            ("A: false. B: false. C: true. D: false.", "C"),
            ("A) No, it rains.\nB) Yes! It is dry.\nC) No.", "B"),
            ("A : faux, B : vrai, C : vrai, D : faux", None),
        ),
        beside=_NO,
    ),
    Form(
        "is correct",
        rf"{LETTERS}(?:[:,]?(?: [^\s.!?。,;]{{2,30}}){{0,4}}?)?[:,]? ?{pattern_of('right_after')}",
        (("Option A is wrong, option B is right", "B"), ("Bが正解です", "B"), ("A and C are correct", None)),
        revised=True,
    ),
    Form(
        "it is",
        rf"(?P<lead>(?P<link>{pattern_of('therefore')}))[,:]?\s?{_SOFT}\s?{LETTERS}",
        (("It's too dark for A, so it must be B.", "B"), ("Therefore, C", "C")),
        strict=True,
        revised=True,
    ),
    Form(
        "letter on a line of its own",
        rf"^{_SOFT}\s?{LETTERS}[.:,;!]?\s?$",
        (("B\n\nBecause the dog runs.", "B"), ("The coat is what they wear.\n\nC", "C"), ("A\nB", None)),
    ),
    Form(
        "options repeated",
        r"(?P<letters>(?<!\p{L})A[.):] [^\n]{1,80}? B[.):]) ",
        (("A. red B. blue C. green", None),),
        mention=True,
    ),
    Form(
        "letter that opens a line",
        rf"^{LETTERS}(?:[.):,;]|\s?[–—-]\s|\s{pattern_of('because')})",
        (
            ("B. The dog", "B"),
            ("B, the dog", "B"),
            ("B - dog", "B"),
            ("B because it runs", "B"),
            ("A. red\nB. blue", None),
        ),
        mention=True,
    ),
    Form(
        "letter before words",
        rf"\A{LETTERS}(?=\s|[^\p{{Latin}}\d])(?![^.,;!?\n]*{_NOT}(?! (?:option )?(?-i:[A-Z])\b))",
        (("B the dog", "B"), ("b) the dog", "B")),
        lonely=True,
        explicit=False,
        mention=True,
    ),
    Form(
        "perhaps",
        rf"(?P<lead>{pattern_of('perhaps')})[,:]?\s?{_SOFT}\s?{LETTERS}",
        (("It could be C.", "C"), ("Both option A and option B", None)),
        strict=True,
        lonely=True,
        explicit=False,
    ),
    Form(
        "option",
        rf"(?:(?P<lead>{_NO_LETTER}{_OPTION})[ :]?{LETTERS}"
        rf"|(?P<letters>{_LETTER}{_CLOSE})\s?(?:{pattern_of('option_after')}))",
        (("The dog, option B, runs", "B"), ("It shows option A. It shows option B.", None)),
        explicit=False,
        mention=True,
    ),
    Form(
        "in brackets",
        rf"[(\[](?P<letters>{_LETTER})[)\]]",
        (("The dog (B) runs", "B"), ("The cat (A) sees the dog (B)", None)),
        explicit=False,
        mention=True,
    ),
    Form(
        "after a colon",
        rf"[:–—]\s?{LETTERS}\s?[.!]?\s?\Z",
        (("Between C and D, the light decides: D.", "D"),),
        explicit=False,
    ),
    Form(
        "last word",
        rf"(?:[,;]|[.!?\n]|\s-)\s?{LETTERS}\s?[.!]?\s?\Z",
        (("Based on the video, C", "C"), ("The hat is blue. B.", "B")),
        lonely=True,
        explicit=False,
    ),
)
EXPLICIT = tuple(form for form in FORMS if form.explicit)


# ------------------------------------------------------------------------------------------------------------- reading

_SURVEY = regex.compile(pattern_of("survey"), regex.IGNORECASE)
_REVISION = regex.compile(
    r"(?<!(?<!\p{L})[A-Z]\s?[):=]\s?)"  # "A: no, it rains" takes nothing back
    r"(?:(?<!^[A-Z]\.\s?)|(?=\p{L}+[.,] (?-i:[A-Z])(?!\p{L})))"  # nor does "A. No, it rains", but "A. No, B"
    rf"{pattern_of('revision')}",
    regex.IGNORECASE | regex.MULTILINE,
)
_ASSURANCE = regex.compile(
    r"\b(?:no|without(?: an?y?)?|beyond(?: an?y)?) (?:doubts?|questions?)\b"
    r"|\b(?:sin|sans|sem|senza) (?:duda|doute|dúvida|dubbio)\b"
    r"|\bnot only\b|毫无疑问|无疑|没有疑问|間違いなく|без сомнения|несомненно",
    regex.IGNORECASE,
)
_WRAPPED = regex.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|bf|rm)\s*\{([^{}]*)\}")
_BOXED = regex.compile(r"\\(?:boxed|fbox)\s*\{([^{}]*)\}")
_STRUCK = regex.compile(
    r"~~(?=[^\s~])[^~\n]{1,300}(?<=\S)~~|<(s|del|strike)>[^\n]{0,300}?</\1>|\[s\][^\n]{0,300}?\[/s\]"
    r"|\\(?:x?cancel|bcancel|sout|st)\s*\{[^{}]{0,300}\}|(?:[^\s\u0336]\u0336\s?)+",
    regex.IGNORECASE,
)
_MARKUP = regex.compile(r"[*_`$~]+|^#+|\\[()\[\]]|</?(?:strong|em|span|code)>", regex.MULTILINE)
_TAG = regex.compile(r"</?[A-Za-z_]{2,20}\s?/?>")
_ALONE = regex.compile(r"[\s(\[{\"'“<«「【]*([A-Za-z])[\s)\]}\"'”>»」】.:,;!?。]*")
_MARKED = regex.compile(rf"({_MARK})\s?([(\[]?[A-Z](?![\p{{L}}\d])[)\]]?)[.:]?(?!\s?(?:{_OR}|[,/&+])\s?[(\[]?[A-Z]\b)")
_LETTER_LAST = regex.compile(r"(?<![\p{L}\d])[A-Z][)\]]?[.:]?\s?$")
_DECORATION = regex.compile(rf"(?!{_MARK})\p{{Emoji_Presentation}}|[➡➜➤▶►☞★☆●◉◆]")
_EMOJI_LETTERS = {start + i: ALPHABET[i] for start in (0x1F150, 0x1F170, 0x1F1E6) for i in range(26)}
_QUESTION = regex.compile(  # Q: Which one? A: C
    r"\A(?:Q\s?[:.](?:[^\n?？]{0,400}[?？\n])\s*(?:[AR]\s?[:.])?"
    r"|(?:[FV]\s?:(?:[^\n?？]{0,400}[?？\n])\s*A|[PD]\s?:(?:[^\n?？]{0,400}[?？\n])\s*R)\s?:)\s?(?!.{0,300}\bB[.:)])",
    regex.DOTALL,
)
_ARTICLE = regex.compile(  # of Hungarian and Portuguese: A B-t választom, A B está correta
    r"(?<![\p{L}\d]\s?|,\s?)A (?=[B-Z](?:-[aeoö]?t(?!\p{L})"
    r"| (?:é|está|seria|parece) (?:a )?(?:correta|certa|melhor)(?!\p{L})))"
)
_CONTRACTED = regex.compile(r"(?<=\b(?:answer|choice|option|pick|guess|solution|one|letter))'s(?= )", regex.IGNORECASE)
_NUMBERED = regex.compile(r"\A\(?(?:\d{1,3}[).:、]|#\d{1,3}:?)\s?(?=[(\[]?[A-Z](?![\p{L}\d]))")  # 1) B
_NUMBERED_ANY = regex.compile(r"(?<![\p{L}\d.])\d{1,3}[).:、]\s?[(\[]?[A-Z](?![\p{L}\d])")
_FIELDS = regex.compile(
    r"(?:final|correct|selected|chosen|predicted|my)?[ _-]?(?:answer|choice|option|letter|label|prediction)"
)


def extract_choice(
    text: str, choices: str | Sequence[str] = "ABCD", options: Sequence[str] | Mapping[str, str] | None = None
) -> str | None:
    """
    The letter that an answer chooses, whatever the truth is; `None` if it chooses none or more than one.

    Args:
        text (`str`): The answer.
        choices (`str` or `Sequence[str]`): The row's letters.
        options (`Sequence[str]` or `Mapping[str, str]`, *optional*): Their texts: an answer may name one instead.
    """
    return read_choice(text, choices, options)[0]


def read_choice(text: str, choices: str | Sequence[str] = "ABCD", options=None) -> tuple[str | None, str | None]:
    """The choice of [`extract_choice`], and the name of the form that decided, `None` where the text has none."""
    labels = [label.upper() for label in choices]
    names = option_texts(options, labels)
    text = _WRAPPED.sub(r"\1", text)
    boxed = [read_choice(content, labels, names)[0] for content in _BOXED.findall(text)]
    if any(boxed):
        return _only(boxed), "boxed"
    field = _json_field(text)
    if field is not None:
        return read_choice(field, labels, names)[0], "JSON"
    text = _without_own_words(_clean(text), names)
    if alone := _ALONE.fullmatch(text):
        return _only([alone[1].upper()], labels), "letter alone"
    said = words_of(text)
    if exact := [label for label, name in names.items() if said and words_of(name) == said]:
        return _only(exact), "option alone"
    revision = max((match.end() for match in _REVISION.finditer(text)), default=0)
    beside = 2 if not names else len(labels) if any(map(_ASSENT.match, names.values())) else 1
    for part, forms in ((text[revision:].lstrip(" ,.:!…-\n"), EXPLICIT), (text, FORMS)):
        choice, form = _decide(part, labels, forms, beside)
        if choice or (form and forms is FORMS):
            return choice, form
    named = [] if _SURVEY.search(text) else _named(text, names)
    return _only(named), "option named" if named else None


def option_texts(options: Sequence | Mapping | None, labels: Sequence[str] = ALPHABET) -> dict[str, str]:
    """
    The texts of options by their letters: those they come with (`{"A": "red"}`, `["A. red", "B. blue"]`), or else the
    `labels` in turn. Letters that are not those of labels, A, B, C and so on, are text: `["E. coli", "S. aureus"]`.
    """
    if options is None:
        return {}
    if isinstance(options, Mapping):
        given = {str(label).strip().upper(): str(text) for label, text in options.items() if text is not None}
        if given and all(label.isdecimal() for label in given):
            return dict(zip(labels, (given[number] for number in sorted(given, key=int)), strict=False))
        return given
    texts = [str(option) for option in unnested(options)]
    carried = [carried_letter(text) for text in texts]
    if in_turn([letter for letter, _ in carried], labels):
        return dict(carried)
    return dict(zip(labels, texts, strict=False))


def carried_letter(text: str) -> tuple[str | None, str]:
    """The letter that the text of an option begins with, `None` if there is none, and the text behind it."""
    match = CARRIED_LETTER.match(text)
    if match is None:
        return None, text
    bold = text.lstrip()[:2]
    words = text[match.end() :].strip()
    if bold in ("**", "__") and match[0].count(bold) == 1:  # **A. x**
        words = words.removesuffix(bold).rstrip()
    return unicodedata.normalize("NFKC", match["letter"]).upper(), words


def in_turn(letters: Sequence[str | None], labels: Sequence[str] = ALPHABET) -> bool:
    """Whether letters are labels: the first ones of the alphabet, or of a row's labels, each once."""
    if None in letters or not letters:
        return False
    return any(sorted(letters) == sorted(known[: len(letters)]) for known in (ALPHABET, labels))


def unnested(options: Sequence) -> Sequence:
    """The options of a list that is alone in a list, `[["cat", "dog"]]`; `["A", "cat"]` is one, with its letter."""
    inner = options[0] if len(options) == 1 else None
    if not isinstance(inner, (list, tuple)) or len(inner) < 2 or not all(isinstance(text, str) for text in inner):
        return options
    return options if len(inner) == 2 and inner[0].strip(" ().:").upper() in ALPHABET else inner


def _only(letters: Sequence[str | None], labels: Sequence[str] = ALPHABET) -> str | None:
    """The one letter of a list, if it is a label."""
    return letters[0] if len(set(letters)) == 1 and letters[0] in labels else None


def _json_field(text: str) -> str | None:
    """The answer of a JSON object, as text."""
    body = regex.sub(r"^\s*```(?:json)?|```\s*$", "", text).strip()
    if not body.startswith("{"):
        return None
    try:
        values = json.loads(body[:MAX_LENGTH])
    except (ValueError, RecursionError):
        return None
    answers = [value for key, value in values.items() if _FIELDS.fullmatch(key.lower())]
    if not answers:
        return None
    return ", ".join(map(str, answers[0])) if isinstance(answers[0], list) else str(answers[0])


def _clean(text: str) -> str:
    """A text without tokens, markup and spare white space, in one writing, of bounded length."""
    text = _STRUCK.sub(" ", SPECIAL_TOKEN.sub("", text.rpartition("</think>")[2]))
    text = _TAG.sub("\n", regex.sub(r"<([biu])>([^\n]{0,300}?)</\1>", r"\2", _MARKUP.sub("", text)))
    text = unicodedata.normalize("NFKC", text.translate(_EMOJI_LETTERS)).replace("’", "'").replace("‐", "-")
    text = _with_marks_after_letters(regex.sub(r"[\ufe00-\ufe0f]", "", text))
    text = regex.sub(r"[ \t\u00a0\u200b-\u200f\ufeff]+", " ", _DECORATION.sub(" ", text))
    text = regex.sub(r"(?<=\p{Hebrew})[-־](?=[A-Za-z])", " ", text)  # prepositions are joined on by a hyphen
    text = regex.sub(r"(?:^|\s*\n)\s*(?:[-=]{0,3}>|[-•·–=→⇒]\s)?\s?", "\n", text).strip()
    text = _ARTICLE.sub("", text)
    text = regex.sub(r";(?=\s|\Z)", "?", text) if regex.search(r"\p{Greek}{3}", text) else text
    text = _CONTRACTED.sub(" is", _NUMBERED.sub("", text, count=1) if len(_NUMBERED_ANY.findall(text)) < 2 else text)
    text = _QUESTION.sub("Answer: ", _ASSURANCE.sub("surely", text))
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH // 2]}\n{text[-MAX_LENGTH // 2 :]}"


def _with_marks_after_letters(text: str) -> str:
    """A text with its ticks and crosses, and boxes for them, after the letters: `C ✅` for `✅ C` and for `[x] C`."""
    text = regex.sub(r"\[ ?\]", "☐", text)
    text = regex.sub(r"\[x\]" if "☐" in text else r"\[x\](?=\s?[(\[]?[A-Z]\b)", "☑", text, flags=regex.IGNORECASE)
    first = regex.search(_MARK, text)
    if first is None or _LETTER_LAST.search(text[max(0, first.start() - 8) : first.start()]):
        return text
    return _MARKED.sub(r"\2 \1 ", text)


def _decide(
    text: str, labels: Sequence[str], forms: Sequence[Form], beside: int, alone: bool = False
) -> tuple[str | None, str | None]:
    """
    What the first form says that says anything, and its name. What needs other words beside it needs them at
    `beside` letters, and says nothing for sure if there are fewer. Nor is a letter chosen that another one is offered
    beside, unless the text is read `alone`, as what leads to such an offer.
    """
    surveyed = _SURVEY.search(text)
    for form in forms:
        if surveyed and form.mention:
            continue
        others = len(set(_compiled(form.beside).findall(text))) if form.beside else beside
        if not others:
            continue
        statements = [
            said
            for said in form.statements(text)
            if any(letter.upper() in labels for letter in said.letters) or said.letters[0].isupper()
        ]
        if form.revised:
            statements = _last_word(text, statements)
        letters = {letter.upper() for said in statements for letter in said.letters}
        if letters and not (form.lonely and _mentioned(text, labels) - letters):
            several = not alone and len(letters) == 1 and _is_one_of_several(text, statements, labels)
            sure = others >= beside and not several
            return _only(list(letters), labels) if sure else None, form.name
    return None, None


_FILLER = rf"(?: ?(?!{_NOT})(?-i:[^\s.,;:!?()A-Z]){{1,15}}){{0,3}}?"
_ALSO = pattern_of("also")
_HOLDS = rf"(?:{pattern_of('possible')}|{pattern_of('right')}|{pattern_of('yes')})"
_CAPITAL = rf"(?P<letter>(?-i:(?=[A-HJ-Z])){_LETTER}){_CLOSE}"
_ENDS = r"(?: sein| zijn| być)?\s*(?:[.!;,)\]\n]|\Z)"
_OFFER = regex.compile(
    rf"{_CAPITAL}{_FILLER} ?(?:{_ALSO}{_FILLER} ?{_HOLDS}|{_HOLDS}{_FILLER} ?{_ALSO})"  # C is also right, C works too
    rf"|{_CAPITAL},?(?: (?:is|are|does|works|es|est|ist|é|è))? ?{_ALSO}{_ENDS}"  # C as well
    rf"|[.;!\n]\s?{_OR},?\s?{_SOFT}\s?{_CAPITAL}{_ENDS}"  # It's B. And C.
    rf"|{_ALSO},?{_SOFT}\s?{_CAPITAL}(?:{_ENDS}|{_FILLER} ?{_HOLDS})",  # also C, so is C
    regex.IGNORECASE,
)
_CONCESSION = regex.compile(
    r"(?:though|while|aunque|bien que|même si|obwohl|auch wenn|embora|anche se|sebbene|хотя|虽然|尽管|hoewel"
    r"|chociaż|choć|meskipun|mặc dù)\s*\Z",
    regex.IGNORECASE,
)


def _is_one_of_several(text: str, statements: list[Statement], labels: Sequence[str]) -> bool:
    """Whether the letter of the statements is given beside another one: `B; D also works`, `B is right, so is D`."""
    letter = statements[0].letters[0].upper()
    end = max(said.end for said in statements)
    for offer in _OFFER.finditer(text):
        place = Statement((offer["letter"],), *offer.span("letter"))
        if place.letters[0] not in labels or _is_asked(text, place):
            continue
        conceded = _CONCESSION.search(text[max(0, offer.start() - 20) : offer.start()])
        if _DENIED_AFTER.match(text, place.end) or (not conceded and _is_denied_before(text, offer.start())):
            continue
        if place.letters[0] != letter:
            if place.start >= end:
                return True
        elif any(said.end == place.end for said in statements):
            before, _ = _decide(text[: offer.start()].rstrip(" ,;.("), labels, FORMS, 1, alone=True)
            if before not in (None, letter):
                return True
    return False


def _last_word(text: str, statements: list[Statement]) -> list[Statement]:
    """
    The statements from the last one back to where an argument, of five words or more, leads from another letter, or a
    list is narrowed.
    """
    for i in range(len(statements) - 1, 0, -1):
        earlier, later = statements[i - 1 : i + 1]
        argument = len(words_of(text[earlier.end : later.start])) >= 5
        narrowed = earlier.end <= later.start and set(later.letters) < set(earlier.letters)
        if narrowed or (argument and set(earlier.letters) != set(later.letters)):
            return statements[i:]
    return statements


# ----------------------------------------------------------------------------------------------------- options by name

_ASSENT = regex.compile(rf"(?:{pattern_of('yes')}|{pattern_of('no')})(?!\p{{L}})", regex.IGNORECASE)
_DENIAL = regex.compile(rf"{_NOT}|{pattern_of('no')}|{pattern_of('none')}|{_DENIED}", regex.IGNORECASE)
_BETWEEN = regex.compile(rf"(?:[\s,;.|/(]|{_OR}){{0,6}}", regex.IGNORECASE)
_JUDGED = regex.compile(rf"\s?(?:{_DENIED}|{pattern_of('right_after')})", regex.IGNORECASE)


def _without_own_words(text: str, names: Mapping[str, str]) -> str:
    """
    A text without the options where it only repeats them, `A. Yes B. No`, and without the words of an option that
    would deny its letter: `B: No`.
    """
    places = sorted(
        (Place(label, *match.span()) for label, name in names.items() for match in _with_letter(label, name, text)),
        key=lambda place: place.start,
    )
    gaps = [text[place.end : after.start] for place, after in pairwise(places)]
    if gaps and all(map(_BETWEEN.fullmatch, gaps)) and not _JUDGED.match(text, places[-1].end):
        return text[: places[0].start] + text[places[-1].end :]
    for place in reversed(places):
        if _DENIAL.match(names[place.label]):
            text = f"{text[: place.start]}{place.label},{text[place.end :]}"
    return text


def _with_letter(label: str, name: str, text: str) -> Iterator[regex.Match]:
    """Where a text has an option's letter and words together: `B: No`, or as a whole `No (B)`."""
    words = unicodedata.normalize("NFKC", name).replace("’", "'").split()
    spelt = r"\s".join(map(regex.escape, words)) + r"(?![\p{L}\p{M}\d])"
    pattern = (
        rf"(?<![\p{{L}}\d]){label}{_CLOSE}[\s:.=–—-]{{1,3}}{spelt}|\A{spelt}[\s,.:(–—-]{{1,3}}{label}(?=[).]{{0,2}}\Z)"
    )
    return regex.finditer(pattern, text, regex.IGNORECASE) if words else iter(())


_CLAUSE_END = regex.compile(
    rf"[.,;:!?。，；、！？\n]|\b(?:(?<!{_ALL}(?: \p{{L}}+)?{_OTHERS} )but|so|because|sondern|sino|mais|mas|ma|но)\b"
    r"|而是"
)
_EITHER = regex.compile(
    r"(?<!\p{L})(?:or|oder|ou|o|или|либо|أو|या|hoặc|veya|of)\s+$|(?:或者?|還是|还是|または|또는)\s*$"
)
_BY_ITSELF = regex.compile(rf"(?:^|[.,;:!?/&]|{_PERHAPS}|(?:{_OR} ?)?also|{_OR})\s*$", regex.IGNORECASE)
_DENIED_NAME_BEFORE = regex.compile(
    rf"(?:{_NOT}|{_ALL}(?: \p{{L}}+)?{_OTHERS} {_EXCEPT})(?:\s?\S+){{0,3}}\s*$", regex.IGNORECASE
)
_DENIED_NAME_AFTER = regex.compile(rf"\s?(?:{pattern_of('denied')}|{pattern_of('except_after')})", regex.IGNORECASE)


def _named(text: str, names: Mapping[str, str]) -> list[str]:
    """The letters of the options that a text names and does not deny; none where it names one `or` another."""
    text = plain(text)
    found = [place for label, name in names.items() for place in _places(text, label, words_of(name))]
    letters = []
    for place in found:
        within = any(other != place and other.contains(place) for other in found)
        if within or _denies_name(text, place.start, place.end):
            continue
        if _EITHER.search(text[: place.start]):
            return []
        letters.append(place.label)
    return letters


@dataclass(frozen=True)
class Place:
    """Where a text has the words of the option `label`."""

    label: str
    start: int
    end: int

    def contains(self, other: "Place") -> bool:
        longer = self.end - self.start > other.end - other.start
        return longer and self.start <= other.start and other.end <= self.end


def _places(text: str, label: str, name: list[str]) -> Iterator[Place]:
    words = split_words(text)
    for i in range(len(words) - len(name) + 1 if name else 0):
        *same, last = words[i : i + len(name)]
        if [word.text for word in same] != name[:-1]:
            continue
        suffixed = last.text.startswith(name[-1]) and regex.fullmatch(r"\p{Hangul}+", last.text)  # particles
        if last.text == name[-1] or suffixed:
            yield Place(label, words[i].start, last.start + len(name[-1]) if suffixed else last.end)


def _denies_name(text: str, start: int, end: int) -> bool:
    """Whether an option's words are denied where they stand; an option that is itself a `no` must stand by itself."""
    if regex.fullmatch(_NOT, text[start:end]):
        before = text[max(0, start - 80) : start]
        alone = _BY_ITSELF.search(before) and not regex.search(rf"{_NOT}\s*$", before, regex.IGNORECASE)
        return not alone or regex.match(r"\s?\w", text[end:]) is not None
    clause = _CLAUSE_END.split(text[max(0, start - 80) : start])[-1]
    return bool(_DENIED_NAME_BEFORE.search(clause) or _DENIED_NAME_AFTER.match(text, end))
