#!/bin/sh
# An ensemble of MPI programs: each member runs on two nodes. Usage: run.sh [MEMBERS]
# FALKON is the program, OUT a new folder, MPICC and MPIEXEC are those of an MPI, NODES is how
# many executors this machine plays.
set -eu
members=${1:-200} nodes=${NODES:-4}
case $members in
'' | *[!0-9]*) echo "MEMBERS must be a number" >&2 && exit 2 ;;
esac
falkon=${FALKON:-falkon} out=${OUT:-mpi-out} mpicc=${MPICC:-mpicc} mpiexec=${MPIEXEC:-mpiexec}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$out"
"$mpicc" -O2 -ffp-contract=off -o heat "$here/heat.c"
# Open MPI refuses to run as root unless it is told that this is meant.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
pass="--env OMPI_ALLOW_RUN_AS_ROOT --env OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"

services=
trap 'kill $services 2>/dev/null; wait' EXIT
"$falkon" start --dir dispatcher 2>dispatcher.log &
services=$!
until [ -e dispatcher/access.json ]; do sleep 0.1; done
for node in $(seq "$nodes"); do
    "$falkon" executor --access dispatcher/access.json --name "node$node" --slots 1 \
        2>"executor$node.log" &
    services="$services $!"
done

began=$(date +%s.%N)
# shellcheck disable=SC2086
"$falkon" submit --access dispatcher/access.json --wait --nodes-per-task 2 \
    $pass --range "1-$members" -- "$mpiexec" ./heat '{}' >results
ended=$(date +%s.%N)
cut -d' ' -f1,2 results | sort >sums
awk -v from="$began" -v to="$ended" -v members="$members" 'BEGIN {
    printf "%d members on 2 nodes each in %.1f s: %.1f per second\n", members, to - from, members / (to - from)
}'

# The same by one process, for some of them.
for member in $(seq 1 $(((members + 9) / 10)) "$members"); do
    "$mpiexec" -n 1 ./heat "$member" | cut -d' ' -f1,2
done | sort >alone
if [ "$(wc -l <sums)" = "$members" ] && [ -z "$(comm -13 sums alone)" ]; then
    echo "one process computed the same for $(wc -l <alone | tr -d ' ') of them"
else
    echo "the results differ: $out/sums, $out/alone" >&2
    exit 1
fi
