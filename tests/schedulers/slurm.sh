#!/usr/bin/env bash
# A Slurm of its own, for tests: slurm.sh DIR [NODES [CPUS]]
#
# Starts munged, slurmctld and NODES slurmd on the loopback address, with all
# their state in DIR, and prints `ready` once every node is idle. Ends all of it
# when its standard input is closed, which also happens when the test that
# started it dies; until then, lines `stop DAEMON` and `start DAEMON` on it do
# what they say, DAEMON being slurmctld, n1, n2, …. Needs root. Where the programs are missing and apt can
# install them, it does; where it cannot, it prints `skipped: why`.
set -uo pipefail
dir=$1 nodes=${2:-4} cpus=${3:-2}

skip() {
    echo "skipped: Slurm ($*)"
    exit 0
}

here=$(dirname "$0")
. "$here/install.sh"
. "$here/processes.sh"
installed slurmctld slurmd slurm-client munge
host=$(hostname -s)
getent hosts "$host" >/dev/null || skip "the name $host of this machine does not resolve"

mkdir -p "$dir"/{munge,state,log,spool}
chmod 755 "$dir" "$dir/munge"
chmod 700 "$dir/state"
(umask 077 && head -c 1024 /dev/urandom >"$dir/munge/key")
export SLURM_CONF=$dir/slurm.conf

# Every port is tried, so that several of these live side by side.
port=0
free_port() {
    while :; do
        port=$((20000 + (RANDOM * 32768 + RANDOM) % 10000))
        (exec 7<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 0
    done
}

free_port
cat >"$SLURM_CONF" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=1000,sched_interval=1,bf_interval=1
KillWait=2
OverTimeLimit=0
InactiveLimit=0
MinJobAge=300
SlurmdTimeout=60
SlurmctldTimeout=60
MessageTimeout=10
PropagateResourceLimits=NONE
SlurmdParameters=config_overrides
CONF
for ((i = 1; i <= nodes; i++)); do
    free_port
    echo "NodeName=n$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$port CPUs=$cpus RealMemory=1000 State=UNKNOWN" >>"$SLURM_CONF"
    mkdir -p "$dir/spool/n$i"
done
cat >>"$SLURM_CONF" <<CONF
PartitionName=main Nodes=n[1-$nodes] Default=YES MaxTime=INFINITE DefaultTime=60 State=UP
PartitionName=short Nodes=n[1-$nodes] MaxTime=00:02:00 DefaultTime=1 State=UP
CONF

finish() {
    trap '' TERM INT HUP
    timeout 10 scancel --full --user=root 2>/dev/null
    kill $(jobs -p) 2>/dev/null
    local pids
    pids=$(left_with "SLURM_CONF=$SLURM_CONF")
    [[ -n $pids ]] && kill -9 $pids 2>/dev/null
    wait 2>/dev/null
    exit 0
}
trap finish TERM INT HUP EXIT

# The daemons get no standard input: it belongs to whoever waits below.
munged --foreground --force --num-threads=2 --key-file="$dir/munge/key" \
    --socket="$dir/munge/socket" --pid-file="$dir/munge/pid" \
    --log-file="$dir/munge/log" --seed-file="$dir/munge/seed" </dev/null >"$dir/log/munged.out" 2>&1 &
for ((i = 0; i < 200; i++)); do
    munge -n -S "$dir/munge/socket" >/dev/null 2>&1 && break
    sleep 0.05
done
# start NAME, stop NAME: a daemon, slurmctld or the slurmd of a node.
start() {
    if [[ $1 == slurmctld ]]; then
        slurmctld -D </dev/null >>"$dir/log/slurmctld.out" 2>&1 &
    else
        slurmd -D -N "$1" </dev/null >>"$dir/log/slurmd.$1.out" 2>&1 &
    fi
    started[$1]=$!
}
stop() {
    kill "${started[$1]}"
    wait "${started[$1]}" 2>/dev/null
}
declare -A started
start slurmctld
for ((i = 1; i <= nodes; i++)); do
    start "n$i"
done
for ((i = 0; i < 300; i++)); do
    if [[ $(sinfo -h -N -p main -t idle -o %N 2>/dev/null | wc -l) == "$nodes" ]]; then
        echo ready
        while read -r command daemon; do
            "$command" "$daemon"
            echo done
        done
        exit 0
    fi
    sleep 0.1
done
skip "its daemons did not come up: $(tail -n 1 "$dir/log/slurmctld.log" 2>/dev/null)"
