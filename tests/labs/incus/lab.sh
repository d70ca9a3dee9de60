#!/bin/bash
# A real Incus + OVN cloud on this machine, in private namespaces.  See README.md.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${INCUS_LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ccm-supervisor/incus}
STATES=${INCUS_LAB_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/ccm-supervisor/incus}
TRIPLET=$(uname -m)-linux-gnu
ROOT=$CACHE/root
VIP4=192.0.2 VIP6=2001:db8:2::
. "$HERE/install.sh"; . "$HERE/seed.sh"

usage() {
    cat <<'U'
lab.sh install                    download the packages (Debian's own), unpack them into the cache
lab.sh up [NAME] [--members N]    start a lab (default name: lab; --members 2: a cluster of two servers)
lab.sh env [NAME]                 print the variables a provider or a test needs (eval them)
lab.sh incus [NAME] -- ARGS       the incus client, as administrator
lab.sh exec [NAME] [-m N] -- CMD  run a command inside member N's namespaces (curl, ping, ip, ovn-nbctl)
lab.sh get [NAME] URL [COUNT]     who answers: counts of the answers to COUNT requests (default 12)
lab.sh pod [NAME] NODE ADDR       a pod (network namespace) with address ADDR behind a node; then exec -- ip netns exec NODE-pod …
lab.sh forward [NAME] ADDR PORT   a port of the host's loopback that leads to ADDR:PORT in the lab; prints it
lab.sh api [NAME] kill|hold|resume [N]  kill -9 member N's Incus daemon (it comes back), keep it down, let it back
lab.sh reset [NAME]               back to the state after `up`: instances, balancers, forwards, routes, volumes
lab.sh status | down [NAME] | wipe [NAME | --cache]
U
    exit 2
}
die() { echo "lab: $*" >&2; exit 1; }
say() { [ -n "${INCUS_LAB_QUIET:-}" ] || echo "lab: $*" >&2; }

need() {
    [ "$(id -u)" = 0 ] || die "needs root (namespaces, containers); skip these tests without it"
    local t; for t in apt-get dpkg unshare nsenter ip curl openssl python3 setsid flock; do
        command -v $t >/dev/null || die "missing on this machine: $t"
    done
}

# ---------------------------------------------------------------- one lab
lab() { NAME=${1:-lab}; [[ $NAME =~ ^[a-z0-9][a-z0-9-]{0,20}$ ]] || die "bad lab name: $NAME"
        L=$STATES/$NAME; [ ${#L} -le 70 ] || die "state path too long for unix sockets (set INCUS_LAB_STATE): $L"; }
alive() { local p; p=$(cat "$L/m${1:-1}/pid" 2>/dev/null) && [ -n "$p" ] && grep -qzF "$L" "/proc/$p/cmdline" 2>/dev/null; }
pid() { cat "$L/m${1:-1}/pid"; }
net() { local m=$1; shift; nsenter -t "$(pid "$m")" -n "$@"; }          # lab's network, host's files
inside() {                                                              # everything of the lab
    local m=$1; shift
    nsenter -t "$(pid "$m")" -n -m -p -u env "LD_LIBRARY_PATH=$ROOT/usr/lib/$TRIPLET:$ROOT/lib/$TRIPLET" \
        "INCUS_DIR=$L/m$m/inc" "INCUS_CONF=$L/conf" OVN_RUNDIR=/run/ovn OVS_RUNDIR=/run/openvswitch \
        "OVN_NB_DB=unix:$L/ovn/nb.sock" "OVN_SB_DB=unix:$L/ovn/sb.sock" \
        "PATH=$ROOT/sbin:$ROOT/bin:/usr/sbin:/usr/bin:/sbin:/bin" "$@"
}
I() { inside 1 /usr/bin/incus "$@" </dev/null; }
wait_for() { local n=$1 what=$2; shift 2; for ((; n > 0; n--)); do "$@" >/dev/null 2>&1 && return; sleep .1; done; die "$what did not come (logs: $L/m*/log)"; }

start_member() {
    local i=$1 n=$2 M=$L/m$1 p
    mkdir -p "$M"/{inc,cg,log}
    setsid unshare -n -m -u -p -i --fork --kill-child --mount-proc --propagation private \
        "$HERE/member.sh" "$L" "$i" "$ROOT" "$n" >"$M/log/member.log" 2>&1 </dev/null 9>&- &
    p=$!
    for _ in $(seq 50); do
        p=$(cat "/proc/$!/task/$!/children" 2>/dev/null || true); p=${p%% *}
        [ -n "$p" ] && break; sleep .05
    done
    [ -n "$p" ] || die "member $i did not start: $(tail -3 "$M/log/member.log")"
    echo "$p" >"$M/pid"
}

up() {
    local n=1 t0=$SECONDS i
    while [ $# -gt 0 ]; do case $1 in --members) n=$2; shift 2 ;; *) lab "$1"; shift ;; esac; done
    [ "$n" = 1 ] || [ "$n" = 2 ] || die "--members is 1 or 2"
    need; install
    if alive 1 && [ -e "$L/complete" ]; then say "$NAME is up"; return; fi
    down_quietly; rm -rf "$L"; mkdir -p "$L"/{conf,ovn,tls}; chmod 700 "$L"; echo '{}' >"$L/conf/config.yml"
    trap 'e=$?; [ $e = 0 ] || { say "failed; last lines:"; tail -n 4 "$L"/m[0-9]/log/member.log "$L"/m[0-9]/log/incusd.log >&2 2>/dev/null; down_quietly; }' EXIT
    echo "$n" >"$L/members"
    for ((i = 1; i <= n; i++)); do start_member "$i" "$n"; done
    for ((i = 1; i <= n; i++)); do wait_for 200 "Open vSwitch of member $i" test -e "$L/m$i/ready"; done
    if [ "$n" = 2 ]; then
        net 1 ip link add tun0 type veth peer name tun0 netns "$(pid 2)"
        net 1 ip link add clu0 type veth peer name clu0 netns "$(pid 2)"
    fi
    # an outside: forwards on the bridge listen in this net
    net 1 ip link add ext0 type bridge; net 1 ip addr add 198.51.100.1/24 dev ext0; net 1 ip link set ext0 up
    net 1 ip route add default dev ext0
    touch "$L/go"
    for ((i = 1; i <= n; i++)); do
        wait_for 300 "Incus of member $i" curl -sf --unix-socket "$L/m$i/inc/unix.socket" http://i/1.0
    done
    [ "$n" = 1 ] || cluster
    seed "$n"
    start_relay https 127.0.0.1 8443 "$n"
    touch "$L/complete"
    trap - EXIT
    say "$NAME up in $((SECONDS - t0)) s: eval \"\$($0 env $NAME)\""
}

start_relay() {       # name, host, port, members
    local at=$2; [ "${4:-1}" = 1 ] || at=172.31.254.1
    rm -f "$L/relay-$1.port"
    setsid python3 "$HERE/relay.py" "$(pid 1)" "$at" "$3" "$L/relay-$1.port" >"$L/relay-$1.log" 2>&1 </dev/null 9>&- &
    echo $! >"$L/relay-$1.pid"
    wait_for 100 "relay" test -e "$L/relay-$1.port"
}
forward() {
    local id=${1//[^0-9a-f]/_}-$2 at=$1
    if ! { [ -e "$L/relay-$id.pid" ] && grep -qzF "$L" "/proc/$(cat "$L/relay-$id.pid")/cmdline" 2>/dev/null; }; then
        rm -f "$L/relay-$id.port"
        setsid python3 "$HERE/relay.py" "$(pid 1)" "$at" "$2" "$L/relay-$id.port" >"$L/relay-$id.log" 2>&1 </dev/null 9>&- &
        echo $! >"$L/relay-$id.pid"; wait_for 100 "relay" test -e "$L/relay-$id.port"
    fi
    echo "127.0.0.1:$(cat "$L/relay-$id.port")"
}

env_() {
    alive 1 || die "$NAME is not up"
    cat <<E
export INCUS_LAB=$NAME
export INCUS_SOCKET=$L/m1/inc/unix.socket
export INCUS_URL=https://127.0.0.1:$(cat "$L/relay-https.port")
export INCUS_SERVER_CERT=$L/tls/server.crt
export INCUS_CLIENT_CERT=$L/tls/ccm.crt
export INCUS_CLIENT_KEY=$L/tls/ccm.key
export INCUS_ADMIN_CERT=$L/tls/admin.crt
export INCUS_ADMIN_KEY=$L/tls/admin.key
export INCUS_EDGE_CERT=$L/tls/edge.crt
export INCUS_EDGE_KEY=$L/tls/edge.key
export INCUS_OTHER_CERT=$L/tls/other.crt
export INCUS_OTHER_KEY=$L/tls/other.key
export INCUS_PROJECT=k8s
export INCUS_NETWORK=ovn0
export INCUS_BRIDGE_PROJECT=bridged
export INCUS_BRIDGE_NETWORK=incusbr0
export INCUS_VIPS4=$VIP4.0/24
export INCUS_VIPS6=${VIP6}/112
export INCUS_FORWARDS4=198.51.100.0/24
export INCUS_IMAGE=node
export INCUS_MEMBERS=$(cat "$L/members")
E
}

get() {
    local url=$1 n=${2:-12} i
    for ((i = 0; i < n; i++)); do
        net 1 curl -s -g --max-time 1 --noproxy '*' "$url" || echo DOWN
    done | sort | uniq -c | sed 's/^ *//'
}

down_quietly() {
    local m p i f
    [ -d "$L" ] || return 0
    for f in "$L"/relay-*.pid; do
        [ -e "$f" ] || continue; p=$(cat "$f")
        if grep -qzF "$L" "/proc/$p/cmdline" 2>/dev/null; then kill "$p" 2>/dev/null || true; fi; rm -f "$f"
    done
    for m in "$L"/m[0-9]; do
        [ -d "$m" ] || continue; i=${m##*/m}
        alive "$i" || continue
        p=$(pid "$i")
        # PID 1 of the member's own PID namespace: with it go all its children, and nothing else
        kill -9 "$p" 2>/dev/null || true
        for _ in $(seq 100); do [ -e "/proc/$p" ] || break; sleep .05; done
    done
    rm -f "$L"/m[0-9]/pid "$L/complete"
    # the containers' empty cgroups are the only thing a lab leaves on the host
    find /sys/fs/cgroup -mindepth 1 -depth -type d -path "*/lxc.*" 2>/dev/null | while read -r f; do
        rmdir "$f" 2>/dev/null || true          # only what is empty goes
    done
}

status() {
    local d; [ -d "$STATES" ] || return 0
    for d in "$STATES"/*/; do
        [ -d "$d" ] || continue; lab "$(basename "$d")"
        if alive 1; then echo "$NAME up, $(cat "$L/members") member(s), $(memory) MiB"; else echo "$NAME down"; fi
    done
}
memory() {  # PSS of everything in the members' PID namespaces
    local m ns p t=0 k
    for m in "$L"/m[0-9]; do
        ns=$(readlink "/proc/$(cat "$m/pid")/ns/pid")
        for p in /proc/[0-9]*; do
            [ "$(readlink "$p/ns/pid" 2>/dev/null)" = "$ns" ] || continue
            k=$(awk '/^Pss:/{print $2}' "$p/smaps_rollup" 2>/dev/null || true); t=$((t + ${k:-0}))
        done
    done; echo $((t / 1024))
}

# ---------------------------------------------------------------- commands
[ $# -gt 0 ] || usage
command=$1; shift
lab lab
named() { if [ $# -gt 0 ] && [ -d "$STATES/$1" ] && [[ $1 != -* ]]; then lab "$1"; SHIFT=1; else lab "${INCUS_LAB:-lab}"; SHIFT=0; fi; }
case $command in
    install) need; install ;;
    up) lab "${INCUS_LAB:-lab}"; up "$@" ;;
    env) named "$@"; env_ ;;
    incus|exec)
        named "$@"; shift $SHIFT; member=1
        [ "${1:-}" != -m ] || { member=$2; shift 2; }
        [ "${1:-}" != -- ] || shift
        alive "$member" || die "$NAME is not up"
        if [ $command = incus ]; then inside "$member" /usr/bin/incus "$@"; else inside "$member" "$@"; fi ;;
    get) named "$@"; shift $SHIFT; alive 1 || die "$NAME is not up"; get "$@" ;;
    forward) named "$@"; shift $SHIFT; alive 1 || die "$NAME is not up"; forward "$@" ;;
    pod) named "$@"; shift $SHIFT; alive 1 || die "$NAME is not up"; pod "$@" ;;
    api)
        named "$@"; shift $SHIFT; alive 1 || die "$NAME is not up"
        member=${2:-1}; alive "$member" || die "no member $member"; socket=$L/m$member/inc/unix.socket
        case ${1:-} in
            kill) ;; hold) touch "$L/m$member/hold" ;; resume) rm -f "$L/m$member/hold" ;; *) usage ;;
        esac
        [ "$1" = resume ] || inside "$member" bash -c '
            for p in /proc/[0-9]*; do
                [ "$(readlink "$p/exe")" = /usr/libexec/incus/incusd ] && grep -qz -- ^--group "$p/cmdline" && kill -9 "${p#/proc/}"
            done; true'
        [ "$1" = hold ] || wait_for 300 Incus curl -sf --unix-socket "$socket" http://i/1.0 ;;
    reset) named "$@"; alive 1 || die "$NAME is not up"; reset ;;
    status) status ;;
    down) named "$@"; down_quietly ;;
    wipe)
        if [ "${1:-}" = --cache ]; then rm -rf "$CACHE"; exit; fi
        named "$@"; down_quietly; rm -rf --one-file-system "$L" ;;
    *) usage ;;
esac
