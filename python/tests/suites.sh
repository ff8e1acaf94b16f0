#!/usr/bin/env bash
# Other projects' own test suites, on Falkon, with the program that is named:
#
#   python/tests/suites.sh target/release/falkon [SUITE...]
#   python/tests/suites.sh target/wheels/falkon-*.whl [SUITE...]
#
# With a wheel (`pip wheel --no-deps -w target/wheels .`), that is installed and
# nothing of this folder is used. Suites: parsl, joblib, snakemake, cubed, pydra,
# wfcommons, toil, cwl, psij; all of them by default. What they need is installed from PyPI into
# SUITES_HOME [~/.cache/falkon-suites]. Prints a line for each; what it stands for is
# in docs/python-integrations.md.
set -Eeuo pipefail
here=$(realpath "$(dirname "$0")")
subject=$(realpath "$1")
shift
suites=${*:-parsl joblib snakemake cubed pydra wfcommons toil cwl psij}
home=${SUITES_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/falkon-suites}
export PYTHONWARNINGS=ignore
[[ -x $home/bin/python ]] || python3 -m venv "$home"
python=$home/bin/python
"$home/bin/pip" install --quiet --disable-pip-version-check cloudpickle msgspec \
    'pytest<8' pytest-random-order numpy pandas parsl joblib snakemake
for suite in $suites; do
    case $suite in
    wfcommons | pydra) "$home/bin/pip" install --quiet --disable-pip-version-check "$suite" ;;
    toil) "$home/bin/pip" install --quiet --disable-pip-version-check toil ;;
    cwl) "$home/bin/pip" install --quiet --disable-pip-version-check 'toil[cwl]' cwltest ;;
    psij) "$home/bin/pip" install --quiet --disable-pip-version-check psij-python pytest-timeout ;;
    cubed) "$home/bin/pip" install --quiet --disable-pip-version-check 'cubed[diagnostics]' pytest-mock ;;
    esac
done
if [[ $subject == *.whl ]]; then
    "$home/bin/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall "$subject"
    unset FALKON_BINARY
    export PYTHONPATH=$here/suites PATH=$home/bin:$PATH
else
    export FALKON_BINARY=$subject PYTHONPATH=$here/..:$here/suites
fi
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

parsl() {
    "$python" -m pytest -q -p no:cacheprovider "$site/parsl/tests/" -o addopts=-rf --random-order \
        -k "not cleannet and not test_bad_std and not test_resource_spec" \
        --config "$here/suites/parsl_config.py"
}
joblib() {
    "$python" -m pytest -q -p no:cacheprovider -p joblib_backend -k falkon \
        "$site/joblib/test/test_parallel.py"
}
snakemake() {
    "$python" -m pytest -q -p no:cacheprovider --basetemp "$scratch/snakemake" \
        "$here/suites/test_snakemake.py"
}
cubed() {
    "$python" -m pytest -q -p no:cacheprovider -p cubed_executors \
        "$site/cubed/tests/test_executor_features.py"
}
pydra() {
    "$python" -m pytest -q -p no:cacheprovider -p pydra_workers -o addopts= \
        "$site/pydra/engine/tests/test_node_task.py"
}
toil() {
    "$python" -m pytest -q -p no:cacheprovider "$here/suites/test_toil.py"
}
# CWL's conformance tests, from a checkout of common-workflow-language/cwl-v1.2.
cwl() {
    if [[ -z ${CWL_TESTS:-} ]]; then
        echo "skipped: CWL_TESTS does not name a checkout of common-workflow-language/cwl-v1.2"
        return
    fi
    PATH=$home/bin:$PATH "$home/bin/cwltest" --test "$CWL_TESTS/conformance_tests.yaml" -j 2 \
        ${CWL_ONLY:+-n "$CWL_ONLY"} --tool toil-cwl-runner --timeout 120 -- \
        --batchSystem falkon --caching False --clean always --logCritical --no-container
}
psij() {
    "$home/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
        "psij-python==$("$python" -c 'import psij; print(psij.__version__)')"
    tar xzf psij*.tar.gz
    # The package has the tests alone; what they share is in suites/psij.
    cp "$here"/suites/psij/*.py psij-python-*/tests
    (cd psij-python-*/tests && "$python" -m pytest -q -p no:cacheprovider -c /dev/null --rootdir . \
        --deselect test_nodefile.py::test_nodefile \
        test_executor.py test_issue_435.py test_mpi.py test_nodefile.py test_resources.py)
}
wfcommons() { "$python" "$here/suites/wfcommons_graphs.py"; }

for suite in $suites; do
    begin=$SECONDS
    "$suite" >"$scratch/log" 2>&1 || true
    grep '^FAILED' "$scratch/log" || true
    version=$("$home/bin/pip" list --disable-pip-version-check 2>/dev/null | awk -v name="$suite" '$1 == name { print $2 }')
    echo "$suite $version: $(tail -n 1 "$scratch/log") ($((SECONDS - begin)) s in all)"
done
