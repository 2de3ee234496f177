package prometheus

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/process"
	"loadline.dev/loadline/pkg/testkit"
)

func serve(t *testing.T, c Config, handle http.HandlerFunc) (*Client, *[]string) {
	t.Helper()
	server := httptest.NewServer(testkit.StrictPrometheus(t, handle))
	t.Cleanup(server.Close)
	var told []string
	c.Address = server.URL + "/below"
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	c.Observe = func(code, method string, took time.Duration) {
		require.GreaterOrEqual(t, took, time.Duration(0))
		told = append(told, code+" "+method)
	}
	client, err := New(process.OS{}, c)
	require.NoError(t, err)
	return client, &told
}

func at() time.Time { return time.Date(2026, 3, 2, 8, 0, 0, 500e6, time.UTC) }

func ask(t *testing.T, c *Client) error {
	_, err := c.Instant(t.Context(), "up", at(), func(map[string]string, []Point) {})
	return err
}

func TestClient_SendsQueryAsPOST(t *testing.T) {
	client, told := serve(t, Config{Timeout: 90 * time.Second}, func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, r.ParseForm())
		require.Equal(t, http.MethodPost, r.Method)
		require.Equal(t, "/below/api/v1/query_range", r.URL.Path)
		require.Empty(t, r.Header.Get("Authorization"))
		require.Equal(t, "map[end:[1772438400.5] query:[rate(x[1h])] start:[1772434800.5] step:[3600] timeout:[1m30s]]", fmt.Sprint(r.PostForm))
		fmt.Fprint(w, matrix(`{"metric":{"a":"b"},"values":[[1,"1"]]}`))
	})
	n := 0
	query := Range{Query: "rate(x[1h])", Times: Times{Start: at().Add(-time.Hour), Step: time.Hour, Count: 2}}
	answer, err := client.Range(t.Context(), query, func(map[string]string, []Point) { n++ }, nil)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, 1, answer.Points)
	require.Equal(t, []string{"200 post"}, *told)
}

func TestClient_FallsBackToGET(t *testing.T) {
	client, told := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			http.Error(w, "no", http.StatusMethodNotAllowed)
			return
		}
		require.Equal(t, "up", r.URL.Query().Get("query"))
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	})
	require.NoError(t, ask(t, client))
	require.NoError(t, ask(t, client))
	require.Equal(t, []string{"405 post", "200 get", "200 get"}, *told)
}

func TestClient_Authenticates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(" one\n"), 0o600))
	var got string
	handle := func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	}
	for _, tc := range []struct {
		name   string
		config Config
		want   string
	}{
		{name: "no credentials", config: Config{}},
		{name: "token", config: Config{Token: "secret"}, want: "Bearer secret"},
		{name: "user name and password", config: Config{Username: "u", Password: "p"}, want: "Basic dTpw"},
		{name: "token file", config: Config{TokenFile: file}, want: "Bearer one"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client, _ := serve(t, tc.config, handle)
			require.NoError(t, ask(t, client))
			require.Equal(t, tc.want, got)
		})
	}
	missing, _ := serve(t, Config{TokenFile: filepath.Join(t.TempDir(), "missing")}, handle)
	require.ErrorContains(t, ask(t, missing), "--prometheus-bearer-token-file")
	client, _ := serve(t, Config{TokenFile: file}, handle)
	require.NoError(t, ask(t, client))
	require.NoError(t, os.WriteFile(file, []byte("two"), 0o600))
	require.NoError(t, ask(t, client))
	require.Equal(t, "Bearer two", got, "the token was rotated")
}

func TestClient_DropsCredentialsOnRedirectToOtherHost(t *testing.T) {
	var got []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Header.Get("Authorization")) }))
	defer other.Close()
	client, _ := serve(t, Config{Token: "secret"}, func(w http.ResponseWriter, r *http.Request) {
		// The host name localhost differs from 127.0.0.1.
		http.Redirect(w, r, "http://localhost"+other.URL[len("http://127.0.0.1"):], http.StatusTemporaryRedirect)
	})
	require.Error(t, ask(t, client))
	require.Equal(t, []string{""}, got)
}

