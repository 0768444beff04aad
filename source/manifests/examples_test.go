package manifests

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"portolan/source/kube"
)

// The examples are free of problems and warnings.
func TestExamples(t *testing.T) {
	root := filepath.Join("..", "..", "examples")
	var folders []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == "services.yaml" {
			folders = append(folders, filepath.Dir(path))
		}
		return err
	})
	if err != nil || len(folders) < 15 {
		t.Fatalf("%d examples, %v", len(folders), err)
	}
	for _, folder := range folders {
		snapshot, problems := New([]string{folder}, kube.NewCluster(kube.Settings{})).Load(context.Background())
		for _, p := range problems {
			t.Error(p)
		}
		if snapshot.Len() == 0 && filepath.Base(folder) != "not-ours" {
			t.Errorf("%s: no Service", folder)
		}
	}
}
