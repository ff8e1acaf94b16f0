#!/usr/bin/env bash
# Process tasks per second of Falkon and its peers, side by side.
#
#   bench/peers/run.sh [TASKS [ROUNDS]]     default: 10000 tasks, 3 rounds
#
# Installs HyperQueue from PyPI into an environment of its own, and GNU
# parallel with apt if this is root; what cannot be installed is left out with
# a line that says so. Rounds alternate, so that a change in the machine's load
# meets all alike, and each contender gets a session of its own, between which
# the kernel shares processors.
#
# FALKON        the program [target/release/falkon]
# PEERS_HOME    where environments are kept [~/.cache/falkon-peers]
set -Eeuo pipefail
cd "$(dirname "$0")/../.."
exec </dev/null

tasks=${1:-10000}
rounds=${2:-3}
slots=2
falkon=$(realpath "${FALKON:-target/release/falkon}")
home=${PEERS_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/falkon-peers}
here=$(realpath bench/peers)

if ! [ -x "$falkon" ]; then
    echo "there is no $falkon: run make, or say where it is with FALKON=PROGRAM" >&2
    exit 2
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$home"
seq "$tasks" >"$scratch/lines"

have_parallel() {
    command -v parallel >/dev/null && return
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "left out: GNU parallel is not installed, and this is not root on Debian"
        return 1
    fi
    apt-get install -qq -y parallel >"$scratch/apt.log" 2>&1 || {
        echo "left out: GNU parallel cannot be installed (apt-get failed)"
        return 1
    }
}

have_hyperqueue() {
    [ -x "$home/hyperqueue/bin/python" ] || python3 -m venv "$home/hyperqueue" 2>"$scratch/venv.log" || {
        echo "left out: HyperQueue (no virtual environment can be made; is python3-venv there?)"
        return 1
    }
    "$home/hyperqueue/bin/python" -c 'import hyperqueue' 2>/dev/null ||
        "$home/hyperqueue/bin/pip" install -q hyperqueue >"$scratch/pip.log" 2>&1 || {
        echo "left out: HyperQueue cannot be installed (pip failed)"
        return 1
    }
}

# Each prints nothing and runs $tasks times /bin/true, $slots at a time.
run_falkon() { "$falkon" run --quiet -j "$slots" --range "1-$tasks" -- /bin/true; }
run_xargs() { xargs -P "$slots" -n1 /bin/true <"$scratch/lines"; }
run_parallel() { parallel -j "$slots" /bin/true :::: "$scratch/lines"; }
run_hyperqueue() {
    (cd "$scratch" && "$home/hyperqueue/bin/python" "$here/hyperqueue_local.py" "$tasks" "$slots")
}

contenders="falkon xargs"
have_parallel && contenders+=" parallel"
if have_hyperqueue; then
    contenders+=" hyperqueue"
    "$home/hyperqueue/bin/pip" list 2>/dev/null | grep -i '^hyperqueue' || true
fi
"$falkon" --version
echo "$(nproc) cores of $(sed -n 's/^model name.*: //p;T;q' /proc/cpuinfo), Linux $(uname -r), load $(cut -d' ' -f1 /proc/loadavg)"
echo "$tasks times /bin/true, $slots at a time, $rounds rounds; start and end of the program included"

export -f run_falkon run_xargs run_parallel run_hyperqueue
export falkon tasks slots scratch home here
for ((round = 1; round <= rounds; round++)); do
    for contender in $contenders; do
        begin=$(date +%s%N)
        setsid --wait bash -c "run_$contender" >"$scratch/$contender.log" 2>&1 || {
            echo "$contender failed:" >&2
            tail -n 5 "$scratch/$contender.log" >&2
            exit 1
        }
        echo "$contender $(($(date +%s%N) - begin))" >>"$scratch/times"
    done
done
sort -k1,1 -k2,2n "$scratch/times" | awk -v tasks="$tasks" '
    { times[$1, ++count[$1]] = $2 }
    END {
        printf "%-12s %12s %25s %10s\n", "", "tasks/s", "least to most", "/ falkon"
        for (name in count) {
            n = count[name]
            middle = n % 2 ? times[name, (n + 1) / 2] : (times[name, n / 2] + times[name, n / 2 + 1]) / 2
            median[name] = tasks * 1e9 / middle
        }
        for (name in count) {
            n = count[name]
            printf "%-12s %12.0f %12.0f to %-9.0f %10.3f\n", name, median[name],
                tasks * 1e9 / times[name, n], tasks * 1e9 / times[name, 1], median[name] / median["falkon"]
        }
    }'
