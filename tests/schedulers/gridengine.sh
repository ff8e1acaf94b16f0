#!/usr/bin/env bash
# A Grid Engine of its own, for tests: gridengine.sh DIR [SLOTS [HOSTS]]
#
# Starts sge_qmaster and one sge_execd, which offers SLOTS slots, on this
# machine, with all their state in DIR, writes wrappers of the client programs
# into DIR/bin, and prints `ready` once the queue is up. With several HOSTS each
# has an sge_execd, a name (host1, ...) and a network that leads to the others,
# and nowhere else. Ends all of it when its standard input is closed, which also
# happens when the test that started it dies. Needs root. Where the programs are missing and apt can install them, it
# does; where it cannot, it prints `skipped: why`.
set -uo pipefail
dir=$1 slots=${2:-4} hosts=${3:-1}

skip() {
    echo "skipped: Grid Engine ($*)"
    exit 0
}

here=$(dirname "$0")
. "$here/install.sh"
. "$here/processes.sh"
installed gridengine-master gridengine-exec gridengine-client
# Grid Engine wants to find a host's name under its address again. Here it has
# names, and a file of hosts, of its own.
host=host1 namespaces=(mount uts)
[[ $hosts == 1 ]] || namespaces+=(net)
if [[ -z ${FALKON_GRIDENGINE_INSIDE:-} ]]; then
    mkdir -p "$dir"
    unshare "${namespaces[@]/#/--}" true 2>/dev/null || skip "namespaces are not allowed"
    [[ $hosts == 1 ]] || command -v ip >/dev/null || skip "there is no ip"
    FALKON_GRIDENGINE_INSIDE=1 exec unshare "${namespaces[@]/#/--}" bash "$0" "$@"
fi
hostname "$host"
echo "127.0.0.1 localhost" >"$dir/hosts"
if [[ $hosts == 1 ]]; then
    sed -i "s/$/ $host/" "$dir/hosts"
else
    for ((i = 1; i <= hosts; i++)); do
        echo "10.99.0.$i host$i"
    done >>"$dir/hosts"
    ip link set lo up && ip link add switch type bridge && ip addr add 10.99.0.1/24 dev switch &&
        ip link set switch up || skip "there is no network to be had"
fi
mount --bind "$dir/hosts" /etc/hosts || skip "mounts are not allowed"

# The shepherd closes every descriptor there could be.
ulimit -n 4096
mkdir -p "$dir/root/default/common" "$dir"/spool/{qmaster/job_scripts,execd} "$dir/bin"
for name in bin lib utilbin; do
    ln -sfn "/var/lib/gridengine/$name" "$dir/root/$name"
