package serving

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2/textlogger"
)

func visit(page http.Handler, address string) <-chan int {
	answer := make(chan int, 1)
	go func() {
		request := httptest.NewRequest(http.MethodGet, "/page", nil)
		request.RemoteAddr = address + ":1"
		w := httptest.NewRecorder()
		page.ServeHTTP(w, request)
		answer <- w.Code
	}()
	synctest.Wait()
	return answer
}

func TestPageLimiter_BoundsConcurrentRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		page := limitPage(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
		var answers []<-chan int
		for range maxConcurrent + 1 {
			answers = append(answers, visit(page, "192.0.2.1"))
		}
		time.Sleep(waitTime)
		synctest.Wait()
		require.Equal(t, http.StatusServiceUnavailable, <-answers[maxConcurrent])
		waiting := visit(page, "192.0.2.1")
		close(end)
		for _, answer := range append(answers[:maxConcurrent], waiting) {
			require.Equal(t, http.StatusOK, <-answer)
		}
	})
}

func TestPageLimiter_LogsSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		table := newConnections(64, Bounds{}, nil, (&Port{}).reportClosed(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&text)))))
		page := limitPage(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { time.Sleep(2 * holdTime) }))
		for range maxConcurrent + 1 {
			raw := titled{address: "192.0.2.1"}
			c := &Connection{Conn: raw, raw: raw}
			table.add(c)
			request := httptest.NewRequest(http.MethodGet, "/page", nil)
			go page.ServeHTTP(httptest.NewRecorder(), request.WithContext(context.WithValue(t.Context(), connectionKey{}, c)))
		}
		time.Sleep(holdTime)
		synctest.Wait()
		require.Contains(t, text.String(), `reason="slow reader" source="192.0.2.1"`)
		time.Sleep(time.Minute)
	})
}

func TestPageLimiter_AlternatesAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served atomic.Int32
		page := limitPage(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.Sleep(time.Second)
			served.Add(1)
		}))
		for range 20 {
			visit(page, "192.0.2.1")
		}
		start := time.Now()
		require.Equal(t, http.StatusOK, <-visit(page, "192.0.2.2"))
		require.Equal(t, 2*time.Second, time.Since(start), "one response of another client, and its own")
		time.Sleep(time.Minute)
		require.EqualValues(t, 21, served.Load())
	})
}
