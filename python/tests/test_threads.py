"""Sessions and the rest of the process: threads, signals, forks, memory."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import models
import numpy as np
import pytest

import fuseline


def test_one_session_serves_many_threads():
    session = fuseline.InferenceSession(models.mlp(), threads=2)
    feeds = [np.full((n, 16), 0.1 * n, np.float32) for n in range(1, 9)]
    expected = [session.run(None, {"x": x})[0].copy() for x in feeds]

    def work(start):
        for k in range(50):
            n = (start + k) % len(feeds)
            [y] = session.run(None, {"x": feeds[n]})
            assert (y == expected[n]).all()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_threads_that_come_first_at_once():
    session = fuseline.InferenceSession(models.reshape_by_value(), threads=1)

    def work(k):
        shape = [[3, 4], [4, 3], [2, 6], [6, 2], [12], [1, 12]][k % 6]
        x = np.arange(12, dtype=np.float32)
        [y] = session.run(None, {"x": x, "shape": shape})
        np.testing.assert_allclose(y, x.reshape(shape).sum(-1))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(60)))


def test_the_interpreter_is_free_during_a_run():
    session = fuseline.InferenceSession("gallery:softmax", threads=1)
    x = np.zeros((4096, 4096), np.float32)
    session.run(None, {"x": x})
    running, counts = True, [0]

    def count():
        while running:
            counts[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    during = 0
    # Others use the processor too: during one run the thread may have had no turn.
    for _ in range(20):
        before = counts[0]
        session.run(None, {"x": x})
        during = max(during, counts[0] - before)
        if during > 10:
            break
    running = False
    thread.join()
    assert during > 10


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not tell how much memory is used")
def test_runs_leave_no_memory_behind():
    session = fuseline.InferenceSession(models.mlp(), threads=1)
    x = np.ones((2000, 16), np.float32)

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for _ in range(100):
        session.run(None, {"x": x})
    before = resident()
    for _ in range(1000):
        session.run(None, {"x": x})
        session.run_dlpack(None, {"x": x})[0].__dlpack__()
    assert resident() - before < 10 << 20, "each result has 40 kB"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_is_told_to_open_a_session_of_its_own():
    script = """
        import os, warnings, fuseline
        warnings.simplefilter("ignore")
        session = fuseline.InferenceSession("gallery:softmax", threads=2)
        session.run(None, {"x": [[1.0, 2.0]]})
        if os.fork() == 0:
            try:
                session.run(None, {"x": [[1.0, 2.0]]})
            except fuseline.InvalidInput as error:
                print(error)
                fuseline.InferenceSession("gallery:softmax", threads=2).run(None, {"x": [[1.0, 2.0]]})
                del session  # its threads are not here to be waited for
                os._exit(7)
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
    """
    done = subprocess.run([sys.executable, "-uc", textwrap.dedent(script)], capture_output=True, text=True, timeout=120)
    assert "open one after the fork" in done.stdout and done.stdout.rstrip().endswith("7"), done
    assert "panicked" not in done.stderr, done


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_an_interrupt_ends_the_loop_and_not_the_session():
    script = """
        import fuseline, numpy, signal
        # Whoever runs in the background ignores interrupts, and so do their children.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        session = fuseline.InferenceSession("gallery:softmax", threads=2)
        x = numpy.zeros((512, 512), numpy.float32)
        session.run(None, {"x": x})
        print("ready", flush=True)
        try:
            while True:
                session.run(None, {"x": x})
        except KeyboardInterrupt:
            print(session.run(None, {"x": x})[0].shape)
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
    with child:
        try:
            assert child.stdout.readline() == "ready\n"
            time.sleep(0.2)
            child.send_signal(signal.SIGINT)
            assert child.communicate(timeout=60)[0] == "(512, 512)\n"
        finally:
            child.kill()
    assert child.returncode == 0
