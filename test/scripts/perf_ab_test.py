#!/usr/bin/env python3
"""scripts/perf_ab with programs whose times a test makes up, and on commits of a made-up project."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
import tap  # noqa: E402

SCRIPT = os.path.join(HERE, "../../scripts/perf_ab")
CASE = "allreduce:8K:2"
# Takes -n RANKS off and runs the rest.
LAUNCHER = '#!/bin/sh\nshift 2\nexec "$@"\n'
# Tells the next of its times, over and over; {first} may refuse.
PROGRAM = """#!/bin/bash
{first}
times=({times})
echo "$@" >>"$0.calls"
calls=$(wc -l <"$0.calls")
time=${{times[(calls - 1) % ${{#times[@]}}]}}
echo '{{"results": [{{"wrong": {wrong}, "time_us": {{"median": '$time'}}}}]}}'
"""
# As bench/hetccl_perf of a project with nothing else in it.
MESON = """project('tiny')
subdir('bench')
"""
MESON_BENCH = """custom_target('hetccl_perf', input: 'perf.sh', output: 'hetccl_perf',
  command: ['cp', '@INPUT@', '@OUTPUT@'], build_by_default: false)
"""


class PerfAb(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = os.path.realpath(holder.name)
        self.scratch = os.path.join(self.root, "scratch")
        os.mkdir(self.scratch)
        self.environment = {**os.environ, "TMPDIR": self.scratch}
        for name in list(self.environment):
            if name.startswith("GIT_"):
                del self.environment[name]
        self.launcher = self.write("launcher", LAUNCHER)

    def write(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def program(self, name, times, wrong=0, first=""):
        return self.write(name, PROGRAM.format(times=times, wrong=wrong, first=first))

    def call(self, *arguments, script=SCRIPT):
        done = subprocess.run([sys.executable, script, "--mpirun", self.launcher, *arguments],
                              capture_output=True, text=True, check=False, env=self.environment)
        self.assertEqual(os.listdir(self.scratch), [], "left behind")
        return done

    def compare(self, old, new, *arguments, cases=(CASE,)):
        """The status, and the row of the first case."""
        done = self.call("--programs", old, new, *arguments, "--", *cases)
        rows = [line for line in done.stdout.splitlines() if line.startswith(cases[0])]
        self.assertEqual(len(rows), 1, done.stdout + done.stderr)
        return done.returncode, rows[0]

    def test_equal_programs(self):
        old, new = (self.program(name, "100 102 98") for name in "ab")
        status, row = self.compare(old, new)
        self.assertEqual(status, 0, row)
        self.assertRegex(row, r" 100\.00 +100\.00 +1\.000 +1\.000-1\.000 +7  same$")

    def test_a_loss_fails_and_is_measured_twice(self):
        status, row = self.compare(self.program("a", "100 101 99"), self.program("b", "110 112 109"))
        self.assertEqual(status, 1, row)
        self.assertRegex(row, r" 1\.1\d+ .* 14  LOSS$")

    def test_an_improvement_passes(self):
        status, row = self.compare(self.program("a", "100 101 99"), self.program("b", "50 51"))
        self.assertEqual(status, 0, row)
        self.assertTrue(row.endswith("  gain"), row)

    def test_the_tolerance_decides(self):
        old, new = self.program("a", "100"), self.program("b", "105")
        self.assertEqual(self.compare(old, new)[0], 1)
        self.assertEqual(self.compare(old, new, "--tolerance", "6")[0], 0)

    def test_noise_is_no_loss(self):
        new = self.program("b", "150 60 140 150 70 145 160")
        status, row = self.compare(self.program("a", "100"), new)
        self.assertEqual(status, 0, row)
        self.assertIn("  within the noise", row)

    def test_what_does_not_last_is_no_loss(self):
        new = self.program("b", " ".join(["120"] * 7 + ["100"] * 7))
        status, row = self.compare(self.program("a", "100"), new)
        self.assertEqual(status, 0, row)
        self.assertIn(" 14  within the noise", row)

    def test_a_machine_that_slows_down_is_no_loss(self):
        # Both get slower by as much; the order of the two alternates.
        slowing = " ".join(str(100 * 1.3**i) for i in range(7))
        status, row = self.compare(self.program("a", slowing), self.program("b", slowing))
        self.assertEqual((status, row[-6:]), (0, "  same"))

    def test_a_missing_case_fails_on_either_side(self):
        good = self.program("a", "100")
        refuse = '[[ $1 == alltoall ]] && { echo "hetccl_perf: no such thing" >&2; exit 2; }'
        lacking = self.program("b", "100", first=refuse)
        for old, new, side in ((good, lacking, "NEW"), (lacking, good, "OLD")):
            status, row = self.compare(old, new, cases=("alltoall:8:2", CASE))
            self.assertEqual(status, 1)
            self.assertIn(f"missing in {side}: status 2: hetccl_perf: no such thing", row)

    def test_wrong_values_and_no_end_are_missing_cases(self):
        good = self.program("a", "100")
        status, row = self.compare(good, self.program("b", "100", wrong=3))
        self.assertEqual((status, row[-30:].strip()), (1, "NEW: status 0, 3 wrong values"))
        stuck = self.program("b", "100", first="sleep 60")
        status, row = self.compare(good, stuck, "--timeout", "0.3")
        self.assertEqual(status, 1)
        self.assertIn("missing in NEW: no end within 0.3 s", row)
        status, row = self.compare(good, self.program("b", "oops"))
        self.assertEqual(status, 1)

    def test_arguments_reach_the_program(self):
        old, new = self.program("a", "100"), self.program("b", "100")
        self.compare(old, new, "--samples", "9", "--rounds", "8", cases=("reduce:4M:3:host-lib",))
        with open(new + ".calls", encoding="ascii") as file:
            calls = file.read().splitlines()
        expected = "reduce -b 4M -e 4M --memory host-lib --out-of-place -n 9 --format json"
        self.assertEqual(calls, [expected] * 8)

    def test_bad_arguments_are_named(self):
        good = self.program("a", "100")
        for arguments, expected in (
            (["--programs", good, good, "--", "allreduce"], "case 'allreduce'"),
            (["--programs", good, good, "--", "allreduce:8:0"], "case 'allreduce:8:0'"),
            (["--programs", good, "/absent"], "'/absent' is no program"),
            (["--programs", good, good, "--rounds", "3"], "at least 7"),
            (["--programs", good, good, "--tolerance", "-1"], "--tolerance -1"),
            (["no-such-commit", "HEAD"], "'no-such-commit' is no commit"),
        ):
            with self.subTest(arguments=arguments):
                done = self.call(*arguments)
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertIn(expected, done.stderr)
                self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(self.call("only-one").returncode, 2)

    def test_an_interrupt_ends_what_runs(self):
        pid_file = os.path.join(self.root, "pid")
        program = self.program("a", "100", first=f"echo $$ >'{pid_file}.new'\n"
                               f"mv '{pid_file}.new' '{pid_file}'\nexec sleep 300")
        command = [sys.executable, SCRIPT, "--mpirun", self.launcher, "--programs", program,
                   program, "--", CASE]
        with subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL) as process:
            self.addCleanup(process.kill)
            wait_for(lambda: os.path.exists(pid_file))
            with open(pid_file, encoding="ascii") as file:
                pid = int(file.read())
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(60), 128 + signal.SIGTERM)
        wait_for(lambda: not os.path.exists(f"/proc/{pid}"))
        self.assertEqual(os.listdir(self.scratch), [])

    # --- commits

    def git(self, *arguments):
        who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
        done = subprocess.run(["git", "-C", os.path.join(self.root, "tree"), *who, *arguments],
                              capture_output=True, text=True, check=False, env=self.environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def project(self):
        """A tree with three commits, of times 100 and 200 and one that cannot be built."""
        os.mkdir(os.path.join(self.root, "tree"))
        self.git("init", "-q")
        script = self.write("tree/scripts/perf_ab", "")
        shutil.copy(SCRIPT, script)
        self.write("tree/meson.build", MESON)
        self.write("tree/bench/meson.build", MESON_BENCH)
        for name, text in (("fast", PROGRAM.format(first="", times="100", wrong=0)),
                           ("slow", PROGRAM.format(first="", times="200", wrong=0))):
            self.write("tree/bench/perf.sh", text)
            self.git("add", "-A")
            self.git("commit", "-q", "-m", name)
            self.git("tag", name)
        self.write("tree/bench/meson.build", "nonsense(\n")
        self.git("commit", "-q", "-a", "-m", "broken")
        return script

    @unittest.skipUnless(shutil.which("git"), "git is not installed")
    def test_commits_are_built_and_compared(self):
        script = self.project()
        before = self.git("status", "--porcelain")
        for old, new, status, verdict in (("fast", "slow", 1, "LOSS"), ("slow", "fast", 0, "gain")):
            done = self.call(old, new, "--", CASE, script=script)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            self.assertRegex(done.stdout, rf"(?m)^{re.escape(CASE)} .*  {verdict}$")
        self.assertEqual(self.git("worktree", "list").count("\n"), 0)
        self.assertEqual(self.git("status", "--porcelain"), before)

        broken = self.call("slow", "HEAD", "--", CASE, script=script)
        self.assertEqual(broken.returncode, 2, broken.stdout)
        self.assertIn("cannot be built", broken.stderr)
        self.assertEqual(self.git("worktree", "list").count("\n"), 0)

        self.write("tree/bench/perf.sh", "changed")
        unsaved = self.call("fast", "HEAD", "--", CASE, script=script)
        self.assertEqual(unsaved.returncode, 2)
        self.assertIn("commit them first", unsaved.stderr)
        self.assertIn("bench/perf.sh", unsaved.stderr)


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("waited in vain")
        time.sleep(0.02)


if __name__ == "__main__":
    tap.main()
