// What the client is put through: ./scenarios SCENARIO HOST:PORT,HOST:PORT,HOST:PORT QUEUE
// Ends with 0, or says what was wrong. test_go_client.py runs it, and looks at the cluster itself before and afterwards.

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"strings"
)

type cluster struct {
	queue                string
	first, second, third *Client
}

var scenarios = map[string]func(cluster){
	"push_pull_done": pushPullDone,
	"release":        release,
	"wait":           wait,
	"errors":         errorCodes,
	"pipelining":     pipelining,
}

func main() {
	clients := []*Client{}
	for _, address := range strings.Split(os.Args[2], ",") {
		clients = append(clients, client(address))
	}
	scenarios[os.Args[1]](cluster{os.Args[3], clients[0], clients[1], clients[2]})
}

func pushPullDone(c cluster) {
	content := map[string]any{
		"text":    "zwölf Boxkämpfer",
		"bytes":   []byte{0, 255, 128},
		"long":    strings.Repeat("x", 300),
		"longer":  strings.Repeat("y", 70_000),
		"numbers": []any{0, -1, 127, 128, -129, 70_000, 1 << 40, -1 << 40, 1.5},
		"nothing": nil,
		"yes":     true,
	}
	equal(must(c.first.Call("push", c.queue, content)), "ok")
	message := pulled(c.second.Call("pull", c.queue))
	equal(message["queue"], c.queue)
	equal(message["type"], "normal")
	equal(message["retry"], 2)
	equal(len(message["id"].(string)), 36)
	came := message["content"].(map[any]any)
	equal(len(came), len(content))
	content["bytes"] = "\x00\xff\x80"
	for key, value := range content {
		equal(came[key], value)
	}
	equal(must(c.third.Call("done", c.queue, message["id"])), "ok")
	failsWith("not_found", c.first.Go("done", c.queue, message["id"]))
	equal(must(c.first.Call("pull", c.queue, 0)), "empty")
}

func release(c cluster) {
	must(c.first.Call("push_many", c.queue, []any{"given back", "next"}))
	message := pulled(c.second.Call("pull", c.queue, 0))
	equal(message["content"], "given back")
	equal(must(c.third.Call("release", c.queue, message["id"])), "ok")
	messages := must(c.first.Call("pull_many", c.queue, 10)).([]any)
	next, again := messages[0].(map[any]any), messages[1].(map[any]any)
	equal(next["content"], "next")
	equal(again["content"], "given back")
	equal(again["retry"], message["retry"].(int)-1)
	failsWith("not_found", c.first.Go("release", c.queue, message["id"]))
	must(c.first.Call("release", c.queue, again["id"], map[string]any{"place": "head", "delay": 0}))
	last := pulled(c.second.Call("pull", c.queue, 0, map[string]any{"lease": 60}))
	equal(last["content"], "given back")
	settled := must(c.first.Call("done_many", c.queue, []any{next["id"], message["id"], last["id"]}))
	equal(settled, []any{true, false, true})
}

func wait(c cluster) {
	equal(must(c.first.Call("pull", c.queue, 0)), "empty")
	equal(must(c.first.Call("pull", c.queue, 0.05)), "empty")
	cancelled, waiting := c.first.Go("pull", c.queue), c.first.Go("pull", c.queue, 600)
	equal(must(c.first.Call("ping")), "pong")
	must(c.first.Call("cancel", cancelled.Msgid))
	equal(must(cancelled.Wait()), "empty")
	must(c.second.Call("push", c.queue, "wakes it"))
	message := pulled(waiting.Wait())
	equal(message["content"], "wakes it")
	must(c.first.Call("done", c.queue, message["id"]))
}

func errorCodes(c cluster) {
	failsWith("bad_name", c.first.Go("push", strings.Repeat("n", 256), 1))
	failsWith("unknown_method", c.first.Go("no_such_method"))
	failsWith("unknown_method", c.first.Go("push", c.queue))
	failsWith("bad_arguments", c.first.Go("pull", c.queue, "soon"))
	failsWith("bad_property", c.first.Go("update_props", c.queue, map[string]any{"retry": -1}))
	failsWith("bad_pattern", c.first.Go("push_all", "(", 1))
	failsWith("queue_not_found", c.first.Go("done", c.queue, strings.Repeat("0", 32)))
	must(c.first.Call("push", c.queue, "a", map[string]any{"key": "k"}))
	must(c.second.Call("push", c.queue, "a", map[string]any{"key": "k"}))
	failsWith("key_reused", c.third.Go("push", c.queue, "b", map[string]any{"key": "k"}))
	if err := c.first.Notify("push", c.queue, "never answered"); err != nil {
		panic(err)
	}
	ids := []any{}
	for at, one := range must(c.first.Call("pull_many", c.queue, 10)).([]any) {
		message := one.(map[any]any)
		equal(message["content"], []string{"a", "never answered"}[at])
		ids = append(ids, message["id"])
	}
	equal(must(c.first.Call("done_many", c.queue, ids)), []any{true, true})
	hungUp := client(hangsUp())
	failsWith("unknown_outcome", hungUp.Go("push", c.queue, "lost"))
	failsWith("unknown_outcome", hungUp.Go("ping"))
}

func pipelining(c cluster) {
	const count = 5000
	pushes, pulls, settled := [count]*Reply{}, [count]*Reply{}, [count]*Reply{}
	for number := range pushes {
		pushes[number] = c.first.Go("push", c.queue, number)
	}
	for _, push := range pushes {
		equal(must(push.Wait()), "ok")
	}
	for number := range pulls {
		pulls[number] = c.second.Go("pull", c.queue, 60)
	}
	for number, pull := range pulls {
		message := pulled(pull.Wait())
		equal(message["content"], number)
		settled[number] = c.third.Go("done", c.queue, message["id"])
	}
	for _, done := range settled {
		equal(must(done.Wait()), "ok")
	}
	c.first.Go("push", c.queue, "a")
	c.first.Go("push", c.queue, "b")
	messages := must(c.first.Call("pull_many", c.queue, 10)).([]any)
	equal(len(messages), 2)
	for at, one := range messages {
		equal(one.(map[any]any)["content"], []string{"a", "b"}[at])
		must(c.first.Call("done", c.queue, one.(map[any]any)["id"]))
	}
}

// hangsUp is the address of a server that ends each connection without an answer.
func hangsUp() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		socket, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		socket.Read(make([]byte, 1))
		socket.Close()
	}()
	return listener.Addr().String()
}

func client(address string) *Client {
	client, err := Dial(address)
	if err != nil {
		panic(err)
	}
	return client
}

func pulled(result any, err error) map[any]any {
	return must(result, err).(map[any]any)
}

func must(result any, err error) any {
	if err != nil {
		panic(err)
	}
	return result
}

func failsWith(code string, reply *Reply) {
	result, err := reply.Wait()
	var failed *Error
	if !errors.As(err, &failed) || failed.Code != code {
		panic(fmt.Sprintf("%v, %v instead of %s", result, err, code))
	}
}

func equal(is, should any) {
	if !reflect.DeepEqual(is, should) {
		panic(fmt.Sprintf("%v instead of %v", is, should))
	}
}
