package nftables

import "context"

// Changes sends when somebody else changed our table, which the kernel tells at
// once. The channel never sends by itself where it cannot be listened.
func (b *Backend) Changes(ctx context.Context) <-chan struct{} {
	signal := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.signal = signal
	listener, err := b.options.Conn.Listen()
	if err != nil {
		return signal
	}
	go func() {
		defer listener.Close()
		for listener.Wait(ctx, b.table) == nil {
			select {
			case signal <- struct{}{}:
			default: // one waits already
			}
		}
	}()
	return signal
}
