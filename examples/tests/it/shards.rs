//! A lock on the shard of its rows excludes, two locks in one order never wait for each other, and
//! a transfer arrives once: sent again, delivered again, and with another sender on its shard.

#[test]
fn locks_and_transfers_hold_across_two_servers() {
    let printed = crate::printed_by("shards", &[]);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(
        lines,
        [
            "one shard      30 of 50 calls spent 1 from 30",
            "without order  a call waited until its `wait` had passed: true",
            "in order       both calls found 30 and 30",
            "of one shard   8 calls found 30, and a tenant who was named twice has 30",
            "no money       sent: false",
            "transfer       sent three times and delivered three times, and counted once: 20 and 10",
            "both ways      two who share a shard have 0 and 30, and the other has 30",
        ],
    );
}
