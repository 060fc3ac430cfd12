import asyncio
import json
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from paravt.judge import JudgeReward
from paravt.rewards import accuracy_reward, tool_reward


class Judge(BaseHTTPRequestHandler):
    """Says 1 if the answer is the reference; misbehaves on demand."""

    lock, running, most = threading.Lock(), 0, 0
    together = None  # a barrier, for requests that are to be under way at the same time
    over = threading.Event()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["messages"][0]["content"]
        reference, answer = (text.split(key)[1].split("\n")[0] for key in ("Reference answer: ", "Answer to judge: "))
        cls = type(self)
        with cls.lock:
            cls.running += 1
            cls.most = max(cls.most, cls.running)
            fails = answer == "broken" or (answer == "flaky" and cls.failures.pop("flaky", 0))
        if cls.together is not None:
            cls.together.wait()
        if answer == "slow":
            cls.over.wait()
        with cls.lock:
            cls.running -= 1
        if fails:
            self.send_response(500)
            self.end_headers()
            return
        said = {"rambling": "I think it is quite good", "five": "5", "empty": ""}.get(
            answer, str(float(answer == reference))
        )
        reply = json.dumps(
            {
                "id": "x",
                "object": "chat.completion",
                "created": 0,
                "model": "m",
                "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}],
            }
        )
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(reply.encode())

    def log_message(self, *args):
        pass


@pytest.fixture
def url(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    Judge.failures, Judge.running, Judge.most, Judge.together = {}, 0, 0, None
    Judge.over.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    Judge.over.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def judge(url):
    return JudgeReward("m", url, concurrency=4, retries=1, timeout=600.0)


def ask(judge, answers, truth="red", kind="oe", **columns):
    completions = [f"<think>a</think><answer>{a}</answer>" for a in answers]
    count = len(answers)
    return asyncio.run(judge(completions, answer=[truth] * count, question_type=[kind] * count, **columns))


def test_scores(judge):
    assert ask(judge, ["red", "blue"]) == [1.0, 0.0]
    assert ask(judge, ["red"], kind="mcq") == [None]
    assert asyncio.run(judge(["no answer"], answer=["red"], question_type=["oe"])) == [0.0]


def test_on_failure_the_sample_is_unscored_and_counted(judge):
    logged = {}
    answers = ["red", "broken", "rambling", "five", "empty", "blue"]
    assert ask(judge, answers, log_metric=logged.__setitem__) == [1.0, None, None, None, None, 0.0]
    assert logged == {"judge/failure_rate": pytest.approx(4 / 6)}


def test_a_judge_that_takes_too_long_is_a_failure(url):
    assert ask(JudgeReward("m", url, retries=0, timeout=0.5), ["slow"]) == [None]


def test_a_passing_failure_is_retried(judge):
    Judge.failures = {"flaky": 1}
    assert ask(judge, ["flaky"], truth="flaky") == [1.0]


def test_concurrency_is_bounded(judge):
    Judge.together = threading.Barrier(4)  # fewer at a time would wait forever
    assert ask(judge, ["red"] * 12) == [1.0] * 12 and Judge.most == 4


def test_an_endpoint_that_is_not_there(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    assert ask(JudgeReward("m", "http://127.0.0.1:9/v1", retries=0), ["red"]) == [None]


def test_accuracy_leaves_open_ended_rows_to_the_judge():
    completions = ["<answer>B</answer>", "<answer>red</answer>"]
    assert accuracy_reward(completions, mode="judge", answer=["B", "red"], question_type=["mcq", "oe"]) == [1.0, None]


def test_a_tool_call_was_right_if_the_judge_says_so(judge):
    """Words in common are not enough, and none are needed; one round of requests serves both rewards."""
    completions = ["<answer>red</answer>", "<answer>reddish</answer>", "<answer>B</answer>", "<answer>red</answer>"]
    calls = [[{"status": "ok", "turn": 0}]] * 3 + [[]]
    columns = {
        "answer": ["red", "reddish or so", "B", "red"],
        "question_type": ["oe", "oe", "mcq", "oe"],
        "tool_calls": calls,
    }
    asked, score = [], judge._score
    judge._score = lambda *args: (asked.append(args), score(*args))[1]

    async def both():
        return await asyncio.gather(judge(completions, **columns), judge.tool_reward(completions, **columns))

    assert asyncio.run(both()) == [[1.0, 0.0, None, 1.0], [0.8, 0.3, 0.8, 0.0]]
    assert len(asked) == 4
    assert tool_reward(completions, **columns) == [0.8, 0.8, 0.8, 0.0]  # words in common
    asyncio.run(both())
    assert len(asked) == 8  # what was asked once is asked anew later


def test_trl_awaits_it():
    from trl.trainer.utils import get_callable_name, is_async_callable

    reward = JudgeReward("m")
    assert is_async_callable(reward) and get_callable_name(reward) == "judge_reward"
    assert is_async_callable(reward.tool_reward) and get_callable_name(reward.tool_reward) == "tool_reward"


@pytest.mark.slow
def test_training_with_a_judge(judge, toy_checkpoint, toy_rows, tmp_path):
    """Through the trainer: open-ended rows are judged, the others are not asked about."""
    from datasets import Dataset
    from transformers import AutoProcessor

    from paravt import ParaGRPOConfig, ParaGRPOTrainer
    from paravt.chat import prepare_processor
    from paravt.rewards import format_reward

    args = ParaGRPOConfig(
        str(tmp_path),
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=48,
        max_steps=1,
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        logging_steps=1,
        max_turns=1,
        max_turn_length=24,
        max_report_length=8,
        max_pixels=1024,
        frame_budgets=[4],
        save_strategy="no",
        tool_weight=0.5,
    )
    trainer = ParaGRPOTrainer(
        toy_checkpoint,
        [partial(accuracy_reward, mode="judge"), format_reward, judge, judge.tool_reward],
        args,
        train_dataset=Dataset.from_list(toy_rows),
        processing_class=prepare_processor(AutoProcessor.from_pretrained(toy_checkpoint), 1024),
    )
    assert trainer.reward_weights.tolist() == [1.0, 1.0, 1.0, 0.5]
    trainer.train()
    logs = trainer.state.log_history[0]
    assert "rewards/judge_reward/mean" in logs and "rewards/tool_reward/mean" in logs
    assert all(score is not None for score in trainer._accuracies)  # open-ended ones too: the judge's
