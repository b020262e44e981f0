#!/usr/bin/env python3
"""hetccl_info, and that README.md's table of algorithms is what it lists.

usage: info_test.py HETCCL_INFO
"""
import json
import os
import re
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
import tap  # noqa: E402

INFO = os.path.abspath(sys.argv[1])
README = os.path.join(HERE, "../../README.md")
PAGE = os.path.join(HERE, "../../doc/collectives.md")


def info(*arguments):
    return subprocess.run(
        [INFO, *arguments], capture_output=True, text=True, timeout=100, check=False
    )


def algorithms():
    """Collective to its algorithms, in order."""
    listed = {}
    for line in info("--algorithms").stdout.splitlines():
        collective, name, text = line.split(None, 2)
        assert text
        listed.setdefault(collective, []).append(name)
    return listed


class Info(unittest.TestCase):
    def test_library(self):
        done = info()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^version: \d+\.\d+\.\d+$")
        self.assertRegex(done.stdout, r"(?m)^fabric: .*\d+\.\d+\.\d+")

    def test_every_setting_is_explained(self):
        settings = json.loads(info("--settings", "--json").stdout)
        names = [row["name"] for row in settings]
        self.assertIn("HETCCL_ALGO", names)
        self.assertEqual(len(names), len(set(names)))
        text = info("--settings").stdout
        for row in settings:
            self.assertRegex(row["name"], r"^HETCCL_[A-Z0-9_]+$")
            self.assertTrue(row["type"] and row["range"] and row["help"], row)
            self.assertIn("default", row)
            self.assertIn(row["help"], text)

    def test_plans_are_proved(self):
        done = info("--verify-plans", "6")
        self.assertEqual(done.returncode, 0, done.stdout)
        count = sum(len(names) for names in algorithms().values())
        last = done.stdout.splitlines()[-1]
        self.assertEqual(last, f"{count} algorithms verified for 1 to 6 ranks")

    def test_types_have_operators(self):
        lines = info("--types").stdout.splitlines()
        self.assertGreater(len(lines), 20)
        float32 = next(line for line in lines if line.startswith("float32 "))
        self.assertRegex(float32, r"4 bytes:.* sum\b")

    def test_bad_arguments_fail(self):
        for arguments in (["--nonsense"], ["--verify-plans", "0"], ["--verify-plans", "x"]):
            self.assertNotEqual(info(*arguments).returncode, 0, arguments)

    def test_readme_lists_the_algorithms(self):
        with open(README, encoding="utf-8") as file:
            rows = re.findall(r"^\| `hetccl(\w+)` \| (.+?) \|$", file.read(), re.M)
        documented = {name.lower(): re.findall(r"`(\w+)`", names) for name, names in rows}
        self.assertEqual(documented, algorithms())

    def test_page_of_collectives_is_of_these_plans(self):
        done = info("--collectives")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(PAGE, encoding="utf-8") as file:
            self.assertEqual(file.read(), done.stdout,
                             "make it anew: hetccl_info --collectives > doc/collectives.md")


if __name__ == "__main__":
    tap.main()
