# What is in a lab: projects, networks, certificates, instances, pods; sourced by lab.sh.

cluster() {
    local token
    I config set core.https_address=172.31.254.1:8443
    I cluster enable m1 >/dev/null
    token=$(I cluster add m2 -q 2>/dev/null | tail -1)
    inside 2 /usr/bin/incus admin init --preseed >/dev/null <<P
cluster:
  enabled: true
  server_address: 172.31.254.2:8443
  cluster_token: $token
P
    I cluster group create zone-a >/dev/null; I cluster group create zone-b >/dev/null
    I cluster group assign m1 default,zone-a >/dev/null; I cluster group assign m2 default,zone-b >/dev/null
    I cluster role add m1 ovn-chassis >/dev/null               # the routers live on m1, and so does the traffic from outside
}

each_member() { local i; for ((i = 1; i <= $1; i++)); do "${@:2}" "--target=m$i" >/dev/null; done; }

seed() {
    local n=$1 i
    if [ "$n" = 1 ]; then
        I config set core.https_address=127.0.0.1:8443
        I storage create default dir >/dev/null
    else
        each_member "$n" I storage create default dir; I storage create default dir >/dev/null
        each_member "$n" I network create incusbr0
    fi
    I config set "network.ovn.northbound_connection=unix:$L/ovn/nb.sock"
    I network create incusbr0 ipv4.address=10.88.0.1/24 ipv4.nat=true ipv4.dhcp.ranges=10.88.0.2-10.88.0.99 \
        ipv4.ovn.ranges=10.88.0.100-10.88.0.199 "ipv4.routes=$VIP4.0/24" \
        ipv6.address=fd42:88::1/64 ipv6.nat=true ipv6.dhcp.stateful=true ipv6.dhcp.ranges=fd42:88::2-fd42:88::ff \
        ipv6.ovn.ranges=fd42:88::100-fd42:88::1ff "ipv6.routes=${VIP6}/112" >/dev/null

    # Project k8s: a tenant with its own OVN network, fenced as an operator would.
    I project create k8s -c features.images=false -c features.networks=true -c features.profiles=true \
        -c features.storage.volumes=true >/dev/null
    # Project bridged: nodes on the host's bridge; networks are those of the default project.
    I project create bridged -c features.images=false -c features.networks=false -c features.profiles=true >/dev/null
    I network create ovn0 --project k8s --type=ovn network=incusbr0 ipv4.address=10.99.0.1/24 ipv4.nat=true \
        ipv6.address=fd42:99::1/64 ipv6.nat=true ipv4.dhcp=true ipv6.dhcp=true ipv6.dhcp.stateful=false >/dev/null
    I project set k8s restricted=true restricted.networks.uplinks=incusbr0 \
        "restricted.networks.subnets=incusbr0:$VIP4.0/24,incusbr0:${VIP6}/112" \
        restricted.containers.privilege=allow restricted.devices.nic=allow >/dev/null
    I profile device add default root disk path=/ pool=default --project k8s >/dev/null
    I profile device add default eth0 nic network=ovn0 name=eth0 --project k8s >/dev/null
    I profile device add default root disk path=/ pool=default --project bridged >/dev/null
    I profile device add default eth0 nic network=incusbr0 name=eth0 --project bridged >/dev/null
    I profile set default security.privileged=true --project k8s
    I profile set default security.privileged=true --project bridged
    for ((i = 1; i <= n; i++)); do roads "$i"; done
    I image import "$CACHE/node.tar.gz" --alias node >/dev/null

    # Certificates: admin (all), ccm (restricted to both projects of nodes), edge (to bridged and default, which
    # owns the bridge and so its forwards), other (to nothing of ours).
    local who
    for who in admin ccm edge other; do
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -days 3650 -subj "/CN=$who" \
            -keyout "$L/tls/$who.key" -out "$L/tls/$who.crt" 2>/dev/null
    done
    I project create empty >/dev/null
    I config trust add-certificate "$L/tls/admin.crt" --name admin
    I config trust add-certificate "$L/tls/ccm.crt" --name ccm --restricted --projects k8s,bridged
    I config trust add-certificate "$L/tls/edge.crt" --name edge --restricted --projects bridged,default
    I config trust add-certificate "$L/tls/other.crt" --name other --restricted --projects empty
    cp "$L/m1/inc/$([ "$n" = 1 ] && echo server || echo cluster).crt" "$L/tls/server.crt"
    nodes "$n"
}

