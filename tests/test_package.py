import ast
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from transformers import PreTrainedConfig


ROOT = Path(__file__).parent.parent

# Which rooms of the package each room imports. A room may import only what stands below it.
ROOMS = {
    "trainer": (
        "anchors bad_rows chat collator config engines forest judge metrics rewards rollout seeds settings trainable "
        "video"
    ),
    "evaluation": (
        "anchors answers collator data engines messages metrics prompts rewards rollout seeds settings video"
    ),
    "rollout": "anchors chat config engines episode parser prompts seeds settings tools video",
    "episode": "engines seeds tools video",
    "collator": "chat engines forest messages prompts settings tools video",
    "toy": "chat parser prompts tools video",
    "forest": "engines",
    "engines": "chat seeds settings",
    "tools": "messages parser video",
    "chat": "prompts video",
    "judge": "answers rewards",
    "rewards": "anchors answers parser",
    "data": "answers messages video",
    "metrics": "",
    "anchors": "parser",
    "answers": "parser",
    "parser": "prompts",
    "config": "settings",
    "settings": "messages prompts",
    "messages": "",
    "prompts": "",
    "bad_rows": "",
    "seeds": "",
    "trainable": "",
    "video": "",
}
# Modules of an engine that only the engines themselves and the trainer, which sets them up, may know.
BACKENDS = {f"paravt.engines.{name}" for name in ("transformers", "trl", "vllm", "weights")}
MOVED = "calls decode engine evaluate harness load passes timeline vllm_engine weights workers".split()


def name_of(path: Path) -> str:
    """`a/b.py` and `a/b/__init__.py` are both `a.b`."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(root: Path = ROOT) -> dict[str, Path]:
    return {name_of(path.relative_to(root)): path for path in sorted((root / "paravt").rglob("*.py"))}


MODULES = modules()


def imports(source: str, package: str = "") -> list[tuple[str, str | None]]:
    """(module, name or `None`) of every import in a file of `package`, those inside functions too."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                module = importlib.util.resolve_name("." * node.level + module, package)
            found += [(module, alias.name) for alias in node.names]
    return found


def imported_modules(name: str, source: str) -> set[str]:
    """Modules of the package that the module `name` imports."""
    package = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
    found = imports(source, package)
    made = {f"{module}.{item}" if f"{module}.{item}" in MODULES else module for module, item in found}
    return {module for module in made if module.split(".")[0] == "paravt"}


def faults(name: str, source: str) -> list[str]:
    """What is wrong with the imports of the module `name`."""
    room = name.split(".")[1] if "." in name else None
    found = []
    for target in sorted(imported_modules(name, source)):
        theirs = target.split(".")[1] if "." in target else None
        if room == theirs:
            continue
        if theirs is None or theirs not in ROOMS[room].split():
            found.append(f"{name} imports {target}")
        elif target in BACKENDS and room != "trainer":
            found.append(f"{name} imports the backend {target}")
    return found


class TestRooms:
    def test_the_table_points_down(self):
        order = list(ROOMS)
        for room, below in ROOMS.items():
            assert all(order.index(other) > order.index(room) for other in below.split()), room
        assert {name.split(".")[1] for name in MODULES if "." in name} == set(ROOMS)

    @pytest.mark.parametrize("name", [name for name in MODULES if name != "paravt"])
    def test_imports_point_down(self, name):
        assert faults(name, MODULES[name].read_text()) == []

    @pytest.mark.parametrize(
        "name, source",
        [
            ("paravt.tools", "from .rollout import ParallelRollout"),
            ("paravt.tools", "import paravt.rollout"),
            ("paravt.video.clips", "from .. import chat"),
            ("paravt.video", "from ..parser import ToolCall"),
            ("paravt.engines.features", "def f():\n    from ..collator import FrameBudgetCollator"),
            ("paravt.rewards", "class A:\n    from paravt import trainer"),
            ("paravt.rewards", "from . import ParallelRollout"),  # whoever imports the whole imports what is above
            ("paravt.collator", "from .engines.vllm import VLLMEngine"),
            ("paravt.collator", "from .engines import transformers"),
            ("paravt.rollout", "def f():\n    from .engines.weights import push_exact_weights"),
            ("paravt.evaluation.rates", "import paravt.engines.vllm as v"),
        ],
    )
    def test_bad_imports_are_found(self, name, source):
        assert len(faults(name, source)) == 1

    def test_what_is_imported_is_declared(self):
        with open(ROOT / "pyproject.toml", "rb") as file:
            project = tomllib.load(file)["project"]
        named = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
        declared = {re.match(r"[\w-]+", name)[0].lower().replace("-", "_") for name in named}
        packages = importlib.metadata.packages_distributions()
        for name, path in MODULES.items():
            for module, _ in imports(path.read_text(), name):
                top = module.split(".")[0]
                if top != "paravt" and top not in sys.stdlib_module_names:
                    known = {d.lower().replace("-", "_") for d in (top, *packages.get(top, []))}
                    assert known & declared, (name, top)

    def test_good_imports_are_not(self):
        assert faults("paravt.collator", "from .engines.features import image_features\nimport torch") == []
        assert faults("paravt.engines", "def f():\n    from .vllm import VLLMEngine") == []
        assert faults("paravt.video.clips", "from . import decode\nfrom .timeline import fit_size") == []


