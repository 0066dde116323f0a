package main

import (
	"errors"
	"fmt"
	"net"
)

// An answer is what one complete value from the server means for the operation in a slot.
type answer struct {
	used     int  // bytes of the value, 0 if it is incomplete
	slot     int  // number of the operation's place among those in flight on the connection, -1 if it concerns none
	finished bool // the operation is complete; otherwise its next request was appended
	empty    bool // the queue has no message left for it
	closes   bool // the server closes the connection after this answer
}

// A dialogue speaks one protocol on one connection.
type dialogue interface {
	// greet prepares a new connection.
	greet(conn net.Conn) error
	// begin appends the first request of the operation in a slot.
	begin(out []byte, slot int) []byte
	// receive reads the first answer in data and appends the request that follows from it. An error means that the
	// operation failed, or that the bytes are no answer.
	receive(data, out []byte) (answer, []byte, error)
}

// A target is what a connection works on.
type target struct {
	address string
	queue   string
}

const (
	push      = "push"
	pushBatch = "push-batch"
	consume   = "consume"
	create    = "create"
)

var errUnknown = errors.New("unknown protocol or operation")

// newDialogue returns the dialogue for a connection.
func newDialogue(o options, to target, number int, body []byte) (dialogue, error) {
	protocol, operation, slots := o.protocol, o.operation, o.slots
	switch {
	case protocol == "rpc" && operation == push:
		return newRPCPush(to.queue, body), nil
	case protocol == "rpc" && operation == consume:
		return newRPCConsume(to.queue), nil
	case (protocol == "http" || protocol == "https") && operation == push:
		return newHTTPPush(to, body), nil
	case protocol == "jetstream" && operation == push:
		return newJetStreamPush(to.queue, number, body), nil
	case protocol == "jetstream" && operation == consume:
		return newJetStreamConsume(to.queue, number, slots), nil
	case protocol == "sqs" && (operation == push || operation == pushBatch || operation == consume || operation == create):
		return newSQS(to, o, number, body)
	}
	return nil, fmt.Errorf("%w: %s %s", errUnknown, protocol, operation)
}
