#!/usr/bin/env bash
# PID 1 of a true node, in namespaces of its own: node.sh NAME FOLDER ADDRESS GATEWAY ARCHIVE. Without a gateway
# its network is there already, and ADDRESS are the addresses that it has.
set -eu
name=$1 N=$2 address=$3 gateway=$4 archive=$5
hostname "$name"

# The paths that programs expect, without leaving anything on the host.
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/log
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir -p /run/containerd /var/lib/kubelet /var/lib/cni
mount --bind "$N/kubelet" /var/lib/kubelet
mount --make-shared /var/lib/kubelet
# No name can be resolved: a pull from a registry fails at once.
: >/run/no-names
mount --bind /run/no-names /etc/resolv.conf
# A kubelet sets these for the whole kernel, unless it reads what it wants there.
for wanted in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  echo "${wanted#*=}" >/run/sysctl-"${wanted##*/}"
  mount --bind /run/sysctl-"${wanted##*/}" "/proc/sys/${wanted%=*}" 2>/dev/null || :
done

echo ready >"$N/up"
if [ -n "$gateway" ]; then
  while [ ! -e "$N/go" ]; do sleep 0.05; done
  ip link set lo up
  ip addr add "$address" dev eth0
  ip link set eth0 up
  ip route add default via "$gateway"
else # a host that forwards takes router advertisements only with 2
  echo 2 >/proc/sys/net/ipv6/conf/eth0/accept_ra
  echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
fi
echo 1 >/proc/sys/net/ipv4/ip_forward

export PATH=$NODES:$PATH
containerd --config "$N/containerd.toml" >"$N/containerd.log" 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 0.1; done
ctr --namespace k8s.io images import "$archive" >/dev/null
touch "$N/images"

"$NODES/kube-proxy" --config="$N/proxy.yaml" >"$N/kube-proxy.log" 2>&1 &
# The network add-on: a bridge for the pod network that kube-controller-manager gave to this Node.
(
  cidr=
  until [ -n "$cidr" ]; do
    sleep 0.3
    cidr=$("$KUBECTL" --kubeconfig="$N/kubelet.kubeconfig" get node "$name" -o 'jsonpath={.spec.podCIDR}' 2>/dev/null) || :
  done
  cat >"$N/cni/10-lab.conflist.new" <<J
{"cniVersion": "1.0.0", "name": "lab", "plugins": [
  {"type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$cidr"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
J
  mv "$N/cni/10-lab.conflist.new" "$N/cni/10-lab.conflist"
) &
while :; do
  "$NODES/kubelet" --config="$N/kubelet.yaml" --kubeconfig="$N/kubelet.kubeconfig" --hostname-override="$name" \
    --cloud-provider=external --node-ip="${address%/*}" --node-labels="${LABELS:-}" >>"$N/kubelet.log" 2>&1 || :
  sleep 1
done
