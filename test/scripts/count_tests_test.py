#!/usr/bin/env python3
"""scripts/count_tests on result files of every kind."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
import tap  # noqa: E402

SCRIPT = os.path.join(HERE, "../../scripts/count_tests")


def counted(xml):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "results.xml")
        if xml is not None:
            with open(path, "w", encoding="ascii") as file:
                file.write(f"<testsuites>{xml}</testsuites>")
        done = subprocess.run(
            [sys.executable, SCRIPT, path], capture_output=True, text=True, check=False
        )
    return done.returncode, done.stdout.splitlines()


PASS = '<testcase name="p" classname="s"/>'
FAIL = '<testcase name="f" classname="s"><failure message="1 != 2"/></testcase>'
SKIP = '<testcase name="k" classname="s"><skipped message="no root"/></testcase>'
SKIP_BY_STATUS = (
    '<testsuite name="whole"><testcase name="w"><skipped/><system-out>x\nneeds root\n'
    "</system-out></testcase></testsuite>"
)


class CountTests(unittest.TestCase):
    def test_all_pass(self):
        both = counted(f"<testsuite name='a'>{PASS}{PASS}</testsuite>")
        self.assertEqual(both, (0, ["2 passed, 0 failed"]))

    def test_skips_are_counted_with_their_reason(self):
        status, lines = counted(f"<testsuite name='a'>{PASS}{SKIP}</testsuite>{SKIP_BY_STATUS}")
        self.assertEqual(status, 0)
        self.assertEqual(lines[-1], "1 passed, 0 failed, 2 skipped")
        self.assertIn("no root", lines[0])
        self.assertIn("needs root", lines[1])

    def test_a_failure_is_named_and_fails(self):
        status, lines = counted(f"<testsuite name='a'>{PASS}{FAIL}</testsuite>")
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed"))
        self.assertIn("1 != 2", lines[0])

    def test_what_a_script_raised_is_the_reason(self):
        output = "1..1\n# Traceback\n# AssertionError: 3 left\n# more\n#\nnot ok 1 - A.b\n# end"
        failed = "<testcase name='1 - A.b'><failure/></testcase>"
        printed = f"<system-out>{output}</system-out>"
        _, lines = counted(f"<testsuite name='t'>{failed}{printed}</testsuite>")
        self.assertEqual(lines[0], "failed: t / 1 - A.b: AssertionError: 3 left")

    def test_nothing_ran(self):
        self.assertEqual(counted(None), (1, ["0 passed, 0 failed"]))
        self.assertEqual(counted("")[0], 1)
        self.assertEqual(counted(f"<testsuite name='a'>{SKIP}</testsuite>")[0], 1)

    def test_a_crash_without_cases_fails(self):
        output = "<system-out>Segmentation fault</system-out>"
        crashed = f"<testsuite name='a' errors='1'>{output}</testsuite>"
        status, lines = counted(f"<testsuite name='b'>{PASS}</testsuite>{crashed}")
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed"))
        self.assertIn("Segmentation", lines[0])


if __name__ == "__main__":
    tap.main()
