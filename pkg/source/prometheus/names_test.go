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
	for name, want := range map[string]string{
		"app.kubernetes.io/name": "app_kubernetes_io_name", "app_kubernetes_io_name": "app_kubernetes_io_name",
		"appName": "app_name", "app_name": "app_name", "K8sApp": "k8s_app", "k8s-App": "k8s_app", "appURL": "app_url", "": "",
	} {
		require.Equal(t, want, FoldLabelName(name), name)
	}
}
