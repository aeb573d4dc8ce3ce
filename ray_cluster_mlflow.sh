#!/usr/bin/env bash
# Start the MLflow server of a cluster's head node at MLFLOW_TRACKING_URI, in place of the one that runs:
#
#   MLFLOW_TRACKING_URI=http://10.0.0.5:5000 bash ray_cluster_mlflow.sh FOLDER
#
# Artifacts are kept in FOLDER/artifacts, runs in FOLDER/mlflow.db or, where there is a file FOLDER/database, in the
# PostgreSQL database whose address is its first line (postgresql://user:password@host/name). That address is handed on
# in the environment alone: it holds a password.
set -euo pipefail
umask 077

taken() {
    (: < "/dev/tcp/$address/$port") 2> /dev/null
}

refuse() {
    echo "ray_cluster_mlflow.sh: $1" >&2
    exit 2
}

[ $# -eq 1 ] || refuse "which folder keeps the results?"
[[ ${MLFLOW_TRACKING_URI-} =~ ^http://([0-9.]+):([0-9]+)$ ]] || refuse "MLFLOW_TRACKING_URI is not http://ADDRESS:PORT"
address=${BASH_REMATCH[1]}
port=${BASH_REMATCH[2]}
python -c 'import ipaddress, sys; a = ipaddress.IPv4Address(sys.argv[1]); sys.exit(a.is_global or a.is_unspecified)' \
    "$address" 2> /dev/null || refuse "$address is not in a private network, and MLflow asks for no password"

mkdir -p "$1"
cd "$1"
uri=sqlite:///$PWD/mlflow.db
if [ -e database ]; then
    chmod 600 database
    read -r uri < database || [ -n "$uri" ] || refuse "$PWD/database is empty"
    uri=${uri%$'\r'}
    [[ $uri == postgresql://* ]] || refuse "$PWD/database does not begin with postgresql://" # else MLflow would log it
fi

exec 9>> mlflow.lock # the server keeps it open and locked as long as it lives: mlflow.pid alone may be an old one
if ! flock --nonblock 9; then
    kill -- "-$(< mlflow.pid)"
    flock --timeout 30 9 || refuse "the MLflow server that runs does not end"
    for _ in {1..30}; do # the system may give the lock back before the port
        taken || break
        sleep 1
    done
fi
! taken || refuse "port $port of $address is taken"
MLFLOW_BACKEND_STORE_URI=$uri MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false setsid --fork \
    bash -c 'echo $$ > mlflow.pid; exec mlflow server "$@"' mlflow --host "$address" --port "$port" \
    --allowed-hosts "$address:$port,localhost:$port,127.0.0.1:$port" --artifacts-destination "$PWD/artifacts" \
    >> mlflow.log 2>&1 < /dev/null
exec 9>&-

for _ in {1..180}; do
    sleep 1
    ! flock --nonblock 9 9>> mlflow.lock || refuse "MLflow's server ended: see $PWD/mlflow.log"
    python -c 'import sys, urllib.request as web; web.build_opener(web.ProxyHandler({})).open(sys.argv[1], timeout=5)' \
        "$MLFLOW_TRACKING_URI/health" 2> /dev/null && exit 0
done
refuse "MLflow's server does not answer: see $PWD/mlflow.log"
