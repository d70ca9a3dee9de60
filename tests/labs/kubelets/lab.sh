#!/usr/bin/env bash
# Three true nodes around a real control plane, for the product and its simulated cloud. See README.md.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(cd "$HERE/../../.." && pwd)
RUN=${KUBELETS_LAB_STATE:-${TMPDIR:-/tmp}/ccm-kubelets-$(id -u)}
NET=10.97.0 HOST=10.97.0.254 POD_CIDR=10.244.0.0/16 SERVICES=10.96.0.0/16 COUNT=3
POD_IMAGE=docker.io/library/lab-pod:1
IN=(false)

usage() {
  cat <<'U'
lab.sh install              build (once) what the lab runs, and install Debian's part
lab.sh up | down            start it | end all of it and remove its state
lab.sh ccm [FLAGS]          start the product on the control plane's host, with the rights that `manifests` prints
lab.sh kubectl ARGS         as administrator
lab.sh exec [NODE] -- CMD   run a command on the control plane's host, or on a node
lab.sh import FILE          load an archive of an image on all nodes that run
lab.sh approve              sign the serving certificates that kubelets asked for
lab.sh flags FILE           print the product's flags in this cluster; the cloud's configuration is in FILE
lab.sh power vm-N off|on|end    stop a machine and all that runs on it; start it again; end it for good
lab.sh stop NAME [SIGNAL]   end a process: ccm, kube-apiserver, ...
lab.sh status               what runs
Logs are in the folder `logs` of the state.
U
  exit 64
}
die() { echo "lab: $*" >&2; exit 1; }