func TestClient_VerifiesTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	}))
	defer server.Close()
	for insecure, want := range map[bool]string{true: "", false: "certificate"} {
		client, err := New(process.OS{}, Config{Address: server.URL, Insecure: insecure, Timeout: 5 * time.Second})
		require.NoError(t, err)
		err = ask(t, client)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

func TestClient_ErrorsContainServerMessage(t *testing.T) {
	for _, tc := range []struct {
		name             string
		code             int
		kind, body, want string
	}{
		{
			name: "error in JSON", code: 400, kind: "application/json",
			body: `{"status":"error","errorType":"bad_data","error":"parse error"}`,
			want: "rejected the query (400, bad_data): parse error",
		},
		{
			name: "failed execution", code: 422, kind: "application/json",
			body: `{"status":"error","errorType":"execution","error":"too many samples"}`, want: "(422, execution): too many samples",
		},
		{
			name: "error in plain text", code: 503, kind: "text/plain; charset=utf-8", body: "starting up\n",
			want: "(503, Service Unavailable): starting up",
		},
		{name: "HTML page", code: 500, kind: "text/html", body: "<html>", want: "(500, Internal Server Error)"},
		{name: "unauthorized", code: 401, want: "(401, Unauthorized): Check --prometheus-bearer-token"},
		{name: "not found", code: 404, want: "(404, Not Found): Check --prometheus-address"},
		{
			name: "error after success", code: 200, body: `{"status":"error","errorType":"internal","error":"late"}`,
			want: "(internal): late",
		},
		{
			name: "scalar result", code: 200, body: `{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`,
			want: "returned a scalar: must return series",
		},
		{
			name: "truncated response", code: 200, body: `{"status":"success","data":{"resultType":"vector","result":[`,
			want: "truncated response",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client, told := serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.kind)
				w.WriteHeader(tc.code)
				fmt.Fprint(w, tc.body)
			})
			require.ErrorContains(t, ask(t, client), tc.want)
			require.Equal(t, []string{fmt.Sprint(tc.code, " post")}, *told)
		})
	}
}

func TestClient_ParsesRetryAfter(t *testing.T) {
	for _, tc := range []struct {
		name   string
		header string
		want   time.Duration
	}{
		{name: "none"},
		{name: "seconds", header: "7", want: 7 * time.Second},
		{name: "negative", header: "-7"},
		{name: "not a number", header: "soon"},
		{name: "out of range", header: "99999999999"},
		{name: "date", header: time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), want: time.Hour},
		{name: "date in the past", header: time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client, _ := serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", tc.header)
				w.WriteHeader(http.StatusTooManyRequests)
			})
			var refused *Error
			require.ErrorAs(t, ask(t, client), &refused)
			require.InDelta(t, tc.want, refused.RetryAfter, float64(10*time.Second))
			if tc.want == 0 {
				require.Zero(t, refused.RetryAfter)
			}
		})
	}
}

func TestClientRange_RequiresMatrix(t *testing.T) {
	client, _ := serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	})
	_, err := client.Range(t.Context(), Range{Query: "up", Times: Times{Start: at(), Step: time.Minute, Count: 2}}, nil, nil)
	require.ErrorContains(t, err, "returned a vector: must return series over time")
}

func TestClient_ObservesConnectionErrors(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	var told []string
	client, err := New(process.OS{}, Config{Address: "http://u:secret@" + server.Listener.Addr().String(), Timeout: time.Second,
		Observe: func(code, method string, _ time.Duration) { told = append(told, code+" "+method) }})
	require.NoError(t, err)
	err = ask(t, client)
	require.ErrorContains(t, err, "refused")
	require.NotContains(t, err.Error(), "secret")
	require.Equal(t, []string{"error post"}, told)
}

