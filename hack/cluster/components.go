package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // the servers' JSON log format
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the servers' client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // the servers' version metric
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	metricsserver "sigs.k8s.io/metrics-server/cmd/metrics-server/app"

	"loadline.dev/loadline/hack/cluster/instance"
	"loadline.dev/loadline/hack/cluster/play"
	"loadline.dev/loadline/hack/cluster/realnode"
)

// components maps the first program argument to the server to run. Each function returns the exit
// code.
var components = map[string]func(args []string) int{
	"etcd": func(args []string) int {
		etcdmain.Main(args)
		return 0
	},
	"kube-apiserver":          func(args []string) int { return runCommand(apiserver.NewAPIServerCommand(), args) },
	"kube-controller-manager": func(args []string) int { return runCommand(controllermanager.NewControllerManagerCommand(), args) },
	"kube-proxy":              func(args []string) int { return runCommand(proxy.NewProxyCommand(), args) },
	"kube-scheduler":          func(args []string) int { return runCommand(scheduler.NewSchedulerCommand(), args) },
	"kubectl":                 runKubectl,
	"metrics-server": func(args []string) int {
		return runCommand(metricsserver.NewMetricsServerCommand(genericapiserver.SetupSignalHandler()), args)
	},
	"kwok":      runKwok,
	"player":    play.Main,
	"real-node": realnode.Main,
}

func runCommand(cmd *cobra.Command, args []string) int {
	os.Args = args
	return cli.Run(cmd)
}

// runKubectl accepts --dir with the folder of the instance as first argument.
func runKubectl(args []string) int {
	args, err := instance.KubectlTarget(args)
	if err != nil {
		os.Stderr.WriteString("kubectl: " + err.Error() + "\n")
		return 1
	}
	os.Args = args
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}

// runKwok includes the initialization of kwok's own main function.
func runKwok(args []string) int {
	os.Args = args
	fs := pflag.NewFlagSet("global", pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.Usage = func() {}
	ctx := genericapiserver.SetupSignalContext()
	ctx, logger := kwoklog.InitFlags(ctx, fs)
	ctx, err := kwokconfig.InitFlags(ctx, fs)
	if err != nil {
		logger.Error("kwok flags", "err", err)
		return 1
	}
	cmd := kwok.NewCommand(ctx)
	// Prevent a boolean --version flag: component-base defines one with a string value on the
	// global flag set.
	cmd.Version = ""
	cmd.PersistentFlags().AddFlagSet(fs)
	if err := cmd.ExecuteContext(ctx); err != nil {
		logger.Error("kwok", "err", err)
		return 1
	}
	return 0
}
