#!/bin/bash
# One Incus server ("member") with its own Open vSwitch, as PID 1 of private namespaces.
# usage (by lab.sh only): member.sh LAB_DIR INDEX ROOT MEMBERS
set -e
L=$1 I=$2 ROOT=$3 N=$4 M=$L/m$2 TRIPLET=$(uname -m)-linux-gnu
hostname "m$I"
ip link set lo up
mount -t overlay o -o "lowerdir=$ROOT/usr:/usr" /usr        # in this mount namespace only
mount --rbind /sys/fs/cgroup "$M/cg"                        # a sysfs of our own network, the host's cgroups
mount -t sysfs s /sys
mount --rbind "$M/cg" /sys/fs/cgroup
mount -t tmpfs t /run
mkdir -p /run/openvswitch /run/ovn /run/lock
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
export LD_LIBRARY_PATH=$ROOT/usr/lib/$TRIPLET:$ROOT/lib/$TRIPLET
export OVS_RUNDIR=/run/openvswitch OVN_RUNDIR=/run/ovn INCUS_DIR=$M/inc
export PATH=$ROOT/sbin:$ROOT/bin:/usr/libexec/incus:/usr/libexec/lxc:/usr/lib/openvswitch-switch:/usr/sbin:/usr/bin:/sbin:/bin

daemon() { local n=$1; shift; "$@" --detach --log-file="$M/log/$n.log" --pidfile="/run/$n.pid" 2>/dev/null; }
db() { rm -f "$2"; ovsdb-tool create "$2" "/usr/share/$1.ovsschema"; }

db openvswitch/vswitch "$M/conf.db"
daemon ovsdb ovsdb-server "$M/conf.db" --remote=punix:/run/openvswitch/db.sock
ovs-vsctl --no-wait init
daemon vswitchd ovs-vswitchd --monitor unix:/run/openvswitch/db.sock    # 3.1 fails an assertion of its conntrack at times
NB=unix:$L/ovn/nb.sock SB=unix:$L/ovn/sb.sock
if [ "$I" = 1 ]; then                                       # OVN's databases live with the first member
    db ovn/ovn-nb "$L/ovn/nb.db"; db ovn/ovn-sb "$L/ovn/sb.db"
    daemon nb ovsdb-server "$L/ovn/nb.db" "--remote=p$NB" --unixctl=/run/ovn/nb.ctl
    daemon sb ovsdb-server "$L/ovn/sb.db" "--remote=p$SB" --unixctl=/run/ovn/sb.ctl
    ovn-nbctl --db="$NB" --no-leader-only init
    ovn-sbctl --db="$SB" --no-leader-only init
    daemon northd ovn-northd --ovnnb-db="$NB" --ovnsb-db="$SB"
fi
ENCAP=127.0.0.1
[ "$N" = 1 ] || ENCAP=172.31.255.$I
ovs-vsctl set open_vswitch . "external_ids:system-id=m$I" "external_ids:ovn-remote=$SB" \
    external_ids:ovn-encap-type=geneve "external_ids:ovn-encap-ip=$ENCAP" \
    external_ids:ovn-bridge-datapath-type=netdev            # user space: the kernel needs no openvswitch module
touch "$M/ready"
until [ -e "$L/go" ]; do sleep .1; done                     # lab.sh lays the cables between members now
if [ "$N" != 1 ]; then
    ovs-vsctl add-br br-tun -- set bridge br-tun datapath_type=netdev -- add-port br-tun tun0
    ip addr add "172.31.255.$I/24" dev br-tun; ip link set br-tun up; ip link set tun0 up
    ethtool -K tun0 tx off >/dev/null; ethtool -K br-tun tx off >/dev/null || true
    ip addr add "172.31.254.$I/24" dev clu0; ip link set clu0 up
fi
daemon controller ovn-controller unix:/run/openvswitch/db.sock
# Incus names an OVN network's bridge after its number; it must be of the netdev kind before Incus uses it.
for n in 1 2 3 4 5 6; do
    ovs-vsctl --may-exist add-br "incusovn$n" -- set bridge "incusovn$n" datapath_type=netdev
done
while :; do                                                 # lab.sh api hold|resume|kill
    if [ -e "$M/hold" ]; then sleep .2; continue; fi
    incusd --group root >>"$M/log/incusd.log" 2>&1 || true
    sleep .2
done
