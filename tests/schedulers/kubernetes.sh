#!/usr/bin/env bash
# A Kubernetes of its own, for tests: kubernetes.sh DIR [NODES [CPUS]]
#
# Starts etcd, kube-apiserver, kube-controller-manager and kube-scheduler on the
# loopback address, and kubernetes/kubelet.py, which plays the kubelets of NODES
# nodes, with all their state in DIR; DIR/bin/kubectl speaks to it. Prints
# `ready` once every node is there. `down n1` on its standard input has a node
# fail and `up n1` come back, each answered with `done`. Ends all of it when its
# standard input is closed. Needs root, for the host names and mounts of pods.
#
# The control plane is the real one, built from its Go modules into a program
# (FALKON_KUBERNETES, /var/tmp/falkon-kubernetes/control-plane; once, in some ten
# minutes on two cores). Where that cannot be, it prints `skipped: why`.
set -uo pipefail
dir=$1 nodes=${2:-2} cpus=${3:-2}
program=${FALKON_KUBERNETES:-/var/tmp/falkon-kubernetes/control-plane}

skip() {
    echo "skipped: Kubernetes ($*)"
    exit 0
}

here=$(dirname "$(readlink -f "$0")")
. "$here/processes.sh"
[[ $(id -u) == 0 ]] || skip "its set-up needs root"
unshare --mount --uts true 2>/dev/null || skip "mounts are not allowed"
for tool in python3 openssl; do
    command -v $tool >/dev/null || skip "there is no $tool"
done
if [[ ! -x $program ]]; then
    [[ -z ${FALKON_NO_INSTALL:-} ]] || skip "not built, and FALKON_NO_INSTALL is set"
    command -v go >/dev/null || skip "not built, and there is no Go"
    echo "building a control plane: $program" >&2
    log=/tmp/falkon-install.log
    version=$(awk '$1 == "require" && $2 == "k8s.io/kubernetes" { print $3 }' "$here/kubernetes/go.mod")
    flags="-s -w -X k8s.io/component-base/version.gitVersion=$version"
    flags+=" -X k8s.io/component-base/version.gitMajor=1"
    flags+=" -X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<<"$version")"
    mkdir -p "$(dirname "$program")"
    (cd "$here/kubernetes" && GOTOOLCHAIN=local GOFLAGS= nice go build -trimpath -ldflags "$flags" \
        -o "$program.new" . && mv "$program.new" "$program") >"$log" 2>&1 </dev/null ||
        skip "it cannot be built: $(tail -n 1 "$log")"
fi

export FALKON_KUBERNETES_DIR=$dir
mkdir -p "$dir/bin" "$dir/pki" "$dir/pods"
chmod 700 "$dir"
free_port() {
    while :; do
        port=$((20000 + (RANDOM * 32768 + RANDOM) % 10000))
        (exec 7<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 0
    done
}
free_port && etcd=http://127.0.0.1:$port
free_port && peers=http://127.0.0.1:$port
free_port && server=https://127.0.0.1:$port
head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$dir/token"
echo "$(<"$dir/token"),admin,admin,system:masters" >"$dir/tokens.csv"
openssl genrsa -out "$dir/pki/sa.key" 2048 2>/dev/null
cat >"$dir/kubeconfig" <<CONF
{"apiVersion": "v1", "kind": "Config", "current-context": "test",
 "clusters": [{"name": "test", "cluster": {"server": "$server", "insecure-skip-tls-verify": true}}],
 "users": [{"name": "test", "user": {"token": "$(<"$dir/token")"}}],
 "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]}
CONF
cat >"$dir/bin/kubectl" <<WRAPPER
#!/bin/sh
export KUBECONFIG=$dir/kubeconfig KUBECACHEDIR=$dir/cache
exec $program kubectl "\$@"
WRAPPER
chmod +x "$dir/bin/kubectl"
export PATH=$dir/bin:$PATH

finish() {
    trap '' TERM INT HUP
    local pids
    pids=$(left_with "FALKON_KUBERNETES_DIR=$dir")
    [[ -n $pids ]] && kill -9 $pids 2>/dev/null
    wait 2>/dev/null
    exit 0
}
trap finish TERM INT HUP EXIT

start() {
    "$program" "$@" </dev/null >"$dir/$1.log" 2>&1 &
}
wait_for() {
    for ((i = 0; i < 600; i++)); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.2
    done
    skip "it did not come up: $(tail -qn 1 "$dir"/*.log | tail -n 1)"
}

start etcd --data-dir="$dir/etcd" --unsafe-no-fsync --log-level=warn \
    --listen-client-urls="$etcd" --advertise-client-urls="$etcd" \
    --listen-peer-urls="$peers" --initial-advertise-peer-urls="$peers" --initial-cluster="default=$peers"
start apiserver --etcd-servers="$etcd" --bind-address=127.0.0.1 --advertise-address=127.0.0.1 \
    --secure-port="${server##*:}" --cert-dir="$dir/pki" --service-cluster-ip-range=10.96.0.0/24 \
    --service-account-issuer="$server" --service-account-key-file="$dir/pki/sa.key" \
    --service-account-signing-key-file="$dir/pki/sa.key" --token-auth-file="$dir/tokens.csv" \
    --authorization-mode=RBAC --disable-admission-plugins=ServiceAccount \
    --endpoint-reconciler-type=none --enable-priority-and-fairness=false \
    --default-unreachable-toleration-seconds=1 --default-not-ready-toleration-seconds=1
wait_for kubectl get --raw /readyz
start controller-manager --kubeconfig="$dir/kubeconfig" --secure-port=0 --leader-elect=false \
    --controllers=job-controller,garbage-collector-controller,ttl-after-finished-controller,namespace-controller,node-lifecycle-controller,pod-garbage-collector-controller,taint-eviction-controller,resourcequota-controller \
    --node-monitor-grace-period=10s --node-monitor-period=1s
start scheduler --kubeconfig="$dir/kubeconfig" --secure-port=0 --leader-elect=false
for ((i = 1; i <= nodes; i++)); do
    echo "{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"n$i\", \"labels\": {\"kubernetes.io/hostname\": \"n$i\"}}}"
done | kubectl apply -f - >"$dir/nodes.log" 2>&1
coproc kubelet { exec python3 "$here/kubernetes/kubelet.py" "$dir" "$server" "$nodes" "$cpus" 2>"$dir/kubelet.log"; }
nodes_ready() {
    [[ $(kubectl get nodes --no-headers | grep -c ' Ready') == "$nodes" ]]
}
wait_for nodes_ready
wait_for kubectl get namespace default
echo ready
while read -r line; do
    echo "$line" >&"${kubelet[1]}"
    read -r answer <&"${kubelet[0]}"
    echo "$answer"
done
