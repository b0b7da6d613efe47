"""What happens around the interpreter: the published quick start, Ctrl-C, fork, exit, other threads."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from conftest import ENGINE, GREEDY, MODEL, MUL, wait_until_idle

from zipage import EngineError, SamplingParams


def run_script(text, *, cwd=None, **environment):
    script = f"MODEL, ENGINE, MUL = {MODEL!r}, {ENGINE!r}, {MUL!r}\n" + textwrap.dedent(text)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=900, cwd=cwd,
                          env={**os.environ, **environment})


def test_published_quick_start_runs_unchanged(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "qwen3_8b").symlink_to(MODEL)
    # The script imports transformers and does not use it.
    (tmp_path / "transformers.py").write_text("AutoTokenizer = None\n")
    shutil.copy(Path(__file__).with_name("quick_start.py"), tmp_path)
    done = subprocess.run([sys.executable, "quick_start.py"], capture_output=True, text=True, timeout=1800, cwd=tmp_path,
                          env={**os.environ, "ZIPAGE_CONFIGURE_LOGGING": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "Processed prompts" in done.stderr
    assert "Traceback" not in done.stderr and "nanobind" not in done.stderr and "Warning" not in done.stderr


def test_engine_that_outlives_its_script_ends_with_it():
    done = run_script("""
        import zipage, sys
        llm = zipage.ZipLLM(MODEL, **ENGINE)
        llm.generate(MUL, use_tqdm=False)
        sys.modules["keep"] = llm
        assert "torch" not in sys.modules and "numpy" not in sys.modules
        raise SystemExit(7)
    """)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def test_log_lines_reach_stderr():
    done = run_script("import zipage; zipage.ZipLLM(MODEL, **ENGINE)", ZIPAGE_CONFIGURE_LOGGING="1")
    assert done.returncode == 0 and "INFO" in done.stderr and "model: reasoner-16m" in done.stderr


def test_interrupt_aborts_and_returns_control(llm):
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    # raise_signal in a thread is handled by the main one
    prompts = [MUL.replace("12", str(n)) for n in range(10, 20)]
    params = SamplingParams(temperature=0, max_tokens=3500, ignore_eos=True)
    start = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        llm.generate(prompts, params, use_tqdm=False)
    assert time.monotonic() - start < 30
    wait_until_idle(llm)
    assert len(llm.generate(MUL, GREEDY, use_tqdm=False)[0]["token_ids"]) == 12


def test_other_threads_run_while_the_engine_does(llm):
    ticks = []
    done = threading.Event()

    def tick():
        while not done.wait(0.005):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.monotonic()
    llm.generate([MUL] * 4, SamplingParams(temperature=0, max_tokens=150, ignore_eos=True), use_tqdm=False)
    seconds = time.monotonic() - start
    done.set()
    thread.join()
    # Had generate() kept the GIL, there would be about none.
    assert len(ticks) > seconds * 5


def test_two_threads_share_an_engine(llm):
    texts = {}

    def work(n):
        texts[n] = [o["text"] for o in llm.generate([MUL.replace("12", str(n))] * 2, GREEDY, use_tqdm=False)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(20, 24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, pair in texts.items():
        assert pair == [llm.generate(MUL.replace("12", str(n)), GREEDY, use_tqdm=False)[0]["text"]] * 2


def test_forked_child_gets_a_clear_error_and_harms_nobody(llm):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            llm.generate(MUL, GREEDY, use_tqdm=False)
            os.write(write, b"no error")
        except (EngineError, RuntimeError) as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        message = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert str(os.getpid()) in message and "spawn" in message
    assert len(llm.generate(MUL, GREEDY, use_tqdm=False)[0]["token_ids"]) == 12


def test_forked_child_may_exit_in_the_usual_way():
    done = run_script("""
        import gc, os, sys, zipage
        llm = zipage.ZipLLM(MODEL, **ENGINE)
        child = os.fork()
        if child == 0:
            del llm
            gc.collect()
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(len(llm.generate(MUL, use_tqdm=False)[0]["token_ids"]))
    """)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["3", "16"], "")
