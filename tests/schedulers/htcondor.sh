#!/usr/bin/env bash
# An HTCondor of its own, for tests: htcondor.sh DIR [NODES [CPUS]]
#
# Starts condor_master with a collector, a negotiator, a schedd and NODES
# startds on the loopback address, with all their state in DIR, and prints
# `ready` once every node is there. DIR/in COMMAND runs a command where they
# live: as an unprivileged user, for HTCondor takes no jobs of root, and with
# DIR under its own name. Ends all of it when its standard input is closed.
# Needs root.
#
# Where Debian's release has no HTCondor, that of trixie is used, in a directory
# of its own (FALKON_TRIXIE, /var/tmp/falkon-trixie: some 560 MB, made once, in a
# minute or two). Where that cannot be, it prints `skipped: why`.
set -uo pipefail
dir=$1 nodes=${2:-2} cpus=${3:-2}
trixie=${FALKON_TRIXIE:-/var/tmp/falkon-trixie}

skip() {
    echo "skipped: HTCondor ($*)"
    exit 0
}

here=$(dirname "$0")
. "$here/install.sh"

# Mounts are seen by what is started here, and by nobody else.
if [[ -z ${FALKON_HTCONDOR_INSIDE:-} ]]; then
    [[ $(id -u) == 0 ]] || skip "its set-up needs root"
    unshare --mount true 2>/dev/null || skip "mounts are not allowed"
    FALKON_HTCONDOR_INSIDE=1 exec unshare --mount bash "$0" "$@"
fi

if [[ ! -x $trixie/usr/sbin/condor_master ]]; then
    [[ -z ${FALKON_NO_INSTALL:-} ]] || skip "not installed, and FALKON_NO_INSTALL is set"
    installed debootstrap
    echo "installing HTCondor into $trixie" >&2
    log=/tmp/falkon-install.log
    {
        debootstrap --variant=minbase --include=ca-certificates trixie "$trixie.new" &&
            cp /etc/resolv.conf "$trixie.new/etc/" &&
            printf '#!/bin/sh\nexit 101\n' >"$trixie.new/usr/sbin/policy-rc.d" &&
            chmod +x "$trixie.new/usr/sbin/policy-rc.d" &&
            chroot "$trixie.new" env DEBIAN_FRONTEND=noninteractive \
                sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends condor' &&
            chroot "$trixie.new" useradd -m -u 2000 tester &&
            mv "$trixie.new" "$trixie"
    } >"$log" 2>&1 </dev/null || skip "it cannot be installed: $(tail -n 1 "$log")"
fi

mkdir -p "$dir" "$trixie$dir"
chmod 755 "$dir"
mount --bind /proc "$trixie/proc" && mount --rbind /dev "$trixie/dev" &&
    mount --bind "$dir" "$trixie$dir" || skip "mounts are not allowed"
cp /etc/hosts "$trixie/etc/hosts"

# in-chroot COMMAND, which DIR/in does from elsewhere.
inside() {
    chroot --userspec=tester:tester "$trixie" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        HOME=$dir USER=tester CONDOR_CONFIG="$dir/condor_config" \
        sh -c 'cd "$0" && exec "$@"' "$dir" "$@"
}
cat >"$dir/in" <<WRAPPER
#!/bin/sh
exec nsenter --mount=/proc/$$/ns/mnt chroot --userspec=tester:tester $trixie env -i \\
    PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=$dir USER=tester \\
    CONDOR_CONFIG=$dir/condor_config sh -c 'cd "\$0" && exec "\$@"' $dir "\$@"
WRAPPER
chmod +x "$dir/in"

