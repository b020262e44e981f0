"""MPI programs with and without the interposer: hetccl-run PROGRAMS PART."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import mpi  # noqa: E402
import tap  # noqa: E402

RUN, PROGRAMS, PART = sys.argv[1:4]
MISSING = "not built: no Fortran compiler, or no Fortran binding of Open MPI"


def program(name):
    return os.path.join(PROGRAMS, "interop_" + name)


def start(ranks, name, arguments=(), env=None, node_size=0, plain=False):
    """Every rank of a node of `node_size` ranks believes to be on it."""
    command = [program(name), *arguments]
    settings = {"OMPI_MCA_mpi_yield_when_idle": "1"}
    if not plain:
        command = [RUN, *command]
        settings |= {"HETCCL_MPI": "all", "HETCCL_MPI_REPORT": "1", **(env or {})}
    if node_size:
        script = f'HETCCL_NODE=n$((OMPI_COMM_WORLD_RANK / {node_size})) exec "$@"'
        command = ["sh", "-c", script, "sh", *command]
    return mpi.run(ranks, command, env=settings, timeout=280)


def taken(report):
    """By name of the collective: calls, and those that hetccl took."""
    found = {}
    for line in report.splitlines():
        words = line.split()
        if len(words) > 3 and words[0].endswith(":") and words[2] == "calls,":
            found[words[0][:-1]] = (int(words[1]), int(words[3]))
    return found


class Base(unittest.TestCase):
    def passes(self, done, name):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"{name}: ok", done.stdout)
        return taken(done.stderr)


class Forms(Base):
    """Each collective in all forms and with odd types gives what plain MPI gives."""

    def forms(self, ranks, arguments, **how):
        with tempfile.TemporaryDirectory() as folder:
            done = start(ranks, "forms", [*arguments, folder], **how)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            written = {}
            for name in os.listdir(folder):
                with open(os.path.join(folder, name), encoding="ascii") as file:
                    written[name] = file.read().splitlines()
        return written, taken(done.stderr)

    def compare(self, ranks, form="blocking", env=None, node_size=0):
        plain, _ = self.forms(ranks, [form], plain=True)
        ours, calls = self.forms(ranks, [form], env=env, node_size=node_size)
        self.assertEqual(len(plain), ranks)
        self.assertGreater(len(plain["0"]), 1000)
        self.assertEqual(ours, plain)
        return calls

    def test_blocking(self):
        calls = self.compare(3)
        self.assertEqual(len(calls), 16)
        for name, (_, ours) in calls.items():
            self.assertGreater(ours, 0, name)

    def test_non_blocking(self):
        for name, (_, ours) in self.compare(3, "non-blocking").items():
            self.assertGreater(ours, 0, name)

    def test_between_nodes(self):
        self.assertGreater(self.compare(4, node_size=2)["Alltoallv"][1], 0)

    def test_auto(self):
        self.compare(2, env={"HETCCL_MPI": "auto"})


class Cases(Base):
    def test_legal(self):
        calls = self.passes(start(6, "legal"), "legal")
        self.assertEqual(calls["Scatter"], (20, 20))
        self.assertEqual(calls["Allgather"][1], 0)  # of a type without data

    def test_legal_between_nodes(self):
        self.passes(start(6, "legal", node_size=2), "legal")

    def test_requests(self):
        calls = self.passes(start(5, "requests"), "requests")
        self.assertGreater(calls["Allreduce"][1], 100)
        self.assertEqual(calls["Alltoall"], (1, 0))  # on an inter-communicator

    def test_errors(self):
        self.passes(start(3, "errors"), "errors")

    def test_requests_in_plain_mpi(self):
        self.passes(start(5, "requests", plain=True), "requests")

    def test_requests_between_nodes(self):
        self.passes(start(4, "requests", node_size=2), "requests")

    def fortran(self, name):
        if not os.path.exists(program(name)):
            self.skipTest(MISSING)
        calls = self.passes(start(3, name), "fortran")
        self.assertEqual(calls["Allreduce"], (8, 8))

    def test_fortran_mpif_h(self):
        self.fortran("mpif_h")

    def test_fortran_use_mpi(self):
        self.fortran("use_mpi")

    def test_fortran_use_mpi_f08(self):
        self.fortran("use_mpi_f08")

    def test_memory_of_devices(self):
        # MPI could not read it: auto takes all where a rank has a device.
        env = {"HETCCL_MPI": "auto", "HETCCL_SIM": "devices=2"}
        calls = self.passes(start(4, "device", env=env), "device")
        self.assertEqual(calls["Allreduce"], (2, 2))


class Ways(Base):
    """Of choosing what is taken."""

    def test_off(self):
        calls = self.passes(start(3, "legal", env={"HETCCL_MPI": "off"}), "legal")
        self.assertEqual({ours for _, ours in calls.values()}, {0})

    def test_off_on_another_rank_is_not_heard(self):
        script = '[ "$OMPI_COMM_WORLD_RANK" = 1 ] && export HETCCL_MPI=off; exec "$@"'
        command = ["sh", "-c", script, "sh", RUN, program("legal")]
        env = {"HETCCL_MPI": "all", "HETCCL_MPI_REPORT": "1"}
        calls = self.passes(mpi.run(3, command, env=env), "legal")
        self.assertEqual(calls["Scatter"], (20, 20))

    def test_info(self):
        calls = self.passes(start(2, "info", env={"HETCCL_MPI": "auto"}), "info")
        self.assertEqual(calls["Allreduce"], (3, 1))

    def test_bad_setting(self):
        done = start(3, "legal", env={"HETCCL_MPI": "some"})
        self.passes(done, "legal")
        self.assertIn('HETCCL_MPI="some" is not allowed', done.stderr)
        self.assertIn("the MPI library keeps its collectives", done.stderr)

    def test_no_report_unless_asked(self):
        done = start(2, "info", env={"HETCCL_MPI_REPORT": "0"})
        self.passes(done, "info")
        self.assertNotIn("collectives of rank", done.stderr)

    def test_linked_instead_of_preloaded(self):
        env = {"HETCCL_MPI": "all", "HETCCL_MPI_REPORT": "1"}
        calls = self.passes(mpi.run(3, [program("linked")], env=env), "legal")
        self.assertEqual(calls["Scatter"], (20, 20))

    def test_run_without_a_program(self):
        done = mpi.subprocess.run([RUN], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("usage:", done.stderr)

    def test_run_keeps_status_arguments_and_preloads(self):
        with tempfile.TemporaryDirectory() as folder:
            env = dict(os.environ, LD_PRELOAD="")
            script = 'echo "$LD_PRELOAD|$1"; exit 7'
            done = mpi.subprocess.run([RUN, "sh", "-c", script, "sh", "a b"], capture_output=True,
                                      text=True, check=False, env=env, cwd=folder)
        self.assertEqual(done.returncode, 7)
        self.assertRegex(done.stdout, r"libhetccl_mpi\.so\|a b\n$")


for other in {"Forms", "Cases", "Ways"} - {PART}:
    del globals()[other]
if __name__ == "__main__":
    tap.main()
