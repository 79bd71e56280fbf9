"""The line that says why a program ended, from logs as engines really end them; and how long texts are shortened."""

import pytest

from penstock.status.words import LONGEST_QUOTE, cause_of, quote

LLAMA = """\
0.00.005.085 I srv    load_model: loading model '/models/none.gguf'
0.00.005.546 E gguf_init_from_file: failed to open GGUF file '/models/none.gguf' (No such file or directory)
0.00.005.690 E llama_model_load: error loading model: llama_model_loader: failed to load model from /models/none.gguf
0.00.005.709 E llama_model_load_from_file_impl: failed to load model
0.00.005.771 E cmn  common_init_: failed to load model '/models/none.gguf'
0.00.005.772 E srv    load_model: failed to load model, '/models/none.gguf'
0.00.005.775 I srv    operator(): operator(): cleaning up before exit...
0.00.006.197 E srv  llama_server: exiting due to model loading error
"""
VLLM = """\
(EngineCore_DP0 pid=77) ERROR 11-29 12:00:00 [core.py:790] Traceback (most recent call last):
(EngineCore_DP0 pid=77) ERROR 11-29 12:00:00 [core.py:790]     self.model_runner.load_model()
(EngineCore_DP0 pid=77) ERROR 11-29 12:00:00 [core.py:790] ValueError: Free memory on device (1.2/24.0 GiB) is too low
(APIServer pid=1) Traceback (most recent call last):
(APIServer pid=1)   File "/usr/bin/vllm", line 8, in <module>
(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""

LOGS = [
    pytest.param(
        LLAMA,
        "gguf_init_from_file: failed to open GGUF file '/models/none.gguf' (No such file or directory)",
        id="llama.cpp: the first failure, not its echoes",
    ),
    pytest.param(
        VLLM, "ValueError: Free memory on device (1.2/24.0 GiB) is too low", id="vLLM: the root cause, not what follows"
    ),
    pytest.param("error: invalid argument: --x\n", "error: invalid argument: --x", id="one line"),
    pytest.param("loading\nready\n", "ready", id="no error: the last line"),
    pytest.param("srv: exiting due to model loading error", "srv: exiting due to model loading error", id="echo alone"),
    pytest.param("error: one\nrecovered\n\n", "error: one", id="the last error, not the last line"),
    pytest.param(" \n\n", "", id="nothing"),
]


@pytest.mark.parametrize(("log", "cause"), LOGS)
def test_the_line_that_says_why(log, cause):
    assert cause_of(log) == cause


@pytest.mark.parametrize("log", [LLAMA, VLLM], ids=["llama.cpp", "vLLM"])
def test_the_next_crash_says_the_same_though_time_has_passed(log):
    later = log.replace("0.00.005.", "0.01.217.").replace("12:00:00", "12:07:31").replace("pid=77", "pid=81")
    assert later != log
    assert cause_of(later) == cause_of(log)


def test_a_short_text_is_told_whole_on_one_line():
    assert quote("a\n  b\tc") == "a b c"


def test_a_long_text_keeps_both_ends():
    words = quote("beginning " + "x" * 5000 + " end")
    assert words.startswith("beginning")
    assert words.endswith(" end")
    assert " … " in words
    assert len(words) <= LONGEST_QUOTE
