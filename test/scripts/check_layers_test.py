#!/usr/bin/env python3
"""Proves on made-up trees that each rule of scripts/check_layers goes red, and stays green."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
import tap  # noqa: E402

SCRIPT = os.path.join(HERE, "../../scripts/check_layers")

# path, text, what the breach must say
RED = [
    ("lib/coll/a.h", '#include "lib/net/lane.h"', "lib/coll may not include lib/net"),
    ("lib/net/a.cc", '#include "lib/coll/plan.h"', "lib/net may not include lib/coll"),
    ("lib/device/a.cc", '#include "lib/coll/plan.h"', "lib/device may not include lib/coll"),
    ("lib/base/a.cc", '#include "lib/coll/plan.h"', "lib/base may not include lib/coll"),
    ("lib/run/a.cc", '#include "lib/api.h"', "lib/run may not include lib"),
    ("lib/new/a.cc", '#include "lib/base/log.h"', "no place among the layers"),
    ("lib/run/a.cc", '#include "bench/size.h"', "neither bench nor test"),
    ("lib/run/a.cc", '#include "log.h"', 'begin with "lib/"'),
    ("include/hetccl/a.h", '#include "lib/base/log.h"', "public headers"),
    ("lib/run/a.cc", "#include <ucp/api/ucp.h>", "UCX only"),
    ("lib/run/a.cc", "#include <mpi.h>", "MPI only"),
    ("lib/run/a.cc", "#include <cuda_runtime.h>", "CUDA and HIP only"),
    ("lib/run/a.cc", "#include <hip/hip_runtime.h>", "CUDA and HIP only"),
    ("lib/net/a.cc", 'const char* v = getenv("A");', "getenv only"),
    ("lib/base/log.cc", 'auto v = std::getenv("A");', "getenv only"),
    ("lib/base/a.cc", "for (char** e = environ; *e; ++e) {}", "getenv only"),
    ("lib/run/a.cc", "ucp_worker_progress(w);", "UCX only"),
    ("lib/run/a.h", "ucs_status_t s;", "UCX only"),
    ("lib/api.cc", "MPI_Comm c;", "MPI only"),
    ("include/hetccl/hetccl.h", "void f(MPI_Comm c);", "MPI only"),
    ("lib/api.cc", "PMPI_Init(0, 0);", "MPI only"),
    ("lib/run/a.cc", "cudaMalloc(&p, 1);", "CUDA and HIP only"),
    ("lib/api.cc", "hipStream_t s;", "CUDA and HIP only"),
    ("lib/run/a.cc", 'printf("x");', "prints nothing"),
    ("lib/run/a.cc", 'else fprintf(stderr, "x");', "prints nothing"),
    ("lib/run/a.cc", 'std::cerr << "x";', "prints nothing"),
    ("lib/run/a.cc", "if (bad) abort();", "never ends"),
    ("lib/run/a.cc", "std::abort();", "never ends"),
    ("lib/run/a.cc", "::exit(1);", "never ends"),
    ("lib/run/a.cc", "return exit(1);", "never ends"),
    ("lib/base/log.cc", "std::terminate();", "never ends"),
    ("lib/run/a.cc", "throw 1;", "throws nothing"),
    ("lib/run/a.cc", "/* fine */ throw 1;", "throws nothing"),
    ("lib/run/a.cc", "x = '\"'; throw 1; y = '\"';", "throws nothing"),
    ("bench/long.cc", "int x;\n" * 601, "601 lines"),
    ("scripts/long", "#!/bin/sh\n" + "true\n" * 601, "602 lines"),
    ("test/long.py", "pass\n" * 601, "601 lines"),
]

GREEN = [
    ("lib/run/a.cc", '#include "lib/coll/plan.h"\n#include "lib/net/a.h"\n#include "lib/run/b.h"'),
    ("lib/api.cc", '#include "lib/run/a.h"\n#include "lib/api.h"\n#include "lib/device/device.h"'),
    ("lib/base/settings.cc", 'const char* v = getenv("A");'),
    ("lib/net/a.cc", "#include <ucp/api/ucp.h>\nucp_context_h c;"),
    ("lib/device/cuda.cu", "#include <cuda_runtime.h>\ncudaError_t e;"),
    ("lib/interop/a.cc", "#include <mpi.h>\nMPI_Comm c;"),
    ("include/hetccl/mpi.h", "#include <mpi.h>\nMPI_Comm c;"),
    ("bench/a.cc", 'MPI_Comm c; std::printf("x"); throw 1; std::abort(); getenv("A");'),
    ("lib/base/log.cc", 'std::fputs("x", stderr);'),
    ("lib/run/a.cc", "session->abort();\ncomm.exit(1);\nvoid abort();\nStatus Run::abort() {}"),
    ("lib/run/a.cc", "std::snprintf(t, 1, f); noexcept_throw(); int printf_count;"),
    ("lib/run/a.cc", "// throw MPI_Comm cudaMalloc(\n/* abort();\n printf(); */"),
    ("lib/api.cc", 'auto s = "MPI_Init \\" throw"; f(R"(abort(); throw)");'),
    ("lib/api.cc", "hetcclMemoryCuda; hetcclMemorySimHip; cursor; hippo; cut(x); 1'000'000;"),
    ("bench/long.cc", "int x;\n" * 600),
]


class CheckLayers(unittest.TestCase):
    def run_on(self, path, text):
        with tempfile.TemporaryDirectory() as root:
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full))
            with open(full, "w", encoding="ascii") as file:
                file.write(text + ("" if text.endswith("\n") else "\n"))
            return subprocess.run(
                [sys.executable, SCRIPT, root], capture_output=True, text=True, check=False
            )

    def test_red(self):
        for path, text, why in RED:
            with self.subTest(path=path, text=text[:60]):
                done = self.run_on(path, text)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertIn(why, done.stdout)
                self.assertTrue(done.stdout.startswith(path + ":"), done.stdout)

    def test_green(self):
        for path, text in GREEN:
            with self.subTest(path=path, text=text[:60]):
                done = self.run_on(path, text)
                self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_line_numbers_survive_comments(self):
        done = self.run_on("lib/run/a.cc", '/* a\n b */\nauto x = R"(\n\n)";\nthrow 1;')
        self.assertIn("lib/run/a.cc:6:", done.stdout)

    def test_an_empty_tree_is_no_success(self):
        with tempfile.TemporaryDirectory() as root:
            done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, check=False)
            self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    tap.main()
