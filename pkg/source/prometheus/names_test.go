package prometheus

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommonPodNames_RemovesSuffixes(t *testing.T) {
	for name, want := range map[string][]string{
		"web-7d9f8b6c5d-x2k4p":     {"web-7d9f8b6c5d-", "web"},
		"nightly-28912345-x2k4p":   {"nightly-28912345-", "nightly"},
		"a-b-x2k4p":                {"a-b-", "a-b"},
		"db-0":                     {"db"},
		"db-main-12":               {"db-main"},
		"job-x2k4p":                {"job-", "job"},
		"single":                   nil,
		"redis-slave":              nil,
		"-0":                       nil,
		"x-7d9f8b6c5d-7d9f8b6c5d-": nil,
	} {
		require.Equal(t, want, CommonPodNames(name), name)
	}
}

func TestFoldLabelName_ConvertsToSnakeCase(t *testing.T) {
	for _, tc := range []struct{ name, label, want string }{
		{name: "prefix with dots and a slash", label: "app.kubernetes.io/name", want: "app_kubernetes_io_name"},
		{name: "underscores", label: "app_kubernetes_io_name", want: "app_kubernetes_io_name"},
		{name: "camel case", label: "appName", want: "app_name"},
		{name: "snake case", label: "app_name", want: "app_name"},
		{name: "number and capitals", label: "K8sApp", want: "k8s_app"},
		{name: "hyphen", label: "k8s-App", want: "k8s_app"},
		{name: "abbreviation", label: "appURL", want: "app_url"},
		{name: "empty"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, FoldLabelName(tc.label))
		})
	}
}
