package explain

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"loadline.dev/loadline/kubectl-loadline/plugintest"
	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/explanation"
)

func squeezed(text string) string { return regexp.MustCompile(` +`).ReplaceAllString(text, " ") }

func answerSkips(t *testing.T, kube *kubefake.Clientset, reasons map[reason.Reason][]string) {
	t.Helper()
	answer(t, kube, explanation.SkipsPath, explanation.Skips{Reasons: reasons})
}

func answerPod(t *testing.T, kube *kubefake.Clientset, p *explanation.Pod) {
	t.Helper()
	answer(t, kube, explanation.PodPath, p)
}

// answer makes the leading updater return an object for requests of a path.
func answer(t *testing.T, kube *kubefake.Clientset, path string, with any) {
	t.Helper()
	text, err := json.Marshal(with)
	require.NoError(t, err)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-updater"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("vpa-updater-7_0a"), RenewTime: new(metav1.NewMicroTime(plugintest.Now())), LeaseDurationSeconds: new(int32(15))}}
	if err := kube.Tracker().Add(lease); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	kube.AddProxyReactor("pods", func(a clienttesting.Action) (bool, rest.ResponseWrapper, error) {
		asked, ok := a.(clienttesting.ProxyGetAction)
		require.True(t, ok)
		require.Equal(t, []string{"kube-system", "http", "vpa-updater-7", "8943"}, []string{a.GetNamespace(), asked.GetScheme(), asked.GetName(), asked.GetPort()})
		return asked.GetPath() == path, plugintest.Response{Text: string(text)}, nil
	})
}