done
ln -sfn /usr/share/gridengine/util "$dir/root/util"
port=0
free_port() {
    while :; do
        port=$((10000 + (RANDOM * 32768 + RANDOM) % 10000))
        (exec 7<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 0
    done
}
export PATH=/usr/lib/gridengine:$PATH SGE_ROOT=$dir/root SGE_CELL=default SGE_ARCH=lx-amd64
free_port
export SGE_QMASTER_PORT=$port
free_port
export SGE_EXECD_PORT=$port

# The clients live in this namespace, whoever calls them.
for program in qsub qstat qdel qrsh qconf qhost; do
    cat >"$dir/bin/$program" <<WRAPPER
#!/bin/sh
export SGE_ROOT=$SGE_ROOT SGE_CELL=default SGE_ARCH=lx-amd64
export SGE_QMASTER_PORT=$SGE_QMASTER_PORT SGE_EXECD_PORT=$SGE_EXECD_PORT
exec nsenter --target=$$ ${namespaces[@]/#/--} --wd="\$PWD" /usr/lib/gridengine/$program "\$@"
WRAPPER
    chmod +x "$dir/bin/$program"
done

finish() {
    trap '' TERM INT HUP
    timeout 10 qdel -f -u '*' >/dev/null 2>&1
    local pids
    pids=$(left_with "SGE_ROOT=$SGE_ROOT")
    [[ -n $pids ]] && kill -9 $pids 2>/dev/null
    wait 2>/dev/null
    exit 0
}
trap finish TERM INT HUP EXIT

cat >"$dir/root/default/common/bootstrap" <<CONF
admin_user              none
default_domain          none
ignore_fqdn             false
spooling_method         classic
spooling_lib            libspoolc
spooling_params         $dir/root/default/common;$dir/spool/qmaster
binary_path             /usr/sbin
qmaster_spool_dir       $dir/spool/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
CONF
echo "$host" >"$dir/root/default/common/act_qmaster"
sed -e "s#^login_shells.*#login_shells none#
    s#^execd_spool_dir.*#execd_spool_dir $dir/spool/execd#
    s/^min_uid.*/min_uid 0/
    s/^min_gid.*/min_gid 0/
    s/^load_report_time.*/load_report_time 00:00:05/
    s/^gid_range.*/gid_range $((30000 + RANDOM))-64999/
    s#^mailer.*#mailer /bin/true#
    s/flush_time=00:00:15/flush_time=00:00:01/
    s/^shell_start_mode.*/shell_start_mode unix_behavior/" \
    /usr/share/gridengine/default-configuration >"$dir/configuration"
{
    spoolinit classic libspoolc "$dir/root/default/common;$dir/spool/qmaster" init
    spooldefaults configuration "$dir/configuration"
    spooldefaults complexes /usr/share/gridengine/util/resources/centry
    spooldefaults usersets /usr/share/gridengine/util/resources/usersets
    spooldefaults managers root
} >"$dir/spool.out" 2>&1 </dev/null || skip "it cannot be set up: $(tail -n 1 "$dir/spool.out")"
SGE_ND=1 /usr/sbin/sge_qmaster </dev/null >"$dir/qmaster.out" 2>&1 &
for ((i = 0; i < 200; i++)); do
    qconf -sss >/dev/null 2>&1 && break
    sleep 0.1
done
all=()
for ((i = 1; i <= hosts; i++)); do
    all+=("host$i")
done
{
    qconf -as "${all[@]}"
    qconf -am root
    qconf -ah "${all[@]}"
} >/dev/null 2>&1
SGE_ND=1 /usr/sbin/sge_execd </dev/null >"$dir/execd.out" 2>&1 &
for ((i = 2; i <= hosts; i++)); do
    mkfifo "$dir/wire$i"
    unshare --net --uts bash -c 'hostname "host$1"; read -r <"$2"; ip link set lo up
        ip addr add "10.99.0.$1/24" dev eth0; ip link set eth0 up; SGE_ND=1 exec /usr/sbin/sge_execd' \
        bash "$i" "$dir/wire$i" </dev/null >"$dir/execd$i.out" 2>&1 &
    # Its end of the wire can go where it lives once that is a place of its own.
    until [[ $(readlink /proc/$$/ns/net) != "$(readlink /proc/$!/ns/net)" ]]; do sleep 0.05; done
    ip link add "wire$i" type veth peer name eth0 netns $! && ip link set "wire$i" master switch up
    echo >"$dir/wire$i"
done

printf 'group_name @allhosts\nhostlist %s\n' "${all[*]}" >"$dir/group"
# Slots on one host, and two on each of several.
for environment in 'smp $pe_slots' 'nodes 2'; do
    cat <<CONF >"$dir/environment-${environment% *}"
pe_name            ${environment% *}
slots              999
user_lists         NONE
xuser_lists        NONE
start_proc_args    NONE
stop_proc_args     NONE
allocation_rule    ${environment#* }
control_slaves     TRUE
job_is_first_task  FALSE
urgency_slots      min
accounting_summary FALSE
qsort_args         NONE
CONF
done
# A host notes the processes of a job's tasks in its temporary directory, under
# names that are the same on all machines.
temporary=$dir/tmp
for name in "${all[@]}"; do
    mkdir -p "$dir/tmp/$name"
    temporary+=,[$name=$dir/tmp/$name]
done
cat >"$dir/queue" <<CONF
qname                 all.q
hostlist              @allhosts
seq_no                0
load_thresholds       NONE
suspend_thresholds    NONE
nsuspend              1
suspend_interval      00:05:00
priority              0
min_cpu_interval      00:05:00
processors            UNDEFINED
qtype                 BATCH INTERACTIVE
ckpt_list             NONE
pe_list               smp nodes
rerun                 FALSE
slots                 $slots
tmpdir                $temporary
shell                 /bin/sh
prolog                NONE
epilog                NONE
shell_start_mode      unix_behavior
starter_method        NONE
suspend_method        NONE
resume_method         NONE
terminate_method      NONE
notify                00:00:02
owner_list            NONE
user_lists            NONE
xuser_lists           NONE
subordinate_list      NONE
complex_values        NONE
projects              NONE
xprojects             NONE
calendar              NONE
initial_state         default
s_rt                  INFINITY
h_rt                  INFINITY
s_cpu                 INFINITY
h_cpu                 INFINITY
s_fsize               INFINITY
h_fsize               INFINITY
s_data                INFINITY
h_data                INFINITY
s_stack               INFINITY
h_stack               INFINITY
s_core                INFINITY
h_core                INFINITY
s_rss                 INFINITY
h_rss                 INFINITY
s_vmem                INFINITY
h_vmem                INFINITY
CONF
{
    qconf -Ahgrp "$dir/group"
    qconf -Ap "$dir/environment-smp"
    qconf -Ap "$dir/environment-nodes"
    qconf -Aq "$dir/queue"
    qconf -ssconf | sed 's/^schedule_interval.*/schedule_interval 0:0:1/
        s/^flush_submit_sec.*/flush_submit_sec 1/
        s/^flush_finish_sec.*/flush_finish_sec 1/
        s/^job_load_adjustments.*/job_load_adjustments NONE/' >"$dir/scheduling"
    qconf -Msconf "$dir/scheduling"
} >"$dir/conf.out" 2>&1
for ((i = 0; i < 300; i++)); do
    if [[ $(qstat -f 2>/dev/null | grep -cE 'all.q@.*lx-amd64 *$') == "$hosts" ]]; then
        echo ready
        while read -r; do :; done
        exit 0
    fi
    sleep 0.1
done
skip "its daemons did not come up: $(tail -n 1 "$dir/conf.out")"
