package build

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// WriteSums writes SHA256SUMS for `sha256sum -c`, with the sums of all files below a folder.
func WriteSums(folder string) error {
	var files []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(files)
	var text strings.Builder
	for _, path := range files {
		sum, err := sumOf(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, filepath.ToSlash(relative))
	}
	return os.WriteFile(filepath.Join(folder, "SHA256SUMS"), []byte(text.String()), 0o644)
}

func sumOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", hash.Sum(nil)), nil
}
