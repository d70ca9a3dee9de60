// The cloud controller manager of upstream's library with Google's provider, as its module has it.
package main

import (
	"os"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	_ "k8s.io/cloud-provider-gcp/providers/gce"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
)

func main() {
	opts, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatalf("options: %v", err)
	}
	command := app.NewCloudControllerManagerCommand(
		opts, cloud, app.DefaultInitFuncConstructors, names.CCMControllerAliases(),
		cliflag.NamedFlagSets{}, wait.NeverStop,
	)
	os.Exit(cli.Run(command))
}

func cloud(complete *config.CompletedConfig) cloudprovider.Interface {
	settings := complete.ComponentConfig.KubeCloudShared.CloudProvider
	cloud, err := cloudprovider.InitCloudProvider(settings.Name, settings.CloudConfigFile)
	if err != nil || cloud == nil {
		klog.Fatalf("no cloud %q: %v", settings.Name, err)
	}
	return cloud
}
