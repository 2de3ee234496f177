package flags

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
)

type config struct {
	Kube     Kube
	Logging  Logging
	Election Election
	Serving  Serving
	Gates    Gates
	Estimate Estimate
	Cap      Quantity
}

func newConfig() *config {
	return &config{Kube: DefaultKube(), Logging: DefaultLogging(), Election: DefaultElection("lease"), Serving: Serving{Address: ":1"}, Estimate: DefaultEstimate()}
}

func (c *config) AddFlags(fs *pflag.FlagSet) {
	c.Kube.AddFlags(fs)
	c.Logging.AddFlags(fs)
	c.Election.AddFlags(fs)
	c.Serving.AddFlags(fs)
	c.Gates.AddFlags(fs)
	c.Estimate.AddFlags(fs)
	fs.Var(&c.Cap, "cap", "a cap")
}

func (c *config) Complete() error { return nil }

func (c *config) Validate() error {
	return errors.Join(c.Kube.Validate(), c.Election.Validate(), c.Serving.Validate(), c.Estimate.Validate(), c.Cap.Check("cap"))
}

func parse(args ...string) (*config, error) {
	c := newConfig()
	fs := New("test")
	c.AddFlags(fs)
	return c, fs.Parse(args)
}

func TestFlags_UnderscoreEqualsDash(t *testing.T) {
	c, err := parse("--kube_api_qps=7", "--add_dir_header", "--leader-elect_resource-name=x")
	require.NoError(t, err)
	require.Equal(t, 7.0, c.Kube.QPS)
	require.Equal(t, "x", c.Election.Name)
}

// An explicit floor applies to recipes without a default floor, even if it equals the default.
func TestEstimate_RecordsExplicitFloors(t *testing.T) {
	c, err := parse()
	require.NoError(t, err)
	require.Equal(t, [2]bool{}, c.Estimate.PodMinSet)
	c, err = parse("--pod-recommendation-min-memory-mb=250")
	require.NoError(t, err)
	require.Equal(t, [2]bool{false, true}, c.Estimate.PodMinSet)
	require.Equal(t, 250.0, c.Estimate.PodMinMemory)
	_, err = parse("--pod-recommendation-min-cpu-millicores=some")
	require.ErrorContains(t, err, `invalid argument "some" for "--pod-recommendation-min-cpu-millicores" flag`)
}

func TestList_DropsEmptyItems(t *testing.T) {
	require.Empty(t, List(""))
	require.Equal(t, []string{"a", " b"}, List(",a,, b,"))
	k := Namespaces{IgnoredNamespaces: ",a,"}
	require.True(t, k.Includes("b"))
	require.False(t, k.Includes("a"))
	require.True(t, Namespaces{}.Includes("a"))
	only := Namespaces{Namespace: "a"}
	require.True(t, only.Includes("a"))
	require.False(t, only.Includes("b"))
}

func TestNamespaces_WarnsOfBlanks(t *testing.T) {
	k := Kube{Namespaces: Namespaces{IgnoredNamespaces: "a, b"}}
	require.NoError(t, k.Validate())
	require.Len(t, k.Warnings(), 1)
	require.Contains(t, k.Warnings()[0], `" b"`)
	require.Empty(t, (&Kube{Namespaces: Namespaces{IgnoredNamespaces: "a,b"}}).Warnings())
}

