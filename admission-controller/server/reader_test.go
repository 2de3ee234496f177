package server

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// whole takes all of a value, with every method that a value of its form allows.
func whole(r *Reader) any {
	r.space()
	if r.at == len(r.in) {
		r.Skip()
		return nil
	}
	switch r.in[r.at] {
	case '{':
		object := map[string]any{}
		for name := range r.Members() {
			object[r.key(name)] = whole(r)
		}
		return object
	case '[':
		list := []any{}
		for range r.Elements() {
			list = append(list, whole(r))
		}
		return list
	case '"':
		return r.Text()
	case 't', 'f':
		if b := r.Truth(); b != nil {
			return *b
		}
		return nil
	}
	var value any
	r.Into(&value)
	return value
}

func TestReaderTakesWhatIsThere(t *testing.T) {
	for _, in := range []string{
		`{"a":1,"x":[{"a":2}],"b":{"c":"\"}","z":{"c":3},"d":[{"e":1,"f":2},{"f":3}, 7 ,null]}}`,
		` { "x" : "\\" , "a" : { "x" : [ 1 , { } , [ ] ] } } `,
		`{"\u0061\"":"\u00e9 é \\","":""}`,
		`[]`, `{}`, `"a"`, `null`, ` true `, `-1.5e3`,
	} {
		var want any
		require.NoError(t, json.Unmarshal([]byte(in), &want))
		r := Read([]byte(in))
		require.Equal(t, want, whole(r), in)
		require.NoError(t, r.Err(), in)
	}
}

func TestReaderSkipsWhatIsNotTaken(t *testing.T) {
	r := Read([]byte(`{"a":{"x":["}",{"y":"\\"}]},"b":[1,[2,"]"],3],"c":null}`))
	var names []string
	for name := range r.Members() {
		names = append(names, string(name))
		if string(name) == "b" {
			n := 0
			for range r.Elements() {
				n++
			}
			require.Equal(t, 3, n)
		}
	}
	require.Equal(t, []string{"a", "b", "c"}, names)
	require.NoError(t, r.Err())
}

func TestNullIsNothing(t *testing.T) {
	r := Read([]byte(`[null,null,null,null,null,null]`))
	n := 0
	for i := range r.Elements() {
		switch n++; i {
		case 0:
			require.Empty(t, r.Text())
		case 1:
			require.Nil(t, r.Raw())
		case 2:
			require.Nil(t, r.Truth())
		case 3:
			for range r.Members() {
				t.Error("a member of null")
			}
		case 4:
			for range r.Elements() {
				t.Error("an element of null")
			}
		case 5:
			r.Into(nil)
		}
	}
	require.Equal(t, 6, n)
	require.NoError(t, r.Err())
}

func TestReaderNoticesWhatDoesNotFit(t *testing.T) {
	for _, in := range []string{``, ` `, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":"`, `{"a":"\"`, `{"a":1}}`, `{"a":1} x`, `{"a" 1}`, `{"b":{"c":1 "d":2}}`,
		`{"b":{"d":[1 2]}}`, `{"x":{`, `{1:2}`, `{"a":1,,}`, `{"a":1,}`, `[1,]`, `[,]`, `}`, `"\x"`, "\"\n\"", `nul`, `nullx`, `tru`, `1"a"`, `{"a":1:2}`} {
		r := Read([]byte(in))
		whole(r)
		require.Error(t, r.Err(), in)
	}
	for in, take := range map[string]func(r *Reader){
		`7`: func(r *Reader) { r.Text() }, `[7]`: func(r *Reader) { r.Truth() }, `"a"`: func(r *Reader) { r.Truth() },
		`[]`: func(r *Reader) {
			for range r.Members() {
				t.Error("a member of a list")
			}
		},
		`{"a":1}`: func(r *Reader) {
			for range r.Elements() {
				t.Error("an element of an object")
			}
		},
		`[1,2]`: func(r *Reader) {
			for range r.Elements() {
				break // leaves the reader inside of the list
			}
		},
		`{"b":2}`: func(r *Reader) {
			for range r.Members() {
				break
			}
		},
	} {
		r := Read([]byte(in))
		take(r)
		require.Error(t, r.Err(), in)
		require.Nil(t, r.Raw(), "nothing is taken after that")
	}
}

// deep is a value of some levels around 1.
func deep(open string, levels int, end string) string {
	return strings.Repeat(open, levels) + "1" + strings.Repeat(end, levels)
}

func TestDeepNestingIsTooMuch(t *testing.T) {
	for _, c := range []struct{ open, end string }{{`{"b":`, `}`}, {`[`, `]`}} {
		for levels, fits := range map[int]bool{mostLevels - 2: true, mostLevels - 1: false, 1_000_000: false} {
			pod := `{"metadata":{"managedFields":` + deep(c.open, levels, c.end) + `}}`
			_, err := Pod([]byte(pod))
			require.Equal(t, !fits, errors.Is(err, ErrTooMuch), "%d levels of %s", levels, c.open)
			require.Equal(t, fits, err == nil)
			request, err := Request([]byte(`{"request":{"object":` + pod + `,"oldObject":` + pod + `}}`))
			require.NoError(t, err, "the bounds of an object are those of its reader")
			require.Equal(t, pod, string(request.Object.Raw))
			require.Equal(t, pod, string(request.OldObject.Raw))
			_, err = Request([]byte(`{"request":{"x":` + deep(c.open, levels, c.end) + `}}`))
			require.Equal(t, !fits, errors.Is(err, ErrTooMuch))
		}
	}
}

// FuzzReader compares with encoding/json: what that accepts is read alike.
func FuzzReader(f *testing.F) {
	f.Add(`{"a":1,"x":[{"a":2}],"b":{"c":"\"}","d":[{"e":1,"f":2},null]}}`)
	f.Add(` { "b" : { "d" : "\\\"\u00e9é" } , "t" : [ true , false ] } `)
	f.Add(`{"a":1}}`)
	f.Fuzz(func(t *testing.T, in string) {
		var want any
		valid := json.Unmarshal([]byte(in), &want) == nil
		skipped := Read([]byte(in))
		if skipped.Skip(); valid && skipped.Err() != nil && !errors.Is(skipped.Err(), ErrTooMuch) {
			t.Fatalf("%q was not stepped over", in)
		}
		r := Read([]byte(in))
		got := whole(r)
		err := r.Err()
		if errors.Is(err, ErrTooMuch) {
			return
		}
		if (err == nil) != valid {
			t.Fatalf("%q: error %v, valid %v", in, err, valid)
		}
		if valid {
			require.Equal(t, want, got, "%q", in)
		}
	})
}
