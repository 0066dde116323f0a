package main

import (
	"bytes"
	"fmt"
	"net"
	"strconv"
)

// httpPush pushes with POST /messages/{queue}, one request at a time on a connection that is kept alive.
type httpPush struct{ request []byte }

func newHTTPPush(to target, body []byte) *httpPush {
	head := fmt.Sprintf(
		"POST /messages/%s HTTP/1.1\r\nHost: %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n",
		to.queue, to.address, len(body))
	return &httpPush{append([]byte(head), body...)}
}

func (*httpPush) greet(net.Conn) error { return nil }

func (p *httpPush) begin(out []byte, _ int) []byte { return append(out, p.request...) }

var (
	httpOK      = []byte("HTTP/1.1 200 ")
	headEnd     = []byte("\r\n\r\n")
	lengthName  = []byte("\r\ncontent-length: ")
	closeHeader = []byte("\r\nconnection: close\r\n")
)

func (*httpPush) receive(data, out []byte) (answer, []byte, error) {
	at := bytes.Index(data, headEnd)
	if at < 0 {
		return answer{}, out, nil
	}
	head := data[:at+2]
	if !bytes.HasPrefix(head, httpOK) {
		return answer{}, out, fmt.Errorf("the server answered %q", head)
	}
	lengthAt := bytes.Index(head, lengthName)
	if lengthAt < 0 {
		return answer{}, out, fmt.Errorf("the answer has no content-length: %q", head)
	}
	text := head[lengthAt+len(lengthName):]
	length, err := strconv.Atoi(string(text[:bytes.IndexByte(text, '\r')]))
	if err != nil {
		return answer{}, out, fmt.Errorf("the content-length is invalid: %q", head)
	}
	used := at + len(headEnd) + length
	if len(data) < used {
		return answer{}, out, nil
	}
	return answer{used: used, finished: true, closes: bytes.Contains(head, closeHeader)}, out, nil
}
