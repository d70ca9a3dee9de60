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

directory=$2 prefix=$3 version=$4 site_packages=$5 source=$6
read -r pid _ < /proc/self/stat # this is still the host's /proc
root=$directory/root
mkdir -p "$root"
mount -t tmpfs -o mode=0755 machine "$root"
cd "$root"
mkdir -p dev etc/systemd/system opt old proc root run sys tmp usr var
chmod 1777 tmp
ln -s ../run var/run
mount --rbind -o ro /usr usr
for name in bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$name" ]; then
        cp -P "/$name" "$name"
    elif [ -d "/$name" ]; then
        mkdir "$name" && mount --bind -o ro "/$name" "$name"
    fi
done
for name in group hosts ld.so.cache nsswitch.conf passwd; do
    cp "/etc/$name" "etc/$name"
done
mount -t tmpfs -o mode=0755 dev dev
for name in full null random tty urandom zero; do
    touch "dev/$name" && mount --bind "/dev/$name" "dev/$name"
done
ln -s pts/ptmx dev/ptmx
mount -t proc proc proc
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

# The virtual environment of docs/systemd.md, out of the one that runs the tests.
home=opt/ccm-supervisor
mkdir -p opt/python opt/source "$home/bin" "$home/lib/python$version/site-packages"
mount --bind -o ro "$prefix" opt/python
mount --bind -o ro "$source" opt/source
mount --bind -o ro "$site_packages" "$home/lib/python$version/site-packages"
ln -s "/opt/python/bin/python$version" "$home/bin/python"
echo "home = /opt/python/bin" > "$home/pyvenv.cfg"
cat > "$home/bin/ccm-supervisor" <<'END'
#!/bin/sh
export LD_LIBRARY_PATH=/opt/python/lib PYTHONPATH=/opt/source
exec /opt/ccm-supervisor/bin/python -m ccm.cli.main "$@"
END
chmod 0755 "$home/bin/ccm-supervisor"

echo "$pid" > "$directory/pid"
pivot_root . old
umount -l /old
mount --make-rshared / # what systemd does itself outside a container
exec env -i container=test SYSTEMD_UNIT_PATH=/etc/systemd/system \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=basic.target --log-target=journal --show-status=no
