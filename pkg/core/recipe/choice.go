package recipe

import (
	"cmp"
	"fmt"
	"strings"
)

// Annotation of a VPA that selects its recipe, optionally with settings: "loadline:cpu=tracking".
const Annotation = "loadline.dev/recipe"

// Source is the origin of a VPA's recipe.
type Source string

// The sources.
const (
	FromFlag       Source = "flag"
	FromAnnotation Source = "annotation"
	FromPolicy     Source = "policy"
	InvalidText    Source = "invalid_annotation" // invalid annotation or policy, so the flag applies
)

// Limits of the cache, because VPA authors can write any number of annotations of up to 256 KiB.
const (
	maxParsed  = 1000
	maxText    = 1000
	maxProblem = 3000
)

// Choice is the recipe of a VPA. It is immutable.
type Choice struct {
	*Recipe
	Name    string // without settings
	Text    string // annotation or policy value
	Source  Source
	Policy  bool   // Text comes from a policy, even if it is invalid
	Problem string // error and valid values, empty if Text is valid
}

// Matches reports whether Choose returns this choice for the same texts, without a lookup.
func (c *Choice) Matches(annotation, policy string) bool {
	if annotation == "" && policy != "" {
		return c.Policy && c.Text == policy
	}
	return !c.Policy && c.Text == annotation
}

// Cache holds recipes by their text. It is not safe for concurrent use, but its choices are.
type Cache struct {
	defaults   Config
	flag       string
	flagChoice *Choice
	parsed     map[cacheKey]*Choice
}

type cacheKey struct {
	text   string
	source Source
}

// NewCache returns a cache for the recipe of the command line and the settings of the recipe "vpa".
func NewCache(flag string, defaults Config) (*Cache, error) {
	r, err := ParseWith(defaults, flag)
	if err != nil {
		return nil, err
	}
	b := &Cache{defaults: defaults, flag: flag, parsed: map[cacheKey]*Choice{}}
	b.flagChoice = &Choice{Recipe: &r, Name: nameOf(flag), Source: FromFlag}
	return b, nil
}

// Fork returns an empty cache with the same defaults for another goroutine.
func (b *Cache) Fork() *Cache {
	return &Cache{defaults: b.defaults, flag: b.flag, flagChoice: b.flagChoice, parsed: map[cacheKey]*Choice{}}
}

// ForAnnotation returns the recipe for an annotation value, empty = none.
func (b *Cache) ForAnnotation(text string) *Choice { return b.find(cacheKey{text, FromAnnotation}) }

// Choose returns the recipe of a VPA: from its annotation, else its SizingPolicy. Empty = none.
func (b *Cache) Choose(annotation, policy string) *Choice {
	if annotation == "" {
		return b.find(cacheKey{policy, FromPolicy})
	}
	return b.ForAnnotation(annotation)
}

func (b *Cache) find(a cacheKey) *Choice {
	if a.text == "" {
		return b.flagChoice
	}
	if known := b.parsed[a]; known != nil {
		return known
	}
	if len(b.parsed) >= maxParsed { // too many distinct texts
		clear(b.parsed)
	}
	c := *b.flagChoice
	c.Text, c.Policy = a.text, a.source == FromPolicy
	if r, err := parse(b.defaults, a.text); err == nil {
		c.Recipe, c.Name, c.Source = &r, nameOf(a.text), a.source
	} else {
		where := "annotation " + Annotation
		if a.source == FromPolicy {
			where = "spec.recipe of the SizingPolicy"
		}
		c.Source = InvalidText
		c.Problem = fmt.Sprintf("%s: %s; using recipe %q of the recommender until this is fixed", where, oneLine(err), b.flag)
	}
	if len(a.text) <= maxText {
		b.parsed[a] = &c
	}
	return &c
}

// Problem describes an invalid annotation value in one line, empty if valid, for default settings.
func Problem(text string) string {
	if _, err := parse(DefaultConfig(), text); err != nil {
		return oneLine(err)
	}
	return ""
}

func parse(defaults Config, text string) (Recipe, error) {
	if len(text) > maxText {
		return Recipe{}, fmt.Errorf("must have at most %d characters, has %d", maxText, len(text))
	}
	return ParseWith(defaults, text)
}

func oneLine(err error) string {
	line := strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(line) > maxProblem {
		line = strings.ToValidUTF8(line[:maxProblem], "") + " and so on"
	}
	return line
}

func nameOf(text string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(text), ":")
	return cmp.Or(name, "vpa")
}
