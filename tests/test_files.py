import codecs
import gzip
import json
import os

import pyarrow as pa
import pyarrow.parquet
import pytest

from paravt.data.files import read_rows


def row(text):
    return {"prompt": text, "videos": ["v.mp4"]}


def prompts(name, split="train"):
    return [source.value["prompt"] for source in read_rows(str(name), split)]


def write(path, *rows, encoding="utf-8", ends="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.Table.from_pylist(list(rows)), path)
    else:
        text = ends.join(json.dumps(r, ensure_ascii=False) for r in rows)
        path.write_bytes(text.encode(encoding))
    return path


class TestJson:
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
    def test_byte_order_marks_pass(self, tmp_path, encoding):
        assert prompts(write(tmp_path / "a.jsonl", row("ä"), row("日"), encoding=encoding)) == ["ä", "日"]

    def test_joined_files_have_marks_in_the_middle(self, tmp_path):
        lines = [json.dumps(row(text)).encode() + b"\n" for text in ("a", "b", "\ufeffc")]
        bom = codecs.BOM_UTF8
        for parts in ([lines[0], bom + lines[1]], [bom + lines[0], bom + lines[1], bom * 2 + lines[2]]):
            (tmp_path / "a.jsonl").write_bytes(b"".join(parts))
            assert prompts(tmp_path / "a.jsonl") == ["a", "b", "\ufeffc"][: len(parts)]
        wide = [line.decode().encode("utf-16") for line in lines[:2]]
        (tmp_path / "a.jsonl").write_bytes(b"".join(wide))
        assert prompts(tmp_path / "a.jsonl") == ["a", "b"]

    @pytest.mark.parametrize("name", ["a.JSONL", "a.ndjson", "a.Json", "a.jsonl.gz", "a.ndjson.GZ", "a.json.gz"])
    def test_endings(self, tmp_path, name):
        text = "\n".join(json.dumps(row(text)) for text in "ab").encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.lower().endswith("gz") else text)
        assert prompts(tmp_path / name) == prompts(tmp_path) == ["a", "b"]

    def test_lines_end_at_newlines_only(self, tmp_path):
        texts = ["a\u2028b", "a\u2029b", "a\u0085b", "a\x0bb", "a\x0cb", "a\x1cb"]
        lines = "\r\n".join(json.dumps(row(text), ensure_ascii=False).replace("\\u000b", "\x0b") for text in texts[:3])
        (tmp_path / "a.jsonl").write_text(lines + "\n\n", encoding="utf-8", newline="")
        assert prompts(tmp_path / "a.jsonl") == texts[:3]

    def test_malformed_lines_are_faults_with_their_place(self, tmp_path):
        path = tmp_path / "a.jsonl"
        good = json.dumps(row("a")).encode()
        path.write_bytes(b"\n".join([good, good[:14], b"", b"\xff" + good, b"[" * 100_000, b"null", good]))
        found = list(read_rows(str(path)))
        assert [source.fault for source in found] == [
            None,
            "not valid JSON",
            "not UTF-8",
            "not valid JSON",
            None,
            None,
        ]
        assert [source.place for source in found[:3]] == [f"{path} line {n}" for n in (1, 2, 4)]

    @pytest.mark.parametrize(
        "document",
        [
            [row("a"), row("b")],
            {"data": [row("a"), row("b")]},
            {"version": 1, "licenses": ["x"], "data": [row("a"), row("b")]},
            {"train": [row("a"), row("b")], "test": [row("c")]},
            {"questions": [row("a"), row("b")]},
        ],
    )
    @pytest.mark.parametrize("indent", [None, 2])
    def test_documents(self, tmp_path, document, indent):
        for name in ("a.json", "a.jsonl"):
            (tmp_path / name).write_text(json.dumps(document, indent=indent))
            assert prompts(tmp_path / name) == ["a", "b"]

    @pytest.mark.parametrize(
        "document, split, found",
        [
            ({"train": [row("a")], "eval": [row("b")]}, "eval", "b"),
            ({"train": [row("a")], "eval": [row("b")]}, "evaluation", "b"),
            ({"train": [row("a")], "eval": [row("b")]}, "TRAIN", "a"),
            ({"data": [row("a")], "test": [row("b")]}, "train", "a"),
            ({"Hard": [row("a")], "easy": [row("b")]}, "hard", "a"),
            ({"data": [row("a")]}, "test", "a"),
        ],
    )
    def test_splits_of_documents(self, tmp_path, document, split, found):
        (tmp_path / "a.json").write_text(json.dumps(document))
        assert prompts(tmp_path / "a.json", split) == [found]

    @pytest.mark.parametrize(
        "document, split, said",
        [
            ({"train": [row("a")], "eval": [row("b")]}, "test", "has no split 'test'; it has eval, train"),
            ({"eval": [row("b")]}, "train", "has no split 'train'; it has eval"),
            ({"train": [], "val": []}, "test", "has no split 'test'; it has train, validation"),
            ({"data": [row("a")], "val": [row("b")]}, "test", "has no split 'test'; it has data, validation"),
            ({"hard": [row("a")], "easy": [row("b")]}, "test", "has no split 'test'; it has easy, hard"),
            ({"hard": [row("a")], "easy": [row("b")]}, "train", "has several lists of rows, hard, easy: name one"),
        ],
    )
    def test_a_split_that_a_document_has_not_is_named(self, tmp_path, document, split, said):
        (tmp_path / "a.json").write_text(json.dumps(document))
        with pytest.raises(ValueError, match=f"a.json {said}"):
            prompts(tmp_path / "a.json", split)

    def test_an_indented_object_is_a_row(self, tmp_path):
        (tmp_path / "a.json").write_text(json.dumps(row("a"), indent=2))
        assert prompts(tmp_path / "a.json") == ["a"]

    def test_an_array_of_anything(self, tmp_path):
        (tmp_path / "a.json").write_text(json.dumps([row("a"), "x", None]))
        found = list(read_rows(str(tmp_path / "a.json")))
        assert [type(source.value) for source in found] == [dict, str, type(None)]
        assert found[1].place == f"{tmp_path}/a.json row 2"

    def test_what_cannot_be_read_at_all_is_named(self, tmp_path):
        (tmp_path / "cut.json").write_text(json.dumps([row("a"), row("b")], indent=1)[:-5])
        (tmp_path / "odd.parquet").write_text("no parquet")
        (tmp_path / "odd.jsonl").write_bytes(b"\xff\xfe\x00")
        for name in ("cut.json", "odd.parquet", "odd.jsonl"):
            with pytest.raises(ValueError, match=name):
                list(read_rows(str(tmp_path / name)))
        (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(json.dumps(row("a")).encode())[:-12])
        (tmp_path / "plain.jsonl.gz").write_text(json.dumps(row("a")))
        (tmp_path / "rows.csv").write_text("prompt,videos")
        for name in ("cut.jsonl.gz", "plain.jsonl.gz", "rows.csv"):
            with pytest.raises(ValueError, match=name):
                list(read_rows(str(tmp_path / name)))
        for name in ("gone.jsonl", "gone.JSONL", "gone.ndjson", "gone.jsonl.gz", "gone.parquet"):
            with pytest.raises(ValueError, match=f"no file .*{name}"):
                list(read_rows(str(tmp_path / name)))
        with pytest.raises(ValueError, match="gone' is no file, no folder, and no data set of the hub"):
            list(read_rows(str(tmp_path / "gone")))


