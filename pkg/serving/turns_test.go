package serving

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// visit sends one request from an address to a page and returns the channel of its status code.
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

func TestTurns_AnswerFewAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		page := few(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
		var answers []<-chan int
		for range atOnce + 1 {
			answers = append(answers, visit(page, "192.0.2.1"))
		}
		time.Sleep(waitTime)
		synctest.Wait()
		require.Equal(t, http.StatusServiceUnavailable, <-answers[atOnce])
		waiting := visit(page, "192.0.2.1")
		close(end)
		for _, answer := range append(answers[:atOnce], waiting) {
			require.Equal(t, http.StatusOK, <-answer)
		}
	})
}

// A client with many requests does not delay the request of another client.
func TestTurns_ServeEachAddressInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		page := few(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			order = append(order, r.RemoteAddr)
		}))
		for range 20 {
			visit(page, "192.0.2.1")
		}
		start := time.Now()
		require.Equal(t, http.StatusOK, <-visit(page, "192.0.2.2"))
		require.Equal(t, 2*time.Second, time.Since(start), "one response of another client, and its own")
		time.Sleep(time.Minute)
		require.Len(t, order, 21)
	})
}
