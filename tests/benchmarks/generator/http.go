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
	got, _, err := httpAnswer(data)
	return got, out, err
}

// httpAnswer returns the meaning and the body of the first answer in data, which must be a success.
func httpAnswer(data []byte) (answer, []byte, error) {
	at := bytes.Index(data, headEnd)
	if at < 0 {
		return answer{}, nil, nil
	}
	head := data[:at+2]
	if !bytes.HasPrefix(head, httpOK) {
		return answer{}, nil, fmt.Errorf("the server answered %q", head)
	}
	lengthAt := bytes.Index(bytes.ToLower(head), lengthName)
	if lengthAt < 0 {
		return answer{}, nil, fmt.Errorf("the answer has no content-length: %q", head)
	}
	text := head[lengthAt+len(lengthName):]
	length, err := strconv.Atoi(string(text[:bytes.IndexByte(text, '\r')]))
	if err != nil {
		return answer{}, nil, fmt.Errorf("the content-length is invalid: %q", head)
	}
	used := at + len(headEnd) + length
	if len(data) < used {
		return answer{}, nil, nil
	}
	return answer{used: used, finished: true, closes: bytes.Contains(head, closeHeader)}, data[at+len(headEnd) : used], nil
}
