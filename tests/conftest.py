import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import others
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from paravt import toy


torch.set_num_threads(2)

RANKS = Path(__file__).parent / "ranks.py"
CONVERSATION = [  # about a clip, with a call
    {
        "role": "user",
        "content": [{"type": "video_url", "video_url": {"url": "cfr.mp4"}}, {"type": "text", "text": "What?"}],
    },
    {"role": "assistant", "content": "<think>\nlook\n</think>\n<tool_call>\n{}\n</tool_call>"},
    {"role": "tool", "content": "Error: no name"},
    {"role": "assistant", "content": "<think>\nbars\n</think>\n<answer>bars</answer>"},
]


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="make and read all files of the video matrix, not a sample")


def barcode(number, width=192, height=96):
    """A picture that tells its own number: 12 bars of 16 pixels, least significant bit first."""
    picture = np.zeros((height, width, 3), np.uint8)
    for bit in range(12):
        if number >> bit & 1:
            picture[:, bit * 16 : (bit + 1) * 16] = 255
    return picture


def read_barcode(image):
    grey = np.asarray(image.convert("L").resize((192, 96)))
    return sum(1 << bit for bit in range(12) if grey[20:70, bit * 16 + 4 : bit * 16 + 12].mean() > 127)


def write_clip(path, count=300, fps=30, gop=30, times=None):
    """`count` barcode frames at `times`, or at a constant rate."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt = 192, 96, "yuv420p"
        stream.codec_context.gop_size = gop
        stream.codec_context.time_base = Fraction(1, 3000)
        for i in range(count):
            frame = av.VideoFrame.from_ndarray(barcode(i), format="rgb24")
            frame.time_base, frame.pts = Fraction(1, 3000), round((times[i] if times else i / fps) * 3000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return str(path)


def ffmpeg(*arguments):
    import imageio_ffmpeg

    subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", *map(str, arguments)], check=True)


@dataclass(frozen=True)
class Ranks:
    """What became of ranks: an exit status, and what each of them printed."""

    code: int
    stdout: list[str]
    stderr: list[str]

    def __str__(self):
        return "\n".join(f"--- rank {i}\n{text[-3000:]}" for i, text in enumerate(self.stderr))


def two_ranks(folder, script, *arguments, **environment) -> Ranks:
    """
    Runs a script as two ranks, at a free port. Each writes into files of its own in `folder`: two that write into one
    stream write in the middle of each other's lines.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command += ["--redirects", "3", "--log_dir", folder, script, *arguments]
    settings = {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=os.environ | settings)
    told = [[path.read_text() for path in sorted(Path(folder).rglob(f"{end}.log"))] for end in ("stdout", "stderr")]
    assert len(told[0]) == 2, done.stderr[-3000:]
    return Ranks(done.returncode, *told)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="session")
def clips(tmp_path_factory):
    """A folder with `cfr.mp4`, 300 frames in 10 s, and its variants."""
    folder = tmp_path_factory.mktemp("clips")
    cfr = write_clip(folder / "cfr.mp4")
    write_clip(folder / "longgop.mp4", gop=300)
    write_clip(folder / "vfr.mp4", 155, times=[i / 30 for i in range(150)] + [5.0 + i for i in range(5)])
    for count in (1, 2, 3, 5, 31):
        write_clip(folder / f"n{count}.mp4", count)
    ffmpeg("-ss", "7.7", "-i", folder / "longgop.mp4", "-c", "copy", folder / "editlist.mp4")
    ffmpeg("-i", cfr, "-c", "copy", folder / "start5.ts")
    ffmpeg("-i", cfr, "-c", "copy", "-output_ts_offset", "5", folder / "start5.mkv")
    ffmpeg("-i", cfr, "-c", "copy", "-output_ts_offset", "5", folder / "start5.mp4")
    ffmpeg("-i", cfr, "-c", "copy", "-movflags", "faststart", folder / "faststart.mp4")
    ffmpeg("-i", cfr, "-c:v", "libx264", "-bf", "3", "-g", "250", folder / "bframes.mp4")
    ffmpeg("-i", cfr, "-c:v", "libvpx-vp9", "-b:v", "200k", "-deadline", "realtime", folder / "vp9.webm")
    ffmpeg("-i", cfr, "-c:v", "libvpx", "-f", "webm", "-live", "1", folder / "live.webm")
    ffmpeg("-display_rotation", "90", "-i", cfr, "-c", "copy", folder / "rotated.mp4")
    ffmpeg("-i", cfr, "-c:v", "copy", "-bsf:v", "h264_mp4toannexb", folder / "raw.h264")
    ffmpeg("-f", "lavfi", "-i", "sine=d=3", folder / "audio.mp4")
    ffmpeg("-f", "lavfi", "-i", "testsrc=s=2048x8:d=1", folder / "thin.mp4")
    data = (folder / "faststart.mp4").read_bytes()
    (folder / "truncated.mp4").write_bytes((folder / "cfr.mp4").read_bytes()[: len(data) * 6 // 10])
    middle = len(data) * 6 // 10
    noise = np.random.default_rng(0).integers(0, 256, 3000, np.uint8).tobytes()
    (folder / "damaged.mp4").write_bytes(data[:middle] + noise + data[middle + 3000 :])
    (folder / "page.mp4").write_text("<html>404</html>")
    (folder / "empty.mp4").write_bytes(b"")
    return folder


@pytest.fixture(scope="session")
def row_file(clips, tmp_path_factory):
    """Somebody else's mp4 files in ParaVT's parquet shape."""
    rows = []
    for i in range(40):
        kind, answer = [("mcq", "B"), ("tvg", "1.0 - 3.0"), ("oe", "bars")][i % 3]
        rows.append(
            {
                "prompt": [{"role": "user", "content": f"<video>\nQuestion {i}?\nA. dots\nB. bars"}],
                "videos": [{"video": ["cfr.mp4", "vfr.mp4", "bframes.mp4"][i % 3]}],
                "extra_info": {"answer": answer, "question_type": kind},
            }
        )
    rows.append({**rows[0], "videos": [{"video": "missing.mp4"}]})
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


@pytest.fixture(scope="session")
def toy_rows(tmp_path_factory):
    return toy.make_rows(str(tmp_path_factory.mktemp("toy")), 24, seed=0)


@pytest.fixture(scope="session")
def toy_processor(toy_rows):
    return toy.make_processor(toy.corpus(toy.supervised_rows(toy_rows)))


@pytest.fixture(scope="session")
def toy_checkpoint(tmp_path_factory, toy_processor):
    """An untrained tiny Qwen3-VL on disk."""
    folder = str(tmp_path_factory.mktemp("checkpoint"))
    toy.make_model(toy_processor).save_pretrained(folder)
    toy_processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def text_checkpoint(tmp_path_factory, toy_processor):
    """A tiny model of text alone on disk."""
    folder = str(tmp_path_factory.mktemp("text"))
    model, tokenizer = others.text_model(toy_processor.tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
