import subprocess
import sys


def test_importing_paravt_is_light():
    code = "import sys, paravt; print(sorted({'torch', 'vllm', 'transformers', 'trl', 'av'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_public_names():
    import paravt

    for name in paravt.__all__:
        assert getattr(paravt, name).__name__ == name


def test_prompts_are_printed():
    run = subprocess.run([sys.executable, "-m", "paravt.prompts"], capture_output=True, text=True)
    assert "<tools>" in run.stdout and '"crop_video"' in run.stdout
