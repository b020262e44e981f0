#!/usr/bin/env python3
"""scripts/gpu_toolchain with compilers that a test makes up."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
import tap  # noqa: E402

SCRIPT = os.path.join(HERE, "../../scripts/gpu_toolchain")

# Builds for those of `builds`, and counts how often it was called.
COMPILER = """#!/bin/bash
echo "$@" >>'{calls}'
case "$*" in
  *--version*) echo 'Made-up compiler, release 7.5, V7.5.1'; exit 0 ;;
  *--dryrun*) echo '#$ INCLUDES="-I{root}/include"  ' >&2
              echo '#$ LIBRARIES=  "-L{root}/stubs" "-L{root}/lib64"' >&2; exit 0 ;;
esac
for arch in {builds}; do [[ " $* " == *"=$arch "* ]] && exit 0; done
echo 'warning: first line' >&2
echo 'error: unknown target' >&2
exit 1
"""


class GpuToolchain(unittest.TestCase):
    def setUp(self):
        self.holder = tempfile.TemporaryDirectory()
        self.addCleanup(self.holder.cleanup)
        self.root = os.path.realpath(self.holder.name)
        for folder in ("include", "lib64", "stubs"):
            os.mkdir(os.path.join(self.root, folder))
        self.calls = os.path.join(self.root, "calls")

    def compiler(self, builds, name="compiler"):
        path = os.path.join(self.root, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(COMPILER.format(calls=self.calls, root=self.root, builds=builds))
        os.chmod(path, 0o755)
        return path

    def ask(self, *arguments):
        done = subprocess.run(
            [sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return dict(line.split("=", 1) for line in done.stdout.splitlines())

    def cache(self):
        return os.path.join(self.root, "cache")

    def number_of_calls(self):
        with open(self.calls, encoding="ascii") as file:
            return len(file.readlines())

    def test_what_compiles_is_taken_and_the_rest_named(self):
        answer = self.ask("cuda", "auto", self.cache(), self.compiler("sm_80 sm_100"))
        self.assertEqual(answer["archs"], "80 100")
        self.assertEqual(answer["refused"], "90 120")
        self.assertEqual(answer["version"], "7.5")
        self.assertEqual(answer["includes"], os.path.join(self.root, "include"))
        self.assertEqual(answer["libs"], os.path.join(self.root, "lib64"))
        self.assertEqual(answer["why"], "")

    def test_a_list_must_compile_as_a_whole(self):
        compiler = self.compiler("gfx90a gfx942")
        good = self.ask("hip", "gfx942,gfx90a", self.cache(), compiler)
        self.assertEqual(good["archs"], "gfx942 gfx90a")
        bad = self.ask("hip", "gfx90a,gfx7", self.cache(), compiler)
        self.assertEqual(bad["archs"], "")
        self.assertEqual(bad["why"], "gfx7: error: unknown target")

    def test_nothing_compiles(self):
        answer = self.ask("hip", "auto", self.cache(), self.compiler("none"))
        self.assertEqual(answer["archs"], "")
        self.assertIn("gfx90a: error: unknown target", answer["why"])
        absent = self.ask("hip", "auto", self.cache(), os.path.join(self.root, "absent"))
        self.assertEqual(absent["archs"], "")
        self.assertIn("No such file", absent["why"])

    def test_an_answer_is_kept_until_the_question_changes(self):
        compiler = self.compiler("gfx90a")
        first = self.ask("hip", "auto", self.cache(), compiler)
        calls = self.number_of_calls()
        self.assertEqual(self.ask("hip", "auto", self.cache(), compiler), first)
        self.assertEqual(self.number_of_calls(), calls)
        self.ask("hip", "gfx90a", self.cache(), compiler)
        self.assertGreater(self.number_of_calls(), calls)
        calls = self.number_of_calls()
        os.utime(compiler, (1, 1))
        self.ask("hip", "gfx90a", self.cache(), compiler)
        self.assertGreater(self.number_of_calls(), calls)

    def test_usage(self):
        done = subprocess.run(
            [sys.executable, SCRIPT, "opencl", "auto", self.cache(), "cc"],
            capture_output=True, text=True, check=False,
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("usage:", done.stderr)


if __name__ == "__main__":
    tap.main()
