package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// check compares what an answer means. Its incomplete parts must mean nothing.
func check(t *testing.T, speaker dialogue, text string, want answer, wantOut string) {
	t.Helper()
	for end := range len(text) {
		got, out, err := speaker.receive([]byte(text[:end]), nil)
		if got.used != 0 || len(out) != 0 || err != nil {
			t.Fatalf("the incomplete %q is taken for %+v, %q, %v", text[:end], got, out, err)
		}
	}
	got, out, err := speaker.receive([]byte(text+"rest"), nil)
	want.used = len(text)
	if got != want || string(out) != wantOut || err != nil {
		t.Errorf("%q means %+v, %q, %v", text, got, out, err)
	}
}

// refuse checks that an answer is a failure.
func refuse(t *testing.T, speaker dialogue, text, why string) {
	t.Helper()
	if _, _, err := speaker.receive([]byte(text), nil); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("%q: %v", text, err)
	}
}

func TestRPCPush(t *testing.T) {
	speaker := newRPCPush("q", bytes.Repeat([]byte("x"), 40))
	want := "\x94\x00\xce\x00\x00\x01\x02\xa4push\x92\xa1q\xda\x00\x28" + strings.Repeat("x", 40)
	if got := speaker.begin([]byte("before"), 258); string(got) != "before"+want {
		t.Errorf("%q", got)
	}
	check(t, speaker, "\x94\x01\x07\xc0\xa2ok", answer{slot: 7, finished: true}, "")
	check(t, speaker, "\x94\x01\xcc\xff\xc0\xa2ok", answer{slot: 255, finished: true}, "")
	check(t, speaker, "\x94\x01\xcd\x01\x02\xc0\xa2ok", answer{slot: 258, finished: true}, "")
	refuse(t, speaker, "\x94\x01\x07\xa9no_leader\xc0", "no_leader")
	refuse(t, speaker, "\x94\x01\x07\xc0\xa6packed", "packed")
	for _, broken := range []string{"\x93\x01\x07", "\x94\x00\x07", "\x94\x01\xc0", "\x94\x01\x07\xc1\xc0"} {
		if _, _, err := speaker.receive([]byte(broken+"    "), nil); err == nil {
			t.Errorf("%q is accepted", broken)
		}
	}
}

func TestRPCConsume(t *testing.T) {
	speaker := newRPCConsume("q")
	if got := string(speaker.begin(nil, 3)); got != "\x94\x00\xce\x00\x00\x00\x06\xa4pull\x92\xa1q\x00" {
		t.Errorf("%q", got)
	}
	message := "\x83\xa5queue\xa1q\xa2id\xa3abc\xa7content\x92\xcb12345678\x81\xc3\xdc\x00\x01\xd1ab"
	done := "\x94\x00\xce\x00\x00\x00\x07\xa4done\x92\xa1q\xa3abc"
	check(t, speaker, "\x94\x01\x06\xc0"+message, answer{slot: 3}, done)
	check(t, speaker, "\x94\x01\x07\xc0\xa2ok", answer{slot: 3, finished: true}, "")
	check(t, speaker, "\x94\x01\x06\xc0\xa5empty", answer{slot: 3, finished: true, empty: true}, "")
	refuse(t, speaker, "\x94\x01\x07\xafthrow:not_found\xc0", "not_found")
	refuse(t, speaker, "\x94\x01\x06\xc0\x81\xa5queue\xa1q", "there is no id")
	refuse(t, speaker, "\x94\x01\x06\xc0\xc0", "no map")
}

func TestLengthsOfAllValues(t *testing.T) {
	for _, value := range []string{
		"\x00", "\x7f", "\xe0", "\xff", "\xc0", "\xc2", "\xc3", "\xa2ab", "\xd9\x02ab", "\xda\x00\x02ab", "\xdb\x00\x00\x00\x02ab",
		"\xc4\x01a", "\xc5\x00\x01a", "\xc6\x00\x00\x00\x01a", "\xca1234", "\xcb12345678", "\xcc1", "\xcd12", "\xce1234",
		"\xcf12345678", "\xd01", "\xd112", "\xd21234", "\xd312345678", "\x80", "\x81\x01\x02", "\x90", "\x92\x91\x01\xa1a",
		"\xdc\x00\x02\x01\x02", "\xdd\x00\x00\x00\x01\x01", "\xde\x00\x01\x01\x02", "\xdf\x00\x00\x00\x01\x01\x02",
	} {
		if got, err := lengthOf([]byte(value + "rest")); got != len(value) || err != nil {
			t.Errorf("%q has %d bytes, %v", value, got, err)
		}
		for end := range len(value) {
			if got, err := lengthOf([]byte(value[:end])); got != 0 || err != nil {
				t.Errorf("%q has %d bytes, %v", value[:end], got, err)
			}
		}
	}
	if _, err := lengthOf([]byte("\xc7\x01\x01a")); err == nil {
		t.Error("an extension type is accepted")
	}
}

func TestHTTPPush(t *testing.T) {
	speaker := newHTTPPush(target{"h:1", "q"}, []byte("body"))
	want := "POST /messages/q HTTP/1.1\r\nHost: h:1\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nbody"
	if got := string(speaker.begin(nil, 0)); got != want {
		t.Errorf("%q", got)
	}
	head := "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 14\r\n"
	check(t, speaker, head+"server: lmqcluster\r\n\r\n{\"accum\":\"no\"}", answer{finished: true}, "")
	check(t, speaker, head+"connection: close\r\n\r\n{\"accum\":\"no\"}", answer{finished: true, closes: true}, "")
	refuse(t, speaker, "HTTP/1.1 503 Service Unavailable\r\nx-lmq-error: no_leader\r\n\r\n", "no_leader")
	refuse(t, speaker, "HTTP/1.1 200 OK\r\n\r\n", "no content-length")
	refuse(t, speaker, "HTTP/1.1 200 OK\r\ncontent-length: 1x\r\n\r\n", "invalid")
}

