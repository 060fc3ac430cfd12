"""
Checkpoints and the adapters on them: which is which, where to go on, merged, quantised.

    python -m paravt.engines.checkpoints ADAPTER [FOLDER]

writes the model that an adapter names as its base, with the adapter merged, to `ADAPTER/merged` or to `FOLDER`.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from glob import escape, glob

from accelerate import PartialState
from huggingface_hub import snapshot_download
from transformers import BitsAndBytesConfig
from trl import ModelConfig, get_quantization_config

from ..settings import RolloutSettings


def resolve_model(model: str, adapter: str | None = None) -> tuple[str, str | None]:
    """The folder or hub id of the base model, and that of the adapter, where `model` may be an adapter itself."""
    config = os.path.join(model, "adapter_config.json")
    if adapter is None and os.path.exists(config):
        with open(config) as file:
            return json.load(file)["base_model_name_or_path"], model
    return model, adapter


def quantization_config(model_config: ModelConfig) -> BitsAndBytesConfig | None:
    """
    TRL's [`~trl.get_quantization_config`], but the vision tower keeps its precision: it is small, and all later layers
    work with its errors.
    """
    config = get_quantization_config(model_config)
    if config is not None:
        config.llm_int8_skip_modules = ["model.visual", "lm_head"]
    return config


# -------------------------------------------------------------------------------------------------------------- resume


def find_checkpoint(asked: str | bool | None, output_dir: str, report: Callable[[str], None] = print) -> str | None:
    """
    The checkpoint that `--resume_from_checkpoint` asks for: a folder, or with `true` the newest whole one in
    `output_dir`; `None` to start afresh, with a word to `report` if that is because there is none.

    Raises:
        `ValueError`: if the folder asked for by name is no whole checkpoint.
    """
    word = str(asked).strip().lower()
    if word in ("none", "false", "no", ""):
        return None
    if word not in ("true", "yes", "latest", "last"):
        if not _is_whole(str(asked)):
            raise ValueError(f"{asked!r} is no whole checkpoint; `true` takes the newest one in {output_dir!r}")
        return str(asked)
    folders = [f for f in glob(os.path.join(escape(output_dir), "checkpoint-*")) if f.rpartition("-")[2].isdecimal()]
    for folder in sorted(folders, key=lambda folder: int(folder.rpartition("-")[2]), reverse=True):
        if _is_whole(folder):
            return folder
        report(f"{folder} is half written: it is passed over")
    report(f"{output_dir} has no checkpoint to go on from: training starts afresh")
    return None


def _is_whole(folder: str) -> bool:
    """Whether a checkpoint was written to its end: the trainer's state comes last, and no file in it is cut."""
    try:
        with open(os.path.join(folder, "trainer_state.json"), encoding="utf-8") as file:
            json.load(file)
    except (OSError, ValueError):
        return False
    return not any(map(_is_cut, filter(os.path.isfile, glob(os.path.join(escape(folder), "**"), recursive=True))))


def _is_cut(path: str) -> bool:
    """Whether a file of weights or of state is shorter than it says."""
    from safetensors import SafetensorError, safe_open

    if path.endswith(".safetensors"):
        try:
            with safe_open(path, framework="pt"):
                return False
        except (OSError, SafetensorError):
            return True
    if not path.endswith((".pt", ".pth", ".bin", ".distcp")):
        return False
    with open(path, "rb") as file:
        head = file.read(2)
    return not head or (head == b"PK" and not zipfile.is_zipfile(path))  # torch saves zip files; older ones are none


# --------------------------------------------------------------------------------------------------------------- merge

MERGED_FROM = "merged_from.json"


def merge(base: str, adapter: str, folder: str | None = None) -> str:
    """
    Writes the model with its adapter merged, for what takes whole checkpoints, and returns the folder: `merged` in the
    adapter's if not given. What is there already is used again if it was made of the same base and the same adapter,
    and a merge that was cut off is done again.

    Raises:
        `ValueError`: if `folder` holds something else.
    """
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText, AutoProcessor

    ours = folder is None
    folder = folder or os.path.join(adapter, "merged")
    if is_merged(base, adapter, folder):
        return folder
    marker = os.path.join(folder, MERGED_FROM)
    if not ours and not os.path.exists(marker) and os.path.isdir(folder) and os.listdir(folder):
        raise ValueError(f"{folder!r} is neither empty nor a merged model")
    policy = AutoModelForImageTextToText.from_pretrained(base, dtype="auto")
    policy = PeftModel.from_pretrained(policy, adapter).merge_and_unload()
    _empty(folder, marker)
    policy.save_pretrained(folder)
    AutoProcessor.from_pretrained(base).save_pretrained(folder)
    settings = RolloutSettings.load(adapter)
    if settings is not None:
        settings.save(folder)
    with open(marker, "w", encoding="utf-8") as file:  # last: it says that all is written
        json.dump(_origin(base, adapter), file)
    return folder


