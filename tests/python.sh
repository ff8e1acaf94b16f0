#!/usr/bin/env bash
# The Python package's tests, and CPython's own of concurrent.futures on it, with
# the program that is named. Makes an environment with what the package needs.
set -Eeuo pipefail
cd "$(dirname "$0")/.."
FALKON_BINARY=$(realpath "$1")
export FALKON_BINARY PYTHONPATH=$PWD/python

# The system's Python comes first: the standard library's tests that its
# distribution packages are for that one.
home=target/python-tests
python=
for candidate in /usr/bin/python3 python3; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [[ -z $python ]]; then
    echo "skipped: the Python package (no Python of 3.10 or newer with venv is here)"
    exit 0
fi
if ! "$home/bin/python" -c 'import msgspec, cloudpickle' 2>/dev/null; then
    echo "making a Python environment in $home"
    "$python" -m venv --clear "$home"
    if ! "$home/bin/pip" install --quiet --disable-pip-version-check --retries 1 msgspec cloudpickle; then
        echo "skipped: the Python package (msgspec and cloudpickle cannot be installed)"
        exit 0
    fi
fi
# The other sides of the package's integrations, and another cloudpickle to meet.
if ! "$home/bin/python" -c 'import joblib, dask, pandas, parsl, snakemake' 2>/dev/null; then
    echo "installing Parsl, Snakemake, joblib, Dask and pandas"
    timeout 600 "$home/bin/pip" install --quiet --disable-pip-version-check --retries 1 joblib dask pandas parsl snakemake ||
        echo "skipped: some of Parsl, Snakemake, joblib, Dask and pandas (they cannot be installed)"
fi
# What the examples run, and test_libraries.py.
examples="rdkit meeko gemmi scipy nibabel astropy openmm"
# Libraries and workflow systems that run on an executor, by their modules.
libraries="adaptive anyio cubed emcee executorlib optuna psij pydra sklearn toil trio"
packages=${libraries/sklearn/scikit-learn}
packages=${packages/psij/psij-python}
has_all='import importlib.util as find, sys; sys.exit(not all(map(find.find_spec, sys.argv[1:])))'
if ! "$home/bin/python" -c "$has_all" $examples $libraries; then
    echo "installing $examples $libraries"
    # Each alone: where one cannot be installed the others can.
    for package in $examples $packages; do
        timeout 300 "$home/bin/pip" install --quiet --disable-pip-version-check --retries 1 "$package" || true
    done
fi
programs() (
    # The examples' tests say what they lack.
    skip() { exit 0; }
    . tests/schedulers/install.sh
    installed "$@"
)
if [[ $(id -u) == 0 ]]; then
    programs glpk-utils
    programs autodock-vina autodock-test
    programs montage
    programs elastix
fi
export FALKON_CLOUDPICKLE_2=$PWD/$home/cloudpickle-2
if ! [[ -d $FALKON_CLOUDPICKLE_2 ]] &&
    ! "$home/bin/pip" install --quiet --disable-pip-version-check --retries 1 --no-deps \
        --target "$FALKON_CLOUDPICKLE_2" 'cloudpickle<3' 2>/dev/null; then
    echo "skipped: workers with another cloudpickle (cloudpickle 2 cannot be installed)"
    unset FALKON_CLOUDPICKLE_2
fi
# Tests that need what is not there say so.
"$home/bin/python" -W ignore python/tests/every.py 2>&1 |
    sed -uE "s/^(test_[^ ]+) .*skipped '(.*)'$/skipped: \\1 (\\2)/; /\\.\\.\\. ok$/d"

version=$("$home/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
has_standard_tests() { "$home/bin/python" -c 'import test.test_concurrent_futures' 2>/dev/null; }
if ! has_standard_tests && [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "installing CPython's tests (libpython$version-testsuite)"
    apt-get install -y -qq "libpython$version-testsuite" >/dev/null 2>&1 ||
        { apt-get update -qq && apt-get install -y -qq "libpython$version-testsuite"; } >/dev/null 2>&1 || true
fi
if has_standard_tests; then
    timeout 600 "$home/bin/python" -W ignore python/tests/standard_executor.py
    timeout 600 "$home/bin/python" -W ignore python/tests/standard_pool.py
else
    echo "skipped: CPython's tests of concurrent.futures and multiprocessing.Pool (libpython$version-testsuite is not installed)"
fi

# The same of the newest other Python that is here; of all with FALKON_LARGE.
interpreter_of() {
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if "$candidate" -c 'import venv, ensurepip, test.test_concurrent_futures' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}
has_run=
for other in 3.14 3.13 3.12 3.11 3.10; do
    [[ $other == "$version" ]] && continue
    if [[ -n $has_run && -z ${FALKON_LARGE:-} ]]; then
        echo "skipped: CPython's tests of concurrent.futures with Python $other (FALKON_LARGE is not set)"
        continue
    fi
    python=$(interpreter_of "$other")
    if [[ -z $python ]]; then
        echo "skipped: CPython's tests of concurrent.futures with Python $other (it is not here, or without its tests)"
        continue
    fi
    if ! "$home-$other/bin/python" -c 'import msgspec, cloudpickle' 2>/dev/null; then
        "$python" -m venv --clear "$home-$other"
        if ! "$home-$other/bin/pip" install --quiet --disable-pip-version-check --retries 1 msgspec cloudpickle; then
            echo "skipped: CPython's tests of concurrent.futures with Python $other (msgspec and cloudpickle cannot be installed)"
            continue
        fi
    fi
    echo "CPython's tests of concurrent.futures with Python $other"
    timeout 600 "$home-$other/bin/python" -W ignore python/tests/standard_executor.py
    has_run=1
done
