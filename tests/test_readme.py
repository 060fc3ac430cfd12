import os
import re
import subprocess
import sys

import pytest


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def readme():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        return file.read()


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
    snippets = re.findall(r"```python\n(.*?)```", readme(), re.DOTALL)
    body = "\n".join([*snippets, THE_PROMPT_OF_TRAINING]).replace("\n", "\n    ")
    (tmp_path / "snippets.py").write_text(f"if __name__ == '__main__':\n    {body}\n")
    run = subprocess.run([sys.executable, "snippets.py"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    assert "'start_time': 65.0" in run.stdout and "D (2.0, 5.0)" in run.stdout and "(32, 32)" in run.stdout


def test_the_tree_names_every_module():
    for name in os.listdir(os.path.join(ROOT, "paravt")):
        assert (
            name in ("__init__.py", "__pycache__", "py.typed") or f"  {name} " in readme() or f"  {name}/ " in readme()
        ), name
