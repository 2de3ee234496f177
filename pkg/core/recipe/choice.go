package recipe

import (
	"cmp"
	"fmt"
	"strings"
)

// Annotation of a VPA that says by which recipe it is served, perhaps with settings: "loadline:cpu=tracking".
const Annotation = "loadline.dev/recipe"

// Source says why a VPA has its recipe.
type Source string

// The sources.
const (
	FromFlag   Source = "flag"
	Asked      Source = "annotation"
	FromPolicy Source = "policy"
	NotUsable  Source = "wrong_annotation" // so that of the flag serves
)

// What is remembered is bounded: the number of texts, and the characters of each and of what is wrong with it. Anybody
// who may write a VPA may write ever new ones, and an annotation has room for 256 KiB.
const (
	mostParsed  = 1000
	mostText    = 1000
	mostProblem = 3000
)

// Choice is the recipe of a VPA. It does not change once made.
type Choice struct {
	*Recipe
	Name    string // without settings
	Text    string // of the annotation or the policy
	Source  Source
	Policy  bool   // the text is that of a policy, whether it can be used or not
	Problem string // what is wrong with the text, and what would be right; empty if nothing is
}

// Fits reports whether Choose with these texts returns this choice, without looking it up.
func (c *Choice) Fits(annotation, policy string) bool {
	if annotation == "" && policy != "" {
		return c.Policy && c.Text == policy
	}
	return !c.Policy && c.Text == annotation
}

// Book has recipes by the text that asks for them. It belongs to one goroutine; choices may be read by many.
type Book struct {
	defaults Config
	flag     string
	standard *Choice
	parsed   map[asked]*Choice
}

// asked is a text, and who asks: Asked or FromPolicy.
type asked struct {
	text   string
	source Source
}

// NewBook returns a book for a recipe of the command line and the settings of the recipe "vpa" there.
func NewBook(flag string, defaults Config) (*Book, error) {
	r, err := ParseWith(defaults, flag)
	if err != nil {
		return nil, err
	}
	b := &Book{defaults: defaults, flag: flag, parsed: map[asked]*Choice{}}
	b.standard = &Choice{Recipe: &r, Name: nameOf(flag), Source: FromFlag}
	return b, nil
}

// Fork returns a book of the same recipes for another goroutine.
func (b *Book) Fork() *Book {
	return &Book{defaults: b.defaults, flag: b.flag, standard: b.standard, parsed: map[asked]*Choice{}}
}

// For returns the recipe for a text of the annotation; empty = there is none.
func (b *Book) For(text string) *Choice { return b.find(asked{text, Asked}) }

// Choose returns the recipe of a VPA: that of its annotation, else that of the SizingPolicy
// that is responsible; empty = there is none.
func (b *Book) Choose(annotation, policy string) *Choice {
	if annotation == "" {
		return b.find(asked{policy, FromPolicy})
	}
	return b.For(annotation)
}

func (b *Book) find(a asked) *Choice {
	if a.text == "" {
		return b.standard
	}
	if known := b.parsed[a]; known != nil {
		return known
	}
	if len(b.parsed) >= mostParsed { // somebody writes ever new ones
		clear(b.parsed)
	}
	c := *b.standard
	c.Text, c.Policy = a.text, a.source == FromPolicy
	if r, err := parse(b.defaults, a.text); err == nil {
		c.Recipe, c.Name, c.Source = &r, nameOf(a.text), a.source
	} else {
		where := "annotation " + Annotation
		if a.source == FromPolicy {
			where = "spec.recipe of the SizingPolicy"
		}
		c.Source = NotUsable
		c.Problem = fmt.Sprintf("%s: %s; until that is right the recipe is %q, that of the recommender", where, oneLine(err), b.flag)
	}
	if len(a.text) <= mostText {
		b.parsed[a] = &c
	}
	return &c
}

// Problem says in one line what is wrong with a text of the annotation, and what would
// be right; empty if nothing is. It takes a recommender with the usual settings.
func Problem(text string) string {
	if _, err := parse(DefaultConfig(), text); err != nil {
		return oneLine(err)
	}
	return ""
}

func parse(defaults Config, text string) (Recipe, error) {
	if len(text) > mostText {
		return Recipe{}, fmt.Errorf("it has %d characters, must have at most %d", len(text), mostText)
	}
	return ParseWith(defaults, text)
}

func oneLine(err error) string {
	what := strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(what) > mostProblem {
		what = strings.ToValidUTF8(what[:mostProblem], "") + " and so on"
	}
	return what
}

func nameOf(text string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(text), ":")
	return cmp.Or(name, "vpa")
}