# What a router in front of the cloud would do: send the balancers' addresses to the OVN network. By halves, which win
# against the whole ranges that Incus routes to the bridge: those it wants to set again when its daemon comes back.
roads() {
    local d a half
    a=$(I network get ovn0 volatile.network.ipv4.address --project k8s)
    for half in "$VIP4.0/25" "$VIP4.128/25"; do
        net "$1" ip route replace "$half" via "$a" dev incusbr0 2>/dev/null || true
    done
    a=$(I network get ovn0 volatile.network.ipv6.address --project k8s)
    for half in "${VIP6}/113" "${VIP6}8000/113"; do
        [ -z "$a" ] || net "$1" ip -6 route replace "$half" via "$a" dev incusbr0 2>/dev/null || true
    done
    for d in $(net "$1" ls /sys/class/net 2>/dev/null) incusbr0 incusovn1a incusovn1b incusovn2a incusovn2b incusovn3a incusovn3b; do
        case $d in incus*) net "$1" env "LD_LIBRARY_PATH=$ROOT/usr/lib/$TRIPLET" "$ROOT/sbin/ethtool" -K "$d" tx off >/dev/null 2>&1 || true ;; esac
    done
}

WANTED='k8s node-1 zone-a
k8s node-2 zone-b
k8s node-3 zone-a
bridged br-1 zone-a
bridged br-2 zone-b'

nodes() {
    local project name zone where
    while read -r project name zone; do
        where=(); [ "$1" = 1 ] || where=(--target "m$([ "$zone" = zone-a ] && echo 1 || echo 2)")
        I launch node "$name" --project "$project" -c "user.zone=$zone" "${where[@]}" >/dev/null 2>"$L/launch.log" ||
            { cat "$L/launch.log" >&2; die "instance $name"; }
    done <<<"$WANTED"
    wait_for 300 "addresses of the instances" all_have_addresses
}
all_have_addresses() {
    I list --project k8s -c n46 -f csv | awk -F, '$2 !~ /\./ || $3 !~ /:/ {bad=1} END {exit bad}' &&
        I list --project bridged -c n4 -f csv | awk -F, '$2 !~ /\./ {bad=1} END {exit bad}'
}

pod() {      # node, address
    local node=$1 address=$2 name="$1-pod" p project=k8s via=169.254.1.1 bits=32
    case $node in br-*) project=bridged ;; esac
    case $address in *:*) via=fe80::1 bits=128 ;; esac
    p=$(inside 1 incus list "^$node\$" --project $project -c p -f csv | tail -1)
    [ -n "$p" ] && [ "$p" != 0 ] || die "$node does not run"
    inside 1 bash -ec '
        name=$1 p=$2 address=$3 via=$4 bits=$5
        if ! ip -n $name link show eth0 >/dev/null 2>&1; then      # new, or the node it stood behind was recreated
            ip netns delete $name 2>/dev/null || true
            ip netns add $name
            ip -n $name link add eth0 type veth peer name pod0 netns $p
            ip -n $name link set lo up; ip -n $name link set eth0 up
            ip netns exec $name ethtool -K eth0 tx off >/dev/null
            nsenter -t $p -n sysctl -qw net.ipv4.ip_forward=1
            nsenter -t $p -n ip link set pod0 up
            nsenter -t $p -n ip addr add 169.254.1.1/32 dev pod0
            nsenter -t $p -n ip addr add fe80::1/64 dev pod0 nodad
        fi
        ip -n $name addr add $address/$bits dev eth0
        [ $bits = 128 ] || ip -n $name route replace $via dev eth0
        ip -n $name route replace default via $via dev eth0
        nsenter -t $p -n ip route replace $address dev pod0' - "$name" "$p" "$address" "$via" "$bits"
    echo "$name"
}


reset() {
    local p a net_ url n; n=$(cat "$L/members")
    rm -f "$L"/m[0-9]/hold; wait_for 300 "Incus" curl -sf --unix-socket "$L/m1/inc/unix.socket" http://i/1.0
    for net_ in k8s/ovn0 default/ovn0 default/incusbr0; do
        p=${net_%/*}
        for url in $(I query "/1.0/networks/${net_#*/}/load-balancers?project=$p" 2>/dev/null | tr -d '[]", ') \
                   $(I query "/1.0/networks/${net_#*/}/forwards?project=$p" 2>/dev/null | tr -d '[]", '); do
            I query -X DELETE "$url?project=$p" >/dev/null || true
        done
    done
    for p in k8s bridged; do
        for a in $(I list --project $p -c n -f csv); do I delete --force "$a" --project $p >/dev/null 2>&1 || true; done
        for a in $(I storage volume list default --project $p -c tn -f csv 2>/dev/null | sed -n 's/^custom,//p'); do
            I storage volume delete default "$a" --project $p >/dev/null 2>&1 || true; done
    done
    nodes "$n"
}

