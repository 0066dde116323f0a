// A client for one connection, written from docs/messagepack-rpc*.md alone.

package main

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
)

// codes are those of LMQ's texts, which come without an explanation.
var codes = map[string]string{
	"undef":                 "unknown_method",
	"function_clause":       "bad_arguments",
	"throw:invalid":         "bad_property",
	"throw:invalid_regexp":  "bad_pattern",
	"throw:not_found":       "not_found",
	"throw:queue_not_found": "queue_not_found",
}

// Error is a request that failed.
type Error struct{ Code, Text string }

func (e *Error) Error() string { return e.Code + ": " + e.Text }

func errorOf(answer string) *Error {
	code, text, _ := strings.Cut(answer, ": ")
	if known, is := codes[answer]; is {
		code = known
	}
	return &Error{code, text}
}

// Reply is a request that was sent; Wait blocks until it was answered.
type Reply struct {
	Msgid  int
	done   chan struct{}
	result any
	err    error
}

func (r *Reply) Wait() (any, error) {
	<-r.done
	return r.result, r.err
}

// Client may be used by several goroutines at a time.
type Client struct {
	socket  net.Conn
	sending sync.Mutex
	lock    sync.Mutex // for what follows
	last    int
	waiting map[int]*Reply
	lost    error
}

func Dial(address string) (*Client, error) {
	socket, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	client := &Client{socket: socket, waiting: map[int]*Reply{}}
	go client.read()
	return client, nil
}

// Go sends a request.
func (c *Client) Go(method string, arguments ...any) *Reply {
	c.sending.Lock() // Requests take effect in the order in which they are sent.
	defer c.sending.Unlock()
	reply := c.expect()
	// If this fails, the connection is lost, and the reader tells whoever waits.
	_, _ = c.socket.Write(encode(nil, []any{0, reply.Msgid, method, append([]any{}, arguments...)}))
	return reply
}

// Call sends a request and waits for its answer.
func (c *Client) Call(method string, arguments ...any) (any, error) {
	return c.Go(method, arguments...).Wait()
}

// Notify sends a request that is not answered.
func (c *Client) Notify(method string, arguments ...any) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	_, err := c.socket.Write(encode(nil, []any{2, method, append([]any{}, arguments...)}))
	return err
}

func (c *Client) Close() { c.socket.Close() }

func (c *Client) expect() *Reply {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.last++
	reply := &Reply{Msgid: c.last, done: make(chan struct{})}
	if c.lost != nil {
		reply.err = c.lost
		close(reply.done)
	} else {
		c.waiting[reply.Msgid] = reply
	}
	return reply
}

func (c *Client) read() {
	defer func() {
		cause := recover() // The end of the connection, or a response that makes no sense.
		c.socket.Close()
		c.lock.Lock()
		defer c.lock.Unlock()
		c.lost = &Error{"unknown_outcome", fmt.Sprint(cause)}
		for _, reply := range c.waiting {
			reply.err = c.lost
			close(reply.done)
		}
	}()
	values := decoder{bufio.NewReader(c.socket)}
	for {
		response := values.value().([]any)
		c.lock.Lock()
		reply := c.waiting[response[1].(int)]
		delete(c.waiting, reply.Msgid)
		c.lock.Unlock()
		reply.result = response[3]
		if response[2] != nil {
			reply.err = errorOf(response[2].(string))
		}
		close(reply.done)
	}
}
