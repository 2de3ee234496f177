package server

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

// decodeAny decodes a value with each method that its type allows.
func decodeAny(d *decoder) any {
	switch d.PeekKind() {
	case jsontext.KindBeginObject:
		object := map[string]any{}
		for name := range d.members() {
			object[d.unescape(name)] = decodeAny(d)
		}
		return object
	case jsontext.KindBeginArray:
		list := []any{}
		for range d.elements() {
			list = append(list, decodeAny(d))
		}
		return list
	case jsontext.KindString:
		return d.text()
	case jsontext.KindTrue, jsontext.KindFalse:
		if b := d.boolean(); b != nil {
			return *b
		}
		return nil
	}
	var value any
	d.short(&value)
	return value
}

func TestDecoder_ReadsValues(t *testing.T) {
	for _, in := range []string{
		`{"a":1,"x":[{"a":2}],"b":{"c":"\"}","z":{"c":3},"d":[{"e":1,"f":2},{"f":3}, 7 ,null]}}`,
		` { "x" : "\\" , "a" : { "x" : [ 1 , { } , [ ] ] } } `,
		`{"\u0061\"":"\u00e9 é \\","":""}`,
		`[]`, `{}`, `"a"`, `null`, ` true `, `-1.5e3`,
	} {
		var want any
		require.NoError(t, json.Unmarshal([]byte(in), &want))
		d := newDecoder([]byte(in))
		require.Equal(t, want, decodeAny(d), in)
		require.NoError(t, d.end(), in)
	}
}

func TestDecoder_SkipsUnreadValues(t *testing.T) {
	d := newDecoder([]byte(`{"a":{"x":["}",{"y":"\\"}]},"b":[1,[2,"]"],3],"c":null}`))
	var names []string
	for name := range d.members() {
		names = append(names, string(name))
		if string(name) == "b" {
			n := 0
			for range d.elements() {
				n++
			}
			require.Equal(t, 3, n)
		}
	}
	require.Equal(t, []string{"a", "b", "c"}, names)
	require.NoError(t, d.end())
}

func TestDecoder_ReadsNullAsEmpty(t *testing.T) {
	d := newDecoder([]byte(`[null,null,null,null,null,null]`))
	n := 0
	for range d.elements() {
		switch n++; n - 1 {
		case 0:
			require.Empty(t, d.text())
		case 1:
			require.Nil(t, d.raw())
		case 2:
			require.Nil(t, d.boolean())
		case 3:
			for range d.members() {
				t.Error("a member of null")
			}
		case 4:
			for range d.elements() {
				t.Error("an element of null")
			}
		case 5:
			d.short(nil)
		}
	}
	require.Equal(t, 6, n)
	require.NoError(t, d.end())
}

func TestDecoder_RejectsInvalidJSON(t *testing.T) {
	for _, in := range []string{``, ` `, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":"`, `{"a":"\"`, `{"a":1}}`, `{"a":1} x`, `{"a" 1}`, `{"b":{"c":1 "d":2}}`,
		`{"b":{"d":[1 2]}}`, `{"x":{`, `{1:2}`, `{"a":1,,}`, `{"a":1,}`, `[1,]`, `[,]`, `}`, `"\x"`, "\"\n\"", `nul`, `nullx`, `tru`, `1"a"`, `{"a":1:2}`} {
		d := newDecoder([]byte(in))
		decodeAny(d)
		require.Error(t, d.end(), in)
	}
	for _, tc := range []struct {
		name string
		in   string
		take func(d *decoder)
	}{
		{name: "number as text", in: `7`, take: func(d *decoder) { d.text() }},
		{name: "list as a boolean", in: `[7]`, take: func(d *decoder) { d.boolean() }},
		{name: "text as a boolean", in: `"a"`, take: func(d *decoder) { d.boolean() }},
		{name: "list as an object", in: `[]`, take: func(d *decoder) {
			for range d.members() {
				t.Error("a member of a list")
			}
		}},
		{name: "object as a list", in: `{"a":1}`, take: func(d *decoder) {
			for range d.elements() {
				t.Error("an element of an object")
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDecoder([]byte(tc.in))
			tc.take(d)
			require.Error(t, d.end())
			require.Nil(t, d.raw(), "after an error, methods read nothing")
		})
	}
}

func deep(open string, levels int, end string) string {
	return strings.Repeat(open, levels) + "1" + strings.Repeat(end, levels)
}

// maxLibraryDepth is the depth at which the JSON library, like API servers, refuses a document.
const maxLibraryDepth = 10_000

func TestDecoder_BoundsDepth(t *testing.T) {
	for _, tc := range []struct{ name, open, end string }{
		{name: "objects", open: `{"b":`, end: `}`},
		{name: "lists", open: `[`, end: `]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for levels, fits := range map[int]bool{maxDepth - 2: true, maxDepth - 1: false, maxLibraryDepth - 4: false, 1_000_000: false} {
				pod := `{"metadata":{"managedFields":` + deep(tc.open, levels, tc.end) + `}}`
				_, err := DecodePod([]byte(pod))
				require.Equal(t, !fits, errors.Is(err, ErrTooComplex), "%d levels of %s", levels, tc.open)
				require.Equal(t, fits, err == nil)
				request, err := DecodeRequest([]byte(`{"request":{"object":` + pod + `,"oldObject":` + pod + `}}`))
				require.NoError(t, err, "objects are checked when they are decoded")
				require.True(t, strings.HasPrefix(string(request.Object.Raw), pod))
				if levels < maxLibraryDepth {
					require.Equal(t, pod, string(request.Object.Raw))
					require.Equal(t, pod, string(request.OldObject.Raw))
				}
				_, err = DecodeRequest([]byte(`{"request":{"x":` + deep(tc.open, levels, tc.end) + `}}`))
				require.Equal(t, !fits, errors.Is(err, ErrTooComplex))
			}
		})
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add(`{"a":1,"x":[{"a":2}],"b":{"c":"\"}","d":[{"e":1,"f":2},null]}}`)
	f.Add(` { "b" : { "d" : "\\\"\u00e9é" } , "t" : [ true , false ] } `)
	f.Add(`{"a":1}}`)
	f.Fuzz(func(t *testing.T, in string) {
		var want any
		valid := json.Unmarshal([]byte(in), &want) == nil
		skipped := newDecoder([]byte(in))
		if skipped.raw(); valid && skipped.end() != nil && !errors.Is(skipped.end(), ErrTooComplex) {
			t.Fatalf("%q was not stepped over", in)
		}
		d := newDecoder([]byte(in))
		got := decodeAny(d)
		err := d.end()
		if errors.Is(err, ErrTooComplex) {
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
