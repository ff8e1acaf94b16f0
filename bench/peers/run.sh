#!/usr/bin/env bash
# Falkon and its peers, side by side: process tasks per second; what else there
# is to compare with HyperQueue; calls of Python functions per second.
#
#   bench/peers/run.sh [TASKS [ROUNDS]]     default: 10000 tasks, 3 rounds
#
# Each figure stands beside the processor time that it took.
#
# Installs HyperQueue, Dask, joblib, Ray and Parsl from PyPI, each into an environment of
# its own, and GNU parallel with apt if this is root; what cannot be installed is
# left out with a line that says so. Rounds alternate, so that a change in the machine's load
# meets all alike, and each contender gets a session of its own, between which
# the kernel shares processors.
#
# FALKON        the program [target/release/falkon]
# PEERS_HOME    where environments are kept [~/.cache/falkon-peers]
# PEERS_QUEUED  tasks queued to measure submission and memory [1000000]
# PEERS_CALLS   calls of functions [10000]
# PEERS_ONLY    "functions": leaves out all but the calls of Python functions;
#               "processes": leaves those out
# PEERS_JSON    file to which the figures are added, one JSON object per line
set -Eeuo pipefail
cd "$(dirname "$0")/../.."
exec </dev/null

tasks=${1:-10000}
rounds=${2:-3}
slots=2
falkon=$(realpath "${FALKON:-target/release/falkon}")
home=${PEERS_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/falkon-peers}
here=$(realpath bench/peers)
# Some of what runs here has a directory of its own.
json=${PEERS_JSON:+$(realpath -m "$PEERS_JSON")}

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

