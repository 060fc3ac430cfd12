import json
import os
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paravt.answers.choices import FORMS, extract_choice, option_texts, read_choice


DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
SETS = ("choices.jsonl", "choices_blind.jsonl", "choices_second.jsonl")


@pytest.mark.parametrize(
    "form, text, letter", [(form.name, *example) for form in FORMS for example in form.examples], ids=str
)
def test_each_form_reads_its_examples(form, text, letter):
    assert read_choice(text) == (letter, form)


class TestLabelled:
    """Labelled answers; `recipes/bench/answers.py --misses` prints what is read wrongly."""

    @pytest.mark.parametrize("name", SETS)
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
        for name in SETS:
            with open(os.path.join(DATA, name), encoding="utf-8") as file:
                texts.append({json.loads(line)["text"] for line in file})
        assert sum(map(len, texts)) >= 1200
        for one, other in combinations(texts, 2):
            assert len(one & other) < 0.2 * min(len(one), len(other))


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
        ("Yes and no.", ["Yes", "No"], None),
        ("Yes/no", ["Yes", "No"], None),
        ("ni oui ni non", ["Oui", "Non"], None),
        ("Not yes and not no", ["Yes", "No"], None),
        ("B No", ["Yes", "No"], "B"),
        ("B - No, he does not.", ["Yes", "No"], "B"),
        ("No (B)", ["Yes", "No"], "B"),
        ("The answer is B) No", ["Yes", "No"], "B"),
        ("The answer is not B: No", ["Yes", "No"], None),
        ("A. Yes\nB. No", ["Yes", "No"], None),
        ("A: True, B: False", ["True", "False"], None),
        ("B. No or A. Yes", ["Yes", "No"], None),
        ("A: No, it stands. B: Yes, it runs.", ["it stands", "it runs"], "B"),
        ("A. red B. blue C. green. I choose blue.", ["red", "blue", "green"], "B"),
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
        ({"0": "cat", "1": "dog"}, {"A": "cat", "B": "dog"}),
        ({2: "dog", 1: "cat", 10: "cow"}, {"A": "cat", "B": "dog", "C": "cow"}),
        ([["cat", "dog"]], {"A": "cat", "B": "dog"}),
        (["A. E. coli", "B. S. aureus"], {"A": "E. coli", "B": "S. aureus"}),
        (["E. coli", "S. aureus"], {"A": "E. coli", "B": "S. aureus"}),
        (["J. Smith", "M. Jones"], {"A": "J. Smith", "B": "M. Jones"}),
        (["A. Smith", "D. Jones"], {"A": "A. Smith", "B": "D. Jones"}),
        (["a.m.", "p.m."], {"A": "a.m.", "B": "p.m."}),
        (["A、cat", "B、dog"], {"A": "cat", "B": "dog"}),
        (["Ａ．cat", "Ｂ．dog"], {"A": "cat", "B": "dog"}),
        (["A：cat", "B：dog"], {"A": "cat", "B": "dog"}),
        (["A - cat", "B - dog"], {"A": "cat", "B": "dog"}),
        (["A-frame", "B-side"], {"A": "A-frame", "B": "B-side"}),
        (["**A.** cat", "**B.** dog"], {"A": "cat", "B": "dog"}),
        (["**A. cat**", "**B. dog**"], {"A": "cat", "B": "dog"}),
        (["Option A: cat", "Option B: dog"], {"A": "cat", "B": "dog"}),
        (["<A> cat", "<B> dog"], {"A": "cat", "B": "dog"}),
    ],
)
def test_option_texts(options, texts):
    assert option_texts(options) == texts


def test_letters_of_options_are_those_of_the_row():
    options = ["E. coli", "F. nucleatum"]
    assert option_texts(options) == {"A": "E. coli", "B": "F. nucleatum"}
    assert option_texts(options, "EF") == {"E": "coli", "F": "nucleatum"}


