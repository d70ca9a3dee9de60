#!/bin/sh
# Starts a real systemd as the first process of a little machine: namespaces of its own, a root file
# system in memory, this host's programs read-only, and this host's network.
#
#   boot.sh DIRECTORY PYTHON-PREFIX PYTHON-VERSION SITE-PACKAGES SOURCE
#
# DIRECTORY/pid gets the process as this host sees it, DIRECTORY/cgroup its control group.
set -eu

if [ "${1:-}" != inside ]; then
    hierarchy=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
    group=$hierarchy/ccm-supervisor-test-$$
    mkdir "$group"
    echo "$group" > "$1/cgroup"
    echo $$ > "$group/cgroup.procs"
    exec unshare --mount --pid --fork --kill-child --uts --ipc --cgroup sh "$0" inside "$@"
fi
shift

read -r pid _ < /proc/self/stat # this is still the host's /proc
. "$5/tests/support/root.sh"
make_root "$@"
mkdir -p etc/systemd/system root sys
for name in group hosts nsswitch.conf passwd; do
    cp "/etc/$name" "etc/$name"
done
ln -s pts/ptmx dev/ptmx
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup

# Only what the service needs is there to be started; the rest of the host's units is not.
for unit in basic multi-user network-online shutdown sockets sysinit; do
    ln -s "/usr/lib/systemd/system/$unit.target" etc/systemd/system/
done
mkdir etc/systemd/system/sysinit.target.wants
for unit in systemd-journald.service systemd-journald.socket; do
    ln -s "/usr/lib/systemd/system/$unit" etc/systemd/system/
    ln -s "/usr/lib/systemd/system/$unit" etc/systemd/system/sysinit.target.wants/
done

echo "$pid" > "$1/pid"
pivot_root . old
umount -l /old
mount --make-rshared / # what systemd does itself outside a container
exec env -i container=test SYSTEMD_UNIT_PATH=/etc/systemd/system \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=basic.target --log-target=journal --show-status=no