func TestGates_ParseFeatureGates(t *testing.T) {
	for _, tc := range []struct {
		name  string
		gates string
		want  Gates
	}{
		{name: "none", want: Gates{}},
		{name: "one gate", gates: "PerVPAConfig=true", want: Gates{PerVPAConfig: true}},
		{name: "two gates", gates: "CPUStartupBoost=true, InPlace=true", want: Gates{CPUStartupBoost: true, InPlace: true}},
		{name: "all alpha gates", gates: "AllAlpha=true", want: Gates{true, true, true}},
		{name: "all alpha gates but one", gates: "AllAlpha=true,InPlace=false", want: Gates{true, true, false}},
		{name: "all beta gates", gates: "AllBeta=true", want: Gates{}},
		{name: "number and empty items", gates: "InPlace=1,,", want: Gates{InPlace: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := parse("--feature-gates=" + tc.gates)
			require.NoError(t, err)
			require.Equal(t, tc.want, c.Gates)
		})
	}
	c, err := parse("--feature-gates=InPlace=false", "--feature-gates=AllAlpha=true")
	require.NoError(t, err)
	require.Equal(t, Gates{PerVPAConfig: true, CPUStartupBoost: true}, c.Gates, "several flags add up")
	for _, tc := range []struct{ name, gates, want string }{
		{name: "removed gate", gates: "InPlaceOrRecreate=true", want: "removed with VPA 1.7"},
		{name: "unknown gate", gates: "Nonsense=true", want: "unknown gate Nonsense; known are PerVPAConfig"},
		{name: "no value", gates: "InPlace", want: "want InPlace=true or InPlace=false"},
		{name: "invalid value", gates: "InPlace=maybe", want: "want InPlace=true or InPlace=false"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parse("--feature-gates=" + tc.gates)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestLogging_RejectsInvalidFlags(t *testing.T) {
	for _, tc := range []struct{ name, arg, want string }{
		{name: "verbosity", arg: "--v=much", want: "want a number"},
		{name: "threshold", arg: "--stderrthreshold=LOUD", want: "want INFO, WARNING"},
		{name: "module pattern", arg: "--vmodule=loop", want: "want pattern=N"},
		{name: "backtrace location", arg: "--log-backtrace-at=loop:4", want: "want file.go:line"},
		{name: "log to stderr", arg: "--logtostderr=perhaps", want: "invalid syntax"},
		{name: "maximum file size", arg: "--log-file-max-size=-1", want: "invalid syntax"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parse(tc.arg)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestLogging_AppliesToKlog(t *testing.T) {
	c, err := parse("-v=3", "--vmodule=loop=6", "--stderrthreshold=info", "--logtostderr")
	require.NoError(t, err)
	require.NoError(t, c.Logging.Apply())
	require.True(t, klog.V(3).Enabled())
	require.False(t, klog.V(4).Enabled())
	c, err = parse()
	require.NoError(t, err)
	require.NoError(t, c.Logging.Apply())
	require.True(t, klog.V(4).Enabled())
}

func TestValidate_ErrorsNameFlagValueAndRemedy(t *testing.T) {
	c, err := parse("--kube-api-burst=-1", "--address=nowhere", "--leader-elect", "--leader-elect-renew-deadline=20s", "--leader-elect-resource-lock=configmaps", "--cap=-3", "--target-memory-percentile=1.5")
	require.NoError(t, err)
	problems := c.Validate()
	for _, want := range []string{
		"--kube-api-burst=-1: must be 0 or more",
		"--address=nowhere: must be host:port",
		"--leader-elect-lease-duration=15s: must be longer than --leader-elect-renew-deadline=20s",
		`--leader-elect-resource-lock=configmaps: must be "leases"`,
		"--cap=-3: must not be negative",
		"--target-memory-percentile=1.5: must be from 0 to 1",
	} {
		require.ErrorContains(t, problems, want)
	}
	c, err = parse("--leader-elect-resource-lock=configmaps")
	require.NoError(t, err)
	require.NoError(t, c.Validate(), "what is switched off is not checked")
}

func TestQuantity_ParsesFlag(t *testing.T) {
	c, err := parse("--cap=1500m")
	require.NoError(t, err)
	require.True(t, c.Cap.IsSet)
	require.EqualValues(t, 1500, c.Cap.Value.MilliValue())
	c, err = parse("--cap=1", "--cap=")
	require.NoError(t, err)
	require.False(t, c.Cap.IsSet)
	_, err = parse("--cap=1x")
	require.ErrorContains(t, err, "want a quantity")
}

func main(run func(context.Context) error, args ...string) (int, string, string) {
	c := newConfig()
	var out, errOut bytes.Buffer
	code := Program{Name: "test", Version: "v1", Config: c, Logging: &c.Logging, Run: run}.Main(append(args, "-v=0"), &out, &errOut)
	return code, out.String(), errOut.String()
}

func TestProgramMain_ExitCodes(t *testing.T) {
	fine := func(context.Context) error { return nil }
	code, out, errOut := main(fine)
	require.Equal(t, []any{ExitOK, "", ""}, []any{code, out, errOut})

	code, _, errOut = main(fine, "--no-such-flag=1")
	require.Equal(t, ExitUsage, code)
	require.Equal(t, "test: unknown flag: --no-such-flag (see test --help)\n", errOut)

	code, _, errOut = main(fine, "--address=x", "--kube-api-burst=-1")
	require.Equal(t, ExitUsage, code)
	require.Equal(t, 2, strings.Count(errOut, "\n"), "one line for each problem")

	code, _, errOut = main(func(context.Context) error { return errors.New("the server is gone") })
	require.Equal(t, ExitFailed, code)
	require.Equal(t, "test: the server is gone\n", errOut)

	code, _, _ = main(func(ctx context.Context) error { return context.Canceled })
	require.Equal(t, ExitOK, code, "to be stopped is no failure")

	code, out, _ = main(fine, "--version")
	require.Equal(t, ExitOK, code)
	require.Equal(t, "test v1\n", out)

	code, out, _ = main(fine, "--help")
	require.Equal(t, ExitOK, code)
	require.Contains(t, out, "--kubeconfig")
}

func TestProgramMain_IgnoresStrayArguments(t *testing.T) {
	ran := false
	code, _, _ := main(func(context.Context) error { ran = true; return nil }, "--leader-elect", "false")
	require.Equal(t, ExitOK, code)
	require.True(t, ran)
}
