// A kubelet without containers, of an older release than that of ../../kubelets/hollow, which is the same otherwise.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli/flag"
	fakeremote "k8s.io/cri-client/pkg/fake"
	"k8s.io/klog/v2"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/certificate/bootstrap"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubemark"

	"k8s.io/apimachinery/pkg/types"
)

func main() {
	defer klog.Flush()
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "hollow-kubelet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	// Kubemark's settings come first, and flags change them. It makes its root in TMPDIR.
	flags, config := kubemark.GetHollowKubeletConfig(&kubemark.HollowKubeletOptions{
		KubeletPort: 10250, MaxPods: 110,
	})
	config.ProviderID = "" // the cloud's to set
	config.Address = "127.0.0.1"
	flags.NodeLabels = map[string]string{} // for --node-labels, which kubemark has not made

	set := pflag.NewFlagSet("hollow-kubelet", pflag.ContinueOnError)
	set.SetNormalizeFunc(flag.WordSepNormalizeFunc)
	flags.AddFlags(set)
	options.AddKubeletConfigFlags(set, config)
	options.AddGlobalFlags(set)
	if err := set.Parse(os.Args[1:]); err != nil {
		return err
	}
	if flags.HostnameOverride == "" {
		return fmt.Errorf("--hostname-override is needed: several run on one host")
	}

	if flags.BootstrapKubeconfig != "" {
		name := types.NodeName(flags.HostnameOverride)
		err := bootstrap.LoadClientCert(ctx, flags.KubeConfig, flags.BootstrapKubeconfig, flags.CertDirectory, name)
		if err != nil {
			return fmt.Errorf("bootstrap: %w", err)
		}
	}
	client, heartbeat, err := clients(flags.KubeConfig)
	if err != nil {
		return err
	}

	endpoint, err := fakeremote.GenerateEndpoint()
	if err != nil {
		return err
	}
	runtime := fakeremote.NewFakeRemoteRuntime()
	if err := runtime.Start(endpoint); err != nil {
		return err
	}
	service, err := connect(ctx, endpoint)
	if err != nil {
		return err
	}

	kubelet := kubemark.NewHollowKubelet(flags, config, client, heartbeat,
		&cadvisortest.Fake{NodeName: flags.HostnameOverride},
		runtime.ImageService, service, cm.NewStubContainerManager())
	// Without it the kubelet would serve HTTP, and never ask for a serving certificate.
	tls, err := kubeletapp.InitializeTLS(ctx, flags, config)
	if err != nil {
		return err
	}
	kubelet.KubeletDeps.TLSOptions = tls
	kubelet.Run(ctx)
	return nil
}

func clients(kubeconfig string) (*kubernetes.Clientset, *kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	config.UserAgent = "hollow-kubelet"
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	beats := rest.CopyConfig(config)
	beats.Timeout, beats.QPS = 10*time.Second, -1
	heartbeat, err := kubernetes.NewForConfig(beats)
	return client, heartbeat, err
}
