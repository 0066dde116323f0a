package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
)

// MessagePack-RPC: a request is [0, msgid, method, arguments], an answer [1, msgid, error, result]. The msgid is the
// slot, always as an integer of 32 bits, so that it can be patched into a prepared request.

const (
	requestHead = "\x94\x00\xce"
	msgidAt     = len(requestHead)
	msgidLength = 4
)

var errBroken = errors.New("the answer is malformed")

type rpcPush struct{ request []byte }

func newRPCPush(queue string, body []byte) *rpcPush {
	request := append([]byte(requestHead), 0, 0, 0, 0)
	request = append(request, "\xa4push\x92"...)
	request = appendString(request, []byte(queue))
	return &rpcPush{appendString(request, body)}
}

func (*rpcPush) greet(net.Conn) error { return nil }

func (p *rpcPush) begin(out []byte, slot int) []byte {
	return appendRequest(out, p.request, uint32(slot))
}

func (*rpcPush) receive(data, out []byte) (answer, []byte, error) {
	got, err := readAnswer(data)
	if got.used == 0 || err != nil {
		return answer{}, out, err
	}
	if !bytes.Equal(got.result, okResult) {
		return answer{}, out, fmt.Errorf("a push returned %q", got.result)
	}
	return answer{used: got.used, slot: int(got.msgid), finished: true}, out, nil
}

// rpcConsume pulls a message without waiting and acknowledges it. The lowest bit of the msgid tells the two apart.
type rpcConsume struct {
	pull []byte
	done []byte // without the id of the message
}

func newRPCConsume(queue string) *rpcConsume {
	pull := append([]byte(requestHead), 0, 0, 0, 0)
	pull = appendString(append(pull, "\xa4pull\x92"...), []byte(queue))
	done := append([]byte(requestHead), 0, 0, 0, 0)
	done = appendString(append(done, "\xa4done\x92"...), []byte(queue))
	return &rpcConsume{append(pull, 0), done}
}

func (*rpcConsume) greet(net.Conn) error { return nil }

func (c *rpcConsume) begin(out []byte, slot int) []byte {
	return appendRequest(out, c.pull, uint32(slot)<<1)
}

func (c *rpcConsume) receive(data, out []byte) (answer, []byte, error) {
	got, err := readAnswer(data)
	if got.used == 0 || err != nil {
		return answer{}, out, err
	}
	what := answer{used: got.used, slot: int(got.msgid >> 1)}
	if got.msgid&1 == 1 {
		what.finished = true
		if !bytes.Equal(got.result, okResult) {
			err = fmt.Errorf("done returned %q", got.result)
		}
		return what, out, err
	}
	if bytes.Equal(got.result, emptyResult) {
		what.finished, what.empty = true, true
		return what, out, nil
	}
	id, err := valueOf(got.result, "id")
	if err != nil {
		return answer{}, out, err
	}
	return what, append(appendRequest(out, c.done, got.msgid|1), id...), nil
}

var (
	okResult    = []byte("\xa2ok")
	emptyResult = []byte("\xa5empty")
)

// appendRequest appends a prepared request with its msgid.
func appendRequest(out, request []byte, msgid uint32) []byte {
	at := len(out) + msgidAt
	out = append(out, request...)
	binary.BigEndian.PutUint32(out[at:], msgid)
	return out
}

func appendString(out, text []byte) []byte {
	switch length := len(text); {
	case length < 32:
		out = append(out, 0xa0|byte(length))
	case length < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, 0xda), uint16(length))
	default:
		out = binary.BigEndian.AppendUint32(append(out, 0xdb), uint32(length))
	}
	return append(out, text...)
}

// An rpcAnswer has the encoded result of a successful request.
type rpcAnswer struct {
	used   int
	msgid  uint32
	result []byte
}