# ------------------------------------------------------------------ processes
# A process is known by its id and its start time, so that an id which the kernel gave to another is never touched.
born() { local s; s=$(cat "/proc/$1/stat" 2>/dev/null) || return 0; s=${s##*) }; set -- $s; [ "$1" = Z ] || echo "${20}"; }
alive() { local p t; [ -s "$RUN/pids/$1" ] || return 1; read -r p t <"$RUN/pids/$1"; [ -n "$t" ] && [ "$(born "$p")" = "$t" ]; }
pid() { cut -d' ' -f1 "$RUN/pids/$1"; }
# start <name> <command>...: in the background, in the network of `hub`; does nothing when it runs already
start() {
  local name=$1 p
  shift
  alive "$name" && return
  setsid "${IN[@]}" "$@" >>"$RUN/logs/$name.log" 2>&1 </dev/null 9>&- &
  p=$!
  echo "$p $(born $p)" >"$RUN/pids/$name"
}
start_here() { local IN=(); start "$@"; }
# stop <name> [signal]: and wait for its end
stop() {
  local p
  if alive "$1"; then
    p=$(pid "$1")
    kill "-${2:-TERM}" "$p"
    for _ in $(seq 100); do alive "$1" || break; sleep 0.1; done
    ! alive "$1" || kill -KILL "$p"
  fi
  rm -f "$RUN/pids/$1"
}
running() { ls -tr "$RUN/pids" 2>/dev/null || true; }
# wait_for <process or -> <tenths of seconds> <what> <command>...
wait_for() {
  local process=$1 tenths=$2 what=$3
  shift 3
  for ((; tenths > 0; tenths--)); do
    "$@" >/dev/null 2>&1 && return
    [ "$process" = - ] || alive "$process" || { tail -5 "$RUN/logs/$process.log" >&2; die "$process ended"; }
    sleep 0.1
  done
  die "$what did not come; logs are in $RUN/logs"
}

# ------------------------------------------------------------------ programs
PACKAGES="runc containernetworking-plugins conntrack nftables iproute2 util-linux openssl curl"
missing() {
  local tool
  for tool in unshare nsenter ip nft runc openssl conntrack curl; do command -v $tool >/dev/null || echo $tool; done
  [ -x /usr/lib/cni/bridge ] || echo "the network plugins"
}
install() {
  local group
  [ -z "$(missing)" ] || { apt-get update -q && apt-get install -qy --no-install-recommends $PACKAGES; } >&2
  for group in servers kubelets nodes; do (cd "$REPO" && python3 -m tests.support.kube.build $group); done
}
find_programs() {
  local folders
  [ "$command" != up ] || install >"$RUN/programs"
  mapfile -t folders <"$RUN/programs"
  SERVERS=${folders[0]} CONTROLLERS=${folders[1]} NODES=${folders[2]}
  [ -x "$REPO/.venv/bin/ccm-supervisor" ] || die "no $REPO/.venv: run make venv"
}
kubectl() { "${IN[@]}" env KUBECONFIG="$RUN/admin.kubeconfig" KUBECACHEDIR="$RUN/kubectl" "$SERVERS/kubectl" "$@"; }

# ------------------------------------------------------------------ keys, tokens, kubeconfigs
# certificate <name> <subject> [alternative names]: signed by the lab's CA
certificate() {
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "$2" \
    -keyout "$RUN/pki/$1.key" -out "$RUN/pki/$1.csr" 2>/dev/null
  openssl x509 -req -in "$RUN/pki/$1.csr" -CA "$RUN/pki/ca.crt" -CAkey "$RUN/pki/ca.key" -CAcreateserial -days 30 \
    -extfile <(echo "extendedKeyUsage=serverAuth,clientAuth"; [ -z "${3:-}" ] || echo "subjectAltName=$3") \
    -out "$RUN/pki/$1.crt" 2>/dev/null
}
keys() {
  local i
  [ ! -e "$RUN/pki/tokens.csv" ] || return 0
  mkdir -p -m 700 "$RUN/pki"
  # A CA without key usage, which is a common kind: Python from 3.13 on refuses it by default.
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=lab \
    -keyout "$RUN/pki/ca.key" -out "$RUN/pki/ca.crt" 2>/dev/null
  certificate apiserver /CN=kube-apiserver "IP:$HOST,IP:10.96.0.1,DNS:kubernetes.default.svc"
  certificate kubelet-client "/O=system:masters/CN=kube-apiserver-kubelet-client"
  openssl genrsa -out "$RUN/pki/accounts.key" 2048 2>/dev/null
  {
    token admin system:masters
    token system:kube-controller-manager
    token system:kube-scheduler
    token system:kube-proxy
    for i in $(seq $COUNT); do token "system:node:vm-$i" system:nodes; done
  } >"$RUN/pki/tokens.csv"
}
token() { echo "$(head -c 18 /dev/urandom | base64 | tr +/ -_),$1,$1${2:+,$2}"; }
# kubeconfig <user> <file> [token]
kubeconfig() {
  local secret=${3:-$(awk -F, -v user="$1" '$2 == user {print $1}' "$RUN/pki/tokens.csv")}
  cat >"$2" <<Y
apiVersion: v1
kind: Config
current-context: lab
contexts: [{name: lab, context: {cluster: lab, user: lab}}]
clusters: [{name: lab, cluster: {server: "https://$HOST:6443", certificate-authority: $RUN/pki/ca.crt}}]
users: [{name: lab, user: {token: "$secret"}}]
Y
  chmod 600 "$2"
}

# ------------------------------------------------------------------ the control plane, the cloud, the product
hub() { IN=(nsenter -t "$(pid hub)" -n); }
start_hub() {
  alive hub && return
  rm -f "$RUN/hub"
  start_here hub unshare -n sh -c "touch '$RUN/hub'; exec sleep infinity"
  wait_for hub 50 "the hub" test -e "$RUN/hub"
  hub
  # Load balancers have addresses of 100.64.0.0/10; cloud.py sends what goes there to nodes.
  "${IN[@]}" sh -e <<S
ip link set lo up
ip link add lab0 type bridge
ip addr add $HOST/24 dev lab0
ip link set lab0 up
ip route add 100.64.0.0/10 dev lab0
echo 1 >/proc/sys/net/ipv4/ip_forward
S
}
control_plane() {
  local etcd=http://$HOST:2379 peer=http://$HOST:2380
  keys
  kubeconfig admin "$RUN/admin.kubeconfig"
  kubeconfig system:kube-controller-manager "$RUN/controllers.kubeconfig"
  kubeconfig system:kube-scheduler "$RUN/scheduler.kubeconfig"
  cat >"$RUN/audit.yaml" <<'Y'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata}]
Y
  start etcd "$SERVERS/etcd" --name=lab --data-dir="$RUN/etcd" --listen-client-urls="$etcd" --advertise-client-urls="$etcd" \
    --listen-peer-urls="$peer" --initial-advertise-peer-urls="$peer" --initial-cluster="lab=$peer" \
    --unsafe-no-fsync --log-level=warn
  start kube-apiserver "$SERVERS/kube-apiserver" --etcd-servers="$etcd" --bind-address="$HOST" --advertise-address="$HOST" \
    --secure-port=6443 --tls-cert-file="$RUN/pki/apiserver.crt" --tls-private-key-file="$RUN/pki/apiserver.key" \
    --client-ca-file="$RUN/pki/ca.crt" --token-auth-file="$RUN/pki/tokens.csv" --authorization-mode=Node,RBAC \
    --enable-admission-plugins=NodeRestriction --allow-privileged=true \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$RUN/pki/accounts.key" \
    --service-account-signing-key-file="$RUN/pki/accounts.key" --service-cluster-ip-range="$SERVICES" \
    --kubelet-client-certificate="$RUN/pki/kubelet-client.crt" --kubelet-client-key="$RUN/pki/kubelet-client.key" \
    --kubelet-certificate-authority="$RUN/pki/ca.crt" --kubelet-preferred-address-types=InternalIP \
    --audit-policy-file="$RUN/audit.yaml" --audit-log-path="$RUN/audit.log" --audit-log-maxsize=10240 \
    --shutdown-watch-termination-grace-period=1s
  wait_for kube-apiserver 600 "the API server" kubectl get --raw /readyz
  wait_for - 100 "namespace kube-system" kubectl get namespace kube-system
  # A Node is not ready after 20 s of silence, instead of 50: what waits for that is tested sooner.
  start kube-controller-manager "$CONTROLLERS/kube-controller-manager" --kubeconfig="$RUN/controllers.kubeconfig" \
    --cloud-provider=external --allocate-node-cidrs --cluster-cidr="$POD_CIDR" --service-cluster-ip-range="$SERVICES" \
    --use-service-account-credentials --service-account-private-key-file="$RUN/pki/accounts.key" \
    --root-ca-file="$RUN/pki/ca.crt" --cluster-signing-cert-file="$RUN/pki/ca.crt" \
    --cluster-signing-key-file="$RUN/pki/ca.key" --bind-address="$HOST" --secure-port=10257 \
    --leader-elect=false --node-monitor-grace-period=20s --node-monitor-period=2s
  start kube-scheduler "$NODES/kube-scheduler" --kubeconfig="$RUN/scheduler.kubeconfig" --leader-elect=false \
    --bind-address="$HOST"
}
cloud() {
  [ -e "$RUN/cloud.url" ] || start cloud env PYTHONPATH="$REPO" "$REPO/.venv/bin/python" -m tests.labs.kubelets.cloud \
    "$HOST" "$NET" "$COUNT" "$RUN/cloud.url"
  wait_for cloud 200 "the cloud" test -s "$RUN/cloud.url"
  printf '[Global]\nurl = %s\ntoken = token-of-a-simulated-cloud\n' "$(cat "$RUN/cloud.url")" >"$RUN/cloud.conf"
}
flags() { # of the product; $1 is where the configuration is
  echo --cloud-provider=simulated --cloud-config="$1" --cluster-name=lab --cluster-cidr="$POD_CIDR" \
    --use-service-account-credentials
}
product() {
  local ccm=$REPO/.venv/bin/ccm-supervisor
  "$ccm" manifests --kind=none -- $(flags "$RUN/cloud.conf") | kubectl apply -f - >/dev/null
  kubeconfig ccm "$RUN/ccm.kubeconfig" "$(kubectl -n kube-system create token ccm-supervisor --duration=24h)"
  start ccm "$ccm" start $(flags "$RUN/cloud.conf") --kubeconfig="$RUN/ccm.kubeconfig" --runtime-dir="$RUN/ccm" \
    --bind-address="$HOST" -v=2 "$@"
}

