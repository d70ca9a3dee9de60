#!/bin/bash
# Starts the lab from nothing, or says that it runs already.
set -euo pipefail
. "$(dirname "$0")/env.sh"; . "$HERE/process.sh"
SERVICES="mariadb rabbitmq keystone placement nova-api glance-api neutron-api cinder-api octavia-api octavia-worker"
running() { local n; [ -e "$RUN/ready" ] || return 1; for n in $SERVICES; do alive $n || return 1; done; }
umask 077
mkdir -p "$OSLAB_CACHE"
exec 8>"$OSLAB_CACHE/.up-$OSLAB_PORT_BASE.lock"   # closed (8>&-) for everything that lives on
flock -n 8 || { echo "another start goes on; waiting for it" >&2; flock 8; }
if [ -e "$RUN" ] && [ ! -e "$RUN/.openstack-lab" ] && [ -n "$(ls -A "$RUN")" ]; then fail "$RUN exists and is not a lab's"; fi
mkdir -p "$RUN"; [ -O "$RUN" ] || fail "$RUN belongs to someone else"
touch "$RUN/.openstack-lab"
if running; then echo "runs already: $RUN"; exit 0; fi
"$HERE/down.sh" wipe 8>&-
mkdir -p "$RUN" "$LOGS" "$PIDS" "$RUN/calls"; touch "$RUN/.openstack-lab"; : >"$RUN/timing.txt"
trap 'c=$?; [ $c = 0 ] || { stop_all; rm -rf "$RUN-failed"; cp -r "$LOGS" "$RUN-failed"; cp "$RUN/timing.txt" "$RUN-failed"
  echo "the start failed; what ran is ended; logs: $RUN-failed" >&2; }' EXIT
