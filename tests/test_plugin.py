"""lmms-eval itself, offline, on local tasks with the toy model. `.ci/run` runs these beside the vLLM tests."""

import json
import os
import signal
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet
import pytest
from conftest import two_ranks

from paravt import toy


pytest.importorskip("lmms_eval", reason="THE LMMS-EVAL TESTS ARE SKIPPED: lmms-eval is not installed here")
pytestmark = [pytest.mark.evaluation, pytest.mark.slow, pytest.mark.timeout(2700)]

RECIPES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "recipes")
LIMITS = ["--frames", "4", "--max_pixels", "1024", "--max_turns", "1", "--max_turn_length", "120"]
LIMITS += ["--max_report_length", "16", "--batch_size", "4"]

TASK = """
task: {name}
dataset_path: parquet
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
output_type: generate_until
doc_to_visual: !function utils.visual
doc_to_text: "{{{{question}}}}"
doc_to_target: "answer"
process_results: !function utils.process
metric_list:
  - metric: accuracy
    aggregation: mean
    higher_is_better: true
generation_kwargs:
  max_new_tokens: 16
"""
UTILS = """
import os, sys

def visual(doc):
    if doc["note"] == "raise":
        raise RuntimeError("no luck")
    if not os.path.exists(doc["video"]):
        sys.exit(f"video path:{doc['video']} does not exist, please check")
    return [doc["video"]]

def process(doc, results):
    return {"accuracy": float(results[0] == doc["answer"])}
"""

KILLED = """
import os, runpy, signal, sys
from paravt.evaluation import Records

add = Records.add

def killed(self, record):
    add(self, record)
    if len(self.done) == 6:
        os.kill(os.getpid(), signal.SIGKILL)

Records.add = killed
sys.path.insert(0, {recipe!r}.rpartition("/")[0])
sys.argv[0] = {recipe!r}
runpy.run_path({recipe!r}, run_name="__main__")
"""


