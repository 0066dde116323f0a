package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

const (
	readBytes = 64 << 10
	// After the end of the measured time, answers may take this long.
	answerWithin = 20 * time.Second
)

// A connection keeps a fixed number of operations in flight.
type connection struct {
	dialogue
	plan    *plan
	to      target
	conn    net.Conn
	started []time.Duration // by slot
	result  result
}

// A result is what one connection, or all of them, did.
type result struct {
	latencies histogram // of the operations that ended within the measured time
	all       uint64    // operations that ended well at any time
	empty     uint64    // operations that found no message
	last      time.Duration
	failure   error
}

// record counts an operation that ended well.
func (r *result) record(p *plan, started, now time.Duration) {
	r.all++
	r.last = max(r.last, now)
	if now >= p.begin && now < p.end {
		r.latencies.add(now - started)
	}
}

func (r *result) merge(other *result) {
	r.latencies.merge(&other.latencies)
	r.all += other.all
	r.empty += other.empty
	r.last = max(r.last, other.last)
	if r.failure == nil {
		r.failure = other.failure
	}
}

func (c *connection) dial() error {
	conn, err := net.DialTimeout("tcp", c.to.address, answerWithin)
	if err != nil {
		return err
	}
	if c.plan.protocol == "https" {
		// The certificate is one that was made for this run.
		secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
		if err := secure.Handshake(); err != nil {
			return err
		}
		conn = secure
	}
	c.conn = conn
	return c.greet(conn)
}

// run performs operations until the measured time ends, and waits for the answers to all.
func (c *connection) run() {
	defer c.conn.Close()
	c.result.failure = c.exchange()
}

func (c *connection) exchange() error {
	if err := c.setDeadline(); err != nil {
		return err
	}
	out := make([]byte, 0, readBytes)
	unanswered := 0
	for slot := range c.started {
		if !c.plan.claim() {
			break
		}
		out = c.begin(out, slot)
		c.started[slot] = c.plan.now()
		unanswered++
	}
	data := make([]byte, readBytes)
	have := 0
	for unanswered > 0 {
		if _, err := c.conn.Write(out); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		if have == len(data) {
			data = append(data, make([]byte, len(data))...)
		}
		count, err := c.conn.Read(data[have:])
		if err != nil {
			return fmt.Errorf("reading with %d unanswered: %w", unanswered, err)
		}
		have += count
		used, ended, next, err := c.answers(data[:have], out[:0])
		if err != nil {
			return err
		}
		out = next
		unanswered -= ended
		have = copy(data, data[used:have])
	}
	return nil
}

// answers handles all complete answers in data. It returns the bytes used, the number of slots that begin no further
// operation, and the requests to send.
func (c *connection) answers(data, out []byte) (int, int, []byte, error) {
	now := c.plan.now()
	used, ended := 0, 0
	for used < len(data) {
		got, next, err := c.receive(data[used:], out)
		if err != nil {
			return 0, 0, nil, err
		}
		out = next
		if got.used == 0 {
			break
		}
		used += got.used
		if got.slot >= len(c.started) {
			return 0, 0, nil, fmt.Errorf("an answer to the request %d, which was not sent", got.slot)
		}
		if got.closes {
			if err := c.redial(); err != nil {
				return 0, 0, nil, err
			}
		}
		if !got.finished {
			continue
		}
		if got.empty {
			c.result.empty++
		} else {
			c.result.record(c.plan, c.started[got.slot], now)
		}
		if got.empty || !c.plan.claim() {
			ended++
			continue
		}
		out = c.begin(out, got.slot)
		c.started[got.slot] = now
	}
	return used, ended, out, nil
}

func (c *connection) redial() error {
	c.conn.Close()
	if err := c.dial(); err != nil {
		return fmt.Errorf("connecting again: %w", err)
	}
	return c.setDeadline()
}

func (c *connection) setDeadline() error {
	return c.conn.SetDeadline(c.plan.epoch.Add(c.plan.end + answerWithin))
}