@pytest.mark.parametrize(
    "text, letter",
    [
        ("A : faux. B : faux. C : vrai. D : faux.", "C"),
        ("A: falsch, B: falsch, C: richtig, D: falsch", "C"),
        ("A) No, he sits.\nB) No, it rains.\nC) Yes! He plays.\nD) No.", "C"),
        ("A：错。B：错。C：对。D：错。", "C"),
        ("A：×\nB：×\nC：○\nD：×", "C"),
        ("A: 틀림\nB: 틀림\nC: 맞음\nD: 틀림", "C"),
        ("A — нет; B — нет; C — да; D — нет", "C"),
        ("A = False\nB = False\nC = True\nD = False", "C"),
        ("A no, B no, C yes, D no.", "C"),
        ("A: ne\nB: ne\nC: ano\nD: ne", "C"),
        ("A: λάθος\nB: λάθος\nC: σωστό\nD: λάθος", "C"),
        ("A: לא נכון\nB: לא נכון\nC: נכון\nD: לא נכון", "C"),
        ("A: ผิด\nB: ผิด\nC: ถูก\nD: ผิด", "C"),
        ("(A) incorrect (B) incorrect (C) correct (D) incorrect", "C"),
        ("A: true. B: true. C: false. D: true. So the answer is C.", "C"),
        ("A: true. B: true. C: false. D: false.", None),
        ("A: false. B: false. C: false. D: false.", None),
        ("A) Yes.\nB) No.\nC) Cannot tell.", None),  # may be the options
        ("Everything except C is wrong.", "C"),
        ("All of them are false except for C.", "C"),
        ("None but C is correct.", "C"),
        ("Alle Optionen außer C sind falsch.", "C"),
        ("Tout sauf C est faux.", "C"),
        ("除了C选项，其他都错。", "C"),
        ("C를 제외하고 모두 틀렸습니다.", "C"),
        ("Все, кроме C, неверны.", "C"),
        ("C dışında hepsi yanlış.", "C"),
        ("Alla utom C är fel.", "C"),
        ("Everything except C is right.", None),
        ("Everything is fine but C is wrong.", None),
        ("Is everything except C wrong?", None),
        ("All but C", None),
        ("Everything except C and D is wrong.", None),
    ],
)
def test_what_is_said_of_each_option_and_of_all_but_one(text, letter):
    assert extract_choice(text) == letter


@pytest.mark.parametrize(
    "text, letter",
    [
        ("✅ C", "C"),
        ("✔️ C", "C"),
        ("C ☑️", "C"),
        ("👉 C", "C"),
        ("➡️ C", "C"),
        ("The answer is C 😊", "C"),
        ("🅲", "C"),
        ("🅱️", "B"),
        ("- [ ] A\n- [x] C\n- [ ] D", "C"),
        ("[ ] A [ ] B [x] C [ ] D", "C"),
        ("☐ A ☐ B ☑ C ☐ D", "C"),
        ("❌ A ❌ B ✅ C ❌ D", "C"),
        ("A ❌ B ❌ C ✅ D ❌", "C"),
        ("❌ C", None),
        ("❌ A ❌ B", None),
        ("✅ A and C", None),
        ("✅ A ✅ B", None),
        ("~~B~~ A", "A"),
        ("Answer: ~~C~~ A", "A"),
        ("<del>The answer is B.</del> The answer is A.", "A"),
        ("\\cancel{B} A", "A"),
        ("B\u0336 A", "A"),
        ("~~B~~", None),
        ("答案是B~~", "B"),
        ("Q: Who opens the gate?\nA: C", "C"),
        ("Q : Qui ouvre ?\nR : C", "C"),
        ("F: Wer öffnet das Tor?\nA: C", "C"),
        ("Q: Who opens the gate? A: C", "C"),
        ("Q: Who?\nA: red\nB: blue\nC: green", None),
        ("Q: Who?\nA: I cannot tell.", None),
        ("The answer is A: no one in the clip wears a helmet.", "A"),
        ("La respuesta es A: no hay nadie.", "A"),
        ("The answer is A: wrong.", None),
        ("The answer is B: not correct.", None),
        ("Option A: not shown", None),
    ],
)
def test_marks_struck_through_text_questions_and_explanations(text, letter):
    assert extract_choice(text) == letter


