"""The peers: which driver each one runs, and how its ranks are started."""
import dataclasses
import os
import re
import shutil
import subprocess

UCX = "--mca pml ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any"


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    driver: str
    about: str
    words: str = ""  # for Open MPI's mpirun
    arguments: str = ""  # for the driver
    role: str = "peer"  # or "hetccl", or "limit"


ALL = [
    Peer("ompi", "driver_ompi", "Open MPI as it comes"),
    Peer("ompi-ucx", "driver_ompi", "Open MPI over UCX", words=UCX),
    Peer("ompi-sm", "driver_ompi", "Open MPI with collectives in shared memory first",
         words="--mca coll_sm_priority 100"),
    Peer("ompi-nocma", "driver_ompi", "Open MPI without kernel-assisted copies",
         words="--mca btl_vader_single_copy_mechanism none"),
    Peer("ompi-yield", "driver_ompi", "Open MPI that yields while it waits",
         words="--mca mpi_yield_when_idle 1"),
    Peer("mpich", "driver_mpich", "MPICH as it comes"),
    Peer("gloo", "driver_gloo", "Gloo over TCP"),
    Peer("hetccl", "driver_hetccl", "hetccl on ordinary memory", role="hetccl"),
    Peer("hetccl-mem", "driver_hetccl", "hetccl on memory of hetcclMemAlloc",
         arguments="--memory host-lib", role="hetccl"),
    Peer("limit", "driver_limit", "each input read once, each output written once, one cache line "
         "exchanged", role="limit"),
]
BY_NAME = {peer.name: peer for peer in ALL}


def cores():
    return len(os.sched_getaffinity(0))


def find(names):
    return next((path for path in map(shutil.which, names) if path), None)


class Launcher:
    """Turns a peer and a number of ranks into a command."""

    def __init__(self, build):
        self.drivers = os.path.join(build, "bench", "compare")
        self.open_mpi = self._open_mpi()
        self.mpich = find(["mpiexec.mpich", "mpiexec.hydra"])

    @staticmethod
    def _open_mpi():
        program = find(["mpirun.openmpi", "mpirun"])
        if program is None:
            return None
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        return program if re.search("Open MPI|OpenRTE", done.stdout) else None

    def _path(self, driver):
        return os.path.join(self.drivers, driver)

    def _takes_mpich(self, peer):
        """Drivers that only need any MPI are built with Open MPI where there is one."""
        return peer.driver == "driver_mpich" or not os.path.exists(self._path("driver_ompi"))

    def lacks(self, peer):
        """Why the peer cannot be started, or ""."""
        if not os.path.exists(self._path(peer.driver)):
            return f"{peer.driver} was not built: its library was not found"
        if self._takes_mpich(peer):
            return "" if self.mpich else "MPICH's mpiexec is not installed"
        return "" if self.open_mpi else "Open MPI's mpirun is not installed"

    def command(self, peer, ranks, directory, most_bytes):
        fits = ranks <= cores()
        if self._takes_mpich(peer):
            words = [self.mpich, "-n", str(ranks), *(["-bind-to", "core"] if fits else [])]
        else:
            words = [self.open_mpi, "-n", str(ranks), "--bind-to", "core" if fits else "none"]
            words += [] if fits else ["--oversubscribe"]
            words += ["--allow-run-as-root"] if os.geteuid() == 0 else []
            words += peer.words.split()
        return [*words, self._path(peer.driver), "--directory", directory, "--most",
                str(most_bytes), *peer.arguments.split()]
