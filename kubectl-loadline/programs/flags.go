package programs

import (
	"bufio"
	_ "embed" // flags of the programs
	"iter"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

//go:embed known-flags.txt
var knownFlags string

// knownFlag describes a flag of a program.
type knownFlag struct {
	bool      bool // no value is required
	reference bool // the reference VPA has it, too
}

// knownFlagsOf returns the flags of a program by name.
func knownFlagsOf(program string) map[string]knownFlag {
	known := map[string]knownFlag{"help": {bool: true, reference: true}, "version": {bool: true}}
	for lines := bufio.NewScanner(strings.NewReader(knownFlags)); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) == 4 && words[0] == program {
			known[words[1]] = knownFlag{words[2] == "bool", words[3] == "reference"}
		}
	}
	return known
}

// UnsupportedFlags returns the flags of a command line that a program does not have, and its flags
// that the reference VPA does not have.
func UnsupportedFlags(program string, args []string) (unknown, own []string) {
	known := knownFlagsOf(program)
	for name := range parseFlags(program, args) {
		switch f, found := known[name]; {
		case !found:
			unknown = append(unknown, "--"+name)
		case !f.reference:
			own = append(own, "--"+name)
		}
	}
	return unknown, own
}

// parseFlags returns the flags of a command line with their documented names, and their values.
func parseFlags(program string, args []string) iter.Seq2[string, string] {
	known := knownFlagsOf(program)
	return func(yield func(name, value string) bool) {
		for i := 0; i < len(args); i++ {
			if !strings.HasPrefix(args[i], "-") {
				continue
			}
			name, value, hasValue := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
			name = strings.ReplaceAll(name, "_", "-")
			switch f, found := known[name]; {
			case hasValue || !found:
			case f.bool:
				value = "true"
			case i+1 < len(args):
				i++
				value = args[i]
			}
			if !yield(name, value) {
				return
			}
		}
	}
}

// Names are the programs of an installation. Names of images and Deployments end with them.
var Names = []string{"recommender", "updater", "admission-controller"}

// OfContainer returns the program of a container, or "".
func OfContainer(d *appsv1.Deployment, c *corev1.Container) string {
	image := c.Image[strings.LastIndex(c.Image, "/")+1:]
	if end := strings.IndexAny(image, ":@"); end >= 0 {
		image = image[:end]
	}
	for _, p := range Names {
		if image == "vpa-"+p || image == "loadline-"+p || d.Name == "vpa-"+p && len(d.Spec.Template.Spec.Containers) == 1 {
			return p
		}
	}
	return ""
}
