#!/bin/sh
# Runs a command as a Pod's container on the host's network: first process of its own, another user
# without any capability, a root file system that is read-only, and volumes.
#
#   pod.sh DIRECTORY PYTHON-PREFIX PYTHON-VERSION SITE-PACKAGES SOURCE USER COMMAND...
#
# A line of DIRECTORY/volumes says where one is mounted, and which directory it is filled from, if
# any. DIRECTORY/pid gets the process as this host sees it.
set -eu

if [ "${1:-}" != inside ]; then
    exec unshare --mount --pid --fork --kill-child --ipc sh "$0" inside "$@"
fi
shift

read -r pid _ < /proc/self/stat # this is still the host's /proc
. "$5/tests/support/root.sh"
make_root "$@" # no /etc/passwd: nobody there knows our user
directory=$1 root=$1/root user=$6
shift 6

while read -r place filling; do
    mkdir -p "$root$place"
    mount -t tmpfs -o mode=0777 volume "$root$place"
    if [ -n "$filling" ]; then
        cp "$filling"/* "$root$place/"
        chmod 0444 "$root$place"/*
        mount -o remount,ro "$root$place"
    fi
done < "$directory/volumes"

echo "$pid" > "$directory/pid"
pivot_root . old
umount -l /old
mount -o remount,ro /
mount -o remount,ro /dev
exec setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs \
    --bounding-set=-all --inh-caps=-all "$@"
