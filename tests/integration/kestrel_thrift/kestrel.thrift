// The interface of Kestrel's Thrift port.

struct Item {
  1: binary data
  2: i64 id
}

struct QueueInfo {
  1: optional binary head_item
  2: i64 items
  3: i64 bytes
  4: i64 journal_bytes
  5: i64 age
  6: i32 waiters
  7: i32 open_transactions
}

enum Status {
  NOT_CONFIGURED = 0
  QUIESCENT = 1
  READ_ONLY = 2
  UP = 3
}

service Kestrel {
  i32 put(1: string queue_name, 2: list<binary> items, 3: i32 expiration_msec = 0)
  list<Item> get(1: string queue_name, 2: i32 max_items, 3: i32 timeout_msec = 0, 4: i32 auto_abort_msec = 0)
  i32 confirm(1: string queue_name, 2: set<i64> ids)
  i32 abort(1: string queue_name, 2: set<i64> ids)
  QueueInfo peek(1: string queue_name)
  void flush_queue(1: string queue_name)
  void flush_all_queues()
  void delete_queue(1: string queue_name)
  Status current_status()
  void set_status(1: Status status)
  string get_version()
}
