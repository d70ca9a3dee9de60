# Writes every configuration file under $ETC; sourced by up.sh.
mkdir -p $ETC/{keystone,nova,placement,neutron,octavia,cinder,glance}
zones() { for c in $OSLAB_COMPUTES; do echo ${c##*:}; done | sort -u; }
dburl() { echo "mysql+pymysql://root@127.0.0.1:$P_DB/$1?charset=utf8mb3"; }
authtoken() { cat <<X
[keystone_authtoken]
www_authenticate_uri = http://127.0.0.1:$P_KEYSTONE/v3
$(creds)
token_cache_time = ${OSLAB_TOKEN_CACHE:-300}
service_token_roles_required = true
service_token_roles = service
X
}
creds() { cat <<X
auth_url = http://127.0.0.1:$P_KEYSTONE/v3
auth_type = password
username = svc
password = $PW
project_name = service
user_domain_id = default
project_domain_id = default
region_name = $REGION
X
}
dbsec() { cat <<X
[database]
connection = $(dburl $1)
max_pool_size = 10
X
}
mq() { cat <<X
[oslo_messaging_rabbit]
rabbit_quorum_queue = false
amqp_durable_queues = false
[oslo_messaging_notifications]
driver = noop
X
}

cat > $ETC/keystone/keystone.conf <<X
[DEFAULT]
[cache]
enabled = true
backend = dogpile.cache.memory
$(dbsec keystone)
[identity]
password_hash_rounds = 4
[token]
provider = fernet
expiration = $OSLAB_TOKEN_SECONDS
[fernet_tokens]
key_repository = $RUN/keystone/fernet-keys
[fernet_receipts]
key_repository = $RUN/keystone/fernet-keys
[credential]
key_repository = $RUN/keystone/credential-keys
[oslo_messaging_notifications]
driver = noop
X

cat > $ETC/placement/placement.conf <<X
[DEFAULT]
[placement_database]
connection = $(dburl placement)
[api]
auth_strategy = keystone
$(authtoken)
X

cat > $ETC/nova/nova.conf <<X
[DEFAULT]
transport_url = $MQ_URL
my_ip = 127.0.0.1
state_path = $RUN/nova
compute_driver = fake.FakeDriver
debug = false
enabled_apis = osapi_compute
allow_resize_to_same_host = true
default_availability_zone = nova
osapi_compute_workers = 1
rpc_response_timeout = 60
service_down_time = 600
report_interval = 60
update_resources_interval = 20
block_device_allocate_retries = 60
vif_plugging_is_fatal = false
vif_plugging_timeout = 0
[api]
auth_strategy = keystone
max_limit = 1000
[wsgi]
api_paste_config = $V/etc/nova/api-paste.ini
[quota]
instances = 100000
cores = 1000000
ram = 1000000000
key_pairs = 10000
server_groups = 1000
server_group_members = 1000
[conductor]
workers = 1
[scheduler]
workers = 1
discover_hosts_in_cells_interval = -1
[filter_scheduler]
enabled_filters = ComputeFilter,ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter
[oslo_concurrency]
lock_path = $RUN/nova/lock
[oslo_policy]
enforce_scope = true
$(authtoken)
[service_user]
send_service_user_token = true
$(creds)
[placement]
$(creds)
[neutron]
$(creds)
[cinder]
os_region_name = $REGION
$(creds)
[glance]
api_servers = http://127.0.0.1:$P_GLANCE
$(creds)
[workarounds]
skip_cpu_compare_at_startup = true
$(mq)
X

# only for the API, the conductor, the scheduler and nova-manage: nova-compute must not see a database
cat > $ETC/nova/nova-db.conf <<X
[api_database]
connection = $(dburl nova_api)
$(dbsec nova)
X

cat > $ETC/neutron/neutron.conf <<X
[DEFAULT]
transport_url = $MQ_URL
core_plugin = ml2
service_plugins = router,segments,trunk
state_path = $RUN/neutron
api_workers = 1
rpc_workers = 0
api_paste_config = $V/etc/neutron/api-paste.ini
notify_nova_on_port_status_changes = true
notify_nova_on_port_data_changes = true
send_events_interval = 0
dhcp_agent_notification = false
pagination_max_limit = -1
max_routes = 1000
[quotas]
quota_network = -1
quota_subnet = -1
quota_port = -1
quota_router = -1
quota_floatingip = -1
quota_security_group = -1
quota_security_group_rule = -1
[oslo_concurrency]
lock_path = $RUN/neutron/lock
$(dbsec neutron)
$(authtoken)
[nova]
$(creds)
[placement]
$(creds)
$(mq)
X
cat > $ETC/neutron/ml2_conf.ini <<X
[ml2]
type_drivers = local,flat,vlan,vxlan
tenant_network_types = local
mechanism_drivers = openvswitch
extension_drivers = port_security
[ml2_type_flat]
flat_networks = *
[securitygroup]
enable_security_group = true
X

cat > $ETC/glance/glance-api.conf <<X
[DEFAULT]
enabled_backends = dev:file
transport_url = $MQ_URL
use_keystone_limits = false
enabled_import_methods = []
node_staging_uri = file://$RUN/glance/staging
[paste_deploy]
flavor = keystone
config_file = $V/etc/glance/glance-api-paste.ini
[glance_store]
default_backend = dev
[dev]
filesystem_store_datadir = $RUN/glance/images
[os_glance_staging_store]
filesystem_store_datadir = $RUN/glance/staging
[os_glance_tasks_store]
filesystem_store_datadir = $RUN/glance/tasks
[oslo_concurrency]
lock_path = $RUN/glance/lock
$(dbsec glance)
$(authtoken)
X

cat > $ETC/octavia/octavia.conf <<X
[DEFAULT]
transport_url = $MQ_URL
[api_settings]
bind_host = 127.0.0.1
bind_port = $P_OCTAVIA
auth_strategy = keystone
enabled_provider_drivers = amphora:Amphora-over-fake-nova,octavia:alias,noop_driver:noop
default_provider_driver = amphora
healthcheck_enabled = false
allow_tls_terminated_listeners = true
[oslo_messaging]
topic = octavia_prov
rpc_thread_pool_size = 2
[controller_worker]
workers = 1
amphora_driver = amphora_noop_driver
compute_driver = @COMPUTE@
network_driver = allowed_address_pairs_driver
image_driver = @IMAGE@
volume_driver = volume_noop_driver
loadbalancer_topology = SINGLE
amp_image_tag = amphora
amp_image_owner_id =
amp_flavor_id = 200
amp_boot_network_list = @MGMT_NET@
amp_secgroup_list = @MGMT_SG@
amp_ssh_key_name =
amp_active_retries = 60
amp_active_wait_sec = 1
client_ca = $RUN/octavia/ca.pem
[task_flow]
engine = parallel
max_workers = 4
jobboard_enabled = false
[networking]
port_detach_timeout = 20
[certificates]
cert_manager = local_cert_manager
cert_generator = local_cert_generator
ca_certificate = $RUN/octavia/ca.pem
ca_private_key = $RUN/octavia/ca.key
ca_private_key_passphrase = foobar
server_certs_key_passphrase = insecure-key-do-not-use-this-key
[health_manager]
heartbeat_key = insecure
[driver_agent]
status_socket_path = $RUN/octavia/status.sock
stats_socket_path = $RUN/octavia/stats.sock
get_socket_path = $RUN/octavia/get.sock
[quotas]
default_load_balancer_quota = -1
default_listener_quota = -1
default_member_quota = -1
default_pool_quota = -1
default_health_monitor_quota = -1
default_l7policy_quota = -1
default_l7rule_quota = -1
$(dbsec octavia)
$(authtoken)
[service_auth]
$(creds)
[neutron]
region_name = $REGION
[nova]
region_name = $REGION
enable_anti_affinity = false
[glance]
region_name = $REGION
$(mq)
X

cat > $ETC/cinder/cinder.conf <<X
[DEFAULT]
transport_url = $MQ_URL
my_ip = 127.0.0.1
state_path = $RUN/cinder
auth_strategy = keystone
api_paste_config = $V/etc/cinder/api-paste.ini
resource_query_filters_file = $V/etc/cinder/resource_filters.json
enabled_backends = $(zones | sed "s/^/fake-/" | paste -sd,)
default_volume_type = fake
storage_availability_zone = $(zones | head -1)
default_availability_zone = $(zones | head -1)
allow_availability_zone_fallback = true
rootwrap_config = $V/etc/cinder/rootwrap.conf
osapi_volume_workers = 1
quota_volumes = -1
quota_gigabytes = -1
quota_snapshots = -1
# a scheduler that missed the first report of cinder-volume would sit still for 60 s
scheduler_driver_init_wait_time = 20
backend_stats_polling_interval = 5
service_down_time = 600
glance_api_servers = http://127.0.0.1:$P_GLANCE
$(for z in $(zones); do printf '[fake-%s]\nvolume_driver = cinder.tests.fake_driver.FakeLoggingVolumeDriver\nvolume_backend_name = fake\nbackend_availability_zone = %s\n' $z $z; done)
[oslo_concurrency]
lock_path = $RUN/cinder/lock
$(dbsec cinder)
$(authtoken)
[service_user]
send_service_user_token = true
$(creds)
[nova]
$(creds)
$(mq)
X
