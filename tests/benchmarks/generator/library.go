package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A libraryConnection publishes with the client library nats.go, to compare it with the bare protocol.
type libraryConnection struct {
	plan    *plan
	to      target
	client  *nats.Conn
	context jetstream.JetStream
	body    []byte
	slots   int
	result  result
}

func (c *libraryConnection) dial() error {
	client, err := nats.Connect("nats://"+c.to.address, nats.NoReconnect())
	if err != nil {
		return err
	}
	c.client = client
	// This connection limits what is in flight; at its own limit, the library gives up after a short time.
	c.context, err = jetstream.New(client, jetstream.WithPublishAsyncMaxPending(2*c.slots))
	return err
}

// run publishes in order and waits for the oldest PubAck when all slots are taken.
func (c *libraryConnection) run() {
	defer c.client.Close()
	if c.slots == 1 {
		c.result.failure = c.oneAtATime()
	} else {
		c.result.failure = c.pipelined()
	}
}

func (c *libraryConnection) oneAtATime() error {
	for c.plan.claim() {
		started := c.plan.now()
		if _, err := c.context.Publish(context.Background(), c.to.queue, c.body); err != nil {
			return fmt.Errorf("publishing: %w", err)
		}
		c.result.record(c.plan, started, c.plan.now())
	}
	return nil
}

type published struct {
	future  jetstream.PubAckFuture
	started time.Duration
}

func (c *libraryConnection) pipelined() error {
	// One more is with the goroutine that waits, and one is being published.
	waiting := make(chan published, c.slots-2)
	failed := make(chan error, 1)
	go func() {
		var failure error
		for one := range waiting {
			select {
			case <-one.future.Ok():
				c.result.record(c.plan, one.started, c.plan.now())
			case err := <-one.future.Err():
				failure = fmt.Errorf("publishing: %w", err)
			}
		}
		failed <- failure
	}()
	var failure error
	for failure == nil && c.plan.claim() {
		started := c.plan.now()
		future, err := c.context.PublishAsync(c.to.queue, c.body)
		if err != nil {
			failure = fmt.Errorf("publishing: %w", err)
			break
		}
		waiting <- published{future, started}
	}
	close(waiting)
	if err := <-failed; err != nil {
		return err
	}
	return failure
}
