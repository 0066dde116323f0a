// MessagePack as far as docs/messagepack-rpc-types.md needs it: strings are []byte or string in requests, string in responses.

package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

var big = binary.BigEndian

func encode(to []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(to, 0xc0)
	case bool:
		return append(to, map[bool]byte{false: 0xc2, true: 0xc3}[v])
	case int:
		return big.AppendUint64(append(to, 0xd3), uint64(v))
	case float64:
		return big.AppendUint64(append(to, 0xcb), math.Float64bits(v))
	case string:
		return append(big.AppendUint32(append(to, 0xdb), uint32(len(v))), v...)
	case []byte:
		return encode(to, string(v))
	case []any:
		to = big.AppendUint32(append(to, 0xdd), uint32(len(v)))
		for _, element := range v {
			to = encode(to, element)
		}
		return to
	case map[string]any:
		to = big.AppendUint32(append(to, 0xdf), uint32(len(v)))
		for key, element := range v {
			to = encode(encode(to, key), element)
		}
		return to
	}
	panic(fmt.Sprintf("%T cannot be encoded", value))
}

type decoder struct{ *bufio.Reader }

func (d decoder) bytes(size int) []byte {
	data := make([]byte, size)
	if _, err := io.ReadFull(d, data); err != nil {
		panic(err)
	}
	return data
}

// An integer without a sign that has 1, 2, 4 or 8 bytes.
func (d decoder) unsigned(size int) uint64 {
	return big.Uint64(append(make([]byte, 8-size), d.bytes(size)...))
}

func (d decoder) array(size int) []any {
	values := []any{}
	for range make([]struct{}, size) {
		values = append(values, d.value())
	}
	return values
}

func (d decoder) pairs(size int) map[any]any {
	values := map[any]any{}
	for range make([]struct{}, size) {
		key := d.value()
		values[key] = d.value()
	}
	return values
}

func (d decoder) value() any {
	first := int(d.bytes(1)[0])
	switch {
	case first < 0x80:
		return first
	case first < 0x90:
		return d.pairs(first & 15)
	case first < 0xa0:
		return d.array(first & 15)
	case first < 0xc0:
		return string(d.bytes(first & 31))
	case first >= 0xe0:
		return first - 256
	case first == 0xc0:
		return nil
	case first == 0xc2, first == 0xc3:
		return first == 0xc3
	case first == 0xcb:
		return math.Float64frombits(d.unsigned(8))
	case 0xcc <= first && first <= 0xcf:
		return int(d.unsigned(1 << (first - 0xcc)))
	case 0xd0 <= first && first <= 0xd3:
		size := 1 << (first - 0xd0)
		shift := 64 - 8*size
		return int(int64(d.unsigned(size)<<shift) >> shift)
	case first == 0xda, first == 0xdb:
		return string(d.bytes(int(d.unsigned(2 << (first - 0xda)))))
	case first == 0xdc, first == 0xdd:
		return d.array(int(d.unsigned(2 << (first - 0xdc))))
	case first == 0xde, first == 0xdf:
		return d.pairs(int(d.unsigned(2 << (first - 0xde))))
	}
	panic(fmt.Errorf("the node sent the type %#x", first))
}
