package excerpt

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var wanted = Fields{"a": nil, "b": {"c": nil, "d": {"e": nil}}}

func TestOf(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1,"x":[{"a":2}],"b":{"c":"\"}","z":{"c":3},"d":[{"e":1,"f":2},{"f":3}, 7 ,null]}}`: `{"a":1,"b":{"c":"\"}","d":[{"e":1},{},7,null]}}`,
		` { "x" : "\\" , "a" : { "x" : [ 1 , { } ] } } `:                                         `{"a":{ "x" : [ 1 , { } ] }}`,
		`{"b":null}`: `{"b":null}`,
		`{"b":7}`:    `{"b":7}`,
		`[]`:         `[]`,
		`{}`:         `{}`,
		`"a"`:        `"a"`,
		`null`:       `null`,
	} {
		got, ok := Of([]byte(in), wanted)
		require.True(t, ok, in)
		require.Equal(t, want, string(got))
	}
	for _, in := range []string{``, ` `, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":"`, `{"a":"\"`, `{"a":1}}`, `{"a":1} x`, `{"a" 1}`, `{"b":{"c":1 "d":2}}`, `{"b":{"d":[1 2]}}`, `{"x":{`, `{1:2}`, `{"a":1,,}`, `}`} {
		got, ok := Of([]byte(in), wanted)
		require.False(t, ok, "%s gives %s", in, got)
	}
}

func TestFind(t *testing.T) {
	const in = ` {"uid":"u", "none" : null,"object": {"x":"}"} ,"n":1 , "twice":1,"twice":2}`
	got := Find([]byte(in), "object", "uid", "none", "nothing", "n", "twice")
	require.Equal(t, []string{`{"x":"}"}`, `"u"`, "", "", "1", "2"}, texts(got))
	require.Nil(t, got[2])
	require.Nil(t, got[3])
	for _, in := range []string{"", "7", `{"n":1`, `{"n":`, `{"n":1,"x"}`} {
		require.Equal(t, [][]byte{nil}, Find([]byte(in), "n"), in)
	}
}

func texts(values [][]byte) (all []string) {
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}

func TestDeepNestingDoesNoHarm(t *testing.T) {
	const n = 1000000
	deep := strings.Repeat(`{"b":`, n) + "1" + strings.Repeat("}", n)
	self := Fields{}
	self["b"] = self
	_, ok := Of([]byte(deep), self)
	require.True(t, ok)
}

// model is what wanted keeps, by way of encoding/json.
func model(v any, wanted Fields) any {
	if len(wanted) == 0 {
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, part := range wanted {
			if member, ok := v[name]; ok {
				kept[name] = model(member, part)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(v))
		for i := range v {
			kept[i] = model(v[i], wanted)
		}
		return kept
	}
	return v
}

// FuzzOf compares with encoding/json: of JSON exactly what is wanted is kept.
func FuzzOf(f *testing.F) {
	f.Add(`{"a":1,"x":[{"a":2}],"b":{"c":"\"}","d":[{"e":1,"f":2},null]}}`)
	f.Add(` { "b" : { "d" : "\\\"" } } `)
	f.Add(`{"a":1}}`)
	f.Fuzz(func(t *testing.T, in string) {
		got, ok := Of([]byte(in), wanted)
		Find([]byte(in), "b")
		var whole any
		if json.Unmarshal([]byte(in), &whole) != nil {
			return
		}
		if strings.Contains(in, `\u`) {
			return // names with escapes are never wanted
		}
		if !ok {
			t.Fatalf("%q was not understood", in)
		}
		var kept any
		if err := json.Unmarshal(got, &kept); err != nil {
			t.Fatalf("%q gives %q: %v", in, got, err)
		}
		if want := model(whole, wanted); !duplicates(in) && !reflect.DeepEqual(want, kept) {
			t.Fatalf("%q gives %q, expected %v", in, got, want)
		}
	})
}

// duplicates tells whether a name of wanted may occur twice in one object.
func duplicates(in string) bool {
	for _, name := range []string{`"a"`, `"b"`, `"c"`, `"d"`} {
		if strings.Count(in, name) > 1 {
			return true
		}
	}
	return false
}
