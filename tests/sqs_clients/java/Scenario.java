// The AWS SDK for Java v2, as a program uses it. Arguments: the URL of a port, a prefix for names of queues.

import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.services.sqs.SqsAsyncClient;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.batchmanager.SqsAsyncBatchManager;
import software.amazon.awssdk.services.sqs.model.Message;
import software.amazon.awssdk.services.sqs.model.MessageAttributeValue;
import software.amazon.awssdk.services.sqs.model.MessageSystemAttributeName;
import software.amazon.awssdk.services.sqs.model.QueueAttributeName;
import software.amazon.awssdk.services.sqs.model.QueueDoesNotExistException;
import software.amazon.awssdk.services.sqs.model.SendMessageBatchRequestEntry;
import software.amazon.awssdk.services.sqs.model.DeleteMessageBatchRequestEntry;

public class Scenario {
  static void check(boolean ok, Object what) {
    if (!ok) throw new AssertionError(what);
  }

  static List<Message> received(SqsClient sqs, String url, int count) {
    List<Message> found = new ArrayList<>();
    while (found.size() < count) {
      found.addAll(sqs.receiveMessage(r -> r.queueUrl(url).maxNumberOfMessages(10).waitTimeSeconds(20)
          .messageAttributeNames("All").messageSystemAttributeNames(MessageSystemAttributeName.ALL)).messages());
    }
    check(found.size() == count, found);
    return found;
  }

  static void standard(SqsClient sqs, String name) {
    String url = sqs.createQueue(r -> r.queueName(name)
        .attributes(Map.of(QueueAttributeName.VISIBILITY_TIMEOUT, "120"))).queueUrl();
    byte[] raw = new byte[256];
    for (int place = 0; place < raw.length; place++) raw[place] = (byte) place;
    Map<String, MessageAttributeValue> attributes = Map.of(
        "text", MessageAttributeValue.builder().dataType("String").stringValue("café <&>").build(),
        "raw", MessageAttributeValue.builder().dataType("Binary").binaryValue(SdkBytes.fromByteArray(raw)).build());
    String sent = sqs.sendMessage(r -> r.queueUrl(url).messageBody("first \uD83D\uDE00").messageAttributes(attributes)).messageId();
    List<SendMessageBatchRequestEntry> entries = new ArrayList<>();
    for (int number = 0; number < 3; number++) {
      entries.add(SendMessageBatchRequestEntry.builder().id("n" + number).messageBody("body " + number).build());
    }
    entries.add(SendMessageBatchRequestEntry.builder().id("bad").messageBody("\u0001").build());
    var batch = sqs.sendMessageBatch(r -> r.queueUrl(url).entries(entries));
    check(batch.successful().size() == 3 && batch.failed().get(0).id().equals("bad"), batch);
    List<Message> messages = received(sqs, url, 4);
    Message first = messages.get(0);
    check(first.body().equals("first \uD83D\uDE00") && first.messageId().equals(sent), first);
    check(first.messageAttributes().get("raw").binaryValue().equals(SdkBytes.fromByteArray(raw)), first);
    sqs.changeMessageVisibility(r -> r.queueUrl(url).receiptHandle(first.receiptHandle()).visibilityTimeout(0));
    Message again = received(sqs, url, 1).get(0);
    check("2".equals(again.attributes().get(MessageSystemAttributeName.APPROXIMATE_RECEIVE_COUNT)), again);
    messages.set(0, again);
    List<DeleteMessageBatchRequestEntry> handles = IntStream.range(0, 4).mapToObj(place ->
        DeleteMessageBatchRequestEntry.builder().id("" + place).receiptHandle(messages.get(place).receiptHandle()).build()).toList();
    check(sqs.deleteMessageBatch(r -> r.queueUrl(url).entries(handles)).successful().size() == 4, handles);
    sqs.deleteQueue(r -> r.queueUrl(url));
    try {
      sqs.getQueueUrl(r -> r.queueName(name));
      throw new AssertionError("the queue is deleted");
    } catch (QueueDoesNotExistException expected) {
      check(expected.awsErrorDetails().errorCode().endsWith("NonExistentQueue"), expected);
    }
  }

  static void fifo(SqsClient sqs, String name) {
    String url = sqs.createQueue(r -> r.queueName(name + ".fifo").attributes(Map.of(
        QueueAttributeName.FIFO_QUEUE, "true", QueueAttributeName.CONTENT_BASED_DEDUPLICATION, "true"))).queueUrl();
    for (String body : List.of("1", "2", "1")) {
      sqs.sendMessage(r -> r.queueUrl(url).messageBody(body).messageGroupId("a"));
    }
    List<Message> messages = received(sqs, url, 2);
    check(messages.get(0).body().equals("1") && messages.get(1).body().equals("2"), messages);
    for (Message one : messages) sqs.deleteMessage(r -> r.queueUrl(url).receiptHandle(one.receiptHandle()));
    sqs.deleteQueue(r -> r.queueUrl(url));
  }

  /** The batch manager gathers sends, receives and deletions of an asynchronous client. */
  static void batches(SqsClient sqs, URI endpoint, String name) {
    String url = sqs.createQueue(r -> r.queueName(name + "-batches")).queueUrl();
    try (SqsAsyncClient client = SqsAsyncClient.builder().endpointOverride(endpoint).build();
        SqsAsyncBatchManager manager = client.batchManager()) {
      List<CompletableFuture<?>> sends = new ArrayList<>();
      for (int number = 0; number < 25; number++) {
        String body = "task " + number;
        sends.add(manager.sendMessage(r -> r.queueUrl(url).messageBody(body)));
      }
      sends.forEach(CompletableFuture::join);
      int left = 25;
      while (left > 0) {
        List<Message> found = manager.receiveMessage(r -> r.queueUrl(url)).join().messages();
        found.stream().map(one -> manager.deleteMessage(r -> r.queueUrl(url).receiptHandle(one.receiptHandle())))
            .toList().forEach(CompletableFuture::join);
        left -= found.size();
      }
      check(left == 0, left);
    }
    sqs.deleteQueue(r -> r.queueUrl(url));
  }

  public static void main(String[] arguments) {
    URI endpoint = URI.create(arguments[0]);
    try (SqsClient sqs = SqsClient.builder().endpointOverride(endpoint).build()) {
      standard(sqs, arguments[1]);
      fifo(sqs, arguments[1]);
      batches(sqs, endpoint, arguments[1]);
    }
  }
}
