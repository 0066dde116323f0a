package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// A natsConnection speaks the protocol of NATS. Answers come to an inbox whose last token is the slot. A message of a
// stream has its own subject instead, so a connection that fetches has a subscription for each slot.
type natsConnection struct {
	inbox string
	slots int // number of slots that have a subscription each, 0 if there is one subscription for all
}

func newNatsConnection(number, slots int) natsConnection {
	return natsConnection{fmt.Sprintf("_INBOX.%d.%d.", os.Getpid(), number), slots}
}

const natsConnect = `CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1,` +
	`"lang":"go","version":"0","name":"benchmark"}` + "\r\n"

// greet connects, and subscribes to the inbox.
func (c natsConnection) greet(conn net.Conn) error {
	hello := []byte(natsConnect)
	if c.slots == 0 {
		hello = fmt.Appendf(hello, "SUB %s* 1\r\n", c.inbox)
	}
	for slot := range c.slots {
		hello = fmt.Appendf(hello, "SUB %s%d %d\r\n", c.inbox, slot, slot)
	}
	if _, err := conn.Write(append(hello, "PING\r\n"...)); err != nil {
		return err
	}
	// Nothing follows the PONG yet, so that the reader buffers nothing that belongs to the caller.
	reader := bufio.NewReader(conn)
	for {
		line, err := reader.ReadString('\n')
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(line, "PONG"):
			return nil
		case !strings.HasPrefix(line, "INFO "):
			return fmt.Errorf("the server greeted with %q", line)
		}
	}
}

// appendPublish appends a message whose answers come to the inbox of a slot.
func (c natsConnection) appendPublish(out []byte, subject []byte, slot int, payload []byte) []byte {
	out = append(append(out, "PUB "...), subject...)
	out = append(append(out, ' '), c.inbox...)
	out = strconv.AppendInt(out, int64(slot), 10)
	out = strconv.AppendInt(append(out, ' '), int64(len(payload)), 10)
	out = append(append(out, "\r\n"...), payload...)
	return append(out, "\r\n"...)
}

// A natsMessage is an answer in the inbox.
type natsMessage struct {
	used    int
	slot    int // -1 for what is not an answer
	reply   []byte
	header  []byte
	payload []byte
}

// read reads the first protocol message in data, and appends what it demands; used is 0 if it is incomplete.
func (c natsConnection) read(data, out []byte) (natsMessage, []byte, error) {
	line, rest, found := bytes.Cut(data, []byte("\r\n"))
	if !found {
		return natsMessage{}, out, nil
	}
	ignored := natsMessage{used: len(data) - len(rest), slot: -1}
	switch {
	case bytes.HasPrefix(line, []byte("MSG ")), bytes.HasPrefix(line, []byte("HMSG ")):
		message, err := c.parse(line, rest)
		return message, out, err
	case bytes.Equal(line, []byte("PING")):
		return ignored, append(out, "PONG\r\n"...), nil
	case bytes.HasPrefix(line, []byte("INFO ")), bytes.Equal(line, []byte("PONG")):
		return ignored, out, nil
	}
	return natsMessage{}, out, fmt.Errorf("the server sent %q", line)
}

var errNoMessage = errors.New("the message is malformed")

// parse reads MSG SUBJECT SID [REPLY] SIZE, or HMSG SUBJECT SID [REPLY] HEADER-SIZE SIZE, and what follows the line.
func (c natsConnection) parse(line, rest []byte) (natsMessage, error) {
	used := len(line) + 2
	var space [6][]byte
	fields := space[:0]
	for len(line) > 0 && len(fields) < cap(space) {
		var field []byte
		field, line, _ = bytes.Cut(line, []byte(" "))
		fields = append(fields, field)
	}
	sizes := 1
	if fields[0][0] == 'H' {
		sizes = 2
	}
	if len(fields) < 3+sizes || len(fields) > 4+sizes {
		return natsMessage{}, errNoMessage
	}
	size, ok := number(fields[len(fields)-1])
	headerSize := 0
	if sizes == 2 && ok {
		headerSize, ok = number(fields[len(fields)-2])
	}
	slotText := fields[2]
	if c.slots == 0 {
		slotText = fields[1][min(len(c.inbox), len(fields[1])):]
	}
	slot, isSlot := number(slotText)
	if !ok || !isSlot || headerSize > size {
		return natsMessage{}, errNoMessage
	}
	if len(rest) < size+2 {
		return natsMessage{}, nil
	}
	message := natsMessage{used: used + size + 2, slot: slot, header: rest[:headerSize], payload: rest[headerSize:size]}
	if len(fields) == 4+sizes {
		message.reply = fields[3]
	}
	return message, nil
}

