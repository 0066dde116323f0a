// The generator puts load on servers: a fixed number of connections, each with a fixed number of operations in flight.
// Every answer is checked. It prints `begin` and `end` when the measured time begins and ends, and then one line of
// JSON.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A plan says when operations begin and when they are measured. Times are those since the epoch.
type plan struct {
	protocol string
	epoch    time.Time
	begin    time.Duration
	end      time.Duration
	left     atomic.Int64 // operations that may still begin
	bounded  bool
}

func (p *plan) now() time.Duration { return time.Since(p.epoch) }

// claim returns whether a further operation may begin.
func (p *plan) claim() bool {
	return p.now() < p.end && (!p.bounded || p.left.Add(-1) >= 0)
}

// A worker is one connection.
type worker interface {
	dial() error
	run()
}

type options struct {
	protocol, operation, targets, key, group string
	connections, slots, size                 int
	seconds, warmUp                          float64
	operations                               int64
	threads                                  int
}

func parse() options {
	var o options
	flag.StringVar(&o.protocol, "protocol", "rpc", "rpc, http, https, sqs, jetstream, or nats.go")
	flag.StringVar(&o.operation, "operation", push, "push, consume, or with sqs push-batch")
	flag.StringVar(&o.targets, "targets", "", "ADDRESS/QUEUE,...: the connections take them in turn")
	flag.StringVar(&o.key, "key", "", "ID:SECRET, for sqs")
	flag.StringVar(&o.group, "group", "", "group of the messages, for sqs")
	flag.IntVar(&o.connections, "connections", 1, "number of connections")
	flag.IntVar(&o.slots, "in-flight", 1, "operations in flight on each connection")
	flag.IntVar(&o.size, "body", 100, "bytes of a message")
	flag.Float64Var(&o.seconds, "seconds", 5, "measured time")
	flag.Float64Var(&o.warmUp, "warm-up", 1, "seconds before the measured time")
	flag.Int64Var(&o.operations, "operations", 0, "number of operations after which it ends early, 0 for no limit")
	flag.IntVar(&o.threads, "threads", 1, "processors that it uses at most")
	flag.Parse()
	return o
}

func main() {
	o := parse()
	runtime.GOMAXPROCS(o.threads)
	debug.SetGCPercent(400)
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	if (strings.HasPrefix(o.protocol, "http") || o.protocol == "sqs") && o.slots != 1 {
		return fmt.Errorf("HTTP has one request in flight on a connection, not %d", o.slots)
	}
	p := &plan{protocol: o.protocol, bounded: o.operations > 0, epoch: time.Now()}
	p.left.Store(o.operations)
	workers, results, err := connect(o, p)
	if err != nil {
		return err
	}
	p.begin = p.now() + seconds(o.warmUp)
	p.end = p.begin + seconds(o.seconds)
	var group sync.WaitGroup
	for _, one := range workers {
		group.Go(one.run)
	}
	ended := make(chan struct{})
	go func() {
		group.Wait()
		close(ended)
	}()
	measure(p, ended)
	<-ended
	total := &result{}
	for _, one := range results {
		total.merge(one)
	}
	return report(o, p, total)
}

func seconds(count float64) time.Duration { return time.Duration(count * float64(time.Second)) }

// connect opens all connections before any is used.
func connect(o options, p *plan) ([]worker, []*result, error) {
	targets, err := parseTargets(o.targets)
	if err != nil {
		return nil, nil, err
	}
	body := bytes.Repeat([]byte("x"), o.size)
	var workers []worker
	var results []*result
	for number := range o.connections {
		to := targets[number%len(targets)]
		var one worker
		if o.protocol == "nats.go" {
			library := &libraryConnection{plan: p, to: to, body: body, slots: o.slots}
			one, results = library, append(results, &library.result)
		} else {
			speaker, err := newDialogue(o, to, number, body)
			if err != nil {
				return nil, nil, err
			}
			bare := &connection{dialogue: speaker, plan: p, to: to, started: make([]time.Duration, o.slots)}
			one, results = bare, append(results, &bare.result)
		}
		if err := one.dial(); err != nil {
			return nil, nil, fmt.Errorf("connecting to %s: %w", to.address, err)
		}
		workers = append(workers, one)
	}
	return workers, results, nil
}

func parseTargets(text string) ([]target, error) {
	var found []target
	for _, one := range strings.Split(text, ",") {
		address, queue, both := strings.Cut(one, "/")
		if !both {
			return nil, fmt.Errorf("%q is not ADDRESS/QUEUE", one)
		}
		found = append(found, target{address, queue})
	}
	return found, nil
}

// measure tells when the measured time begins and ends, also if the operations end earlier.
func measure(p *plan, ended <-chan struct{}) {
	select {
	case <-time.After(p.begin - p.now()):
	case <-ended:
	}
	fmt.Println("begin")
	select {
	case <-time.After(p.end - p.now()):
	case <-ended:
	}
	fmt.Println("end")
}

func report(o options, p *plan, total *result) error {
	if total.failure != nil {
		return total.failure
	}
	measured := &total.latencies
	microseconds := func(fraction float64) float64 {
		return float64(measured.quantile(fraction).Nanoseconds()) / 1e3
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"operations":     measured.total,
		"all_operations": total.all,
		"empty":          total.empty,
		"seconds":        max(min(p.end, total.last)-p.begin, 0).Seconds(),
		"p50_us":         microseconds(0.5),
		"p99_us":         microseconds(0.99),
		"p999_us":        microseconds(0.999),
	})
}