# ------------------------------------------------------------------ nodes
# Each is a process that is PID 1 of its own namespaces, so that with it everything on the node ends.
start_node() { # node-vm-N
  local node=${1#node-} number=${1##*-} N=$RUN/${1#node-} inner
  alive "$1" && return
  mkdir -p "$N"/{containerd,kubelet,cni}
  rm -f "$N/images" "$N/up" "$N/go"
  kubeconfig "system:node:$node" "$N/kubelet.kubeconfig"
  kubeconfig system:kube-proxy "$N/proxy.kubeconfig"
  bash "$HERE/settings.sh" "$node" "$N" "$RUN/pki/ca.crt" "$POD_IMAGE" "$POD_CIDR"
  start_here "$1" env KUBECTL="$SERVERS/kubectl" NODES="$NODES" \
    unshare -n -m -u -i -p --fork --kill-child --mount-proc --propagation private \
    bash "$HERE/node.sh" "$node" "$N" "$NET.$number/24" "$HOST" "$RUN/pod.tar"
  wait_for "$1" 50 "namespaces of $node" test -s "$N/up"
  inner=$(inner "$node")
  "${IN[@]}" ip link add "veth$number" type veth peer name eth0 netns "$inner"
  "${IN[@]}" ip link set "veth$number" master lab0 up
  touch "$N/go"
}
# The host's id of the process that is 1 on the node.
inner() { local p; p=$(pid "node-$1"); cut -d' ' -f1 "/proc/$p/task/$p/children"; }
on_node() { local p; p=$(inner "$1"); shift; nsenter -t "$p" -n -m -u -i -p env PATH="$NODES:$PATH" "$@"; }
run_in() { # [NODE] -- command
  local node=$1
  shift
  if [ "$node" = -- ]; then "${IN[@]}" "$@"; else shift; on_node "$node" "$@"; fi
}
import() {
  local i
  for ((i = 1; i <= COUNT; i++)); do
    ! alive "node-vm-$i" || on_node "vm-$i" ctr --namespace k8s.io images import "$(realpath "$1")"
  done
}
power() { # vm-N off|on|end
  local action
  case ${2:-} in off) action=stop ;; on) action=start ;; end) action=terminate ;; *) usage ;; esac
  "${IN[@]}" curl -sSf -o /dev/null -X POST "$(cat "$RUN/cloud.url")/admin/machines/$1/$action"
  if [ "$2" = on ]; then start_node "node-$1"; else stop "node-$1" KILL; fi
}
approve() { kubectl get csr -o name | xargs -r "${IN[@]}" env KUBECONFIG="$RUN/admin.kubeconfig" "$SERVERS/kubectl" certificate approve; }
nodes_are() { [ "$(kubectl get nodes -o name | wc -l)" -ge "$1" ]; }

