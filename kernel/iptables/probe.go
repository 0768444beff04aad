package iptables

import (
	"context"
	"errors"
)

// ProbeChain is the chain in the filter table that Accepts writes to. It is left
// behind only when the program is killed in the middle; whoever looks after our
// chains removes it then.
const ProbeChain = "KUBE-PORTOLAN-PROBE"

// Accepts tells whether the kernel takes a rule in the filter table: it is
// written to a chain that nothing leads to, and removed. One section would not
// do, since its outcome is all that the kernel gets to see.
func (t *Tool) Accepts(ctx context.Context, rule string) (bool, error) {
	const empty = "*filter\n:" + ProbeChain + " - [0:0]\n"
	err := t.Restore(ctx, []byte(empty+"-A "+ProbeChain+" "+rule+"\nCOMMIT\n"+empty+"-X "+ProbeChain+"\nCOMMIT\n"))
	var e *RestoreError
	if errors.As(err, &e) && e.Refused {
		return false, nil
	}
	return err == nil, err
}
