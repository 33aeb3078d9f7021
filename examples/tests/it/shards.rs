//! A lock on the shard of its rows excludes, two locks in one order never wait for each other, and a transfer arrives once.

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
            "transfer       delivered twice, and counted once: 20 and 10",
        ],
    );
}