def run(recipe, *flags, code=0):
    command = [sys.executable, os.path.join(RECIPES, recipe), *map(str, flags)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """The toy model, and what `ask.py` says without arguments: it trains the model first."""
    folder = str(tmp_path_factory.mktemp("ask") / "model")
    return folder, run("ask.py", "--toy_folder", folder, "--json").stdout


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """Two tasks of multiple-choice questions on toy videos; in one of them three samples are broken."""
    folder = tmp_path_factory.mktemp("tasks")
    rows = toy.make_rows(str(folder / "videos"), 16, seed=5, kinds=("mcq",))
    docs = [
        {
            "question": row["prompt"][0]["content"].removeprefix("<video>"),
            "answer": row["answer"],
            "note": "",
            "video": row["videos"][0],
        }
        for row in rows
    ]
    (folder / "corrupt.mp4").write_text("<html>404</html>")
    broken = [dict(doc) for doc in docs[:6]]
    broken[1]["video"], broken[3]["video"] = str(folder / "gone.mp4"), str(folder / "corrupt.mp4")
    broken[4]["note"] = "raise"
    for name, rows in (("toy_good", docs), ("toy_broken", broken)):
        pa.parquet.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
        (folder / f"{name}.yaml").write_text(TASK.format(name=name, file=folder / f"{name}.parquet"))
    (folder / "utils.py").write_text(UTILS)
    return str(folder), docs


def records_of(folder):
    with open(os.path.join(folder, "records.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def official(text, task):
    line = next(line for line in text.splitlines() if line.startswith(f"{task}: official"))
    return json.loads(line[line.index("{") : line.index("}") + 1])["accuracy"]


def evaluate(asked, tasks, folder, *flags, task="toy_good", code=0):
    base = ["--model", asked[0], "--tasks", task, "--include_path", tasks[0], "--output_dir", folder]
    return run("evaluate.py", *base, *LIMITS, *flags, code=code)


class TestAsk:
    def test_without_arguments(self, asked):
        record = json.loads(asked[1])
        rows = toy.make_rows(os.path.join(asked[0], "videos"), 8, seed=2)
        row = next(row for row in rows if not toy.shows(row, 4))
        assert record["error"] is None and record["prediction"] == row["truth"]["colour"]
        assert [call["status"] for call in record["calls"]] == ["ok"] * 4 and record["frames"] == 4 + 4 * 16

    def test_as_text(self, asked):
        text = run("ask.py", "--toy_folder", asked[0]).stdout
        assert text.count("--- assistant") == 2 and text.count("--- tool") == 4 and "=== answer:" in text

    def test_a_bad_file_is_named(self, asked, tasks):
        done = run("ask.py", os.path.join(tasks[0], "corrupt.mp4"), "What?", "--toy_folder", asked[0], code=1)
        assert "web page" in done.stderr


class TestEvaluate:
    def test_scores_are_those_of_the_truth(self, asked, tasks, tmp_path):
        text = evaluate(asked, tasks, tmp_path).stdout
        records = records_of(tmp_path)
        assert len(records) == 16 and len({r["id"] for r in records}) == 16
        right = 0
        for record in records:
            doc = tasks[1][int(record["id"].split("/")[-1])]
            options = dict(line.split(". ") for line in doc["question"].splitlines()[1:])
            said = record["prediction"]
            expected = said is not None and doc["answer"] in (said, {v: k for k, v in options.items()}.get(said))
            assert record["truth"] == doc["answer"] and record["score"] == float(expected)
            right += expected
        assert right >= 12  # the toy model knows its world
        assert official(text, "toy_good") == pytest.approx(right / 16)
        again = evaluate(asked, tasks, tmp_path).stdout  # nothing is asked again
        assert official(again, "toy_good") == pytest.approx(right / 16) and len(records_of(tmp_path)) == 16

    def test_the_same_predictions_as_ask(self, asked, tasks, tmp_path):
        evaluate(asked, tasks, tmp_path, "--limit", 3)
        for record in records_of(tmp_path):
            doc = tasks[1][int(record["id"].split("/")[-1])]
            flags = [*LIMITS[:-2], "--json", "--model", asked[0]]
            told = json.loads(run("ask.py", doc["video"], doc["question"], *flags).stdout)
            assert told["prediction"] == record["prediction"] and told["turns"] == record["turns"]

    def test_failed_samples_are_reported_and_never_scored(self, asked, tasks, tmp_path):
        done = evaluate(asked, tasks, tmp_path, task="toy_broken", code=1)
        records = {r["id"].split("/")[-1]: r for r in records_of(tmp_path)}
        failed = {number for number, r in records.items() if r["error"]}
        assert len(records) == 6 and failed == {"1", "3", "4"}
        assert all(records[n]["score"] is None for n in failed) and "3 questions failed" in done.stdout
        for number, cause in (("1", "does not exist"), ("3", "web page"), ("4", "no luck")):
            assert cause in records[number]["error"] and f"failed: toy_broken/test/{number}" in done.stdout

    def test_kill_and_resume(self, asked, tasks, tmp_path):
        (tmp_path / "killed.py").write_text(KILLED.format(recipe=os.path.join(RECIPES, "evaluate.py")))
        flags = ["--model", asked[0], "--tasks", "toy_good", "--include_path", tasks[0], "--output_dir", str(tmp_path)]
        command = [sys.executable, str(tmp_path / "killed.py"), *flags, *LIMITS]
        killed = subprocess.run(command, capture_output=True, text=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
        path = tmp_path / "records.jsonl"
        before = path.read_bytes()
        with open(path, "ab") as file:
            file.write(before[:40])  # as if the kill had come in the middle of a line
        whole = before[: before.rindex(b"\n") + 1]
        assert whole.count(b"\n") == 6
        done = evaluate(asked, tasks, tmp_path, "--frames", "8", code=1)
        assert "frames 4 there and 8 now" in done.stderr
        evaluate(asked, tasks, tmp_path)
        after = path.read_bytes()
        assert after.startswith(whole) and sorted(r["id"] for r in records_of(tmp_path)) == sorted(
            f"toy_good/test/{i}" for i in range(16)
        )

    def test_two_ranks(self, asked, tasks, tmp_path):
        """Each rank writes its own records; the table and the exit code are of all."""
        flags = ["--model", asked[0], "--tasks", "toy_broken", "--include_path", tasks[0], "--output_dir", tmp_path]
        ranks = two_ranks(tmp_path / "logs", os.path.join(RECIPES, "evaluate.py"), *flags, *LIMITS)
        parts = [(tmp_path / name).read_text().splitlines() for name in ("records.jsonl", "records.1.jsonl")]
        ids = [json.loads(line)["id"] for lines in parts for line in lines]
        assert [len(lines) for lines in parts] == [3, 3] and len(set(ids)) == 6, str(ranks)
        assert ranks.code == 1 and [text.count("3 questions failed") for text in ranks.stdout] == [1, 0]

    def test_sequential_dispatch(self, asked, tasks, tmp_path):
        evaluate(asked, tasks, tmp_path, "--dispatch", "sequential", "--max_turns", "4", "--limit", "4")
        served = [
            (r["id"], call["turn"]) for r in records_of(tmp_path) for call in r["calls"] if call["status"] == "ok"
        ]
        assert served and len(set(served)) == len(served)

    def test_unknown_tasks_are_named(self, asked, tasks, tmp_path):
        assert "unknown tasks ['nonsense']" in evaluate(asked, tasks, tmp_path, task="nonsense", code=1).stderr

    def test_the_plugin(self, asked, tasks, tmp_path):
        """The command of lmms-eval itself finds the model by its name."""
        arguments = (
            f"pretrained={asked[0]},frames=4,max_pixels=1024,max_turns=1,max_turn_length=120,max_report_length=16"
        )
        command = ["-m", "lmms_eval", "--model", "paravt", "--model_args", arguments, "--tasks", "toy_good"]
        command += ["--include_path", tasks[0], "--limit", "4", "--output_path", str(tmp_path), "--batch_size", "4"]
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
        found = list(tmp_path.rglob("*results.json"))
        assert found, done.stdout[-2000:] + done.stderr[-2000:]
        assert "accuracy,none" in json.loads(found[0].read_text())["results"]["toy_good"]


class TestOfficialAnswer:
    QUESTION = "Which?\nA. cat\nB. dog\n(C) cow\nD: a horse"

    @pytest.mark.parametrize(
        ("said", "doc", "given"),
        [
            ("b", {}, "B"),
            ("B. dog", {}, "B"),
            ("dog", {}, "B"),
            ("Based on all, C", {}, "C"),
            (None, {}, "???"),
            ("no idea", {}, "???"),
            (None, {"correct_choice": 0}, "B"),
            (None, {"correct_choice": 2}, "A"),
        ],
    )
    def test_choices(self, said, doc, given):
        from paravt.evaluation.plugin import official_answer

        assert official_answer(said, self.QUESTION, doc) == given

    @pytest.mark.parametrize("said", ["[2.0, 5.0]", "starts at 2.0 seconds and ends at 5.0 seconds", "00:02 - 00:05"])
    def test_intervals_are_written_as_the_scorer_reads_them(self, said):
        from lmms_eval.tasks.charades_sta.utils import extract_time

        from paravt.evaluation.plugin import official_answer, strict_score

        doc = {"timestamp": [2.0, 5.0]}
        assert extract_time(official_answer(said, "When?", doc)) == [[2.0, 5.0]]
        assert extract_time(official_answer("soon", "When?", doc)) == []
        assert strict_score({"prediction": said, "question": "When?"}, [2.0, 5.0], doc)[1] == 1.0

    def test_no_answer_is_wrong_for_the_official_scorers(self):
        from lmms_eval.tasks.longvideobench.utils import parse_multi_choice_response
        from lmms_eval.tasks.mmvu.utils import evaluate_with_rule_based
        from lmms_eval.tasks.videomme.utils import extract_characters_regex

        from paravt.evaluation.plugin import official_answer, strict_score

        for truth in ("e", "4", "depth-first search", "no"):
            doc = {"question_type": "open-ended", "answer": truth}
            assert not evaluate_with_rule_based(doc, official_answer(None, "What?", doc)), truth
            assert strict_score({"prediction": None, "question": "What?"}, truth, doc)[1] == 0.0
        assert extract_characters_regex(official_answer(None, self.QUESTION, {})) not in ("A", "B", "C", "D")
        for choice in range(5):
            doc = {"correct_choice": choice}
            given = official_answer(None, self.QUESTION, doc)
            assert parse_multi_choice_response(given, list("ABCDE"), {}) != "ABCDE"[choice]
