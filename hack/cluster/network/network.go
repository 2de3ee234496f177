package network

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
)

const (
	// Address is reserved for documentation, so no other machine has it.
	Address = "192.0.2.1"
	// Pods is the address range of the node's pods, other than the range of simulated pods.
	Pods = "10.245.0.0/24"
	// device is a bridge without ports, because every kernel that runs containers supports bridges.
	device = "loadline0"
)

// CheckNamespace returns an error if the network namespace may be the machine's. A new one has no
// device that is up.
func CheckNamespace() error {
	devices, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("find network devices: %w", err)
	}
	return checkDevices(devices)
}

func checkDevices(devices []net.Interface) error {
	if slices.ContainsFunc(devices, func(d net.Interface) bool { return d.Name == device }) {
		return nil // created earlier, so there may be devices of pods
	}
	for _, d := range devices {
		if d.Flags&net.FlagUp != 0 && d.Flags&net.FlagLoopback == 0 {
			return fmt.Errorf("network device %s is up, so this may be the machine's network namespace; start it with unshare --net", d.Name)
		}
	}
	return nil
}

// Prepare creates the network if it does not exist.
func Prepare() error {
	if err := CheckNamespace(); err != nil {
		return err
	}
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback device: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("switch the loopback device on: %w", err)
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: device}}
	if err := netlink.LinkAdd(bridge); err != nil && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("add network device %s: %w", device, err)
	}
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find network device %s: %w", device, err)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(Address), Mask: net.CIDRMask(32, 32)}}
	if err := netlink.AddrReplace(link, address); err != nil {
		return fmt.Errorf("give %s the address %s: %w", device, Address, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("switch %s on: %w", device, err)
	}
	// Packets to a Service require a route before they are redirected.
	_, everything, err := net.ParseCIDR("0.0.0.0/0")
	if err != nil {
		return fmt.Errorf("default route: %w", err)
	}
	if err := netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: everything, Scope: netlink.SCOPE_LINK}); err != nil {
		return fmt.Errorf("add the default route: %w", err)
	}
	// Forward packets of pods, which have devices of their own.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1\n"), 0o644); err != nil {
		return fmt.Errorf("switch forwarding on: %w", err)
	}
	return nil
}
