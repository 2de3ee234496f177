package serving

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"time"
)

// These handlers answer what `go tool pprof` and `go tool trace` ask. The ones of
// net/http/pprof also compute differences of profiles, which makes every binary
// half a megabyte larger; see docs/dependencies.md.

// handleProfiles adds /debug/pprof/ to mux.
func handleProfiles(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/{$}", profileIndex)
	mux.HandleFunc("/debug/pprof/{name}", namedProfile)
	mux.HandleFunc("/debug/pprof/cmdline", commandLine)
	mux.HandleFunc("/debug/pprof/symbol", symbols)
	mux.HandleFunc("/debug/pprof/profile", func(w http.ResponseWriter, r *http.Request) {
		record(w, r, 30*time.Second, func() error { return pprof.StartCPUProfile(w) }, pprof.StopCPUProfile)
	})
	mux.HandleFunc("/debug/pprof/trace", func(w http.ResponseWriter, r *http.Request) {
		record(w, r, time.Second, func() error { return trace.Start(w) }, trace.Stop)
	})
}

func profileIndex(w http.ResponseWriter, _ *http.Request) {
	names := []string{"cmdline", "profile", "symbol", "trace"}
	for _, p := range pprof.Profiles() {
		names = append(names, p.Name())
	}
	slices.Sort(names)
	fmt.Fprintln(w, strings.Join(names, "\n"))
}

// namedProfile writes a profile such as heap or goroutine; debug=1 makes it text.
func namedProfile(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	p := pprof.Lookup(name)
	if p == nil {
		http.Error(w, fmt.Sprintf("there is no profile %q; /debug/pprof/ lists them", name), http.StatusNotFound)
		return
	}
	if name == "heap" && r.FormValue("gc") != "" {
		runtime.GC()
	}
	debug, _ := strconv.Atoi(r.FormValue("debug"))
	if debug == 0 {
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	// The client is gone if this fails; there is nobody to tell.
	_ = p.WriteTo(w, debug)
}

func commandLine(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, strings.Join(os.Args, "\x00"))
}

// symbols answers the names of the functions at the addresses of the query,
// which are separated by "+".
func symbols(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintln(w, "num_symbols: 1")
	for word := range strings.SplitSeq(r.URL.RawQuery, "+") {
		address, err := strconv.ParseUint(word, 0, 64)
		if err != nil {
			continue
		}
		if f := runtime.FuncForPC(uintptr(address)); f != nil {
			fmt.Fprintf(w, "%#x %s\n", address, f.Name())
		}
	}
}

// record runs a recorder for the seconds of the query or until the client goes.
func record(w http.ResponseWriter, r *http.Request, usual time.Duration, start func() error, stop func()) {
	length := usual
	if seconds, err := strconv.ParseFloat(r.FormValue("seconds"), 64); err == nil && seconds > 0 {
		length = time.Duration(seconds * float64(time.Second))
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := start(); err != nil {
		http.Error(w, "cannot start: "+err.Error(), http.StatusInternalServerError)
		return
	}
	defer stop()
	select {
	case <-r.Context().Done():
	case <-time.After(length):
	}
}