// readAnswer reads the first answer in data; used is 0 if it is incomplete. An answer with an error is an error.
func readAnswer(data []byte) (rpcAnswer, error) {
	if len(data) < 3 {
		return rpcAnswer{}, nil
	}
	if data[0] != 0x94 || data[1] != 1 {
		return rpcAnswer{}, errBroken
	}
	msgid, used, err := readUint(data[2:])
	if err != nil || used == 0 {
		return rpcAnswer{}, err
	}
	failureAt := 2 + used
	length, err := lengthOf(data[failureAt:])
	if err != nil || length == 0 {
		return rpcAnswer{}, err
	}
	resultAt := failureAt + length
	if length, err = lengthOf(data[resultAt:]); err != nil || length == 0 {
		return rpcAnswer{}, err
	}
	if data[failureAt] != 0xc0 {
		return rpcAnswer{}, fmt.Errorf("the server answered with the error %q", data[failureAt:resultAt])
	}
	end := resultAt + length
	return rpcAnswer{end, msgid, data[resultAt:end]}, nil
}

// readUint reads an integer from 0 to 2^32 - 1 and its length, which is 0 if it is incomplete.
func readUint(data []byte) (uint32, int, error) {
	if len(data) == 0 {
		return 0, 0, nil
	}
	if data[0] < 0x80 {
		return uint32(data[0]), 1, nil
	}
	if data[0] < 0xcc || data[0] > 0xce {
		return 0, 0, errBroken
	}
	length := 1 << (data[0] - 0xcc)
	if len(data) <= length {
		return 0, 0, nil
	}
	value := uint32(0)
	for _, one := range data[1 : 1+length] {
		value = value<<8 | uint32(one)
	}
	return value, 1 + length, nil
}

// valueOf returns the encoded value of a key in an encoded, complete map.
func valueOf(encoded []byte, key string) ([]byte, error) {
	if len(encoded) == 0 || encoded[0]&0xf0 != 0x80 {
		return nil, fmt.Errorf("%w: %q is no map", errBroken, encoded)
	}
	wanted := appendString(nil, []byte(key))
	at := 1
	for range encoded[0] & 0x0f {
		keyLength, err := lengthOf(encoded[at:])
		if err != nil {
			return nil, err
		}
		valueAt := at + keyLength
		valueLength, err := lengthOf(encoded[valueAt:])
		if err != nil {
			return nil, err
		}
		if bytes.Equal(encoded[at:valueAt], wanted) {
			return encoded[valueAt : valueAt+valueLength], nil
		}
		at = valueAt + valueLength
	}
	return nil, fmt.Errorf("%w: there is no %s", errBroken, key)
}

// lengthOf returns the number of bytes of the first value in data, 0 if it is incomplete.
func lengthOf(data []byte) (int, error) {
	at := 0
	for values := 1; values > 0; values-- {
		if at >= len(data) {
			return 0, nil
		}
		head, content, inner, err := shapeOf(data[at:])
		if err != nil || head == 0 {
			return 0, err
		}
		at += head + content
		values += inner
	}
	if at > len(data) {
		return 0, nil
	}
	return at, nil
}

// shapeOf returns the bytes of a value's head and of its content, and the number of the values inside; a head of 0 if
// it is incomplete.
func shapeOf(data []byte) (head, content, inner int, err error) {
	first := data[0]
	switch {
	case first < 0x80 || first >= 0xe0 || first == 0xc0 || first == 0xc2 || first == 0xc3:
		return 1, 0, 0, nil
	case first < 0x90:
		return 1, 0, 2 * int(first&0x0f), nil
	case first < 0xa0:
		return 1, 0, int(first & 0x0f), nil
	case first < 0xc0:
		return 1, int(first & 0x1f), 0, nil
	case first == 0xca:
		return 1, 4, 0, nil
	case first == 0xcb:
		return 1, 8, 0, nil
	case first >= 0xcc && first <= 0xd3:
		return 1, 1 << ((first - 0xcc) & 3), 0, nil
	}
	size, ok := map[byte]int{0xc4: 1, 0xc5: 2, 0xc6: 4, 0xd9: 1, 0xda: 2, 0xdb: 4, 0xdc: 2, 0xdd: 4, 0xde: 2, 0xdf: 4}[first]
	if !ok {
		return 0, 0, 0, errBroken
	}
	if len(data) <= size {
		return 0, 0, 0, nil
	}
	count := 0
	for _, one := range data[1 : 1+size] {
		count = count<<8 | int(one)
	}
	switch {
	case first >= 0xde:
		return 1 + size, 0, 2 * count, nil
	case first >= 0xdc:
		return 1 + size, 0, count, nil
	}
	return 1 + size, count, 0, nil
}
