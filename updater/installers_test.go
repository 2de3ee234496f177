package updater

import (
	"errors"
	"testing"

	"loadline.dev/loadline/pkg/flags"
	"loadline.dev/loadline/pkg/testkit"
)

func TestConfig_AcceptsInstallerArguments(t *testing.T) {
	testkit.Installers(t, func(args []string) error {
		config, fs := Default(), flags.New("updater")
		config.AddFlags(fs)
		return errors.Join(fs.Parse(args), config.Validate())
	})
}