def files(*ends: str) -> list[Path]:
    folders = [ROOT / name for name in ("paravt", "recipes", "tests")]
    inside = [path for folder in folders for end in ends for path in sorted(folder.rglob(f"*{end}"))]
    return inside + [path for path in sorted(ROOT.iterdir()) if path.suffix in ends]


def moved_paths(text: str) -> list[str]:
    return re.findall(rf"\bparavt[./](?:{'|'.join(MOVED)})(?:\.py)?\b(?!/)", text)


class TestPaths:
    def test_no_old_module_path(self):
        for path in files(".py", ".md", ".toml", ".yaml"):
            assert moved_paths(path.read_text()) == [], path

    @pytest.mark.parametrize("path", files(".py"), ids=lambda path: str(path.relative_to(ROOT)))
    def test_imports_of_the_package_exist(self, path):
        import paravt

        package = ".".join(path.relative_to(ROOT).parent.parts)
        for module, item in imports(path.read_text(), package):
            if module == "paravt":
                assert item is None or item in paravt.__all__ or f"paravt.{item}" in MODULES, (module, item)
            elif module.startswith("paravt."):
                assert module in MODULES, module

    def test_old_paths_are_found(self):
        gone = [f"paravt{path}" for path in (".calls", "/engine.py", ".weights", ".load")]
        assert moved_paths(" and ".join(gone)) == gone
        kept = "paravt.engines.weights paravt.load_rows paravt/video/decode.py paravt.evaluation"
        assert moved_paths(kept) == []


def private(source: str) -> set[str]:
    """Private names that a file uses or defines."""
    tree = list(ast.walk(ast.parse(source)))
    names = {node.attr for node in tree if isinstance(node, ast.Attribute)}
    names |= {node.name for node in tree if isinstance(node, ast.FunctionDef)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def private_of_others(source: str) -> set[str]:
    """Private names that a file uses of objects other than `self`."""
    attributes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    return {a.attr for a in attributes if ast.unparse(a.value) not in ("self", "cls")} & private(source)


class TestTRL:
    """What is not public in TRL is used in one module, and in the trainer, which says what."""

    def test_imports(self):
        import trl

        public = {name for names in trl._import_structure.values() for name in names}
        for path in files(".py"):
            if path.is_relative_to(ROOT / "tests") or path == MODULES["paravt.engines.trl"]:
                continue
            for module, item in imports(path.read_text(), ".".join(path.relative_to(ROOT).parent.parts)):
                if module.split(".")[0] == "trl":
                    assert module == "trl" and item in public, (path, module, item)

    def test_private_names(self):
        folder = Path(importlib.util.find_spec("trl").origin).parent
        classes = ("trainer/grpo_trainer.py", "generation/vllm_generation.py", "generation/vllm_client.py")
        theirs = set().union(*(private((folder / name).read_text()) for name in classes))
        theirs -= set(dir(PreTrainedConfig))  # which is of transformers, and TRL uses some of it
        assert len(private_of_others(MODULES["paravt.engines.trl"].read_text()) & theirs) >= 5
        for name in MODULES.keys() - {"paravt.engines.trl", "paravt.trainer"}:
            assert not private_of_others(MODULES[name].read_text()) & theirs, name

        from paravt import ParaGRPOTrainer

        told = set(re.findall(r"`(_\w+)`", ParaGRPOTrainer.__doc__))
        assert private(MODULES["paravt.trainer"].read_text()) & theirs == told

    def test_a_use_of_them_is_found(self):
        assert private_of_others("def f(self, g):\n    self._own()\n    return g._dist, g.__class__") == {"_dist"}


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


IMPORT = """
import importlib, sys
for name in sys.argv[2:]:
    module = importlib.import_module(name)
    assert module.__file__.startswith(sys.argv[1]), module.__file__
print("all imported")
"""


@pytest.mark.slow
def test_the_wheel_is_whole(tmp_path):
    """Every module of the checkout is in the wheel and can be imported from there, which an editable install hides."""
    source, installed = tmp_path / "source", tmp_path / "installed"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "paravt", source / "paravt", ignore=shutil.ignore_patterns("__pycache__"))

    def pip(*arguments):
        command = [sys.executable, "-m", "pip", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]

    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, source)
    (wheel,) = tmp_path.glob("*.whl")
    pip("install", "--no-deps", "--target", installed, wheel)
    assert set(modules(installed)) == set(MODULES) and (installed / "paravt" / "py.typed").exists()

    names = list(MODULES)
    if importlib.util.find_spec("lmms_eval") is None:
        names.remove("paravt.evaluation.plugin")  # which is nothing without lmms-eval
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, str(installed), *names],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    assert done.stdout.endswith("all imported\n"), done.stdout[-1000:] + done.stderr[-3000:]
