package sketch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

func TestSketch_Declared(t *testing.T) {
	const mib = 1 << 20
	needs := Needs{Peaks: true, Declared: time.Hour}
	tr := New(needs)
	require.False(t, tr.NeedsDeclared(), "it has not begun")
	tr.Observe(start, resources.Memory, 10*mib, 0)
	require.True(t, tr.NeedsDeclared())
	require.False(t, tr.SetDeclared(0), "none")
	require.True(t, tr.SetDeclared(256*mib))
	require.False(t, tr.SetDeclared(100*mib))
	require.False(t, tr.NeedsDeclared())
	require.InEpsilon(t, 256*mib, tr.Declared(), 0.0011)
	tr.Observe(start.Add(59*time.Minute), resources.Memory, 10*mib, 0)
	again, err := Read(needs, tr.Image(), start, 0)
	require.NoError(t, err)
	require.Equal(t, tr.Declared(), again.Declared())
	require.Positive(t, again.Declared())
	again.Observe(start.Add(time.Hour), resources.Memory, 10*mib, 0)
	require.Zero(t, again.Declared())

	old := New(needs)
	old.Observe(start, resources.Memory, 10*mib, 0)
	old.Observe(start.Add(time.Hour), resources.Memory, 10*mib, 0)
	require.False(t, old.NeedsDeclared(), "what it was declared with does not matter any more")
	require.False(t, old.SetDeclared(256*mib))

	past := New(needs)
	past.Merge(tr)
	require.Equal(t, tr.Declared(), past.Declared())
	tr.Adapt(Needs{Peaks: true})
	require.Zero(t, tr.Declared())
	require.False(t, tr.SetDeclared(256*mib), "nobody wants to know")
}
