// Uses the client that is generated from docs/openapi.json: main NODE QUEUE
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"lmqcluster.test/generated/lmq"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(what string, got, wanted any) {
	if got != wanted {
		panic(fmt.Sprintf("%s: %v instead of %v", what, got, wanted))
	}
}

func content(text string) (made lmq.Content) {
	check(made.FromText(text))
	return made
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	node, queue := os.Args[1], os.Args[2]
	client, err := lmq.NewClientWithResponses("http://" + node)
	check(err)
	batches(ctx, client, queue)
	transaction(ctx, client, queue)
	refusals(ctx, client, queue)
	singles(ctx, client, queue)
}

// Messages in batches: every option of a push comes back with the delivery.
func batches(ctx context.Context, client *lmq.ClientWithResponses, queue string) {
	key, kind, priority := queue, "text/plain", int32(-7)
	var attribute lmq.AttributeValue
	check(attribute.FromText("shop"))
	label := content("first")
	push := lmq.Push{Messages: []lmq.PushMessage{{
		Content: content("zwei Bücher"), ContentType: &kind, Priority: &priority, Label: &label,
		Attributes: &map[string]lmq.AttributeValue{"from": attribute},
	}}}
	parameters := &lmq.PushParams{IdempotencyKey: &key}
	pushed, err := client.PushWithResponse(ctx, queue, parameters, push)
	check(err)
	expect("pushed", pushed.StatusCode(), 200)
	again, err := client.PushWithResponse(ctx, queue, parameters, push)
	check(err)
	expect("repeated", bool(*again.JSON200.Results[0].Replayed), true)
	expect("sequence", *again.JSON200.Results[0].Sequence, *pushed.JSON200.Results[0].Sequence)

	most, wait := int64(10), 60.0
	pulled, err := client.PullWithResponse(ctx, queue, lmq.Pull{Max: &most, Timeout: &wait})
	check(err)
	expect("pulled", len(pulled.JSON200.Messages), 1)
	message := pulled.JSON200.Messages[0]
	text, err := message.Content.AsText()
	check(err)
	from, err := message.Attributes["from"].AsText()
	check(err)
	expect("content", text, "zwei Bücher")
	expect("attribute", from, "shop")
	expect("priority", *message.Priority, priority)
	age := float64(time.Now().Unix()) - message.PushedAt
	expect("time of the push within an hour", age > -3600 && age < 3600, true)

	ids := lmq.Ids{Ids: []string{message.Id.String()}}
	extended, err := client.ExtendWithResponse(ctx, queue, lmq.Extend{Ids: ids.Ids})
	check(err)
	expect("extended", extended.JSON200.Results[0], true)
	for _, wanted := range []bool{true, false} {
		acked, err := client.AckWithResponse(ctx, queue, ids)
		check(err)
		expect("acknowledged", acked.JSON200.Results[0], wanted)
	}
}

// A transaction of one push, whose result is one of two kinds.
func transaction(ctx context.Context, client *lmq.ClientWithResponses, queue string) {
	var push lmq.Operation
	check(push.FromPushOperation(lmq.PushOperation{Queue: content(queue), Content: content("in a transaction")}))
	done, err := client.TransactWithResponse(ctx, nil, lmq.Transaction{Operations: []lmq.Operation{push}})
	check(err)
	result, err := done.JSON200.Results[0].AsPushResult()
	check(err)
	expect("accumulation", string(result.Accum), "no")
	shown, err := client.GetQueueWithResponse(ctx, queue)
	check(err)
	expect("ready", shown.JSON200.Ready, int64(1))
	purged, err := client.PurgeQueueWithResponse(ctx, queue, lmq.Purge{})
	check(err)
	expect("purged", purged.JSON200.Purged, int64(1))
}

func refusals(ctx context.Context, client *lmq.ClientWithResponses, queue string) {
	missing, err := client.GetQueueWithResponse(ctx, queue+"-missing")
	check(err)
	problem := missing.ApplicationproblemJSON404
	expect("code", string(problem.Code), "queue_not_found")
	expect("retryable", problem.Retryable, false)
	wrong := -1.0
	refused, err := client.PullWithResponse(ctx, queue, lmq.Pull{Timeout: &wrong})
	check(err)
	expect("code", string(refused.ApplicationproblemJSONDefault.Code), "bad_request")
}

// LMQ's routes: the body is the message, the rest is in headers.
func singles(ctx context.Context, client *lmq.ClientWithResponses, queue string) {
	ask, wait := true, 60.0
	body := bytes.NewReader([]byte{0, 255})
	pushed, err := client.LmqPushWithBodyWithResponse(ctx, queue, &lmq.LmqPushParams{Sequence: &ask}, "image/png", body)
	check(err)
	expect("accumulation", string(pushed.JSON200.Accum), "no")
	pulled, err := client.LmqPullWithResponse(ctx, queue, &lmq.LmqPullParams{T: &wait})
	check(err)
	expect("body", string(pulled.Body), "\x00\xff")
	expect("type", pulled.HTTPResponse.Header.Get("content-type"), "image/png")
	expect("sequence", *pulled.Headers200.XLmqMessageSequence, *pushed.Headers200.XLmqMessageSequence)
	for _, wanted := range []int{204, 404} {
		acked, err := client.LmqReplyWithResponse(
			ctx, queue, *pulled.Headers200.XLmqMessageId, &lmq.LmqReplyParams{Reply: lmq.LmqReplyParamsReplyAck})
		check(err)
		expect("status", acked.StatusCode(), wanted)
	}
}
