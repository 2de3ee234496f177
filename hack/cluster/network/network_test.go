package network

import (
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOwn_RejectsHostNetwork(t *testing.T) {
	lo := net.Interface{Name: "lo", Flags: net.FlagUp | net.FlagLoopback}
	off, on := net.Interface{Name: "tunl0"}, net.Interface{Name: "eth0", Flags: net.FlagUp}
	require.NoError(t, checkDevices([]net.Interface{lo, off}))
	require.ErrorContains(t, checkDevices([]net.Interface{lo, off, on}), "network device eth0 is up")
	require.NoError(t, checkDevices([]net.Interface{lo, {Name: "veth1", Flags: net.FlagUp}, {Name: device}}), "of an earlier start")
}

func TestPrepare_IsIdempotentInNetworkNamespace(t *testing.T) {
	if os.Getenv("LOADLINE_NAMESPACE") == "" {
		if os.Geteuid() != 0 {
			t.Skip("a network namespace needs root")
		}
		cmd := exec.Command("unshare", "--net", os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "LOADLINE_NAMESPACE=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return
	}
	for range 2 {
		require.NoError(t, Prepare())
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(Address, "0"))
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	connection, err := net.Dial("udp", "10.96.0.1:443")
	require.NoError(t, err, "there is a route to Services")
	require.Equal(t, Address, connection.LocalAddr().(*net.UDPAddr).IP.String())
	require.NoError(t, connection.Close())
	forwards, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	require.NoError(t, err)
	require.Equal(t, "1\n", string(forwards))
}