# have_python MODULE PACKAGE...: in an environment that is called as the module.
have_python() {
    [ -x "$home/$1/bin/python" ] || python3 -m venv "$home/$1" 2>"$scratch/venv.log" || {
        echo "left out: $1 (no virtual environment can be made; is python3-venv there?)"
        return 1
    }
    "$home/$1/bin/python" -c "import $1" 2>/dev/null ||
        "$home/$1/bin/pip" install -q "${@:2}" >"$scratch/pip.log" 2>&1 || {
        echo "left out: $1 cannot be installed ($(grep -m1 '^ERROR' "$scratch/pip.log" || echo "pip failed"))"
        return 1
    }
    "$home/$1/bin/pip" list 2>/dev/null | grep -iE "^$1 " || true
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
hyperqueue=
if have_python hyperqueue hyperqueue; then
    contenders+=" hyperqueue"
    hyperqueue=$home/hyperqueue/bin/python
fi
callers=pool
only=${PEERS_ONLY:-}
if [[ $only != processes ]]; then
    # What Falkon's own package needs.
    have_python msgspec msgspec cloudpickle && callers="falkon pool"
    have_python dask 'dask[distributed]' && callers+=" dask"
    have_python joblib joblib && callers+=" joblib"
    have_python ray ray && callers+=" ray"
    have_python parsl parsl && callers+=" parsl"
fi
"$falkon" --version
echo "$(nproc) cores of $(sed -n 's/^model name.*: //p;T;q' /proc/cpuinfo), Linux $(uname -r), load $(cut -d' ' -f1 /proc/loadavg)"
echo "$tasks times /bin/true, $slots at a time, $rounds rounds; start and end of the program included"

export -f run_falkon run_xargs run_parallel run_hyperqueue
export falkon tasks slots scratch home here

# table WHAT UNIT BASE: lines "name figure", one per round, as medians with their
# spread and the ratio to BASE; as JSON too if that is wanted, named after WHAT.
table() {
    sort -k1,1 -k2,2n | awk -v what="$1" -v unit="$2" -v base="$3" -v json="$json" '
    function shown(figure) { return sprintf(figure < 100 ? "%.2f" : "%.0f", figure) }
    { figures[$1, ++count[$1]] = $2 }
    END {
        for (name in count) {
            n = count[name]
            median[name] = n % 2 ? figures[name, (n + 1) / 2] : (figures[name, n / 2] + figures[name, n / 2 + 1]) / 2
        }
        printf "\n%-12s %12s %25s %10s\n", "", unit, "least to most", "/ " base
        for (name in count) {
            n = count[name]
            ratio = base in count ? sprintf("%.3f", median[name] / median[base]) : "-"
            printf "%-12s %12s %12s to %-9s %10s\n", name, shown(median[name]),
                shown(figures[name, 1]), shown(figures[name, n]), ratio
            if (json != "") {
                all = figures[name, 1]
                for (i = 2; i <= n; i++) all = all ", " figures[name, i]
                printf "{\"name\": \"%s, %s\", \"unit\": \"%s\", \"rounds\": [%s]}\n", what, name, unit, all >>json
            }
        }
    }'
}

if [[ $only == functions ]]; then
    contenders=
    hyperqueue=
fi
for ((round = 1; round <= rounds; round++)); do
    for contender in $contenders; do
        {
            TIMEFORMAT='%3R %3U %3S'
            time setsid --wait bash -c "run_$contender" >"$scratch/$contender.log" 2>&1 || {
                echo "$contender failed:" >&3
                tail -n 5 "$scratch/$contender.log" >&3
                exit 1
            }
        } 3>&2 2>"$scratch/time"
        awk -v name="$contender" -v tasks="$tasks" '{ print name, tasks / $1 }' "$scratch/time" >>"$scratch/rates"
        awk -v name="$contender" -v tasks="$tasks" '{ print name, 1e6 * ($2 + $3) / tasks }' "$scratch/time" >>"$scratch/used"
    done
done
if [[ $only != functions ]]; then
    table processes tasks/s falkon <"$scratch/rates"
    echo
    echo "processor time of all processes, that of the tasks included:"
    table "processor time of processes" us/task falkon <"$scratch/used"
fi

if [ -n "$hyperqueue" ]; then
    (cd "$scratch" && "$hyperqueue" "$here/hyperqueue_table.py" "$falkon" "$rounds" \
        "${PEERS_QUEUED:-1000000}" ${json:+"$json"})
fi

[[ $only != processes ]] || exit 0

# Each is given a mode and how many calls, and prints figures (functions.py).
call_falkon() { PYTHONPATH="$here/../../python" FALKON_BINARY="$falkon" "$home/msgspec/bin/python" "$here/functions.py" falkon "$@"; }
call_pool() { python3 "$here/functions.py" pool "$@"; }
call_joblib() { "$home/joblib/bin/python" "$here/functions.py" joblib "$@"; }
call_dask() { "$home/dask/bin/python" "$here/functions.py" dask "$@"; }
call_ray() { HOME=$scratch "$home/ray/bin/python" "$here/functions.py" ray "$@"; }
# Parsl finds its programs in the search path.
call_parsl() { (cd "$scratch" && PATH="$home/parsl/bin:$PATH" "$home/parsl/bin/python" "$here/functions.py" parsl "$@"); }
export -f call_falkon call_pool call_joblib call_dask call_ray call_parsl

calls=${PEERS_CALLS:-10000}
# The fast ones need more calls for a round to take long enough.
calls_of() { case $1 in falkon | pool | joblib) echo $((calls * 10)) ;; *) echo "$calls" ;; esac; }

# functions MODE UNIT CALLER...: a table of what the callers do in a mode.
functions() {
    local mode=$1 unit=$2 round caller figure
    for ((round = 1; round <= rounds; round++)); do
        for caller in "${@:3}"; do
            [[ " $callers " == *" $caller "* ]] || continue
            if figure=$(setsid --wait bash -c "call_$caller $mode $(calls_of "$caller")" 2>"$scratch/$caller.log"); then
                echo "$caller ${figure%% *}" >>"$scratch/$mode"
                [[ $figure != *" "* ]] || echo "$caller ${figure##* }" >>"$scratch/$mode-used"
            else
                echo "left out: $caller failed: $(tail -n 1 "$scratch/$caller.log")"
            fi
        done
    done
    table "$mode" "$unit" "${callers%% *}" <"$scratch/$mode"
    if [[ -e $scratch/$mode-used ]]; then
        table "processor time of $mode" us/call "${callers%% *}" <"$scratch/$mode-used"
    fi
}

echo
echo "calls of a Python function that does nothing, two workers, $rounds rounds; start and end not included;"
echo "$calls calls a round, ten times as many of falkon, pool (ProcessPoolExecutor) and joblib"
echo
echo "a call and a future for each:"
functions submit calls/s falkon pool dask ray parsl
echo
echo "many at once, each with its own choice of how many travel together:"
functions map calls/s falkon pool joblib dask
echo
echo "import:"
functions import ms falkon joblib dask ray parsl
