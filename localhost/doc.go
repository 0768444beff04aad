// Package localhost answers NodePorts on loopback addresses in user space, for
// proxy modes whose rules cannot: nf_tables translates what is sent to 127.0.0.0/8
// only with route_localnet, which opens loopback to neighbours, and ::1 never.
//
// It listens where nodePortAddresses asks for loopback by name (a network whose
// own address is a loopback address), for every NodePort whose Route for processes
// of this node forwards, with TCP and UDP. What comes is handed to an endpoint of
// that Route; the endpoint sees an address of this node. SCTP is not answered.
//
// ports.go and table.go decide which ports lead where and touch nothing; server.go
// opens and closes them, tcp.go and udp.go carry the bytes.
//
// Connections that are open go on when endpoints, Services or NodePorts change, as
// they do with the kernel's rules. They end with the process, which the kernel's
// do not.
package localhost