class TestFolders:
    @pytest.mark.parametrize(
        "train, test",
        [
            ("train.jsonl", "test.jsonl"),
            ("train-00000-of-00002.parquet", "test-00000-of-00001.parquet"),
            ("data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"),
            ("train/a.jsonl", "test/a.jsonl"),
            ("a_train.json", "a_test.json"),
            ("training.jsonl", "testing.jsonl"),
            ("TRAIN.jsonl", "TEST.jsonl"),
            ("a.jsonl", "test.jsonl"),
            ("hard.jsonl", "test.jsonl"),
            ("train.ndjson", "TEST.JSONL"),
        ],
    )
    def test_splits(self, tmp_path, train, test):
        write(tmp_path / train, row("a"))
        write(tmp_path / test, row("b"))
        assert prompts(tmp_path, "train") == ["a"] and prompts(tmp_path, "test") == ["b"]

    @pytest.mark.parametrize("name", ["val.jsonl", "valid.jsonl", "validation/a.jsonl", "dev.jsonl"])
    def test_names_of_the_validation_split(self, tmp_path, name):
        write(tmp_path / "train.jsonl", row("a"))
        write(tmp_path / name, row("b"))
        assert prompts(tmp_path, "validation") == prompts(tmp_path, "val") == ["b"]

    def test_parts_of_a_split_and_names_of_ones_own(self, tmp_path):
        for i in range(2):
            write(tmp_path / f"train-0000{i}-of-00002.parquet", row(f"a{i}"))
        write(tmp_path / "hard.jsonl", row("c"))
        assert prompts(tmp_path) == ["a0", "a1"] and prompts(tmp_path, "hard") == ["c"]

    def test_without_splits_all_files_are_read(self, tmp_path):
        write(tmp_path / "a.jsonl", row("a"))
        write(tmp_path / "deep/b.parquet", row("b"))
        write(tmp_path / "trained_on_this.jsonl", row("c"))
        (tmp_path / "dataset_infos.json").write_text("{}")
        assert sorted(prompts(tmp_path)) == ["a", "b", "c"]

    def test_a_split_that_is_not_there_is_named(self, tmp_path):
        write(tmp_path / "test.jsonl", row("a"))
        with pytest.raises(ValueError, match="no split 'train'; it has test"):
            prompts(tmp_path)
        write(tmp_path / "eval.jsonl", row("a"))
        write(tmp_path / "hard.jsonl", row("a"))
        with pytest.raises(ValueError, match="no split 'validation'; it has eval, hard.jsonl, test"):
            prompts(tmp_path, "validation")
        os.remove(tmp_path / "eval.jsonl")
        os.remove(tmp_path / "hard.jsonl")
        os.remove(tmp_path / "test.jsonl")
        with pytest.raises(ValueError, match="no file that ends with .parquet, .jsonl"):
            prompts(tmp_path)

    def test_what_datasets_saved(self, tmp_path):
        from datasets import Dataset, DatasetDict

        parts = {name: Dataset.from_list([row(text)]) for name, text in (("train", "a"), ("eval", "b"), ("Hard", "c"))}
        DatasetDict(parts).save_to_disk(str(tmp_path / "dict"))
        assert [prompts(tmp_path / "dict", split) for split in ("train", "eval", "hard")] == [["a"], ["b"], ["c"]]
        with pytest.raises(ValueError, match="dict' has no split 'test'; it has eval, hard, train"):
            prompts(tmp_path / "dict", "test")
        parts["train"].save_to_disk(str(tmp_path / "one"))
        assert prompts(tmp_path / "one") == ["a"]
        os.remove(tmp_path / "one" / "state.json")
        with pytest.raises(ValueError, match="one' has no readable data set"):
            prompts(tmp_path / "one")
