"""The two READMEs: their snippets run, their commands run or are run elsewhere, their tree is the tree."""

import os
import re
import subprocess
import sys

import pytest


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def text_of(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


TEXTS = {name: text_of(name) for name in ("README.md", os.path.join("recipes", "README.md"))}


def blocks(language):
    return [block for text in TEXTS.values() for block in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)]


def commands():
    """Each command of the bash blocks on one line, without comments."""
    for block in blocks("bash"):
        for line in block.replace("\\\n", " ").splitlines():
            line = " ".join(re.sub(r"\s#\s.*", "", line).split())
            if line:
                yield line


# Whoever serves a trained model writes the prompt by hand: it must be the one that the model was trained on.
THE_PROMPT_OF_TRAINING = """
from paravt import FrameBudgetCollator
(row,) = FrameBudgetCollator(processor, [4], max_pixels=1024)(
    [{"prompt": [{"role": "user", "content": "<video>Which colour is the flash?"}], "videos": [path]}]
)
by_hand, trained = (processor.apply_chat_template(m, tokenize=False) for m in (messages, row["prompt"]))
assert by_hand == trained, (by_hand, trained)
"""


@pytest.mark.slow
def test_snippets_run(tmp_path):
    """The Python snippets, in order, as one program in an empty folder."""
    body = "\n".join([*blocks("python"), THE_PROMPT_OF_TRAINING]).replace("\n", "\n    ")
    (tmp_path / "snippets.py").write_text(f"if __name__ == '__main__':\n    {body}\n")
    run = subprocess.run([sys.executable, "snippets.py"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    assert "'start_time': 65.0" in run.stdout and "D (2.0, 5.0)" in run.stdout and "(32, 32)" in run.stdout


def test_the_tree_names_every_module():
    tree = TEXTS["README.md"]
    for name in set(os.listdir(os.path.join(ROOT, "paravt"))) - {"__init__.py", "__pycache__", "py.typed"}:
        assert re.search(rf"\s{name}\W", tree), name


def test_the_readme_is_one_page():
    assert len(TEXTS["README.md"].splitlines()) <= 200


def test_links_lead_somewhere():
    for name, text in TEXTS.items():
        headings = {
            other: {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", t, re.M)}
            for other, t in TEXTS.items()
        }
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if target.startswith("http"):
                continue
            path, _, anchor = target.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            assert os.path.exists(os.path.join(ROOT, path)), (name, target)
            assert not anchor or anchor in headings[path], (name, target)
