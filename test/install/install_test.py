#!/usr/bin/env python3
"""The installed copy as users get it: pkg-config, headers, C and C++ programs under two MPIs.

usage: install_test.py BUILD_DIRECTORY
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
import mpi  # noqa: E402
import tap  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
README = os.path.join(HERE, "../../README.md")
C_FLAGS = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]
CXX_FLAGS = ["-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror", "-DOMPI_SKIP_MPICXX"]
# MPI's own headers are not ours to be strict with.
CXX_FLAGS += ["-DMPICH_SKIP_MPICXX", "-Wno-cast-function-type"]


def run(command, **options):
    return subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        timeout=200, **options
    )


class Installed:
    """Installed once, into a directory of its own."""

    def __init__(self):
        self.holder = tempfile.TemporaryDirectory()
        self.root = self.holder.name
        done = run(
            ["meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", self.root]
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self.files = {}
        for directory, _, names in os.walk(self.root):
            for name in names:
                self.files[name] = os.path.join(directory, name)
        self.library_path = os.path.dirname(self.files["libhetccl.so"])
        environment = dict(
            os.environ,
            PKG_CONFIG_PATH=os.path.dirname(self.files["hetccl.pc"]),
            PKG_CONFIG_SYSROOT_DIR=self.root,
        )
        done = run(["pkg-config", "--cflags", "--libs", "hetccl"], env=environment)
        assert done.returncode == 0, done.stderr
        self.flags = shlex.split(done.stdout)

    def build(self, compiler, flags, source):
        program = os.path.join(self.root, os.path.basename(source) + "." + compiler)
        done = run([compiler, *flags, source, "-o", program, *self.flags])
        assert done.returncode == 0, done.stderr
        return program


installed = Installed()


def under_open_mpi(program):
    return mpi.run(2, [program], env={"LD_LIBRARY_PATH": installed.library_path})


def under_mpich(program):
    environment = dict(os.environ, LD_LIBRARY_PATH=installed.library_path)
    return run(["mpiexec.mpich", "-n", "2", program], env=environment)


class Install(unittest.TestCase):
    def both_ranks_ok(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
        self.assertEqual(lines, ["rank 0 of 2 ok", "rank 1 of 2 ok"], done.stdout + done.stderr)

    def wrapper(self, *names):
        for name in names:
            if shutil.which(name):
                return name
        self.skipTest(f"{names[0]} is not installed")
        return None

    def test_headers_stand_alone(self):
        for compiler, flags, header in (
            ("gcc", C_FLAGS, "hetccl/hetccl.h"),
            ("g++", CXX_FLAGS, "hetccl/hetccl.h"),
            ("g++", CXX_FLAGS, "hetccl/hetccl.hpp"),
        ):
            with self.subTest(compiler=compiler, header=header):
                suffix = ".c" if compiler == "gcc" else ".cc"
                source = os.path.join(installed.root, "alone" + suffix)
                with open(source, "w", encoding="ascii") as file:
                    file.write(f"#include <{header}>\nint main(void) {{ return hetcclSuccess; }}\n")
                installed.build(compiler, flags, source)

    def test_library_needs_no_mpi_and_exports_its_names_only(self):
        library = installed.files["libhetccl.so"]
        needed = run(["readelf", "-d", library]).stdout
        self.assertIn("libucp", needed)
        self.assertIsNone(re.search(r"NEEDED.*(libmpi|libmpich|libcuda|amdhip)", needed), needed)
        symbols = run(["nm", "-D", "--defined-only", "-C", library]).stdout
        names = [line.split(None, 2)[1:] for line in symbols.splitlines()]
        self.assertIn(["T", "hetcclAllReduce"], names)
        others = [name for kind, name in names if not name.startswith("hetccl")]
        self.assertEqual(others, [])

    def test_c_under_open_mpi(self):
        compiler = self.wrapper("mpicc.openmpi")
        self.both_ranks_ok(
            under_open_mpi(installed.build(compiler, C_FLAGS, os.path.join(HERE, "program.c")))
        )

    def test_cxx_under_open_mpi(self):
        compiler = self.wrapper("mpicxx.openmpi")
        self.both_ranks_ok(
            under_open_mpi(installed.build(compiler, CXX_FLAGS, os.path.join(HERE, "program.cpp")))
        )

    def test_c_under_mpich(self):
        compiler = self.wrapper("mpicc.mpich")
        self.both_ranks_ok(
            under_mpich(installed.build(compiler, C_FLAGS, os.path.join(HERE, "program.c")))
        )

    def test_cxx_under_mpich(self):
        compiler = self.wrapper("mpicxx.mpich")
        self.both_ranks_ok(
            under_mpich(installed.build(compiler, CXX_FLAGS, os.path.join(HERE, "program.cpp")))
        )

    def test_readme_s_program(self):
        with open(README, encoding="utf-8") as file:
            program = re.search(r"^```c\n(.*?)^```$", file.read(), re.M | re.S).group(1)
        source = os.path.join(installed.root, "readme.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(program)
        compiler = self.wrapper("mpicc.openmpi", "mpicc")
        done = under_open_mpi(installed.build(compiler, C_FLAGS, source))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines(), ["2 4 6 8"] * 2)

    def device_answer(self, program, kind):
        environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
        done = run([program, str(kind)], env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        result, _, text = done.stdout.strip().partition(" ")
        return int(result), text

    def test_back_ends_are_found_beside_the_library(self):
        flags = C_FLAGS + [f"-Wl,-rpath,{installed.library_path}"]
        program = installed.build("gcc", flags, os.path.join(HERE, "device.c"))
        invalid_usage = 5
        for kind, title in ((1, "CUDA"), (2, "HIP")):
            with self.subTest(vendor=title):
                name = f"libhetccl_{title.lower()}.so"
                path = os.path.join(installed.library_path, name)
                result, text = self.device_answer(program, kind)
                if not os.path.exists(path):
                    self.assertEqual(result, invalid_usage)
                    self.assertIn(f"no {title} back end: this build has none", text)
                    continue
                if result != 0:  # loaded, and no device for it
                    self.assertEqual(result, invalid_usage, text)
                    self.assertRegex(text, f"no {title} back end: .*(driver|GPU)")
                os.rename(path, path + ".away")
                try:
                    result, text = self.device_answer(program, kind)
                finally:
                    os.rename(path + ".away", path)
                self.assertEqual(result, invalid_usage)
                self.assertIn(f"{name} is not in {installed.library_path}/; install it there", text)

    def test_tools_are_installed_and_start(self):
        environment = dict(os.environ, LD_LIBRARY_PATH=installed.library_path)
        for tool in ("hetccl_info", "hetccl_perf"):
            with self.subTest(tool=tool):
                done = run([installed.files[tool], "--help"], env=environment)
                self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    tap.main()