for p in $P_KEYSTONE $P_NOVA $P_PLACEMENT $P_NEUTRON $P_OCTAVIA $P_CINDER $P_GLANCE $P_DB $P_MQ $P_EPMD $P_DIST; do
  ! (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || fail "port $p is taken: set OSLAB_PORT_BASE"
done
"$HERE/install.sh" 8>&-; mark "install (nothing to do when done before)"
. "$HERE/configs.sh"

# ---------------------------------------------------------------- database and message queue
mkdir -p "$RUN/mysql-tmp" "$RUN"/{keystone,nova,placement,neutron,octavia,cinder,glance}/lock "$RUN"/nova/instances "$RUN"/glance/{images,staging,tasks}
# schemas, and Keystone with its users: the same for every start with these versions and ports
ARCHIVE=$OSLAB_CACHE/schema-$(cat "$HERE"/{env.sh,configs.sh,up.sh,seed.py,requirements.lock,requirements.txt} - <<<"$PY_VERSION $OSLAB_PORT_BASE $(/usr/sbin/mariadbd --version 2>/dev/null)" | sha256sum | cut -c1-12).tar.gz
root=; [ "$(id -u)" != 0 ] || root=--user=root
fresh=1; if [ -e "$ARCHIVE" ] && tar -C "$RUN" -xzf "$ARCHIVE" 2>/dev/null; then fresh=0; fi
if [ $fresh = 1 ]; then
  rm -rf "$RUN/mysql"; mkdir -p "$RUN/mysql"
  mariadb-install-db --no-defaults $root --datadir="$RUN/mysql" --auth-root-authentication-method=normal --skip-test-db >"$LOGS/install-db.out" 2>&1
fi
start_mariadb() { start mariadb /usr/sbin/mariadbd --no-defaults $root --datadir="$RUN/mysql" --tmpdir="$RUN/mysql-tmp" \
  --bind-address=127.0.0.1 --port=$P_DB --socket="$RUN/mysql.sock" --pid-file="$RUN/mysql.pid" \
  --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 --sync-binlog=0 --innodb-buffer-pool-size=192M \
  --innodb-log-file-size=64M --max-connections=400 --performance-schema=OFF --skip-name-resolve --character-set-server=utf8mb3 8>&-; }
start_mariadb
mkdir -p "$RUN/mq"
cat >"$RUN/mq/rabbitmq.conf" <<E
listeners.tcp.1 = 127.0.0.1:$P_MQ
vm_memory_high_watermark.absolute = 512MB
disk_free_limit.absolute = 50MB
log.file.level = warning
loopback_users = none
E
printf '[{kernel,[{inet_dist_use_interface,{127,0,0,1}}]}].\n' >"$RUN/mq/advanced.config"; touch "$RUN/mq/enabled_plugins"
export ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT=$P_EPMD
# RabbitMQ's scripts read LOGS, BASE and the like: it gets a clean environment
mqenv=(env -i PATH="$PATH" LANG=C.UTF-8 HOME="$RUN/mq" ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT=$P_EPMD
  RABBITMQ_NODENAME=ostack@localhost RABBITMQ_NODE_PORT=$P_MQ RABBITMQ_NODE_IP_ADDRESS=127.0.0.1
  RABBITMQ_DIST_PORT=$P_DIST RABBITMQ_MNESIA_BASE="$RUN/mq/mnesia" RABBITMQ_LOG_BASE="$LOGS" RABBITMQ_PID_FILE="$RUN/mq/pid"
  RABBITMQ_CONFIG_FILE="$RUN/mq/rabbitmq.conf" RABBITMQ_ADVANCED_CONFIG_FILE="$RUN/mq/advanced.config"
  RABBITMQ_ENABLED_PLUGINS_FILE="$RUN/mq/enabled_plugins" RABBITMQ_CONF_ENV_FILE=/dev/null
  RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+sbwt none +sbwtdcpu none +sbwtdio none +S 2:2")
start epmd "${mqenv[@]}" epmd -address 127.0.0.1 -port $P_EPMD 8>&-
wait_port epmd $P_EPMD
start rabbitmq "${mqenv[@]}" /usr/lib/rabbitmq/bin/rabbitmq-server 8>&-
wait_port mariadb $P_DB
mark "database"

sql() { mariadb --no-defaults -uroot -h127.0.0.1 -P$P_DB "$@"; }
sync() { local n=$1; shift; "$@" >>"$LOGS/sync-$n.out" 2>&1 || { tail -5 "$LOGS/sync-$n.out" >&2; fail "schema of $n: see $LOGS/sync-$n.out"; }; }
KC="--config-file $ETC/keystone/keystone.conf"; NM="--config-file $ETC/nova/nova.conf"; NC="$NM --config-file $ETC/nova/nova-db.conf"
PC="--config-file $ETC/placement/placement.conf"; UC="--config-file $ETC/neutron/neutron.conf --config-file $ETC/neutron/ml2_conf.ini"
OC="--config-file $ETC/octavia/octavia.conf"; CC="--config-file $ETC/cinder/cinder.conf"; GC="--config-file $ETC/glance/glance-api.conf"
if [ $fresh = 1 ]; then
  for d in keystone nova nova_api nova_cell0 placement neutron octavia cinder glance; do sql -e "CREATE DATABASE IF NOT EXISTS $d"; done
  # two queues side by side: about one for each core of a small machine
  ( sync keystone "$V/bin/keystone-manage" $KC db_sync
    sync placement "$V/bin/placement-manage" $PC db sync
    sync nova_api "$V/bin/nova-manage" $NC api_db sync
    sync nova "$V/bin/nova-manage" $NC cell_v2 map_cell0 --database_connection "$(dburl nova_cell0)"
    sync nova "$V/bin/nova-manage" $NC db sync
    sync nova "$V/bin/nova-manage" $NC cell_v2 create_cell --name cell1 ) & a=$!
  ( sync neutron "$V/bin/neutron-db-manage" $UC upgrade heads
    sync glance "$V/bin/glance-manage" $GC db_sync
    sync octavia "$V/bin/octavia-db-manage" $OC upgrade head
    sync cinder "$V/bin/cinder-manage" $CC db sync ) & b=$!
  wait $a; wait $b
  own=(); [ "$(id -u)" != 0 ] || own=(--keystone-user root --keystone-group root)
  sync keystone "$V/bin/keystone-manage" $KC fernet_setup "${own[@]}"
  sync keystone "$V/bin/keystone-manage" $KC credential_setup "${own[@]}"
  sync keystone "$V/bin/keystone-manage" $KC bootstrap --bootstrap-password $PW --bootstrap-region-id $REGION \
    --bootstrap-{admin,public,internal}-url=http://127.0.0.1:$P_KEYSTONE/v3
  mark "database schemas"
fi
OS_KEYSTONE_CONFIG_FILES=$ETC/keystone/keystone.conf wsgi keystone $P_KEYSTONE keystone.wsgi.api 4 8>&-
wait_http keystone $P_KEYSTONE /v3
mark "keystone"
if [ $fresh = 1 ]; then
  "$V/bin/python" "$HERE/seed.py" identity
  # a clean stop, one archive of the data directory and the keys, and a start again
  for p in $(members mariadb); do kill "$p"; done; while [ -n "$(members mariadb)" ]; do sleep 0.1; done
  { ls -t "$OSLAB_CACHE"/schema-*.tar.gz 2>/dev/null || true; } | tail -n +6 | xargs -r rm -f   # the five newest stay
  tar -C "$RUN" -czf "$ARCHIVE.$$" mysql keystone && mv "$ARCHIVE.$$" "$ARCHIVE"
  start_mariadb; wait_port mariadb $P_DB
  mark "users, endpoints; archived for the next start"
fi
wait_port rabbitmq $P_MQ
mark "rabbitmq (rest of its start)"

# ---------------------------------------------------------------- the rest, started together
{
  OS_PLACEMENT_CONFIG_DIR=$ETC/placement wsgi placement $P_PLACEMENT placement.wsgi.api 2
  OS_NOVA_CONFIG_DIR=$ETC/nova OS_NOVA_CONFIG_FILES="$V/etc/nova/api-paste.ini;nova.conf;nova-db.conf" wsgi nova-api $P_NOVA nova.wsgi.osapi_compute 4
  OS_GLANCE_CONFIG_DIR=$ETC/glance wsgi glance-api $P_GLANCE glance.wsgi.api 2
  OS_NEUTRON_CONFIG_DIR=$ETC/neutron OS_NEUTRON_CONFIG_FILES="neutron.conf;ml2_conf.ini" wsgi neutron-api $P_NEUTRON neutron.wsgi.api 4
  start nova-conductor "$V/bin/nova-conductor" $NC --log-file "$LOGS/nova-conductor.log"
  start nova-scheduler "$V/bin/nova-scheduler" $NC --log-file "$LOGS/nova-scheduler.log"
} 8>&-
wait_http placement $P_PLACEMENT /
{
  for c in $OSLAB_COMPUTES; do h=${c%%:*}
    printf "[DEFAULT]\nhost = $h\nstate_path = $RUN/nova/$h\n" >"$ETC/nova/$h.conf"; mkdir -p "$RUN/nova/$h/instances"
    start "nova-compute-$h" "$V/bin/nova-compute" $NM --config-file "$ETC/nova/$h.conf" --log-file "$LOGS/nova-compute-$h.log"
  done
  LAB_ARGV="$CC" wsgi cinder-api $P_CINDER cinder.wsgi.api 2
  start cinder-scheduler "$V/bin/cinder-scheduler" $CC --log-file "$LOGS/cinder-scheduler.log"
  start cinder-volume "$V/bin/cinder-volume" $CC --log-file "$LOGS/cinder-volume.log"
} 8>&-
wait_http nova-api $P_NOVA /; wait_http glance-api $P_GLANCE /; wait_http neutron-api $P_NEUTRON /
mark "nova, glance, neutron"
"$V/bin/python" "$HERE/seed.py" cloud 8>&-
mark "flavors, images, hosts and zones"
openssl req -x509 -newkey rsa:2048 -days 3650 -subj /CN=octavia-ca -passout pass:foobar -keyout "$RUN/octavia/ca.key" -out "$RUN/octavia/ca.pem" 2>/dev/null
. "$RUN/octavia/ids"
# nova: amphorae are servers of the fake Nova and every port is Neutron's; split: the worker's compute and network drivers
# are no-ops, so the VIP's port stays behind when a balancer goes
case $OSLAB_OCTAVIA in
  nova)  d="s/@COMPUTE@/compute_nova_driver/;s/@IMAGE@/image_glance_driver/"; w=;;
  split) d="s/@COMPUTE@/compute_noop_driver/;s/@IMAGE@/image_noop_driver/"; w="s/^network_driver = .*/network_driver = network_noop_driver/";;
  *) fail "OSLAB_OCTAVIA is nova or split";;
esac
sed -i "s/@MGMT_NET@/$MGMT_NET/;s/@MGMT_SG@/$MGMT_SG/;$d" "$ETC/octavia/octavia.conf"
sed "$w" "$ETC/octavia/octavia.conf" >"$ETC/octavia/octavia-worker.conf"
{
  LAB_ARGV="$OC" wsgi octavia-api $P_OCTAVIA octavia.wsgi.api 4
  start octavia-worker "$V/bin/octavia-worker" --config-file "$ETC/octavia/octavia-worker.conf"
  start octavia-driver-agent "$V/bin/octavia-driver-agent" $OC
} 8>&-
"$V/bin/python" "$HERE/seed.py" tenant 8>&-
mark "servers, networks, router, volumes"
wait_http octavia-api $P_OCTAVIA /; wait_http cinder-api $P_CINDER /
"$V/bin/python" "$HERE/seed.py" octavia 8>&-
touch "$RUN/ready"
mark "octavia; all up"
