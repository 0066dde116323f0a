package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"
)

// sqsBatch is the number of messages in a batch: the most that Amazon SQS takes.
const sqsBatch = 10

// sqsConnection speaks Amazon SQS's JSON protocol as an SDK does: one request at a time, each signed and with a
// new invocation. An operation is a SendMessage, a SendMessageBatch, a ReceiveMessage and a
// DeleteMessageBatch, or a CreateQueue.
type sqsConnection struct {
	host, queueURL string
	operation      string
	body           []byte
	group          string // the member of a message that names its group
	number, sent   int
	id, secret     string
	day            string
	key            []byte
	now            func() time.Time
	deletes        bool // the next answer is that to a DeleteMessageBatch
	received       int
}

func newSQS(to target, o options, number int, body []byte) (*sqsConnection, error) {
	id, secret, both := strings.Cut(o.key, ":")
	if !both {
		return nil, fmt.Errorf("%q is not ID:SECRET", o.key)
	}
	url := fmt.Sprintf("http://%s/000000000000/%s", to.address, to.queue)
	group := ""
	if o.group != "" {
		group = fmt.Sprintf(`, "MessageGroupId": %q`, o.group)
	}
	return &sqsConnection{
		host: to.address, queueURL: url, operation: o.operation, body: body, group: group, number: number, id: id,
		secret: secret, now: time.Now,
	}, nil
}

func (*sqsConnection) greet(net.Conn) error { return nil }

func (c *sqsConnection) begin(out []byte, _ int) []byte {
	c.sent++
	switch c.operation {
	case create:
		name := c.queueURL[strings.LastIndexByte(c.queueURL, '/')+1:]
		return c.request(out, "CreateQueue", fmt.Sprintf(`{"QueueName": %q}`, name))
	case push:
		return c.request(out, "SendMessage", fmt.Sprintf(`{"QueueUrl": %q, %s}`, c.queueURL, c.message(0)))
	case pushBatch:
		entries := make([]string, sqsBatch)
		for place := range entries {
			entries[place] = fmt.Sprintf(`{"Id": "%d", %s}`, place, c.message(place))
		}
		text := fmt.Sprintf(`{"QueueUrl": %q, "Entries": [%s]}`, c.queueURL, strings.Join(entries, ", "))
		return c.request(out, "SendMessageBatch", text)
	default:
		text := fmt.Sprintf(`{"QueueUrl": %q, "MaxNumberOfMessages": %d, "VisibilityTimeout": 600}`, c.queueURL, sqsBatch)
		return c.request(out, "ReceiveMessage", text)
	}
}

// message returns the members of a message, whose body differs from all others.
func (c *sqsConnection) message(place int) string {
	head := fmt.Sprintf("%d-%d-%d-", c.number, c.sent, place)
	return fmt.Sprintf(`"MessageBody": %q%s`, head+string(c.body[min(len(head), len(c.body)):]), c.group)
}

func (c *sqsConnection) request(out []byte, action, content string) []byte {
	stamp := c.now().UTC().Format("20060102T150405Z")
	target := "AmazonSQS." + action
	digest := sha256.Sum256([]byte(content))
	canonical := fmt.Sprintf(
		"POST\n/\n\ncontent-type:application/x-amz-json-1.0\nhost:%s\nx-amz-date:%s\nx-amz-target:%s\n\n%s\n%x",
		c.host, stamp, target, signedHeaders, digest)
	hashed := sha256.Sum256([]byte(canonical))
	scope := stamp[:8] + "/us-east-1/sqs/aws4_request"
	signature := mac(c.signingKey(stamp[:8]), fmt.Sprintf("AWS4-HMAC-SHA256\n%s\n%s\n%x", stamp, scope, hashed))
	invocation := sha256.Sum256(fmt.Appendf(nil, "%d %d %d", c.number, c.sent, c.now().UnixNano()))
	head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: %s\r\nAccept-Encoding: identity\r\nX-Amz-Target: %s\r\n"+
		"Content-Type: application/x-amz-json-1.0\r\nUser-Agent: lmqcluster-benchmark\r\nX-Amz-Date: %s\r\n"+
		"Authorization: AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%x\r\n"+
		"amz-sdk-invocation-id: %s\r\namz-sdk-request: attempt=1\r\nContent-Length: %d\r\n\r\n",
		c.host, target, stamp, c.id, scope, signedHeaders, signature, uuid(invocation[:16]), len(content))
	return append(append(out, head...), content...)
}

const signedHeaders = "content-type;host;x-amz-date;x-amz-target"

// signingKey returns the key for the signatures of a day.
func (c *sqsConnection) signingKey(day string) []byte {
	if c.day != day {
		key := []byte("AWS4" + c.secret)
		for _, word := range []string{day, "us-east-1", "sqs", "aws4_request"} {
			key = mac(key, word)
		}
		c.day, c.key = day, key
	}
	return c.key
}

func mac(key []byte, text string) []byte {
	made := hmac.New(sha256.New, key)
	made.Write([]byte(text))
	return made.Sum(nil)
}

func uuid(data []byte) string {
	digits := hex.EncodeToString(data)
	return strings.Join([]string{digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]}, "-")
}

// A sqsAnswer has the members of all answers that the operations look at.
type sqsAnswer struct {
	MessageID  string `json:"MessageId"`
	Failed     []json.RawMessage
	Successful []json.RawMessage
	Messages   []struct{ ReceiptHandle string }
}

func (c *sqsConnection) receive(data, out []byte) (answer, []byte, error) {
	got, content, err := httpAnswer(data)
	if err != nil || got.used == 0 {
		return got, out, err
	}
	var found sqsAnswer
	if content = bytes.TrimSpace(content); len(content) > 0 {
		if err := json.Unmarshal(content, &found); err != nil {
			return got, out, fmt.Errorf("the answer %q: %w", content, err)
		}
	}
	if len(found.Failed) > 0 {
		return got, out, fmt.Errorf("an entry failed: %s", found.Failed[0])
	}
	switch {
	case c.operation == push && found.MessageID == "":
		return got, out, fmt.Errorf("the answer has no MessageId: %q", content)
	case c.operation == pushBatch && len(found.Successful) != sqsBatch:
		return got, out, fmt.Errorf("%d of %d entries succeeded", len(found.Successful), sqsBatch)
	case c.operation == consume && c.deletes && len(found.Successful) != c.received:
		return got, out, fmt.Errorf("%d of %d messages were deleted", len(found.Successful), c.received)
	case c.operation == consume && !c.deletes && len(found.Messages) > 0:
		entries := make([]string, len(found.Messages))
		for place, message := range found.Messages {
			entries[place] = fmt.Sprintf(`{"Id": "%d", "ReceiptHandle": %q}`, place, message.ReceiptHandle)
		}
		c.deletes, c.received = true, len(entries)
		text := fmt.Sprintf(`{"QueueUrl": %q, "Entries": [%s]}`, c.queueURL, strings.Join(entries, ", "))
		got.finished = false
		return got, c.request(out, "DeleteMessageBatch", text), nil
	}
	got.empty = c.operation == consume && !c.deletes
	c.deletes = false
	return got, out, nil
}