func TestSQS(t *testing.T) {
	speaker, err := newSQS(target{"h:1", "q"}, options{operation: push, key: "id:secret"}, 3, []byte("xxxxxxxxxx"))
	if err != nil {
		t.Fatal(err)
	}
	speaker.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	got := string(speaker.begin(nil, 0))
	for _, part := range []string{
		"POST / HTTP/1.1\r\nHost: h:1\r\n",
		"X-Amz-Target: AmazonSQS.SendMessage\r\n",
		"Credential=id/20260102/us-east-1/sqs/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-target",
		// As botocore signs it.
		"Signature=ac46c759b31d0b040c940a0e45dec4c06933361123f64278ce7927eab852af6c\r\n",
		"\r\n\r\n{\"QueueUrl\": \"http://h:1/000000000000/q\", \"MessageBody\": \"3-1-0-xxxx\"}",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("%q lacks %q", got, part)
		}
	}
	check(t, speaker, sqsText(`{"MessageId": "m"}`), answer{finished: true}, "")
	refuse(t, speaker, sqsText(`{}`), "no MessageId")
	speaker.operation = pushBatch
	refuse(t, speaker, sqsText(`{"Successful": [{}]}`), "1 of 10")
	refuse(t, speaker, sqsText(`{"Failed": [{"Code": "OverLimit"}]}`), "OverLimit")
	speaker.operation = consume
	check(t, speaker, sqsText(`{}`), answer{finished: true, empty: true}, "")
	text := sqsText(`{"Messages": [{"ReceiptHandle": "a"}, {"ReceiptHandle": "b"}]}`)
	found, out, err := speaker.receive([]byte(text), nil)
	if found.used != len(text) || found.finished || err != nil {
		t.Errorf("%+v, %v", found, err)
	}
	entries := `[{"Id": "0", "ReceiptHandle": "a"}, {"Id": "1", "ReceiptHandle": "b"}]`
	if !strings.Contains(string(out), "AmazonSQS.DeleteMessageBatch\r\n") || !strings.Contains(string(out), entries) {
		t.Errorf("%q", out)
	}
	refuse(t, speaker, sqsText(`{"Successful": [{}]}`), "1 of 2")
	check(t, speaker, sqsText(`{"Successful": [{}, {}]}`), answer{finished: true}, "")
}

func sqsText(content string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(content), content)
}

func TestJetStreamPush(t *testing.T) {
	speaker := newJetStreamPush("s", 4, []byte("body"))
	inbox := speaker.inbox
	if got := string(speaker.begin(nil, 12)); got != "PUB s "+inbox+"12 4\r\nbody\r\n" {
		t.Errorf("%q", got)
	}
	ack := `{"stream":"s", "seq":7}`
	check(t, speaker, message(inbox+"12 1", "", ack), answer{slot: 12, finished: true}, "")
	check(t, speaker, "PING\r\n", answer{slot: -1}, "PONG\r\n")
	check(t, speaker, "INFO {}\r\n", answer{slot: -1}, "")
	refuse(t, speaker, message(inbox+"12 1", "", `{"error":{"code":503}}`), "503")
	refuse(t, speaker, message(inbox+"12 1", "", `{"stream":"s","error":{"code":400}}`), "400")
	refuse(t, speaker, message(inbox+"12 1", "NATS/1.0 503\r\n\r\n", ""), "503")
	refuse(t, speaker, "-ERR 'Stale Connection'\r\n", "Stale")
	refuse(t, speaker, "MSG "+inbox+"12 1\r\n", "malformed")
	refuse(t, speaker, message(inbox+"x 1", "", ack), "malformed")
}

func TestJetStreamConsume(t *testing.T) {
	speaker := newJetStreamConsume("s", 0, 3)
	inbox := speaker.inbox
	next := "PUB $JS.API.CONSUMER.MSG.NEXT.s.s " + inbox + "2 32\r\n{\"batch\":1,\"expires\":2000000000}\r\n"
	if got := string(speaker.begin(nil, 2)); got != next {
		t.Errorf("%q", got)
	}
	refuse(t, speaker, message("s 2", "", "without a reply"), "without a reply")
	check(t, speaker, message("s 2 $JS.ACK.s.1", "", "body"), answer{slot: 2}, "PUB $JS.ACK.s.1 "+inbox+"2 4\r\n+ACK\r\n")
	check(t, speaker, message(inbox+"2 2", "", ""), answer{slot: 2, finished: true}, "")
	none := "NATS/1.0 408 Request Timeout\r\n\r\n"
	check(t, speaker, message(inbox+"2 2", none, ""), answer{slot: 2, finished: true, empty: true}, "")
	refuse(t, speaker, message(inbox+"9 9 r", "", ""), "malformed")
}

// message returns a message as the server sends it.
func message(route, header, payload string) string {
	if header != "" {
		return fmt.Sprintf("HMSG %s %d %d\r\n%s%s\r\n", route, len(header), len(header)+len(payload), header, payload)
	}
	return fmt.Sprintf("MSG %s %d\r\n%s\r\n", route, len(payload), payload)
}