func TestClient_TimesOutOnSlowBody(t *testing.T) {
	n := 0
	client, _ := serve(t, Config{Timeout: 100 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]},`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	_, err := client.Instant(t.Context(), "up", time.Time{}, func(map[string]string, []Point) { n++ })
	require.ErrorContains(t, err, "no complete response within 100ms (--prometheus-query-timeout)")
	require.ErrorIs(t, err, ErrTimeout)
	require.Equal(t, 1, n, "what arrived is handed on")
}

func TestNew_RejectsInvalidAddresses(t *testing.T) {
	for _, address := range []string{"", "prometheus:9090", "http://", "ftp://x", "http://u:secret@[", "://"} {
		_, err := New(process.OS{}, Config{Address: address})
		require.ErrorContains(t, err, "must be a URL such as", address)
		require.NotContains(t, err.Error(), "secret")
	}
}

func names() Usage {
	return Usage{CPUMetric: "cpu_total", MemoryMetric: "mem", Job: "cadvisor", NamespaceLabel: "namespace", PodLabel: "pod_name", ContainerLabel: "name"}
}

func TestUsage_BuildsQueries(t *testing.T) {
	u := names()
	require.Equal(t, `rate(cpu_total{job="cadvisor", pod_name=~".+", name!="POD", name!=""}[1h])`, u.CPU(time.Hour))
	require.Equal(t, `mem{job="cadvisor", pod_name=~".+", name!="POD", name!=""}`, u.Memory())
	u.Job, u.Namespace = "", "ns"
	require.Equal(t, `mem{pod_name=~".+", name!="POD", name!="", namespace="ns"}`, u.Query(resources.Memory, 0))
	require.Equal(t, `rate(cpu_total{pod_name=~".+", name!="POD", name!="", namespace="ns"}[1m30s])`, u.Query(resources.CPU, 90*time.Second))
}

func TestClientLabels_ReturnsLabelSets(t *testing.T) {
	client, _ := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, r.ParseForm())
		require.Equal(t, "/below/api/v1/series", r.URL.Path)
		require.Equal(t, "map[end:[1772438400.5] match[]:[a{} b{}] start:[1772434800.5] timeout:[5s]]", fmt.Sprint(r.PostForm))
		fmt.Fprint(w, `{"status":"success","data":[{"a":"b","c":"d"},{"a":7},{"e":"f"}]}`)
	})
	var got []string
	answer, err := client.Labels(t.Context(), []string{"a{}", "b{}"}, at().Add(-time.Hour), at(), func(labels map[string]string) { got = append(got, fmt.Sprint(labels)) })
	require.NoError(t, err)
	require.Equal(t, []string{"map[a:b c:d]", "map[e:f]"}, got)
	require.Equal(t, 2, answer.Series)
	require.Equal(t, 1, answer.Broken)
}

func TestClientRange_ReportsUnusableSeries(t *testing.T) {
	client, _ := serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, matrix(`{"metric":{"a":"1"},"values":[[1,"1"],[2,"NaN"],[3,"+Inf"]]},{"metric":{"a":"2"},"values":[[1,1]]},{"metric":{"a":"3"},"values":[[1,"1"]]}`))
	})
	var told []string
	visited := 0
	query := Range{Query: "up", Times: Times{Start: at(), Step: time.Minute, Count: 2}}
	visit := func(map[string]string, []Point) { visited++ }
	_, err := client.Range(t.Context(), query, visit, func(labels map[string]string, at time.Time, what string) {
		told = append(told, fmt.Sprint(labels, at.Unix(), " ", what))
	})
	require.NoError(t, err)
	require.Equal(t, 2, visited)
	require.Equal(t, []string{"map[a:1] 2 is NaN, the first of 2 such", fmt.Sprint("map[a:2] ", time.Time{}.Unix(), ` cannot be read: "[1,1]]" is no [time, "value"]`)}, told)
}

func TestClient_TrustsOnlyCAFile(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	_, err := New(process.OS{}, Config{Address: server.URL, CAFile: file})
	require.ErrorContains(t, err, "read the certificates to trust: open "+file)
	require.NoError(t, os.WriteFile(file, []byte("none"), 0o600))
	_, err = New(process.OS{}, Config{Address: server.URL, CAFile: file})
	require.ErrorContains(t, err, file+" has none, must be a PEM file")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	client, err := New(process.OS{}, Config{Address: server.URL, CAFile: file, Timeout: 5 * time.Second})
	require.NoError(t, err)
	require.NoError(t, ask(t, client))
}

func TestClientServer_OmitsCredentials(t *testing.T) {
	client, err := New(process.OS{}, Config{Address: "https://u:secret@prometheus.example:9090/below/"})
	require.NoError(t, err)
	require.Equal(t, "prometheus.example:9090/below", client.Server())
}
