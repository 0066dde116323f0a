<?php
// AsyncAws as a program uses it. Arguments: the URL of a port, a prefix for names of queues.

declare(strict_types=1);

require 'AsyncAws/Sqs/autoload.php';

use AsyncAws\Core\Exception\Http\HttpException;
use AsyncAws\Sqs\Enum\QueueAttributeName;
use AsyncAws\Sqs\SqsClient;

function check(mixed $found, mixed $wanted): void
{
    if ($found !== $wanted) {
        throw new RuntimeException(var_export($found, true) . ' is not ' . var_export($wanted, true));
    }
}

/** Receive until there are that many messages. */
function received(SqsClient $sqs, string $url, int $count): array
{
    $found = [];
    while (count($found) < $count) {
        $answer = $sqs->receiveMessage([
            'QueueUrl' => $url, 'MaxNumberOfMessages' => 10, 'WaitTimeSeconds' => 20, 'MessageAttributeNames' => ['All'],
        ]);
        array_push($found, ...$answer->getMessages());
    }
    return $found;
}

function errorOf(callable $call): string
{
    try {
        $call();
    } catch (HttpException $error) {
        return (string) $error->getAwsCode();
    }
    throw new RuntimeException('the call has no error');
}

[, $endpoint, $prefix] = $argv;
$sqs = new SqsClient(['endpoint' => $endpoint, 'region' => 'us-east-1']);

// A standard queue: a text with an attribute, hidden again, then deleted.
$url = $sqs->createQueue(['QueueName' => "$prefix-php"])->getQueueUrl();
check($sqs->getQueueUrl(['QueueName' => "$prefix-php"])->getQueueUrl(), $url);
$sent = $sqs->sendMessage([
    'QueueUrl' => $url,
    'MessageBody' => "h\u{e9}llo <&>",
    'MessageAttributes' => [
        'text' => ['DataType' => 'String', 'StringValue' => "caf\u{e9}"],
        'raw' => ['DataType' => 'Binary', 'BinaryValue' => "\x00\xff"],
    ],
]);
check($sent->getMd5OfMessageBody(), md5("h\u{e9}llo <&>"));
[$message] = received($sqs, $url, 1);
check([$message->getMessageId(), $message->getBody()], [$sent->getMessageId(), "h\u{e9}llo <&>"]);
check($message->getMessageAttributes()['text']->getStringValue(), "caf\u{e9}");
check($message->getMessageAttributes()['raw']->getBinaryValue(), "\x00\xff");
$handle = ['QueueUrl' => $url, 'ReceiptHandle' => $message->getReceiptHandle()];
$sqs->changeMessageVisibility([...$handle, 'VisibilityTimeout' => 0])->resolve();
[$again] = received($sqs, $url, 1);
check($again->getMessageId(), $sent->getMessageId());
$sqs->deleteMessage(['QueueUrl' => $url, 'ReceiptHandle' => $again->getReceiptHandle()])->resolve();

// A batch, and what is left.
$entries = array_map(fn (int $n) => ['Id' => "e$n", 'MessageBody' => "body $n"], range(0, 9));
check(count($sqs->sendMessageBatch(['QueueUrl' => $url, 'Entries' => $entries])->getSuccessful()), 10);
$bodies = [];
foreach (received($sqs, $url, 10) as $one) {
    $bodies[] = $one->getBody();
    $sqs->deleteMessage(['QueueUrl' => $url, 'ReceiptHandle' => $one->getReceiptHandle()])->resolve();
}
check($bodies, array_map(fn (int $n) => "body $n", range(0, 9)));
$names = [QueueAttributeName::APPROXIMATE_NUMBER_OF_MESSAGES];
check($sqs->getQueueAttributes(['QueueUrl' => $url, 'AttributeNames' => $names])->getAttributes(), [$names[0] => '0']);

// A FIFO queue stores a message with a deduplication id once.
$fifo = $sqs->createQueue(['QueueName' => "$prefix-php.fifo", 'Attributes' => ['FifoQueue' => 'true']])->getQueueUrl();
$twice = ['QueueUrl' => $fifo, 'MessageBody' => 'once', 'MessageGroupId' => 'g', 'MessageDeduplicationId' => 'd'];
check($sqs->sendMessage($twice)->getMessageId(), $sqs->sendMessage($twice)->getMessageId());
check(count(received($sqs, $fifo, 1)), 1);

foreach ([$url, $fifo] as $queue) {
    $sqs->deleteQueue(['QueueUrl' => $queue])->resolve();
}
check(errorOf(fn () => $sqs->getQueueUrl(['QueueName' => "$prefix-php"])->getQueueUrl()), 'AWS.SimpleQueueService.NonExistentQueue');
echo "done\n";
