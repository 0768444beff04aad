package podnet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// confKeys are the keys of net-conf.json by the object that they are in. Those of the
// second line are of flannel's etcd manager.
var confKeys = map[string][]string{
	"": {"Network", "IPv6Network", "EnableIPv4", "EnableIPv6", "EnableNFTables", "Backend",
		"SubnetLen", "SubnetMin", "SubnetMax", "IPv6SubnetLen", "IPv6SubnetMin", "IPv6SubnetMax"},
	"Backend": {"Type", "VNI", "Port", "MTU", "GBP", "Learning", "DirectRouting", "VNIs", "MacPrefix"},
}

// ConfigWarnings lists the keys of net-conf.json that are not known, and those that are
// there twice, of which the last counts. Of what ParseConfig refuses it says nothing.
func ConfigWarnings(text []byte) []string {
	if !json.Valid(text) {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil
	}
	return objectWarnings(dec, "")
}

// objectWarnings reads an object whose beginning was read.
func objectWarnings(dec *json.Decoder, within string) (out []string) {
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		key, is := token.(string)
		if err != nil || !is {
			return out
		}
		at := slices.IndexFunc(confKeys[within], func(known string) bool { return strings.EqualFold(known, key) })
		path := strings.TrimPrefix(within+"."+key, ".")
		switch {
		case at < 0:
			out = append(out, fmt.Sprintf("net-conf.json: %s is no key that is known: it has no effect", shortKey(path)))
		case seen[confKeys[within][at]]:
			out = append(out, fmt.Sprintf("net-conf.json: %s is there more than once: the last one counts", shortKey(path)))
		default:
			seen[confKeys[within][at]] = true
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return out
		}
		if at >= 0 && confKeys[within][at] == "Backend" && value[0] == '{' {
			inner := json.NewDecoder(bytes.NewReader(value))
			if _, err := inner.Token(); err == nil {
				out = append(out, objectWarnings(inner, "Backend")...)
			}
		}
	}
	return out
}

// shortKey quotes a key, which may be as long as the file.
func shortKey(key string) string {
	const most = 60
	if len(key) > most {
		key = key[:most] + "..."
	}
	return fmt.Sprintf("%q", key)
}