while :; do
    port=$((20000 + (RANDOM * 32768 + RANDOM) % 10000))
    (exec 7<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
done
daemons="MASTER COLLECTOR NEGOTIATOR SCHEDD" startds=""
for ((i = 1; i <= nodes; i++)); do
    startds+=" STARTD$i"
done
{
    cat <<CONF
RELEASE_DIR=/usr
LIB=/usr/lib/condor
LIBEXEC=/usr/libexec/condor
SBIN=/usr/sbin
BIN=/usr/bin
LOCAL_DIR=$dir/local
LOG=\$(LOCAL_DIR)/log
SPOOL=\$(LOCAL_DIR)/spool
EXECUTE=\$(LOCAL_DIR)/execute
RUN=\$(LOCAL_DIR)/run
LOCK=\$(LOCAL_DIR)/lock
LOCAL_CONFIG_DIR=
CONDOR_HOST=127.0.0.1
COLLECTOR_HOST=127.0.0.1:$port
SHARED_PORT_PORT=$port
USE_SHARED_PORT=TRUE
NETWORK_INTERFACE=127.0.0.1
BIND_ALL_INTERFACES=FALSE
NO_DNS=TRUE
DEFAULT_DOMAIN_NAME=test
UID_DOMAIN=test
FILESYSTEM_DOMAIN=test
SEC_DEFAULT_AUTHENTICATION_METHODS=FS,CLAIMTOBE
SEC_DEFAULT_AUTHENTICATION=OPTIONAL
SEC_DEFAULT_ENCRYPTION=OPTIONAL
SEC_DEFAULT_INTEGRITY=OPTIONAL
ALLOW_READ=*
ALLOW_WRITE=*
ALLOW_ADMINISTRATOR=*
ALLOW_NEGOTIATOR=*
ALLOW_DAEMON=*
ALLOW_CLIENT=*
NEGOTIATOR_INTERVAL=1
NEGOTIATOR_MIN_INTERVAL=1
NEGOTIATOR_CYCLE_DELAY=1
SCHEDD_INTERVAL=2
SCHEDD_MIN_INTERVAL=1
JOB_START_DELAY=0
UPDATE_INTERVAL=5
POLLING_INTERVAL=1
STARTER_UPDATE_INTERVAL=5
PERIODIC_EXPR_INTERVAL=1
SHUTDOWN_FAST_TIMEOUT=3
SHUTDOWN_GRACEFUL_TIMEOUT=5
START=TRUE
RunBenchmarks=FALSE
SUSPEND=FALSE
PREEMPT=FALSE
KILL=FALSE
RANK=0
CGROUP_TRACKING=FALSE
BASE_CGROUP=
DISCARD_SESSION_KEYRING_ON_STARTUP=FALSE
STARTD_ENFORCE_DISK_LIMITS=FALSE
SLOT_TYPE_1=cpus=100%,mem=100%,disk=100%
SLOT_TYPE_1_PARTITIONABLE=TRUE
NUM_SLOTS_TYPE_1=1
NUM_CPUS=$cpus
MEMORY=$((cpus * 512))
DAEMON_LIST=$daemons$startds
DC_DAEMON_LIST=+$startds
CONF
    for ((i = 1; i <= nodes; i++)); do
        cat <<CONF
STARTD$i=\$(SBIN)/condor_startd
STARTD${i}_ARGS=-f -local-name n$i
STARTD.N$i.STARTD_NAME=n$i
STARTD.N$i.STARTD_LOG=\$(LOG)/StartLog.n$i
STARTD.N$i.STARTD_ADDRESS_FILE=\$(LOG)/.startd_address.n$i
STARTD.N$i.EXECUTE=\$(LOCAL_DIR)/execute/n$i
STARTD.N$i.STARTER_LOG=\$(LOG)/StarterLog.n$i
STARTD${i}_ENVIRONMENT="_CONDOR_STARTD_NAME=n$i"
CONF
    done
} >"$dir/condor_config"
mkdir -p "$dir"/local/{log,spool,execute,run,lock}
for ((i = 1; i <= nodes; i++)); do
    mkdir -p "$dir/local/execute/n$i"
done
chown -R 2000:2000 "$dir/local"

finish() {
    trap '' TERM INT HUP
    local pid
    for pid in /proc/[0-9]*; do
        if tr '\0' '\n' <"$pid/environ" 2>/dev/null | grep -q "=$dir/"; then
            kill -9 "${pid#/proc/}"
        fi
    done 2>/dev/null
    wait 2>/dev/null
    exit 0
}
trap finish TERM INT HUP EXIT

inside condor_master -f </dev/null >"$dir/master.out" 2>&1 &
for ((i = 0; i < 300; i++)); do
    if [[ $(inside condor_status -af Machine 2>/dev/null | wc -l) -ge $nodes ]]; then
        echo ready
        while read -r; do :; done
        exit 0
    fi
    sleep 0.2
done
skip "its daemons did not come up: $(tail -n 1 "$dir/master.out")"
