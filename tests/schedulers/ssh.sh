#!/usr/bin/env bash
# A host of its own to log in to, for tests: ssh.sh DIR
#
# Starts sshd on the loopback address with a host key and a user key in DIR,
# writes a configuration for clients to DIR/config, in which the host is called
# `near`, and prints `ready`. Ends when its standard input is closed. Needs
# root. Where sshd is missing and apt can install it, it does; where it cannot,
# it prints `skipped: why`.
set -uo pipefail
dir=$1

skip() {
    echo "skipped: SSH ($*)"
    exit 0
}

here=$(dirname "$0")
. "$here/install.sh"
installed openssh-server openssh-client
mkdir -p "$dir" /run/sshd
chmod 700 "$dir"
ssh-keygen -q -t ed25519 -N '' -f "$dir/host" </dev/null || skip "no key can be made"
ssh-keygen -q -t ed25519 -N '' -f "$dir/key" </dev/null
cp "$dir/key.pub" "$dir/authorized"
while :; do
    port=$((20000 + (RANDOM * 32768 + RANDOM) % 10000))
    (exec 7<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
done
cat >"$dir/sshd_config" <<CONF
Port $port
ListenAddress 127.0.0.1
HostKey $dir/host
AuthorizedKeysFile $dir/authorized
PidFile $dir/pid
StrictModes no
PermitRootLogin yes
UsePAM no
CONF
cat >"$dir/config" <<CONF
Host near
    HostName 127.0.0.1
    Port $port
    IdentityFile $dir/key
    IdentitiesOnly yes
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
CONF
/usr/sbin/sshd -D -f "$dir/sshd_config" -E "$dir/log" </dev/null &
daemon=$!
trap 'kill $daemon 2>/dev/null; wait 2>/dev/null' EXIT
for ((i = 0; i < 100; i++)); do
    if ssh -F "$dir/config" -o BatchMode=yes near true </dev/null 2>/dev/null; then
        echo ready
        while read -r; do :; done
        exit 0
    fi
    sleep 0.1
done
skip "sshd lets nobody in: $(tail -n 1 "$dir/log")"
