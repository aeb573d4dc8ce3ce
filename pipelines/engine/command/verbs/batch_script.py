"""The batch script of `featurelab slurm`: Ray on all nodes of a job, and a sweep that survives a requeue."""

import shlex
from pathlib import Path

NOTICE = 300  # seconds before the time limit at which Slurm tells the job to leave

SCRIPT = """\
#!/usr/bin/env bash
{directives}
# The sweep is stored as it runs, and its trials write checkpoints. A job that is requeued resumes the sweep.
set -uo pipefail
export PATH={programs}:$PATH RAY_AUTH_MODE=token
{store}
name={name}

# Ray asks nodes and drivers for this token; the home folder is shared by all nodes.
[ -e ~/.ray/auth_token ] || (umask 077; ray get-auth-token --generate > /dev/null)

# The head runs on this node, the first one. Each job has a port of its own.
head=$(hostname --all-ip-addresses | cut --delimiter=' ' --fields=1)
port=$((20000 + SLURM_JOB_ID % 10000))
export address=$head:$port
start='ulimit -n hard; exec ray start --block --disable-usage-stats --num-cpus="$SLURM_CPUS_ON_NODE" --num-gpus={gpus}
    --temp-dir="$(mktemp -d /tmp/ray.XXXXXX)/ray"'
start=${{start//$'\\n'/ }}
log='--open-mode=append --output={job}-%j-ray-%N.log' # what Ray says, by node
srun $log --nodes=1 --ntasks=1 --nodelist="$SLURMD_NODENAME" \\
    bash -c "$start --head --node-ip-address=$head --port=$port --include-dashboard=false" &
{workers}
# Wait, for five minutes at most, until all nodes have joined.
joined='import ray, sys
ray.init(sys.argv[1], logging_level="ERROR", log_to_driver=False)
sys.exit(sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[2]))'
for attempt in {{1..60}}; do
    python -c "$joined" "$address" {nodes} 2> /dev/null && break
    [ "$attempt" -lt 60 ] || {{ echo "Ray has not started on all {nodes} nodes" >&2; exit 1; }}
    sleep 5
done

# Resume the sweep if the store has it, otherwise begin it.
if featurelab export "$name" > /dev/null 2>&1; then
    featurelab sweep --file {file} --resume "$name" --address "$address" &
else
    featurelab sweep --file {file} --name "$name" --address "$address" &
fi
sweep=$!

# SIGUSR1 comes {notice} seconds before the time limit: end the sweep and requeue the job. SIGTERM comes when the job is
# preempted, and Slurm requeues it then.
requeue=
trap 'requeue=yes; kill -TERM "$sweep"' USR1
trap 'kill -TERM "$sweep"' TERM

wait "$sweep"
status=$?
while kill -0 "$sweep" 2> /dev/null; do # a signal interrupts wait
    wait "$sweep"
    status=$?
done
[ -z "$requeue" ] || scontrol requeue "$SLURM_JOB_ID"
exit "$status"
"""

WORKERS = """\
srun $log --nodes={others} --ntasks={others} --exclude="$SLURMD_NODENAME" bash -c "$start --address=$address" &
"""


def text(
    *,
    file: Path,
    job: str,
    name: str,
    nodes: int,
    gpus: int,
    cpus: int | None,
    time: str,
    partition: str,
    account: str,
    store: str | None,
    programs: Path,
) -> str:
    """Return the script.

    Args:
        file: the sweep file.
        job: the name of the job.
        name: the name of the sweep; empty for the job's name and id, which a requeued job keeps.
        nodes, gpus, cpus: nodes, GPUs and CPUs of each node; None for all CPUs.
        time: the time limit, as sbatch takes it.
        partition, account: empty for the cluster's own.
        store: the store's address; empty for the one in the working directory, None for one that holds a password
            and therefore stays in the environment.
        programs: the folder of the programs `featurelab` and `ray`.
    """
    job = "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "_" for c in job)
    directives = {
        "job-name": job,
        "output": f"{job}-%j.log",
        "open-mode": "append",
        "nodes": str(nodes),
        "ntasks-per-node": "1",
        "cpus-per-task": str(cpus or ""),
        "gpus-per-node": str(gpus or ""),
        "time": time,
        "partition": partition,
        "account": account,
        "signal": f"B:USR1@{NOTICE}",
    }
    lines = [f"#SBATCH --{option}={value}" for option, value in directives.items() if value]
    lines += ["#SBATCH --requeue"] + ([] if cpus else ["#SBATCH --exclusive"])
    if store is None:
        address = ': "${MLFLOW_TRACKING_URI:?must hold the address of the store when you submit the job}"'
    else:
        address = f"export MLFLOW_TRACKING_URI={shlex.quote(store)}" if store else "# the store is mlflow.db, here"
    return SCRIPT.format(
        directives="\n".join(lines),
        job=job,
        programs=shlex.quote(str(programs)),
        store=address,
        name=shlex.quote(name) if name else f"{job}-$SLURM_JOB_ID",
        gpus=gpus,
        workers=WORKERS.format(others=nodes - 1) if nodes > 1 else "",
        nodes=nodes,
        file=shlex.quote(str(file)),
        notice=NOTICE,
    )
