# The packages of the lab and its node image, in the cache; sourced by lab.sh.

install() {
    mkdir -p "$CACHE"
    exec 9>"$CACHE/lock"; flock 9
    if [ -e "$ROOT/.complete" ]; then image; return; fi
    local a=$CACHE/apt release keyring u options more=() pinned=()
    release=$(. /etc/os-release; echo "${VERSION_CODENAME:-}")
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -e $keyring ] || die "made for Debian 12 or later (no Debian keyring here)"
    mkdir -p "$a"/{lists/partial,archives/partial}
    # the mirrors this machine already uses: none is named here
    mapfile -t u < <(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
        sed -nE 's/^URIs:[[:space:]]*([^[:space:]]+).*/\1/p; s/^deb[[:space:]]+(\[[^]]*\][[:space:]]*)?([^[:space:]]+).*/\2/p' | sort -u | grep -i debian)
    [ ${#u[@]} -gt 0 ] || die "no Debian mirror in apt's sources"
    : >"$a/sources.list"
    for m in "${u[@]}"; do
        case $m in
            *security*) echo "deb [signed-by=$keyring] $m $release-security main" ;;
            *) echo "deb [signed-by=$keyring] $m $release main"
               [ "$release" != bookworm ] || echo "deb [signed-by=$keyring] $m bookworm-backports main" ;;
        esac >>"$a/sources.list"
    done
    options=(-qq -o "Dir::Etc::sourcelist=$a/sources.list" -o Dir::Etc::sourceparts=/dev/null
             -o "Dir::State::lists=$a/lists" -o "Dir::Cache=$a" -o APT::Sandbox::User=root)
    say "reading package lists"; apt-get "${options[@]}" update
    more=(-y --no-install-recommends --download-only)
    [ "$release" != bookworm ] || pinned=(-t bookworm-backports)
    say "downloading"
    # what the host has already is not fetched again: the cache belongs to this machine
    apt-get "${options[@]}" install "${more[@]}" "${pinned[@]}" incus-base incus-client >/dev/null
    apt-get "${options[@]}" install "${more[@]}" busybox-static dnsmasq-base nftables ethtool \
        openvswitch-switch ovn-central ovn-host >/dev/null
    rm -rf "$ROOT.new"; mkdir "$ROOT.new"
    local d; for d in "$a"/archives/*.deb; do dpkg -x "$d" "$ROOT.new"; done
    rm -rf "$ROOT"; mv "$ROOT.new" "$ROOT"
    image
    touch "$ROOT/.complete"
    say "installed: $(LD_LIBRARY_PATH=$ROOT/usr/lib/$TRIPLET "$ROOT/usr/bin/incus" --version 2>/dev/null || echo '?') in $CACHE"
}

# One small image: busybox as init, HTTP on 80, 30080, 30081 (node ports) and 32000 (health check node port).
image() {
    local key; key=$(cat "$HERE"/image/* | sha256sum)
    [ -e "$CACHE/node.tar.gz" ] && [ "$key" = "$(cat "$CACHE/node.key" 2>/dev/null)" ] && return
    local w=$CACHE/image r=$CACHE/image/rootfs lib
    [ "$(uname -m)" = x86_64 ] || say 'only seen on x86_64'
    rm -rf "$w"; mkdir -p "$r"/{bin,sbin,lib,lib64,etc,proc,sys,dev,tmp,run,var,root,www/cgi-bin}
    cp "$ROOT/bin/busybox" "$r/bin/"; cp "$ROOT/bin/busybox" "$r/sbin/init"
    cp "$ROOT/sbin/ethtool" "$r/sbin/"
    LD_LIBRARY_PATH=$ROOT/usr/lib/$TRIPLET ldd "$r/sbin/ethtool" | grep -o '/[^ ]*' | sort -u | while read -r lib; do cp -L "$lib" "$r/lib/"; done
    cp -L "$r/lib/"ld-linux* "$r/lib64/" 2>/dev/null || true
    local a; for a in sh ip udhcpc ping ping6 httpd cat sleep hostname ps wget mkdir nc printf tail; do ln -sf busybox "$r/bin/$a"; done
    cp "$HERE/image/inittab" "$HERE/image/rc" "$HERE/image/nic" "$HERE/image/lease" "$r/etc/"
    cp "$HERE/image/who" "$r/www/cgi-bin/who"
    chmod +x "$r/etc/lease" "$r/www/cgi-bin/who"
    echo 'root:x:0:0::/root:/bin/sh' >"$r/etc/passwd"
    printf 'architecture: %s\ncreation_date: 1700000000\nproperties: {os: busybox, description: lab node}\n' "$(uname -m)" >"$w/metadata.yaml"
    tar -C "$w" -czf "$CACHE/node.tar.gz" metadata.yaml rootfs
    rm -rf "$w"; echo "$key" >"$CACHE/node.key"
}
