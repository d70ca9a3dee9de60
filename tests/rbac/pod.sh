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

directory=$2 prefix=$3 version=$4 site_packages=$5 source=$6 user=$7
shift 7
read -r pid _ < /proc/self/stat # this is still the host's /proc
root=$directory/root
mkdir -p "$root"
mount -t tmpfs -o mode=0755 pod "$root"
cd "$root"
mkdir -p dev etc opt old proc run tmp usr var
ln -s ../run var/run
mount --rbind -o ro /usr usr
for name in bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$name" ]; then
        cp -P "/$name" "$name"
    elif [ -d "/$name" ]; then
        mkdir "$name" && mount --bind -o ro "/$name" "$name"
    fi
done
cp /etc/ld.so.cache etc/ # and no /etc/passwd: nobody there knows our user
for name in full null random urandom zero; do
    touch "dev/$name" && mount --bind "/dev/$name" "dev/$name"
done
mount -t proc proc proc

# What the image has.
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
exec setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs \
    --bounding-set=-all --inh-caps=-all "$@"
