package recommender

import (
	"strings"

	"github.com/spf13/pflag"

	"loadline.dev/loadline/pkg/core/recipe"
	"loadline.dev/loadline/pkg/flags"
)

// Recipe is the recipe of VPAs that ask for none.
type Recipe string

// AddFlags binds the group to fs.
func (r *Recipe) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar((*string)(r), "recipe", string(*r), `How usage becomes a recommendation, perhaps with settings, as in "loadline:cpu=tracking". One of `+
		strings.Join(recipe.Names(), ", ")+`; "vpa" is that of the reference, with the settings of the other flags. A VPA may have its own in the annotation `+recipe.Annotation+".")
}

// Book returns the recipe and those that VPAs ask for, with the settings of other
// flags.
func (r Recipe) Book(c recipe.Config) (*recipe.Book, error) { return recipe.NewBook(string(r), c) }

// Validate says what is wrong with the recipe. Of settings that are wrong themselves
// nothing can be made.
func (r Recipe) Validate(c recipe.Config) error {
	if _, err := r.Book(c); err != nil && c.Validate() == nil {
		return flags.Problem("recipe", r, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}
