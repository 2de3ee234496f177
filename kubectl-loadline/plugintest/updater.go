package plugintest

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"loadline.dev/loadline/pkg/core/reason"
	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/explanation"
)

// ProxyUsage is the usage of the pod of the DaemonSet without a VPA.
func ProxyUsage() []usage.Sample {
	key := usage.ContainerKey{Namespace: "kube-system", Pod: "proxy-a", Container: "a"}
	var all []usage.Sample
	for i := range 100 {
		at := Before(5 * (100 - i))
		all = append(all, usage.Sample{Container: key, Kind: resources.CPU, At: at, Amount: resources.Amount(100 + 5*i)},
			usage.Sample{Container: key, Kind: resources.Memory, At: at, Amount: resources.Amount(300+i) << 20})
	}
	return all
}

// Response is a response of a proxied request.
type Response struct {
	Text string
	err  error
}

// Failing returns a response that fails with an error, if that is not nil.
func Failing(text string, err error) Response { return Response{text, err} }

// DoRaw returns the text.
func (r Response) DoRaw(context.Context) ([]byte, error) { return []byte(r.Text), r.err }

// Stream returns the text.
func (r Response) Stream(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(r.Text)), r.err
}

// AnswerSkips lets the leading updater answer with skip reasons.
func AnswerSkips(t *testing.T, kube *kubefake.Clientset, reasons map[reason.Reason][]string) {
	t.Helper()
	answer(t, kube, explanation.SkipsPath, explanation.Skips{Reasons: reasons})
}

// AnswerPod lets the leading updater explain each pod as p.
func AnswerPod(t *testing.T, kube *kubefake.Clientset, p *explanation.Pod) {
	t.Helper()
	answer(t, kube, explanation.PodPath, p)
}

// answer lets the leading updater answer requests of a path.
func answer(t *testing.T, kube *kubefake.Clientset, path string, with any) {
	t.Helper()
	text, err := json.Marshal(with)
	require.NoError(t, err)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vpa-updater"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("vpa-updater-7_0a"), RenewTime: new(metav1.NewMicroTime(Now())), LeaseDurationSeconds: new(int32(15))}}
	if err := kube.Tracker().Add(lease); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	kube.AddProxyReactor("pods", func(a clienttesting.Action) (bool, rest.ResponseWrapper, error) {
		asked, ok := a.(clienttesting.ProxyGetAction)
		require.True(t, ok)
		require.Equal(t, []string{"kube-system", "http", "vpa-updater-7", "8943"}, []string{a.GetNamespace(), asked.GetScheme(), asked.GetName(), asked.GetPort()})
		return asked.GetPath() == path, Response{Text: string(text)}, nil
	})
}
