"""A Slurm cluster of two nodes on this machine: its daemons, keys, folders and settings belong to one test."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlflow_server import free_port

PROGRAMS = ("mungekey", "munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo", "squeue")
SEARCHED = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin"))
CONF = """\
ClusterName=test
SlurmctldHost={host}
SlurmctldPort={control}
AuthType=auth/munge
AuthInfo=socket={folder}/munge
SlurmUser={user}
SlurmdUser={user}
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
SelectType=select/cons_tres
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=1
KillWait=30
NodeName=n1 NodeHostname={host} Port={n1} CPUs=1 RealMemory=4000
NodeName=n2 NodeHostname={host} Port={n2} CPUs=1 RealMemory=4000
PartitionName=low Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=high Nodes=n1,n2 MaxTime=INFINITE State=UP PriorityTier=10
"""


def missing() -> list[str]:
    """The programs of Slurm and munge that are not installed."""
    return [program for program in PROGRAMS if shutil.which(program, path=SEARCHED) is None]


@contextmanager
def cluster() -> Iterator[dict[str, str]]:
    """Start the cluster; yields the variables with which Slurm's commands find it. Jobs in `high` preempt others."""
    folder = Path(tempfile.mkdtemp(prefix="slurm", dir="/tmp"))  # sockets: short
    (folder / "state").mkdir()
    ports = {name: free_port() for name in ("control", "n1", "n2")}
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(folder=folder, user=getpass.getuser(), host=socket.gethostname(), **ports))
    environment = {"SLURM_CONF": str(conf), "PATH": SEARCHED}
    asked = os.environ | environment
    subprocess.run(["mungekey", "--create", f"--keyfile={folder}/key"], env=asked, check=True)
    munge = ["munged", "--foreground", "--force", f"--socket={folder}/munge", f"--key-file={folder}/key"]
    munge += [f"--{kind}-file={folder}/munge.{kind}" for kind in ("log", "pid", "seed")]
    daemons = [munge, ["slurmctld", "-D", "-i"], *(["slurmd", "-D", "-N", node] for node in ("n1", "n2"))]
    log = (folder / "daemons.log").open("ab")
    running = []
    try:
        for command in daemons:
            running.append(subprocess.Popen(command, env=asked, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
            time.sleep(1)  # each needs the one before
        for _ in range(60):
            listed = subprocess.run(
                ["sinfo", "-hN", "-p", "low", "-o", "%T"], env=asked, capture_output=True, text=True
            )
            if listed.stdout.split() == ["idle", "idle"]:
                break
            time.sleep(1)
        else:
            raise RuntimeError(f"{listed.stdout}{listed.stderr}\n{(folder / 'daemons.log').read_text()}")
        yield environment
    finally:
        subprocess.run(["scancel", "--user", getpass.getuser()], env=asked, capture_output=True)
        time.sleep(2)
        for process in reversed(running):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)