// number reads a decimal number of at most nine digits.
func number(text []byte) (int, bool) {
	value := 0
	for _, digit := range text {
		if digit < '0' || digit > '9' {
			return 0, false
		}
		value = value*10 + int(digit-'0')
	}
	return value, len(text) > 0 && len(text) < 10
}

// jetStreamPush publishes and gets a PubAck.
type jetStreamPush struct {
	natsConnection
	subject []byte
	body    []byte
}

func newJetStreamPush(stream string, number int, body []byte) *jetStreamPush {
	return &jetStreamPush{newNatsConnection(number, 0), []byte(stream), body}
}

func (p *jetStreamPush) begin(out []byte, slot int) []byte {
	return p.appendPublish(out, p.subject, slot, p.body)
}

var pubAck = []byte(`{"stream":`)

func (p *jetStreamPush) receive(data, out []byte) (answer, []byte, error) {
	got, out, err := p.read(data, out)
	if got.used == 0 || got.slot < 0 || err != nil {
		return answer{used: got.used, slot: got.slot}, out, err
	}
	if !bytes.HasPrefix(got.payload, pubAck) || bytes.Contains(got.payload, []byte(`"error"`)) {
		return answer{}, out, fmt.Errorf("a publish was answered by %q%q", got.header, got.payload)
	}
	return answer{used: got.used, slot: got.slot, finished: true}, out, nil
}

// jetStreamConsume fetches one message and acknowledges it, with an answer to the acknowledgement.
// Its stream has a durable consumer of the same name.
type jetStreamConsume struct {
	natsConnection
	next   []byte
	acking []bool // by slot, whether the acknowledgement was sent
}

func newJetStreamConsume(stream string, number, slots int) *jetStreamConsume {
	next := []byte("$JS.API.CONSUMER.MSG.NEXT." + stream + "." + stream)
	return &jetStreamConsume{newNatsConnection(number, slots), next, make([]bool, slots)}
}

// fetchOne waits for a message for at most two seconds.
var (
	fetchOne   = []byte(`{"batch":1,"expires":2000000000}`)
	noneInTime = []byte("NATS/1.0 408 Request Timeout")
)

func (c *jetStreamConsume) begin(out []byte, slot int) []byte {
	return c.appendPublish(out, c.next, slot, fetchOne)
}

func (c *jetStreamConsume) receive(data, out []byte) (answer, []byte, error) {
	got, out, err := c.read(data, out)
	if got.used == 0 || got.slot < 0 || err != nil {
		return answer{used: got.used, slot: got.slot}, out, err
	}
	if got.slot >= len(c.acking) {
		return answer{}, out, errNoMessage
	}
	what := answer{used: got.used, slot: got.slot}
	switch acking := c.acking[got.slot]; {
	case acking && len(got.header) == 0:
		c.acking[got.slot] = false
		what.finished = true
	case !acking && len(got.reply) > 0:
		c.acking[got.slot] = true
		out = c.appendPublish(out, got.reply, got.slot, []byte("+ACK"))
	case !acking && bytes.HasPrefix(got.header, noneInTime):
		what.finished, what.empty = true, true
	default:
		return answer{}, out, fmt.Errorf("the server answered %q%q", got.header, got.payload)
	}
	return what, out, nil
}
