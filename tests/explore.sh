#!/usr/bin/env bash
# Random tests, round after round with other seeds, for FALKON_EXPLORE_SECONDS
# (600): `make explore`. Stops at the first failure, and says how to repeat it.
set -Eeuo pipefail
cd "$(dirname "$0")/.."
exec </dev/null

seconds=${FALKON_EXPLORE_SECONDS:-600}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
tests=(--locked --package falkon-core --package falkon-wire --package falkon-sim --package falkon-archive)
tests+=(--package falkon-dispatcher --package falkon-net --package falkon-executor --package falkon-process)
cargo test "${tests[@]}" --no-run

rounds=0
while ((rounds == 0 || SECONDS < seconds)); do
    PROPTEST_RNG_SEED=$(od -An -N8 -tu8 /dev/urandom | tr -d ' ')
    export PROPTEST_RNG_SEED FALKON_SEED=$PROPTEST_RNG_SEED
    if ! cargo test "${tests[@]}" --quiet >"$log" 2>&1; then
        cat "$log"
        echo "make explore: failed. To repeat it: PROPTEST_RNG_SEED=$PROPTEST_RNG_SEED FALKON_SEED=$FALKON_SEED" \
            "cargo test --package NAME --test NAME, of the test above"
        exit 1
    fi
    rounds=$((rounds + 1))
    echo "round $rounds: passed, $SECONDS s"
done
