package lab

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"
)

// AwaitOK asks a web server from inside the host, again and again, until it answers
// 200. It gives up when ctx ends, and when ended is closed: then who should answer
// is gone. The URL names an IP address.
func (h *Host) AwaitOK(ctx context.Context, url string, ended <-chan struct{}) error {
	client := http.Client{
		Transport: &http.Transport{DialContext: h.DialContext, DisableKeepAlives: true},
		Timeout:   2 * time.Second,
	}
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	last := "no answer yet"
	for {
		answer, err := client.Get(url)
		if err != nil {
			last = err.Error()
		} else {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
			last = answer.Status
		}
		select {
		case <-ended:
			return fmt.Errorf("lab: %s in %s: the program ended", url, h.Name)
		case <-ctx.Done():
			return fmt.Errorf("lab: %s in %s: %w: %s", url, h.Name, ctx.Err(), last)
		case <-pause.C:
		}
	}
}

// Dir is the working directory of the lab; Close removes it.
func (l *Lab) Dir() string { return l.dir }

// Paths gives, for the name of each host, a file that stands for its network
// namespace while the lab is up: `nsenter --net=FILE COMMAND` runs a program there.
func (l *Lab) Paths() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	paths := map[string]string{l.Client.Name: l.Client.path()}
	for _, n := range l.nodes {
		paths[n.Name] = n.path()
	}
	for _, p := range l.pods {
		paths[p.Name] = p.path()
	}
	return paths
}

func (h *Host) path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.ns.file.Fd())
}
