#!/usr/bin/env bash
# The files of a true node's programs: settings.sh NAME FOLDER CA PAUSE-IMAGE POD-NETWORK.
set -eu
name=$1 folder=$2 ca=$3 image=$4 cidr=$5
cat >"$folder/kubelet.yaml" <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {x509: {clientCAFile: $ca}}
serverTLSBootstrap: true
# Nodes share the host's cgroups, of either version, so they leave the tree of QoS classes alone.
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
evictionHard: {nodefs.available: "1%", imagefs.available: "1%", memory.available: 50Mi}
volumePluginDir: /var/lib/kubelet/plugins-exec
resolvConf: ""
Y
cat >"$folder/containerd.toml" <<T
version = 3
root = "$folder/containerd"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "$image"
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true # containers themselves may be in one that must not lower it
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "$folder/cni"
T
cat >"$folder/proxy.yaml" <<Y
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: $name
clientConnection: {kubeconfig: $folder/proxy.kubeconfig}
clusterCIDR: $cidr
# Those that are of the whole host cannot be set in a namespace.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
Y
