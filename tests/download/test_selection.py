"""Which files are downloaded, judged by repositories as they are."""

import pytest

from penstock.download.errors import DownloadError
from penstock.download.listing import RemoteFile, is_safe
from penstock.download.selection import select, shards


def chosen(*paths, file=None):
    files = [RemoteFile(path=path, size=1, sha256=None, git_sha1="x") for path in paths]
    return [one.path for one in select(files, file=file, where="acme/tiny at revision main")]


NEEDED = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]


@pytest.mark.parametrize(
    ("kept", "left_out"),
    [
        (["model.safetensors"], ["pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", "rust_model.ot"]),
        (["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"], []),
        (["model.safetensors"], ["onnx/model.onnx", "onnx/config.json", "model.onnx", "model.onnx_data"]),
        (["model.safetensors"], ["original/consolidated.00.pth", "original/params.json"]),
        (["model.safetensors"], ["model-q4.gguf", "model-q8.gguf"]),
        (["model.safetensors"], [".gitattributes", "README.md", "USE_POLICY.md", "images/logo.png", "paper.pdf"]),
        (["model.safetensors"], [".penstock.json", "model.safetensors.incomplete"]),
        (["model.safetensors"], ["training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state_0.pth"]),
        (["pytorch_model.bin"], ["training_args.bin", "tf_model.h5"]),
        (["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"], []),
        (["consolidated.00.pth", "params.json"], []),
        (["model.safetensors", "tokenizer.model", "merges.txt", "vocab.txt", "chat_template.jinja"], []),
        (["model.safetensors", "modeling_acme.py", "qwen.tiktoken", "LICENSE"], []),
        (["model.safetensors", "1_Pooling/config.json", "2_Dense/model.safetensors"], ["2_Dense/pytorch_model.bin"]),
    ],
    ids=lambda value: value[0] if value else "nothing",
)
def test_a_whole_model_is_what_the_engine_reads(kept, left_out):
    assert chosen(*kept, *left_out, *NEEDED) == sorted([*kept, *NEEDED])


def test_one_file_is_that_file_whatever_it_is():
    assert chosen("README.md", "a.bin", "a.safetensors", file="a.bin") == ["a.bin"]


def test_a_part_of_a_split_gguf_brings_all_parts():
    parts = [f"q8/big-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    assert chosen(*parts, "q4/big-00001-of-00001.gguf", file=parts[0]) == parts
    assert shards(parts[1]) == parts


def test_a_missing_part_of_a_split_gguf_is_named():
    with pytest.raises(DownloadError, match=r"has no file big-00002-of-00002\.gguf; it has big-00001-of-00002\.gguf"):
        chosen("big-00001-of-00002.gguf", file="big-00001-of-00002.gguf")


def test_many_similar_files_are_named_in_part():
    with pytest.raises(DownloadError, match=r"it has q1\.gguf, q2\.gguf, q3\.gguf, q4\.gguf, q5\.gguf and 3 more$"):
        chosen(*(f"q{number}.gguf" for number in range(1, 9)), file="none.gguf")


def test_a_repository_without_weights_is_refused():
    with pytest.raises(DownloadError, match=r"has no weights in safetensors or PyTorch format$") as raised:
        chosen("config.json", "tf_model.h5")
    assert raised.value.permanent


@pytest.mark.parametrize("path", ["a.bin", "a/b.bin", "a/..b", "..."])
def test_paths_inside_are_safe(path):
    assert is_safe(path)


@pytest.mark.parametrize("path", ["", "/a", "..", "a/../../b", "../a", "a\\..\\b", "a\0b"])
def test_paths_that_could_lead_outside_are_not(path):
    assert not is_safe(path)
