#!/usr/bin/env python3
"""scripts/gpu_check without a GPU: all its parts on the simulated device, and its verdicts.

usage: gpu_check_test.py BUILD_DIRECTORY
"""
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
import tap  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
SCRIPT = os.path.join(HERE, "../../scripts/gpu_check")
PACK = os.path.join(HERE, "../../scripts/gpu_pack")
loader = importlib.machinery.SourceFileLoader("gpu_check", SCRIPT)
gpu_check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
loader.exec_module(gpu_check)


def check(*arguments, env=None):
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, timeout=550,
                          env=dict(os.environ, **(env or {})), check=False)  # fmt: skip


class GpuCheck(unittest.TestCase):
    def test_all_parts_on_the_simulated_device(self):
        with tempfile.TemporaryDirectory() as folder:
            output = os.path.join(folder, "table")
            done = check("--sim", "--no-build", "--build", BUILD, "--output", output)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(output, encoding="utf-8") as file:
                self.assertEqual(file.read(), done.stdout)
        lines = done.stdout.splitlines()
        self.assertIn("simulated device", lines[0])
        self.assertEqual(lines[-1], "all ok")
        self.assertGreater(len(lines), 14)

    def test_a_pack_is_enough(self):
        if not shutil.which("orterun"):
            self.skipTest("only Open MPI 4 can be packed")
        with tempfile.TemporaryDirectory() as folder:
            packed = subprocess.run([PACK, BUILD, folder], capture_output=True, text=True,
                                    timeout=300, check=False)  # fmt: skip
            self.assertEqual(packed.returncode, 0, packed.stdout + packed.stderr)
            done = check("--sim", "--no-build", "--build", folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("those of the pack", done.stdout)
        self.assertIn(folder, done.stdout)

    def test_failures_are_counted(self):
        with tempfile.TemporaryDirectory() as folder:
            done = check("--sim", "--no-build", "--build", folder)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"FAILED .* is not built")
        self.assertRegex(done.stdout.splitlines()[-1], r"^\d+ FAILED$")

    def test_lost_device_fails(self):
        done = check("--sim", "--no-build", "--build", BUILD, env={"HETCCL_SIM": "fail_combine=1"})
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^2 ranks +FAILED")

    def test_missing_tools_are_named(self):
        # The interpreter alone: nothing to build with.
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, SCRIPT, "--sim", "--build", folder],
                                  capture_output=True, text=True, timeout=60, check=False,
                                  env={"PATH": folder})  # fmt: skip
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"tools +FAILED.*missing: .*meson.*ninja")

    def test_a_part_that_hangs_is_stopped(self):
        done = gpu_check.run(["sh", "-c", "echo begun; sleep 100"], 1, {})
        self.assertIsNone(done.status)
        self.assertEqual(done.text, "begun\n")
        self.assertLess(done.seconds, 50)

    def test_no_gpu_has_a_status_of_its_own(self):
        for kind in ("cuda", "hip"):
            if gpu_check.count_devices(kind)[0] > 0:
                self.skipTest("this machine has a GPU")
        done = check()
        self.assertEqual(done.returncode, 77, done.stdout)
        self.assertIn("no GPU found", done.stdout)


if __name__ == "__main__":
    tap.main()