@pytest.mark.parametrize(
    "text",
    [
        "This is a 3-D animation of a heart.",
        "It is a 2D drawing.",
        "It is a 5-minute clip.",
        "It is a (short) film.",
        'It\'s a "trick" of light.',
        "It is a $5 bill.",
        "It is a... dog",
        "This is a so-called B‑side.",
        "He wears a V‑neck and a T-shirt.",
        "The X-ray shows vitamin-A.",
        "It is a B-52.",
        "It's C-3PO",
        "F-16",
    ],
)
def test_letters_of_names_are_no_choice(text):
    assert extract_choice(text, "ABCDEFGHIJKTUVX") is None


@pytest.mark.parametrize(
    "text, letter",
    [
        ("Jag tror att det är D, eftersom hunden springer.", "D"),
        ("Rätt svar är D.", "D"),
        ("Svaret är inte A, utan D.", "D"),
        ("D är fel.", None),
        ("Det rigtige svar er D.", "D"),
        ("Riktig svar er D.", "D"),
        ("A er forkert, D er rigtig.", "D"),
        ("Oikea vastaus on D.", "D"),
        ("D ei ole oikein.", None),
        ("Optie D lijkt me het meest waarschijnlijk.", "D"),
        ("Volgens mij is het D.", "D"),
        ("Moim zdaniem D.", "D"),
        ("Správná odpověď je D.", "D"),
        ("Možnosť D je správna.", "D"),
        ("A i D", None),
        ("Η σωστή απάντηση είναι η D.", "D"),
        ("Το D δεν είναι σωστό.", None),
        ("התשובה הנכונה היא D.", "D"),
        ("אני בוחר ב-D.", "D"),
        ("D לא נכון.", None),
        ("پاسخ درست گزینه D است.", "D"),
        ("گزینه D غلط است.", None),
        ("Răspunsul corect este D.", "D"),
        ("A helyes válasz a D.", "D"),
        ("Верният отговор е D.", "D"),
        ("Točan odgovor je D.", "D"),
        ("সঠিক উত্তর হল D", "D"),
        ("La resposta correcta és la D.", "D"),
        ("Ang tamang sagot ay D.", "D"),
        ("Menurut saya D, karena anjing itu berlari.", "D"),
        ("Theo tôi là D.", "D"),
        ("D şıkkı en olası görünüyor.", "D"),
        ("น่าจะเป็น D", "D"),
    ],
)
def test_more_languages(text, letter):
    assert extract_choice(text) == letter


PIECES = ["A", "B", " the answer is ", "not ", " or ", "\n", "(", ")", " is correct", "I ", "wait, ", "\\boxed{", "}"]
PIECES += ["选", "答案", "でも", ":", '{"answer":', "[", "है", "<think>", "**", "it is ", "a ", "red", ", "]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=30).map("".join))
def test_any_text_gives_a_label_or_none(text):
    assert extract_choice(text, "ABC", ["red", "not red", "B"]) in ("A", "B", "C", None)


