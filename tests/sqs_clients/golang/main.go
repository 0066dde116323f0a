// The AWS SDK for Go v2, as a program uses it. Arguments: the URL of a port, a prefix for names of queues.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

var ctx = context.Background()

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func check(ok bool, what any) {
	if !ok {
		panic(fmt.Sprintf("unexpected: %+v", what))
	}
}

func received(client *sqs.Client, url *string, count int) []types.Message {
	var found []types.Message
	for len(found) < count {
		answer := must(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: url, MaxNumberOfMessages: 10, WaitTimeSeconds: 20, MessageAttributeNames: []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
		}))
		found = append(found, answer.Messages...)
	}
	check(len(found) == count, found)
	return found
}

func standard(client *sqs.Client, name string) {
	url := must(client.CreateQueue(ctx, &sqs.CreateQueueInput{
		QueueName: &name, Attributes: map[string]string{"VisibilityTimeout": "120"},
	})).QueueUrl
	raw := make([]byte, 256)
	for place := range raw {
		raw[place] = byte(place)
	}
	sent := must(client.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl: url, MessageBody: aws.String("first 😀"),
		MessageAttributes: map[string]types.MessageAttributeValue{
			"text": {DataType: aws.String("String"), StringValue: aws.String("café <&>")},
			"raw":  {DataType: aws.String("Binary"), BinaryValue: raw},
		},
	}))
	entries := []types.SendMessageBatchRequestEntry{{Id: aws.String("bad"), MessageBody: aws.String("\x01")}}
	for number := range 3 {
		id := fmt.Sprint("n", number)
		entries = append(entries, types.SendMessageBatchRequestEntry{Id: &id, MessageBody: aws.String("body " + id)})
	}
	batch := must(client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: url, Entries: entries}))
	check(len(batch.Successful) == 3 && len(batch.Failed) == 1 && *batch.Failed[0].Id == "bad", batch)
	messages := received(client, url, 4)
	first := messages[0]
	check(*first.Body == "first 😀" && *first.MessageId == *sent.MessageId, first)
	check(bytes.Equal(first.MessageAttributes["raw"].BinaryValue, raw), first)
	must(client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: url, ReceiptHandle: first.ReceiptHandle, VisibilityTimeout: 0,
	}))
	again := received(client, url, 1)[0]
	check(again.Attributes["ApproximateReceiveCount"] == "2", again)
	messages[0] = again
	var handles []types.DeleteMessageBatchRequestEntry
	for place, one := range messages {
		id := fmt.Sprint(place)
		handles = append(handles, types.DeleteMessageBatchRequestEntry{Id: &id, ReceiptHandle: one.ReceiptHandle})
	}
	deleted := must(client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: url, Entries: handles}))
	check(len(deleted.Successful) == 4, deleted)
	must(client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: url}))
	_, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &name})
	var missing *types.QueueDoesNotExist
	check(errors.As(err, &missing), err)
}

func fifo(client *sqs.Client, name string) {
	url := must(client.CreateQueue(ctx, &sqs.CreateQueueInput{
		QueueName:  aws.String(name + ".fifo"),
		Attributes: map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true"},
	})).QueueUrl
	for _, body := range []string{"1", "2", "1"} {
		must(client.SendMessage(ctx, &sqs.SendMessageInput{
			QueueUrl: url, MessageBody: aws.String(body), MessageGroupId: aws.String("a"),
		}))
	}
	messages := received(client, url, 2)
	check(*messages[0].Body == "1" && *messages[1].Body == "2", messages)
	for _, one := range messages {
		must(client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: one.ReceiptHandle}))
	}
	must(client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: url}))
}

func main() {
	var done context.CancelFunc
	ctx, done = context.WithTimeout(ctx, 2*time.Minute)
	defer done()
	settings := must(config.LoadDefaultConfig(ctx))
	client := sqs.NewFromConfig(settings, func(options *sqs.Options) { options.BaseEndpoint = &os.Args[1] })
	standard(client, os.Args[2])
	fifo(client, os.Args[2])
}
