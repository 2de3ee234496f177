package supervise

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"loadline.dev/loadline/hack/cluster/instance"
	"loadline.dev/loadline/hack/cluster/stage"
)

//go:embed stages/*.yaml
var stages embed.FS

// simulation returns the built-in stages and the ones in the user's folder, which take precedence.
// It replaces ROOM_CPU and ROOM_MEMORY by the maximum cores and bytes of an in-place resize.
func simulation(o instance.Options) ([]stage.Stage, error) {
	below, err := fs.Sub(stages, "stages")
	if err != nil {
		return nil, fmt.Errorf("stages: %w", err)
	}
	all, err := stage.Read(below)
	if err != nil {
		return nil, fmt.Errorf("stages: %w", err)
	}
	if o.Stages != "" {
		extra, err := stage.Read(os.DirFS(o.Stages))
		if err != nil {
			return nil, fmt.Errorf("--stages %s: %w", o.Stages, err)
		}
		all = stage.Merge(all, extra)
	}
	room := strings.NewReplacer("ROOM_CPU", jqNumber(o.ResizeCPU), "ROOM_MEMORY", jqNumber(o.ResizeMemory))
	for i := range all {
		all[i].YAML = []byte(room.Replace(string(all[i].YAML)))
	}
	return all, nil
}

// jqNumber returns infinite for an empty quantity.
func jqNumber(quantity string) string {
	if quantity == "" {
		return "infinite"
	}
	q := resource.MustParse(quantity) // the options are validated
	return fmt.Sprint(q.AsApproximateFloat64())
}