@pytest.mark.timeout(120)  # where the time of a pattern is the square of the length, it takes longer
@pytest.mark.parametrize(
    "unit",
    [
        "A ",
        "(A) ",
        "B, ",
        "A or ",
        "it is ",
        "the answer is not ",
        "\\boxed{",
        '{"answer":',
        "wait ",
        "~~A",
        "<s>",
        "<b>",
    ]
    + [
        "[s]",
        "\\sout{",
        "A\u0336",
        "✅ A ",
        "A ❌ ",
        "[ ] A ",
        "everything except A ",
        "all of the ",
        "Q: ",
        "A: no, ",
    ]
    + ["A. red ", "no (B) ", "yes and no ", "a – b ", "\n", "\v", "C以外は", "除了"],
)
def test_long_texts_are_read_at_both_ends(unit):
    filler = unit * (1_000_000 // len(unit))
    assert extract_choice("The dog runs. " * 2000 + "\nAnswer: C") == "C"
    assert extract_choice(filler, "ABCD", ["red", "no", "blue"]) in (None, "A", "B", "C")


@pytest.mark.parametrize(
    "text",
    [
        "B; D also works",
        "B is correct, and so is D",
        "B is right, as is D",
        "Answer: A. Also C.",
        "The answer is A. C as well.",
        "The answer is B (or D)",
        "The answer is B (possibly D)",
        "Maybe B, maybe D",
        "B, but C is also possible",
        "B, but it could also be C",
        "B, although D would also work",
        "The answer is B, though C is also correct",
        "B. D is also correct.",
        "B，但C也可能",
        "答案是B，C也对",
        "La respuesta es B, pero C también es posible",
        "La réponse est B, mais C est aussi possible",
        "B, aber C ist auch möglich",
        "B, mas C também é possível",
        "Ответ B, но C тоже возможен",
    ],
)
def test_a_second_letter_that_is_offered_beside_the_first(text):
    assert extract_choice(text) is None


@pytest.mark.parametrize(
    "text, letter",
    [
        ("B; D also looks at the dog", "B"),
        ("The answer is B. D is also wrong.", "B"),
        ("Answer: B. Also, C shows no dog.", "B"),
        ("C also fits at first, but the answer is D", "D"),
        ("A ist falsch. Also D.", "D"),
        ("Answer: A (but B is also plausible)", "A"),
    ],
)
def test_what_is_said_of_other_letters_too_is_no_second_choice(text, letter):
    assert extract_choice(text) == letter


@pytest.mark.parametrize(
    "text, letter",
    [
        ("Is the answer B?", None),
        ("Could it be C?", None),
        ("是B吗？", None),
        ("答案是B吗", None),
        ("答えはBですか？", None),
        ("정답은 B인가요?", None),
        ("¿Es la B?", None),
        ("La réponse est-elle B ?", None),
        ("Ist die Antwort B?", None),
        ("Is the answer B? No, the answer is C.", "C"),
        ("Which one is it? The answer is B.", "B"),
        ("B?", "B"),
    ],
)
def test_questions_choose_nothing(text, letter):
    assert extract_choice(text) == letter


@pytest.mark.parametrize(
    "text", ["Mr. B", "The man is Dr. C.", "U.S.A.", "U.S.A", "B.C.", "300 B.C.", "Washington D.C."]
)
def test_titles_and_initials_are_no_labels(text):
    assert extract_choice(text, "ABCDSU") is None


@pytest.mark.parametrize(
    "text, letter",
    [
        ("Leaning A, but C is close", "A"),
        ("Probably B, but D comes close", "B"),
        ("I was going to say A, but it's C", "C"),
        ("I was leaning towards A, but the answer is C", "C"),
        ("I was going to choose A, but C fits better", "C"),
        ("Iba a decir A, pero es C", "C"),
        ("Stavo per dire A, ma è C", "C"),
        ("By elimination, D", "D"),
        ("By process of elimination, D.", "D"),
        ("Par élimination, D", "D"),
        ("Por eliminación, D", "D"),
        ("用排除法，D", "D"),
        ("1) B", "B"),
        ("(3) B", "B"),
        ("12. B", "B"),
        ("1) B\n2) C", None),
        ("The answer's B", "B"),
        ("My choice's probably B.", "B"),
        ("The answer's not B", None),
        ("C over A", "C"),
        ("I prefer C over A", "C"),
        ("B jumps over the fence", "B"),
        ("Não é A, mas sim C", "C"),
        ("No es A, sino más bien C", "C"),
    ],
)
def test_letters_that_are_weighed_against_others(text, letter):
    assert extract_choice(text) == letter


@pytest.mark.parametrize(
    "text, letter",
    [
        ("everything but blue", None),
        ("It has all colours but blue", None),
        ("lacks blue", None),
        ("It lacks the blue", None),
        ("todo menos blue", None),
        ("tout sauf blue", None),
        ("alles außer blue", None),
        ("除了blue", None),
        ("blue以外", None),
        ("everything is blue", "B"),
        ("not red but blue", "B"),
        ("It is all dark, but blue", "B"),
    ],
)
def test_options_that_are_named_by_exclusion(text, letter):
    assert extract_choice(text, "AB", ["red", "blue"]) == letter