up() {
  local begun=$SECONDS i
  [ ${#RUN} -le 60 ] || die "too long for sockets: $RUN (set KUBELETS_LAB_STATE)"
  start_hub
  control_plane
  cloud
  [ -e "$RUN/pod.tar" ] || (cd "$REPO" && .venv/bin/python -m tests.labs.kubelets.image "$NODES/pod" "${POD_IMAGE##*/}" "$RUN/pod.tar")
  for ((i = 1; i <= COUNT; i++)); do start_node "node-vm-$i"; done
  wait_for - 900 "$COUNT Nodes" nodes_are "$COUNT"
  for ((i = 1; i <= COUNT; i++)); do wait_for "node-vm-$i" 600 "containerd of vm-$i" test -e "$RUN/vm-$i/images"; done
  echo "lab: up in $((SECONDS - begun)) s: $0 kubectl get nodes" >&2
}
down() {
  local name
  for name in $(running | grep -E '^(ccm|node-)' || true); do stop "$name" KILL; done
  for name in $(running | tac); do case $name in etcd | kube-apiserver | hub) ;; *) stop "$name" ;; esac; done
  for name in kube-apiserver etcd hub; do stop "$name"; done
  # Empty cgroups are what is left of containers.
  find /sys/fs/cgroup -depth -type d -path '*/k8s.io*' -exec rmdir {} + 2>/dev/null || true
  rm -rf --one-file-system "$RUN" "$RUN.lock"
}

[ $# -ge 1 ] || usage
command=$1
shift
[ "$(id -u)" = 0 ] || die "needs root: namespaces, containers"
case $command in
  install) ;;
  up) mkdir -p -m 700 "$RUN"/{pids,logs} ;;
  down) [ -d "$RUN" ] || exit 0 ;;
  *) [ -d "$RUN" ] || die "it is not up" ;;
esac
# Only one `up` or `down` at a time; what it starts must not hold the lock.
case $command in up | down) exec 9>"$RUN.lock"; flock 9 ;; esac
! alive hub || hub
{ # read as a whole, so that this file may be edited while it runs
case $command in
  install) install ;;
  down) down ;;
  status) for name in $(running); do alive "$name" && echo "$name $(pid "$name")" || echo "$name ended"; done ;;
  flags) flags "$@" ;;
  stop) [ $# -ge 1 ] || usage; stop "$@" ;;
  up | ccm | kubectl | exec | import | approve | power)
    find_programs
    case $command in
      ccm) product "$@" ;;
      exec) run_in "$@" ;;
      *) $command "$@" ;;
    esac ;;
  *) usage ;;
esac
exit
}