def _empty(folder: str, marker: str) -> None:
    """Empties a folder but for the marker, which is written first, empty: it tells half a merge from other folders."""
    os.makedirs(folder, exist_ok=True)
    open(marker, "w").close()
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        elif entry.path != marker:
            os.remove(entry.path)


def is_merged(base: str, adapter: str, folder: str) -> bool:
    """Whether a folder has the whole model that [`merge`] would write there."""
    try:
        with open(os.path.join(folder, MERGED_FROM), encoding="utf-8") as file:
            return json.load(file) == _origin(base, adapter)
    except (OSError, ValueError):
        return False


def _origin(base: str, adapter: str) -> dict[str, str]:
    return {"base": base_fingerprint(base), "adapter": adapter_fingerprint(adapter)}


def adapter_fingerprint(adapter: str) -> str:
    """A hash of an adapter's files, which a new training under the same path changes."""
    if not os.path.isdir(adapter):
        adapter = snapshot_download(adapter)
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(filter(os.path.isfile, glob(os.path.join(escape(adapter), "adapter_*")))):
        with open(path, "rb") as file:
            digest.update(os.path.basename(path).encode() + hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()


def base_fingerprint(base: str) -> str:
    """What tells versions of a base model apart: names, sizes and dates of its files, or its commit on the hub."""
    if not os.path.isdir(base):
        from transformers import AutoConfig

        return f"{base}@{AutoConfig.from_pretrained(base)._commit_hash}"
    digest = hashlib.blake2b(os.path.abspath(base).encode(), digest_size=16)
    for path in sorted(filter(os.path.isfile, glob(os.path.join(escape(base), "*")))):
        stat = os.stat(path)
        digest.update(f"{os.path.basename(path)}/{stat.st_size}/{stat.st_mtime_ns}".encode())
    return digest.hexdigest()


def weights_fingerprint(base: str, adapter: str | None = None) -> str:
    """
    What tells the weights of a policy from others under the same path: a piece of each tensor of the base model, or
    its commit on the hub, and the files of the adapter. A copy of the same weights has the same one.
    """
    files = sorted(glob(os.path.join(escape(base), "*.safetensors"))) if os.path.isdir(base) else []
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        digest.update(_tensor_pieces(path))
    if not files:
        digest.update(base_fingerprint(base).encode())
    if adapter is not None:
        digest.update(adapter_fingerprint(adapter).encode())
    return digest.hexdigest()


def _tensor_pieces(path: str) -> bytes:
    """A hash of the header of a safetensors file, and of up to 4 KiB from the middle of each tensor."""
    digest = hashlib.blake2b()
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = file.read(size)
        digest.update(header)
        for name, tensor in sorted(json.loads(header).items()):
            if name != "__metadata__":
                start, end = tensor["data_offsets"]
                file.seek(8 + size + max(start, (start + end) // 2 - 2048))
                digest.update(file.read(min(end - start, 4096)))
    return digest.digest()


def trainable(model: str, revision: str = "main") -> str:
    """
    The checkpoint to train from: `model`, or, where that is an adapter, its base model with the adapter merged. A new
    adapter can then be trained on it, and the reference model is what training began with. Another `revision` of it is
    taken from the hub to a folder.

    Raises:
        `RuntimeError`: If the adapter cannot be merged.
        `ValueError`: If a folder is asked for by its revision.
    """
    if revision != "main":
        if os.path.isdir(model):
            raise ValueError(f"`model_revision` {revision!r} is one of the hub, but {model!r} is a folder")
        with PartialState().main_process_first():
            model = snapshot_download(model, revision=revision)
    base, adapter = resolve_model(model)
    if adapter is None:
        return model
    folder = os.path.join(adapter, "merged")
    with PartialState().main_process_first():
        if not is_merged(base, adapter, folder):
            # In a process of its own: in one that trains with ZeRO-3 all that is loaded is sharded over the ranks.
            done = subprocess.run([sys.executable, "-m", "paravt.engines.checkpoints", adapter])
            if done.returncode:
                raise RuntimeError(
                    f"the adapter {adapter!r} could not be merged with {base!r}, the base model that its "
                    "adapter_config.json names; the cause is above"
                )
    return folder


def main(arguments: list[str]) -> None:
    adapter = arguments[0] if len(arguments) in (1, 2) else ""
    base, found = resolve_model(adapter)
    if found is None:
        raise SystemExit(f"{adapter!r} is no folder of an adapter\n{__doc__}")
    print(merge(base, adapter, *arguments[1:]))


if __name__ == "__main__":
    main(sys.argv[1:])
