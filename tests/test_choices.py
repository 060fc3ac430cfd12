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
        "I choose B. D would be fine too.",
        "The answer is B, or alternatively D.",
        "The correct answer is B. Additionally, C is correct.",
        "B is right and C is also",
        "It's B. And C.",
        "정답은 B이고 C도 맞습니다.",
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
        ("The answer is B. A man is also present.", "B"),
        ("B is right. A and C also appear but are wrong.", "B"),
        ("Answer: B. I also considered C.", "B"),
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


PLAIN = """
B Η απάντηση είναι η B.
B Η σωστή απάντηση είναι B
B Η σωστή απάντηση είναι το B.
B Η σωστή επιλογή είναι η B.
B Το B είναι σωστό.
B Η B είναι η σωστή απάντηση.
B Η επιλογή B είναι σωστή.
B Επιλέγω το B.
B Επιλέγω την επιλογή B.
B Διαλέγω B
B Νομίζω ότι είναι το B.
B B, επειδή ο σκύλος τρέχει.
B B γιατί ο σκύλος τρέχει.
B Είναι το B.
- Όχι το B.
- Όχι B
- Δεν είναι το B.
- Το B δεν είναι σωστό.
- Η απάντηση δεν είναι η B.
- Το B είναι λάθος.
- A ή B
B Δεν είναι το A, αλλά το B.
B Odpověď je B.
B Správná odpověď je B.
B Správná možnost je B.
B Správná je možnost B.
B B je správně.
B B je správná odpověď.
B Možnost B je správná.
B Vybírám B.
B Volím možnost B.
B Zvolil bych B.
B Myslím, že je to B.
B Je to B.
B B, protože pes běží.
B B protože pes běží.
B Správně je B.
- Ne B.
- Není to B.
- B není správně.
- B je špatně.
- Odpověď není B.
- A nebo B
B Není to A, ale B.
B Răspunsul este B.
B Răspunsul corect este B.
B Răspunsul corect e B.
B Varianta corectă este B.
B Opțiunea corectă este B.
B B este corect.
B B este corectă.
B B este răspunsul corect.
B Varianta B este corectă.
B B e corect.
B Aleg B.
B Aleg varianta B.
B Eu aleg B.
B Cred că este B.
B Este B.
B B, pentru că câinele aleargă.
B B deoarece câinele aleargă.
- Nu B.
- Nu este B.
- B nu este corect.
- B este greșit.
- Răspunsul nu este B.
- A sau B
B Nu A, ci B.
B A válasz B.
B A válasz a B.
B A válasz: B
B A helyes válasz a B.
B A helyes válasz B.
B A helyes opció a B.
B A helyes lehetőség a B.
B A B a helyes.
B A B válasz helyes.
B B helyes.
B A B a helyes válasz.
B A B-t választom.
B B-t választom.
B Választom a B-t.
B A B opciót választom.
B Szerintem B.
B Szerintem a B a helyes.
B B, mert a kutya fut.
B B, mivel a kutya fut.
- Nem B.
- Nem a B.
- A B nem helyes.
- A B helytelen.
- A válasz nem B.
- A helyes válasz nem a B.
- A vagy B
B Nem A, hanem B.
B پاسخ B است.
B پاسخ صحیح B است.
B جواب B است
B پاسخ: B
B گزینه صحیح B است.
B گزینه درست B است.
B گزینه B صحیح است.
B گزینهٔ B درست است.
B B صحیح است.
B B درست است
B من B را انتخاب می‌کنم.
B من گزینه B را انتخاب می کنم.
B B را انتخاب می‌کنم
B گزینه B پاسخ صحیح است.
B پاسخ درست گزینه B می‌باشد.
B B، زیرا سگ می‌دود.
B B چون سگ می‌دود.
B فکر می‌کنم B است.
B به نظرم B است.
- B نیست.
- نه B
- B صحیح نیست.
- B درست نیست
- B غلط است.
- گزینه B اشتباه است.
- پاسخ B نیست.
- پاسخ صحیح B نیست.
- A یا B
B نه A، بلکه B.
B La resposta és B.
B La resposta és la B.
B La resposta correcta és la B.
B L'opció correcta és la B.
B L'opció B és correcta.
B B és correcta.
B La B és la correcta.
B La B és correcta.
B B és la resposta correcta.
B Trio la B.
B Trio B.
B Escullo la B.
B Jo triaria la B.
B Crec que és la B.
B És la B.
B B, perquè el gos corre.
B B perquè el gos corre.
B B, ja que el gos corre.
- No és la B.
- No la B.
- No B
- La B no és correcta.
- B és incorrecta.
- La resposta no és B.
- La resposta no és la B.
- A o B
B No és A, sinó B.
B Отговорът е B.
B Правилният отговор е B.
B Верният отговор е B.
B Правилният вариант е B.
B Правилната опция е B.
B Вариант B е правилен.
B B е верен.
B B е правилно.
B B е вярно.
B B е правилният отговор.
B Избирам B.
B Аз избирам B.
B Избирам вариант B.
B Мисля, че е B.
B B, защото кучето тича.
B B защото кучето тича.
B Това е B.
- Не B.
- Не е B.
- B не е верен.
- B не е правилно.
- B е грешен.
- B е грешно.
- Отговорът не е B.
- A или B
B Не A, а B.
B Не е A, а B.
B Odgovor je B.
B Tačan odgovor je B.
B Točan odgovor je B.
B Ispravan odgovor je B.
B Ispravna opcija je B.
B Tačna opcija je B.
B B je tačno.
B B je tačan odgovor.
B B je ispravno.
B Opcija B je tačna.
B Biram B.
B Biram opciju B.
B Ja biram B.
B Mislim da je B.
B To je B.
B B, jer pas trči.
B B jer pas trči.
B B zato što pas trči.
- Nije B.
- B nije tačno.
- B je netačno.
- B je pogrešno.
- Odgovor nije B.
- A ili B
B Nije A, nego B.
B Nije A, već B.
B Одговор је B.
B Тачан одговор је B.
B Исправан одговор је B.
B Тачна опција је B.
B Исправна опција је B.
B Опција B је тачна.
B B је тачно.
B B је тачан одговор.
B B је исправно.
B Бирам B.
B Ја бирам B.
B Бирам опцију B.
B Мислим да је B.
B То је B.
B B, јер пас трчи.
B B јер пас трчи.
B B зато што пас трчи.
- Није B.
- B није тачно.
- B је нетачно.
- B је погрешно.
- Одговор није B.
B Није A, него B.
B Није A, већ B.
B Η απάντησή μου είναι B.
B Πιστεύω πως η σωστή απάντηση είναι η B.
- Δεν επιλέγω το B.
- Ούτε το A ούτε το B.
- Το A και το B είναι σωστά.
B Moje odpověď je B.
B Myslím, že správná odpověď je B.
B Podle mě B.
- Ani A, ani B.
- A i B jsou správně.
- Nevybírám B.
B Cred că răspunsul corect este B.
B Probabil B.
- Nici A, nici B.
- Nu aleg B.
- A și B sunt corecte.
B Szerintem a helyes válasz a B.
B Azt hiszem, hogy B.
- Sem A, sem B.
- Nem a B-t választom.
- A és B is helyes.
B به نظر من گزینه B درست است.
- نه A و نه B
- من B را انتخاب نمی‌کنم.
- A و B درست هستند.
B Crec que la resposta correcta és la B.
- Ni A ni B.
- No trio la B.
- A i B són correctes.
B Мисля, че правилният отговор е B.
- Нито A, нито B.
- Не избирам B.
- A и B са верни.
B Mislim da je tačan odgovor B.
- Ne biram B.
- A i B su tačni.
B Мислим да је тачан одговор B.
- Ни A ни B.
- Не бирам B.
- A и B су тачни.
- Дали отговорът е B?
- Je li odgovor B?
- Είναι το B;
- Je to B?
- Az a válasz, hogy egy kutya.
- A válasz egy kutya.
- A kutya fut.
- Un câine.
- O pasăre.
- E un câine.
- I tak.
- A pes běží.
- Válasz: a kutya
- Odpověď: a pes
- Răspunsul este o pasăre
- És un gos.
- La resposta és a la cuina.
"""


@pytest.mark.parametrize("line", PLAIN.strip().splitlines())
def test_plain_sentences_of_smaller_languages(line):
    letter, text = line.split(" ", 1)
    assert extract_choice(text) == (None if letter == "-" else letter)
