package recommender

import (
	"errors"
	"testing"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/testkit"
)

func TestFlags_AcceptInstallerArguments(t *testing.T) {
	testkit.Installers(t, func(args []string) error {
		config, fs := Default(), flags.New("recommender")
		config.AddFlags(fs)
		return errors.Join(fs.Parse(args), config.Validate())
	})
}
