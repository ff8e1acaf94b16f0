# Read by the scripts beside it: installs packages where they are missing.

# installed PACKAGE...: they are there, or the script ends with `skipped: why`.
installed() {
    if dpkg-query -W -f '${db:Status-Abbrev}\n' "$@" 2>/dev/null | grep -c '^ii' | grep -qx "$#"; then
        [[ $(id -u) == 0 ]] || skip "its daemons need root"
        return 0
    fi
    [[ $(id -u) == 0 ]] || skip "not installed, and installing it needs root: apt-get install $*"
    command -v apt-get >/dev/null || skip "not installed, and there is no apt-get"
    [[ -z ${FALKON_NO_INSTALL:-} ]] || skip "not installed, and FALKON_NO_INSTALL is set"
    local lock=/tmp/falkon-install.lock log=/tmp/falkon-install.log
    exec 9>"$lock"
    flock 9
    echo "installing $* with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    local install=(apt-get -o DPkg::Lock::Timeout=120 install -y -qq --no-install-recommends "$@")
    # Its packages start their services where there is a system to start them. Lists of packages
    # that are old name files that are gone.
    apt-cache policy "$1" | grep -q 'Candidate: [0-9]' && timeout 100 "${install[@]}" >"$log" 2>&1 </dev/null ||
        { timeout 120 apt-get update -qq && timeout 300 "${install[@]}"; } >"$log" 2>&1 </dev/null ||
        skip "apt-get cannot install it: $(grep -m 1 '^E:' "$log")"
    exec 9>&-
}
