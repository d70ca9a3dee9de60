# A root file system in memory, in which this host's programs are read-only, and the virtual
# environment of docs/systemd.md, out of the one that runs the tests. It is where the caller stands
# afterwards, until pivot_root; the caller is in namespaces of its own.
#
#   make_root DIRECTORY PYTHON-PREFIX PYTHON-VERSION SITE-PACKAGES SOURCE
make_root() {
    mkdir -p "$1/root"
    mount -t tmpfs -o mode=0755 root "$1/root"
    cd "$1/root"
    mkdir -p dev etc opt old proc run tmp usr var
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
    cp /etc/ld.so.cache etc/
    mount -t tmpfs -o mode=0755 dev dev
    for name in full null random tty urandom zero; do
        touch "dev/$name" && mount --bind "/dev/$name" "dev/$name"
    done
    mount -t proc proc proc

    home=opt/ccm-supervisor
    mkdir -p opt/python opt/source "$home/bin" "$home/lib/python$3/site-packages"
    mount --bind -o ro "$2" opt/python
    mount --bind -o ro "$5" opt/source
    mount --bind -o ro "$4" "$home/lib/python$3/site-packages"
    ln -s "/opt/python/bin/python$3" "$home/bin/python"
    echo "home = /opt/python/bin" > "$home/pyvenv.cfg"
    cat > "$home/bin/ccm-supervisor" <<'END'
#!/bin/sh
export LD_LIBRARY_PATH=/opt/python/lib PYTHONPATH=/opt/source
exec /opt/ccm-supervisor/bin/python -m ccm.cli.main "$@"
END
    chmod 0755 "$home/bin/ccm-supervisor"
}
